"""Whatever may hold values is its owner's only: from the first byte, whatever umask and folder."""

import os
import re
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support import stores as little_stores
from support.agents import echo_model, model_agent

from attacks.scale import scale
from hubbub import Message, Runtime
from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.demo.store import begin_demo
from hubbub.runtime.demo.survey import Demo
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.sqlite.private_files import open_private
from hubbub.runtime.stores.sqlite.store import SqliteStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-06")]

OTHERS = stat.S_IRWXG | stat.S_IRWXO
UMASKS = [0o000, 0o022, 0o077, 0o777][:: scale(3, 1)]
SECRET = "hunter2-f3a90c"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(params=UMASKS, ids=oct)
def careless(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of a process that hides nothing, or too much."""
    with umask(request.param):
        yield


def open_folder(path: Path) -> Path:
    """A folder that everybody may write into, made before."""
    path.mkdir()
    path.chmod(0o777)
    return path


def open_to_others(folder: Path) -> list[str]:
    """What others may look into below a folder, the folder itself apart."""
    found = []
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & OTHERS and not path.is_symlink():
            found.append(f"{path.relative_to(folder)}: {mode:04o}")
    return found


class Looks:
    """Looks at every file below a folder at every line that this thread executes in the library.

    That is as near as one can get to "from the first byte" without the system's help: whatever is
    made wide and narrowed later is seen in between.  In the short form a line is looked behind
    once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._times: Counter[tuple[object, int]] = Counter()
        self.seen: set[str] = set()
        self.modules: set[str] = set()

    def __enter__(self) -> "Looks":
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: Any, event: str, arg: object) -> Any:
        room, _, module = frame.f_code.co_filename.rpartition("/runtime/")
        if not room or not module.startswith(MAKERS):
            return None
        self.modules.add(module)
        return self._look

    def _look(self, frame: Any, event: str, arg: object) -> Any:
        self._times[frame.f_code, frame.f_lineno] += 1
        if self._times[frame.f_code, frame.f_lineno] > scale(1, 10_000):
            return self._look
        for folder, _, files in os.walk(self._folder):
            for name in files:
                path = os.path.join(folder, name)
                try:
                    mode = os.lstat(path).st_mode
                except FileNotFoundError:
                    continue
                if mode & OTHERS and not stat.S_ISLNK(mode):
                    self.seen.add(f"{path}: {stat.S_IMODE(mode):04o}")
        return self._look


MAKERS = ("stores/sqlite/", "stores/folders/disk.py", "inspection/backup.py", "demo/store.py")
"""The modules that make files, or have SQLite make them."""


async def lived(store: SqliteStore, ports: Ports) -> str:
    """A life with values, files, history, and a backup beside it."""
    async with Runtime(little_stores.agents(), store=store, ports=ports, grace=0) as rt:
        run = await rt.start("bot", "hello", session_key="a_b_c", env={"TOKEN": SECRET})
        await run.result()
        await rt.hub.send_to_run(run.run_id, Message("again"))
        await run.result()
        await store.projected()
        backup_store(f"sqlite:{store.folder.database}", store.folder.database.parent / "copy")
    return run.run_id


@pytest.mark.parametrize("name", ["", "hubbub.db", "other.db"][:: scale(2, 1)])
async def test_no_file_is_open_to_others_at_any_moment(
    tmp_path: Path, ports: Ports, careless: None, name: str
) -> None:
    folder = open_folder(tmp_path / "store")
    with Looks(folder) as looks:
        for life in range(2):  # What is there is opened, too.
            store = sqlite_store(folder / name, ports=ports)
            await lived(store, ports)
            (folder / "copy").rename(tmp_path / f"copy-{life}")
    sqlite = {f"stores/sqlite/{name}.py" for name in ("lock", "private_files", "store", "writer")}
    assert {*sqlite, *MAKERS[1:3]} <= looks.modules
    assert looks.seen == set()
    shutil.move(tmp_path / "copy-0", folder)
    shutil.move(tmp_path / "copy-1", folder)
    assert open_to_others(folder) == []
    assert store.folder.agents.stat().st_mode & 0o700 == 0o700


async def test_what_is_written_with_real_threads_is_private_after_every_commit(
    tmp_path: Path, careless: None
) -> None:
    folder = open_folder(tmp_path / "store")
    store = sqlite_store(folder)
    agents = [model_agent(echo_model(0))]
    async with Runtime(agents, store=store, ports=Ports(), grace=0) as rt:
        run = await rt.start("assistant", session_key="a_b_c", env={"TOKEN": SECRET})
        for number in range(scale(3, 100)):
            await rt.hub.send_to_run(run.run_id, Message(f"m{number}"))
            await run.result()
            assert open_to_others(folder) == []
    assert open_to_others(folder) == []


async def test_what_was_wide_is_narrowed_and_told_of(
    tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(tmp_path / "store")
    run_id = await lived(sqlite_store(folder, ports=ports), ports)
    draw = Random(1)
    for path in sorted(folder.rglob("*")):  # As a store was made formerly.
        path.chmod(0o755 if path.is_dir() else draw.choice([0o644, 0o666]))
    for end in ("-wal", "-shm"):  # As a killed process leaves them.
        (folder / f"hubbub.db{end}").touch()
        (folder / f"hubbub.db{end}").chmod(0o644)
    store = sqlite_store(folder, ports=ports)
    async with Runtime(little_stores.agents(), store=store, ports=ports, grace=0) as rt:
        wide = {line.split(":")[0] for line in open_to_others(folder)}
        # Others cannot come to what lies in a folder of ours.
        assert {x for x in wide if x.count("/") < 2 and not x.startswith("copy")} <= {
            "agents", "blobs", ".gitignore"
        }  # fmt: skip
        await rt.hub.send_to_run(run_id, "again")
        await rt.result(run_id)
        await store.projected()
        state = folder / "agents" / run_id / "state.json"
        history = folder / "agents" / run_id / "history.jsonl"
        assert not (state.stat().st_mode | history.stat().st_mode) & OTHERS
    told = [record.getMessage() for record in caplog.records]
    for name in ("hubbub.db'", "hubbub.db-wal'", "hubbub.db-lock'", f"agents/{run_id}'"):
        assert any("store.narrowed" in line and name in line for line in told), name


async def test_a_file_that_cannot_be_narrowed_is_refused(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived(sqlite_store(tmp_path / "store", ports=ports), ports)
    (tmp_path / "store" / "hubbub.db").chmod(0o644)

    def chmod(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(OperatorError, match="others may read it"):
        async with Runtime(store=f"sqlite:{tmp_path}/store", ports=ports):
            pass


async def test_stores_that_are_imported_and_those_of_demos_are_private(
    tmp_path: Path, careless: None
) -> None:
    ports = virtual_ports()
    place = open_folder(tmp_path / "place")
    run_id = await lived(sqlite_store(place / "store", ports=ports), ports)
    with open_reader(f"sqlite:{place}/store") as opened:
        lines = list(export_run(opened, run_id))
    with Looks(place) as looks:
        for name in ("imported", "imported.db", "elsewhere/below/imported"):
            import_runs(f"sqlite:{place}/{name}", "x", lines, ports=ports)
        store = begin_demo(Demo(folder=place), own=False, ports=ports, folder=place / "demo")
        async with Runtime([model_agent(echo_model(0))], store=store, ports=ports) as rt:
            await rt.run("assistant", "hello")
    assert looks.seen == set()
    assert open_to_others(place) == []


def test_what_is_written_beside_a_store_is_private(tmp_path: Path, careless: None) -> None:
    disk, place = RealDisk(), open_folder(tmp_path / "place")
    with Looks(place) as looks:
        disk.mkdir(f"{place}/a/b/c")
        disk.append(f"{place}/a/history", b"x")
        disk.append(f"{place}/a/history", b"y")
        disk.replace(f"{place}/a/state", b"x")
        disk.write_new(f"{place}/a/new", b"x")
        disk.link_or_copy(f"{place}/a/new", f"{place}/a/link")
    assert looks.seen == set()
    assert open_to_others(place) == []
    assert disk.read(f"{place}/a/history") == b"xy"


def test_what_is_written_goes_into_no_file_that_somebody_has_open(tmp_path: Path) -> None:
    prepared = tmp_path / "history.part"
    prepared.touch(0o666)
    (tmp_path / "link.part").symlink_to(prepared)
    with prepared.open("rb") as spy:
        for name in ("history.part", "link.part"):
            with open_private(tmp_path / name) as file:
                file.write(SECRET.encode())
            assert not (tmp_path / name).is_symlink()
        assert spy.read() == b""
    assert open_to_others(tmp_path) == []


def test_a_copy_in_place_of_a_link_is_private(
    tmp_path: Path, careless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, path: str) -> None:
        raise OSError(1, "no links here")

    monkeypatch.setattr(os, "link", link)
    disk, place = RealDisk(), open_folder(tmp_path / "place")
    disk.replace(f"{place}/content", b"content")
    disk.link_or_copy(f"{place}/content", f"{place}/shown")
    assert disk.read(f"{place}/shown") == b"content"
    assert open_to_others(place) == []


MAKING = re.compile(
    r"write_bytes\(|write_text\(|(?<!_disk\.)mkdir\(|touch\(|copyfile\(|copytree\(|makedirs\(|"
    r"""mkstemp|\bopen\((?:[^()]*, *)?["'][wax]b?["']|O_CREAT|sqlite3\.connect\("""
)
MAY_MAKE = {
    "private_files.py": "",
    "schema.py": "sqlite3.connect(path",  # Of what ``make_private_file`` has made.
    "backup.py": "sqlite3.connect(path)",
    "write_skill.py": "",  # A user's own: what others may read, too.
    "writing.py": "",  # Recordings of simulated worlds.
    "assets_command.py": "",  # Pictures, for a repository or a page.
    "demo_command.py": "",  # The same: the recording of a demo that shows invented data.
}
"""Who makes files other than by ``private_files``, and with what."""


def test_whoever_makes_files_makes_them_private() -> None:
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((Path(__file__).parents[2] / "runtime").rglob("*.py"))
        for line in path.read_text().splitlines()
        if MAKING.search(line.replace("def mkdir(", "")) and not _may_make(path.name, line)
    ]
    # These connect in order to read.
    assert found == [
        "schema.py: db = sqlite3.connect(",
        'schema.py: db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, '
        "timeout=BUSY_SECONDS)",
    ]


def _may_make(module: str, line: str) -> bool:
    return module in MAY_MAKE and MAY_MAKE[module] in line
