"""Several processes at work on one schema: the suite of shared stores on a real server, in real
time, for the server's clock decides about leases."""

import pytest
from support.postgres import Server

from hubbub.hub.conformance.placement import PLACEMENT_CHECKS
from hubbub.hub.conformance.sharing import SHARING_CHECKS, SharingCheck
from hubbub.runtime.stores.postgres.store import PostgresStore

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
@pytest.mark.parametrize(
    "check", SHARING_CHECKS + PLACEMENT_CHECKS, ids=lambda check: check.__name__
)
async def test_the_shared_store_conforms(check: SharingCheck, server: Server) -> None:
    await check(lambda: Schema(server))
