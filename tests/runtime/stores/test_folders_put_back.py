"""Folders of agents that are newer or older than their database, or edited, and used at once."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.stores import fill

from hubbub import Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import InlineWorker, virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.projection import agent_folders
from hubbub.runtime.stores.folders.write import AgentFolders
from hubbub.runtime.stores.open import folder_of_store, open_reader, sqlite_store

pytestmark = pytest.mark.anyio

RUNS = 8
T = TypeVar("T")


class SlowToHeal(InlineWorker):
    """Takes its time with what is done on opening: messages come meanwhile."""

    async def run(self, fn: Callable[[], T]) -> T:
        if isinstance(fn, partial) and fn.func.__name__ == AgentFolders.repair.__name__:
            await anyio.sleep(0.3)
        return await super().run(fn)


@pytest.fixture
def ports() -> Ports:
    found = virtual_ports()
    found.make_worker = SlowToHeal
    return found


async def talk(folder: Path, ports: Ports, *texts: str, runs: int = RUNS) -> None:
    """Say something to every conversation at once, as soon as the store is open."""

    async def one(rt: Runtime, key: str, text: str) -> None:
        await (await rt.start("bot", text, session_key=key)).result()

    bot = model_agent(echo_model(), name="bot")
    async with Runtime([bot], store=sqlite_store(folder, ports=ports), ports=ports) as rt:
        for text in texts:
            async with anyio.create_task_group() as group:
                for number in range(runs):
                    group.start_soon(one, rt, f"chat_{number}_ann", text)
            await anyio.sleep(1)


async def settle(folder: Path, ports: Ports) -> None:
    """Let time pass until nothing is to be looked at on the next opening but one other run."""
    bot = model_agent(echo_model(), name="bot")
    async with Runtime([bot], store=sqlite_store(folder, ports=ports), ports=ports) as rt:
        for _ in range(4):
            await (await rt.start("bot", "hm", session_key="chat_other_ann")).result()
            await anyio.sleep(100)


def database(folder: Path) -> list[Path]:
    return [x for x in folder.glob("hubbub.db*") if not x.name.endswith("lock")]


def put_back(kept: Path, folder: Path) -> None:
    for path in database(folder):
        path.unlink()
    shutil.copy(kept / "hubbub.db", folder / "hubbub.db")


def newer(folder: Path, kept: Path) -> None:
    put_back(kept, folder)


def older(folder: Path, kept: Path) -> None:
    shutil.rmtree(folder / "agents")
    shutil.copytree(kept / "agents", folder / "agents")


def edited(folder: Path, kept: Path) -> None:
    """Texts of the same length: nothing but reading them tells."""
    for path in folder.glob("agents/*/*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b"more", b"lies"))


def removed(folder: Path, kept: Path) -> None:
    for number, path in enumerate(sorted(folder.glob("agents/*"))):
        names = ("history.jsonl", "state.json", "run.jsonl", "descriptor.json")
        (path / names[number % len(names)]).unlink()


def gone(folder: Path, kept: Path) -> None:
    """As a backup leaves them: it copies the database alone."""
    put_back(kept, folder)
    shutil.rmtree(folder / "agents")


@pytest.mark.spec("P-02", "P-04")
@pytest.mark.parametrize("change", [newer, older, edited, removed, gone])
@pytest.mark.parametrize("runs", [RUNS, 3, 0])
@pytest.mark.parametrize("is_settled", [False, True])
async def test_folders_are_as_the_database_however_soon_they_are_used(
    change: Callable[[Path, Path], None],
    runs: int,
    is_settled: bool,
    tmp_path: Path,
    ports: Ports,
) -> None:
    folder, kept = tmp_path / "store", tmp_path / "kept"
    await talk(folder, ports, "first")
    if is_settled:  # What stands in the folders was put on the disk long ago.
        await settle(folder, ports)
    shutil.copytree(folder, kept)
    await talk(folder, ports, "more", "more still")
    change(folder, kept)
    await talk(folder, ports, "new", runs=runs)
    assert not [*StoreCheck(f"sqlite:{folder}").problems()]
    assert len([*folder.glob("agents/*/history.jsonl")]) == RUNS + is_settled
    for path in folder.glob("agents/*/history.jsonl"):
        assert b"lies" not in path.read_bytes()
        assert change is not newer or b"more" not in path.read_bytes()


async def test_folders_that_are_where_the_database_is_are_only_looked_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(tmp_path, virtual_ports(), mirror=True)
    repaired: list[str] = []
    monkeypatch.setattr(
        AgentFolders, "_repair", lambda _, info, **__: repaired.append(info.run_id) or []
    )
    with open_reader(f"sqlite:{tmp_path}") as reader:
        folder = folder_of_store(f"sqlite:{tmp_path}")
        assert folder is not None
        folders = agent_folders(folder, RealDisk(), reader)
        folders.look_over(reader.described(), reader.row)
        assert len(reader.described()) >= 2
    assert repaired == [] and folders.failures == 0
