"""The program's own standard streams, for the console.

Reading must not block the event loop, and must end when the program wants to leave.  A worker
thread that sits in ``readline`` cannot be cancelled and keeps the process from exiting.  So here
the event loop waits until the descriptor is readable and only then takes what is there; a regular
file (``< questions.txt``) is always readable, which the loop's selector says by refusing it.

Where a loop cannot wait for a descriptor (Windows), a daemon thread reads, as a fallback: the one
thread in this library that goes through no port.  It reads the raw file, whose lock nobody waits
for when the interpreter ends, and it is simply left behind then.
"""

import codecs
import io
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TextIO

import anyio
import anyio.from_thread
import anyio.lowlevel

from hubbub.hub.message import MAX_MESSAGE_CHARS

__all__ = ["LineReader", "TerminalReader", "TerminalWriter"]

CHUNK: Final = 65_536
MAX_LINE: Final = MAX_MESSAGE_CHARS + 1
"""What a line has beyond this is dropped; the hub refuses one as long as this, in words."""


class LineReader(Protocol):
    """Where a console's lines come from."""

    @property
    def is_terminal(self) -> bool: ...

    async def read_line(self) -> str | None:
        """The next line without its end; ``None`` when there is no more.  Cancellable: nothing
        that has been read is lost by it."""
        ...

    async def watch_interrupts(self, on_interrupt: Callable[[], None]) -> None:
        """Call ``on_interrupt`` at each Ctrl-C, until cancelled."""
        ...


class TerminalReader:
    """Lines of a descriptor, by default standard input, as UTF-8.

    ``threaded`` chooses the fallback of the module's docstring (default: on Windows).
    """

    def __init__(self, fd: int = 0, *, threaded: bool | None = None) -> None:
        self._lines: deque[str] = deque()
        self._rest: list[str] = []
        self._rest_size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_over = False
        self._threaded = os.name == "nt" if threaded is None else threaded
        self._pending: _ThreadedRead | None = None
        self._raw: io.RawIOBase | None
        try:
            self._raw = open(fd, "rb", buffering=0, closefd=False)  # noqa: SIM115
            self.is_terminal = self._raw.isatty()
        except OSError:  # Standard input was closed by the parent process.
            self._raw, self._is_over, self.is_terminal = None, True, False

    async def read_line(self) -> str | None:
        """The next line without its end; ``None`` when the input is over."""
        while not self._lines:
            if self._is_over:
                return None
            chunk = await (self._read_in_thread() if self._threaded else self._read())
            if chunk is not None:
                self._feed(chunk)
        return self._lines.popleft()

    async def watch_interrupts(self, on_interrupt: Callable[[], None]) -> None:
        """Call ``on_interrupt`` at each SIGINT.

        Only the main thread may ask for signals, and Windows has none to wait for: there this
        returns at once, and Ctrl-C is the ``KeyboardInterrupt`` it always was.
        """
        if os.name == "nt" or threading.current_thread() is not threading.main_thread():
            return
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                on_interrupt()

    async def _read(self) -> bytes | None:
        """What is there now, when there is something; ``b""`` at the end."""
        assert self._raw is not None
        try:
            await anyio.wait_readable(self._raw.fileno())
        except PermissionError:
            await anyio.lowlevel.checkpoint()
        return _read_once(self._raw)

    async def _read_in_thread(self) -> bytes | None:
        assert self._raw is not None
        if self._pending is None:
            self._pending = _ThreadedRead(self._raw)
        await self._pending.done.wait()
        pending, self._pending = self._pending, None
        return pending.chunk

    def _feed(self, chunk: bytes) -> None:
        self._is_over = not chunk
        text = self._decoder.decode(chunk, final=not chunk)
        *whole, rest = text.split("\n")
        for line in whole:
            self._keep(line)
            self._end_line()
        self._keep(rest)
        if self._is_over and self._rest_size:
            self._end_line()

    def _keep(self, text: str) -> None:
        text = text[: MAX_LINE - self._rest_size]
        if text:
            self._rest.append(text)
            self._rest_size += len(text)

    def _end_line(self) -> None:
        self._lines.append("".join(self._rest).removesuffix("\r"))
        self._rest, self._rest_size = [], 0


class _ThreadedRead:
    """One blocking read in a daemon thread; outlives the cancellation of its reader."""

    __slots__ = ("chunk", "done")

    def __init__(self, raw: io.RawIOBase) -> None:
        self.chunk: bytes | None = None
        self.done = anyio.Event()
        token = anyio.lowlevel.current_token()

        def read() -> None:
            self.chunk = _read_once(raw)
            # A RuntimeError: the event loop has ended, and with it the task that waited.
            with suppress(RuntimeError):
                anyio.from_thread.run_sync(self.done.set, token=token)

        threading.Thread(target=read, name="hubbub console", daemon=True).start()


def _read_once(raw: io.RawIOBase) -> bytes | None:
    try:
        return raw.read(CHUNK)
    except OSError:
        return b""  # The terminal has hung up.


class TerminalWriter:
    """Standard output and error.

    ``NO_COLOR`` and ``TERM=dumb`` of ``environ`` (default: the process environment) are obeyed.
    What the stream's encoding cannot say is written as ``?``.  After the reader of a pipe has
    left, ``write`` raises ``BrokenPipeError`` and the stream is pointed at nothing, so that the
    interpreter has nothing to complain of when it ends.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        aside: TextIO | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._out = out or sys.stdout
        self._aside = aside or sys.stderr
        self.is_terminal = self._out is not None and self._out.isatty()
        self.has_escapes = self.is_terminal and environ.get("TERM") != "dumb"
        self.has_colour = self.has_escapes and not environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        """The columns of the terminal, or 80 where there is none."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError, AttributeError):
            return 80

    def write(self, text: str) -> None:
        """Write to the output; raises ``BrokenPipeError`` once nobody reads it."""
        try:
            _write(self._out, text)
        except BrokenPipeError:
            _point_at_nothing(self._out)
            raise

    def write_aside(self, text: str) -> None:
        """Write to the error stream; what cannot be written is dropped."""
        with suppress(OSError):  # Nobody is left to be told.
            _write(self._aside, text)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def _point_at_nothing(stream: TextIO) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)
