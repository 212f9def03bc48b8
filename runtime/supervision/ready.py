"""``ReadyRuns``: the runs that are to come into memory, in their order.

    enqueue ──► at once, where there is room, or it ends something ──► activated
       └──────► else by a task, when there is; a few at a time, so that others get their turn

What ends something goes before the others and waits for no room: those below it may have all of
it, and there is more when it has ended.  But a run that has nothing to end keeps its place: what
it does next takes room.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from hubbub.agents.state.commands import command_of
from hubbub.hub import events as e
from hubbub.hub.events import InLane
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.store.journal import LoadedRun
from hubbub.runtime.supervision.capacity import Capacity

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["ENDINGS", "ReadyRuns", "is_to_end", "stops"]

MAX_HELD: Final = 16
"""Items of a new run that are kept for its activation; with more it is read from the journal."""

BREATH: Final = 50
"""Runs that are activated in a row before others get their turn."""

ENDINGS: Final = (e.SessionTerminate, e.SessionCancel)
"""Items that end a run, whatever it is at."""

_STOPS: Final = (*ENDINGS, e.SessionAbort, e.SessionReset)


def stops(item: InLane) -> bool:
    """Whether an item ends what its run is at, if it is at anything."""
    return isinstance(item, _STOPS) or bool(command_of(item))


def is_to_end(loaded: LoadedRun, held: Sequence[InLane] = (), *, is_overdue: bool = False) -> bool:
    """Whether a run that is not in memory ends what it is at, as soon as it is there.

    ``held`` has come since it was read; ``is_overdue``: its time is over.  One that is at nothing
    has nothing to interrupt; one that never began has to begin.  A user's word ends a frame, which
    is waited for; where a person was asked something else it is an answer, and the run continues.
    """
    items = (*loaded.waiting, *held)
    if any(isinstance(item, ENDINGS) for item in items):
        return True
    if is_overdue:
        return loaded.seq > 0
    match loaded.info.status:
        case "waiting":
            return any(map(stops, items))
        case "active":
            return loaded.seq > 0 and any(isinstance(item, _STOPS) for item in items)
        case _:
            return False


class ReadyRuns:
    """The runs of one runtime that wait for their activation."""

    __slots__ = (
        "_activate", "_became_ready", "_callers", "_capacity", "_has_told", "_hub", "_task",
        "breath", "ending", "held",
    )  # fmt: skip

    def __init__(
        self,
        hub: Hub,
        capacity: Capacity,
        callers: Container[str],
        activate: Callable[[str], object],
    ) -> None:
        self._hub = hub
        self._capacity = capacity
        self._callers = callers
        """Runs that a caller activates itself."""
        self._activate = activate
        """Takes a run out of ``held`` and into memory."""
        self.held: OrderedDict[str, list[InLane]] = OrderedDict()
        """The runs, in order; with what has come for those that were just opened."""
        self.ending: set[str] = set()
        """Those that end something: the first ones of them."""
        self.breath = 0
        """How many more may be activated before others get their turn; none before ``open``."""
        self._has_told = False
        """Whether it was said that runs wait for room, since the last time that none did."""
        self._became_ready: anyio.Event | None = None
        self._task: TaskHandle[Any, None] | None = None

    def open(self) -> None:
        """From now on runs may be activated.  What has come before waits with the others: nothing
        is known yet of what earlier runtimes have left."""
        self.breath = BREATH

    def begin(self) -> None:
        """Activate in a task what is not activated at once."""
        self._task = self._hub.tasks.start(
            self._activate_all(), name="hubbub activation", steady=True
        )

    def stop(self) -> None:
        """Activate nothing more."""
        self.held.clear()
        self.ending.clear()
        if self._task is not None:
            self._task.cancel()

    def enqueue(self, run_id: str, item: InLane | None) -> None:
        """Have a run activated: at once, or, where many come together, in a task, so that those who
        open them or send to them continue meanwhile."""
        held = self.held.get(run_id)
        if held is None:
            # A run that was just opened needs no reading: its inbox is what is held here.
            is_new = isinstance(item, e.SessionOpen) and item.seq == 1
            self.held[run_id] = [item] if is_new and item is not None else []
            if is_new and run_id in self._callers:
                return  # A caller activates its run itself.
            if self.breath and len(self.held) == 1 and self._capacity.has_room():
                self.breath -= 1
                self._activate(run_id)
            if self.held or not self.breath:
                self.look()
        elif item is None or len(held) >= MAX_HELD:
            held.clear()
        elif held:
            held.append(item)

    def end(self, run_id: str) -> None:
        """A ready run is to end what it is at."""
        if run_id in self.held:
            self.ending.add(run_id)
            self.held.move_to_end(run_id, last=False)
            if self.breath:
                self.breath -= 1
                self._activate(run_id)
            else:
                self.look()

    def look(self) -> None:
        """There may be a run to activate, or room."""
        if self._became_ready is not None:
            self._became_ready.set()
            self._became_ready = None

    async def _activate_all(self) -> None:
        """Activate ready runs, in order, while there is room."""
        while True:
            self.breath = activated = 0
            while self.held and (self.ending or self._capacity.has_room()):
                self._activate(next(iter(self.held)))
                activated += 1
                if not activated % BREATH:
                    await anyio.lowlevel.checkpoint()
            self.breath = BREATH
            if self.held and not self._has_told:
                log.warning(
                    "runs.wait_for_room", waiting=len(self.held), max_live=self._capacity.most,
                    remedy="raise max_live; code that waits for messages keeps its place",
                )  # fmt: skip
            self._has_told = bool(self.held)
            self._became_ready = self._hub.tasks.home.make_event()
            await self._became_ready.wait()
