"""Consoles over a terminal without a terminal."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.fake_terminal import FakeTerminal

from hubbub import Runtime
from hubbub.channels import run_console

# Makes the modules beside this folder importable by name: tests are no package.
sys.path.append(str(Path(__file__).parent.parent))


@pytest.fixture(params=["asyncio", "trio"])
def backend(request):
    """The loop of a program in a terminal of its own."""
    return request.param


@pytest.fixture
def script(tmp_path, request):
    """That program: the ``SCRIPT`` of the test's module."""
    path = tmp_path / "chat.py"
    path.write_text(request.module.SCRIPT)
    return path


@pytest.fixture
def terminal():
    terminal = FakeTerminal()
    yield terminal
    terminal.close()


@pytest.fixture
def pipe():
    pipe = FakeTerminal(is_terminal=False)
    yield pipe
    pipe.close()


@pytest.fixture
def later_pipe():
    pipe = FakeTerminal(is_terminal=False)
    yield pipe
    pipe.close()


@pytest.fixture
def converse(journal, ports):
    """Run a console over a terminal beside the test; yields the runtime and the exit codes."""

    @asynccontextmanager
    async def converse(terminal, *agents, **options):
        codes = []
        async with Runtime(agents=agents, store=journal, ports=ports, grace=0) as rt:

            async def talk():
                codes.append(
                    await run_console(
                        rt.hub, agents[0].name, reader=terminal, writer=terminal, **options
                    )
                )

            async with anyio.create_task_group() as group:
                group.start_soon(talk)
                await anyio.sleep(0.5)
                yield rt, codes
                terminal.end()
                with anyio.move_on_after(3600) as scope:
                    while not codes:  # noqa: ASYNC110
                        await anyio.sleep(1)
                assert not scope.cancelled_caught, "the console did not leave"

    return converse
