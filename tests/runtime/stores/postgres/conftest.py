"""One server for all tests of a process, with a new schema for each store."""

from collections.abc import Iterator

import pytest
from support.postgres import SECRETS_KEY, Server, running_server


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)
    return _server
