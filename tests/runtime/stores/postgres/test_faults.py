"""Faults in the middle of a group of commits: each is written once, and nothing else is said."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import psycopg
import pytest
from support.postgres import Server

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
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import AgentStatus, CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

LOOPS = ("asyncio", "trio")


class Faults:
    """What happens to the next groups: one fault each, in turn."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.plan: list[str] = []
        self.met: list[str] = []

    def before_commit(self, db: PostgresConnection) -> None:
        fault = self.plan.pop(0) if self.plan else ""
        self.met += [fault] if fault else []
        match fault:
            case "40001":
                raise psycopg.errors.SerializationFailure("injected")
            case "40P01":
                raise psycopg.errors.DeadlockDetected("injected")
            case "55P03":
                raise psycopg.errors.LockNotAvailable("injected")
            case "ended before" | "ended twice":
                self.end(db)
                self.plan[:0] = ["ended before"] if fault == "ended twice" else []
            case "closed before":
                db.close()
                raise psycopg.OperationalError("injected: the connection is lost")
            case "heard by nobody":
                self.plan.insert(0, "lost after")
                self.met.pop()

    def after_commit(self, db: PostgresConnection) -> None:
        if self.plan[:1] == ["lost after"]:
            self.met.append(self.plan.pop(0))
            db.close()
            raise psycopg.OperationalError("injected: the connection is lost")

    def end(self, db: PostgresConnection) -> None:
        self.server.query(f"SELECT pg_terminate_backend({db.pid})")


FAULTS = (
    "40001", "40P01", "55P03", "ended before", "ended twice", "closed before", "heard by nobody",
)  # fmt: skip


@pytest.fixture
def faults(server: Server, monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults = Faults(server)

    class Faulty(PostgresConnection):
        _is_committing = False

        def execute(self, sql: str, values: Any = (), /) -> Any:
            if sql == "COMMIT" and self._name.endswith("writer"):
                faults.before_commit(self)
                self._is_committing = True
            return super().execute(sql, values)

        @contextmanager
        def pipeline(self) -> Iterator[None]:  # type: ignore[override]
            self._is_committing = False
            with super().pipeline():
                yield
            if self._is_committing:
                faults.after_commit(self)

    monkeypatch.setattr(store_module, "PostgresConnection", Faulty)
    return faults


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


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_middle_of_a_commit_changes_nothing_of_what_comes_of_it(
    faults: Faults, loop: str, fault: str
) -> None:
    async def main() -> None:
        plain = PostgresStore(faults.server.dsn())
        await plain.open()
        expected = await story(plain, lambda: None)
        await plain.aclose()
        store = PostgresStore(faults.server.dsn())
        await store.open()
        try:

            def between() -> None:
                faults.plan.append(fault)

            assert await story(store, between) == expected
            assert not store.failure
        finally:
            await store.aclose()

    anyio.run(main, backend=loop)
    assert len(faults.met) >= 16


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
        faults.plan = ["heard by nobody", "ended before", "40001"]
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
def test_who_lost_the_store_to_another_runtime_writes_nothing_more(
    server: Server, loop: str
) -> None:
    async def main() -> None:
        address = server.dsn()
        first, second = PostgresStore(address), PostgresStore(address)
        await first.open()
        await open_run(first, A_RUN)
        server.query(f"SELECT pg_terminate_backend({first._lock.db.pid})")
        await second.open()
        assert not (await write(second, A_RUN, 0, AgentStatus(status="second"))).error
        late = await write(first, A_RUN, 0, AgentStatus(status="first"))
        assert "another runtime has taken this store over" in late.error
        assert first.failure == late.error
        await second.aclose()
        # Nor when the other one has left again.
        third = PostgresStore(address)
        await third.open()
        server.query(f"SELECT pg_terminate_backend({third._lock.db.pid})")
        async with Runtime(store=PostgresStore(address)):
            pass
        assert (
            "taken this store over"
            in (await write(third, A_RUN, 1, AgentStatus(status="third"))).error
        )
        await third.aclose()
        await first.aclose()
        async with Runtime(store=PostgresStore(address)) as rt:
            lane = [x for x in await rt.hub.read(A_RUN) if x.lane == "own"]
            assert [getattr(x, "status", "") for x in lane][:1] == ["second"]

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
