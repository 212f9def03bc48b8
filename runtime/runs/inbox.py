"""Reading a code run's inbox: one reader, one message at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Self

import anyio

from hubbub.hub.errors import InboxInUse
from hubbub.hub.events import SessionMessage

if TYPE_CHECKING:
    from hubbub.runtime.runs.code_run import CodeRun

__all__ = ["InboxReader", "MessageStream"]


class InboxReader:
    """Who reads the messages of a run: in order, those accepted before it began included.

    A message counts as consumed, durably, when the next one is asked for or the run completes;
    a handler's, when it returns.  An execution after a restart begins with those that were
    consumed before (``redelivered``).
    """

    __slots__ = ("_current", "_is_handlers", "_run", "is_exclusive", "is_waiting", "on_message")

    def __init__(self, run: "CodeRun", *, is_handlers: bool = False) -> None:
        self._run = run
        self._is_handlers = is_handlers
        self._current: SessionMessage | None = None
        self.is_waiting = False
        self.is_exclusive = False
        """Whether another reader is refused even while this one is at work."""
        self.on_message: Callable[[], object] = _nothing
        """Called when there is a message to read, or will never be one again."""

    @property
    def run_id(self) -> str:
        """Whose inbox it is."""
        return self._run.lane.run_id

    @property
    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come: the run is closed, or over."""
        return self._run.is_over or (self._run.thread.closing and not self._run.messages)

    def begin(self) -> None:
        """The next message is asked for; raises ``InboxInUse`` where somebody else reads."""
        if self.is_waiting or self._run.reader is not self:
            raise InboxInUse(self.run_id)
        self._run.execution.refuse_inside_step("reading the inbox")
        self.consume()

    def next_nowait(self) -> SessionMessage | None:
        """The next message, if it is there."""
        run = self._run
        if run.is_over or not run.messages:
            return None
        self._current = run.messages.popleft()
        return self._current

    def consume(self) -> None:
        """Record the message at hand as consumed."""
        item, self._current = self._current, None
        if item is not None:
            self._run.take(item)

    def finish(self) -> None:
        """The run has completed: what was at hand is consumed, but for what a handler still has."""
        if not self._is_handlers:
            self.consume()

    @contextmanager
    def waiting(self, *, for_others: bool = False) -> Iterator[None]:
        """Inside, the code waits for the next message; ``for_others``: or for other runs."""
        run = self._run
        run.will_wait()
        # Maybe for what its children say, which then must not wait for its place.
        others = for_others or bool(run.thread.children)
        self.is_waiting = True
        try:
            with run.runtime.runs.waiting() if others else nullcontext():
                yield
        finally:
            self.is_waiting = False

    def release(self) -> None:
        """Let another one read.  What a handler has at hand is consumed when it returns."""
        self.is_exclusive = False
        self.on_message = _nothing
        if self._is_handlers and self._run.reader is self:
            self._run.reader = None


class MessageStream(InboxReader):
    """The messages of a run, for ``async for``.

    Ends when the run is closed, or after ``idle_timeout`` seconds of silence.
    """

    __slots__ = ("_idle_timeout",)

    def __init__(self, run: "CodeRun", idle_timeout: float | None) -> None:
        super().__init__(run)
        self._idle_timeout = idle_timeout

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        self.begin()
        if not self._run.messages:
            if self._idle_timeout is None:
                await self._wait()
            else:
                with anyio.move_on_after(self._idle_timeout):
                    await self._wait()
        message = self.next_nowait()
        if message is None:
            raise StopAsyncIteration
        return message

    async def _wait(self) -> None:
        while not (self._run.messages or self.is_over):
            arrived = anyio.Event()
            self.on_message = arrived.set
            with self.waiting():
                await arrived.wait()


def _nothing() -> None:
    """What a reader that waits for nothing is woken with."""
