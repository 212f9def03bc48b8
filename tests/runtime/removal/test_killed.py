"""A process is killed while a retention removes what is not kept: each tree is whole or gone, and
the next life goes on with it."""

import shutil
from pathlib import Path

import anyio
import pytest
from support.killed_steps import killed_before, steps_of
from support.profiles import portion
from support.pruned_stores import DAY, Aged, fill_with_ages, problems, told_of
from support.stores import agents
from support.virtual_time import VirtualTimeLoop

from hubbub import Retention, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import EPOCH, InlineOffload, InlineWorker, LoopClock, virtual_ports

TWO_DAYS = Retention(ended=2 * DAY)
LOOP = {"loop_factory": VirtualTimeLoop}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Aged]:
    folder = tmp_path / "made"

    async def fill() -> Aged:
        return await fill_with_ages(f"sqlite:{folder}", virtual_ports())

    return folder, anyio.run(fill, backend="asyncio", backend_options=LOOP)


def live(folder: Path) -> None:
    """A life in which one pass is made."""

    async def pass_by() -> None:
        clock = LoopClock(EPOCH + int(3.5 * DAY * 1_000_000))
        ports = Ports(clock=clock, offload=InlineOffload(), make_worker=InlineWorker)
        store = f"sqlite:{folder}"
        async with Runtime(agents(), store=store, ports=ports, retention=TWO_DAYS):
            await anyio.sleep(1)

    anyio.run(pass_by, backend="asyncio", backend_options=LOOP)


def test_killed_before_any_step_of_a_life_in_which_trees_go_each_is_whole_or_gone(
    made: tuple[Path, Aged], tmp_path: Path
) -> None:
    folder, runs = made
    before = told_of(f"sqlite:{folder}")
    kept, going = (runs.young, runs.chat, runs.last), {runs.old, runs.family}
    shutil.copytree(folder, tmp_path / "all")
    steps = steps_of(lambda: live(tmp_path / "all"), tmp_path)
    at_end = told_of(f"sqlite:{tmp_path / 'all'}")
    assert not going & {*at_end} and len(at_end["contents"]) < len(before["contents"])
    there = tmp_path / "killed"
    store = f"sqlite:{there}"
    for step in portion(range(1, steps + 1)):
        shutil.copytree(folder, there)
        assert killed_before(step, lambda: live(there))
        told = told_of(store)
        for root in going & {*told}:
            assert told[root] == before[root]
        for root in kept:
            assert told[root] == before[root]
        assert {*told["contents"]} >= {*at_end["contents"]}
        assert problems(store) == [], f"killed before step {step}"
        live(there)
        again = told_of(store)
        assert not going & {*again} and problems(store) == [], f"killed before step {step}"
        for part in (*kept, "contents", "secrets", "hub"):
            assert again[part] == at_end[part], f"killed before step {step}"
        shutil.rmtree(there)
    assert steps > 200
