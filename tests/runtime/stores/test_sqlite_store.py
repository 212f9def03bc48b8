"""What the store on disk does beyond the conformance suite."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hubbub.hub.conformance.steps import A_RUN, B_RUN, open_run, send, stamp, write
from hubbub.hub.events import AgentComplete, AgentStatus
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Selection
from hubbub.hub.virtual import InlineWorker
from hubbub.runtime.stores.open import sqlite_store

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


async def steps_of_opening(path: Path, ports: Ports) -> int:
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

    store = sqlite_store(path, ports=ports)
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
