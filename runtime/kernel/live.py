"""``LiveRuns``: the runs that are in memory, and what they may say to their supervisor.

Families, Outcomes, Spawner ──► LiveRuns ◄── Supervisor, which puts runs in and takes them out
a run ──► RunKeeper: it left, died, waits, … ──► Supervisor
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeGuard

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import AgentChild, InLane, SessionDropped
from hubbub.hub.masking import Masker
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.runtime.kernel.mailbox import Mailbox

__all__ = ["ConversationKeeper", "LiveModelRun", "LiveRun", "LiveRuns", "RunKeeper"]


class LiveRun(Protocol):
    """A run in memory."""

    @property
    def lane(self) -> OwnLane: ...

    @property
    def thread(self) -> Thread | CodeThread: ...

    @property
    def depth(self) -> int:
        """How far below its root the run is."""
        ...

    @property
    def side_at_work(self) -> str:
        """The side that acts, where there are two; else empty."""
        ...

    def is_at_rest(self, waits: int) -> bool:
        """Whether nothing is under way that a runtime being left should give time to.

        In ``waits`` of its tasks the run's code waits for other runs, which are asked themselves.
        """
        ...

    @property
    def is_at_work(self) -> bool:
        """Whether the run is in the middle of something."""
        ...

    def reader(self) -> tuple[object | None, bool]:
        """What the code has that reads the run's inbox, and whether it awaits the next message."""
        ...

    @property
    def only_lends(self) -> bool:
        """Whether it only waits, but must be there: what was said to it is for its frame."""
        ...

    def wake(self, item: InLane) -> None:
        """An item has entered the inbox."""
        ...

    def pass_deadline(self) -> None:
        """The run's time is over."""
        ...

    def meet_limits(self) -> None:
        """What its tree may use has changed."""
        ...

    def outlived_restart(self) -> None:
        """Write, once after a restart, that it has come as far as to wait."""
        ...

    def secrets(self) -> frozenset[str]:
        """The values that nothing said of this run's failures may quote."""
        ...

    def append_child(self, event: AgentChild, delivery: Delivery) -> None:
        """Write that a child was started, together with its start."""
        ...

    def close(self) -> None:
        """Cancel everything that runs, unrecorded; permanently."""
        ...


class LiveModelRun(LiveRun, Protocol):
    """A model's run in memory."""

    @property
    def thread(self) -> Thread: ...

    @property
    def mail(self) -> Mailbox: ...

    @property
    def is_idle(self) -> bool:
        """Whether the run only waits for its children: it may leave memory meanwhile."""
        ...

    def advance(self) -> None:
        """Do what is due until there is something to wait for."""
        ...


class LiveRuns:
    """The runs of one runtime that are in memory, by run id."""

    __slots__ = ("by_id", "find")

    def __init__(self) -> None:
        self.by_id: dict[str, LiveRun] = {}
        self.find = self.by_id.get
        """The run, or ``None``."""

    def reader_of(self, run_id: str) -> tuple[object | None, bool]:
        """The reader of a run's inbox, and whether it awaits the next message."""
        run = self.by_id.get(run_id)
        return run.reader() if run is not None else (None, False)

    def find_model_run(self, run_id: str) -> LiveModelRun | None:
        """The run, if it is in memory and a model's."""
        run = self.by_id.get(run_id)
        return run if run is not None and _is_model_run(run) else None


def _is_model_run(run: LiveRun) -> TypeGuard[LiveModelRun]:
    return isinstance(run.thread, Thread)


class RunKeeper(Protocol):
    """What a run says of itself to what keeps it in memory."""

    def left(self, run: LiveRun) -> None:
        """It has parked, or is over."""
        ...

    def refused(self, run: LiveRun, commit: Commit) -> None:
        """The store has refused a commit of it."""
        ...

    def died(self, run: LiveRun, error: BaseException) -> None:
        """Its loop has raised."""
        ...

    def unreadable(self, run: LiveRun, error: Exception) -> None:
        """What is on record of it, and needed, cannot be read."""
        ...

    def waits(self, run_id: str) -> None:
        """It has nothing to do until one of its children reports."""
        ...

    def progressed(self, run_id: str) -> None:
        """It was restored, and has made progress since, or waits."""
        ...

    def mark_trial(self, commit: Commit) -> None:
        """A commit of a restored run is about to be submitted."""
        ...

    def report_dropped(self, event: SessionDropped, commit: Commit) -> None:
        """A commit by which it has dropped items is done."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Inside, the current code only waits for what other runs do."""
        ...

    def waiting_in(self, run_id: str) -> int:
        """In how many of its tasks the code of a run waits for others."""
        ...

    def masker(self, *run_ids: str) -> Masker:
        """What takes the values of these runs' secrets out of what is said of failures."""
        ...


class ConversationKeeper(Protocol):
    """Who has a conversation, while it is given away."""

    def lent_to(self, lane: OwnLane, thread: Thread) -> Mailbox | None:
        """The mailbox of the conversation that a frame has, if there is anything for it."""
        ...

    def note_taken(self, lane: OwnLane, items: Sequence[InLane]) -> None:
        """What a frame has taken waits no longer."""
        ...

    def lend(self, frame_run_id: str) -> str:
        """Have a frame look at what was said to its conversation.

        Returns why it cannot; empty where it can, or where that is about to turn out.
        """
        ...
