"""One server for all tests of a process, with a new schema for each store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.postgres import SECRETS_KEY, Server, running_server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that are others' here, those that concern a database."""
    others = [each for each in items if each.path == HERE / "test_restarts.py"]
    if others:
        kept = {id(item) for item in others[0].module.kept(others)}  # type: ignore[attr-defined]
        drop = {id(item) for item in others} - kept
        items[:] = [item for item in items if id(item) not in drop]


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)
    return _server
