"""Several processes at work on one schema: the suite of shared stores on a real server, in real
time, for the server's clock decides about leases."""

from contextlib import AsyncExitStack

import anyio
import pytest
from support.postgres import Server

from hubbub import Hub
from hubbub.hub import events as e
from hubbub.hub.conformance.declarations import DECLARATION_CHECKS
from hubbub.hub.conformance.left_notes import LEFT_NOTE_CHECKS
from hubbub.hub.conformance.placement import PLACEMENT_CHECKS
from hubbub.hub.conformance.removal import SHARED_REMOVAL_CHECKS
from hubbub.hub.conformance.sharing import SHARING_CHECKS, SharingCheck
from hubbub.hub.delivery.asked_notes import LOST
from hubbub.hub.errors import Closed
from hubbub.runtime.stores.postgres.store import PostgresStore

SUITE = (
    SHARING_CHECKS + PLACEMENT_CHECKS + DECLARATION_CHECKS + LEFT_NOTE_CHECKS
    + SHARED_REMOVAL_CHECKS
)  # fmt: skip

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Schema:
    """A new store, with the journals of its processes."""

    ttl = 1.5

    def __init__(self, server: Server) -> None:
        self.address = server.dsn()

    def journal(self, *, is_worker: bool = True) -> PostgresStore:
        return PostgresStore(self.address, is_worker=is_worker, ttl=self.ttl)


@pytest.mark.spec("X-01", "X-02", "X-05")
@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
async def test_the_shared_store_conforms(check: SharingCheck, server: Server) -> None:
    await check(lambda: Schema(server))


async def test_what_a_dead_process_has_asked_in_nobodys_name_is_ended_once(server: Server) -> None:
    schema = Schema(server)
    asking, *others = (schema.journal(is_worker=number == 1) for number in range(4))
    ends: list[list[e.Event]] = [[] for _ in others]
    async with AsyncExitStack() as stack:
        for journal, heard in zip(others, ends, strict=True):
            hub = await stack.enter_async_context(Hub(journal=journal))
            hub.subscribe("session:prompt:end", heard.append)
        group = await stack.enter_async_context(anyio.create_task_group())
        async with Hub(journal=asking) as dead:
            group.start_soon(_ask, dead)
            with anyio.fail_after(20):
                while not await dead.read(types="session:prompt"):  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            asking.forget_submitted()
        with anyio.fail_after(20):
            while not all(ends):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await anyio.sleep(3 * schema.ttl)
        assert [[x.reason for x in heard] for heard in ends] == [[LOST]] * 3  # type: ignore[attr-defined]


async def _ask(hub: Hub) -> None:
    with pytest.raises(Closed):
        await hub.ask("user", "Which one?")
