"""``RunInbox``: the messages of a code run, and their one reader, one message at a time."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

import anyio
from msgspec.structs import replace

from hubbub.agents.state.area import place_files_again
from hubbub.hub.errors import InboxInUse
from hubbub.hub.events import AgentFile, SessionMessage
from hubbub.hub.tasks.waiter import Waiter, wake
from hubbub.hub.values import check_seconds
from hubbub.runtime.activities.recorder import IN_ITS_LOOP
from hubbub.runtime.kernel.current_run import CURRENT_READER
from hubbub.runtime.runs.code_scope import CodeScope
from hubbub.runtime.runs.earlier import Earlier, PassedOver
from hubbub.runtime.runs.inside_step import refuse_inside_step

__all__ = ["InboxReader", "MessageStream", "RunInbox"]


class RunInbox:
    """What a code run has been sent and has not read yet."""

    __slots__ = ("earlier", "messages", "passed", "reader", "run")

    def __init__(self, run: CodeScope) -> None:
        self.run = run
        self.messages: deque[SessionMessage] | tuple[()] = ()
        """No deque while nothing waits: of an idle agent it would be a tenth of its memory."""
        self.reader: InboxReader | None = None
        self.earlier: Earlier | None = None
        """What an earlier execution has consumed, which comes first."""
        self.passed: Earlier | None = None
        """The same, where the code wants none of it."""

    @property
    def is_awaited(self) -> bool:
        """Whether the agent waits for a message."""
        reader = self.reader
        return reader is not None and reader.is_waiting and not self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether the next message is on record, and is being read."""
        return self.earlier is not None and self.earlier.is_behind

    @property
    def has_messages(self) -> bool:
        """Whether there are messages, maybe such as have to be read first."""
        return bool(self.messages) or (self.earlier is not None and self.earlier.has_messages)

    def reader_now(self) -> tuple[object | None, bool]:
        """What reads the messages, and whether it awaits the next one."""
        return (None, False) if self.reader is None else (self.reader.token, self.is_awaited)

    def put(self, message: SessionMessage) -> None:
        """Keep a message for the agent to read."""
        if self.messages:
            self.messages.append(message)
        else:
            self.messages = deque((message,))
        self.notify()

    def pop(self) -> SessionMessage | None:
        """The first message, which then waits no longer; ``None`` where there is none."""
        messages = self.messages
        if not messages:
            return None
        message = messages.popleft()
        if not messages:
            self.messages = ()
        return message

    def pop_earlier(self) -> SessionMessage | None:
        """The next message that an earlier execution has consumed, if it has been read."""
        earlier = self.earlier
        if earlier is None:
            return None
        message = earlier.next_message()
        if message is None and not earlier.has_messages:
            self.earlier = None
        return message

    async def read_earlier(self) -> None:
        """Read on until there is a message to yield again, or will be none."""
        if self.earlier is not None:
            await self.earlier.read_messages()

    def notify(self) -> None:
        """There is a message to read, or will never be one again."""
        reader = self.reader
        if reader is None:
            return
        if reader.waiter is not None:
            wake(reader.waiter)
        else:
            reader.on_message()

    def finish(self) -> tuple[SessionMessage, ...]:
        """The run has completed: the message that its reader has, which is consumed by that."""
        return () if self.reader is None else self.reader.finish()

    def open_reader(self, reader: "InboxReader") -> None:
        """Make ``reader`` the one reader; an idle one before it is superseded."""
        if self.reader is not None:
            if self.reader.is_waiting or self.reader.is_exclusive:
                raise InboxInUse(self.run.lane.run_id)
            self.reader.consume()
        self.reader = reader
        if self.passed is not None:
            reader.token = PassedOver(self.passed)

    def read(self, *, for_handler: bool) -> "InboxReader":
        """The reader of a subscription; raises ``InboxInUse`` and ``InsideStep``."""
        refuse_inside_step(self.run.lane.run_id, 'subscribe("session:message", ...)')
        reader = InboxReader(self, is_handlers=for_handler)
        self.open_reader(reader)
        reader.is_exclusive = True
        if self.earlier is not None and self.is_behind:
            reading = self.earlier.read_all_messages(self.notify)
            self.run.host(reading, name=self.run.lane.run_id)
        return reader

    def stream(self, idle_timeout: float | None, *, redelivered: bool) -> "MessageStream":
        """The reader of ``ctx.messages``; raises ``InboxInUse`` and ``BadValue``."""
        check_seconds("idle_timeout", idle_timeout)
        stream = MessageStream(self, idle_timeout)
        passed = None if redelivered else self.earlier
        self.passed = self.passed or passed
        self.open_reader(stream)
        if passed is not None:
            passed.pass_over_messages()
            self.earlier = None
        return stream


class InboxReader:
    """The reader of a run's messages: in order, those accepted before it began included.

    The files that come with a message are the run's own from then on, under the names in its
    ``attachments``.

    A message counts as consumed, durably, when the next one is asked for or the run completes;
    a handler's, when it returns.  An execution after a restart begins with those that were
    consumed before (``redelivered``).
    """

    __slots__ = (
        "_current", "_for_others", "_inbox", "_is_handlers", "_others", "_run", "is_exclusive",
        "is_waiting", "on_message", "token", "waiter",
    )  # fmt: skip

    def __init__(self, inbox: RunInbox, *, is_handlers: bool = False) -> None:
        self._inbox = inbox
        self._run = inbox.run
        self._is_handlers = is_handlers
        self.token: object = object()
        """It, for code that handles its messages and may outlive it."""
        self._current: SessionMessage | None = None
        self._for_others = self.is_waiting = False
        self._others: AbstractContextManager[None] | None = None
        """What says that it waits for other runs, inside of a wait."""
        self.is_exclusive = False
        """Whether another reader is refused even while this one is at work."""
        self.waiter: Waiter | None = None
        """What it awaited last, where it is no stream of the hub's."""
        self.on_message: Callable[[], object] = _nothing
        """Called when there is a message to read, or will never be one again."""

    @property
    def run(self) -> CodeScope:
        """The run that reads."""
        return self._run

    @property
    def run_id(self) -> str:
        """Whose inbox it is."""
        return self._run.lane.run_id

    @property
    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come: the run is closed, or over."""
        run = self._run
        return run.is_over or (run.thread.closing and not self._inbox.has_messages)

    def begin(self) -> None:
        """The next message is asked for; raises ``InboxInUse`` where another one reads, and
        ``WrongThread`` or ``WrongLoop``."""
        self._run.services.hub.pipeline.home.check("reading the inbox", IN_ITS_LOOP)
        if self.is_waiting or self._inbox.reader is not self:
            raise InboxInUse(self.run_id)
        refuse_inside_step(self._run.lane.run_id, "reading the inbox")
        self.consume()

    def next_nowait(self) -> SessionMessage | None:
        """The next message, if it is there."""
        inbox = self._inbox
        if self._run.is_over:
            return None
        message = None if inbox.earlier is None else inbox.pop_earlier()
        if message is None:  # One that was consumed before is on record as such.
            message = self._current = None if inbox.is_behind else inbox.pop()
        if message is None:
            return None
        CURRENT_READER.set(self.token)
        return self._with_files(message) if message.files else message

    def _with_files(self, message: SessionMessage) -> SessionMessage:
        """The message with its files in the run's own area, and their names there.

        They are put there once, however often it is read.
        """
        area = self._run.thread.area
        placed = place_files_again(area, message.files)
        new = tuple(ref for ref in placed if ref.path not in area.files)
        if new:
            self._run.record(AgentFile(files=new), None)
        paths = (ref.path for ref in placed)
        return replace(message, attachments=(*message.attachments, *paths))

    def consume(self) -> None:
        """Record the current message as consumed."""
        item, self._current = self._current, None
        if item is not None:
            self._run.consume(item)

    def finish(self) -> tuple[SessionMessage, ...]:
        """The run has completed: the current message, unless a handler has it."""
        item, self._current = self._current, None
        return () if item is None or self._is_handlers else (item,)

    def waiting(self, *, for_others: bool = False) -> AbstractContextManager[None]:
        """Inside, the code waits for the next message; ``for_others``: or for other runs."""
        self._for_others = for_others
        return self

    def __enter__(self) -> None:
        run = self._run
        if self._inbox.is_behind:  # It waits for nobody: what it waits for is being read.
            self.is_waiting = True
            return
        run.will_wait()
        self.is_waiting = True
        # Maybe for what its children say, which then must not wait for its place.
        if self._for_others or run.thread.children:
            others = run.shared.keeper.waiting()
            try:
                others.__enter__()
            except BaseException:
                self.is_waiting = False
                raise
            self._others = others

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        others, self._others = self._others, None
        try:
            if others is not None:
                others.__exit__(kind, error, trace)
        finally:
            self.is_waiting = False

    def release(self) -> None:
        """Let another one read.  A handler's current message is consumed when it returns."""
        self.is_exclusive = False
        self.on_message = _nothing
        if self._is_handlers and self._inbox.reader is self:
            self._inbox.reader = None


class MessageStream(InboxReader):
    """The messages of a run, for ``async for``.

    Ends when the run is closed, or after ``idle_timeout`` seconds of silence.
    """

    __slots__ = ("_idle_timeout",)

    def __init__(self, inbox: RunInbox, idle_timeout: float | None) -> None:
        super().__init__(inbox)
        self._idle_timeout = idle_timeout

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        self.begin()
        if self._inbox.earlier is not None:
            await self._read_on()
        if not self._inbox.has_messages:
            if self._idle_timeout is None:
                # Here, and not in a function of its own: that would be one more frame of each
                # agent that waits.
                while not (self._inbox.messages or self.is_over):
                    self.waiter = self._run.services.hub.pipeline.home.make_waiter()
                    self.__enter__()
                    try:
                        await self.waiter
                    finally:
                        self.__exit__(None, None, None)
            else:
                with anyio.move_on_after(self._idle_timeout):
                    while not (self._inbox.messages or self.is_over):
                        await self._until_woken()
        message = self.next_nowait()
        if message is None:
            raise StopAsyncIteration
        return message

    async def _read_on(self) -> None:
        self.is_waiting = True  # Nobody else reads meanwhile.
        try:
            await self._inbox.read_earlier()
        finally:
            self.is_waiting = False

    async def _until_woken(self) -> None:
        self.waiter = self._run.services.hub.pipeline.home.make_waiter()
        with self.waiting():
            await self.waiter


def _nothing() -> None:
    """What a reader that waits for nothing is woken with."""
