"""A descriptor is an identity: users, cron tasks, the heartbeat, children (P-05, P-06, P-13)."""

import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents import Observer, echo_model, heard, model_agent
from support.families import Recorder, answers
from support.restarts import Lives, last_outcome

from hubbub import (
    AgentDefinition,
    Cron,
    Heartbeat,
    RunContext,
    Runtime,
    agent,
    send_agent_message,
)
from hubbub.hub.errors import BadValue, NoAgentFound, OperatorError
from hubbub.hub.events import SessionOpen
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    Descriptor,
    HeartbeatDescriptor,
    SubagentDescriptor,
    UserDescriptor,
    descriptor_of_key,
    encode_descriptor,
    key_of_descriptor,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio

FOREGROUND = "most-recent-foreground"
HOUR = 3600

ids = st.text(st.sampled_from("ab_%5F2:·/ "), min_size=1, max_size=8)
users = st.builds(UserDescriptor, connector=ids, channel_id=ids, user_id=ids)


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


@pytest.fixture(params=["left", "killed"])
def any_lives(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Lives:
    return Lives(tmp_path, ports, is_killed=request.param == "killed")


def bot(name: str = "assistant") -> AgentDefinition:
    return model_agent(echo_model(0), name=name)


def user(connector: str, channel: str, user_id: str) -> UserDescriptor:
    return UserDescriptor(connector=connector, channel_id=channel, user_id=user_id)


# ── keys and descriptors ─────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06", "P-13")
@given(users)
def test_every_user_has_a_key_that_spells_it(who: UserDescriptor) -> None:
    assert descriptor_of_key(key_of_descriptor(who)) == who


@pytest.mark.spec("P-06", "P-13")
@pytest.mark.parametrize(
    ("key", "connector", "channel", "user_id"),
    [
        ("telegram_123_456", "telegram", "123", "456"),
        ("web_room_ada_lovelace", "web", "room", "ada_lovelace"),
        ("my%5Fapp_50%25_a%5Fb", "my_app", "50%", "a%5Fb"),
        ("50%_%41_%", "50%", "%41", "%"),
        ("a_b__c", "a", "b", "_c"),
        ("a__b", "local", "a__b", "local"),
        ("my%5Fkey", "local", "my%5Fkey", "local"),
        ("local_daily_local", "local", "daily", "local"),
    ],
)
def test_a_key_is_parted_by_its_first_two_underscores(
    key: str, connector: str, channel: str, user_id: str
) -> None:
    assert descriptor_of_key(key) == user(connector, channel, user_id)


# ── one agent of each ────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06", "R-09")
@pytest.mark.parametrize("first", ["key", "struct", "json", "event"])
async def test_a_user_is_one_agent_however_it_is_named(
    first: str, store: Journal, ports: Ports
) -> None:
    async with Runtime([bot()], store=store, ports=ports) as rt:
        who = {"type": "user", "connector": "my_app", "channelId": "a%b", "userId": "x_y"}
        ways: dict[str, Callable[[], Any]] = {
            "key": lambda: rt.hub.open("assistant", "hi", session_key="my%5Fapp_a%25b_x_y"),
            "struct": lambda: rt.hub.open(
                "assistant", "hi", descriptor=user("my_app", "a%b", "x_y")
            ),
            "json": lambda: rt.hub.open("assistant", "hi", descriptor=who),
            "event": lambda: _publish(rt, user("my_app", "a%b", "x_y")),
        }
        await ways[first]()
        (info,) = await rt.hub.journal.runs()
        for open_again in ways.values():
            await open_again()
        await last_outcome(rt, info.run_id)
        sent = await rt.hub.send("hi", session_key="my%5Fapp_a%25b_x_y")
        assert sent.run_ids == (info.run_id,)
        assert (
            await rt.start("assistant", session_key=key_of_descriptor(user("my_app", "a%b", "x_y")))
        ).run_id == info.run_id
        assert len(await rt.hub.journal.runs(live=False)) == 1
        assert info.descriptor == user("my_app", "a%b", "x_y")
        assert info.session_key == "my%5Fapp_a%25b_x_y"
        start = next(x for x in await rt.hub.read(info.run_id) if x.type == "agent:start")
        assert start.session_key == info.session_key  # type: ignore[attr-defined]
        assert await rt.agent_for(FOREGROUND) == info.run_id
        await rt.terminate(info.run_id)


async def _publish(rt: Runtime, descriptor: Descriptor) -> None:
    opening = SessionOpen(
        open_agent="assistant", input_json=encode_descriptor(descriptor),
        descriptor_json=encode_descriptor(descriptor),
    )  # fmt: skip
    await rt.hub.publish(opening)


@pytest.mark.spec("P-06")
@pytest.mark.parametrize(
    "descriptor",
    [user("a_b", "c", "d"), CronDescriptor(id="nightly_1"), HeartbeatDescriptor()],
    ids=["user", "cron", "heartbeat"],
)
async def test_many_openers_at_once_make_one_agent_and_their_messages_keep_their_order(
    descriptor: Descriptor, store: Journal, ports: Ports
) -> None:
    read: list[str] = []

    @agent("reader")
    async def reader(input: str, ctx: RunContext) -> None:
        read.append(input)
        read.extend([message.content async for message in ctx.messages()])

    async with Runtime([reader], store=store, ports=ports) as rt:
        found: set[str] = set()

        async def open_some(number: int) -> None:
            for each in range(5):
                by_key = isinstance(descriptor, UserDescriptor) and (number + each) % 2
                receipt = rt.hub.open(
                    "reader", f"{number}:{each}",
                    session_key=key_of_descriptor(descriptor) if by_key else "",
                    descriptor=None if by_key else descriptor,
                )  # fmt: skip
                if each % 2:
                    await receipt
                found.add((await receipt).run_id)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(open_some, number)
        await anyio.sleep(1)
        assert len(found) == len(await rt.hub.journal.runs(live=False)) == 1
        await rt.hub.close_run(found.pop())
        await anyio.sleep(1)
    assert sorted(read) == [f"{x}:{y}" for x in range(8) for y in range(5)]
    for number in range(8):
        of_one = [x for x in read if x.startswith(f"{number}:")]
        assert of_one == [f"{number}:{each}" for each in range(5)]


@pytest.mark.spec("P-06", "P-07", "P-08")
@pytest.mark.parametrize("kind", ["cron", "heartbeat"])
async def test_whoever_names_a_schedules_agent_finds_it_and_is_found_by_it(
    kind: str, store: Journal, ports: Ports
) -> None:
    descriptor = CronDescriptor(id="job") if kind == "cron" else HeartbeatDescriptor()
    plan: Any = Cron("job", "0 * * * *", "assistant", "Work.")
    if kind == "heartbeat":
        plan = Heartbeat("assistant", ["Work."], interval=HOUR)
    async with Runtime([bot()], store=store, ports=ports, schedules=[plan]) as rt:
        observer = Observer(rt.hub)
        before = await rt.hub.open("assistant", "hello", descriptor=descriptor)
        await anyio.sleep(1.5 * HOUR)
        assert [x.run_id for x in observer.all("schedule:fire")] == [before.run_id]
        again = await rt.hub.open("assistant", "hello", descriptor=descriptor)
        assert again.run_id == before.run_id
        await rt.terminate(before.run_id)
        await anyio.sleep(HOUR)
        anew = observer.all("schedule:fire")[-1].run_id
        assert anew != before.run_id
        assert (await rt.hub.open("assistant", "x", descriptor=descriptor)).run_id == anew
        infos = await rt.hub.journal.runs(live=False)
        assert [x.descriptor for x in infos] == [descriptor] * 2
        with pytest.raises(NoAgentFound):
            await rt.agent_for(FOREGROUND)


@pytest.mark.spec("P-06", "P-17")
async def test_after_a_restart_the_same_agent_is_found_until_it_is_terminated(
    any_lives: Lives,
) -> None:
    named: list[Descriptor] = [user("a_b", "c", "d"), CronDescriptor(id="x"), HeartbeatDescriptor()]
    found: list[str] = []
    for _ in range(2):
        async with any_lives.life(bot()) as rt:
            for descriptor in named:
                receipt = await rt.hub.open("assistant", "hi", descriptor=descriptor)
                await last_outcome(rt, receipt.run_id)
                found.append(receipt.run_id)
    assert found[:3] == found[3:] and len(set(found)) == 3
    async with any_lives.life(bot()) as rt:
        for run_id in found[:3]:
            await rt.terminate(run_id)
    async with any_lives.life(bot()) as rt:
        for descriptor, before in zip(named, found, strict=False):
            receipt = await rt.hub.open("assistant", "hi", descriptor=descriptor)
            assert receipt.run_id != before
        keyed = await rt.hub.open("assistant", "hi", session_key="a%5Fb_c_d")
        info = await rt.hub.journal.info(keyed.run_id)
        assert info is not None and info.session_key == "a%5Fb_c_d"


@pytest.mark.spec("P-06")
@pytest.mark.parametrize(
    ("key", "descriptor"),
    [
        ("a_b_c", user("a", "b", "d")),
        ("chat", user("telegram", "1", "2")),
        ("chat", CronDescriptor(id="chat")),
        ("a_b_c", HeartbeatDescriptor()),
        ("a_b_c", SubagentDescriptor(id="x", parent_agent_id="y", name="z")),
    ],
)
async def test_a_key_and_a_descriptor_that_mean_different_agents_are_refused(
    key: str, descriptor: Descriptor, ports: Ports
) -> None:
    async with Runtime([bot()], store="memory", ports=ports) as rt:
        with pytest.raises(BadValue, match="another agent; give one of the two"):
            rt.hub.open("assistant", "hi", session_key=key, descriptor=descriptor)
        assert not await rt.hub.journal.runs(live=False)


# ── stores of older programs ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06", "P-13")
async def test_stored_keys_and_descriptors_keep_their_meaning(tmp_path: Path, ports: Ports) -> None:
    lives = Lives(tmp_path, ports)
    async with lives.life(bot()) as rt:
        plain = await rt.start("assistant", "hi", session_key="telegram_1_2_3")
        odd = await rt.start("assistant", "hi", session_key="was%5Fread_as_is")
        own = await rt.start("assistant", "hi", session_key="x")
        for run in (plain, odd, own):
            await last_outcome(rt, run.run_id)
    as_it_was = user("was%5Fread", "as", "is")
    _make_older(lives.folder, odd.run_id, as_it_was, "was%5Fread_as_is")
    _make_older(lives.folder, own.run_id, user("local", own.run_id, "local"), "")
    async with lives.life(bot()) as rt:
        opened = partial(rt.hub.open, "assistant", "hi")
        assert (await opened(session_key="telegram_1_2_3")).run_id == plain.run_id
        assert (await opened(descriptor=user("telegram", "1", "2_3"))).run_id == plain.run_id
        assert (await opened(session_key="was%5Fread_as_is")).run_id == odd.run_id
        assert (await opened(descriptor=as_it_was)).run_id == odd.run_id
        assert (await opened(session_key="was%255Fread_as_is")).run_id == odd.run_id
        new = await opened(descriptor=user("was_read", "as", "is"))
        assert new.run_id not in (plain.run_id, odd.run_id, own.run_id)
        assert (await opened(session_key="was%5Fread_as_is")).run_id == odd.run_id
        await rt.hub.send_to_run(own.run_id, "hello", source="somebody")
        assert await rt.agent_for(FOREGROUND) == odd.run_id, "nobody holds what a program began"
        await rt.terminate(odd.run_id)
        assert (await opened(session_key="was%5Fread_as_is")).run_id == new.run_id


def _make_older(folder: Path, run_id: str, descriptor: Descriptor, key: str) -> None:
    """A row as the program before this one would have written it, and no index of identities."""
    db = sqlite3.connect(folder / "hubbub.db")
    with db:
        text = bytes(encode_descriptor(descriptor)).decode()
        update = "UPDATE run SET descriptor = ?, session_key = ? WHERE run_id = ?"
        db.execute(update, (text, key, run_id))
        db.execute("DROP INDEX IF EXISTS run_identity")
    db.close()


# ── children ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06", "P-09", "P-13")
async def test_a_subagent_stands_below_the_parent_that_it_names(
    store: Journal, ports: Ports
) -> None:
    script = Recorder("Hello.", "I see.")
    speaks = Recorder(call(send_agent_message.name, text="done"), "Told.")
    agents = [model_agent(script), model_agent(speaks, send_agent_message, name="scout")]
    async with Runtime(agents, store=store, ports=ports) as rt:
        boss = await rt.start("assistant", "hi", session_key="web_1_2")
        await last_outcome(rt, boss.run_id)
        child = SubagentDescriptor(id="scout-1", parent_agent_id=boss.run_id, name="Bob")
        opened = await rt.hub.open("scout", "go", descriptor=child)
        assert (opened.status, opened.run_id) == ("accepted", "scout-1")
        await last_outcome(rt, "scout-1")
        await last_outcome(rt, boss.run_id)
        assert heard(script.requests[-1]) == ["hi", "done"]
        info = await rt.hub.journal.info("scout-1")
        assert info is not None and info.name == "Bob"
        assert (info.parent_run_id, info.root_run_id) == (boss.run_id, boss.run_id)
        assert (await rt.hub.open("scout", "go", descriptor=child)).status == "duplicate"
        receipt = await rt.terminate(boss.run_id)
        assert set(receipt.run_ids) >= {boss.run_id}
        await rt.finished("scout-1")
        late = SubagentDescriptor(id="scout-2", parent_agent_id=boss.run_id, name="Bob")
        refused = await rt.hub.open("scout", "go", descriptor=late)
        assert refused.rejected and boss.run_id in refused.reason


@pytest.mark.spec("P-06")
async def test_a_subagent_of_nobody_is_refused_and_leaves_nothing(
    store: Journal, ports: Ports
) -> None:
    async with Runtime([bot()], store=store, ports=ports) as rt:
        orphan = SubagentDescriptor(id="child", parent_agent_id="nobody", name="x")
        refused = await rt.hub.open("assistant", "hi", descriptor=orphan)
        assert refused.rejected
        assert refused.reason == "there is no open run 'nobody' to be its parent"
        with pytest.raises(BadValue, match="give one of the two"):
            rt.hub.open("assistant", "hi", run_id="other", descriptor=orphan)
        assert not await rt.hub.journal.runs(live=False)


# ── who is in the foreground ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-05", "P-13")
async def test_what_a_program_began_is_never_in_the_foreground(any_lives: Lives) -> None:
    async with any_lives.life(bot()) as rt:
        talk = await rt.start("assistant", "hello", session_key="web_1_2")
        await last_outcome(rt, talk.run_id)
        await anyio.sleep(1)
        own = await rt.start("assistant", "work")
        once = await rt.start("assistant", "work", once=True)
        for run in (own, once):
            await last_outcome(rt, run.run_id)
        await rt.hub.send_to_run(own.run_id, "a person might have said it")
        assert await rt.agent_for(FOREGROUND) == talk.run_id
    async with any_lives.life(bot()) as rt:
        assert await rt.agent_for(FOREGROUND) == talk.run_id
        await rt.terminate(talk.run_id)
        with pytest.raises(NoAgentFound):
            await rt.agent_for(FOREGROUND)


@pytest.mark.spec("P-05", "P-09", "P-13")
@pytest.mark.parametrize("key", ["", "web_1_2"])
async def test_no_agent_is_its_own_default_receiver(key: str, store: Journal, ports: Ports) -> None:
    script = Recorder(call(send_agent_message.name, text="psst"), "Oh.", "What?")
    async with Runtime([model_agent(script, send_agent_message)], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "hi", session_key=key)
        await last_outcome(rt, run.run_id)
        await anyio.sleep(1)
        (refused,) = answers(script.requests[-1])
        assert refused.is_error and FOREGROUND in refused.output and "\n" not in refused.output
        assert len(script.requests) == 2
        await rt.terminate(run.run_id)


# ── files ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06")
async def test_what_descriptors_have_opened_is_sound_and_can_be_taken_along(
    tmp_path: Path, ports: Ports
) -> None:
    lives = Lives(tmp_path, ports)
    async with lives.life(bot()) as rt:
        boss = await rt.hub.open("assistant", "hi", descriptor=user("a_b", "c", "d"))
        child = SubagentDescriptor(id="c-1", parent_agent_id=boss.run_id, name="Bob")
        await rt.hub.open("assistant", "go", descriptor=child)
        for run_id in (boss.run_id, "c-1"):
            await last_outcome(rt, run_id)
    store, other = f"sqlite:{lives.folder}", f"sqlite:{tmp_path / 'other'}"
    assert [x.text for x in StoreCheck(store).problems()] == []
    with open_reader(store) as file:
        lines = list(export_run(file, boss.run_id))
    assert (import_runs(other, "f", lines, ports=ports)).runs == 2
    assert [x.text for x in StoreCheck(other).problems()] == []
    async with Runtime([bot()], store=other, ports=ports) as rt:
        found = await rt.hub.open("assistant", "again", session_key="a%5Fb_c_d")
        assert found.run_id == boss.run_id
        await last_outcome(rt, boss.run_id)


@pytest.mark.spec("P-06", "G-04")
@pytest.mark.parametrize("way", ["import", "adopt"])
async def test_no_second_agent_of_a_descriptor_comes_in_from_outside(
    way: str, tmp_path: Path, ports: Ports
) -> None:
    one, two = Lives(tmp_path / "one", ports), Lives(tmp_path / "two", ports)
    made: list[str] = []
    for number, each in enumerate((one, two)):
        (tmp_path / ("one", "two")[number]).mkdir()
        async with each.life(bot()) as rt:
            # The same user under another key.
            ways: dict[str, Any] = {"session_key": "daily"}
            if number:
                ways = {"session_key": "local_daily_local"}
            run = await rt.hub.open("assistant", "hi", **ways)
            await last_outcome(rt, run.run_id)
            made.append(run.run_id)
            await rt.hub.journal.projected()  # type: ignore[attr-defined]
    if way == "import":
        with open_reader(f"sqlite:{two.folder}") as file:
            lines = list(export_run(file, made[1]))
        with pytest.raises(OperatorError, match=f"is run {made[0]} here"):
            import_runs(f"sqlite:{one.folder}", "f", lines, ports=ports)
        return
    shutil.copytree(two.folder / "agents" / made[1], one.folder / "agents" / made[1])
    async with one.life(bot()) as rt:
        assert [x.run_id for x in await rt.hub.journal.runs()] == [made[0]]
        (problem,) = rt.hub.journal.problems
        assert f"is that of run {made[0]}" in problem
        await rt.terminate(made[0])
    async with one.life(bot()) as rt:
        found = await rt.hub.open("assistant", "hi", session_key="daily")
        assert found.run_id == made[1]
        await last_outcome(rt, made[1])
