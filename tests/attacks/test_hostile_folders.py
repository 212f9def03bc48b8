"""Whatever stands in an agent's folder, it is adopted and sound, or left alone and told of."""

import json
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from support.stores import SECRET, agents, fill

from attacks.hostile_values import TEXTS, mutated
from attacks.scale import scale
from hubbub import Runtime
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio


class Made:
    """The folders of a store whose database is gone."""

    def __init__(self, folder: Path, parent: str, child: str, chat: str) -> None:
        self.folder = folder
        self.parent, self.child, self.chat = parent, child, chat


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    from support.virtual_time import VirtualTimeLoop

    folder = tmp_path_factory.mktemp("made") / "store"

    async def work() -> Made:
        filled = await fill(folder, virtual_ports(), mirror=True)
        return Made(folder, filled.parent, filled.child, filled.chat)

    options = {"loop_factory": VirtualTimeLoop}
    found = anyio.run(work, backend_options=options)
    for file in folder.glob("hubbub.*"):
        file.unlink()
    return found


def places_of(folder: Path) -> dict[str, tuple[str | None, str]]:
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        rows = db.execute("SELECT run_id, parent_run_id, root_run_id FROM run").fetchall()
    return {run_id: (parent, root) for run_id, parent, root in rows}


async def adopted(folder: Path) -> list[str]:
    """Open a runtime on a folder: what it tells.  Every run that it has taken in can be read."""
    ports = virtual_ports()
    store = SqliteStore(folder, ports=ports)
    with anyio.fail_after(100_000):
        async with Runtime(agents(), store=store, ports=ports, grace=0) as rt:
            for info in await rt.hub.journal.runs(live=False):
                assert await rt.hub.journal.load(info.run_id) is not None
    found = [x.text for x in StoreCheck(f"sqlite:{folder}").problems() if not x.heals]
    told = "\n".join(store.problems)
    for problem in found:  # Nothing but what was told, of what was left where it is.
        assert "hubbub.db" not in problem, problem
        assert problem.split(": ")[0] in told or "content" in problem, (problem, told)
    return list(store.problems)


@pytest.mark.spec("G-04")
async def test_a_folder_with_any_value_replaced_is_adopted_whole_or_left_alone(
    made: Made, tmp_path: Path
) -> None:
    chance = random.Random(8)
    folder = tmp_path / "store"
    for number in range(scale(40, 3_000)):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made.folder, folder)
        agent = folder / "agents" / chance.choice((made.child, made.chat))
        file = agent / ("state.json", "history.jsonl", "descriptor.json", "state.json")[number % 4]
        lines = file.read_bytes().splitlines(keepends=True)
        at = chance.randrange(len(lines))
        if number % 5 == 4:
            lines[at] = chance.choice((*TEXTS, lines[at][: chance.randrange(len(lines[at]))]))
        else:
            ids = (made.parent, made.child, made.chat)
            lines[at] = json.dumps(mutated(chance, json.loads(lines[at]), ids)).encode() + b"\n"
        file.write_bytes(b"".join(lines))
        for problem in await adopted(folder):
            assert problem.startswith(str(folder)) and "\n" not in problem
        other = made.chat if agent.name == made.child else made.child
        assert other in places_of(folder), "one broken folder does not stop the others"
        assert SECRET not in str(places_of(folder))


@pytest.mark.spec("G-04")
async def test_a_folder_without_that_of_its_parent_becomes_a_root_and_says_so(
    made: Made, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    assert not (folder / "agents" / made.parent).exists(), "a program's run has no folder"
    told = [x for x in await adopted(folder) if made.child in x]
    assert any(f"its parent {made.parent} is not here; it is a root of its own" in x for x in told)
    assert places_of(folder)[made.child] == (None, made.child)
    assert await adopted(folder) == [], "it is told once"


@pytest.mark.spec("G-04")
async def test_folders_whose_parents_stand_in_a_circle_are_left_alone_and_told_of(
    made: Made, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    state = folder / "agents" / made.child / "state.json"
    text = state.read_text()
    assert f'"parent":"{made.parent}"' in text
    state.write_text(text.replace(f'"parent":"{made.parent}"', f'"parent":"{made.child}"'))
    told = [x for x in await adopted(folder) if "stand in a circle" in x]
    assert len(told) == 1 and str(state) in told[0]
    assert made.child not in places_of(folder) and made.chat in places_of(folder)
