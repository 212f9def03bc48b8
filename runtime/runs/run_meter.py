"""``RunMeter``: which limit a model run has reached, and when its time at work is over."""

from typing import Final, Protocol

from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.spending import NOTHING_SPENT
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.stop import Worked, limit_reached
from hubbub.hub import events as e
from hubbub.hub.events import Limits
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Commit
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.kernel.timers import Timer
from hubbub.runtime.spending.accounts import TreeAccount
from hubbub.runtime.spending.recorded import Work, is_working

__all__ = ["RunMeter"]

RESOLUTION: Final = 1_000
"""Microseconds by which a timer may be early."""

MIN_WAIT: Final = 0.001
"""Seconds after which it is looked again, at the earliest."""


class MeteredRun(Protocol):
    """The run whose limits these are."""

    @property
    def lane(self) -> OwnLane: ...

    @property
    def thread(self) -> Thread: ...

    @property
    def side(self) -> ActiveSide | None: ...

    def reach_limit(self, limit: str) -> None:
        """The time of what is under way is over."""
        ...


class RunMeter:
    """Made for runs with limits only: of their turns, of their agent, or of their tree.

    Time passes while the run is at work.  A timer is set for what is left of it, and set anew with
    each commit.
    """

    __slots__ = ("_account", "_is_timed", "_run", "_services", "_since", "_timer", "_work")

    def __init__(self, run: MeteredRun, services: Services, *, is_here: bool) -> None:
        self._run = run
        self._services = services
        self._account: TreeAccount | None = None
        self._work = Work()
        self._is_timed = False
        self._since = 0
        """Since when the run is at work (µs); 0 where it is not."""
        self._timer: Timer | None = None
        self.look(is_here=is_here)

    def look(self, *, is_here: bool = True) -> None:
        """The limits have changed; or the run has just come back from the journal."""
        run, accounts = self._run, self._services.accounts
        lane = run.lane
        self._account = account = accounts.account_of(lane)
        if not accounts.times(run.thread.agent or lane.agent, account):
            return
        self._work = work = accounts.work_of(lane.run_id)
        now = self._services.hub.ports.clock.now()
        # What is under way since before its time was limited, is read from the journal.
        began = (work.last if is_here else 0) or now
        self._begin(run.thread, self._since if self._is_timed and self._since else began, now)
        self._is_timed = True

    def used_up(self) -> str:
        """The name of the limit that is reached."""
        turn, own, tree = self._limits()
        account = self._account
        spent = NOTHING_SPENT if account is None else account.spent
        return limit_reached(self._run.thread, turn, own, tree, spent, self._worked(0))

    def _limits(self) -> tuple[Limits | None, Limits | None, Limits | None]:
        """Of the turn, of the run, of the tree."""
        run, account = self._run, self._account
        side = run.side
        definition = self._services.definitions.find_agent(run.thread.agent or run.lane.agent)
        return (
            None if side is None else side.prompt.limits,
            None if definition is None else definition.run_limits,
            None if account is None else account.limits,
        )

    @property
    def worked(self) -> int:
        """How long the run was at work by its last commit (µs), where its time is limited."""
        return self._work.run

    def _worked(self, more: int) -> Worked:
        work, account = self._work, self._account
        tree = 0 if account is None else account.worked
        return Worked(work.run - work.before_turn + more, work.run + more, tree + more)

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def follow(self, before: Thread, thread: Thread, commit: Commit) -> None:
        """A commit is about to be submitted."""
        if not self._is_timed:
            return
        at, work = commit.events[0].at, self._work
        if self._since and not isinstance(commit.events[0], e.AgentRestore):
            work.run += max(0, at - self._since)
            if self._account is not None:
                self._account.note_work(self._run.lane.run_id, work.run)
        if thread.turn != before.turn:
            work.before_turn = work.run
        self._begin(thread, at, at)

    def _begin(self, thread: Thread, at: int, now: int) -> None:
        self.close()
        self._since = at if is_working(thread) else 0
        if self._since:
            seconds = self._left(max(0, now - at))
            if seconds is not None:
                self._timer = self._services.timers.after(seconds, self._look_at_time)

    def _left(self, more: int = 0) -> float | None:
        """The seconds until the first limit of time is reached; none where there is no such."""
        worked = self._worked(more)
        amounts = (worked.turn, worked.run, worked.tree)
        left = [
            limits.seconds - amount / 1_000_000
            for limits, amount in zip(self._limits(), amounts, strict=True)
            if limits is not None and limits.seconds is not None
        ]
        return max(0.0, min(left)) if left else None

    def _look_at_time(self) -> None:
        """The timer has fired; what a limit is now, and what others have used meanwhile, counts."""
        self._timer = None
        now = self._services.hub.ports.clock.now()
        turn, own, tree = self._limits()
        worked = self._worked(max(0, now - self._since))
        for name, limits, amount in (
            ("turn", turn, worked.turn), ("run", own, worked.run), ("tree", tree, worked.tree),
        ):  # fmt: skip
            seconds = None if limits is None else limits.seconds
            if seconds is not None and amount >= seconds * 1_000_000 - RESOLUTION:
                self._run.reach_limit(f"{name}.seconds")
                return
        left = self._left(max(0, now - self._since))
        if left is not None:
            self._timer = self._services.timers.after(max(left, MIN_WAIT), self._look_at_time)

    def close(self) -> None:
        """Set no timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
