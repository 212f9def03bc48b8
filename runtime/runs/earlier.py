"""``Earlier``: what earlier executions of a code agent have left, read as the function asks for it.

A short run's lane is in memory when it comes back.  Of a long one, which comes back from its
snapshot, it is read page by page, in order: no further than the function has come.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from hubbub.agents.code.durable_steps import RECALLED, recall
from hubbub.agents.code.lifecycle import CodeThread
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, SessionMessage
from hubbub.hub.store.journal import Selection
from hubbub.hub.values import Json
from hubbub.runtime.runs.code_scope import CodeScope

__all__ = ["PAGE", "Earlier", "PassedOver"]

PAGE: Final = 500
"""Events that are read at once."""


class Earlier:
    """The consumed messages and the results of steps that one execution has not come to yet."""

    __slots__ = (
        "_consumed", "_handled", "_messages", "_position", "_reading", "_records", "_run", "_since",
        "_steps", "_unread", "is_passed_over",
    )  # fmt: skip

    def __init__(
        self, run: CodeScope, thread: CodeThread, events: Sequence[Event] | None = None
    ) -> None:
        """``thread`` says how much there is; ``events`` are the whole lane, where that is known."""
        self._run = run
        self._steps: dict[tuple[str, int], Json] = {}
        self._messages: deque[SessionMessage] = deque()
        self._records, self._unread = thread.records, thread.consumed
        """How many results have not been read, and messages not been yielded or passed over."""
        self._consumed = thread.consumed
        """How many messages have not been read, passed over or not."""
        self._handled: dict[str, int] = {}
        """By name, the number of the last step before the last message that was read."""
        self._since: dict[str, int] = {}
        """The same of those behind that."""
        self.is_passed_over = False
        """Whether the execution has passed over the messages that it had not had."""
        self._position = 0
        self._reading = anyio.Lock(fast_acquire=True)
        if events is not None:
            self._keep(events)

    @property
    def has_messages(self) -> bool:
        """Whether there are messages that the execution has not had."""
        return bool(self._messages or self._unread > 0)

    @property
    def is_behind(self) -> bool:
        """Whether the next of these has to be read first."""
        return self._unread > 0 and not self._messages

    def next_message(self) -> SessionMessage | None:
        """The next message that was consumed before, if it has been read."""
        return self._messages.popleft() if self._messages else None

    def pass_over_messages(self) -> None:
        """The execution wants none of them."""
        self._messages.clear()
        self._unread = 0
        self.is_passed_over = True

    async def read_messages(self) -> None:
        """Read on until there is a message, or will be none."""
        while self.is_behind:
            await self._read_on(self._position)

    async def read_all_messages(self, on_page: Callable[[], object]) -> None:
        """Read them all, for who cannot wait for a page; in a task of its own."""
        while self._unread > 0:
            try:
                await self._read_on(self._position)
            except Exception:  # Which is told, and the run is left.
                return
            on_page()

    async def find_step(self, name: str, number: int) -> Json | None:
        """The result of a step, if it is on record.  It is given once."""
        place = (name, number)
        while place not in self._steps and self._records > 0:
            await self._read_on(self._position)
        return self._steps.pop(place, None)

    async def handled_steps(self, name: str) -> int:
        """The number of the last step of that name before the last message that was consumed; 0
        where there is none."""
        while self._records > 0 or (self._since and self._consumed > 0):
            await self._read_on(self._position)
        return self._handled.get(name, 0)

    async def _read_on(self, position: int) -> None:
        """Read the page behind a position, unless another task has meanwhile."""
        run = self._run
        async with self._reading:
            if position != self._position:
                return
            journal, wanted = run.services.hub.journal, Selection(
                run_id=run.lane.run_id, match=RECALLED.__contains__
            )  # fmt: skip
            try:
                events, reached = await journal.read(wanted, after=position, limit=PAGE)
                if reached == position:
                    raise BadValue(f"run {run.lane.run_id}", "a part of it is missing; see fsck")
            except Exception as error:
                run.left_unread(error)
                raise
            self._position = reached
            self._keep(events)

    def _keep(self, events: Sequence[Event]) -> None:
        """Take what is of earlier executions; this one's own follows."""
        found = recall(events)
        steps = found.steps[: max(self._records, 0)]
        self._records -= len(found.steps)
        read = min(len(found.messages), self._consumed)
        done = found.places[read - 1] if read > 0 else 0
        if read > 0:
            self._handled.update(self._since)
            self._since.clear()
        self._handled.update(place for place, _ in steps[:done])
        self._since.update(place for place, _ in steps[done:])
        self._consumed -= read
        self._steps.update(steps)
        self._messages += found.messages[: max(self._unread, 0)]
        self._unread -= len(found.messages)


class PassedOver:
    """The token of a reader for which consumed messages were passed over."""

    __slots__ = ("earlier",)

    def __init__(self, earlier: Earlier) -> None:
        self.earlier = earlier
