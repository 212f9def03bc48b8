"""A server with a standby: what was acknowledged is on both, and work goes on with either."""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from support.postgres import SECRETS_KEY, Server, folder_in_memory, running_pair, running_server
from support.postgres_proxy import running_proxy

from hubbub.hub.conformance import commit_of
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

LOOPS = ("asyncio", "trio")

WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    with running_pair() as pair:
        yield pair


def said(number: int) -> Commit:
    return Commit(events=(CustomEvent.of("test:said", n=number),))


def numbers(server: Server, schema: str) -> list[int]:
    """What was said, as a server has it."""
    found = server.query(f"SELECT body FROM {schema}.event ORDER BY position")
    return [int(str(body).partition('"n":')[2].partition("}")[0]) for (body,) in found]


class Deaf:
    """A process that is told what others have written, and does nothing with it."""

    def heard_elsewhere(self, events: object) -> None:
        pass

    def claimed(self, root_run_ids: object) -> None:
        pass

    def lost(self, root_run_ids: object) -> None:
        pass

    def crowded(self, count: object) -> None:
        pass

    def passed(self, position: object) -> None:
        pass

    def removed(self, trees: object) -> None:
        pass


async def until(is_so: Any) -> None:
    with anyio.fail_after(30):
        while not is_so():  # noqa: ASYNC110 - It is a server that changes.
            await anyio.sleep(0.02)


@pytest.mark.spec("X-06")
@pytest.mark.parametrize("loop", LOOPS)
def test_work_goes_on_with_the_promoted_standby_which_has_all_that_was_acknowledged(
    pair: tuple[Server, Server], loop: str
) -> None:
    primary, standby = pair
    schema = primary.new_schema()

    async def main() -> None:
        store = PostgresStore(primary.dsn_at(primary.port, standby.port, schema=schema))
        await store.open()
        acknowledged: list[int] = []

        async def say() -> None:
            for number in range(300):
                commit = await commit_of(store, said(number))
                assert not commit.error
                acknowledged.append(number)

        async with anyio.create_task_group() as group:
            group.start_soon(say)
            await until(lambda: len(acknowledged) >= 50)
            await anyio.to_thread.run_sync(primary.stop)
            before = list(acknowledged)
            assert before and set(before) <= set(numbers(standby, schema))
            await anyio.to_thread.run_sync(standby.promote)
        assert numbers(standby, schema) == acknowledged == [*range(300)]
        assert await store.load("missing") is None
        await store.aclose()

    anyio.run(main, backend=loop)


@pytest.mark.spec("X-06")
def test_a_standby_that_is_reached_before_it_is_promoted_is_waited_for(
    pair: tuple[Server, Server],
) -> None:
    """One address, which is moved to the standby first."""
    primary, standby = pair
    schema = primary.new_schema()

    async def main() -> None:
        with running_proxy(primary.port) as proxy:
            store = PostgresStore(primary.dsn_at(proxy.port, schema=schema))
            await store.open()
            await commit_of(store, said(0))
            proxy.target = standby.port
            proxy.cut()
            done: list[Commit] = []
            commit = said(1)
            commit.done = done.append
            store.submit(commit)
            found: list[Any] = []

            async def read() -> None:
                found.append(await store.notes())

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await anyio.sleep(0.5)
                assert not done and not found and not store.failure
                await anyio.to_thread.run_sync(primary.stop)
                await anyio.to_thread.run_sync(standby.promote)
            await store.flush()
            assert done and not commit.error
            assert numbers(standby, schema) == [0, 1]
            await store.aclose()

    anyio.run(main)


@pytest.mark.spec("X-06")
@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_commit_that_no_standby_has_is_not_acknowledged_though_its_wait_is_cut_off(
    pair: tuple[Server, Server], how: str
) -> None:
    primary, standby = pair
    schema = primary.new_schema()

    async def main() -> None:
        store = PostgresStore(primary.dsn(schema))
        await store.open()
        await commit_of(store, said(0))
        await anyio.to_thread.run_sync(standby.stop)
        done: list[Commit] = []
        commit = said(1)
        commit.done = done.append
        store.submit(commit)
        for _ in range(3):  # Also the one that asks what became of it.
            await until(lambda: primary.query(WAITING))
            for (pid,) in primary.query(WAITING):
                primary.query(f"SELECT pg_{how}_backend({pid})")
            await anyio.sleep(0.1)
            assert not done and not store.failure
        await anyio.to_thread.run_sync(standby.start)
        await store.flush()
        assert done and not commit.error
        await until(lambda: numbers(standby, schema) == [0, 1])
        assert numbers(primary, schema) == [0, 1]
        await store.aclose()

    anyio.run(main)


@pytest.mark.spec("X-06")
def test_a_server_that_has_gone_back_behind_what_was_acknowledged_is_not_gone_on_with() -> None:
    """A standby that commits did not wait for."""

    async def main(primary: Server, standby: Server) -> None:
        schema = primary.new_schema()
        address = primary.dsn_at(primary.port, standby.port, schema=schema)
        store, listening = PostgresStore(address), PostgresStore(address, is_worker=False)
        await store.open()
        await listening.open()
        assert listening.sharing is not None
        listening.sharing.attach(Deaf())
        await commit_of(store, said(0))
        await until(lambda: numbers(standby, schema) == [0])
        standby.stop()  # It hears nothing of the next one.
        await commit_of(store, said(1))
        await until(lambda: listening.tip == 2)
        primary.stop()
        standby.start()
        standby.promote()
        assert numbers(standby, schema) == [0]
        commit = await commit_of(store, said(2))
        assert "had acknowledged" in commit.error and "\n" not in commit.error
        assert store.failure == commit.error
        await until(lambda: listening.failure)
        assert "had acknowledged" in listening.failure
        assert numbers(standby, schema) == [0]
        await listening.aclose()
        await store.aclose()

    with running_server() as primary, folder_in_memory() as folder:
        standby = primary.standby(folder)
        try:
            standby.start()
            anyio.run(main, primary, standby)
        finally:
            standby.stop()
