"""Damage of one thing is told of, and stops nothing else (P-02, P-03, P-04)."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Cron, Heartbeat, Message, Runtime
from hubbub.agents.model import ModelRequest
from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.events import HubErrorEvent
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


def answer(request: ModelRequest) -> str:
    return f"{len(request.messages)} so far"


def opened(folder: Path, ports: Ports, model: Any = answer, **options: Any) -> Runtime:
    from hubbub import AgentDefinition, PromptDefinition, SideConfig

    prompt = PromptDefinition(name="support", prompt="", model=FunctionModel(model))
    agent = AgentDefinition(name="support", side_a=SideConfig(prompt=prompt))
    return Runtime([agent], store=sqlite_store(folder, ports=ports), ports=ports, **options)


async def two_users(folder: Path, ports: Ports) -> dict[str, str]:
    """A store with two conversations; their runs by user."""
    async with opened(folder, ports) as rt:
        runs = {}
        for user in ("ada", "bob"):
            run = await rt.start("support", "hello", session_key=f"web_{user}_1")
            await run.result()
            runs[user] = run.run_id
    return runs


def change(folder: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        assert db.execute(statement, values).rowcount == 1
        db.commit()


OF_RUN = "run = (SELECT number FROM run WHERE run_id = ?)"


@pytest.mark.spec("P-03")
@pytest.mark.parametrize(
    "change_of",
    [
        f"UPDATE event SET body = replace(body, 'agent:start', 'agent:stast') WHERE {OF_RUN} "
        "AND type = 'agent:start'",
        f"UPDATE event SET lane = 'owo' WHERE {OF_RUN} AND type = 'session:taken'",
        f"UPDATE event SET body = CAST(x'ff13' AS TEXT) WHERE {OF_RUN} AND type = 'agent:step'",
        f"DELETE FROM event WHERE {OF_RUN} AND type = 'agent:text'",
    ],
    ids=["a word", "a lane", "no text", "a hole"],
)
async def test_a_run_whose_record_has_changed_is_left_alone_and_told_of(
    change_of: str, tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    runs = await two_users(folder, ports)
    change(folder, change_of, runs["bob"])
    async with opened(folder, ports) as rt:
        told: list[HubErrorEvent] = []
        rt.hub.subscribe("hub:error", told.append)
        ada = await rt.start("support", "again", session_key="web_ada_1")
        assert (await ada.result()).output == "3 so far"
        bob = await rt.start("support", "again", session_key="web_bob_1")
        with anyio.fail_after(100), pytest.raises((OperatorError, StoreFailed)):
            await bob.result()
        assert [each.run_id for each in told] == [runs["bob"]]
        assert "fsck" in told[0].error
    assert any(runs["bob"] in str(problem) for problem in StoreCheck(f"sqlite:{folder}").problems())


@pytest.mark.spec("P-03", "P-04")
@pytest.mark.parametrize("value", ["{}", '{"type":"user","connectos":"web"}', b"\xff\x13\x00"])
async def test_a_damaged_descriptor_stops_no_other_run(
    value: Any, tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    runs = await two_users(folder, ports)
    change(
        folder, "UPDATE run SET descriptor = CAST(? AS TEXT) WHERE run_id = ?", value, runs["bob"]
    )
    async with opened(folder, ports) as rt:
        ada = await rt.start("support", "again", session_key="web_ada_1")
        assert (await ada.result()).output == "3 so far"
        refused = await rt.hub.send_to_run(runs["bob"], "again")
        assert (refused.status, refused.reason) == ("rejected", "unreadable")
    assert any(runs["bob"] in str(problem) for problem in StoreCheck(f"sqlite:{folder}").problems())


@pytest.mark.spec("G-07")
@pytest.mark.parametrize("is_at_work", [True, False], ids=["at work", "parked"])
async def test_a_run_whose_descriptor_has_changed_is_told_of_once_and_nobody_waits_for_it(
    is_at_work: bool, tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"

    async def think(request: ModelRequest) -> str:
        if is_at_work:
            await anyio.sleep_forever()
        return "done"

    async with opened(folder, ports, think, grace=0) as rt:
        run = await rt.start("support", "hello", session_key="web_bob_1")
        await anyio.sleep(1)
    one_bit = """UPDATE run SET descriptor = replace(descriptor, 'userId', 'tserId')"""
    change(folder, one_bit)
    async with opened(folder, ports, think, grace=0) as rt:
        told: list[HubErrorEvent] = []
        rt.hub.subscribe("hub:error", told.append)
        await anyio.sleep(1)
        await expect_no_wait(rt, run.run_id)
        assert [event.run_id for event in told] == [run.run_id]


@pytest.mark.spec("G-07")
async def test_nobody_waits_for_a_run_whose_row_has_become_another_run_s(
    tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    runs = await two_users(folder, ports)
    async with opened(folder, ports) as rt:
        told: list[HubErrorEvent] = []
        rt.hub.subscribe("hub:error", told.append)
        change(folder, "UPDATE run SET run_id = 'another' WHERE run_id = ?", runs["bob"])
        await expect_no_wait(rt, runs["bob"])
        assert [event.run_id for event in told] == [runs["bob"]]


async def expect_no_wait(rt: Runtime, run_id: str) -> None:
    """The run takes no message, and whoever waits for it is told."""
    with anyio.fail_after(100):
        receipt = await rt.hub.send_to_run(run_id, "again")
        assert (receipt.status, receipt.reason) == ("rejected", "unreadable")
        for wait in (rt.result, rt.finished):
            with pytest.raises((OperatorError, StoreFailed)):
                await wait(run_id)


@pytest.mark.spec("P-02", "P-03", "P-04")
async def test_a_folder_that_cannot_be_read_is_told_of_by_the_hub_and_by_fsck(
    tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    runs = await two_users(folder, ports)
    for file in folder.glob("hubbub.db*"):
        file.unlink()
    damaged = folder / "agents" / runs["bob"] / "run.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b'"type":"session:open"', b"", 1))
    async with opened(folder, ports) as rt:
        told: list[HubErrorEvent] = []
        rt.hub.subscribe("hub:error", told.append)
        ada = await rt.start("support", "again", session_key="web_ada_1")
        assert ada.run_id == runs["ada"]
        assert (await ada.result()).output == "3 so far"
    assert [str(damaged) in each.error for each in told] == [True]
    problems = [str(problem) for problem in StoreCheck(f"sqlite:{folder}").problems()]
    assert len(problems) == 1 and str(damaged) in problems[0]


@pytest.mark.spec("P-07", "P-08")
async def test_a_store_with_schedules_is_sound(tmp_path: Path, ports: Ports) -> None:
    folder = tmp_path / "store"
    schedules = [Cron("tick", "* * * * *", "support", "tick"), Heartbeat("support", ["A"])]
    async with opened(folder, ports, schedules=schedules):
        await anyio.sleep(2000)
    async with opened(folder, ports, schedules=schedules):
        await anyio.sleep(2000)
    assert not [str(problem) for problem in StoreCheck(f"sqlite:{folder}").problems()]


async def test_a_check_beside_a_runtime_leaves_out_what_follows_it(
    tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    told: list[str] = []
    async with opened(folder, ports) as rt:
        for number in range(5):
            await (await rt.start("support", "hello", session_key=f"web_{number}_1")).result()
            await anyio.sleep(1)
            check = StoreCheck(f"sqlite:{folder}", tell=told.append)
            assert not [str(problem) for problem in check.problems()]
    assert "a runtime is at work" in told[0]


async def test_a_backup_of_a_changed_content_is_none(tmp_path: Path, ports: Ports) -> None:
    folder = tmp_path / "store"
    async with opened(folder, ports):
        pass
    blob = folder / "blobs" / "ab" / ("ab" * 32)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"not what its name says")
    with pytest.raises(StoreFailed, match="has changed"):
        backup_store(f"sqlite:{folder}", tmp_path / "copy")


@pytest.mark.spec("P-03", "G-07")
@pytest.mark.parametrize("recent", [b"\xff", (1 << 63) - 1, -5, "soon", 2.5])
async def test_a_damaged_time_of_one_run_stops_no_message_of_others(
    tmp_path: Path, ports: Ports, recent: Any
) -> None:
    await two_users(tmp_path, ports)
    change(tmp_path, "UPDATE run SET recent = ? WHERE session_key = 'web_ada_1'", recent)
    async with opened(tmp_path, ports) as rt:
        with anyio.fail_after(30):
            for key in ("web_bob_1", "web_new_1"):
                run = await rt.start("support", "again", session_key=key)
                assert (await run.result()).success


STRAY: dict[str, tuple[str, ...]] = {
    "a key whose message is elsewhere": (
        "UPDATE accepted SET position = position | 4096 WHERE key = 'k'",
    ),
    "a key whose message is missing": (
        "DELETE FROM event WHERE position = (SELECT position FROM accepted WHERE key = 'k')",
    ),
    "something that waits at the next number": (
        "INSERT INTO waiting SELECT number, in_seq + 1, 1 FROM run WHERE run_id = :bob",
    ),
}


@pytest.mark.spec("G-07")
@pytest.mark.parametrize("name", STRAY)
async def test_a_row_in_the_place_of_the_next_one_refuses_that_message_and_stops_nobody_else(
    tmp_path: Path, ports: Ports, name: str
) -> None:
    runs = await two_users(tmp_path, ports)
    async with opened(tmp_path, ports) as rt:
        assert (await rt.hub.send_to_run(runs["bob"], Message("once", key="k"))).accepted
        await rt.result(runs["bob"])
    with closing(sqlite3.connect(tmp_path / "hubbub.db")) as db:
        for statement in STRAY[name]:
            assert db.execute(statement, {"bob": runs["bob"]} if ":" in statement else ()).rowcount
        db.commit()
    for _ in range(2):  # Nor does it after a restart.
        async with opened(tmp_path, ports) as rt:
            key = "another" if "waits" in name else "k"
            receipt = await rt.hub.send_to_run(runs["bob"], Message("once", key=key))
            assert receipt.rejected
            assert (await rt.hub.send_to_run(runs["ada"], "more")).accepted
            assert (await rt.result(runs["ada"])).reason == ""
            assert (await rt.run("support", "hi")).output == "1 so far"
