"""One runtime at a time on one database, whatever it is called, and only while it lies there."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from threading import Barrier, Event, Thread
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent

from attacks.scale import scale
from hubbub import Message, Runtime
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, HubbubError, OperatorError
from hubbub.hub.ports import Ports, ThreadWorker
from hubbub.hub.virtual import InlineWorker, virtual_ports
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.sqlite.store import SqliteStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-05")]

STORE = "store"


def runtime(store: str | SqliteStore, ports: Ports) -> Runtime:
    return Runtime([model_agent(echo_model(0.01))], store=store, ports=ports)


async def refusal(store: str, ports: Ports) -> str:
    """Why a runtime cannot be opened there: one line."""
    with pytest.raises(OperatorError) as caught:
        async with runtime(store, ports):
            pass
    words = str(caught.value)
    assert "\n" not in words
    return words


# ── names ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a folder for a store, and links to it and to what will be there."""
    (tmp_path / STORE).mkdir()
    (tmp_path / "folder-link").symlink_to(STORE)
    (tmp_path / "link-to-link").symlink_to(tmp_path / "folder-link")
    (tmp_path / "file-link.db").symlink_to(f"{STORE}/hubbub.db")
    (tmp_path / "link-to-file-link.db").symlink_to("file-link.db")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "hubbub.db").symlink_to(f"../{STORE}/hubbub.db")
    (tmp_path / "folder.db").symlink_to(STORE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(place: Path) -> list[str]:
    """Everything that a store in ``place`` can be called."""
    relative = [
        STORE, f"./{STORE}", f"{STORE}/", f"{STORE}//", f"{STORE}/.", f"{STORE}/../{STORE}",
        f"{STORE}/hubbub.db", f"{STORE}/./hubbub.db", f"{STORE}/hubbub.db/", "folder-link",
        "folder-link/", "folder-link/hubbub.db", "link-to-link", "file-link.db",
        "link-to-file-link.db", "other", "other/hubbub.db", f"other/../{STORE}", "folder.db",
        f"../{place.name}/{STORE}",
    ]  # fmt: skip
    return [*relative, *(f"{place}/{name}" for name in relative)]


async def test_by_whatever_name_a_second_runtime_is_refused(place: Path) -> None:
    draw = Random(1)
    for _ in range(scale(2, 20)):
        first = draw.choice(names(place))
        async with runtime(f"sqlite:{first}", virtual_ports()):
            for second in names(place):
                words = await refusal(f"sqlite:{second}", virtual_ports())
                assert f"process {os.getpid()}" in words, (first, second)


async def test_every_name_leads_to_the_same_runs_agents_and_contents(place: Path) -> None:
    digest = "ab" * 32
    run_ids: list[str] = []
    called = names(place)[:: scale(3, 1)]  # Of each two that say the same in other words, one.
    for name in called:
        store = sqlite_store(name, ports=virtual_ports(len(run_ids)))
        async with runtime(store, virtual_ports(len(run_ids))) as rt:
            for run_id in run_ids:
                assert await rt.hub.journal.info(run_id) is not None, name
            assert run_ids == [] or store.blobs.place(digest).exists(), name
            store.blobs.place(digest).parent.mkdir(parents=True, exist_ok=True)
            store.blobs.place(digest).touch()
            run = await rt.start("assistant", "hello", session_key=f"key{len(run_ids)}")
            run_ids.append(run.run_id)
    assert len({path.name for path in (place / STORE / "agents").iterdir()}) == len(called)
    assert not list(place.rglob("*.d"))  # noqa: ASYNC240
    for name in called[:: scale(7, 1)]:
        with open_reader(f"sqlite:{name}") as opened:
            assert [find_run(opened, run_id) for run_id in run_ids] == run_ids


async def test_a_database_of_another_name_is_a_store_of_its_own(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        (tmp_path / f"link-to-{name}").symlink_to(name)
    async with (
        runtime(f"sqlite:{tmp_path}/one.db", virtual_ports()),
        runtime(f"sqlite:{tmp_path}/link-to-two.db", virtual_ports()),
    ):
        await refusal(f"sqlite:{tmp_path}/link-to-one.db", virtual_ports())
        await refusal(f"sqlite:{tmp_path}/two.db", virtual_ports())
    assert (tmp_path / "one.db.d").is_dir() and (tmp_path / "two.db.d").is_dir()


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "loop/store", "gone/" + "x" * 300])
async def test_a_name_that_leads_nowhere_is_refused_in_one_line(place: Path, path: str) -> None:
    (place / "loop").symlink_to("loop")
    with pytest.raises((BadValue, OperatorError)) as caught:
        async with runtime(f"sqlite:{path}", virtual_ports()):
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("which", ["linked", "store/hubbub.db"])
async def test_a_database_with_two_names_of_its_own_is_refused(place: Path, which: str) -> None:
    """SQLite finds its log by the name, so each name would show another half of the truth."""
    async with runtime(f"sqlite:{STORE}", virtual_ports()):
        pass
    (place / "linked").mkdir()
    os.link(place / STORE / "hubbub.db", place / "linked" / "hubbub.db")
    assert "hard link" in await refusal(f"sqlite:{which}", virtual_ports())
    with pytest.raises(OperatorError, match="hard link"), open_reader(f"sqlite:{which}"):
        pass
    with pytest.raises(OperatorError, match="hard link"):
        backup_store(f"sqlite:{which}", place / "copy")


@pytest.mark.parametrize("what", ["agents", "blobs"])
async def test_what_a_former_layout_has_left_beside_the_database_is_not_lost_sight_of(
    place: Path, what: str
) -> None:
    async with runtime(f"sqlite:{STORE}", virtual_ports()):
        pass
    left = place / STORE / "hubbub.db.d" / what
    left.mkdir(parents=True)
    async with runtime(f"sqlite:{STORE}", virtual_ports()):
        pass  # There is nothing in it.
    (left / "ab").mkdir()
    for name in (STORE, f"{STORE}/hubbub.db"):
        words = await refusal(f"sqlite:{name}", virtual_ports())
        assert str(left) in words and f"{STORE}/{what}" in words
        with pytest.raises(OperatorError, match="move"), open_reader(f"sqlite:{name}"):
            pass
    left = left.rename(place / "file-link.db.d")  # Of a link, likewise.
    assert (left / "ab").is_dir()
    (place / "file-link.db.d" / what).mkdir()
    (left / "ab").rename(left / what / "ab")
    assert "move" in await refusal("sqlite:file-link.db", virtual_ports())


# ── processes ────────────────────────────────────────────────────────────────────────────────

PROGRAM = """
import multiprocessing, os, subprocess, sys, threading, time, anyio
from hubbub import Runtime

STORE, HOW, END, BACKEND = sys.argv[1:]

def tell(words):
    os.write(1, f"{words}\\n".encode())

async def attempt():
    async with Runtime(store=STORE):
        pass

def attempted():
    try:
        anyio.run(attempt, backend=BACKEND)
        return "opened"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"

def child():
    # A loop of its own: in this thread the one of the parent goes on.
    found = []
    thread = threading.Thread(target=lambda: found.append(attempted()))
    thread.start()
    thread.join()
    tell(f"child {os.getpid()} {found[0]}")
    time.sleep(600)

def begin(rt):
    if HOW == "fork" and not os.fork():
        child()
    if HOW == "multiprocessing":
        multiprocessing.get_context("fork").Process(target=child).start()
    if HOW == "subprocess":
        started = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=2)
        tell(f"child {started.pid} sleeps")
    if HOW == "short":
        pid = os.fork()
        if not pid:
            rt.hub.journal._lock.release()
            os._exit(0)
        os.waitpid(pid, 0)
        tell(f"child {os.getpid()} is gone")

async def main():
    async with Runtime(store=STORE) as rt:
        begin(rt)
        tell("holds")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        if END == "kill":
            os._exit(9)
    tell("left")
    await anyio.sleep(600)

anyio.run(main, backend=BACKEND)
"""


class Holder:
    """A process that holds a store, with a child."""

    def __init__(self, started: "subprocess.Popen[str]", has_child: bool, end: str) -> None:
        self._started = started
        self._end = end
        told = sorted(self._line() for _ in range(1 + has_child))
        assert told[-1] == "holds"
        self.said_by_child = told[0]

    def _line(self) -> str:
        assert self._started.stdout is not None
        return self._started.stdout.readline().strip()

    def end(self) -> None:
        """Leave the runtime, or be killed; the child stays."""
        assert self._started.stdin is not None
        self._started.stdin.write("\n")
        if self._end == "kill":  # Of its end its child would keep the pipe from telling.
            self._started.wait()
        else:
            assert self._line() == "left"


@contextmanager
def holder(store: str, how: str, end: str, backend: str) -> Iterator[Holder]:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, store, how, end, backend]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as started:
        found = None
        try:
            found = Holder(started, how != "none", end)
            yield found
        finally:
            started.kill()
            if found is not None and how not in ("none", "short"):
                os.kill(int(found.said_by_child.split()[1]), 9)


ENDS = [
    (how, end, backend)
    for backend in ("asyncio", "trio")
    for how in ("fork", "multiprocessing", "subprocess", "short", "none")
    for end in ("kill", "leave")
]


@pytest.mark.parametrize(("how", "end", "backend"), ENDS[:: scale(17, 1)])
def test_a_child_neither_holds_nor_takes_the_lock_of_its_parent(
    place: Path, how: str, end: str, backend: Any
) -> None:
    async def attempts(is_free: bool) -> None:
        for name in names(place)[:: scale(9, 1)]:
            if is_free:
                async with runtime(f"sqlite:{name}", virtual_ports()):
                    pass
            else:
                assert "another runtime" in await refusal(f"sqlite:{name}", virtual_ports())

    with holder(f"sqlite:{STORE}/hubbub.db", how, end, backend) as held:
        if how in ("fork", "multiprocessing"):
            assert "another runtime" in held.said_by_child
        anyio.run(attempts, False, backend=backend)
        held.end()
        anyio.run(attempts, True, backend=backend)


def test_of_many_who_open_it_in_one_moment_one_is_at_work_at_a_time(tmp_path: Path) -> None:
    """Threads of one process: the system's locks must tell them apart, too."""
    count = scale(4, 12)
    together, at_work, met = Barrier(count), [0], list[str]()

    async def attempt() -> None:
        try:
            async with runtime(f"sqlite:{tmp_path}/store", Ports()):
                at_work[0] += 1
                met.append(f"{at_work[0]} at work")
                await anyio.lowlevel.checkpoint()
                at_work[0] -= 1
        except OperatorError as error:
            met.append(f"refused: {error}")

    def work() -> None:
        for _ in range(scale(3, 30)):
            together.wait()
            anyio.run(attempt)

    threads = [Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {x for x in met if not x.startswith("refused")} == {"1 at work"}
    assert all("another runtime" in x for x in met if x.startswith("refused"))


# ── what is taken away ───────────────────────────────────────────────────────────────────────


def _replace(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


DEEDS: dict[str, Callable[[Path], object]] = {
    "folder removed": shutil.rmtree,
    "folder renamed": lambda x: x.rename(x.with_name("elsewhere")),
    "folder replaced": lambda x: shutil.copytree(x.rename(x.with_name("elsewhere")), x),
    "database removed": lambda x: (x / "hubbub.db").unlink(),
    "database renamed": lambda x: (x / "hubbub.db").rename(x / "old.db"),
    "database replaced": lambda x: _replace(x / "hubbub.db"),
    "database overwritten by a rename": lambda x: os.replace(
        shutil.copy(x / "hubbub.db", x / "new"), x / "hubbub.db"
    ),
    "log removed": lambda x: (x / "hubbub.db-wal").unlink(),
    "log replaced": lambda x: _replace(x / "hubbub.db-wal"),
    "log and its index removed": lambda x: [y.unlink() for y in x.glob("hubbub.db-[ws]*")],
    "index removed": lambda x: (x / "hubbub.db-shm").unlink(),
    "lock removed": lambda x: (x / "hubbub.db-lock").unlink(),
    "database cut": lambda x: os.truncate(x / "hubbub.db", 4096),
    "database emptied": lambda x: (x / "hubbub.db").write_bytes(b""),
    "end of the log cut off": lambda x: os.truncate(x / "hubbub.db-wal", 0),
    "everything but agents removed": lambda x: [y.unlink() for y in x.glob("hubbub.db*")],
}
KEPT = ("log", "index", "lock")
"""What begins with these has left the database where it was."""


async def accepted(rt: Runtime, run_id: str, key: str) -> tuple[bool, str]:
    receipt = await rt.hub.send_to_run(run_id, Message(key, key=key))
    return receipt.accepted, receipt.reason


@asynccontextmanager
async def busy(store: SqliteStore, ports: Ports) -> AsyncIterator[tuple[Runtime, str]]:
    """A runtime whose run has been told three things and has answered the last."""
    async with runtime(store, ports) as rt:
        run = await rt.start("assistant")
        for number in range(3):
            assert (await accepted(rt, run.run_id, f"m{number}"))[0]
            await run.result()
        await store.projected()
        yield rt, run.run_id


@pytest.mark.parametrize("deed", DEEDS)
async def test_nothing_is_acknowledged_from_the_moment_on_in_which_files_are_taken_away(
    tmp_path: Path, ports: Ports, deed: str
) -> None:
    folder = tmp_path / STORE
    store = sqlite_store(folder, ports=ports)
    with anyio.fail_after(1000):
        async with busy(store, ports) as (rt, run_id):
            DEEDS[deed](folder)
            is_accepted, reason = await accepted(rt, run_id, "late")
            assert not is_accepted
            assert str(folder) in reason and "removed or replaced" in reason and "\n" not in reason
            assert await accepted(rt, run_id, "later") == (False, reason)
            killed = tmp_path / "killed"
            if deed.startswith(KEPT):
                shutil.copytree(folder, killed)
    if deed.startswith(KEPT):
        # What was acknowledged is there, even if the process was killed after it had noticed.
        for left in (folder, killed):
            async with runtime(f"sqlite:{left}", ports) as rt:
                read = await rt.hub.read(run_id)
                keys = [x.key for x in read if isinstance(x, e.SessionMessage) and x.lane == "in"]
                assert [key for key in keys if key] == ["m0", "m1", "m2"]


async def test_a_file_that_is_taken_away_while_a_batch_is_written_is_noticed_before_the_receipt(
    tmp_path: Path, ports: Ports
) -> None:
    store = sqlite_store(tmp_path / STORE, ports=ports, mirror=False)
    async with busy(store, ports) as (rt, run_id):
        apply = store._writer.apply

        def removed_meanwhile(batch: object) -> object:
            (tmp_path / STORE / "hubbub.db").unlink()
            return apply(batch)  # type: ignore[arg-type]

        store._writer.apply = removed_meanwhile  # type: ignore[assignment, method-assign]
        is_accepted, reason = await accepted(rt, run_id, "late")
        assert not is_accepted and "removed or replaced" in reason


class Idle(InlineWorker):
    """A worker that is idle when a test says so."""

    def __init__(self) -> None:
        self.looks: list[tuple[Callable[[], None], float]] = []

    def when_idle(self, fn: Callable[[], None], seconds: float) -> None:
        self.looks.append((fn, seconds))


@pytest.mark.parametrize("deed", list(DEEDS)[:: scale(3, 1)])
async def test_files_that_are_taken_away_while_nothing_is_written_are_noticed_within_seconds(
    tmp_path: Path, ports: Ports, deed: str, caplog: pytest.LogCaptureFixture
) -> None:
    workers: list[Idle] = []
    ports.make_worker = lambda: workers.append(Idle()) or workers[-1]  # type: ignore[func-returns-value]
    store = sqlite_store(tmp_path / STORE, ports=ports)
    async with busy(store, ports) as (rt, run_id):
        ((look, seconds),) = [look for worker in workers for look in worker.looks]
        assert seconds <= 5
        look()
        assert not store.failure
        DEEDS[deed](tmp_path / STORE)
        look()
        look()
        assert "removed or replaced" in store.failure
        assert await accepted(rt, run_id, "late") == (False, store.failure)
        with pytest.raises(HubbubError, match="removed or replaced"):
            await rt.run("assistant", "hello")
    assert sum("store.failed" in record.getMessage() for record in caplog.records) == 1


def test_a_thread_of_a_store_looks_whenever_it_has_been_idle_for_so_long() -> None:
    worker, looked = ThreadWorker(), Event()
    worker.when_idle(looked.set, 0.01)
    try:
        assert looked.wait(60)
    finally:
        worker.close()


async def test_an_import_into_a_database_that_is_taken_away_meanwhile_is_refused(
    tmp_path: Path, ports: Ports
) -> None:
    async with busy(sqlite_store(tmp_path / "source", ports=ports), ports) as (_, run_id):
        with open_reader(f"sqlite:{tmp_path}/source") as opened:
            lines = list(export_run(opened, run_id))

    def removing() -> Iterator[bytes]:
        yield from lines[:-1]
        (tmp_path / STORE / "hubbub.db").rename(tmp_path / "elsewhere")
        yield lines[-1]

    with pytest.raises(OperatorError, match="removed or replaced"):
        import_runs(f"sqlite:{tmp_path}/{STORE}", "x", removing(), ports=ports)


async def test_a_link_in_the_place_of_the_lock_leads_to_no_other_file(
    tmp_path: Path, ports: Ports
) -> None:
    """In a folder that others can write into it would else be any file of ours."""
    (tmp_path / STORE).mkdir()
    (tmp_path / "diary").write_text("Dear diary, ")
    (tmp_path / STORE / "hubbub.db-lock").symlink_to(tmp_path / "diary")
    assert "hubbub.db-lock" in await refusal(f"sqlite:{tmp_path}/{STORE}", ports)
    assert (tmp_path / "diary").read_text() == "Dear diary, "


# ── the database is SQLite's ─────────────────────────────────────────────────────────────────

OPENED = """
import os, sys
from pathlib import Path

opened = []

def watch(event, args):
    if event == "open" and isinstance(args[0], str | bytes):
        is_new = args[2] & os.O_CREAT and args[2] & os.O_EXCL
        if os.path.realpath(os.fsdecode(args[0])).endswith((".db", ".db-shm")) and not is_new:
            opened.append(os.fsdecode(args[0]))

sys.addaudithook(watch)
sys.path.insert(0, sys.argv[2])
import anyio
from support import stores as little_stores
import trio.testing
from hubbub.hub.store.journal import Commit
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.demo.survey import Demo
from hubbub.runtime.demo.store import begin_demo
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.simulation.injection.power_loss import TornStore
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.stores.open import open_reader

place = Path(sys.argv[1])
store = f"sqlite:{place}/store"
ports = virtual_ports()

async def main():
    filled = await little_stores.fill(place / "store", ports, mirror=True)
    async with little_stores.open_runtime(place / "store", ports, mirror=True):
        (place / "store" / "hubbub.db-failed").touch()
        assert list(StoreCheck(store).problems()) == []
        backup_store(store, place / "copy")
        with open_reader(store) as opened:
            lines = list(export_run(opened, filled.done))
        import_runs(f"sqlite:{place}/two", "x", lines, ports=ports)
        torn = TornStore(place / "torn.db", ports=ports)
        await torn.open()
        commit = Commit(notes={"a": "b"})
        torn.lose_power(commit, 3, told.append)
        torn.submit(commit)
        await torn.aclose()
        assert told
    async with little_stores.open_runtime(place / "store", ports, mirror=True):
        pass
    begin_demo(Demo(folder=place), own=False, ports=ports, folder=place / "demo")

told = []
clock = trio.testing.MockClock(autojump_threshold=0)
anyio.run(main, backend="trio", backend_options={"clock": clock})
print(opened)
"""


def test_nothing_but_sqlite_opens_a_database(tmp_path: Path) -> None:
    """On closing it again a process would lose every lock that SQLite has on it."""
    command = [sys.executable, "-W", "ignore", "-c", OPENED, str(tmp_path)]
    tests = str(Path(__file__).parents[1])
    done = subprocess.run([*command, tests], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr[-2000:]
