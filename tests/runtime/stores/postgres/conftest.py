"""One server for all tests of a process, with a new schema for each store."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.postgres import SECRETS_KEY, Server, running_server
from support.same_tests import SameFile, have_stores_in, is_same, kept

HERE = Path(__file__).parent


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path == HERE / "test_restarts.py":
        return SameFile.from_parent(parent, path=file_path, name="the same tests")
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that are others' here, those that concern a database; they are long."""
    others = [item for item in items if is_same(item)]
    left = {id(item) for item in kept(others)}
    items[:] = [item for item in items if not is_same(item) or id(item) in left]


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", SECRETS_KEY)
    return _server


@pytest.fixture(autouse=True)
def _on_postgres(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tests of others find schemas; one that does not open any proves nothing here."""
    found: Sequence[str] | None = None
    if is_same(request.node):
        server = request.getfixturevalue("server")
        patch = request.getfixturevalue("monkeypatch")
        found = have_stores_in(server, request.module, patch)
    yield
    assert found is None or found, "it is no test of a store"
