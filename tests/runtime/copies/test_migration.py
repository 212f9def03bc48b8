"""``hubbub migrate``: a whole store elsewhere, as it is, or nothing of it."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.formats import LABELLED, use_later
from support.killed_steps import killed_before, steps_of
from support.ledger_model import Model, commit_of, told
from support.ledger_plans import family, plan
from support.profiles import examples, portion
from support.stores import SECRET, Filled, fill, open_runtime
from support.whole_stores import agents_in, told_by

from hubbub import Message, Runtime
from hubbub.__main__ import main
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import CustomEvent
from hubbub.hub.ports import Ports
from hubbub.runtime.copies import migration
from hubbub.runtime.copies.migration import migrate_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.open import open_intake, open_reader, sqlite_store
from hubbub.runtime.stores.sqlite import whole_copy
from hubbub.runtime.stores.sqlite.store import SqliteStore

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Filled]:
    folder = tmp_path_factory.mktemp("original") / "store"

    async def main() -> Filled:
        return await fill(folder, mirror=True)

    return folder, anyio.run(main)


@pytest.fixture
def runs(original: tuple[Path, Filled]) -> Filled:
    return original[1]


@pytest.fixture
def filled(original: tuple[Path, Filled], tmp_path: Path) -> Path:
    shutil.copytree(original[0], tmp_path / "from")
    return tmp_path / "from"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def of(folder: Path) -> str:
    return f"sqlite:{folder}"


def bytes_of(folder: Path) -> dict[str, str]:
    """What is kept in a folder; the index of SQLite's log, and who had the lock, aside."""
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and (name := str(file.relative_to(folder)))
        and not name.endswith(("-shm", "-lock"))
        and (file.stat().st_size or not name.endswith("-wal"))
    }  # fmt: skip


def problems(store: str) -> list[str]:
    return [each.text for each in StoreCheck(store, thorough=True).problems()]


# ── everything comes along ───────────────────────────────────────────────────────────────────


@pytest.mark.spec("X-08")
def test_a_copy_says_of_everything_what_the_original_says_and_that_stays_as_it_was(
    filled: Path, there: Path
) -> None:
    before, said = bytes_of(filled), told_by(of(filled))
    made = migrate_store(of(filled), of(there))
    assert bytes_of(filled) == before
    assert told_by(of(there)) == said and said["secrets"] and said["contents"]
    assert problems(of(there)) == []
    assert (made.runs, made.events) == (len(said["rows"]), len(said["events"]))
    assert (made.secrets, made.contents) == (len(said["secrets"]), len(said["contents"]))
    assert made.folders == len(said["described"]) > 0
    assert agents_in(there / "agents") == agents_in(filled / "agents")


@pytest.mark.spec("X-08")
@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_whatever_was_done_to_a_store_its_copy_goes_on_as_it_would(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, model = tmp_path_factory.mktemp("drawn"), Model()

    async def go_on(at: Path, batches: int) -> None:
        store = SqliteStore(at)
        await store.open()
        for _ in range(batches):
            count = data.draw(st.integers(1, 6))
            for _ in range(count):
                drawn = plan(data.draw, model) if model.runs else family()
                commit, expected = commit_of(drawn), model.apply(drawn)
                store.submit(commit)
                await store.flush()
                assert told(commit) == expected
        assert store.depths() == model.depths()
        await store.aclose()

    anyio.run(go_on, folder / "from", data.draw(st.integers(1, 4)))
    with pytest.MonkeyPatch.context() as patch:
        # No runtime has written these runs: fsck would say that their lanes make no sense.
        patch.setattr(migration, "RecordCheck", lambda *_, **__: NoCheck())
        migrate_store(of(folder / "from"), of(folder / "there"))
    assert told_by(of(folder / "there")) == told_by(of(folder / "from"))
    anyio.run(go_on, folder / "there", 2)


class NoCheck:
    def problems(self) -> list[Any]:
        return []


@pytest.mark.spec("X-08", "H-06", "H-09")
def test_cursors_and_keys_hold_in_the_copy(filled: Path, there: Path, runs: Filled) -> None:
    with open_reader(of(filled)) as reader:
        cursor, middle = f"{reader.name}@{reader.tip // 2}", reader.tip // 2
        expected = [(row.run_id, row.lane, row.seq) for row in reader.event_rows(after=middle)]
    migrate_store(of(filled), of(there))
    found: list[Any] = []

    async def live() -> None:
        async with open_runtime(there) as rt:
            async with rt.hub.subscribe("*", after=cursor) as events:
                rt.hub.emit(CustomEvent.of("my:mark"))
                async for event in events:
                    found.append((event.run_id, event.lane, event.seq))
                    if event.type == "my:mark":
                        break
            again = await rt.hub.send_to_run(runs.chat, Message("again", key="first"))
            other = await rt.hub.send_to_run(runs.chat, Message("else", key="first"))
            assert again.duplicate and not other.accepted and not other.duplicate

    anyio.run(live)
    assert found[: len(expected)] == expected


@pytest.mark.spec("X-08")
def test_a_runtime_goes_on_from_the_copy_in_the_middle_of_a_run(
    filled: Path, there: Path, runs: Filled
) -> None:
    migrate_store(of(filled), of(there))

    async def go_on() -> None:
        async with open_runtime(there, mirror=True) as rt:
            assert (await rt.hub.send_to_run(runs.chat, "and now?")).accepted
            assert (await rt.result(runs.chat)).success
            assert (await rt.hub.send_to_run(runs.parent, "still there?")).accepted

    anyio.run(go_on)
    assert problems(of(there)) == []


@pytest.mark.parametrize("what", ["runs --all", "conversations", "schedules"])
def test_every_list_of_the_copy_is_that_of_the_original(
    filled: Path, there: Path, what: str, command: Command
) -> None:
    migrate_store(of(filled), of(there))
    said = command(*what.split(), "--json", "--store", of(there))
    assert said == command(*what.split(), "--json", "--store", of(filled)) and said[0] == 0


# ── the command ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("X-08", "P-05")
def test_the_command_says_what_was_copied_and_which_of_the_two_may_go_on(
    filled: Path, there: Path, tmp_path: Path, command: Command
) -> None:
    code, out, err = command("migrate", of(filled), of(there))
    assert (code, err) == (0, "") and SECRET not in out
    first, second = out.splitlines()
    assert first.startswith(f"{there}/hubbub.db: 4 runs, ") and "1 values of secrets" in first
    assert second.startswith(f"{filled}/hubbub.db is as it was. Only one of the two may go on")
    code, out, _ = command("migrate", "--json", of(there), of(tmp_path / "third"))
    made = json.loads(out)
    assert code == 0 and SECRET not in out and made["secrets"] == 1
    assert made["name"] == told_by(of(filled))["name"] and made["seconds"] >= 0


def test_progress_is_told_on_long_work(
    filled: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "STEP", 1)
    said: list[str] = []
    migrate_store(of(filled), of(there), tell=said.append)
    assert any("now they are checked" in line for line in said)
    assert "folders" in said[-1]


# ── what is refused ──────────────────────────────────────────────────────────────────────────


def refused(command: Command, source: object, target: object) -> str:
    code, out, err = command("migrate", source, target)
    assert code == 2 and not out and err.count("\n") == 1 and SECRET not in err, (code, out, err)
    return err


@pytest.mark.spec("X-08")
def test_what_is_no_store_or_no_place_for_one_is_refused_and_nothing_is_left(
    filled: Path, there: Path, tmp_path: Path, command: Command
) -> None:
    before = bytes_of(filled)
    assert "no such store" in refused(command, of(tmp_path / "no"), of(there))
    assert "expected" in refused(command, "mysql:x", of(there))
    assert "expected" in refused(command, of(filled), "mysql:x")
    assert "memory" in refused(command, "memory", of(there))
    assert "memory" in refused(command, of(filled), "memory")
    assert "is the store itself" in refused(command, of(filled), of(filled))
    assert "belongs to the store" in refused(command, of(filled), of(filled / "blobs" / "x"))
    assert not there.exists() and not (tmp_path / "no").exists()
    assert not (filled / "blobs" / "x").exists() and bytes_of(filled) == before


@pytest.mark.spec("X-08")
def test_a_store_that_holds_something_is_no_target_and_stays_as_it_is(
    filled: Path, there: Path, command: Command
) -> None:
    anyio.run(fill, there)
    before = bytes_of(there)
    assert "holds runs; give an empty store, or a new one" in refused(
        command, of(filled), of(there)
    )
    assert bytes_of(there) == before


def test_a_copy_that_is_there_already_is_not_made_again(
    filled: Path, there: Path, command: Command
) -> None:
    migrate_store(of(filled), of(there))
    before = bytes_of(there)
    assert "is a copy of that store already" in refused(command, of(filled), of(there))
    assert bytes_of(there) == before


@pytest.mark.parametrize("place", ["agents", "blobs"])
def test_a_folder_in_which_something_lies_is_no_target(
    filled: Path, there: Path, command: Command, place: str
) -> None:
    (there / place / "ab").mkdir(parents=True)
    assert f"{there / place}: is not empty" in refused(command, of(filled), of(there))
    assert not (there / "hubbub.db").exists() and (there / place / "ab").exists()


def test_a_store_with_nothing_in_it_becomes_the_copy(filled: Path, there: Path) -> None:
    async def open_once() -> None:
        async with open_runtime(there, mirror=True):
            pass

    anyio.run(open_once)
    migrate_store(of(filled), of(there))
    assert told_by(of(there)) == told_by(of(filled))


@pytest.mark.spec("X-08")
@pytest.mark.parametrize("side", ["source", "target"])
def test_nobody_may_be_at_work_on_either(
    filled: Path, there: Path, command: Command, side: str
) -> None:
    async def at_work() -> None:
        async with open_runtime(filled if side == "source" else there):
            assert "another runtime is at work" in refused(command, of(filled), of(there))

    anyio.run(at_work)


def test_nobody_works_on_either_while_it_is_copied(
    filled: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def try_both() -> None:
        for folder in (filled, there):
            with pytest.raises(OperatorError) as refusal:
                async with open_runtime(folder):
                    pass
            tried.append(str(refusal.value))

    class Check(migration.RecordCheck):
        def problems(self) -> Any:
            anyio.run(try_both)
            return super().problems()

    monkeypatch.setattr(migration, "RecordCheck", Check)
    migrate_store(of(filled), of(there))
    assert all("hubbub migrate is at work on this store" in words for words in tried)
    assert len(tried) == 2


def test_an_original_of_an_older_format_is_refused_with_what_to_do(
    filled: Path, there: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    use_later(monkeypatch, LABELLED)
    before = bytes_of(filled)
    assert "open a runtime on it once, which upgrades it" in refused(command, of(filled), of(there))
    assert bytes_of(filled) == before and not there.exists()


def test_an_original_of_a_newer_format_is_refused(
    filled: Path, there: Path, command: Command
) -> None:
    with closing(sqlite3.connect(filled / "hubbub.db")) as db:
        db.execute("PRAGMA user_version=99")
    assert "upgrade hubbub" in refused(command, of(filled), of(there))


DAMAGE = {
    "a body": "UPDATE event SET body = replace(body, 'hello', 'hallo')",
    "an event": "DELETE FROM event WHERE position = 3",
    "a row": "DELETE FROM run WHERE number = 2",
    "a number": "UPDATE run SET seq = 'seven' WHERE number = 1",
    "a counter": "UPDATE run SET waiting = 99",
    "a key": "UPDATE accepted SET position = 1",
}


@pytest.mark.spec("X-08", "G-04")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_original_is_refused_and_nothing_is_left(
    filled: Path, there: Path, command: Command, damage: str
) -> None:
    with closing(sqlite3.connect(filled / "hubbub.db")) as db:
        assert db.execute(damage).rowcount
        db.commit()
    said = refused(command, of(filled), of(there))
    assert "hubbub fsck lists everything" in said and not there.exists()


def test_a_content_that_has_changed_is_refused(filled: Path, there: Path, command: Command) -> None:
    blob = next(x for x in (filled / "blobs").rglob("*") if x.is_file())
    blob.chmod(0o600)
    blob.write_bytes(b"changed")
    assert "its content has changed" in refused(command, of(filled), of(there))
    assert not there.exists()


# ── interrupted ──────────────────────────────────────────────────────────────────────────────


def state_of(folder: Path) -> str:
    """What somebody finds who opens the store in a folder: nothing yet, a store, or what is
    unfinished, which everybody is told, and what to do."""

    async def run() -> None:
        async with Runtime(store=sqlite_store(folder)):
            pass

    def take_in() -> None:
        with open_intake(of(folder), Ports().ids):
            pass

    def read() -> None:
        with open_reader(of(folder)):
            pass

    told = [refusal_of(read)]
    if told == [""]:
        return "whole"
    if "no such store" in told[0] or "nothing in it yet" in told[0]:
        return "nothing"
    told += [refusal_of(take_in), refusal_of(lambda: anyio.run(run))]
    assert all("run the same hubbub migrate again" in words for words in told), told
    return "unfinished"


def refusal_of(use: Callable[[], object]) -> str:
    try:
        use()
    except OperatorError as error:
        return str(error)
    return ""


@pytest.mark.spec("X-08")
def test_killed_at_any_step_it_leaves_the_original_and_can_be_done_again(
    filled: Path, tmp_path: Path
) -> None:
    before, said = bytes_of(filled), told_by(of(filled))
    steps = steps_of(lambda: migrate_store(of(filled), of(tmp_path / "all")), tmp_path)
    there, states = tmp_path / "killed", []
    for step in portion(range(1, steps + 1)):
        assert killed_before(step, lambda: migrate_store(of(filled), of(there)))
        states.append(state_of(there))
        if states[-1] == "whole":
            with pytest.raises(OperatorError, match="is a copy of that store already"):
                migrate_store(of(filled), of(there))
        else:
            migrate_store(of(filled), of(there))
        assert told_by(of(there)) == said, f"killed before step {step}"
        assert [x for x in StoreCheck(of(there)).problems() if not x.heals] == []
        shutil.rmtree(there)
    assert bytes_of(filled) == before
    order = ["nothing", "unfinished", "whole"]
    assert states == sorted(states, key=order.index) and {*states} == {*order} and steps > 100


def test_what_another_store_s_migration_has_left_is_no_target(
    filled: Path, there: Path, tmp_path: Path, command: Command
) -> None:
    anyio.run(fill, tmp_path / "other")
    steps = steps_of(lambda: migrate_store(of(filled), of(tmp_path / "all")), tmp_path)
    assert killed_before(steps // 2, lambda: migrate_store(of(filled), of(there)))
    assert "an unfinished copy of the store sqlite-" in refused(
        command, of(tmp_path / "other"), of(there)
    )
    assert "an unfinished copy" in refused(command, of(there), of(tmp_path / "further"))
    for words in (["runs"], ["fsck"], ["export", "x"], ["backup", str(tmp_path / "b")]):
        code, out, err = command(*words, "--store", of(there))
        assert code and "run the same hubbub migrate again" in err + out


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_interrupted_or_without_space_it_leaves_nothing(
    filled: Path, there: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(migration, "_check", fail)
    with pytest.raises(type(error)):
        migrate_store(of(filled), of(there))
    assert not there.exists()
    there.mkdir()
    with pytest.raises(type(error)):
        migrate_store(of(filled), of(there))
    assert {x.name for x in there.iterdir()} <= {".gitignore", "hubbub.db-lock"}


def test_on_a_full_disk_it_says_so_in_one_line_and_leaves_nothing(
    filled: Path, there: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    begin = whole_copy.begin_copy

    def small(path: Path, source: str) -> sqlite3.Connection:
        db = begin(path, source)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count={pages + 2}")
        return db

    monkeypatch.setattr(whole_copy, "begin_copy", small)
    assert "free some space" in refused(command, of(filled), of(there))
    assert not there.exists()
