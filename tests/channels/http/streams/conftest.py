"""An app over a runtime, for the tests of its streams."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hubbub import Agent, Runtime, ScriptedModel
from hubbub.channels.http import HttpApp, HttpLimits

# Makes the modules in tests/ importable by name: tests are no package.
sys.path.append(str(Path(__file__).parents[3]))


@pytest.fixture
def support():
    return Agent("support", "You help.", model=ScriptedModel(["Hello."] * 20))


@pytest.fixture
def served(ports):
    """A runtime and its app, entered."""

    @asynccontextmanager
    async def served(*agents, store="memory", **limits):
        rt = Runtime(agents, store=store, ports=ports, grace=0)
        app = HttpApp(rt.hub, limits=HttpLimits(**limits))
        async with rt, app:
            yield rt, app

    return served
