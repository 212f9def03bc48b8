"""Faults in the middle of a group of commits: each is written once, and nothing else is said."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from threading import Timer
from typing import Any

import anyio
import psycopg
import pytest
from support.postgres import Server
from support.postgres_faults import INJECTED, MOMENTS, Moment, faulty_connection, inject
from support.postgres_proxy import Proxy, running_proxy
from support.workers import until

from hubbub import Runtime
from hubbub.hub.conformance import (
    A_RUN,
    B_RUN,
    commit_of,
    identity,
    open_run,
    read_all,
    send,
    write,
)
from hubbub.hub.conformance.members import members_of
from hubbub.hub.conformance.steps import stamp
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import AgentStatus, CustomEvent
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

LOOPS = ("asyncio", "trio")

A_MOMENT = 0.2
"""Seconds for which a server is away, or silent before it is taken to be lost."""

LOST = ("ended", "closed", "cut", "half open", "refused", "silent", "frozen", "restarted")
"""What ends a connection, or should."""

FAULTS = (
    *((moment, code) for moment in MOMENTS[:3] for code in INJECTED),
    *((moment, what) for moment in MOMENTS for what in LOST),
    ("commit", "unanswered"),
    ("commit", "ended twice"),
)


class Places:
    """A store, with the journals of its processes."""

    ttl = 6.0

    def __init__(self, address: str) -> None:
        self.address = address

    def journal(self, *, is_worker: bool = True) -> PostgresStore:
        return PostgresStore(self.address, is_worker=is_worker)


class Faults:
    """What happens to the next groups: one fault each, in turn, each at its moment."""

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self.server = server
        self.proxy = proxy
        self.plan: list[tuple[Moment, str]] = []
        self.met: list[str] = []
        self._later: list[Timer] = []

    def happen(self, moment: Moment, db: PostgresConnection) -> None:
        if not self.plan or self.plan[0][0] != moment:
            return
        _, fault = self.plan.pop(0)
        self.met.append(fault)
        if fault in INJECTED or fault == "23505":
            inject(fault)
        self._lose(fault, db)
        if moment == "after":  # It has been answered, and nobody has heard it.
            db.close()
            raise psycopg.OperationalError("injected: the connection is lost")

    def _lose(self, fault: str, db: PostgresConnection) -> None:
        match fault:
            case "ended" | "ended twice":
                self.server.query(f"SELECT pg_terminate_backend({db.pid})")
                self.plan[:0] = [("commit", "ended")] if fault == "ended twice" else []
            case "closed":
                db.close()
                raise psycopg.OperationalError("injected: the connection is lost")
            case "cut":
                self.proxy.cut()
            case "half open":
                self.proxy.half_open()
            case "refused":
                self.proxy.refuse()
                self.soon(self.proxy.heal)
            case "silent":
                self.proxy.silence()
            case "unanswered":
                self.proxy.swallow_after_commit()
            case "frozen":
                self.server.freeze()
                self.soon(partial(self.server.freeze, is_frozen=False))
            case "restarted":
                self.server.restart()

    def soon(self, do: Callable[[], object]) -> None:
        timer = Timer(2 * A_MOMENT, do)
        timer.start()
        self._later.append(timer)

    def end(self) -> None:
        for timer in self._later:
            timer.join()


@pytest.fixture
def faults(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    with running_proxy(server.port) as proxy:
        faults = Faults(server, proxy)
        faulty = faulty_connection(faults.happen, silence=A_MOMENT)
        monkeypatch.setattr(store_module, "PostgresConnection", faulty)
        try:
            yield faults
        finally:
            faults.end()


async def story(journal: Any, between: Callable[[], None]) -> list[Any]:
    """Some of everything, one group of commits after another; what it has come to."""
    said: list[Any] = []
    await open_run(journal, A_RUN)
    await open_run(journal, B_RUN, session_key="chat")
    for number in range(1, 5):
        between()
        first = await write(journal, A_RUN, number - 1, AgentStatus(status=f"{number}"))
        between()
        sent = await send(journal, B_RUN, f"{number}", source="s", key=f"{number}")
        again = await send(journal, B_RUN, f"{number}", source="s", key=f"{number}")
        between()
        stale = await write(journal, A_RUN, number - 1, AgentStatus(status="stale"))
        between()
        noted = await commit_of(
            journal, Commit(events=(CustomEvent.of("test:n", n=number),), notes={"n": str(number)})
        )
        said.append(
            (first.error, sent.outcome, again.outcome, stale.error, noted.error, journal.tip)
        )
    events = [(identity(each), each.type) for each in await read_all(journal)]
    loaded = await journal.load(B_RUN)
    waiting = [item.seq for item in loaded.waiting]
    return [said, events, waiting, await journal.notes(), journal.depths()]


@pytest.mark.parametrize(
    ("moment", "fault", "loop"),
    [(*each, LOOPS[number % 2]) for number, each in enumerate(FAULTS)],
    ids=lambda value: value.replace(" ", "-"),
)
def test_a_fault_at_any_moment_of_a_group_changes_nothing_of_what_comes_of_it(
    faults: Faults, moment: Moment, fault: str, loop: str
) -> None:
    every = 1 if fault in INJECTED or fault in ("ended", "ended twice", "closed", "cut") else 4

    async def main() -> None:
        plain = PostgresStore(faults.server.dsn())
        await plain.open()
        expected = await story(plain, lambda: None)
        await plain.aclose()
        store = PostgresStore(faults.server.dsn_at(faults.proxy.port))
        await store.open()
        try:
            times = count()

            def between() -> None:
                if not next(times) % every:
                    faults.plan.append((moment, fault))

            assert await story(store, between) == expected
            assert not store.failure
        finally:
            await store.aclose()

    anyio.run(main, backend=loop)
    assert len(faults.met) >= 16 // every


@pytest.mark.parametrize("loop", LOOPS)
def test_several_in_one_group_are_written_once_though_one_of_them_cannot_be(
    faults: Faults, loop: str
) -> None:
    """What cannot be kept has each written by itself, and then the connection is lost."""

    async def main() -> None:
        store = PostgresStore(faults.server.dsn())
        await store.open()
        done: list[Commit] = []
        commits = [Commit(events=(CustomEvent.of("test:n", n=n),)) for n in range(6)]
        commits[2].notes = {"half \ud800": "x"}
        faults.plan = [("after", "closed"), ("commit", "ended"), ("commit", "40001")]
        for commit in commits:
            commit.done = done.append
            store.submit(commit)
        await store.flush()
        assert done == commits
        assert [bool(commit.error) for commit in commits] == [n == 2 for n in range(6)]
        seqs = [commit.written[0].seq for commit in commits if not commit.error]
        assert seqs == [1, 2, 3, 4, 5]
        assert [each.seq for each in await read_all(store)] == seqs
        await store.aclose()

    anyio.run(main, backend=loop)
    assert len(faults.met) == 3


@pytest.mark.parametrize("loop", LOOPS)
def test_a_row_that_is_there_already_is_one_commits_trouble_and_no_other_is_refused(
    faults: Faults, loop: str
) -> None:
    """Written by itself, with everything read anew, each has another chance."""

    async def main() -> None:
        store = PostgresStore(faults.server.dsn())
        await store.open()
        commits = [Commit(events=(CustomEvent.of("test:n", n=n),)) for n in range(4)]
        faults.plan = [("between", "23505"), ("between", "23505")]
        for commit in commits:
            store.submit(commit)
        await store.flush()
        assert not store.failure
        assert [bool(commit.error) for commit in commits] == [True, False, False, False]
        assert "injected" in commits[0].error
        assert [each.seq for each in await read_all(store)] == [1, 2, 3]
        faults.plan = [("between", "23505")]
        again = [Commit(events=(CustomEvent.of("test:n", n=n),)) for n in range(2)]
        for commit in again:
            store.submit(commit)
        await store.flush()
        assert [commit.error for commit in again] == ["", ""]
        await store.aclose()

    anyio.run(main, backend=loop)
    assert len(faults.met) == 3


def test_a_position_that_is_taken_fails_the_store(server: Server) -> None:
    """The head is behind the events: nothing more could be written at all."""

    async def main() -> None:
        address = server.dsn()
        store = PostgresStore(address)
        await store.open()
        await open_run(store, A_RUN)
        server.query(f"UPDATE {address.partition('schema=')[2]}.head SET position = 0")
        failed = await commit_of(store, Commit(events=(CustomEvent.of("test:n", n=1),)))
        assert "event_pkey" in failed.error and store.failure == failed.error
        await store.aclose()

    anyio.run(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_work_and_reads_wait_while_the_server_is_away(server: Server, loop: str) -> None:
    async def main() -> None:
        store = PostgresStore(server.dsn())
        await store.open()
        await open_run(store, A_RUN)
        server.stop()
        done: list[Commit] = []
        commit = Commit(events=(CustomEvent.of("test:late"),))
        commit.done = done.append
        store.submit(commit)
        found: list[Any] = []

        async def read() -> None:
            found.append(await store.load(A_RUN))
            found.append(await store.inspect(lambda reader: reader.tip))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.sleep(0.3)
            assert not done and not found and not store.failure
            server.start()
        await store.flush()
        assert not commit.error and len(commit.written) == 1
        assert found[0].info.run_id == A_RUN and found[1] in (1, 2)
        await store.aclose()

    anyio.run(main, backend=loop)


def test_patience_has_an_end_and_then_everything_is_refused(server: Server) -> None:
    async def main() -> None:
        store = PostgresStore(server.dsn(), patience=0.3)
        await store.open()
        await open_run(store, A_RUN)
        server.stop()
        lost = await commit_of(store, Commit(events=(CustomEvent.of("test:late"),)))
        assert "start the server" in lost.error and "\n" not in lost.error
        assert store.failure == lost.error
        assert (await commit_of(store, Commit(events=(CustomEvent.of("test:later"),)))).error
        with pytest.raises(OperatorError, match="start the server"):
            await store.load(A_RUN)
        await store.aclose()
        server.start()
        async with Runtime(store=store) as rt:  # What was acknowledged is there.
            assert await rt.hub.journal.info(A_RUN) is not None

    try:
        anyio.run(main)
    finally:
        server.restart()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_runtime_whose_store_has_failed_is_left_in_order(server: Server, loop: str) -> None:
    async def main() -> None:
        schema = server.new_schema()
        async with Runtime(store=PostgresStore(server.dsn(schema))) as rt:
            server.query(f"DROP SCHEMA {schema} CASCADE")
            await until(lambda: bool(rt.hub.journal.failure))

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_lost_its_lease_changes_nothing_in_its_trees_and_goes_on(
    server: Server, loop: str
) -> None:
    """Whoever has them now; what it sends is accepted under its next lease."""

    async def main() -> None:
        address = server.dsn()
        async with members_of(Places(address)) as (one, other):
            await open_run(one.journal, A_RUN)
            schema = address.partition("schema=")[2]
            server.query(f"UPDATE {schema}.worker SET live = false WHERE live AND id = 1")
            message = Delivery(session_message("hello"), A_RUN)
            late = Commit(A_RUN, [stamp(A_RUN, 1, AgentStatus())], taken=(1,))
            sent = Commit(deliveries=(message,))
            for commit in (late, sent):
                one.submit(commit)
            await one.journal.flush()
            assert (late.error, sent.error, message.outcome) == ("conflict", "", "accepted")
            assert one.losses == 1
            await other.journal.flush()
            assert one.told == other.told[1:]  # What has opened it is not noted at its sender.
            with anyio.fail_after(5):
                while not (one.trees or other.trees):  # noqa: ASYNC110
                    await anyio.sleep(0.01)

    anyio.run(main, backend=loop)


def test_a_dropped_table_fails_the_store_at_once(server: Server) -> None:
    async def main() -> None:
        address = server.dsn()
        store = PostgresStore(address)
        await store.open()
        await open_run(store, A_RUN)
        server.query(f"DROP TABLE {address.partition('schema=')[2]}.note")
        failed = await commit_of(store, Commit(notes={"a": "b"}))
        assert 'relation "note" does not exist' in failed.error and "restore it" in failed.error
        assert store.failure
        await store.aclose()

    anyio.run(main)


def test_a_pipeline_that_fails_leaves_no_statement_that_the_server_does_not_know(
    server: Server,
) -> None:
    """A statement that is used for the sixth time is prepared, but not behind one that fails."""
    db = PostgresConnection(PostgresAddress(server.dsn()), "test")

    def ask(divisor: int) -> list[tuple[object, ...]]:
        with db.pipeline():
            db.execute("SELECT 1 / ?::int", (divisor,))
            found = db.execute("SELECT ?::int + 1", (1,))
        return list(found.fetchall())

    for divisor in (1, 1, 1, 1, 1, 0, 1, 1):
        if db.is_lost:
            db.connect()
        if divisor:
            assert ask(divisor) == [(2,)]
        else:
            with pytest.raises(psycopg.errors.DivisionByZero):
                ask(divisor)
    db.close()


def _many(db: PostgresConnection) -> None:
    db.executemany("SELECT pg_terminate_backend(?)", [(db.pid,)] * 5)


def _pipelined(db: PostgresConnection) -> None:
    with db.pipeline():
        for _ in range(5):
            db.execute("SELECT pg_terminate_backend(?)", (db.pid,)).fetchone()


@pytest.mark.parametrize("do", [_pipelined, _many])
def test_a_connection_that_is_cut_writes_nothing_to_the_log_of_the_driver(
    server: Server, do: Callable[[PostgresConnection], None], caplog: pytest.LogCaptureFixture
) -> None:
    db = PostgresConnection(PostgresAddress(server.dsn()), "cut")
    db.connect()
    with pytest.raises(psycopg.Error):
        do(db)
    assert db.is_lost
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []
