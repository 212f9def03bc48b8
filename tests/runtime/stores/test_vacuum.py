"""``hubbub vacuum``: a smaller file with the same in it, or the file as it was."""

import json
import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest
from support.killed_steps import killed_before, steps_of
from support.profiles import portion
from support.pruned_stores import DAY, ports_at, problems, told_of
from support.stores import agents, fill

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.retention.pruning import prune_store
from hubbub.runtime.stores.retention.retention import Retention
from hubbub.runtime.stores.sqlite import vacuum as module
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.vacuum import vacuum

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of which most has been pruned."""
    folder = tmp_path_factory.mktemp("made") / "store"

    async def work() -> None:
        await fill(folder)
        async with Runtime(agents(), store=sqlite_store(folder, mirror=False)) as rt:
            for number in range(60):
                await rt.run("bot", f"number {number}: {'word ' * 2_000}")

    anyio.run(work)
    prune_store(f"sqlite:{folder}", Retention(keep_last=2), ports=ports_at(DAY))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


@pytest.fixture
def older(folder: Path) -> Path:
    """The same of a hubbub whose files could not give anything back."""
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        db.execute("CREATE TABLE filler (x)")
        db.execute("INSERT INTO filler VALUES (zeroblob(1000000))")
        db.commit()
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA auto_vacuum=NONE")
        db.execute("VACUUM")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("DROP TABLE filler")
    return folder


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def size_of(folder: Path) -> int:
    return (folder / "hubbub.db").stat().st_size


def pragma(folder: Path, name: str) -> int:
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def told(folder: Path) -> object:
    return told_of(f"sqlite:{folder}")


# ── a smaller file ───────────────────────────────────────────────────────────────────────────


def test_a_new_store_gives_back_what_was_freed(folder: Path) -> None:
    before, size = told(folder), size_of(folder)
    assert pragma(folder, "auto_vacuum") == 2
    done = vacuum(DataFolder(folder))
    assert (done.before, done.after, done.rewritten) == (size, size_of(folder), False)
    assert done.after < size / 2 and pragma(folder, "freelist_count") == 0
    assert told(folder) == before and problems(f"sqlite:{folder}") == []
    assert vacuum(DataFolder(folder)).after == done.after


def test_an_older_file_is_rewritten_once(older: Path) -> None:
    assert pragma(older, "auto_vacuum") == 0
    before, size = told(older), size_of(older)
    done = vacuum(DataFolder(older))
    assert done.rewritten and done.after < size - 900_000
    assert told(older) == before and problems(f"sqlite:{older}") == []
    assert pragma(older, "auto_vacuum") == 2
    assert not vacuum(DataFolder(older)).rewritten


@pytest.mark.anyio
async def test_a_runtime_goes_on_with_the_smaller_file(older: Path) -> None:
    vacuum(DataFolder(older))
    async with Runtime(agents(), store=sqlite_store(older, mirror=False), grace=0.1) as rt:
        chat = await rt.start("bot", "again", session_key="chat_1_2")
        assert (await chat.result()).success
    assert problems(f"sqlite:{older}") == []


def test_freed_room_is_used_again_without_it(folder: Path) -> None:
    size = size_of(folder)

    async def work() -> None:
        async with Runtime(agents(), store=sqlite_store(folder, mirror=False), grace=0.1) as rt:
            for number in range(20):
                await rt.run("bot", f"number {number}: {'word ' * 2_000}")

    anyio.run(work)
    assert size_of(folder) == size


# ── beside others, killed, without room ──────────────────────────────────────────────────────


def test_a_reader_that_is_there_sees_what_it_saw(folder: Path) -> None:
    with open_reader(f"sqlite:{folder}") as reader, reader.one_moment():
        before = [*reader.event_rows()]
        vacuum(DataFolder(folder))
        assert [*reader.event_rows()] == before
    assert vacuum(DataFolder(folder)).after < size_of(folder) + 1


def test_killed_before_any_of_its_steps_everything_is_there(folder: Path, tmp_path: Path) -> None:
    before, there = told(folder), tmp_path / "killed"
    shutil.copytree(folder, tmp_path / "all")
    steps = steps_of(lambda: vacuum(DataFolder(tmp_path / "all")), tmp_path)
    for step in portion(range(1, steps + 1)):
        shutil.copytree(folder, there)
        assert killed_before(step, lambda: vacuum(DataFolder(there)))
        assert told(there) == before and problems(f"sqlite:{there}") == []
        anyio.run(opened, there)
        assert pragma(there, "auto_vacuum") == 2  # No commit of a runtime moves pages.
        vacuum(DataFolder(there))
        assert size_of(there) == size_of(tmp_path / "all")
        shutil.rmtree(there)


async def opened(folder: Path) -> None:
    store = sqlite_store(folder, mirror=False)
    await store.open()
    await store.aclose()


def test_killed_while_it_rewrites_everything_is_there(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPERATIONS", 20)
    before, reports = told(older), Reports()
    vacuum(DataFolder(shutil.copytree(older, tmp_path / "all")), tell=reports)
    assert reports.count > 10
    for last in (1, reports.count // 2, reports.count - 1):
        dying = Reports(last)
        assert killed_before(None, partial(vacuum, DataFolder(older), tell=dying))
        assert told(older) == before and problems(f"sqlite:{older}") == []
    vacuum(DataFolder(older))
    assert told(older) == before and pragma(older, "auto_vacuum") == 2


class Reports:
    """Hears of progress, and ends the process at a certain word of it."""

    def __init__(self, last: int | None = None) -> None:
        self.count = 0
        self._last = last

    def __call__(self, _: str) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("kind", ["folder", "older"])
def test_a_disk_that_becomes_full_meanwhile_loses_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    older = request.getfixturevalue(kind)
    before, size = told(older), size_of(older)

    def work() -> None:
        # No file may become larger than this: the same as a full disk, to who writes.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        with pytest.raises(OperatorError) as refused:
            vacuum(DataFolder(older))
        assert "\n" not in str(refused.value) and "SQLITE_" in str(refused.value)

    assert not killed_before(None, work)
    assert told(older) == before and problems(f"sqlite:{older}") == []
    assert vacuum(DataFolder(older)).rewritten is (kind == "older")
    assert told(older) == before and size_of(older) < size


@pytest.mark.parametrize("kind", ["folder", "older"])
def test_without_enough_room_it_is_not_begun(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = request.getfixturevalue(kind)
    usage = shutil.disk_usage(older)._replace(free=1_000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    before, size = told(older), size_of(older)
    with pytest.raises(OperatorError, match="meanwhile, and it has 1,000; make room"):
        vacuum(DataFolder(older))
    assert told(older) == before and size_of(older) == size


# ── the command ──────────────────────────────────────────────────────────────────────────────


def test_the_command_says_how_much_it_was_and_is(folder: Path, command: Command) -> None:
    size = size_of(folder)
    code, out, err = command("vacuum", "--store", f"sqlite:{folder}", "--json")
    found = json.loads(out)
    assert code == 0 and "pages are free" in err
    assert (found["before"], found["after"], found["rewritten"]) == (size, size_of(folder), False)
    assert command("vacuum", "--store", f"sqlite:{folder}")[1].endswith(" now\n")


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("sqlite:missing", "no such store"),
        ("memory", "one in memory ends with its program"),
        ("postgresql://user@host/db", "PostgreSQL gives freed room back by itself"),
    ],
)
def test_what_cannot_be_vacuumed_is_one_line(
    store: str, words: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = command("vacuum", "--store", store)
    assert (code, out, err.count("\n")) == (2, "", 1) and words in err
    assert not Path("missing").exists()


@pytest.mark.anyio
async def test_beside_a_runtime_it_is_refused(folder: Path) -> None:
    async with Runtime(agents(), store=sqlite_store(folder, mirror=False), grace=0.1):
        with pytest.raises(OperatorError, match="another runtime is at work"):
            vacuum(DataFolder(folder))
