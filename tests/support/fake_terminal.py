"""A terminal without a terminal: typed lines in, a screen out."""

import re
from collections.abc import Callable

import anyio

__all__ = ["FakeTerminal"]


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
