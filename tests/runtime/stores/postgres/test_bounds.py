"""A server that has no room, or does not come back: work waits for so long, and nothing is said
to be done that is not."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import pytest
from support.large_pages import check_pages
from support.postgres import Server
from support.postgres_disk import SmallDisk, small_disk
from support.postgres_faults import MOMENTS, Moment, faulty_connection
from support.postgres_proxy import Proxy, running_proxy

from hubbub.hub.conformance import A_RUN, commit_of, open_run, read_all
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

A_MOMENT = 0.2
PATIENCE = 1.0


def said(number: int, text: str = "") -> Commit:
    return Commit(events=(CustomEvent.of("test:said", n=number, text=text),))


async def numbers(store: PostgresStore) -> list[int]:
    events = await read_all(store)
    return [each.data["n"] for each in events if isinstance(each, CustomEvent)]


@pytest.mark.spec("X-06")
@pytest.mark.parametrize("what", ["refused", "silent"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_server_that_does_not_come_back_is_waited_for_so_long_and_then_everything_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, moment: Moment, what: str
) -> None:
    """What is refused may have been committed; what was acknowledged has been."""
    schema = server.new_schema()

    def happen(proxy: Proxy, at: Moment, db: PostgresConnection) -> None:
        if at == moment and acknowledged == [0, 1, 2]:
            if what == "silent":
                proxy.silence()
            proxy.refuse(cuts=what == "refused")
            if at == "after":
                db.close()

    acknowledged: list[int] = []

    async def main(proxy: Proxy) -> None:
        store = PostgresStore(server.dsn_at(proxy.port, schema=schema), patience=PATIENCE)
        await store.open()
        await open_run(store, A_RUN)
        with anyio.fail_after(20):
            for number in range(6):
                commit = await commit_of(store, said(number))
                if not commit.error:
                    acknowledged.append(number)
                elif number > 3:
                    assert commit.error == store.failure != ""
        if moment != "after":
            assert acknowledged == [0, 1, 2]
        with pytest.raises(OperatorError, match="start the server"), anyio.fail_after(20):
            await store.load(A_RUN)
        await store.aclose()

    async def look() -> list[int]:
        again = PostgresStore(server.dsn(schema))
        await again.open()
        try:
            return await numbers(again)
        finally:
            await again.aclose()

    with running_proxy(server.port) as proxy, monkeypatch.context() as patch:
        faulty = faulty_connection(partial(happen, proxy), silence=A_MOMENT)
        patch.setattr(store_module, "PostgresConnection", faulty)
        anyio.run(main, proxy)
    there = anyio.run(look)
    assert there[: len(acknowledged)] == acknowledged and len(there) <= 4


@pytest.fixture
def disk(server: Server) -> Iterator[SmallDisk]:
    with small_disk(server) as disk:
        yield disk


async def until_full(store: PostgresStore, disk: SmallDisk) -> tuple[list[int], list[Commit]]:
    """Commits that were acknowledged, and one after another that are not."""
    disk.fill()
    acknowledged: list[int] = []
    for number in range(1000):
        commit = said(number, "x" * 5000)
        done: list[Any] = []
        commit.done = done.append
        store.submit(commit)
        with anyio.move_on_after(1):
            await store.flush()
        if not done:
            return acknowledged, [commit]
        assert not commit.error
        acknowledged.append(number)
    raise AssertionError("the disk is never full")


@pytest.mark.spec("X-06")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_full_disk_is_waited_for_until_there_is_some_room(
    server: Server, disk: SmallDisk, loop: str
) -> None:
    async def main() -> None:
        address = server.dsn("full").replace("/test?", "/small?")
        store = PostgresStore(address)
        await store.open()
        acknowledged, waiting = await until_full(store, disk)
        late = said(5000)
        store.submit(late)
        assert not store.failure
        disk.free()
        with anyio.fail_after(20):
            await store.flush()
        assert not waiting[0].error and not late.error
        assert await numbers(store) == [*acknowledged, len(acknowledged), 5000]
        await store.aclose()

    anyio.run(main, backend=loop)


def test_a_disk_that_stays_full_fails_the_store_in_one_line(
    server: Server, disk: SmallDisk
) -> None:
    async def main() -> None:
        address = server.dsn("full").replace("/test?", "/small?")
        store = PostgresStore(address, patience=1.5)
        await store.open()
        acknowledged, (waiting,) = await until_full(store, disk)
        with anyio.fail_after(20):
            await store.flush()
        assert waiting.error == store.failure
        # A server without room cannot even begin a new connection, and says so in other words.
        assert "No space left" in waiting.error or "could not write" in waiting.error
        assert "free some space" in waiting.error
        assert "\n" not in waiting.error
        await store.aclose()
        disk.free()
        again = PostgresStore(address)
        await again.open()
        assert await numbers(again) == acknowledged
        await again.aclose()

    anyio.run(main)


@pytest.mark.anyio
async def test_a_page_of_large_events_is_short(server: Server) -> None:
    await check_pages(PostgresStore(server.dsn()))
