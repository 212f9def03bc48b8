"""Who is called what: of several processes that take one name, one is at work."""

import anyio
import pytest
from support.postgres import Server

from hubbub import Runtime
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.sql.in_use import StoreInUse

pytestmark = [pytest.mark.anyio, pytest.mark.long]

REFUSED = "a worker called 'one' is at work on this store since"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """A server has its own time."""
    return str(request.param)


async def joined_at_once(address: str, count: int) -> list[str]:
    """What those are told that are refused, of so many that join in one moment under one name; the
    others stay until all but one are."""
    said: list[str] = []
    is_over = anyio.Event()

    async def join() -> None:
        try:
            async with Runtime(store=PostgresStore(address, name="one")):
                await is_over.wait()
        except StoreInUse as error:
            said.append(str(error))
            if len(said) == count - 1:
                is_over.set()

    with anyio.move_on_after(15):
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(join)
    return said


async def test_of_many_that_join_under_one_name_in_one_moment_one_is_at_work(
    server: Server,
) -> None:
    address = server.dsn()
    async with Runtime(store=PostgresStore(address)):
        pass
    for _ in range(3):
        said = await joined_at_once(address, 6)
        assert len(said) == 5 and all(REFUSED in each for each in said)
    # Whoever was refused can join when the other one has left.
    async with Runtime(store=PostgresStore(address, name="one")):
        pass


async def test_who_comes_back_to_find_its_name_with_another_has_failed(server: Server) -> None:
    schema = server.new_schema()
    first = PostgresStore(server.dsn(schema), name="one")
    await first.open()
    try:  # As if it had stood still, and its lease were over, when the other one joined.
        worker = first._lease.worker
        server.query(f"UPDATE {schema}.worker SET name = 'gone' WHERE id = {worker}")
        other = PostgresStore(server.dsn(schema), name="one")
        await other.open()
        try:
            server.query(f"UPDATE {schema}.worker SET live = false WHERE id = {worker}")
            with anyio.move_on_after(15):
                while not first.failure:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            assert REFUSED in first.failure
            assert not other.failure
        finally:
            await other.aclose()
    finally:
        await first.aclose()
