"""Pieces of an answer that a worker drives are heard in a channel process, by a real server."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
import pytest
from support.agents import model_agent
from support.asgi_clients import event_source
from support.postgres import Server

from hubbub import AgentDefinition, Event, Hub, Runtime
from hubbub.channels.http import HttpApp
from hubbub.hub.events import AgentText, AgentTextDelta
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TEXT = "".join(f"wörd{number} " for number in range(60))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    name: str = request.param
    return name


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.005)


def speaker(seconds: float = 1.5) -> list[AgentDefinition]:
    return [model_agent(FunctionModel(lambda request: TEXT, latency=seconds), name="speaker")]


def pieces(events: Sequence[Event]) -> list[AgentTextDelta]:
    return [x for x in events if isinstance(x, AgentTextDelta)]


def is_said(events: Sequence[Event]) -> Callable[[], bool]:
    return lambda: any(isinstance(x, AgentText) for x in events)


async def test_pieces_of_an_answer_are_heard_in_another_process(server: Server) -> None:
    address, heard = server.dsn(), list[Event]()
    async with (
        Runtime(speaker(), store=PostgresStore(address)),
        Hub(journal=PostgresStore(address, is_worker=False)) as there,
    ):
        there.subscribe("*", heard.append)
        receipt = await there.open("speaker", "go")
        await until(is_said(heard))
    got = pieces(heard)
    assert len(got) > 10
    assert {x.run_id for x in got} == {receipt.run_id}
    assert TEXT[got[0].offset :].startswith("".join(x.text for x in got))
    own = [x.seq for x in heard if x.run_id == receipt.run_id and x.lane == "own"]
    for piece in got:
        before = heard[: heard.index(piece)]
        assert [x.seq for x in before if x.lane == "own"] == own[: own.index(piece.after_seq) + 1]


async def test_run_that_is_being_answered_goes_on_elsewhere_and_its_pieces_with_it(
    server: Server,
) -> None:
    address, heard = server.dsn(), list[Event]()
    async with Hub(journal=PostgresStore(address, is_worker=False)) as there:
        there.subscribe("agent:*", heard.append)
        async with Runtime(speaker(30), store=PostgresStore(address), grace=0):
            await there.open("speaker", "go")
            await until(lambda: len(pieces(heard)) > 3)
        async with Runtime(speaker(), store=PostgresStore(address)):
            await until(is_said(heard))
    again = next(at for at, x in enumerate(heard) if x.type == "agent:restore")
    got = pieces(heard[again:])
    assert len(got) > 10
    assert TEXT[got[0].offset :].startswith("".join(x.text for x in got))


async def test_page_of_a_channel_process_shows_the_tokens(server: Server) -> None:
    address = server.dsn()
    async with (
        Runtime(speaker(), store=PostgresStore(address)),
        Hub(journal=PostgresStore(address, is_worker=False)) as there,
        HttpApp(there) as app,
    ):
        receipt = await there.open("speaker", "go")
        path = f"/api/runs/{receipt.run_id}/events"
        async with event_source(app, path, after="start") as source:
            await until(lambda: "agent:step" in source.types)
    got = [x.json for x in source.frames if x.type == "agent:text:delta"]
    assert len(got) > 10
    first = got[0].get("offset", 0)
    assert TEXT[first:].startswith("".join(x["text"] for x in got))


async def test_lost_connections_cost_pieces_and_nothing_else(server: Server) -> None:
    address, heard = server.dsn(), list[Event]()
    async with (
        Runtime(speaker(3), store=PostgresStore(address)),
        Hub(journal=PostgresStore(address, is_worker=False)) as there,
    ):
        there.subscribe("agent:*", heard.append)
        await there.open("speaker", "go")
        await until(lambda: len(pieces(heard)) > 3)
        server.end_connections("hubbub:%:bus")
        await until(is_said(heard))
        (text,) = [x for x in heard if isinstance(x, AgentText)]
    assert text.text == TEXT
    ends = 0
    for piece in pieces(heard):
        assert piece.offset >= ends
        assert piece.text == TEXT[piece.offset : piece.offset + len(piece.text)]
        ends = piece.offset + len(piece.text)
    assert len(pieces(heard)) > 10


WORKER = """
import sys, anyio
from hubbub import Agent, FunctionModel, Runtime
from hubbub.runtime.stores.postgres.store import PostgresStore
text = "".join(f"wörd{number} " for number in range(60))
speaker = Agent("speaker", "Speak.", model=FunctionModel(lambda request: text, latency=1.5))
async def main():
    async with Runtime([speaker], store=PostgresStore(sys.argv[1])):
        await anyio.sleep_forever()
anyio.run(main, backend=sys.argv[2])
"""


@contextmanager
def worker_process(address: str, loop: str) -> Iterator[None]:
    """A process that runs the speaker, until this is left."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, address, loop])
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


async def test_process_on_the_other_loop_is_heard(server: Server, anyio_backend: str) -> None:
    address, heard = server.dsn(), list[Event]()
    other = {"asyncio": "trio", "trio": "asyncio"}[anyio_backend]
    with worker_process(address, other):
        async with Hub(journal=PostgresStore(address, is_worker=False)) as there:
            there.subscribe("*", heard.append)
            await there.open("speaker", "go")
            await until(is_said(heard))
    got = pieces(heard)
    assert len(got) > 10
    assert TEXT[got[0].offset :].startswith("".join(x.text for x in got))
