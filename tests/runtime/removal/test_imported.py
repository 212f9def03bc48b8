"""Trees that were imported go when their time says, not their place in the store: what goes beside
runs at work is what ``hubbub prune`` would remove."""

import shutil
from pathlib import Path

import anyio
import pytest
from support.pruned_stores import DAY, fill_with_ages, ports_at, problems
from support.stores import agents
from support.virtual_time import VirtualTimeLoop

from hubbub import Retention, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import EPOCH, InlineOffload, InlineWorker, LoopClock, virtual_ports
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.retention.pruning import find_trees, prune_store

LOOP = {"loop_factory": VirtualTimeLoop}
NOW = ports_at(4 * DAY)


def at(days: float) -> Ports:
    clock = LoopClock(EPOCH + int(days * DAY * 1_000_000))
    return Ports(clock=clock, offload=InlineOffload(), make_worker=InlineWorker)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A store with trees of four days; those of the first two were removed and came back."""
    folder = tmp_path / "made"
    store = f"sqlite:{folder}"

    async def fill() -> None:
        await fill_with_ages(store, virtual_ports())

    async def work() -> None:
        async with Runtime(agents(), store=store, ports=at(3.5)) as rt:
            await rt.run("bot", "the last event of the store is another run's")

    anyio.run(fill, backend="asyncio", backend_options=LOOP)
    pruned = prune_store(store, Retention(ended=2 * DAY), export=tmp_path / "old", ports=NOW)
    assert len(pruned.trees) == 2
    for path in sorted((tmp_path / "old").iterdir(), reverse=True):  # The younger one first.
        with path.open("rb") as lines:
            import_runs(store, path.name, lines, ports=NOW)
    anyio.run(work, backend="asyncio", backend_options=LOOP)
    return folder


def roots_of(store: str) -> set[str]:
    with open_reader(store) as reader:
        return {*reader.roots().values()}


def sizes_in(store: str) -> list[int]:
    """How much the events take that are left when the oldest trees have gone, one by one."""
    with open_reader(store) as reader:
        sizes = dict.fromkeys(reader.roots().values(), 0)
        for row in reader.event_rows():
            sizes[row.root_run_id] += len(row.body)
        trees = find_trees(reader, Retention(ended=1), NOW.clock.now()).trees
    whole = sum(sizes.values())
    return [whole - sum(sizes[tree.root_run_id] for tree in trees[:n]) for n in range(len(trees))]


def test_what_goes_beside_runs_is_what_would_be_pruned_at_rest(made: Path, tmp_path: Path) -> None:
    store = f"sqlite:{made}"
    retentions = [Retention(ended=days * DAY) for days in (0.1, 1.5, 2.5, 3.5, 5)]
    retentions += [Retention(keep_last=count) for count in range(1, 7)]
    retentions += [Retention(ended=2.5 * DAY, keep_last=count) for count in (1, 3, 4)]
    retentions += [Retention(max_bytes=size) for size in sizes_in(store)]
    retentions += [Retention(max_bytes=size, keep_last=3) for size in sizes_in(store)]
    seen: set[int] = set()
    for retention in retentions:
        with open_reader(store) as reader:
            expected = {x.root_run_id for x in find_trees(reader, retention, NOW.clock.now()).trees}
        shutil.copytree(made, tmp_path / "there")
        there = f"sqlite:{tmp_path / 'there'}"

        async def live(there: str = there, retention: Retention = retention) -> None:
            async with Runtime(agents(), store=there, ports=at(4), retention=retention):
                await anyio.sleep(0.5)

        anyio.run(live, backend="asyncio", backend_options=LOOP)
        assert roots_of(store) - roots_of(there) == expected, retention
        assert problems(there) == []
        seen.add(len(expected))
        shutil.rmtree(tmp_path / "there")
    assert seen == {0, 1, 2, 3, 4}
