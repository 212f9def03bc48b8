"""Items that were lent to a frame, or moved when it ended, in what is done with stores."""

import sqlite3
from pathlib import Path

import pytest
from support.shared_stores import owner_of
from support.stacks import FRAME, MAIN, OVER, fill_stack, open_stack

from hubbub import Hub
from hubbub.agents.model import UserMessage
from hubbub.hub.events import AgentComplete, AgentStatus, SessionTaken
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.inspection.replay import replay
from hubbub.runtime.inspection.views import report
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio

WAITING = {MAIN: [(2, "one"), (4, "three")], FRAME: [(3, "over"), (4, "found")], OVER: []}
"""What waits in a filled store."""


async def waiting_in(path: Path, ports: Ports) -> dict[str, list[tuple[int, str]]]:
    store = sqlite_store(path, ports=ports, mirror=False)
    async with owner_of(store, ports, *WAITING):
        found = {}
        for info in await store.runs(live=False):
            loaded = await store.load(info.run_id)
            assert loaded is not None and info.waiting == len(loaded.waiting)
            found[info.run_id] = [(x.seq, getattr(x, "content", "")) for x in loaded.waiting]
        ready = set(await store.ready())
        assert ready == {run_id for run_id, items in found.items() if items}
        assert store.depths()[2] == sum(map(len, found.values()))
    return found


def problems_of(path: Path) -> list[str]:
    return [x.text for x in StoreCheck(f"sqlite:{path}", thorough=True).problems()]


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path / "hubbub.db")
    for statement in statements:
        assert db.execute(statement).rowcount > 0, statement
    db.commit()
    db.close()


@pytest.mark.spec("I-09", "I-13")
async def test_what_was_lent_and_moved_is_so_when_the_store_is_opened_again(
    tmp_path: Path, ports: Ports
) -> None:
    await fill_stack(tmp_path / "store", ports)
    assert await waiting_in(tmp_path / "store", ports) == WAITING
    assert problems_of(tmp_path / "store") == []


@pytest.mark.spec("I-13", "P-10")
async def test_a_tree_with_frames_is_exported_and_imported_with_what_waits(
    tmp_path: Path, ports: Ports
) -> None:
    await fill_stack(tmp_path / "store", ports)
    with open_reader(f"sqlite:{tmp_path / 'store'}") as store:
        lines = list(export_run(store, MAIN))
    for replace in (False, True):
        other = f"sqlite:{tmp_path / 'other'}"
        done = import_runs(other, "file.jsonl", lines, replace=replace, ports=ports)
        assert (done.runs, done.replaced) == (3, 3 * replace)
        assert problems_of(tmp_path / "other") == []
    with open_reader(f"sqlite:{tmp_path / 'other'}") as store:
        assert list(export_run(store, MAIN)) == lines
    assert await waiting_in(tmp_path / "other", ports) == WAITING


@pytest.mark.spec("I-13")
async def test_a_frame_is_exported_without_the_conversation_that_it_took_from(
    tmp_path: Path, ports: Ports
) -> None:
    await fill_stack(tmp_path / "store", ports)
    with open_reader(f"sqlite:{tmp_path / 'store'}") as store:
        lines = list(export_run(store, FRAME))
    import_runs(f"sqlite:{tmp_path / 'other'}", "file.jsonl", lines, ports=ports)
    assert problems_of(tmp_path / "other") == []
    assert await waiting_in(tmp_path / "other", ports) == {FRAME: WAITING[FRAME], OVER: []}


@pytest.mark.spec("I-13")
async def test_a_backup_has_what_waits(tmp_path: Path, ports: Ports) -> None:
    await fill_stack(tmp_path / "store", ports)
    backup_store(f"sqlite:{tmp_path / 'store'}", tmp_path / "copy")
    assert problems_of(tmp_path / "copy") == []
    assert await waiting_in(tmp_path / "copy", ports) == WAITING


@pytest.mark.spec("I-13", "P-11")
async def test_who_took_a_message_shows_it(tmp_path: Path, ports: Ports) -> None:
    """In its conversation, in its state after any record, and nobody else does."""
    await fill_stack(tmp_path / "store", ports)
    heard: dict[str, list[str]] = {MAIN: [], FRAME: ["two", "left"], OVER: []}
    with open_reader(f"sqlite:{tmp_path / 'store'}") as store:
        for run_id, texts in heard.items():
            replayed = replay(store, run_id)
            said = [x.content for x in replayed.conversation if isinstance(x, UserMessage)]
            shown = report(store, run_id)
            told = [x.text for x in shown.conversation if x.who != "input"]
            assert said == [text for text in told if not text.startswith("→ starts ")] == texts
            assert [(x.seq, x.text) for x in shown.waiting] == WAITING[run_id]


# ── fsck ─────────────────────────────────────────────────────────────────────────────────────

IN_MAIN = f"run = (SELECT number FROM run WHERE run_id = '{MAIN}')"
IN_FRAME = f"run = (SELECT number FROM run WHERE run_id = '{FRAME}')"
DAMAGE = {
    "an item that is lost": (
        f"DELETE FROM waiting WHERE {IN_MAIN} AND seq = 4",
        "in 4 was not taken, but does not wait (1 such)",
    ),
    "a lent item that waits again": (
        f"INSERT INTO waiting SELECT run, seq, position FROM event WHERE {IN_MAIN} "
        "AND lane = 'in' AND seq = 3",
        "in 3 waits, but was taken or never came (1 such)",
    ),
    "a moved item that is lost": (
        f"DELETE FROM waiting WHERE {IN_FRAME} AND seq = 3",
        "in 3 was not taken, but does not wait (1 such)",
    ),
}


@pytest.mark.spec("I-13", "P-11")
@pytest.mark.parametrize("name", DAMAGE)
async def test_what_is_wrong_with_lent_and_moved_items_is_found(
    name: str, tmp_path: Path, ports: Ports
) -> None:
    statement, words = DAMAGE[name]
    await fill_stack(tmp_path / "store", ports)
    change(tmp_path / "store", statement)
    found = problems_of(tmp_path / "store")
    run_id = MAIN if IN_MAIN in statement else FRAME
    assert any(f"run {run_id}: {words}" in text for text in found), found
    assert all(f"run {run_id}: " in text for text in found)


async def test_a_damaged_record_of_what_was_lent_is_one_problem(
    tmp_path: Path, ports: Ports
) -> None:
    """Nothing is said of the run that it was lent from: nobody can know."""
    await fill_stack(tmp_path / "store", ports)
    where = f"{IN_FRAME} AND type = 'session:taken' AND body LIKE '%\"two\"%'"
    change(tmp_path / "store", f"UPDATE event SET body = '{{' WHERE {where}")
    found = problems_of(tmp_path / "store")
    assert found and all(f": run {FRAME}: " in text for text in found)


@pytest.mark.spec("I-13")
async def test_an_item_that_is_taken_twice_is_found(tmp_path: Path, ports: Ports) -> None:
    """By its own run and a frame, by two, where it was moved to, and after its run has ended."""
    store = sqlite_store(tmp_path / "store", ports=ports, mirror=False)
    async with open_stack(store, ports) as stack:
        for run_id in (MAIN, FRAME):
            await stack.begin(f"above-{run_id}", above=run_id)
        above = f"above-{FRAME}"
        for to in (MAIN, above):
            await stack.hub.send_to_run(to, "hello")
        (hello,) = await stack.waiting(MAIN)
        (gone,) = await stack.waiting(above)
        stack.take(FRAME, hello)
        stack.end(above, to=FRAME)
        moved, _ = await stack.waiting(FRAME)
        stack.take(FRAME, moved)
        for taker, item in ((MAIN, hello), (f"above-{MAIN}", moved), (MAIN, gone)):
            stack.write(taker, SessionTaken(items=(item,)))
        await stack.hub.journal.flush()
    found = [text.partition("; ")[0] for text in problems_of(tmp_path / "store")]
    assert [text[text.index(": run ") :] for text in found] == [
        f": run {MAIN}: it takes in 2 of run {MAIN}, which was taken before",
        f": run above-{MAIN}: it takes in 2 of run {FRAME}, which was taken before",
        f": run {MAIN}: it takes in 2 of run {above}, which had ended",
    ]


@pytest.mark.spec("I-13")
async def test_an_item_that_was_lent_and_that_nobody_took_is_found(
    tmp_path: Path, ports: Ports
) -> None:
    store = sqlite_store(tmp_path / "store", ports=ports, mirror=False)
    async with open_stack(store, ports) as stack:
        await stack.hub.send_to_run(MAIN, "hello")
        stack.write(FRAME, AgentStatus(), lent=((MAIN, 2),))
        await stack.hub.journal.flush()
    (text,) = problems_of(tmp_path / "store")
    assert f"run {MAIN}: in 2 was not taken, but does not wait (1 such)" in text


@pytest.mark.spec("P-03", "T-09")
async def test_a_damaged_inbox_inherits_and_lends_nothing_and_keeps_no_frame_from_ending(
    tmp_path: Path, ports: Ports
) -> None:
    await fill_stack(tmp_path / "store", ports)
    where = f"{IN_MAIN} AND type = 'session:message'"
    change(tmp_path / "store", f"UPDATE event SET body = '{{' WHERE {where}")
    store = sqlite_store(tmp_path / "store", ports=ports, mirror=False)
    async with Hub(journal=store, ports=ports) as hub:
        loaded = await store.load(FRAME)
        assert loaded is not None
        lane = OwnLane(
            hub.pipeline, run_id=FRAME, root_run_id=MAIN, parent_run_id=MAIN, agent=FRAME,
            seq=len(loaded.events),
        )  # fmt: skip
        borrowing = lane.append((AgentStatus(),), lent=((MAIN, 2),))
        await store.flush()
        assert borrowing.error and not borrowing.written and not store.failure
        lane.seq = len(loaded.events)
        ending = lane.append((AgentComplete(),), status="ended", leave_to=MAIN)
        await store.flush()
        assert not ending.error
        assert [getattr(x, "content", "") for x in ending.leftovers] == ["over", "found"]
