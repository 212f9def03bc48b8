"""How far each process has heard of what is in the store: it says so with its lease."""

from typing import Any, Final

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.postgres import Server

from hubbub import Hub, Runtime
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.at_work import ShownProcess, list_processes
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

AGENTS: Final = [model_agent(echo_model(0.0), name="chat")]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


def shown(address: str) -> dict[str, ShownProcess]:
    with open_reader(address) as reader:
        found = list_processes(reader, Ports().clock.now())
    return {each.name: each for each in found.processes}


async def converse(runtime: Runtime, count: int) -> None:
    for number in range(count):
        assert (await runtime.run("chat", str(number))).output == f"echo: {number}"


async def until(address: str, is_so: Any) -> dict[str, ShownProcess]:
    with anyio.fail_after(60):
        while not is_so(found := shown(address)):  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return found


async def test_workers_and_channels_say_the_position_that_they_have_heard_of(
    server: Server,
) -> None:
    address = server.dsn()
    web = Hub(journal=PostgresStore(address, is_worker=False, name="web"))
    async with Runtime(AGENTS, store=PostgresStore(address, name="one")) as one, web:
        await converse(one, 5)
        tip = one.hub.journal.tip
        assert tip > 10
        found = await until(address, lambda x: all(each.lag == 0 for each in x.values()))
        assert {name: (each.told, each.lag_seconds) for name, each in found.items()} == {
            "one": (tip, 0.0), "web": (tip, 0.0),
        }  # fmt: skip


async def test_a_process_that_hears_nothing_is_seen_to_fall_behind_and_to_come_back(
    server: Server,
) -> None:
    address = server.dsn()
    store = PostgresStore(address, is_worker=False, name="web")
    async with Runtime(AGENTS, store=PostgresStore(address, name="one")) as one, Hub(journal=store):
        await converse(one, 3)
        await until(address, lambda x: all(each.lag == 0 for each in x.values()))
        async with store._hearing.telling:  # As if its listeners took so long.
            told = store.tip
            await converse(one, 3)
            tip = one.hub.journal.tip
            found = await until(address, lambda x: x["one"].lag == 0)
            assert (found["web"].told, found["web"].lag) == (told, tip - told)
            assert tip > told and 0 < (found["web"].lag_seconds or 0.0) < 30
        found = await until(address, lambda x: all(each.lag == 0 for each in x.values()))
        assert found["web"].told == tip


async def test_of_a_process_that_does_not_say_it_is_unknown(server: Server) -> None:
    address = server.dsn()
    async with Hub(journal=PostgresStore(address, name="one")):
        server.query(
            f"INSERT INTO {address.partition('schema=')[2]}.worker "
            "(name, format, kind, live, expires) VALUES "
            "('old', 1, 'worker', true, clock_timestamp() + interval '1 hour')"
        )
        old = shown(address)["old"]
        assert old.told is old.lag is old.lag_seconds is None
