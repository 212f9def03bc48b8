"""Folders whose database is gone, or elsewhere: their runs are imported, and say what is lost."""

import json
import random
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.conversations import MAIN, RESEARCH, WRITER, Book, nested, said, skill
from support.folder_worlds import WORLDS
from support.stores import agents, fill

from hubbub import Runtime
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import RunRow
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.open import open_reader, sqlite_store

FORMAT_1 = Path(__file__).parents[2] / "stores" / "format_1.tar.gz"

pytestmark = pytest.mark.anyio


def forget(folder: Path) -> None:
    for file in folder.glob("hubbub.*"):
        file.unlink()


def files_in(folder: Path, name: str) -> list[Path]:
    return [*folder.glob(f"agents/*/{name}")]


async def adopted(folder: Path) -> list[str]:
    """Open the store and close it again: what it tells."""
    store = sqlite_store(folder, ports=virtual_ports())
    await store.open()
    try:
        await store.projected()
        return list(store.problems)
    finally:
        await store.aclose()


def bodies(folder: Path) -> dict[str, list[bytes]]:
    with open_reader(f"sqlite:{folder}") as reader:
        return {
            row.run_id: [x.body for x in reader.event_rows((row.run_id,)) if x.lane != "hub"]
            for row in reader.rows()
        }


def rows(folder: Path) -> dict[str, RunRow]:
    with open_reader(f"sqlite:{folder}") as reader:
        return {row.run_id: row for row in reader.rows()}


def waiting(folder: Path, run_id: str) -> list[int]:
    with open_reader(f"sqlite:{folder}") as reader:
        return [x.seq for x in reader.waiting(run_id)]


def damage(folder: Path) -> list[str]:
    return [x.text for x in StoreCheck(f"sqlite:{folder}").problems() if not x.heals]


# ── all of it ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-01", "P-02", "P-03", "P-12")
@pytest.mark.parametrize("world", ["conversation", "family"])
@pytest.mark.parametrize("seed", range(5))
async def test_without_its_database_every_run_comes_back_byte_for_byte(
    world: str, seed: int, tmp_path: Path
) -> None:
    await WORLDS[world](sqlite_store(tmp_path, ports=virtual_ports()), seed)
    before, was = bodies(tmp_path), rows(tmp_path)
    files = {x: x.read_bytes() for x in files_in(tmp_path, "history.jsonl")}
    assert before
    for file in files:
        with file.open("ab") as end:
            end.write(b'{"type":"of_later"}\n')
    forget(tmp_path)
    assert await adopted(tmp_path) == []
    assert bodies(tmp_path) == before
    for run_id, row in rows(tmp_path).items():
        for name in ("status", "inbox", "waiting", "messages", "ready", "recent", "descriptor"):
            assert getattr(row, name) == getattr(was[run_id], name), (run_id, name)
    assert damage(tmp_path) == []
    for file, data in files.items():
        assert file.read_bytes() == data + b'{"type":"of_later"}\n', "unknown kinds stay"
    assert not files_in(tmp_path, "*corrupt*")


@pytest.mark.spec("P-02", "P-03", "P-04")
async def test_wherever_a_write_was_cut_off_the_run_comes_back_as_of_its_last_whole_batch(
    tmp_path: Path,
) -> None:
    """After power loss, or kill -9, and then without the database."""
    await WORLDS["conversation"](sqlite_store(tmp_path / "made", ports=virtual_ports()), 1)
    (run_id,) = rows(tmp_path / "made")
    whole = (tmp_path / "made" / "agents" / run_id / "run.jsonl").read_bytes()
    draw = random.Random(1)
    ends = [0]
    for line in whole.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    for cut in {*draw.sample(range(len(whole)), 25), *draw.sample(ends, 15), *ends[:4]}:
        folder = tmp_path / f"cut-{cut}"
        place = folder / "agents" / run_id
        place.mkdir(parents=True)
        (place / "run.jsonl").write_bytes(whole[:cut])
        (place / "descriptor.json").write_text("{}")
        told = await adopted(folder)
        lines = whole[:cut].splitlines(keepends=True)
        runs = [
            n for n, x in enumerate(lines) if x.startswith(b'{"line":"run"') and x.endswith(b"\n")
        ]
        if not runs or runs[-1] < 2:
            (problem,) = told
            assert "run.jsonl" in problem and "open the database" in problem
            assert run_id not in rows(folder)
            continue
        is_torn = len(lines) > runs[-1] + 1
        assert any(f"run.jsonl:{runs[-1] + 2}: torn off" in x for x in told) == is_torn, told
        found = [json.loads(x) for x in bodies(folder)[run_id]]
        kept = [json.loads(x) for x in lines[: runs[-1]]]
        assert found == [x["event"] for x in kept if x["line"] == "event"]
        assert not [x for x in damage(folder) if "content" not in x]
        state = fold_all(EMPTY, [decode_event(x) for x in bodies(folder)[run_id] if b'"own"' in x])
        assert state.origin.run_id == run_id


@pytest.mark.spec("P-02", "G-04")
async def test_whatever_byte_is_changed_the_run_is_adopted_whole_or_left_alone(
    tmp_path: Path,
) -> None:
    await WORLDS["family"](sqlite_store(tmp_path / "made", ports=virtual_ports()), 5)
    forget(tmp_path / "made")
    names = sorted(x.name for x in (tmp_path / "made" / "agents").iterdir())
    draw = random.Random(7)
    for number in range(25):
        folder = Path(shutil.copytree(tmp_path / "made", tmp_path / f"{number}"))
        file = folder / "agents" / draw.choice(names) / "run.jsonl"
        data = bytearray(file.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(bytes(data))
        told = await adopted(folder)
        assert all(str(folder) in x and "\n" not in x for x in told)
        assert {*names} - {*rows(folder)} <= {n for n in names if any(n in x for x in told)}
        left = [x for x in damage(folder) if "content" not in x and "agents/" not in x]
        assert left == []


# ── what is not there ────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-02", "G-08")
async def test_folders_of_an_earlier_version_are_reported_with_what_to_do(tmp_path: Path) -> None:
    with tarfile.open(FORMAT_1) as file:
        file.extractall(tmp_path, filter="data")
    folder = tmp_path / "left"
    names = [x.name for x in (folder / "agents").iterdir()]
    assert names and not files_in(folder, "run.jsonl")
    alone = tmp_path / "alone"
    shutil.copytree(folder / "agents", alone / "agents")
    told = await adopted(alone)
    assert len(told) == len(names) and rows(alone) == {}
    assert all("run.jsonl: missing; open the database that it belongs to" in x for x in told)
    found = list(StoreCheck(f"sqlite:{alone}").problems())
    assert len(found) == len(names) and not any(x.heals for x in found)
    store = sqlite_store(folder, ports=virtual_ports())  # As it says.
    await store.open()
    await anyio.sleep(1)
    await store.aclose()
    before = bodies(folder)
    forget(folder)
    await adopted(folder)
    assert {*names} == {*rows(folder)}
    assert [x for x in names if bodies(folder)[x] == before[x]]


@pytest.mark.spec("P-02", "G-04")
async def test_a_child_without_its_parent_is_a_root_that_reports_to_nobody(
    tmp_path: Path, ports: Ports
) -> None:
    filled = await fill(tmp_path, ports, mirror=True)
    forget(tmp_path)
    told = await adopted(tmp_path)
    assert [x for x in told if f"its parent {filled.parent} is not here" in x]
    row = rows(tmp_path)[filled.child]
    assert (row.root_run_id, row.parent_run_id) == (filled.child, None)
    events = [decode_event(x) for x in bodies(tmp_path)[filled.child]]
    assert {(x.root_run_id, x.parent_run_id) for x in events} == {(filled.child, None)}
    opened = events[0]
    assert isinstance(opened, e.SessionOpen) and not opened.reports
    assert json.loads(bytes(opened.descriptor_json)) == json.loads(row.descriptor or "")
    assert damage(tmp_path) == []
    assert await adopted(tmp_path) == [], "it is told once"


@pytest.mark.spec("P-02", "C-10")
@pytest.mark.parametrize("seed", range(6))
async def test_a_parent_whose_child_is_not_there_hears_that_it_failed(
    seed: int, tmp_path: Path
) -> None:
    await WORLDS["family"](sqlite_store(tmp_path, ports=virtual_ports()), seed)
    (parent,) = (x for x in rows(tmp_path).values() if x.parent_run_id is None)
    live = [x.run_id for x in rows(tmp_path).values() if x.parent_run_id and x.status != "ended"]
    forget(tmp_path)
    for place in (tmp_path / "agents").iterdir():
        if place.name != parent.run_id:
            shutil.rmtree(place)
    told = await adopted(tmp_path)
    results = [decode_event(x) for x in bodies(tmp_path)[parent.run_id]]
    failed = {
        x.child_run_id: x.outcome for x in results
        if isinstance(x, e.SessionResult) and x.final and x.reason == "its folder is not here"
    }  # fmt: skip
    if parent.status != "ended":
        assert failed == dict.fromkeys(live, "failed")
        assert all(any(child in x for x in told) for child in live)
        assert len(waiting(tmp_path, parent.run_id)) >= len(live)
    assert [x for x in damage(tmp_path) if "content" not in x] == []


@pytest.mark.spec("P-02", "G-07")
async def test_a_child_of_a_damaged_parent_is_left_alone_and_told_of(tmp_path: Path) -> None:
    await WORLDS["family"](sqlite_store(tmp_path, ports=virtual_ports()), 5)
    parent, *children = sorted(rows(tmp_path).values(), key=lambda row: row.born)
    assert children
    with closing(sqlite3.connect(tmp_path / "hubbub.db")) as db, db:
        (number,) = db.execute(
            "SELECT number FROM run WHERE run_id = ?", (parent.run_id,)
        ).fetchone()
        db.execute("UPDATE event SET body = '{' WHERE run = ? AND lane = 'own'", (number,))
        db.execute("DELETE FROM run WHERE number <> ?", (number,))
    found = [x.text for x in StoreCheck(f"sqlite:{tmp_path}").problems()]
    assert [x for x in found if "its body is not an event" in x]
    told = await adopted(tmp_path)
    assert {x.run_id for x in children if any(x.run_id in each for each in told)} == {
        x.run_id for x in children
    }
    assert {*rows(tmp_path)} == {parent.run_id}


# ── takeover frames ──────────────────────────────────────────────────────────────────────────


async def conversation(folder: Path, script: Callable[[Book], None]) -> Book:
    book = Book()
    script(book)
    store = sqlite_store(folder, ports=virtual_ports())
    await store.open()
    await book.put(store)
    await store.projected()
    await store.aclose()
    forget(folder)
    return book


def taken_over(book: Book) -> None:
    nested(book)
    book.tell(MAIN, said("the second one"))
    book.commit(RESEARCH, e.SessionStart(session=2, side="side_a"), borrow=1)
    book.tell(MAIN, said("are you there?"))


@pytest.mark.spec("P-02", "P-03")
async def test_a_takeover_goes_on_where_all_of_its_folders_are_there(tmp_path: Path) -> None:
    book = await conversation(tmp_path, taken_over)
    assert await adopted(tmp_path) == []
    assert {*rows(tmp_path)} == {MAIN, WRITER, RESEARCH}
    assert waiting(tmp_path, MAIN) == [*book.waiting[MAIN]]
    assert damage(tmp_path) == []


@pytest.mark.spec("P-02", "G-04", "G-08")
async def test_what_a_missing_frame_has_taken_is_dropped_and_its_call_is_answered(
    tmp_path: Path,
) -> None:
    book = await conversation(tmp_path, taken_over)
    for run_id in (WRITER, RESEARCH):
        shutil.rmtree(tmp_path / "agents" / run_id)
    told = await adopted(tmp_path)
    assert [x for x in told if WRITER in x and "not here" in x]
    events: list[Event] = [decode_event(x) for x in bodies(tmp_path)[MAIN]]
    (result,) = (x for x in events if isinstance(x, e.SessionResult) and x.final)
    assert (result.child_run_id, result.outcome) == (WRITER, "failed")
    assert waiting(tmp_path, MAIN) == [*book.waiting[MAIN], result.seq]
    lent = {
        item.seq for x in book.events if isinstance(x, e.SessionTaken) and x.run_id != MAIN
        for item in x.items if item.run_id == MAIN
    }  # fmt: skip
    dropped = {y.seq for x in events if isinstance(x, e.SessionDropped) for y in x.items}
    assert dropped == lent and lent
    assert damage(tmp_path) == []


@pytest.mark.spec("P-02", "G-04")
async def test_a_frame_above_a_missing_one_is_over_and_takes_nothing_twice(tmp_path: Path) -> None:
    await conversation(tmp_path, taken_over)
    shutil.rmtree(tmp_path / "agents" / WRITER)
    await adopted(tmp_path)
    assert rows(tmp_path)[RESEARCH].status == "ended"
    assert rows(tmp_path)[RESEARCH].parent_run_id is None
    assert damage(tmp_path) == []


@pytest.mark.spec("P-02", "G-04")
async def test_a_frame_without_its_conversation_is_over(tmp_path: Path) -> None:
    await conversation(tmp_path, taken_over)
    shutil.rmtree(tmp_path / "agents" / MAIN)
    told = await adopted(tmp_path)
    assert {x.status for x in rows(tmp_path).values()} == {"ended"}
    assert [x for x in told if WRITER in x and "the takeover is over" in x]
    assert damage(tmp_path) == []


@pytest.mark.spec("P-02")
async def test_a_takeover_that_was_over_comes_back_byte_for_byte(tmp_path: Path) -> None:
    book = await conversation(tmp_path, skill)
    assert await adopted(tmp_path) == []
    found: dict[str, Any] = bodies(tmp_path)
    assert sum(map(len, found.values())) == len([x for x in book.events if x.lane != "hub"])
    assert damage(tmp_path) == []


# ── and then ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-02", "P-03", "G-07")
async def test_one_broken_run_stops_no_other_and_what_is_adopted_works_on(
    tmp_path: Path, ports: Ports
) -> None:
    filled = await fill(tmp_path, ports, mirror=True)
    forget(tmp_path)
    (tmp_path / "agents" / filled.child / "run.jsonl").write_bytes(b"nonsense\n")
    store = sqlite_store(tmp_path, ports=ports)
    async with Runtime(agents(), store=store, ports=ports, grace=0) as rt:
        assert [x for x in store.problems if filled.child in x]
        receipt = await rt.hub.send_to_run(filled.chat, "and now?")
        assert receipt.accepted
        assert (await rt.result(filled.chat)).output == "It is noted."


@pytest.mark.parametrize("key", ["a key", "web_ada_1"])
async def test_a_check_reports_the_folders_that_are_not_adopted_as_opening_does(
    key: str, tmp_path: Path
) -> None:
    for number, name in enumerate(("one", "two")):
        ports = virtual_ports(number)
        async with Runtime([model_agent(echo_model())], store=sqlite_store(tmp_path / name),
                           ports=ports) as rt:  # fmt: skip
            await (await rt.start("assistant", "hello", session_key=key)).result()
    [folder] = (tmp_path / "two" / "agents").iterdir()
    shutil.copytree(folder, tmp_path / "one" / "agents" / folder.name)
    checked = damage(tmp_path / "one")
    assert len(checked) == 1 and "which is open; terminate that run" in checked[0]
    assert folder.name in checked[0]
    assert await adopted(tmp_path / "one") == checked
    assert damage(tmp_path / "one") == checked, "it is there still"
