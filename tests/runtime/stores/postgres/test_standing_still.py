"""Who stands still, or hears nothing any more, keeps nobody from work for longer than a lease."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from threading import Event
from time import monotonic
from typing import Any

import anyio
import pytest
from support.postgres import Server
from support.postgres_faults import Moment, faulty_connection
from support.postgres_proxy import Proxy, running_proxy

from hubbub import Runtime
from hubbub.hub.conformance import A_RUN, commit_of, open_run
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TTL = 1.5


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Leases are of the server's time."""
    return str(request.param)


def said(number: int) -> Commit:
    return Commit(events=(CustomEvent.of("test:said", n=number),))


class Still:
    """Has the writing thread of a store stand still in the middle of its next group."""

    def __init__(self) -> None:
        self.wanted = ""
        self.stands, self.goes_on = Event(), Event()

    def happen(self, moment: Moment, db: PostgresConnection) -> None:
        if self.wanted and moment == "between":
            self.wanted = ""
            self.stands.set()
            assert self.goes_on.wait(60)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[Still]:
    still = Still()
    patched = faulty_connection(still.happen)
    monkeypatch.setattr(store_module, "PostgresConnection", patched)
    yield still
    still.goes_on.set()


@pytest.mark.parametrize("lease", ["its own", "over"])
async def test_who_stands_still_in_a_group_keeps_others_from_theirs_for_a_lease_at_most(
    server: Server, still: Still, lease: str
) -> None:
    """Also where others have found its lease to be over before, and look after it no more."""
    address = server.dsn()
    one, other = PostgresStore(address, ttl=TTL), PostgresStore(address, ttl=TTL)
    await one.open()
    await other.open()
    try:
        await open_run(one, A_RUN)
        if lease == "over":
            schema = address.partition("schema=")[2]
            server.query(f"UPDATE {schema}.worker SET live = false WHERE id = {one._lease.worker}")
        still.wanted = "now"
        one.submit(said(1))
        with anyio.fail_after(10):
            while not still.stands.is_set():  # noqa: ASYNC110
                await anyio.sleep(0.01)
            began = monotonic()
            assert not (await commit_of(other, said(2))).error
        assert monotonic() - began < TTL + 3
        still.goes_on.set()
        await one.flush()
        assert not one.failure
    finally:
        still.goes_on.set()
        await other.aclose()
        await one.aclose()


STOPPED = """
import sys, anyio
from hubbub import AgentDefinition, Runtime
from hubbub.runtime.stores.postgres.store import PostgresStore

async def echo(text, ctx):
    return text

async def main():
    _, address, ttl, role = sys.argv
    store = PostgresStore(address, ttl=float(ttl), is_worker=role == "worker")
    agents = [AgentDefinition(name="echo", execute=echo)] if role == "worker" else []
    async with Runtime(agents, store=store, role=role):
        print("open", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def begun(command: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def test_all_connections_of_a_process_that_was_stopped_are_ended_with_its_lease(
    server: Server,
) -> None:
    """Of a channel, too, which owns nothing: what it listens to would stay in the server."""
    address = server.dsn()
    schema = address.partition("schema=")[2]

    def connections() -> set[object]:
        found = server.query(
            f"SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hubbub:{schema}:%'"
        )
        return {pid for (pid,) in found}

    command = [sys.executable, "-c", STOPPED, address, str(TTL)]
    processes = [begun([*command, role]) for role in ("worker", "channel")]
    store = PostgresStore(address, ttl=TTL)
    try:
        for process in processes:
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == b"open\n"
        with anyio.fail_after(20):  # The bus connects behind the rest.
            while len(theirs := connections()) < 8:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        await store.open()
        with anyio.fail_after(TTL + 5):
            while theirs & connections():  # noqa: ASYNC110
                await anyio.sleep(0.05)
        for process in processes:
            process.send_signal(signal.SIGCONT)
        with anyio.fail_after(20):  # They come back.
            while len(connections()) < 8:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert [process.poll() for process in processes] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        await store.aclose()


async def test_who_leaves_waits_for_nothing_but_its_own_commits(server: Server) -> None:
    """Not for a server that is away, to ask how far others have come."""
    store = PostgresStore(server.dsn(), is_worker=False, patience=30)
    try:
        async with Runtime(store=store, role="channel") as rt:
            rt.hub.emit(CustomEvent.of("test:said", n=1))
            await rt.hub.journal.flush()
            server.stop()
            began = monotonic()
        assert monotonic() - began < 10
    finally:
        server.restart()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with running_proxy(server.port) as proxy:
        yield proxy


async def test_a_handshake_that_nobody_answers_is_tried_again_soon(
    server: Server, proxy: Proxy
) -> None:
    """It was cut off in the middle: its end of the connection stays open, and hears nothing."""
    store = PostgresStore(server.dsn_at(proxy.port))
    await store.open()
    try:
        await open_run(store, A_RUN)
        proxy.hold(4)  # Of the writer, the reader, the tail and one of them again.
        proxy.cut()
        began = monotonic()
        with anyio.fail_after(30):
            assert not (await commit_of(store, said(1))).error
            loaded: Any = await store.load(A_RUN)
        assert loaded.info.run_id == A_RUN
        assert proxy.held >= 3 and monotonic() - began < 8
    finally:
        await store.aclose()
