"""``Backlog``: what becomes of the ticks of a schedule with ``misfire="all"`` that are due.

    it came while nothing ran: no process,            ─► fired, when the run is free
    none that drove the run, or a machine that slept
    it came in time, and the run was at work          ─► passed over as busy
    it came in time, and the run was free             ─► fired
    it came while what was missed was made up for     ─► fired, if that does not go on for ever

Whether a run is at work in another process is known for sure only of one that has ended its work:
where the process has died, nothing drives the run until another one claims it.
"""

from typing import Final, Literal, TypeAlias

from hubbub.runtime.schedules.ticks import ON_TIME, Missed

__all__ = ["Backlog", "Verdict", "Where"]

Where: TypeAlias = Literal["nowhere", "here", "elsewhere"]
"""In which process the schedule's run is at work."""

Verdict: TypeAlias = Literal["make up", "fire", "wait", "wait briefly", "pass over"]
"""What is to be done: fire those up to ``Backlog.since`` one after the other; fire the first;
look again when the run is free, or when it is no longer on time; pass over all."""

PROMPT: Final = 1_000_000
"""µs within which a schedule that is served handles a tick."""


class Backlog:
    """Where a schedule stands with what it has missed; times in µs."""

    __slots__ = ("_is_woken", "_made_up", "since")

    def __init__(self, now: int) -> None:
        self.since = now
        """Ticks up to there came while nothing ran."""
        self._made_up = 1
        """How many missed ones were fired last, as long as others come meanwhile; one for a run
        that goes on with what it was at work in."""
        self._is_woken = False
        """Whether a tick has come just now."""

    def looked(self, now: int) -> None:
        """The clock shows ``now``: it may have been set back."""
        self.since = min(self.since, now)

    def woken(self, due: int | None, now: int) -> None:
        """A tick was due for which the schedule is woken ``now``: much later where the machine
        slept."""
        self._is_woken = True
        if due is not None and now - due > PROMPT:
            self.since = now

    def waited(self, since: int, now: int) -> None:
        """The store was waited for: what came while it stood still came while nothing ran."""
        if now - since > PROMPT:
            self.driven(now)

    def driven(self, since: int) -> None:
        """What drives the schedule's run has done so from then on."""
        if since > self.since:
            self.since = since
            self._made_up = self._made_up or 1

    def missed(self, due: Missed) -> tuple[int, ...]:
        """Those among the ticks that are due that are to be made up for."""
        return tuple([tick for tick in due.ticks if tick <= self.since])

    def made_up(self, count: int) -> None:
        """So many missed ones were fired, or waited for."""
        self._made_up = count

    def judge(self, due: Missed, now: int, at_work: Where) -> Verdict:
        """What is to be done with the ticks that are due."""
        first, is_woken = due.ticks[0], self._is_woken
        self._is_woken = False
        if first <= self.since:
            return "make up"
        if at_work == "elsewhere":
            return "wait"
        if self._made_up and (due.count > self._made_up or now - first > ON_TIME):
            self._made_up = 0  # It takes longer to make up for ticks than they take to come.
            return "pass over"
        if at_work == "here":
            return "wait briefly" if self._made_up else "pass over"
        if self._made_up and not is_woken:
            self.since = now
            return "make up"
        self._made_up = 0
        return "fire"
