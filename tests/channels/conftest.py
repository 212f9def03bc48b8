"""A terminal without a terminal: typed lines in, a screen out."""

import re
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hubbub import Runtime
from hubbub.channels import run_console

# Makes the modules beside this folder importable by name: tests are no package.
sys.path.append(str(Path(__file__).parent.parent))


class FakeTerminal:
    """Both ends of a console.  As a pipe (``is_terminal=False``) it has no cursor and no colour.

    ``screen`` is what a person would see: the lines, typed ones echoed, erased ones gone.
    """

    def __init__(self, *, is_terminal: bool = True, has_colour: bool = False) -> None:
        self.is_terminal = is_terminal
        self.has_escapes = is_terminal
        self.has_colour = has_colour
        self.width = 80
        self.out = ""
        self.aside = ""
        self._echoed = ""
        self._typed, self._lines = anyio.create_memory_object_stream[str](1000)
        self._on_interrupt: Callable[[], None] | None = None

    # ── the person ───────────────────────────────────────────────────────────────────────────

    def type(self, *lines: str) -> None:
        for line in lines:
            self._echoed += f"{line}\n" if self.is_terminal else ""
            self._typed.send_nowait(line)

    def end(self) -> None:
        """Ctrl-D, or the end of the pipe."""
        self._typed.close()

    def press_ctrl_c(self) -> None:
        assert self._on_interrupt is not None
        self._echoed += "^C" if self.is_terminal else ""
        self._on_interrupt()

    @property
    def screen(self) -> list[str]:
        lines = [""]
        for piece in re.split(r"(\n|\r\x1b\[K|\x1b\[[0-9;]*m)", self._echoed):
            if piece == "\n":
                lines.append("")
            elif piece == "\r\x1b[K":
                lines[-1] = ""
            elif not piece.startswith("\x1b["):
                lines[-1] += piece
        return lines

    # ── the console's side ───────────────────────────────────────────────────────────────────

    async def read_line(self) -> str | None:
        try:
            return await self._lines.receive()
        except anyio.EndOfStream:
            return None

    async def watch_interrupts(self, on_interrupt: Callable[[], None]) -> None:
        self._on_interrupt = on_interrupt

    def write(self, text: str) -> None:
        self.out += text
        self._echoed += text

    def write_aside(self, text: str) -> None:
        self.aside += text

    def close(self) -> None:
        self._typed.close()
        self._lines.close()


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
