"""What commands write where their user says, whatever is there."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import anyio
import pytest
from support.stores import Filled, fill

from hubbub.__main__ import main
from hubbub.runtime.stores.sqlite import output_file

Made = tuple[Path, Filled]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made") / "store"
    return folder, anyio.run(fill, folder)


@pytest.fixture
def store(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    shutil.copytree(made[0], tmp_path / "store")
    shutil.copytree(made[0], tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("A text, to be read by the demo.")
    return Path("store"), made[1]


def shell(run: Filled, *arguments: str) -> list[str]:
    return [*arguments, "--store", "sqlite:store"]


COMMANDS: Final[Mapping[str, Callable[[Filled, str], list[str]]]] = {
    "export": lambda run, to: shell(run, "export", run.parent, "--out", to),
    "export --context": lambda run, to: shell(run, "export", run.chat, "--context", "--out", to),
    "export --state": lambda run, to: shell(run, "export", run.chat, "--state", "--out", to),
    "export --as-test": lambda run, to: shell(run, "export", run.chat, "--as-test", "--out", to),
    "backup": lambda run, to: shell(run, "backup", to),
    "demo --record": lambda run, to: ["demo", "texts", "--record", to],
    "assets": lambda run, to: ["assets", "--out", to],
}
"""Every command that writes what its user names."""


def _linked(path: str, to: str) -> str:
    Path(path).symlink_to(Path(to).absolute())
    return path


def _hard_linked(path: str, to: str) -> str:
    os.link(to, path)
    return path


def _moved(store: str) -> str:
    """The database of a store whose folder has a link in its place."""
    Path(store, "hubbub.db").rename("moved.sqlite")
    _linked(f"{store}/hubbub.db", "moved.sqlite")
    return "moved.sqlite"


def _named(name: str) -> str:
    """A store whose database has a name of its own."""
    Path("other/hubbub.db").rename(name)
    Path("other").rename(f"{name}.d")
    return f"{name}.d"


IN_STORES: Final[Mapping[str, Callable[[], str]]] = {
    "the database": lambda: "store/hubbub.db",
    "a file of the database": lambda: "store/hubbub.db-wal",
    "the lock": lambda: "store/hubbub.db-lock",
    "a new file": lambda: "store/x.py",
    "a new file of agents": lambda: "store/agents/x/y.py",
    "a content": lambda: next(str(x) for x in Path("store/blobs").glob("*/*")),
    "a way back": lambda: "here/../store/blobs/x.py",
    "a link to the database": lambda: _linked("x.py", "store/hubbub.db"),
    "a link to what is missing": lambda: _linked("x.py", "store/hubbub.db-journal"),
    "a link to the folder": lambda: _linked("link", "store") + "/x.py",
    "another name of the database": lambda: _hard_linked("x.py", "store/hubbub.db"),
    "a database elsewhere": lambda: _moved("store"),
    "a file of a database elsewhere": lambda: _moved("store") + "-wal",
    "the database of another store": lambda: "other/hubbub.db",
    "the log of another store": lambda: "other/hubbub.db-wal",
    "an agent of another store": lambda: "other/agents/x/x.py",
    "a content of another store": lambda: "other/blobs/x.py",
    "the folder of a named database": lambda: _named("my.db") + "/x.py",
}


def contents(*folders: str) -> dict[Path, bytes]:
    """All files but those that reading a database makes."""
    files = [x for folder in folders for x in sorted(Path(folder).rglob("*")) if x.is_file()]
    return {x: x.read_bytes() for x in files if not x.name.endswith(("-shm", "-wal"))}


OF_ITS_OWN_STORE: Final = ("a new file", "a link to the folder")
"""Whose place nothing shows but the name of the store."""


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (kind, command)
        for kind in IN_STORES
        for command in COMMANDS
        if command != "assets"
        # A demo is told no store, and a backup may be a folder beside a database.
        if not (kind in OF_ITS_OWN_STORE and command in ("demo --record", "backup"))
    ],
)
def test_nothing_is_written_into_a_store(
    kind: str, command: str, store: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    to = IN_STORES[kind]()
    before = contents(".")
    code = main(COMMANDS[command](store[1], to))
    told = capsys.readouterr().err
    assert code == 2, told
    assert told.startswith("hubbub: ") and told.count("\n") == 1 and "; " in told
    assert contents(".") == before


@pytest.mark.parametrize("to", ["store/agents", "other/blobs", "link"])
def test_no_picture_is_written_into_a_folder_of_a_store(
    to: str, store: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("store/agents").mkdir(exist_ok=True)
    _linked("link", "store/agents")
    before = contents("store", "other")
    assert main(COMMANDS["assets"](store[1], to)) == 2
    assert f"{to}: belongs to the store of" in capsys.readouterr().err
    assert contents("store", "other") == before


FILES = [name for name in COMMANDS if name not in ("backup", "assets")]


@pytest.mark.parametrize("command", FILES)
def test_a_folder_is_not_written_over(
    command: str, store: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.py").mkdir()
    assert main(COMMANDS[command](store[1], "there.py")) == 2
    assert "there.py: is a folder; name a file to write" in capsys.readouterr().err
    assert Path("there.py").is_dir()


@pytest.mark.parametrize("command", [name for name in FILES if "as-test" not in name])
def test_a_pipe_is_written_through(command: str, store: Made) -> None:
    os.mkfifo("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    assert main(COMMANDS[command](store[1], "pipe")) == 0
    reader.join(20)
    assert read and read[0] and Path("pipe").is_fifo()


@pytest.mark.parametrize("command", [name for name in FILES if "as-test" not in name])
def test_a_link_is_followed_and_stays(command: str, store: Made) -> None:
    Path("target").write_text("before")
    _linked("link", "target")
    assert main(COMMANDS[command](store[1], "link")) == 0
    assert Path("link").is_symlink() and Path("target").read_text() != "before"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no such device here")
@pytest.mark.parametrize("command", [name for name in FILES if "as-test" not in name])
def test_a_device_that_is_full_is_said_and_stays(
    command: str, store: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    _linked("full", "/dev/full")
    assert main(COMMANDS[command](store[1], "full")) == 2
    assert "full: No space left on device; name a file to write" in capsys.readouterr().err
    assert Path("full").is_symlink() and Path("/dev/full").is_char_device()


@pytest.mark.parametrize("how", ["pipe", "file"])
def test_the_standard_output_gets_the_lines_and_nothing_about_them(how: str, store: Made) -> None:
    command = shell(store[1], "export", store[1].parent, "--out", "/dev/stdout")
    arguments = [sys.executable, "-m", "hubbub", *command]
    if how == "pipe":
        said = subprocess.run(arguments, check=True, capture_output=True, timeout=60).stdout
    else:
        with Path("said").open("wb") as file:
            subprocess.run(arguments, check=True, stdout=file, timeout=60)
        said = Path("said").read_bytes()
    assert main(shell(store[1], "export", store[1].parent, "--out", "file")) == 0
    assert said == Path("file").read_bytes()


def test_files_of_the_user_beside_an_export_stay_as_they_are(store: Made) -> None:
    Path("x.jsonl.part").write_text("mine")
    assert main(shell(store[1], "export", store[1].parent, "--out", "x.jsonl")) == 0
    assert Path("x.jsonl.part").read_text() == "mine"
    assert {x.name for x in Path().glob("*part*")} == {"x.jsonl.part"}


def test_a_recording_is_not_put_over_a_file_that_is_there(
    store: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.jsonl").write_text("mine")
    assert main(shell(store[1], "export", store[1].chat, "--as-test", "--out", "mine.py")) == 2
    assert "mine.jsonl is there already; give another --out" in capsys.readouterr().err
    assert Path("mine.jsonl").read_text() == "mine" and not Path("mine.py").exists()


def test_two_exports_to_one_file_are_both_whole(store: Made) -> None:
    inside = iter(range(2))

    def lines() -> list[bytes]:
        if next(inside) == 0:  # While one is being written, there comes another.
            output_file.write_output(Path("x"), lines(), remedy="")
        return [b"a\n"] * 9

    assert output_file.write_output(Path("x"), (x for x in lines()), remedy="") == 9
    assert Path("x").read_bytes() == b"a\n" * 9


def test_what_fails_leaves_the_file_as_it_was(store: Made) -> None:
    def lines() -> Iterator[bytes]:
        yield b"a\n"
        raise KeyboardInterrupt

    Path("here/x").write_text("before")
    with pytest.raises(KeyboardInterrupt):
        output_file.write_output(Path("here/x"), lines(), remedy="")
    assert contents("here") == {Path("here/x"): b"before"}


def test_of_two_backups_into_one_folder_one_is_refused_and_harms_nothing(
    store: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubbub.runtime.stores.sqlite import backup

    codes: list[int] = []

    def copy_database(*arguments: object) -> tuple[int, int]:
        monkeypatch.setattr(backup, "_check_free", lambda _: True)  # It looked before there was.
        codes.append(main(shell(store[1], "backup", "copy")))
        return original(*arguments)  # type: ignore[arg-type]

    original = backup._copy_database
    monkeypatch.setattr(backup, "_copy_database", copy_database)
    assert main(shell(store[1], "backup", "copy")) == 0
    assert codes == [2]
    assert "another backup is being written there" in capsys.readouterr().err
    assert main(["fsck", "--store", "sqlite:copy"]) == 0
