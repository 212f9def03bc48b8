"""Pieces of answers by LISTEN and NOTIFY: what one process says, others hear; nothing waits for it,
and nothing but pieces is lost with a connection."""

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from support.postgres import Server
from support.postgres_proxy import running_proxy

from hubbub.hub.bus.bus import MAX_FRAME, Topic
from hubbub.hub.ports import SystemClock, ThreadWorker
from hubbub.hub.task_host import TaskHost
from hubbub.runtime.stores.postgres import bus as bus_module
from hubbub.runtime.stores.postgres.bus import MAX_WAITING, PostgresBus
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    name: str = request.param
    return name


class LeapingClock(SystemClock):
    leap = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.leap


class Member:
    """A process on the bus, and what it has heard."""

    def __init__(self, address: str) -> None:
        self.bus = PostgresBus(PostgresAddress(address), ThreadWorker, SystemClock())
        self.heard: list[tuple[Topic, bytes]] = []

    def hear(self, topic: Topic, frame: bytes) -> None:
        self.heard.append((topic, frame))

    @property
    def is_connected(self) -> bool:
        return self.bus._db is not None and self.bus._asked_at is None


@asynccontextmanager
async def member(address: str, *, listens: bool = True) -> AsyncIterator[Member]:
    made, tasks = Member(address), TaskHost()
    await tasks.open()
    made.bus.open(made.hear, tasks)
    made.bus.listen(listens)
    try:
        await until(lambda: made.is_connected and made.bus._is_listening is listens)
        yield made
    finally:
        made.bus.close()
        await tasks.aclose()


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.005)


@pytest.fixture
async def address(server: Server) -> str:
    """Of a store that exists."""
    dsn = server.dsn()
    store = PostgresStore(dsn)
    await store.open()
    await store.aclose()
    return dsn


async def test_what_one_says_all_others_hear_in_order(address: str) -> None:
    async with member(address) as one, member(address) as two, member(address) as three:
        frames = [b'"%d %s"' % (number, b"\xc3\xb6" * 1000) for number in range(50)]
        for frame in frames:
            one.bus.publish("deltas", frame)
        await until(lambda: len(two.heard) >= len(frames) <= len(three.heard))
        assert two.heard == three.heard == [("deltas", frame) for frame in frames]
        assert one.heard == []


async def test_frame_of_the_largest_size_is_carried(address: str) -> None:
    frame = b'"' + b"x" * (MAX_FRAME - 2) + b'"'
    async with member(address) as one, member(address) as two:
        one.bus.publish("wants", frame)
        await until(lambda: bool(two.heard))
        assert two.heard == [("wants", frame)]


async def test_pieces_are_heard_only_by_those_that_listen(address: str) -> None:
    async with member(address) as one, member(address, listens=False) as two:
        one.bus.publish("deltas", b"1")
        one.bus.publish("wants", b"2")
        await until(lambda: bool(two.heard))
        assert two.heard == [("wants", b"2")]
        two.bus.listen(True)
        await until(lambda: two.is_connected and two.bus._is_listening)
        one.bus.publish("deltas", b"3")
        await until(lambda: len(two.heard) > 1)
        two.bus.listen(False)
        await until(lambda: two.is_connected and not two.bus._is_listening)
        one.bus.publish("deltas", b"4")
        one.bus.publish("wants", b"5")
        await until(lambda: len(two.heard) > 2)
        assert two.heard[1:] == [("deltas", b"3"), ("wants", b"5")]


async def test_too_much_at_once_is_dropped_and_nothing_waits(address: str) -> None:
    async with member(address) as one, member(address) as two:
        for number in range(10 * MAX_WAITING):
            one.bus.publish("deltas", b"%d" % number)
        assert len(one.bus._waiting) <= MAX_WAITING
        await until(lambda: len(two.heard) >= MAX_WAITING)
        numbers = [int(frame) for _, frame in two.heard]
        assert numbers == sorted(set(numbers))


async def test_stores_of_one_database_do_not_hear_each_other(server: Server, address: str) -> None:
    other = server.dsn()
    store = PostgresStore(other)
    await store.open()
    await store.aclose()
    async with member(address) as one, member(other) as two, member(address) as three:
        one.bus.publish("deltas", b"1")
        await until(lambda: bool(three.heard))
        assert not two.heard


async def test_channels_cannot_be_guessed_by_who_cannot_read_the_store(address: str) -> None:
    async with member(address) as one, member(address) as two:
        assert one.bus._channels == two.bus._channels
        schema = PostgresAddress(address).schema
        (digest,) = {name.removeprefix(schema)[2:] for name in one.bus._channels.values()}
        assert len(digest) == 10
        assert digest != hashlib.sha256(schema.encode()).hexdigest()[:10]


async def test_longest_name_of_a_schema_makes_names_of_channels(server: Server) -> None:
    dsn = server.dsn("s" * 51)
    store = PostgresStore(dsn)
    await store.open()
    await store.aclose()
    async with member(dsn) as one, member(dsn) as two:
        one.bus.publish("deltas", b"1")
        await until(lambda: bool(two.heard))


@pytest.mark.parametrize("loss", ["ended", "restarted", "cut"])
async def test_lost_connection_comes_back_by_itself(
    loss: str, server: Server, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = PostgresAddress(address).schema
    with running_proxy(server.port) as proxy:
        through = server.dsn_at(proxy.port, schema=schema)
        async with member(through) as one, member(through) as two:
            one.bus.publish("wants", b"said before")
            await until(lambda: bool(two.heard))
            match loss:
                case "ended":
                    server.end_connections(f"hubbub:{schema}:bus%")
                case "restarted":
                    server.restart()
                case "cut":
                    proxy.cut()
            await until(lambda: not one.is_connected and not two.is_connected)
            one.bus.publish("deltas", b"lost")
            await until(lambda: one.is_connected and two.bus._is_listening and two.is_connected)
            one.bus.publish("deltas", b"heard")
            await until(lambda: ("deltas", b"heard") in two.heard)
            assert ("deltas", b"lost") not in two.heard
            assert "bus.lost" in caplog.text


async def test_wants_are_said_again_by_a_new_connection(server: Server, address: str) -> None:
    schema = PostgresAddress(address).schema
    async with member(address) as one:
        one.bus.publish("wants", b"said")
        await until(lambda: one.is_connected)
        async with member(address) as two:
            await anyio.sleep(0.05)
            assert not two.heard
            (pid,) = (one.bus._db.info.backend_pid,) if one.bus._db else (0,)
            server.query(f"SELECT pg_terminate_backend({pid})")
            await until(lambda: two.heard == [("wants", b"said")])
        count = (
            "SELECT count(*) FROM pg_stat_activity "
            f"WHERE application_name LIKE 'hubbub:{schema}:bus%'"
        )
        await until(lambda: server.query(count) == [(1,)])  # The server sees in time who has left.


async def test_server_that_says_nothing_is_taken_to_be_lost(
    server: Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "SILENCE", 0.2)
    schema = PostgresAddress(address).schema
    with running_proxy(server.port) as proxy:
        async with member(server.dsn_at(proxy.port, schema=schema)) as one, member(address) as two:
            proxy.silence()
            one.bus.publish("deltas", b"1")
            await anyio.sleep(0.3)
            one.bus.publish("deltas", b"2")
            await until(lambda: one.is_connected)
            one.bus.publish("deltas", b"3")
            await until(lambda: ("deltas", b"3") in two.heard)


@pytest.mark.parametrize("how", ["stood still", "virtual"])
async def test_an_answer_that_nobody_had_time_to_hear_is_no_silence(
    server: Server, address: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """A process that was stopped finds much time gone; in virtual time all of it goes at once."""
    schema = PostgresAddress(address).schema
    with running_proxy(server.port) as proxy:
        async with member(server.dsn_at(proxy.port, schema=schema)) as one, member(address) as two:
            clock = LeapingClock()
            one.bus._clock, one.bus._is_virtual = clock, how == "virtual"
            if how == "virtual":
                proxy.delay(0.1)
            one.bus.publish("deltas", b"1")
            if how == "stood still":
                time.sleep(0.3)  # noqa: ASYNC251  # Nobody looks.
            clock.leap += 100.0
            one.bus.publish("deltas", b"2")
            await until(lambda: [frame for _, frame in two.heard] == [b"1", b"2"])
            assert "bus.lost" not in caplog.text


async def test_server_that_is_away_holds_up_nobody_who_leaves(server: Server, address: str) -> None:
    with running_proxy(server.port) as proxy:
        schema = PostgresAddress(address).schema
        with anyio.fail_after(5):
            async with member(server.dsn_at(proxy.port, schema=schema)) as one:
                proxy.refuse()
                await until(lambda: not one.is_connected)
                one.bus.publish("deltas", b"lost")


async def test_pooler_that_loses_listen_costs_pieces_only(address: str) -> None:
    async with member(address) as one, member(address) as two:
        assert two.bus._db is not None
        two.bus._db.pgconn.exec_(b"UNLISTEN *")
        one.bus.publish("deltas", b"1")
        await until(lambda: one.is_connected)
        assert not two.heard
        two.bus.publish("deltas", b"2")
        await until(lambda: bool(one.heard))


async def test_statement_that_is_refused_costs_its_frames_only(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with member(address) as one, member(address) as two:
        one.bus.publish("deltas", b"x" * 8001)  # More than the server takes.
        await until(lambda: one.is_connected)
        assert "bus.refused" in caplog.text
        one.bus.publish("deltas", b"1")
        await until(lambda: bool(two.heard))
        assert two.heard == [("deltas", b"1")]


async def test_store_that_does_not_exist_is_waited_for(server: Server) -> None:
    dsn = server.dsn()
    tasks, made = TaskHost(), Member(dsn)
    await tasks.open()
    made.bus.open(made.hear, tasks)
    try:
        await anyio.sleep(0.3)
        assert not made.is_connected
        store = PostgresStore(dsn)
        await store.open()
        await store.aclose()
        await until(lambda: made.is_connected)
    finally:
        made.bus.close()
        await tasks.aclose()
