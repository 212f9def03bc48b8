"""A worker that is told to leave while its server is away: what it has not written may still be
written, for as long as its store has patience.  Real processes."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.postgres import Server
from support.worker_process import WorkerProcess

from hubbub.runtime.stores.open import open_reader

pytestmark = [pytest.mark.long, pytest.mark.spec("X-05")]

PATIENCE = 5.0

MODULE = f"""
import os, time
import anyio
from hubbub import Agent, FunctionModel, Heartbeat, Runtime, tool
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.postgres.store import PostgresStore

@tool
async def wait() -> str:
    open("begun", "w").close()
    while not os.path.exists("go"):
        await anyio.sleep(0.02)
    return "done"

def answer(request):
    last = request.messages[-1]
    return reply("over") if getattr(last, "calls", ()) else reply("", call("wait"))

ann = Agent("ann", "You wait.", tools=[wait], model=FunctionModel(answer))
store = PostgresStore(os.environ["STORE"], patience={PATIENCE}, name="one")
runtime = Runtime([ann], store=store, schedules=[Heartbeat(ann, ["go"], 1)], grace=1)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "my_agents.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
def at_work(here: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a store, whose server is there again in the end."""
    address = server.dsn()
    monkeypatch.setenv("STORE", address)
    yield address
    server.restart()


def _cut_off(here: Path, server: Server, worker: WorkerProcess) -> None:
    """Have the server go while a tool is at work, whose result cannot be written then."""
    worker.wait_for("is at work")
    deadline = time.monotonic() + 30
    while not (here / "begun").exists():
        assert time.monotonic() < deadline, worker.stderr
        signal.sigtimedwait([], 0.02)
    server.stop()
    (here / "go").touch()
    worker.wait_for("waiting for the store")
    worker.signal(signal.SIGTERM)
    worker.wait_for("leaving")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.usefixtures("at_work")
def test_who_leaves_waits_no_longer_than_its_patience_and_says_what_is_not_written(
    here: Path, server: Server, backend: str
) -> None:
    with WorkerProcess(here, "my_agents:runtime", "--backend", backend) as worker:
        _cut_off(here, server, worker)
        began = time.monotonic()
        assert worker.wait(60) == 1
        assert time.monotonic() - began < PATIENCE + 3
        last = [line for line in worker.stderr.splitlines() if "on record" in line]
        assert len(last) == 1 and "what was not written by then is lost" in last[0]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.usefixtures("at_work")
def test_a_second_signal_ends_the_wait_at_once(here: Path, server: Server, backend: str) -> None:
    with WorkerProcess(here, "my_agents:runtime", "--backend", backend) as worker:
        _cut_off(here, server, worker)
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 130
        assert time.monotonic() - began < 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_server_that_comes_back_meanwhile_gets_what_was_not_written(
    here: Path, server: Server, at_work: str, backend: str
) -> None:
    with WorkerProcess(here, "my_agents:runtime", "--backend", backend) as worker:
        _cut_off(here, server, worker)
        server.start()
        assert worker.wait(60) == 0
        assert "the store is back after" in worker.said
    with open_reader(at_work) as reader:
        (run_id,) = reader.find("", "every")
        ends = [x.type for x in reader.lanes(run_id, 100)]
        assert ends.count("agent:tool:complete") == 1 and "agent:restore" not in ends
