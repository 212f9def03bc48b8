"""When a store writes snapshots, and that nothing else depends on whether it can."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.__main__ import main
from hubbub.hub.conformance import A_RUN, B_RUN, commit_of, open_run, write
from hubbub.hub.events import AgentStatus, CustomEvent
from hubbub.hub.ports import Ports
from hubbub.hub.snapshots.draft import RECORDS, SnapshotDraft
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sql import queued
from hubbub.runtime.stores.sql.snapshots import KeptSnapshots

pytestmark = pytest.mark.anyio


async def opened(folder: Path, ports: Ports, *run_ids: str) -> Any:
    """A store with runs that are long enough for a snapshot."""
    store = sqlite_store(folder, ports=ports)
    await store.open()
    for run_id in run_ids:
        await open_run(store, run_id)
        await write(store, run_id, 0, *[AgentStatus(status=str(x)) for x in range(RECORDS)])
    return store


def draft(run_id: str = A_RUN, body: bytes = b'"kept"') -> SnapshotDraft:
    return SnapshotDraft(run_id, RECORDS, "1-test", lambda: body)


def kept(folder: Path) -> list[bytes]:
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        return [body for (body,) in db.execute("SELECT body FROM snapshot ORDER BY run")]


async def test_who_leaves_keeps_what_waits_to_be_kept(tmp_path: Path, ports: Ports) -> None:
    store = await opened(tmp_path, ports, A_RUN, B_RUN)
    for run_id in (A_RUN, B_RUN):
        store.keep_snapshot(draft(run_id))
    await store.aclose()
    assert kept(tmp_path) == [b'"kept"'] * 2
    store.keep_snapshot(draft())  # Too late, and no error.


async def test_who_is_killed_keeps_nothing_more(tmp_path: Path, ports: Ports) -> None:
    store = await opened(tmp_path, ports, A_RUN)
    store.keep_snapshot(draft())
    store.forget_submitted()
    store.keep_snapshot(draft())
    await store.aclose()
    assert kept(tmp_path) == []


async def test_of_too_many_that_wait_the_oldest_is_given_up(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued, "MAX_DRAFTS", 1)
    store = await opened(tmp_path, ports, A_RUN, B_RUN)
    store.keep_snapshot(draft(A_RUN, b'"a"'))
    store.keep_snapshot(draft(B_RUN, b'"b"'))
    await store.aclose()
    assert kept(tmp_path) == [b'"b"']


async def test_where_there_is_always_more_to_write_a_snapshot_is_kept_all_the_same(
    tmp_path: Path, ports: Ports
) -> None:
    store = await opened(tmp_path, ports, A_RUN)
    written = 0

    def more(_: Commit) -> None:
        nonlocal written
        written += 1
        if not kept(tmp_path):
            again = Commit(events=(CustomEvent.of("test:more"),))
            again.done = more
            store.submit(again)
        else:
            over.set()

    over = anyio.Event()
    for _ in range(2):
        first = Commit(events=(CustomEvent.of("test:more"),))
        first.done = more
        store.submit(first)
    store.keep_snapshot(draft())
    with anyio.fail_after(60):
        await over.wait()
    assert written >= queued.PATIENCE  # Each batch was acknowledged before.
    await store.aclose()


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (ValueError("no text"), ""),
        (sqlite3.OperationalError("database or disk is full"), ""),
        (sqlite3.OperationalError("disk I/O error"), "SQLITE_IOERR"),
    ],
    ids=["not encoded", "a full disk", "a broken disk"],
)
async def test_a_snapshot_that_cannot_be_written_fails_no_commit(
    error: Exception,
    fails: str,
    tmp_path: Path,
    ports: Ports,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for a disk that no longer says what is on it: then nothing more is promised."""
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorname = fails or "SQLITE_FULL"  # type: ignore[attr-defined]

    def keep(self: KeptSnapshots, draft: SnapshotDraft) -> bool:
        tried.set()
        raise error

    tried = anyio.Event()
    store = await opened(tmp_path, ports, A_RUN)
    monkeypatch.setattr(KeptSnapshots, "keep", keep)
    store.keep_snapshot(draft())
    await tried.wait()
    commit = await commit_of(store, Commit(events=(CustomEvent.of("test:after"),)))
    assert fails in commit.error and bool(commit.error) == bool(fails)
    assert bool(store.failure) == bool(fails)
    await store.aclose()


async def test_exports_carry_no_snapshots_and_what_is_replaced_loses_its_own(
    tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    store = await opened(folder, ports, A_RUN)
    store.keep_snapshot(draft(A_RUN, b'"told nowhere"'))
    await store.aclose()
    name = f"sqlite:{folder}"
    assert main(["export", A_RUN, "--store", name]) == 0
    exported = capsys.readouterr().out
    assert "told nowhere" not in exported
    (tmp_path / "run.jsonl").write_text(exported)
    assert kept(folder) == [b'"told nowhere"']
    assert main(["import", str(tmp_path / "run.jsonl"), "--replace", "--store", name]) == 0
    assert kept(folder) == []
