"""Whatever stands in an agent's folder, it is adopted and sound, or left alone and told of."""

import json
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from support.stores import SECRET, agents, fill, open_runtime

from attacks.hostile_values import TEXTS, mutated
from attacks.odd_files import ODD_FILES, put
from attacks.scale import scale
from hubbub import Runtime
from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

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
    store = sqlite_store(folder, ports=ports)
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
        file = agent / ("run.jsonl", "run.jsonl", "run.jsonl", *NAMES)[number % 6]
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
    file = folder / "agents" / made.child / "run.jsonl"
    text = file.read_text()
    assert f'"parent_run_id":"{made.parent}"' in text
    for name in ("parent_run_id", "root_run_id", "parentAgentId"):
        text = text.replace(f'"{name}":"{made.parent}"', f'"{name}":"{made.child}"')
    file.write_text(text)
    told = [x for x in await adopted(folder) if "form a circle" in x]
    assert len(told) == 1 and str(file) in told[0]
    assert made.child not in places_of(folder) and made.chat in places_of(folder)


NAMES = ("history.jsonl", "state.json", "descriptor.json")


@pytest.mark.spec("G-04", "P-03")
@pytest.mark.parametrize("kind", ODD_FILES)
async def test_what_is_no_file_breaks_the_folder_it_stands_in_and_stops_nobody(
    kind: str, made: Made, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    put(kind, folder / "agents" / made.chat / "run.jsonl")
    told = [x for x in await adopted(folder) if made.chat in x]
    assert told, "it is told of"
    assert made.chat not in places_of(folder) and made.child in places_of(folder)


@pytest.mark.spec("G-04", "P-03")
@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.parametrize("name", [*NAMES, "run.jsonl", "files/notes/note.txt"])
async def test_what_is_no_file_in_the_folder_of_a_known_run_stops_neither_work_nor_leaving(
    name: str, kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    ports = virtual_ports()
    async with open_runtime(folder, ports, mirror=True) as rt:
        chat = await rt.start("bot", "hello", session_key="chat_1_2")
        await chat.result()
    put(kind, folder / "agents" / chat.run_id / name)
    with anyio.fail_after(100_000):
        async with open_runtime(folder, ports, mirror=True) as rt:
            receipt = await rt.hub.send_to_run(chat.run_id, "again")
            assert receipt.accepted
            await rt.result(chat.run_id)
    found = [x.text for x in StoreCheck(f"sqlite:{folder}").problems()]
    assert (found == []) == (name.startswith("files") and kind != "folder"), found
    assert not [x for x in found if "hubbub.db" in x]


@pytest.mark.spec("G-04", "P-03")
@pytest.mark.parametrize("name", [b"\xff\xfe", b".\xff", b"a\nb", b"UPPER", b"%zz", b" "])
async def test_a_folder_with_an_odd_name_is_told_of_and_stops_nobody(
    name: bytes, made: Made, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    shutil.copytree(
        os.fsencode(folder / "agents" / made.chat), os.fsencode(folder / "agents") + b"/" + name
    )
    told: list[str] = []
    async with Runtime(agents(), store=f"sqlite:{folder}", grace=0) as rt:
        rt.hub.subscribe("hub:error", lambda event: told.append(event.error))
        assert await rt.hub.journal.load(made.chat) is not None
        told += rt.hub.journal.problems
    assert [x for x in told if "that of no run" in x and "\n" not in x]
    for problem in StoreCheck(f"sqlite:{folder}").problems():
        problem.text.encode()


@pytest.mark.spec("G-04", "P-03")
async def test_a_link_to_a_folder_is_told_of_and_not_followed(made: Made, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    shutil.move(folder / "agents" / made.chat, tmp_path / "elsewhere")
    (folder / "agents" / made.chat).symlink_to(tmp_path / "elsewhere")
    assert [x for x in await adopted(folder) if made.chat in x and "link" in x]
    assert made.chat not in places_of(folder) and made.child in places_of(folder)


@pytest.mark.spec("G-04", "P-03")
@pytest.mark.parametrize("is_empty", [False, True])
async def test_nothing_is_written_through_a_link_in_the_place_of_a_folder(
    is_empty: bool, tmp_path: Path
) -> None:
    """The database is there: the folder would be healed, and grow."""
    folder, elsewhere = tmp_path / "store", tmp_path / "else"
    async with Runtime(agents(), store=f"sqlite:{folder}", grace=0) as rt:
        run = await rt.start("bot", "hello", session_key="chat_1_2")
        await run.result()
    shutil.rmtree(folder / "agents" / run.run_id)
    elsewhere.mkdir()
    if not is_empty:
        (elsewhere / "files").mkdir()
        (elsewhere / "state.json").write_text("mine")
    (folder / "agents" / run.run_id).symlink_to(elsewhere)
    before = {path: path.is_file() and path.read_bytes() for path in elsewhere.rglob("*")}
    store = sqlite_store(folder)
    async with Runtime(agents(), store=store, grace=0) as rt:
        other = await rt.start("bot", "hello", session_key="chat_other")
        await (await rt.handle(run.run_id)).ask("again")
        await other.result()
        await store.projected()
        assert (folder / "agents" / other.run_id / "state.json").exists()
        assert [x for x in store.problems if run.run_id in x and "link" in x]
    after = {path: path.is_file() and path.read_bytes() for path in elsewhere.rglob("*")}
    assert after == before


@pytest.mark.spec("G-05", "P-03")
async def test_what_a_project_keeps_in_a_folder_of_that_name_is_nobodys_broken_agent(
    made: Made, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for name in ("research", "research/tools", "my.agent", "__pycache__", "empty"):
        (project / "agents" / name).mkdir(parents=True)
        (project / "agents" / name).chmod(0o755)
    (project / "agents" / "__init__.py").write_text("")
    (project / "agents" / "research" / "state.json").write_text("{}")
    (project / "shared").mkdir()
    (project / "agents" / "shared").symlink_to(project / "shared")
    before = sorted(project.rglob("*"))
    store = sqlite_store(project / "hubbub.db", ports=virtual_ports())
    async with Runtime(agents(), store=store, grace=0) as rt:
        run = await rt.start("bot", "hello", session_key="chat_1_2")
        await run.result()
        await store.projected()
        assert list(store.problems) == []
    assert (project / "agents" / run.run_id / "descriptor.json").exists()
    assert [x for x in before if not x.exists()] == []
    assert (project / "agents" / "research").stat().st_mode & 0o777 == 0o755
    assert [x.text for x in StoreCheck(f"sqlite:{project / 'hubbub.db'}").problems()] == []


@pytest.mark.spec("G-04", "P-03")
async def test_a_file_in_the_place_of_all_folders_is_told_of(made: Made, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    shutil.rmtree(folder / "agents")
    (folder / "agents").write_text("x")
    ports = virtual_ports()
    store = sqlite_store(folder, ports=ports)
    async with Runtime(agents(), store=store, ports=ports, grace=0) as rt:
        assert await rt.run("bot", "hello")
    assert [x for x in store.problems if str(folder / "agents") in x]
    found = [x.text for x in StoreCheck(f"sqlite:{folder}").problems()]
    assert [x for x in found if str(folder / "agents") in x]


@pytest.mark.spec("G-04")
@pytest.mark.parametrize("kind", ODD_FILES)
async def test_a_content_that_is_no_file_is_told_of_and_read_by_nobody(
    kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    ports = virtual_ports()
    async with open_runtime(folder, ports, mirror=True) as rt:
        chat = await rt.start("bot", "hello", session_key="chat_1_2")
        await chat.result()
    (content,) = [x for x in (folder / "blobs").glob("*/*") if x.is_file()]
    put(kind, content)
    assert [x for x in StoreCheck(f"sqlite:{folder}").problems() if str(content) in x.where]
    async with open_runtime(folder, ports, mirror=True) as rt:
        with pytest.raises(StoreFailed):
            await rt.hub.journal.blobs.get(chat.run_id, content.name)  # type: ignore[union-attr]
    with open_reader(f"sqlite:{folder}") as store, pytest.raises(OperatorError):
        list(export_run(store, chat.run_id))


@pytest.mark.spec("G-04")
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "loop", "folder"])
async def test_a_lock_that_is_no_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    async with open_runtime(folder):
        pass
    put(kind, folder / "hubbub.db-lock")
    with pytest.raises(OperatorError, match=r"hubbub\.db-lock"):
        async with open_runtime(folder):
            pass
    assert [x.text for x in StoreCheck(f"sqlite:{folder}").problems()] == []


@pytest.mark.spec("G-04")
@pytest.mark.parametrize("path", ["a/" * 2_500, "x" * 5_000])
async def test_a_path_that_is_too_long_is_refused_in_one_line(path: str, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="give another path"):
        async with Runtime(agents(), store=f"sqlite:{tmp_path}/{path}"):
            pass
    assert os.listdir(tmp_path) == []
