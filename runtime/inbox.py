"""Reading a code run's inbox: one reader, one message at a time (R-07, H-14)."""

from typing import TYPE_CHECKING, Any, Self

import anyio

from hubbub.hub.errors import InboxInUse
from hubbub.hub.events import HubErrorEvent, SessionMessage
from hubbub.hub.hub import Handler
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of

if TYPE_CHECKING:
    from hubbub.runtime.code_run import CodeRun

__all__ = ["InboxSubscription", "MessageStream"]


class MessageStream:
    """The messages of a run, in order, those accepted before it began to read included.

    A message counts as consumed, durably, when the next one is asked for or the run completes.
    An execution after a restart begins with those that were consumed before (``redelivered``).
    Ends when the run is closed (R-17), or after ``idle_timeout`` seconds of silence.
    """

    __slots__ = ("_current", "_idle_timeout", "_run", "is_exclusive", "is_waiting")

    def __init__(self, run: "CodeRun", idle_timeout: float | None) -> None:
        self._run = run
        self._idle_timeout = idle_timeout
        self._current: SessionMessage | None = None
        self.is_waiting = False
        self.is_exclusive = False
        """Whether another reader is refused even while this one is at work."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        run = self._run
        if run.reader is not self or self.is_waiting:
            raise InboxInUse(run.lane.run_id)
        run.execution.refuse_inside_step("ctx.messages()")
        self.consume()
        if not run.messages:
            self.is_waiting = True
            try:
                if self._idle_timeout is None:
                    await run.wait_message()
                else:
                    with anyio.move_on_after(self._idle_timeout):
                        await run.wait_message()
            finally:
                self.is_waiting = False
        if not run.messages or run.is_over:
            raise StopAsyncIteration
        self._current = run.messages.popleft()
        return self._current

    def consume(self) -> None:
        """Record the message at hand as consumed."""
        item, self._current = self._current, None
        if item is not None:
            self._run.take(item)


class InboxSubscription:
    """A handler as the inbox's reader."""

    __slots__ = ("_async", "_closed", "_handler", "_run", "_stream")

    def __init__(
        self, run: "CodeRun", stream: MessageStream, handler: Handler, is_async: bool
    ) -> None:
        self._run = run
        self._stream = stream
        self._handler = handler
        self._async = is_async
        self._closed = False

    async def pump(self) -> None:
        """Feed the handler until the subscription or the run ends."""
        run = self._run
        while not self._closed:
            self._stream.is_waiting = True
            await run.wait_message()
            self._stream.is_waiting = False
            if self._closed or run.is_over or not run.messages:
                return
            item = run.messages.popleft()
            try:
                answer: Any = self._handler(item)
                if self._async:
                    await answer
            except Exception as error:
                name = getattr(self._handler, "__qualname__", repr(self._handler))
                mask = run.masker()
                log.error(
                    "listener.failed", listener=name, run_id=run.lane.run_id,
                    exc_info=mask.error(error),
                )  # fmt: skip
                if not run.runtime.hub.is_closed:
                    run.runtime.hub.emit(
                        HubErrorEvent(
                            error=mask(words_of(error), 2000), error_type=type(error).__name__,
                            listener=name, during=item.type, run_id=run.lane.run_id,
                            root_run_id=run.lane.root_run_id, agent=run.lane.agent,
                        )
                    )  # fmt: skip
            run.take(item)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._run.reader is self._stream:
                self._run.reader = None
            self._run.notify()

    def __call__(self) -> None:
        self.close()
