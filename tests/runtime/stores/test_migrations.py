"""Stores of every format that there has been open; a step to a new one is all or nothing."""

import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.crash_vfs import Connection, CrashDisk, PowerLost
from support.crash_vfs import connect as connect_on
from support.formats import ARCHIVES, LABELLED, SORTED, run_later, take_out, use_later
from support.stores import open_runtime

from hubbub.__main__ import main
from hubbub.hub.errors import OperatorError
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import read_descriptor
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Selection
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sqlite import migrations
from hubbub.runtime.stores.sqlite.migrations import FIRST, Migration, newest
from hubbub.runtime.stores.sqlite.schema import connect, connect_read_only

STATES = ("left", "killed")


def archive_of(format_: int) -> Path:
    return next(each for each in ARCHIVES if each.name == f"format_{format_}.tar.gz")


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a store of the first format, left in order."""
    return take_out(archive_of(FIRST), tmp_path) / "left"


def schema_of(file: Path) -> dict[str, str]:
    with closing(sqlite3.connect(file)) as db:
        found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return {name: " ".join(sql.split()) for name, sql in found}


def version_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def labels_in(file: Path) -> dict[str, str]:
    with closing(sqlite3.connect(file)) as db:
        return dict(db.execute("SELECT key, value FROM label").fetchall())


def notes_in(file: Path) -> dict[str, str]:
    with closing(sqlite3.connect(file)) as db:
        return dict(db.execute("SELECT key, value FROM note").fetchall())


# ── what is kept of every format ─────────────────────────────────────────────────────────────


def test_steps_lead_from_each_format_to_the_next_and_a_store_of_each_is_kept() -> None:
    formats = [*range(FIRST, newest() + 1)]
    assert [step.to for step in migrations.STEPS] == formats[1:]
    assert migrations.VIEWS.keys() <= set(formats[:-1])
    assert [int(re.sub(r"\D", "", each.name.partition(".")[0])) for each in ARCHIVES] == formats


@pytest.mark.anyio
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
async def test_a_store_of_each_format_opens_with_all_that_it_held(
    archive: Path, state: str, tmp_path: Path, ports: Ports
) -> None:
    folder = take_out(archive, tmp_path)
    held: dict[str, Any] = json.loads((folder / f"{state}.json").read_text())
    store = sqlite_store(folder / state, ports=ports)
    await store.open()
    try:
        assert not store.problems
        events, _ = await store.read(Selection())
        assert events == [decode_event(body) for (body,) in held["events"]]
        runs = await store.runs(live=False)
        for run, was in zip(runs, held["runs"], strict=True):
            if was["descriptor"] is not None:
                was["descriptor"] = read_descriptor(was["descriptor"])
            assert {name: getattr(run, name) for name in was} == was
            loaded = await store.load(run.run_id)
            assert loaded is not None and len(loaded.waiting) == was["waiting"]
        assert await store.notes() == held["notes"]
        assert store.secrets is not None
        assert {key: store.secrets.get(key) for key in store.secrets.keys("")} == held["secrets"]
    finally:
        await store.aclose()
    assert version_of(folder / state / "hubbub.db") == newest()


@pytest.mark.anyio
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
async def test_a_conversation_of_each_format_goes_on(
    archive: Path, state: str, tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = take_out(archive, tmp_path) / state
    async with open_runtime(folder, ports, mirror=True) as rt:
        chat = await rt.start("bot", "and now?", session_key="chat_1_2")
        assert (await chat.result()).output == "It is noted."
        assert len(await rt.hub.read(chat.run_id, types="agent:start")) == 1
    assert main(["fsck", "--thorough", "--store", f"sqlite:{folder}"]) == 0
    assert capsys.readouterr().out.startswith("all is well: ")


@pytest.mark.anyio
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
async def test_the_folders_of_each_format_bring_their_agents_back_once_it_was_opened(
    archive: Path, state: str, tmp_path: Path, ports: Ports
) -> None:
    folder = take_out(archive, tmp_path) / state
    store = sqlite_store(folder, ports=ports)
    await store.open()
    await anyio.sleep(1)
    await store.aclose()
    for file in folder.glob("hubbub.db*"):
        file.unlink()
    there = {each.name for each in (folder / "agents").iterdir()}
    store = sqlite_store(folder, ports=ports)
    await store.open()
    try:
        assert {run.run_id for run in await store.runs(live=False)} == there
    finally:
        await store.aclose()


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_an_upgraded_file_has_the_tables_of_a_new_one(archive: Path, tmp_path: Path) -> None:
    upgraded = take_out(archive, tmp_path) / "left" / "hubbub.db"
    new = tmp_path / "new.db"
    for file in (upgraded, new):
        connect(file).close()
    assert schema_of(upgraded) == schema_of(new)


# ── a later version ──────────────────────────────────────────────────────────────────────────


def test_a_later_version_upgrades_step_by_step_and_this_one_then_refuses_in_one_line(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = left / "hubbub.db"
    notes = notes_in(file)
    with monkeypatch.context() as patch:
        use_later(patch, LABELLED, SORTED)
        for _ in range(2):  # The second time there is nothing to do.
            connect(file).close()
            assert (version_of(file), labels_in(file)) == (3, notes)
    for open_ in (connect, connect_read_only):
        with pytest.raises(OperatorError) as caught:
            open_(file)
        words = str(caught.value)
        assert "written by a newer hubbub (format 3; this one knows 1)" in words
        assert "upgrade hubbub" in words and "\n" not in words
    assert version_of(file) == 3


def test_a_process_that_is_killed_in_a_step_leaves_a_file_of_the_format_before(left: Path) -> None:
    file = left / "hubbub.db"
    before = schema_of(file)
    killed = (
        "def run(db):\n    LABELLED.run(db)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "migrations.STEPS = (migrations.Migration(to=2, run=run),)\n"
        "from hubbub.runtime.stores.sqlite.schema import connect\n"
        "from pathlib import Path\nconnect(Path(folder) / 'hubbub.db')\n"
    )
    for _ in range(2):
        done = subprocess.run([*run_later(killed), str(left)], timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL
        assert (version_of(file), schema_of(file)) == (1, before)
    connect(file).close()  # This version has nothing to mend, and the later one begins anew.
    whole = killed.replace("    os.kill(os.getpid(), signal.SIGKILL)\n", "")
    subprocess.run([*run_later(whole), str(left)], timeout=60, check=True)
    assert (version_of(file), labels_in(file)) == (2, notes_in(file))


def test_what_is_killed_between_two_steps_goes_on_with_the_second(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = left / "hubbub.db"
    killed = Migration(to=3, run=lambda db: 1 // 0)
    use_later(monkeypatch, LABELLED, killed)
    with pytest.raises(OperatorError, match="from format 2 to 3"):
        connect(file)
    assert (version_of(file), labels_in(file)) == (2, notes_in(file))
    use_later(monkeypatch, LABELLED, SORTED)
    connect(file).close()
    assert version_of(file) == 3 and "label_value" in schema_of(file)


def test_a_step_that_fails_says_so_in_one_line_and_changes_nothing(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(db: sqlite3.Connection) -> None:
        LABELLED.run(db)
        raise ValueError("a note of\nno sense")

    file = left / "hubbub.db"
    before = schema_of(file)
    with monkeypatch.context() as patch:
        use_later(patch, Migration(to=2, run=fail))
        with pytest.raises(OperatorError) as caught:
            connect(file)
    words = str(caught.value)
    assert "\n" not in words and "nothing has changed" in words
    assert "hubbub fsck" in words and "hubbub backup" in words
    assert (version_of(file), schema_of(file)) == (1, before)


def test_wherever_the_power_goes_in_a_step_the_file_is_of_one_format_or_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended_in: set[int] = set()
    for seed in range(40):
        disk = CrashDisk(seed)
        db = connect_on(disk)
        db.executemany("INSERT INTO note VALUES (?, ?)", [(f"n{n}", "x" * 900) for n in range(20)])
        db.close()
        disk.restart()
        with monkeypatch.context() as patch:
            use_later(patch, LABELLED)
            disk.fail_at(1 + seed)
            try:
                connect_on(disk).close()
            except (PowerLost, sqlite3.Error):
                assert disk.has_failed
            disk.restart()
            raw = Connection(disk)
            raw.execute("PRAGMA locking_mode=EXCLUSIVE")
            (version,) = raw.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema").fetchall()}
            raw.abandon()
            assert ("label" in tables) == (version == 2)
            ended_in.add(version)
            db = connect_on(disk)
            assert db.execute("SELECT count(*) FROM label").fetchone() == (20,)
            db.close()
    assert ended_in == {1, 2}


# ── what only reads ──────────────────────────────────────────────────────────────────────────


def test_what_only_reads_an_older_file_sees_it_as_upgraded_and_leaves_it_as_it_is(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = left / "hubbub.db"
    before = file.read_bytes()
    use_later(monkeypatch, LABELLED, SORTED)
    with closing(connect_read_only(file)) as db:
        assert dict(db.execute("SELECT key, value FROM label").fetchall()) == notes_in(file)
        with pytest.raises(sqlite3.OperationalError):
            db.execute("INSERT INTO note VALUES ('a', 'b')")
    assert file.read_bytes() == before


def test_the_commands_read_an_older_store_and_a_backup_of_it_is_of_its_format(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = left / "hubbub.db"
    before = file.read_bytes()
    use_later(monkeypatch, LABELLED)
    store = ("--store", f"sqlite:{left}")
    commands = (["runs", "--all"], ["schedules"], ["fsck"], ["backup", str(left.parent / "copy")])
    for command in commands:
        assert main([*command, *store]) == 0, capsys.readouterr().err
    assert file.read_bytes() == before
    copy = left.parent / "copy" / "hubbub.db"
    assert version_of(copy) == 1
    connect(copy).close()
    assert (version_of(copy), labels_in(copy)) == (2, notes_in(file))


def test_an_older_file_that_cannot_be_shown_as_a_newer_one_is_refused_with_the_remedy(
    left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (left / "hubbub.db").read_bytes()
    use_later(monkeypatch, LABELLED, views={})
    assert main(["runs", "--store", f"sqlite:{left}"]) == 2
    words = capsys.readouterr().err.strip()
    assert "of an older format (1; this hubbub reads 2)" in words and "\n" not in words
    assert "as a backup" in words and "open a runtime on it" in words
    assert (left / "hubbub.db").read_bytes() == before
