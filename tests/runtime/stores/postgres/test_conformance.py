"""The suites that prove any store, on a real server and on both loops."""

import pytest
from support.postgres import Server

from hubbub.hub.conformance import CHECKS, Check
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_postgres_conforms(check: Check, server: Server) -> None:
    address = server.dsn()
    await check(lambda: PostgresStore(address))
