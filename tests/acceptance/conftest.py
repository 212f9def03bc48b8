"""Clients and suites of others, unmodified, against a hub on each of the servers."""

import os
from collections.abc import Iterator

import pytest
from support.acceptance import AGENTS
from support.node import CannotInstall, Node, installed
from support.served import SERVERS, ServedHub, served_hub


@pytest.fixture(scope="session")
def node() -> Node:
    """Node with the packages of ``package-lock.json``; in CI they can be installed."""
    try:
        return installed()
    except CannotInstall as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"npm could not install what is tested: {error}")


@pytest.fixture(params=SERVERS, ids=[f"{server} on {loop}" for loop, server in SERVERS])
def hub(request: pytest.FixtureRequest) -> Iterator[ServedHub]:
    """A hub with some agents, over HTTP; ``hub.url`` is where."""
    loop, server = request.param
    with served_hub(AGENTS, loop, server) as found:
        yield found
