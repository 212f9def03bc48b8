"""Exports taken at different times of a tree, imported in any order, replacing or not: a store
takes what fits, and is as sound as before."""

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from simulation.own_world import OwnWorld, spoken
from support.profiles import examples

from hubbub import Runtime
from hubbub.hub import events as e
from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-04", "G-08")]

Lines = list[bytes]


def runtime(folder: Path, ports: Ports) -> Runtime:
    agents = OwnWorld().setup().agents
    return Runtime(agents, store=sqlite_store(folder, ports=ports), ports=ports, grace=0)


def a_program(draw: random.Random, depth: int = 2) -> list[Any]:
    steps: list[Any] = []
    for _ in range(draw.randint(1, 2)):
        below = a_program(draw, depth - 1) if depth else [["say"]]
        steps.append(
            draw.choice([
                ["stay", draw.choice(("keep", "crew")), [["look"], ["report"]]],
                ["child", draw.choice(("ask", "send")), [["look"], ["report"]]],
                ["use", draw.choice(("ann", "bob")), below],
                ["to", draw.randint(0, 1), [["look"], ["report"]]],
                ["file"], ["complete"], ["pause"],
            ])
        )  # fmt: skip
    return [*steps, ["say"]]


def exported(folder: Path, run_id: str) -> Lines:
    with open_reader(f"sqlite:{folder}") as reader:
        return [*export_run(reader, run_id)]


def runs_of(folder: Path) -> list[Any]:
    with open_reader(f"sqlite:{folder}") as reader:
        return [*reader.rows()]


async def grown(folder: Path, ports: Ports, draw: random.Random) -> list[Lines]:
    """A tree over some lives, and exports of its runs after each of these."""
    exports: list[Lines] = []
    for life in range(draw.randint(2, 3)):
        async with runtime(folder, ports) as rt:
            for number in range(draw.randint(1, 2)):
                said = spoken(f"m{life}.{number}", a_program(draw))
                await rt.hub.open("main", said, session_key="web_ann_1")
                await anyio.sleep(draw.choice([0.5, 1, 2, 30]))
            if draw.random() < 0.2:
                for run in await rt.hub.journal.runs():
                    if run.parent_run_id is None and draw.random() < 0.5:
                        await rt.hub.terminate(run.run_id)
        exports += [exported(folder, row.run_id) for row in runs_of(folder)]
    return exports


def is_taken(folder: Path, lines: Lines, replace: bool, ports: Ports) -> bool:
    try:
        import_runs(f"sqlite:{folder}", "x", lines, replace=replace, ports=ports)
    except OperatorError:
        return False
    return True


def damage(folder: Path) -> list[str]:
    return [x.text for x in StoreCheck(f"sqlite:{folder}").problems() if not x.heals]


def check(folder: Path, elsewhere: Path, ports: Ports) -> None:
    """The store is sound, and what it exports is taken by another one."""
    assert damage(folder) == []
    runs = runs_of(folder)
    known = {run.run_id for run in runs}
    for run in runs:
        if run.parent_run_id not in known:
            lines = exported(folder, run.run_id)
            import_runs(f"sqlite:{elsewhere}", "x", lines, ports=ports)
            assert exported(elsewhere, run.run_id) == lines
    shutil.rmtree(elsewhere, ignore_errors=True)


async def goes_on(folder: Path, ports: Ports) -> None:
    """A runtime opens what is there, and whoever is still there hears what is said."""
    async with runtime(folder, ports) as rt:
        errors: list[e.Event] = []
        rt.hub.subscribe("hub:error", errors.append)
        await anyio.sleep(100)
        for run in await rt.hub.journal.runs():
            await rt.hub.send_to_run(run.run_id, spoken("last", [["say"]]))
        await anyio.sleep(1000)
        assert not errors
    assert damage(folder) == []


@pytest.mark.parametrize("seed", range(examples(20)))
async def test_a_store_that_takes_exports_in_any_order_stays_sound(
    seed: int, ports: Ports, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    exports = await grown(tmp_path / "first", ports, draw)
    for number in range(3):
        folder = tmp_path / f"store-{number}"
        if number:
            shutil.copytree(tmp_path / "first", folder)
        is_there = bool(number)
        for _ in range(draw.randint(1, 4)):
            is_there |= is_taken(folder, draw.choice(exports), draw.random() < 0.7, ports)
            if is_there:
                check(folder, tmp_path / "elsewhere", ports)
        if is_there:
            await goes_on(folder, ports)
            check(folder, tmp_path / "elsewhere", ports)


async def parent_and_child(folder: Path, ports: Ports) -> tuple[str, str, Lines]:
    """A conversation that has a child, and an export of it from before."""
    async with runtime(folder, ports) as rt:
        run = await rt.hub.open("main", spoken("m0", [["say"]]), session_key="web_ann_1")
        await rt.result(run.run_id)
    before = exported(folder, run.run_id)
    async with runtime(folder, ports) as rt:
        program = [["stay", "keep", [["look"], ["report"]]], ["say"]]
        await rt.hub.send_to_run(run.run_id, spoken("m1", program))
        await rt.result(run.run_id)
    (child,) = [x.run_id for x in runs_of(folder) if x.parent_run_id]
    return run.run_id, child, before


async def test_a_parent_that_does_not_know_its_child_is_not_put_in_the_place_of_one_that_does(
    ports: Ports, tmp_path: Path
) -> None:
    run_id, child, before = await parent_and_child(tmp_path / "one", ports)
    now = exported(tmp_path / "one", run_id)
    with pytest.raises(OperatorError) as refused:
        import_runs(f"sqlite:{tmp_path / 'one'}", "x", before, replace=True, ports=ports)
    words = f"run {child} is in this store, and not in the export"
    assert words in str(refused.value) and "give another --store" in str(refused.value)
    assert exported(tmp_path / "one", run_id) == now
    assert damage(tmp_path / "one") == []


async def test_a_child_that_its_parent_does_not_know_is_damage(
    ports: Ports, tmp_path: Path
) -> None:
    run_id, child, _ = await parent_and_child(tmp_path, ports)
    db = sqlite3.connect(tmp_path / "hubbub.db")
    db.execute("UPDATE event SET body = replace(body, ?, ?)", (child, child[:-1] + "x"))
    db.commit()
    db.close()
    assert any(f"its parent {run_id} knows of no such child" in x for x in damage(tmp_path))


async def test_the_folders_show_what_was_imported_before_a_runtime_opens(
    ports: Ports, tmp_path: Path
) -> None:
    run_id, _, _ = await parent_and_child(tmp_path, ports)
    lines = exported(tmp_path, run_id)
    async with runtime(tmp_path, ports) as rt:
        await rt.hub.send_to_run(run_id, spoken("m2", [["file"], ["say"]]))
        await rt.result(run_id)
    import_runs(f"sqlite:{tmp_path}", "x", lines, replace=True, ports=ports)
    assert [*StoreCheck(f"sqlite:{tmp_path}").problems()] == []
    assert '"m2' not in (tmp_path / "agents" / run_id / "history.jsonl").read_text()
