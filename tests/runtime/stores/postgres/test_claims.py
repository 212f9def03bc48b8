"""What a worker believes to own it owns: also where its lease or a connection ends meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import psycopg
import pytest
from support.postgres import Server

from hubbub.hub.conformance.members import Member, members_of
from hubbub.hub.conformance.steps import A_RUN, open_run
from hubbub.runtime.stores.postgres.intake import open_postgres_intake
from hubbub.runtime.stores.postgres.lease import FREE
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.sql.in_use import StoreInUse

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Schema:
    """A new store, with the journals of its processes."""

    ttl = 6.0

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = server.new_schema()

    def journal(self, *, is_worker: bool = True) -> PostgresStore:
        return PostgresStore(self.server.dsn(self.schema), is_worker=is_worker, ttl=self.ttl)

    def end_leases(self) -> None:
        self.server.query(f"UPDATE {self.schema}.worker SET live = false")

    def owners(self) -> list[tuple[Any, ...]]:
        return self.server.query(f"SELECT owner, epoch FROM {self.schema}.tree ORDER BY root")


def journal_of(member: Member) -> PostgresStore:
    assert isinstance(member.journal, PostgresStore)
    return member.journal


async def test_a_tree_claimed_anew_while_it_was_handed_over_stays_its_workers(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ends before the database knows of the hand-over, and the next one has the tree."""
    store = Schema(server)
    async with members_of(store, 1) as (one,):
        await open_run(one.journal, A_RUN)
        journal = journal_of(one)
        on_writer = journal._on_writer

        async def late(do: Callable[[], None]) -> None:
            monkeypatch.setattr(journal, "_on_writer", on_writer)
            store.end_leases()
            with anyio.fail_after(30):
                await one.until(lambda: one.trees == {A_RUN})
            await on_writer(do)

        monkeypatch.setattr(journal, "_on_writer", late)
        await one.share.hand_over([A_RUN])
        assert one.share.owns(A_RUN)
        assert store.owners() == [(journal._lease.worker, 2)]


async def test_a_hand_over_whose_answer_is_lost_frees_nothing_that_was_claimed_since(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Schema(server)
    async with members_of(store, 1) as (one,):
        await open_run(one.journal, A_RUN)
        journal = journal_of(one)
        on_writer: Callable[[Callable[[], None]], Awaitable[None]] = journal._on_writer

        async def twice(do: Callable[[], None]) -> None:
            await on_writer(do)
            with anyio.fail_after(30):
                await one.until(lambda: one.trees == {A_RUN})
            await on_writer(do)

        monkeypatch.setattr(journal, "_on_writer", twice)
        await one.share.hand_over([A_RUN])
        assert one.share.owns(A_RUN)
        assert store.owners() == [(journal._lease.worker, 2)]


async def test_trees_claimed_without_an_answer_are_driven(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends behind the claim; else the trees stay a worker's that knows nothing."""
    store = Schema(server)
    async with members_of(store, 1, channels=1) as (worker, channel):
        db = journal_of(worker)._tail._db
        execute, lost = db.execute, []

        def cut(sql: str, *values: Any) -> Any:
            found = execute(sql, *values)
            if "epoch = epoch + 1" in sql and not lost:
                lost.append(server.end_connections(f"hubbub:{store.schema}:tail:%"))
                return execute("SELECT 1")
            return found

        monkeypatch.setattr(db, "execute", cut)
        await open_run(channel.journal, A_RUN)
        with anyio.fail_after(20):
            await worker.until(lambda: worker.trees == {A_RUN})
        assert lost
        assert worker.share.owns(A_RUN)
        assert store.owners() == [(journal_of(worker)._lease.worker, 2)]


async def test_who_ends_a_lease_tells_the_others_that_its_trees_are_free(server: Server) -> None:
    """What its own share leaves of them need not wait for their next look."""
    store = Schema(server)
    async with members_of(store, 1):
        heard: list[str] = []
        with psycopg.connect(server.dsn().partition("&schema")[0], autocommit=True) as listener:
            listener.add_notify_handler(lambda told: heard.append(told.payload))
            listener.execute(f"LISTEN {store.schema}")
            server.query(
                f"INSERT INTO {store.schema}.worker (format, name, kind, live, expires, drains, "
                "pid, connected) SELECT format, 'dead', kind, true, now() - interval '1 s', false, "
                f"0, now() FROM {store.schema}.worker LIMIT 1"
            )
            with anyio.fail_after(30):
                while FREE not in heard:
                    listener.execute("SELECT 1")
                    await anyio.sleep(0.05)


@pytest.mark.parametrize("cut", ["writer", "tail"])
async def test_who_joins_ends_no_lease_of_a_process_that_one_connection_is_cut_of(
    server: Server, cut: str
) -> None:
    """It may be in the middle of a tool, with nothing to write."""
    store = Schema(server)
    async with members_of(store, 1) as (one,):
        await open_run(one.journal, A_RUN)
        assert server.end_connections(f"hubbub:{store.schema}:{cut}%") == 1
        async with members_of(store, 0, channels=1):
            live = server.query(f"SELECT live FROM {store.schema}.worker ORDER BY id")
            assert live == [(True,), (True,)]
        assert one.losses == 0
        assert store.owners() == [(1, 1)]


async def test_nobody_imports_beside_a_process_whose_writing_connection_is_cut(
    server: Server,
) -> None:
    store = Schema(server)
    async with members_of(store, 1) as (one,):
        await open_run(one.journal, A_RUN)
        assert server.end_connections(f"hubbub:{store.schema}:writer%") == 1
        intake = open_postgres_intake(PostgresAddress(server.dsn(store.schema)), "new", "import")
        with pytest.raises(StoreInUse, match="another runtime is at work"), intake:
            raise AssertionError("it has opened")
        assert one.losses == 0
