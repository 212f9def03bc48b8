"""``hubbub prune``: trees that have ended go whole, and nothing else changes."""

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
from support.killed_steps import killed_before, steps_of
from support.profiles import examples, portion
from support.pruned_stores import DAY, Aged, fill_with_ages, ports_at, problems, told_of
from support.stores import agents
from support.virtual_time import VirtualTimeLoop

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import HubGap
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.retention import pruning
from hubbub.runtime.stores.retention.pruning import find_trees, prune_store
from hubbub.runtime.stores.retention.retention import Retention

Command = Callable[..., tuple[int, str, str]]

NOW = ports_at(3.5 * DAY)
TWO_DAYS = Retention(ended=2 * DAY)


def of(folder: Path) -> str:
    return f"sqlite:{folder}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Aged]:
    folder = tmp_path_factory.mktemp("aged") / "store"

    async def fill() -> Aged:
        return await fill_with_ages(of(folder), virtual_ports())

    options = {"loop_factory": VirtualTimeLoop}
    return folder, anyio.run(fill, backend="asyncio", backend_options=options)


@pytest.fixture
def runs(made: tuple[Path, Aged]) -> Aged:
    return made[1]


@pytest.fixture
def store(made: tuple[Path, Aged], tmp_path: Path) -> str:
    shutil.copytree(made[0], tmp_path / "store")
    return of(tmp_path / "store")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def folder_of(store: str) -> Path:
    return Path(store.removeprefix("sqlite:"))


def size_of(store: str) -> int:
    return (folder_of(store) / "hubbub.db").stat().st_size


# ── what goes, and what stays ────────────────────────────────────────────────────────────────


def test_old_trees_go_with_all_that_they_have_and_the_rest_is_as_it_was(
    store: str, runs: Aged
) -> None:
    before = told_of(store)
    pruned = prune_store(store, TWO_DAYS, ports=NOW)
    assert [tree.root_run_id for tree in pruned.trees] == [runs.old, runs.family]
    assert (pruned.kept, pruned.contents, pruned.problems) == (2, 2, [])
    after = told_of(store)
    assert {*before} - {*after} == {runs.old, runs.family}
    assert {key: after[key] for key in (runs.young, runs.chat, runs.last)} == {
        key: before[key] for key in (runs.young, runs.chat, runs.last)
    }
    for key in ("tip", "name", "hub", "secrets"):
        assert after[key] == before[key]
    assert {*before["contents"]} - {*after["contents"]} and after["contents"]
    assert b"heard shared" in after["contents"].values()
    assert b"heard alone" not in after["contents"].values()
    assert not any(runs.old in text or runs.family in text for text in after["notes"].values())
    assert problems(store) == []


def test_of_a_tree_that_is_gone_nothing_says_a_word(store: str, runs: Aged) -> None:
    prune_store(store, TWO_DAYS, ports=NOW)
    folder = folder_of(store)
    assert runs.family not in {place.name for place in (folder / "agents").iterdir()}
    assert runs.chat in {place.name for place in (folder / "agents").iterdir()}
    with open_reader(store) as reader:
        for run_id in (runs.old, runs.family):
            assert reader.row(run_id) is None and reader.tree(run_id) == []
            assert [*reader.event_rows([run_id])] == [] == [*reader.accepted(run_id)]
            assert reader.load(run_id) is None
        assert all(row.run_id for row in reader.event_rows())


def test_the_last_trees_stay_however_old_they_are(store: str, runs: Aged) -> None:
    later = ports_at(400 * DAY)
    pruned = prune_store(store, Retention(ended=DAY, keep_last=2), ports=later)
    assert [tree.root_run_id for tree in pruned.trees] == [runs.old, runs.family]
    assert prune_store(store, Retention(keep_last=2), ports=later).trees == []


def test_the_tree_with_the_last_event_stays_and_no_position_is_used_twice(
    store: str, runs: Aged
) -> None:
    tip = told_of(store)["tip"]
    pruned = prune_store(store, Retention(ended=1), ports=ports_at(400 * DAY))
    assert [x.root_run_id for x in pruned.trees] == [runs.old, runs.family, runs.young]
    assert told_of(store)["tip"] == tip and problems(store) == []
    assert pruned.kept == 1


def test_beyond_a_size_the_oldest_go(store: str, runs: Aged, command: Command) -> None:
    with open_reader(store) as reader:
        sizes = dict.fromkeys(reader.roots().values(), 0)
        for row in reader.event_rows():
            sizes[row.root_run_id] += len(row.body)
    whole = sum(sizes.values())
    roots: list[list[str]] = []
    for limit in (whole, whole - 1, whole - sizes[runs.old] - 1, 1):
        arguments = ("--max-bytes", limit, "--dry-run", "--json", "--store", store)
        trees = json.loads(command("prune", *arguments)[1])["trees"]
        assert [x["size"] for x in trees] == [sizes[x["root_run_id"]] for x in trees]
        roots.append([x["root_run_id"] for x in trees])
    both = [runs.old, runs.family]
    assert roots == [[], [runs.old], both, [*both, runs.young]]
    pruned = prune_store(store, Retention(ended=9 * DAY, max_bytes=whole - 1), ports=NOW)
    assert [x.root_run_id for x in pruned.trees] == [runs.old] and problems(store) == []


def test_what_has_not_ended_always_stays(store: str, runs: Aged) -> None:
    with open_reader(store) as reader:
        found = find_trees(reader, Retention(ended=0.001), 10**18)
    assert all(runs.chat not in tree.run_ids for tree in found.trees)


@pytest.mark.anyio
async def test_a_runtime_goes_on_with_what_is_left(store: str, runs: Aged) -> None:
    prune_store(store, TWO_DAYS, ports=NOW)
    async with Runtime(agents(), store=store, ports=virtual_ports(7)) as rt:
        receipt = await rt.hub.send_to_run(runs.old, "are you there?")
        assert (receipt.accepted, receipt.reason) == (False, "unknown")
        chat = await rt.start("bot", "again", session_key="chat_1")
        assert chat.run_id == runs.chat
        assert (await chat.result()).success
        family = await rt.start("parent", "go", session_key="family")
        assert family.run_id != runs.family
        await rt.hub.terminate(family.run_id)
    assert problems(store) == []


@pytest.mark.anyio
@pytest.mark.spec("H-06")
async def test_a_cursor_into_a_tree_that_is_gone_yields_a_gap_and_others_hold(
    store: str, runs: Aged
) -> None:
    cursors: dict[str, str] = {}
    async with Runtime(agents(), store=store, ports=virtual_ports()) as rt:
        for run_id in (runs.old, runs.young):
            async with rt.hub.subscribe("agent:start", run_id=run_id, after="start") as events:
                async for event in events:
                    cursors[event.run_id] = events.cursor
                    break
    prune_store(store, TWO_DAYS, ports=NOW)
    async with Runtime(agents(), store=store, ports=virtual_ports()) as rt:
        async with rt.hub.subscribe("*", after=cursors[runs.old]) as events:
            async for event in events:
                assert isinstance(event, HubGap)
                break
        with pytest.raises(BadValue, match="no longer kept"):
            await rt.hub.read(after=cursors[runs.old])
        after = await rt.hub.read(after=cursors[runs.young])
        assert {event.run_id for event in after} >= {runs.chat, runs.last}


# ── exports ──────────────────────────────────────────────────────────────────────────────────


def test_what_goes_can_be_exported_first_and_taken_in_again(
    store: str, runs: Aged, tmp_path: Path
) -> None:
    before = told_of(store)
    pruned = prune_store(store, TWO_DAYS, export=tmp_path / "kept", ports=NOW)
    names = [f"{runs.old}.jsonl", f"{runs.family}.jsonl"]
    assert pruned.exports == [str(tmp_path / "kept" / name) for name in names]
    for name in names:
        with (tmp_path / "kept" / name).open("rb") as lines:
            import_runs(store, name, lines, ports=NOW)
    after = told_of(store)
    for root in (runs.old, runs.family):
        bodies = [[row.body for row in told[root][1]] for told in (before, after)]
        assert bodies[0] == bodies[1]
    assert after["contents"] == before["contents"] and problems(store) == []


def test_a_tree_that_cannot_be_exported_stays_whole(store: str, runs: Aged, tmp_path: Path) -> None:
    before = told_of(store)
    gone = next(x for x in before["contents"] if before["contents"][x] == b"heard alone")
    place = folder_of(store) / "blobs" / gone[:2] / gone
    place.rename(tmp_path / "aside")
    pruned = prune_store(store, TWO_DAYS, export=tmp_path / "kept", ports=NOW)
    assert [tree.root_run_id for tree in pruned.trees] == [runs.family]
    (problem,) = pruned.problems
    assert runs.old in problem and "put the content back from a backup" in problem
    (tmp_path / "aside").rename(place)
    assert told_of(store)[runs.old] == before[runs.old]


def test_what_goes_first_is_on_the_disk_before_a_tree_goes(
    store: str, runs: Aged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the power lost, no folder brings back what is gone, and no export of it is missing."""
    flushed: dict[str, tuple[list[str], bool]] = {}

    def flush(folder: Path) -> None:
        names = sorted(place.name for place in folder.iterdir())
        flushed[folder.name] = (names, runs.family in told_of_rows(store))

    monkeypatch.setattr(pruning, "sync_folder", flush)
    prune_store(store, TWO_DAYS, export=tmp_path / "made" / "kept", ports=NOW)
    assert flushed["kept"] == (sorted([f"{runs.old}.jsonl", f"{runs.family}.jsonl"]), True)
    names, was_there = flushed["agents"]
    assert was_there and runs.chat in names and runs.family not in names
    assert flushed["made"] == (["kept"], True) and flushed[tmp_path.name][1]


# ── beside others ────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_beside_a_runtime_nothing_is_pruned_but_shown(
    store: str, runs: Aged, command: Command, ports: Ports
) -> None:
    async with Runtime(agents(), store=store, ports=ports):
        with pytest.raises(OperatorError, match="another runtime is at work"):
            prune_store(store, TWO_DAYS, ports=NOW)
        code, out, err = command("prune", "--ended", "1s", "--dry-run", "--store", store)
        assert code == 0 and runs.old in out and err == ""


def test_a_backup_that_contents_were_taken_from_is_none(
    store: str, runs: Aged, tmp_path: Path
) -> None:
    with open_reader(store) as reader:
        with reader.one_moment():
            prune_store(store, TWO_DAYS, ports=NOW)
            with pytest.raises(OperatorError, match="was pruned while it was copied; make the"):
                reader.back_up(tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        reader.back_up(tmp_path / "copy")
    assert problems(of(tmp_path / "copy")) == []


def test_an_export_that_is_under_way_is_whole(store: str, runs: Aged) -> None:
    with open_reader(store) as reader:
        whole = [*export_run(reader, runs.young)]
        with closing(export_run(reader, runs.young)) as lines:
            begun = [next(lines)]
            prune_store(store, Retention(keep_last=1), ports=NOW)
            assert [*begun, *lines] == whole
        assert reader.row(runs.young) is None


# ── whenever it is killed ────────────────────────────────────────────────────────────────────


def test_killed_before_any_of_its_steps_every_tree_is_whole_or_gone(
    store: str, runs: Aged, tmp_path: Path
) -> None:
    before = told_of(store)
    shutil.copytree(folder_of(store), tmp_path / "all")
    steps = steps_of(lambda: prune_store(of(tmp_path / "all"), TWO_DAYS, ports=NOW), tmp_path)
    at_end, there = told_of(of(tmp_path / "all")), of(tmp_path / "killed")
    for step in portion(range(1, steps + 1)):
        shutil.copytree(folder_of(store), folder_of(there))
        assert killed_before(step, lambda: prune_store(there, TWO_DAYS, ports=NOW))
        told = told_of(there)
        for root in (runs.old, runs.family):
            assert root not in told or told[root] == before[root]
        for root in (runs.young, runs.chat, runs.last):
            assert told[root] == before[root]
        assert problems(there) == [], f"killed before step {step}"
        prune_store(there, TWO_DAYS, ports=NOW)
        anyio.run(opened, there)  # No folder brings back what is gone.
        again = told_of(there)
        for root in (runs.young, runs.chat, runs.last):
            assert again[root] == at_end[root]
        assert not {runs.old, runs.family} & {*again} and problems(there) == []
        shutil.rmtree(folder_of(there))
    assert steps > 50


async def opened(store: str) -> None:
    async with Runtime(agents(), store=store, ports=virtual_ports()):
        pass


# ── against a plain model ────────────────────────────────────────────────────────────────────


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.just(0)), st.tuples(st.just("open"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("keep last"), st.integers(1, 4)),
        st.tuples(st.just("ended"), st.integers(1, 80)),
    ),
    max_size=12,
), st.sampled_from(["asyncio", "trio"]))  # fmt: skip
def test_whatever_is_done_the_store_has_what_a_model_has(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]], backend: str
) -> None:
    store = of(tmp_path_factory.mktemp("drawn"))
    model: list[tuple[str, float | None]] = []
    now, seed = 0.0, 0

    async def work(what: str) -> str:
        ports = Ports(clock=ports_at(now).clock)
        journal = sqlite_store(folder_of(store), ports=ports, mirror=False)
        async with Runtime(agents(), store=journal, ports=ports) as rt:
            if what == "run":
                return (await rt.run("bot", f"number {seed}")).run_id
            run = await rt.start("bot", f"number {seed}", session_key=f"chat_{seed}")
            await run.result()
            return run.run_id

    for what, number in actions:
        seed += 1
        if what == "wait":
            now += number
        elif what in ("run", "open"):
            now += 1
            made = anyio.run(work, what, backend=backend)
            model.append((made, now if what == "run" else None))
        elif model:
            retention = Retention(ended=number) if what == "ended" else Retention(keep_last=number)
            pruned = prune_store(store, retention, ports=ports_at(now))
            over = sorted((end, run_id) for run_id, end in model if end is not None)
            going = over[:-number] if what == "keep last" else [
                each for each in over if each[0] <= now - number
            ]  # fmt: skip
            gone = {run_id for _, run_id in going} - {model[-1][0]}
            assert {tree.root_run_id for tree in pruned.trees} == gone
            model = [each for each in model if each[0] not in gone]
    if model:
        with open_reader(store) as reader:
            assert {*reader.roots()} == {run_id for run_id, _ in model}
        assert problems(store) == []


# ── years ────────────────────────────────────────────────────────────────────────────────────


async def day_of_work(store: str, day: int) -> None:
    ports = Ports(clock=ports_at(day * DAY).clock)
    async with Runtime(agents(), store=store, ports=ports) as rt:
        for number in range(20):
            await rt.run("bot", f"day {day}, number {number}: {'word ' * 50}")
        if not day:
            chat = await rt.start("bot", "I stay", session_key="chat")
            await chat.result()


def test_pruned_every_day_a_store_does_not_grow_in_weeks_of_use(tmp_path: Path) -> None:
    store, sizes, contents = of(tmp_path / "store"), [], []
    for day in range(21):
        anyio.run(day_of_work, store, day)
        prune_store(store, Retention(ended=DAY), ports=ports_at((day + 0.5) * DAY))
        sizes.append(size_of(store))
        contents.append(sum(x.is_file() for x in (folder_of(store) / "blobs").rglob("*")))
    assert max(sizes[7:]) <= 1.15 * max(sizes[:7]), sizes
    assert max(contents[7:]) <= max(contents[:7]) + 2, contents
    assert problems(store) == []


# ── the command ──────────────────────────────────────────────────────────────────────────────


def test_the_command_shows_first_then_removes(store: str, runs: Aged, command: Command) -> None:
    before = told_of(store)
    arguments = ("prune", "--ended", "1s", "--keep-last", "1", "--store", store)
    code, out, err = command(*arguments, "--dry-run")
    assert (code, err) == (0, "") and told_of(store) == before
    assert [line.split()[0] for line in out.splitlines()[:3]] == [runs.old, runs.family, runs.young]
    assert "would remove 3 trees of 4 runs" in out and "1 trees that have ended would stay" in out
    told = json.loads(command(*arguments, "--dry-run", "--json")[1])
    assert told["dry_run"] and [x["root_run_id"] for x in told["trees"]] == [
        runs.old, runs.family, runs.young,
    ]  # fmt: skip
    code, out, err = command(*arguments)
    assert code == 0 and out.startswith("removed 3 trees of 4 runs") and "3 of 3 trees" in err
    told = json.loads(command(*arguments, "--json")[1])
    assert (told["trees"], told["kept"], told["dry_run"]) == ([], 1, False)


def test_it_is_said_how_far_the_deciding_is(
    store: str, runs: Aged, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "LOOKED_AT", 2)
    monkeypatch.setattr(pruning, "STEP", 10)
    arguments = ("prune", "--ended", "1s", "--max-bytes", "1GB", "--dry-run", "--store", store)
    code, _, err = command(*arguments)
    assert code == 0 and "10 events measured" in err
    assert "2 of 4 trees that have ended looked at" in err


WRONG: list[tuple[tuple[str, ...], str]] = [
    ((), "what may go? give --ended 30d, --keep-last 100, --max-bytes 10GB"),
    (("--max-bytes", "0"), "--max-bytes 0: expected how much, above 0: 500MB, 10GB, 10000"),
    (("--max-bytes", "much"), "--max-bytes much: expected how much"),
    (("--ended", "0d"), "--ended 0d: expected how long, above 0 and below 10 years: 30d, 12h"),
    (("--ended", "month"), "--ended month: expected how long"),
    (("--ended", "99999w"), "--ended 99999w: expected how long"),
    (("--ended", "1d", "--dry-run", "--export", "out"), "--dry-run writes nothing; leave --export"),
    (("--keep-last", "0"), "--keep-last 0: expected a number of at least 1"),
    (("--keep-last", "-3"), "--keep-last -3: expected a number of at least 1"),
    (("--ended", "1d", "--export", "store/x"), "belongs to the store"),
    (("--ended", "1d", "--export", "file"), "name a folder for the exports: --export FOLDER"),
    (("--ended", "1d", "--store", "sqlite:missing"), "no such store"),
    (("--ended", "1d", "--store", "memory"), "a store in memory ends with its program"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_what_cannot_be_done_is_one_line(
    arguments: tuple[str, ...], words: str, store: str, command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder_of(store).parent)
    Path("file").write_text("a file")
    before = told_of(store)
    if "--store" not in arguments:
        arguments = (*arguments, "--store", store)
    code, out, err = command("prune", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and words in err
    assert told_of(store) == before and not Path("missing").exists()


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_tree_that_cannot_be_read_stays_and_is_told(
    place: str, store: str, runs: Aged, command: Command
) -> None:
    which = "min" if place == "first" else "max"
    with closing(sqlite3.connect(folder_of(store) / "hubbub.db")) as db:
        db.execute(
            f"UPDATE event SET body = 'no event' WHERE position = (SELECT {which}(position) FROM "
            "event WHERE run = (SELECT number FROM address WHERE run_id = ?))", (runs.old,),
        )  # fmt: skip
        db.commit()
    code, out, err = command("prune", "--ended", "1s", "--store", store)
    assert code == 1 and "removed 2 trees" in out and f"run {runs.old}" in err
    assert ("cannot be read" if place == "last" else "its record has changed") in err
    rows: Any = told_of_rows(store)
    assert runs.old in rows and runs.family not in rows


def told_of_rows(store: str) -> set[str]:
    with open_reader(store) as reader:
        return {row.run_id for row in reader.rows()}
