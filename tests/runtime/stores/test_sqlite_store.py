"""What the store on disk does beyond the conformance suite."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.large_pages import check_pages

from hubbub.hub.conformance.steps import A_RUN, B_RUN, open_run, send, stamp, write
from hubbub.hub.events import AgentComplete, AgentStatus
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Selection
from hubbub.hub.virtual import InlineWorker
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sqlite import index_check

pytestmark = pytest.mark.anyio


class SlowToTell(InlineWorker):
    """Does its work at once, and comes back with it a while later, as a busy loop makes of it."""

    async def run(self, fn: Callable[[], Any]) -> Any:
        done = fn()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
        return done


@pytest.mark.spec("H-06", "H-17")
async def test_nobody_reads_what_nobody_has_been_told(tmp_path: Path, ports: Ports) -> None:
    """What the disk has before the loop has heard of it: a reader waits for the latter."""
    workers = [SlowToTell(), InlineWorker(), InlineWorker()]
    ports.make_worker = lambda: workers.pop(0)
    store = sqlite_store(tmp_path / "store", ports=ports)
    await store.open()
    await open_run(store, A_RUN)
    told: list[str] = []
    events = [stamp(A_RUN, 1, AgentStatus()), stamp(A_RUN, 2, AgentComplete())]
    commit = Commit(A_RUN, events, taken=(1,), status="ended")
    commit.done = lambda _: told.append("ended")
    store.submit(commit)
    while True:
        info = await store.info(A_RUN)
        assert info is not None
        assert (info.status == "ended") == bool(told)
        found, _ = await store.read(Selection(run_id=A_RUN))
        assert len(found) == (3 if told else 1)
        if told:
            break
        await anyio.lowlevel.checkpoint()
    await store.aclose()


@pytest.mark.spec("P-03")
async def test_a_damaged_inbox_is_its_own_run_s_trouble(tmp_path: Path, ports: Ports) -> None:
    store = sqlite_store(tmp_path / "store", ports=ports)
    await store.open()
    for run_id in (A_RUN, B_RUN):
        await open_run(store, run_id)
        await send(store, run_id, "hello")
    await store.aclose()
    with closing(sqlite3.connect(store.folder.database)) as db:
        db.execute("UPDATE event SET body = '{' WHERE type = 'session:message' AND run = 1")
        db.commit()
    store = sqlite_store(tmp_path / "store", ports=ports)
    await store.open()
    refused = await send(store, A_RUN, "anybody there?")
    assert (refused.outcome, refused.reason) == ("rejected", "unreadable")
    assert (await send(store, B_RUN, "and you?")).outcome == "accepted"
    commit = await write(store, A_RUN, 0, AgentStatus())
    assert commit.error and not store.failure
    await store.aclose()


async def ended_run(path: Path, ports: Ports, events: int) -> None:
    """A store with one run that is over, of so many events."""
    store = sqlite_store(path, ports=ports)
    await store.open()
    await open_run(store, A_RUN)
    life = [stamp(A_RUN, seq, AgentStatus()) for seq in range(1, events)]
    end = stamp(A_RUN, events, AgentComplete())
    commit = Commit(A_RUN, [*life, end], taken=(1,), status="ended")
    store.submit(commit)
    await store.aclose()
    assert not commit.error


async def steps_of_opening(path: Path, ports: Ports, *, mirror: bool = True) -> int:
    """Hundreds of steps that SQLite does, on every connection, while a store is opened."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.set_progress_handler(step, 100)
        return db

    store = sqlite_store(path, ports=ports, mirror=mirror)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", watched)
        await store.open()
    await store.aclose()
    return steps


@pytest.mark.spec("G-03")
async def test_an_opening_reads_nothing_of_what_is_over(tmp_path: Path, ports: Ports) -> None:
    """Else each opening took longer, and more memory, the more had ever happened."""
    numbers = (20, 5_000)
    for events in numbers:
        await ended_run(tmp_path / str(events), ports, events)
    few, many = [await steps_of_opening(tmp_path / str(events), ports) for events in numbers]
    assert many <= few + 5


async def test_runs_are_counted_anew_only_after_a_program_that_keeps_no_count(
    tmp_path: Path, ports: Ports
) -> None:
    """What an older program has written since is seen by the position of the last event."""
    folder = tmp_path / "store"

    async def opened() -> tuple[int, int, int]:
        store = sqlite_store(folder, ports=ports)
        await store.open()
        counted = store.depths()
        await store.aclose()
        return counted

    store = sqlite_store(folder, ports=ports)
    await store.open()
    await open_run(store, A_RUN)
    await open_run(store, B_RUN)
    store.submit(Commit(A_RUN, [stamp(A_RUN, 1, AgentStatus())], taken=(1,), status="parked"))
    await store.flush()
    counted = store.depths()
    await store.aclose()
    assert counted == (2, 1, 1)
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        db.execute("UPDATE run SET status = 'ended' WHERE run_id = ?", (A_RUN,))
        db.commit()
        assert await opened() == counted, "what is written is taken, and no run is looked at"
        (tip,) = db.execute("SELECT max(position) FROM event").fetchone()
        db.execute("UPDATE event SET position = ? WHERE position = ?", (tip + 1, tip))
        db.commit()
    assert await opened() == (1, 0, 1)


async def parked_runs(path: Path, ports: Ports, count: int) -> None:
    """A store with so many runs, all of them parked."""
    store = sqlite_store(path, ports=ports)
    await store.open()
    for number in range(count):
        run_id = f"run-{number}"
        await open_run(store, run_id)
        own = [stamp(run_id, 1, AgentStatus())]
        store.submit(Commit(run_id, own, taken=(1,), status="parked"))
    await store.aclose()
    assert store.depths() == (count, count, 0)


async def test_an_opening_reads_nothing_of_what_is_parked(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as fast with a million parked conversations as with ten; what checks them all does so
    beside the first work."""
    monkeypatch.setattr(index_check, "MAX_AT_ONCE", 0)
    monkeypatch.setattr(index_check.IndexCheck, "run", lambda self: None)
    numbers = (20, 2_000)
    for count in numbers:
        await parked_runs(tmp_path / str(count), ports, count)
    few, many = [
        await steps_of_opening(tmp_path / str(count), ports, mirror=False) for count in numbers
    ]
    assert many <= few + 5


async def test_a_store_is_closed_at_once_though_its_many_runs_are_being_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread that has begun, or has not: what is left of it ends by itself."""
    monkeypatch.setattr(index_check, "MAX_AT_ONCE", 0)
    begun, go_on, ended = Event(), Event(), Event()

    def checked(db: sqlite3.Connection, path: Path) -> None:
        begun.set()
        go_on.wait(30)
        try:
            endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            db.execute(f"{endless} SELECT count(*) FROM n").fetchone()
        finally:
            ended.set()

    store = sqlite_store(tmp_path / "store")
    await store.open()
    await open_run(store, A_RUN)
    await store.aclose()
    monkeypatch.setattr(index_check, "check_indexes", checked)
    await store.open()
    assert await anyio.to_thread.run_sync(begun.wait, 30)
    await store.aclose()
    assert not ended.is_set()
    go_on.set()
    assert await anyio.to_thread.run_sync(ended.wait, 30)
    store = sqlite_store(tmp_path / "store")
    await store.open()
    assert not store.failure
    await store.aclose()


async def test_a_page_of_large_events_is_short(tmp_path: Path, ports: Ports) -> None:
    """Many clients that read nothing keep a page in memory each."""
    await check_pages(sqlite_store(tmp_path / "store", ports=ports))
