"""A run leaves a store as lines and comes to life in another (export, import, backup)."""

import errno
import json
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.stores import SECRET, Filled, fill, open_runtime

from hubbub import Message
from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import BadExport, Imported, import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.sqlite import backup as backup_module
from hubbub.runtime.stores.sqlite import folder as folder_module


class Made:
    def __init__(self, folder: Path, runs: Filled) -> None:
        self.folder = folder
        self.runs = runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made") / "store"
    return Made(folder, anyio.run(fill, folder))


def exported(folder: Path, run_id: str, *, contents: bool = True) -> list[bytes]:
    with open_reader(f"sqlite:{folder}") as store:
        return list(export_run(store, run_id, contents=contents))


def imported(folder: Path, lines: Iterable[bytes], *, replace: bool = False) -> Imported:
    async def work() -> Imported:
        return import_runs(f"sqlite:{folder}", "file.jsonl", lines, replace=replace, ports=Ports())

    return anyio.run(work)


def is_well(folder: Path) -> bool:
    return list(StoreCheck(f"sqlite:{folder}", thorough=True).problems()) == []


def rows_of(folder: Path, select: str) -> list[Any]:
    db = sqlite3.connect(folder / "hubbub.db")
    try:
        return db.execute(select).fetchall()
    finally:
        db.close()


# ── export and import ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["chat", "parent", "child", "done"])
@pytest.mark.parametrize("contents", [True, False])
def test_an_export_imported_and_exported_again_is_the_same(
    which: str, contents: bool, made: Made, tmp_path: Path
) -> None:
    run_id = getattr(made.runs, which)
    lines = exported(made.folder, run_id, contents=contents)
    assert lines == exported(made.folder, run_id, contents=contents)
    done = imported(tmp_path / "other", lines)
    assert (done.run_id, done.replaced) == (run_id, 0)
    again = exported(tmp_path / "other", run_id, contents=contents)
    assert again == lines
    imported(tmp_path / "third", again)
    assert exported(tmp_path / "third", run_id, contents=contents) == lines
    assert is_well(tmp_path / "third") or not contents


def test_an_import_beside_other_runs_is_the_same_too(made: Made, tmp_path: Path) -> None:
    other = shutil.copytree(made.folder, tmp_path / "other")
    before = rows_of(other, "SELECT max(position) FROM event")
    lines = exported(made.folder, made.runs.parent)
    assert imported(other, lines, replace=True).replaced == 2
    assert exported(other, made.runs.parent) == lines
    assert rows_of(other, "SELECT min(position) FROM event WHERE position > 1") != before
    assert is_well(other)


@pytest.mark.spec("H-19")
def test_values_of_secrets_are_in_no_export(made: Made) -> None:
    assert rows_of(made.folder, "SELECT count(*) FROM secret") != [(0,)]
    for run_id in (made.runs.chat, made.runs.parent):
        assert SECRET not in b"".join(exported(made.folder, run_id)).decode()


@pytest.mark.spec("P-10")
def test_a_runtime_goes_on_with_what_was_imported(made: Made, tmp_path: Path) -> None:
    """Inbox, keys and files are there: nothing accepted is lost, nothing is accepted twice."""
    folder = tmp_path / "other"
    for run_id in (made.runs.chat, made.runs.parent):
        imported(folder, exported(made.folder, run_id))

    async def work() -> tuple[Any, ...]:
        async with open_runtime(folder) as rt:
            twice = Message("hello?", key="twice")
            receipts = [await rt.hub.send_to_run(made.runs.parent, twice)]
            first = Message("again", key="first")
            receipts.append(await rt.hub.send_to_run(made.runs.chat, first))
            chat = await rt.start("bot", session_key="chat_1_2", input="and again")
            assert chat.run_id == made.runs.chat
            outcome = await chat.result()
            info = await rt.hub.journal.info(made.runs.parent)
            assert info is not None
            return [x.status for x in receipts], outcome.output, info.waiting

    statuses, output, waiting = anyio.run(work)
    assert statuses == ["duplicate", "duplicate"]
    assert output == "It is noted."
    assert waiting == 2
    assert is_well(folder)


def test_the_export_of_a_child_goes_without_its_parent(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    assert imported(folder, exported(made.folder, made.runs.child)).runs == 1
    assert is_well(folder)


def test_runs_that_are_there_are_refused(made: Made, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "other")
    with pytest.raises(OperatorError, match="in this store already; import with --replace"):
        imported(folder, exported(made.folder, made.runs.chat))
    assert is_well(folder)


def test_a_conversation_that_another_run_has_is_refused(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "other"

    async def work() -> None:
        async with open_runtime(folder) as rt:
            run = await rt.start("bot", "hello", session_key="chat_1_2")
            await run.result()

    anyio.run(work)
    with pytest.raises(OperatorError, match="the conversation 'chat_1_2' is that of run"):
        imported(folder, exported(made.folder, made.runs.chat))
    assert is_well(folder)


def test_a_store_that_a_runtime_is_at_work_on_takes_nothing_in(made: Made, tmp_path: Path) -> None:
    lines = exported(made.folder, made.runs.chat)

    async def work() -> None:
        async with open_runtime(tmp_path / "other"):
            with pytest.raises(OperatorError, match="another runtime is at work"):
                import_runs(f"sqlite:{tmp_path / 'other'}", "f", lines, ports=Ports())

    anyio.run(work)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_an_import_is_all_or_nothing(made: Made, tmp_path: Path, data: st.DataObject) -> None:
    """Cut off, a line missing, twice or changed: the store is as before."""
    lines = exported(made.folder, made.runs.parent)
    at = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["cut", "missing", "twice", "torn", "swapped"])):
        case "cut":
            bad = lines[:at]
        case "missing":
            bad = lines[:at] + lines[at + 1 :]
        case "twice":
            bad = lines[: at + 1] + lines[at:]
        case "torn":
            bad = [*lines[:at], lines[at][:-3] + b"\n", *lines[at + 1 :]]
        case _:
            other = data.draw(st.integers(0, len(lines) - 1).filter(lambda x: x != at))
            bad = list(lines)
            bad[at], bad[other] = bad[other], bad[at]
    folder = tmp_path / "other"
    try:
        imported(folder, bad)
    except BadExport as error:
        complaint = str(error)
    else:
        complaint = ""
    if complaint:
        assert "\n" not in complaint and "nothing was imported" in complaint
        assert not folder.exists()
    else:  # Lines whose order says nothing.
        assert is_well(folder)
        shutil.rmtree(folder)


def test_a_content_that_has_changed_on_its_way_is_refused(made: Made, tmp_path: Path) -> None:
    lines = exported(made.folder, made.runs.chat)
    at = next(at for at, line in enumerate(lines) if b'"content"' in line[:20])
    told = json.loads(lines[at])
    told["content"] = "AAAA"
    lines[at] = json.dumps(told).encode() + b"\n"
    with pytest.raises(BadExport, match=rf"line {at + 1}: content {told['digest']} has changed"):
        imported(tmp_path / "other", lines)


def test_what_is_damaged_is_not_exported(made: Made, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "other")
    shutil.rmtree(folder / "blobs")
    with pytest.raises(OperatorError, match="backup, or export with --no-files"):
        exported(folder, made.runs.chat)
    db = sqlite3.connect(folder / "hubbub.db")
    db.execute("UPDATE event SET body = replace(body, 'noted', 'voted')")
    db.commit()
    db.close()
    with pytest.raises(OperatorError, match="has changed since it was written; hubbub fsck"):
        exported(folder, made.runs.chat)


# ── backup ───────────────────────────────────────────────────────────────────────────────────


def test_a_backup_opens_as_a_store_and_holds_everything(made: Made, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    done = backup_store(f"sqlite:{made.folder}", copy)
    assert (done.runs, done.contents) == (4, 4)
    assert is_well(copy)
    for table in ("run", "event", "waiting", "accepted", "note", "secret", "meta"):
        select = f"SELECT * FROM {table} ORDER BY 1, 2"
        assert rows_of(copy, select) == rows_of(made.folder, select)
    for run_id in (made.runs.chat, made.runs.parent):
        assert exported(copy, run_id) == exported(made.folder, run_id)

    async def work() -> object:
        async with open_runtime(copy, mirror=True) as rt:
            run = await rt.start("bot", session_key="chat_1_2", input="after all")
            return (await run.result()).output

    assert anyio.run(work) == "It is noted."
    assert (copy / "agents" / made.runs.chat / "history.jsonl").exists()


def test_a_backup_while_a_runtime_writes_is_of_one_moment(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_runtime(tmp_path / "store") as rt:
            for number in range(5):
                await rt.run("bot", f"message {number}")
                backup_store(f"sqlite:{tmp_path / 'store'}", tmp_path / f"copy{number}")

    anyio.run(work)
    for number in range(5):
        copy = tmp_path / f"copy{number}"
        assert is_well(copy)
        assert rows_of(copy, "SELECT count(*) FROM run") == [(number + 1,)]


def test_a_backup_takes_no_folder_that_holds_something(made: Made, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(OperatorError, match="is not empty; name a new folder"):
        backup_store(f"sqlite:{made.folder}", tmp_path)
    with pytest.raises(OperatorError, match="Not a directory"):
        backup_store(f"sqlite:{made.folder}", tmp_path / "a.txt" / "b")


def test_of_a_damaged_store_there_is_no_backup(made: Made, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "other")
    db = sqlite3.connect(folder / "hubbub.db")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    file = folder / "hubbub.db"
    data = bytearray(file.read_bytes())
    data[3 * 4096 :: 4096] = b"\xff" * len(data[3 * 4096 :: 4096])
    file.write_bytes(data)
    with pytest.raises(OperatorError):
        backup_store(f"sqlite:{folder}", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("there", ["nothing", "a folder"])
@pytest.mark.parametrize("number", range(1, 12))
def test_a_backup_that_cannot_be_written_leaves_nothing(
    there: str, number: int, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from the first, second, … file or flush on; then the same is done again."""
    copy = tmp_path / "copy"
    if there == "a folder":
        copy.mkdir()
    calls = 0

    def full(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls >= number:
                raise OSError(errno.ENOSPC, "No space left on device", str(copy / name))
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "open_private", full("file", folder_module.open_private))
        for name in ("open_private", "make_private_file", "make_private_folder", "_sync"):
            patched.setattr(backup_module, name, full(name, getattr(backup_module, name)))
        try:
            backup_store(f"sqlite:{made.folder}", copy)
        except OperatorError as error:
            told = str(error)
        else:
            assert calls < number
            return
        assert "No space left" in told
        assert copy.exists() == (there == "a folder")
        assert there == "nothing" or not [*copy.iterdir()]
    backup_store(f"sqlite:{made.folder}", copy)
    assert is_well(copy)


@pytest.mark.parametrize("there", ["nothing", "a folder", "a file in it"])
def test_an_import_that_fails_leaves_no_store_behind(
    there: str, made: Made, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    if there != "nothing":
        target.mkdir()
    if there == "a file in it":
        (target / "mine.txt").write_text("mine")
    lines = exported(made.folder, made.runs.chat)
    for wrong in ([b"nonsense\n"], lines[:-1], []):
        with pytest.raises(BadExport):
            imported(target, wrong)
        assert target.exists() == (there != "nothing")
        left = {x.name for x in target.iterdir()} if target.exists() else set()
        assert left == ({"mine.txt"} if there == "a file in it" else set())
    imported(target, lines)
    with pytest.raises(OperatorError):
        imported(target, lines[:-1])
    assert is_well(target), "a store that was there stays"


def test_the_copy_is_a_store_of_its_own(made: Made, tmp_path: Path) -> None:
    """What is done with it does not reach the store."""
    copy = tmp_path / "copy"
    backup_store(f"sqlite:{made.folder}", copy)
    for blob in (x for x in (copy / "blobs").rglob("*") if x.is_file()):
        blob.chmod(0o600)
        blob.write_bytes(b"changed")
    assert not is_well(copy)
    assert is_well(made.folder)
    assert sqlite_store(copy).folder.database.exists()
