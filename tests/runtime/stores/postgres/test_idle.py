"""A process that has nothing to do asks the server little, whether it is alone or not."""

import anyio
import pytest
from support.postgres import Server

from hubbub import Hub
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    name: str = request.param
    return name


async def test_idle_processes_ask_a_few_times_a_second(server: Server) -> None:
    # A database of its own: the server's vacuuming of others' tables is not counted.
    server.query("CREATE DATABASE idle")

    def transactions() -> int:
        select = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'idle'"
        ((count,),) = server.query(select)
        assert isinstance(count, int)
        return count

    address = server.dsn(database="idle")
    async with Hub(journal=PostgresStore(address)) as one, Hub(journal=PostgresStore(address)):
        one.subscribe("*", print)
        await anyio.sleep(2)
        before, since = transactions(), anyio.current_time()
        await anyio.sleep(4)
        seconds = anyio.current_time() - since
        asked = (transactions() - before) / seconds
    server.query("DROP DATABASE idle")
    assert asked <= 2 * 8
