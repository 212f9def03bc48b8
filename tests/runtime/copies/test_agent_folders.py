"""``hubbub export --folders``: agents' folders, made from the store alone."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from support.feature_stories import FEATURES, Story
from support.folder_worlds import WORLDS
from support.stores import SECRET, Filled, fill, open_runtime
from support.whole_stores import agents_in

from hubbub.__main__ import main
from hubbub.hub.ports import Ports
from hubbub.runtime.copies import agent_folders
from hubbub.runtime.stores.open import sqlite_store

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
async def runs(tmp_path: Path, ports: Ports) -> Filled:
    return await fill(tmp_path / "store", ports, mirror=True)


def _world(name: str) -> Story:
    async def play(store: Any, ports: Ports) -> None:
        await WORLDS[name](sqlite_store(store.removeprefix("sqlite:")), 3)

    return play


PLAYED: Final[dict[str, Story]] = {
    **FEATURES, **{f"world {name}": _world(name) for name in WORLDS},
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.spec("P-02")
@pytest.mark.parametrize("story", PLAYED.values(), ids=PLAYED)
async def test_they_are_those_that_a_runtime_has_written_beside_its_database(
    story: Story, ports: Ports, tmp_path: Path, command: Command
) -> None:
    store, out = f"sqlite:{tmp_path / 'store'}", tmp_path / "out"
    await story(store, ports)
    folder = sqlite_store(tmp_path / "store", ports=ports)
    await folder.open()  # Some stories cut their runtime off: what was left behind is mended.
    await folder.projected()
    await folder.aclose()
    code, said, _ = command("export", "--folders", "--out", out, "--store", store)
    assert code == 0
    expected = agents_in(tmp_path / "store" / "agents")
    assert agents_in(out) == expected
    count = len([*out.iterdir()])
    assert said == f"wrote {out}: {count:,} folders of agents\n"
    assert all(not x.stat().st_mode & 0o077 for x in (out, *out.rglob("*")))


@pytest.mark.anyio
async def test_of_a_run_it_is_its_folder_and_those_below(
    runs: Filled, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out"
    store = ("--store", f"sqlite:{tmp_path / 'store'}")
    code, _, _ = command("export", runs.chat, "--folders", "--out", out, *store)
    assert code == 0 and [x.name for x in out.iterdir()] == [runs.chat]
    assert agents_in(out / runs.chat) == agents_in(tmp_path / "store" / "agents" / runs.chat)
    assert SECRET not in str(agents_in(out))


@pytest.mark.anyio
@pytest.mark.spec("P-02")
async def test_another_store_adopts_them(
    runs: Filled, tmp_path: Path, ports: Ports, command: Command
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    store = ("--store", f"sqlite:{tmp_path / 'store'}")
    assert command("export", "--folders", "--out", other / "agents", *store)[0] == 0
    async with open_runtime(other, ports, mirror=True) as rt:
        assert (await rt.hub.send_to_run(runs.chat, "and now?")).accepted
        assert (await rt.result(runs.chat)).success


@pytest.mark.anyio
async def test_what_cannot_be_written_is_refused_in_one_line_and_nothing_is_left(
    runs: Filled, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()

    def refused(*words: object) -> str:
        code, out, err = command("export", *words, "--store", f"sqlite:{store}")
        assert code == 2 and not out and err.count("\n") == 1
        return err

    assert "is not an empty folder" in refused("--folders", "--out", full)
    assert "is not an empty folder" in refused("--folders", "--out", full / "x")
    assert "belongs to the store" in refused("--folders", "--out", store / "new")
    assert "any two are two exports" in refused(runs.chat, "--folders", "--state")
    assert "--no-files" in refused("--folders", "--no-files")
    assert "RUN is missing" in refused()
    shutil.rmtree(store / "blobs")
    out = tmp_path / "out"
    assert "its content is missing or has changed" in refused("--folders", "--out", out)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(agent_folders._StoreDisk, "append", fail)
    assert "No space left on device; free some space" in refused("--folders", "--out", out)
    assert sorted(os.listdir(tmp_path)) == ["full", "store"]


def test_without_agents_the_folder_is_empty(tmp_path: Path, command: Command) -> None:
    async def open_once() -> None:
        async with open_runtime(tmp_path / "store"):
            pass

    anyio.run(open_once)
    out = tmp_path / "out"
    store = ("--store", f"sqlite:{tmp_path / 'store'}")
    assert command("export", "--folders", "--out", out, *store)[0] == 0
    assert [*out.iterdir()] == []
    shutil.rmtree(out)
