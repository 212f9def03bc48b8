"""``hubbub fsck`` finds what has changed in a store, and nothing else, whatever has changed."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.stores import Filled, fill

from hubbub.hub.errors import OperatorError
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.exchange.lanes import Problem


class Made:
    """A filled store that each test gets a copy of."""

    def __init__(self, folder: Path, runs: Filled) -> None:
        self.folder = folder
        self.runs = runs

    def copy(self, to: Path) -> Path:
        return shutil.copytree(self.folder, to)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made") / "store"
    runs = anyio.run(fill, folder)
    # In one file, so that a test can change any byte of it.
    db = sqlite3.connect(folder / "hubbub.db")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    return Made(folder, runs)


def problems_of(folder: Path, *, thorough: bool = False) -> list[Problem]:
    return list(StoreCheck(f"sqlite:{folder}", thorough=thorough).problems())


def change(folder: Path, *statements: str) -> None:
    db = sqlite3.connect(folder / "hubbub.db")
    for statement in statements:
        assert db.execute(statement).rowcount > 0, statement
    db.commit()
    db.close()


def test_a_store_as_it_was_written_has_no_problem(made: Made) -> None:
    check = StoreCheck(f"sqlite:{made.folder}", thorough=True)
    assert list(check.problems()) == []
    assert check.runs == 4 and check.events > 40


def test_a_store_at_work_has_no_problem(tmp_path: Path) -> None:
    """Its log is not in the file yet, and another connection writes."""
    from support.stores import open_runtime

    async def work() -> None:
        async with open_runtime(tmp_path / "store") as rt:
            await rt.run("bot", "one")
            assert problems_of(tmp_path / "store") == []
            await rt.run("bot", "two")
            assert problems_of(tmp_path / "store") == []

    anyio.run(work)


def test_where_there_is_no_store_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no such store; give the folder"):
        problems_of(tmp_path)


SOME = "SELECT position FROM event WHERE type = 'agent:tool:complete'"
WAITS = "run = (SELECT number FROM run WHERE waiting = 2)"

DAMAGE = {
    "a changed text": (
        f"UPDATE event SET body = replace(body, 'noted', 'x') WHERE position IN ({SOME} LIMIT 1)",
        "it has changed",
    ),
    "a body that is no JSON": (
        f"UPDATE event SET body = '{{' WHERE position IN ({SOME} LIMIT 1)",
        "its body is not an event",
    ),
    "a body that is no text": (
        f"UPDATE event SET body = x'ff00' WHERE position IN ({SOME} LIMIT 1)",
        "its body is not an event",
    ),
    "a type": (
        f"UPDATE event SET type = 'agent:text' WHERE position IN ({SOME} LIMIT 1)",
        "its body says",
    ),
    "a checksum": (f"UPDATE event SET crc = crc + 1 WHERE position IN ({SOME} LIMIT 1)", "changed"),
    "a checksum that is a text": (
        f"UPDATE event SET crc = 'x' WHERE position IN ({SOME} LIMIT 1)", "changed",
    ),
    "a lane": (
        f"UPDATE event SET lane = 'on' WHERE position IN ({SOME} LIMIT 1)", "its lane is 'on'",
    ),
    "a missing event": (f"DELETE FROM event WHERE position IN ({SOME} LIMIT 1)", "is due"),
    "an event of nobody": (
        f"UPDATE event SET run = 99 WHERE position IN ({SOME} LIMIT 1)", "but no row",
    ),
    "a run that is gone": ("DELETE FROM run WHERE agent = 'parent'", "is missing"),
    "seq": ("UPDATE run SET seq = seq + 1 WHERE agent = 'parent'", "seq is"),
    "in_seq": ("UPDATE run SET in_seq = 'two' WHERE agent = 'parent'", "in_seq is 'two'"),
    "chain": ("UPDATE run SET chain = 7 WHERE agent = 'parent'", "its checksum differs"),
    "born": ("UPDATE run SET born = 7 WHERE agent = 'parent'", "born is 7"),
    "recent": ("UPDATE run SET recent = -1 WHERE agent = 'parent'", "recent is -1, not a valid"),
    "recent that is a text": (
        "UPDATE run SET recent = 'now' WHERE agent = 'parent'", "recent is 'now', not a valid time",
    ),
    "wake_at": ("UPDATE run SET wake_at = -1 WHERE agent = 'parent'", "wake_at is -1, by"),
    "another wake_at": ("UPDATE run SET wake_at = 7 WHERE agent = 'parent'", "wake_at is 7, by"),
    "created_at": (
        "UPDATE run SET created_at = created_at + 1 WHERE agent = 'parent'", "its opening's time",
    ),
    "wake_at after all times": (
        "UPDATE run SET wake_at = 1 << 62 WHERE agent = 'parent'", "not a valid time",
    ),
    "messages": ("UPDATE run SET messages = 9 WHERE agent = 'parent'", "messages is 9"),
    "waiting": ("UPDATE run SET waiting = 9 WHERE agent = 'parent'", "waiting is 9"),
    "ready": ("UPDATE run SET ready = 0 WHERE agent = 'parent'", "ready is 0"),
    "status": ("UPDATE run SET status = 'stoned' WHERE agent = 'parent'", "status is 'stoned'"),
    "inbox": ("UPDATE run SET inbox = '' WHERE agent = 'parent'", "inbox is ''"),
    "root": ("UPDATE run SET root_run_id = 'x' WHERE agent = 'child'", "its root x is missing"),
    "kind": ("UPDATE run SET kind = 'cron' WHERE kind = 'user'", "its kind is 'cron'"),
    "descriptor": (
        "UPDATE run SET descriptor = '{}' WHERE kind = 'user'", "its descriptor cannot be read",
    ),
    "an item that is lost": (f"DELETE FROM waiting WHERE {WAITS} AND seq = 2", "does not wait"),
    "an item that waits again": (
        "INSERT INTO waiting SELECT run, seq, position FROM event WHERE position = 1", "was taken",
    ),
    "an item elsewhere": (f"UPDATE waiting SET position = 3 WHERE {WAITS}", "to position 3"),
    "a key": ("UPDATE accepted SET position = 100000", "to position 100000"),
    "an address": (
        "UPDATE address SET run_id = 'x' WHERE run_id = (SELECT run_id FROM run WHERE agent = "
        "'parent')", "stored under x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_every_kind_of_damage_is_found_and_told_in_a_line(
    name: str, made: Made, tmp_path: Path
) -> None:
    statement, words = DAMAGE[name]
    folder = made.copy(tmp_path / "store")
    change(folder, statement)
    found = problems_of(folder)
    assert any(words in problem.text for problem in found), [x.text for x in found]
    assert all("\n" not in problem.text and problem.remedy for problem in found)
    assert all(problem.where.startswith(str(folder / "hubbub.db")) for problem in found)


def test_one_changed_event_is_one_problem_which_names_position_and_run(
    made: Made, tmp_path: Path
) -> None:
    folder = made.copy(tmp_path / "store")
    db = sqlite3.connect(folder / "hubbub.db")
    select = "SELECT position FROM event WHERE type = 'agent:text' ORDER BY position LIMIT 1"
    (position,) = db.execute(select).fetchone()
    db.close()
    words = "replace(body, 'Let me see', 'Get me tea')"
    change(folder, f"UPDATE event SET body = {words} WHERE position = {position}")
    (problem,) = problems_of(folder)
    assert problem.where.endswith(f"event: position {position}: run {made.runs.chat}")
    assert "backup" in problem.remedy and "--replace" in problem.remedy


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at % len(data)] ^= 1 << (at % 8)
    file.chmod(0o600)
    file.write_bytes(data)


def test_a_changed_or_missing_content_is_found(made: Made, tmp_path: Path) -> None:
    folder = made.copy(tmp_path / "store")
    one, other, *_ = (x for x in (folder / "blobs").rglob("*") if x.is_file())
    flip(one, 3)
    other.unlink()
    found = {Path(x.where).name: x.what for x in problems_of(folder)}
    assert found.keys() == {one.name, other.name}
    assert found[one.name].startswith("the content has changed (named at position")
    assert found[other.name].startswith("the content is missing")


@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_flipped_bits_never_raise(made: Made, tmp_path: Path, at: int, count: int) -> None:
    folder = tmp_path / "store"
    shutil.rmtree(folder, ignore_errors=True)
    made.copy(folder)
    draw = random.Random(at)
    for _ in range(count):
        flip(folder / "hubbub.db", draw.randrange(1 << 30))
    for thorough in (False, True):
        for problem in problems_of(folder, thorough=thorough):
            assert problem.what and problem.remedy


def test_a_flipped_bit_in_the_text_of_any_event_is_found(made: Made, tmp_path: Path) -> None:
    data = (made.folder / "hubbub.db").read_bytes()
    places = [at for at in range(len(data) - 6) if data[at : at + 6] == b'"type"']
    assert len(places) > 40
    for at in places[::4]:
        folder = tmp_path / f"store{at}"
        made.copy(folder)
        changed = bytearray(data)
        changed[at + 20] ^= 1
        (folder / "hubbub.db").write_bytes(changed)
        assert problems_of(folder), at


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100, None])
def test_a_file_that_is_no_store_any_more_is_a_problem_too(
    damage: bytes | None, made: Made, tmp_path: Path
) -> None:
    folder = made.copy(tmp_path / "store")
    file = folder / "hubbub.db"
    file.write_bytes(file.read_bytes()[:20_000] if damage is None else damage)
    found = problems_of(folder)
    assert found
    assert all("\n" not in problem.text for problem in found)


def test_what_stands_in_folders_of_agents_is_checked(tmp_path: Path) -> None:
    folder = tmp_path / "store"

    async def work() -> Filled:
        return await fill(folder, mirror=True)

    runs = anyio.run(work)
    history = folder / "agents" / runs.chat / "history.jsonl"
    assert not any(str(history) in x.where for x in problems_of(folder))
    lines = history.read_text().splitlines()
    history.write_text("\n".join([lines[0], "{torn", *lines[2:]]) + "\n")
    found = [x for x in problems_of(folder) if str(history) in x.where]
    assert found and "when a runtime opens the store" in found[0].remedy


def test_progress_is_told_for_big_stores(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.runtime.inspection.record_check.STEP", 10)
    told: list[str] = []
    tell: Callable[[str], object] = told.append
    assert list(StoreCheck(f"sqlite:{made.folder}", tell=tell).problems()) == []
    assert told[0] == "10 events checked" and "now the runs" in told[-1]


def with_folders(folder: Path) -> tuple[Path, Path]:
    """A store with agents' folders, and the folder of one as it was two sessions before."""
    from support.stores import open_runtime

    async def work() -> str:
        async with open_runtime(folder, mirror=True) as rt:
            run = await rt.start("bot", "hello", session_key="web_a_b")
            await run.result()
        shutil.copytree(folder / "agents" / run.run_id, folder.parent / "before")
        async with open_runtime(folder, mirror=True) as rt:
            await rt.hub.send_to_run(run.run_id, "again")
            await rt.result(run.run_id)
        return run.run_id

    return folder / "agents" / anyio.run(work), folder.parent / "before"


@pytest.mark.spec("G-08")
@pytest.mark.parametrize(
    "file", ["state.json", "history.jsonl", "", "files/notes/note.txt", "descriptor.json"]
)
def test_a_folder_that_is_behind_is_told_of_and_is_no_damage(file: str, tmp_path: Path) -> None:
    agent, before = with_folders(tmp_path / "store")
    assert problems_of(tmp_path / "store") == []
    if file in ("state.json", "history.jsonl"):
        shutil.copy(before / file, agent / file)
    elif file:
        (agent / file).unlink()
    else:
        shutil.rmtree(agent)
        shutil.copytree(before, agent)
    found = problems_of(tmp_path / "store")
    assert found and all(problem.heals for problem in found), found
    assert any(str(agent / file) in problem.where for problem in found)


@pytest.mark.spec("G-08")
def test_what_differs_in_a_folder_is_named(tmp_path: Path) -> None:
    agent, before = with_folders(tmp_path / "store")
    state = agent / "state.json"
    text = state.read_text()
    shutil.copy(before / "state.json", state)
    (problem,) = problems_of(tmp_path / "store")
    assert "stands at event 1" in problem.what and "item 1 of 2 of its inbox" in problem.what
    state.write_text(text.replace('"agent":"bot"', '"agent":"sot"', 1))
    (problem,) = problems_of(tmp_path / "store")
    assert problem.what == "says something else than the database: agent"
    assert not problem.heals
    state.write_text(text)
    (agent / "files" / "notes" / "note.txt").unlink()
    (agent / "files" / "notes" / "note.txt").write_text("something else")
    assert [problem.heals for problem in problems_of(tmp_path / "store")] == [False]
