"""``hubbub worker``, as its users meet it: mostly in processes of its own."""

import logging
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.postgres import SECRETS_KEY
from support.worker_process import WorkerProcess

from hubbub.__main__ import main
from hubbub.hub.logs import log
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import CommandScreen
from hubbub.runtime.cli.processes.worker_log import WorkerLog

MODULE = """
from hubbub import Agent, FunctionModel

model = FunctionModel(lambda request: "echo: " + request.messages[-1].content)
ann = Agent("ann", "You help.", model=model)
bob = Agent("bob", "You help.", model=model)
"""

OWN = """
import anyio
from my_agents import ann
from hubbub import Agent, FunctionModel, Runtime, tool
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.schedules.schedules import Heartbeat

@tool
async def wait() -> str:
    open("begun", "w").close()
    await anyio.sleep(3600)
    return "done"

slow = Agent("slow", "You wait.", tools=[wait],
             model=FunctionModel(lambda request: reply("", call("wait"))))
desk = Runtime([ann], store="sqlite:desk")
busy = Runtime([slow], store="sqlite:busy", grace=3600, schedules=[Heartbeat(slow, ["go"], 1)])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder with two modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_DEBUG", raising=False)
    (tmp_path / "my_agents.py").write_text(MODULE)
    (tmp_path / "my_desk.py").write_text(OWN)
    before = dict(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - set(before[0]):
        if name.startswith("my_"):
            del sys.modules[name]
    sys.path[:] = before[1]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_worker_of_a_folder_says_that_it_is_alone_and_leaves_in_order(
    here: Path, backend: str
) -> None:
    with WorkerProcess(here, "my_agents:ann", "--name", "one", "--backend", backend) as worker:
        said = worker.wait_for("this store is one process's")
        assert "worker one is at work on sqlite:.hubbub: ann, bob" in said
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.said.endswith("Z left\n") and worker.stderr == ""


def test_machines_get_lines_of_json(here: Path) -> None:
    with WorkerProcess(here, "my_desk:desk", "--json") as worker:
        worker.wait_for("worker.alone")
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
        lines = [msgspec.json.decode(line) for line in worker.said.splitlines()]
    names = [line["event"] for line in lines]
    assert names == [
        "store.opened", "worker.joined", "worker.alone", "worker.leaving", "worker.left",
    ]  # fmt: skip
    assert all({"time", "level"} <= set(line) for line in lines)
    assert lines[1]["agents"] == ["ann"] and lines[1]["worker"] == "my_desk:desk"


def test_a_second_signal_leaves_at_once(here: Path) -> None:
    """A run at work has an hour; the second signal does not wait for it."""
    with WorkerProcess(here, "my_desk:busy") as worker:
        worker.wait_for("is at work")
        deadline = time.monotonic() + 20
        while not (here / "begun").exists():
            assert time.monotonic() < deadline, worker.stderr
            signal.sigtimedwait([], 0.02)
        worker.signal(signal.SIGTERM)
        worker.wait_for("leaving")
        assert worker.process.poll() is None
        worker.signal(signal.SIGTERM)
        assert worker.wait(10) == 130


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["my_agents", "--store", "memory"], "nobody could send a worker anything in memory"),
        (["my_agents", "--store", "mysql://x"], 'expected "sqlite:PATH", "postgresql://…"'),
        (["my_agents", "--store", "postgresql://u@127.0.0.1:1/x"], "127.0.0.1:1"),
        (["my_agents", "--store", "postgresql://u:p@w@h/x"], "with %40 for an @"),
        (["my_agents", "--capacity", "0"], "--capacity 0: expected a number of at least 1"),
        (["my_agents", "--capacity", "1000000001"], "expected a number of at most 1000000000"),
        (["my_agents", "--grace", "-1"], "grace"),
        (["my_agents", "--store", "sqlite:postgresql://u:p@h/x"], 'expected "sqlite:PATH"'),
        (["my_desk:desk", "--capacity", "5"], "has settings of its own; leave --capacity out"),
        (["my_desk:desk", "--store", "memory"], "has a store of its own; leave --store out"),
        (["my_agents", "--retention-ended", "soon"], "--retention-ended soon: expected how long"),
        (["my_agents", "--retention-silent", "0s"], "--retention-silent 0s: expected how long"),
        (["my_agents", "--retention-keep-last", "0"], "--retention-keep-last 0: expected a number"),
        (["my_agents", "--retention-keep-turns", "0"], "--retention-keep-turns 0: expected a"),
        (["my_agents", "--retention-max-bytes", "0"], "--retention-max-bytes 0: expected how much"),
        (["my_desk:desk", "--retention-ended", "1d"], "settings of its own; leave --retention-"),
        (["my_nowhere"], "there is no module"),
    ],
)
def test_what_cannot_work_is_one_line_and_nothing_is_opened(
    here: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and problem in shown.err and shown.err.count("\n") == 1
    assert not (here / ".hubbub").exists()


def _lines(*, as_json: bool) -> tuple[list[str], list[str], WorkerLog]:
    out: list[str] = []
    err: list[str] = []

    def nothing(*given: Any) -> Any:
        return False

    screen = CommandScreen(out.append, err.append, nothing, nothing, nothing)
    return out, err, WorkerLog(screen, Ports().clock, as_json=as_json)


def test_people_read_of_trees_and_of_the_way_to_the_store() -> None:
    out, err, worker_log = _lines(as_json=False)
    with worker_log.listening():
        log.info("trees.claimed", count=1)
        log.info("trees.handed_over", count=12_000)
        log.warning("trees.lost", count=3)
        log.warning("store.waits", problem="the server is gone\x1b[2J", patience=60.0)
        log.info("store.back", place="there", waited=12.5)
        log.info("retention.passed", trees=2, runs=3, events=1_200, silent=0, problems=0)
        log.info("schedule.fired", schedule="x")
        log.warning("run.suspected", run_id="r-1")
    words = [line.partition(" ")[2] for line in out]
    assert words == [
        "claimed 1 tree", "handed over 12,000 trees",
        "lost 3 trees: the lease was over, so others may drive them",
        "waiting for the store, for up to 60 s: the server is gone\\x1b[2J",
        "the store is back after 12.5 s",
        "removed so far: 2 trees, 1,200 events; ended for silence: 0",
    ]  # fmt: skip
    assert err == ["run.suspected run_id='r-1'"]


def test_machines_read_everything_with_its_fields_and_what_was_raised() -> None:
    out, err, worker_log = _lines(as_json=True)
    with worker_log.listening():
        log.info("schedule.fired", schedule="x", what=object)
        try:
            raise ValueError("odd")
        except ValueError as error:
            log.error("run.died", run_id="r-1", exc_info=error)
    fired, died = map(msgspec.json.decode, out)
    assert (fired["event"], fired["level"], fired["schedule"]) == ("schedule.fired", "info", "x")
    assert died["level"] == "error" and "ValueError: odd" in died["exception"]
    assert err == []
    assert WorkerLog not in map(type, logging.getLogger("hubbub").handlers)


STARTING = b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"


def _starts_for_ever(server: socket.socket) -> None:
    """Answer as a PostgreSQL server that is starting."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                while (said := connection.recv(4096))[4:8] == b"\x04\xd2\x16\x2f":
                    connection.sendall(b"N")  # It speaks no TLS.
                if said:
                    connection.sendall(b"E" + struct.pack("!i", len(STARTING) + 4) + STARTING)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_worker_that_is_told_to_leave_before_it_has_joined_has_failed(
    here: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_starts_for_ever, args=(server,), daemon=True).start()
        place = f"postgresql://u@127.0.0.1:{server.getsockname()[1]}/d"
        with WorkerProcess(here, "my_agents", "--store", place, "--backend", backend) as worker:
            worker.wait_for("waiting for the store")
            worker.signal(signal.SIGTERM)
            assert worker.wait(30) == 1
            assert worker.stderr == (
                f"hubbub: {place}: told to leave before it had joined; nothing was done\n"
            )
        server.shutdown(socket.SHUT_RDWR)
