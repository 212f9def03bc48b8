"""Two hubs, each with a share in one store, hear each other's pieces by a real server."""

from collections.abc import Callable

import anyio
import pytest
from support.agents import model_agent
from support.postgres import Server
from support.shared_stores import SharedPlace

from hubbub import Event, Hub, Runtime
from hubbub.hub.events import AgentText, AgentTextDelta
from hubbub.hub.ports import Ports, SystemClock
from hubbub.hub.store.shared.journal import SharedMemoryJournal
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TEXT = "".join(f"wörd{number} " for number in range(60))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    name: str = request.param
    return name


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.005)


async def test_pieces_of_an_answer_are_heard_in_another_process(server: Server) -> None:
    place, address = SharedPlace(SystemClock()), server.dsn()
    made = PostgresStore(address)
    await made.open()
    await made.aclose()

    def journal(*, is_worker: bool) -> SharedMemoryJournal:
        found = place.journal(is_worker=is_worker)
        found.bus = PostgresStore(address).bus  # type: ignore[assignment]
        return found

    model = FunctionModel(lambda request: TEXT, latency=1.5)
    worker = Hub(journal=journal(is_worker=True), ports=Ports())
    heard: list[Event] = []
    async with (
        worker,
        Runtime([model_agent(model, name="speaker")], hub=worker),
        Hub(journal=journal(is_worker=False), ports=Ports()) as there,
    ):
        there.subscribe("agent:*", heard.append)
        receipt = await there.open("speaker", "go")
        await until(lambda: any(isinstance(x, AgentText) for x in heard))
    got = [x for x in heard if isinstance(x, AgentTextDelta)]
    assert len(got) > 10
    assert {x.run_id for x in got} == {receipt.run_id}
    assert TEXT[got[0].offset :].startswith("".join(x.text for x in got))
