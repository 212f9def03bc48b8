"""Room at the end of SQLite's log."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.log_pages import pages_written

from hubbub.hub.conformance.steps import A_RUN, open_run, write
from hubbub.hub.events import AgentComplete, AgentStatus
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Selection
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sqlite.open_files import MOST, LogRoom
from hubbub.runtime.stores.sqlite.store import SqliteStore

LOG = "hubbub.db-wal"


async def busy(path: Path, ports: Ports, commits: int) -> tuple[SqliteStore, list[int]]:
    """An open store in which a run has recorded so much, and the sizes that its log had."""
    store = sqlite_store(path, ports=ports, mirror=False)
    await store.open()
    await open_run(store, A_RUN)
    sizes = []
    for seq in range(commits):
        await write(store, A_RUN, seq, AgentStatus(status="x" * 300))
        sizes.append((path / LOG).stat().st_size)
    return store, sizes


@pytest.mark.anyio
async def test_few_commits_make_the_log_longer(tmp_path: Path, ports: Ports) -> None:
    store, sizes = await busy(tmp_path, ports, 300)
    written = sum(pages.total() for pages in pages_written(tmp_path / "hubbub.db"))
    assert sizes == sorted(sizes) and written > 600
    # Once by itself, and then as much again.
    assert len(set(sizes)) <= 2 * len(bin(sizes[-1] // sizes[0]))
    assert sizes[-1] <= 2 * written * 4200 + sizes[0]
    await store.aclose()
    assert not (tmp_path / LOG).exists()


def zeros_cut(log: bytes) -> bytes:
    return log.rstrip(b"\0")


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda log: log,
    "nothing": zeros_cut,
    "half of the zeros": lambda log: log[: (len(log) + len(zeros_cut(log))) // 2],
    "garbage": lambda log: zeros_cut(log) + os.urandom(len(log) - len(zeros_cut(log))),
}


@pytest.mark.anyio
@pytest.mark.parametrize("tail", TAILS)
async def test_after_a_crash_all_is_there_whatever_is_found_behind_what_was_written(
    tmp_path: Path, ports: Ports, tail: str
) -> None:
    store, _ = await busy(tmp_path / "store", ports, 40)
    log = (tmp_path / "store" / LOG).read_bytes()
    assert len(zeros_cut(log)) < len(log), "there is no room behind the log"
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    events, _ = await store.read(Selection())
    await store.aclose()
    (tmp_path / "killed" / LOG).write_bytes(TAILS[tail](log))
    after = sqlite_store(tmp_path / "killed", ports=ports, mirror=False)
    await after.open()
    try:
        assert await after.read(Selection()) == (events, len(events))
        await write(after, A_RUN, 40, AgentComplete(), status="ended")
    finally:
        await after.aclose()


def test_room_is_made_behind_all_that_is_there_and_once(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.write_bytes(b"x" * 5000)
    room = LogRoom(tmp_path / "hubbub.db")
    for _ in range(3):
        room.keep(2000)  # Less than there is: what SQLite has written stays as it is.
    assert log.read_bytes() == b"x" * 5000 + bytes(2000)
    room.keep(8 * MOST)
    assert log.stat().st_size == 7000 + MOST


def test_without_a_place_for_it_there_is_no_room_and_no_trouble(tmp_path: Path) -> None:
    room = LogRoom(tmp_path / "hubbub.db")
    room.keep(5000)
    assert not (tmp_path / LOG).exists()
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    (tmp_path / LOG).symlink_to(other)
    room.keep(6000)
    assert other.read_bytes() == b"theirs"
