"""``Resting``: whether a model run is at work, and what keeps it in memory."""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.signals import Parked, Signal
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.kernel.mailbox import Mailbox
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.runs.activity_tasks import ActivityTasks
from hubbub.runtime.runs.run_meter import RunMeter

__all__ = ["NO_HOOK_EVENTS", "Resting", "with_hook_events"]

NO_HOOK_EVENTS: Final[deque[tuple[str, Any]]] = deque(maxlen=0)
"""Of every run that has none; an empty one of its own would take 600 bytes."""


def with_hook_events(
    waiting: deque[tuple[str, Any]], new: Iterable[tuple[str, Any]]
) -> deque[tuple[str, Any]]:
    """What hooks have yet to see, and these."""
    events = deque() if waiting is NO_HOOK_EVENTS else waiting
    events += new
    return events


class Resting:
    """What a model run in memory is asked by its keeper."""

    __slots__ = ()

    thread: Thread
    lane: OwnLane
    mail: Mailbox
    signals: tuple[Signal, ...]
    hook_events: deque[tuple[str, Any]]
    _meter: RunMeter | None
    _services: Services
    _tasks: ActivityTasks

    def is_at_rest(self, waits: int) -> bool:
        """Whether no more activities are under way than wait for other runs."""
        waits += sum(each.ordinal > 0 for each in self.thread.prompts)
        return len(self._tasks.running) <= waits and not (self.signals or self.lane.in_flight)

    @property
    def is_at_work(self) -> bool:
        """Whether the run is in the middle of something."""
        return self.thread.phase == "live" and not self.thread.parked

    @property
    def depth(self) -> int:
        """How far below its root the run is."""
        return self.thread.origin.depth

    @property
    def side_at_work(self) -> str:
        """The side that acts, where there are two; else empty."""
        return self.thread.side if self.thread.two_sided else ""

    @property
    def is_idle(self) -> bool:
        """Whether the run only waits for its children: it may leave memory meanwhile."""
        return self._only_waits and not self._lends

    def reader(self) -> tuple[object | None, bool]:
        """No code reads the inbox."""
        return None, False

    @property
    def only_lends(self) -> bool:
        """Whether it only waits, too, but must be there: what was said is for the frame
        that has the conversation, which is found through this run."""
        return self._only_waits and self._lends

    def _rest(self) -> Parked:
        """The signal that nothing is due, where not all turns are to be kept."""
        worked = 0 if self._meter is None else self._meter.worked
        return Parked(self._services.turns.kept, worked)

    @property
    def _only_waits(self) -> bool:
        is_wanted = self.mail.control or self.mail.results
        is_working = self._tasks.running or self.signals or self.lane.in_flight
        # Hooks that have yet to be called know of it from this process alone.
        return self.thread.waits and not (is_working or is_wanted or self.hook_events)

    @property
    def _lends(self) -> bool:
        thread = self.thread
        return bool(self.mail.said) and thread.frame is not None and not thread.origin.frame
