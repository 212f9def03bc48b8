"""``agents/<id>/run.jsonl``: a run word for word, as an export has it, ready to be imported."""

import json
import shutil
from pathlib import Path

import anyio
import pytest
from support.stores import Filled, agents, fill, open_runtime

from hubbub import Message, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import BadExport, import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.exchange.lanes import Problem
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.run_files import RunFiles
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio


def file_of(folder: Path, run_id: str) -> Path:
    return folder / "agents" / run_id / "run.jsonl"


def files_in(folder: Path) -> list[Path]:
    return [*folder.glob("agents/*/run.jsonl")]


def problems_of(folder: Path) -> list[Problem]:
    return list(StoreCheck(f"sqlite:{folder}").problems())


async def opened(folder: Path, ports: Ports) -> None:
    """Open the store and close it again, once everything is written."""
    store = sqlite_store(folder, ports=ports)
    await store.open()
    await store.projected()
    await store.aclose()


@pytest.fixture
async def filled(tmp_path: Path, ports: Ports) -> Filled:
    return await fill(tmp_path, ports, mirror=True)


async def test_the_file_of_each_agent_is_its_export_word_for_word(
    filled: Filled, tmp_path: Path
) -> None:
    for run_id in (filled.chat, filled.child):
        with open_reader(f"sqlite:{tmp_path}") as reader:
            lines = [json.loads(line) for line in export_run(reader, run_id, contents=False)]
        told = [json.loads(x) for x in file_of(tmp_path, run_id).read_bytes().splitlines()]
        assert told[0] == lines[0] | {"is_open": True}
        for kind in ("event", "accepted"):
            wanted = [x for x in lines if x["line"] == kind]
            found = [x for x in told if x["line"] == kind]
            assert [{**x, "position": 0} for x in found] == [{**x, "position": 0} for x in wanted]
        (run,) = (x for x in lines if x["line"] == "run")
        assert told[-1] == run
        positions = [x["position"] for x in told if x["line"] == "event"]
        assert positions == sorted(positions)
    assert problems_of(tmp_path) == []


async def test_the_file_of_an_agent_can_be_imported(
    filled: Filled, tmp_path: Path, ports: Ports
) -> None:
    lines = file_of(tmp_path, filled.chat).read_bytes().splitlines(keepends=True)
    other = f"sqlite:{tmp_path / 'other'}"
    assert import_runs(other, "run.jsonl", lines, ports=ports).runs == 1
    with open_reader(f"sqlite:{tmp_path}") as one, open_reader(other) as two:
        whole = [*export_run(one, filled.chat, contents=False)]
        assert [*export_run(two, filled.chat, contents=False)] == whole
    assert [x for x in problems_of(tmp_path / "other") if "content" not in x.what] == []


async def test_a_file_that_is_torn_off_is_not_imported(
    filled: Filled, tmp_path: Path, ports: Ports
) -> None:
    lines = file_of(tmp_path, filled.chat).read_bytes().splitlines(keepends=True)
    with pytest.raises(BadExport):
        import_runs(f"sqlite:{tmp_path / 'other'}", "f", lines[:-1], ports=ports)
    assert not (tmp_path / "other").exists()


async def test_lines_are_only_ever_added(tmp_path: Path, ports: Ports) -> None:
    stands = b""
    for life in range(3):
        store = sqlite_store(tmp_path, ports=ports)
        async with Runtime(agents(), store=store, ports=ports) as rt:
            run = await rt.hub.open("bot", "hello", session_key="chat_1_2")
            for number in range(3):
                await rt.hub.send_to_run(run.run_id, Message("more", key=f"{life}.{number}"))
                await store.projected()
                found = file_of(tmp_path, run.run_id).read_bytes()
                assert found.startswith(stands) and len(found) > len(stands)
                stands = found
    assert problems_of(tmp_path) == []


@pytest.mark.spec("P-04", "G-08")
async def test_wherever_a_file_is_torn_off_it_is_written_on_from_there(
    filled: Filled, tmp_path: Path
) -> None:
    file = file_of(tmp_path, filled.chat)
    whole = file.read_bytes()
    with open_reader(f"sqlite:{tmp_path}") as reader:
        for cut in range(0, len(whole), max(1, len(whole) // 60)):
            file.write_bytes(whole[:cut])
            runs, folder = RunFiles(RealDisk(), reader), str(file.parent)
            found = runs.look(folder, filled.chat)
            assert found and all(is_behind for _, is_behind in found), found
            told = runs.reconcile(folder, filled.chat)
            ends = (b"\n", whole[cut - 1 : cut])
            assert told or ends[0] == ends[1], "what was torn off is told"
            assert runs.look(folder, filled.chat) == []
            again = file.read_bytes()
            events = [x for x in again.splitlines() if x.startswith(b'{"line":"event"')]
            assert events == [x for x in whole.splitlines() if x.startswith(b'{"line":"event"')]
            assert again.splitlines()[-1] == whole.splitlines()[-1]


@pytest.mark.spec("P-04")
async def test_damage_elsewhere_is_reported_with_its_line_and_kept(
    filled: Filled, tmp_path: Path, ports: Ports
) -> None:
    file = file_of(tmp_path, filled.chat)
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(i for i, x in enumerate(lines) if x.startswith(b'{"line":"event"'))
    damaged = b"".join([*lines[:at], lines[at].replace(b"hello", b"jello"), *lines[at + 1 :]])
    assert damaged != b"".join(lines)
    file.write_bytes(damaged)
    (problem,) = problems_of(tmp_path)
    assert problem.where == f"{file}:{at + 1}" and not problem.heals
    with open_reader(f"sqlite:{tmp_path}") as reader:
        told = RunFiles(RealDisk(), reader).reconcile(str(file.parent), filled.chat)
    assert f"{file}:{at + 1}: says something else than the store" in told
    assert (file.parent / "run.jsonl.corrupt-1").read_bytes() == damaged
    assert problems_of(tmp_path) == []


async def test_a_store_of_an_older_program_gets_its_files_in_the_background(
    filled: Filled, tmp_path: Path, ports: Ports
) -> None:
    whole = {path: path.read_bytes() for path in files_in(tmp_path)}
    assert len(whole) >= 2
    for path in whole:
        path.unlink()
    found = problems_of(tmp_path)
    assert {x.where for x in found} == {str(path) for path in whole}
    assert all(x.heals and x.what == "missing" for x in found)
    store = sqlite_store(tmp_path, ports=ports)
    await store.open()
    try:
        await anyio.sleep(1)
        for path, data in whole.items():
            events = [x for x in data.splitlines() if x.startswith(b'{"line":"event"')]
            again = path.read_bytes().splitlines()
            assert [x for x in again if x.startswith(b'{"line":"event"')] == events
    finally:
        await store.aclose()
    assert problems_of(tmp_path) == []


async def test_an_agent_that_is_adopted_has_its_file(
    filled: Filled, tmp_path: Path, ports: Ports
) -> None:
    shutil.copytree(tmp_path / "agents" / filled.chat, tmp_path / "other/agents" / filled.chat)
    await opened(tmp_path / "other", virtual_ports())
    # A file that was written twice: the folder shows what it holds now.
    assert [x for x in problems_of(tmp_path / "other") if "content is missing" not in x.what] == []
    async with open_runtime(tmp_path / "other", virtual_ports(), mirror=True) as rt:
        assert await rt.hub.journal.info(filled.chat) is not None
