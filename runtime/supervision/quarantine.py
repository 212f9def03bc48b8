"""``Quarantine``: runs that are left as they are for as long as this runtime is open.

A run whose definition is missing, whose record cannot be read, or in whose lane another process has
written, stays in the journal untouched.
It is reported once, with the remedy, in the log and as ``hub:error``; messages to it are refused
for the reason, everything else waits in its inbox.  It can be terminated, and its deadline still
ends it, where its record can be read.

What a boot has to say is held back until the runtime is open, so that its user can listen.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from hubbub.agents.turn.missing import ResumeProblem
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import (
    AgentRestore,
    Event,
    HubDeadLetter,
    HubErrorEvent,
    InLane,
    SessionCancel,
    SessionDropped,
    SessionTerminate,
)
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Commit

__all__ = ["Quarantine", "dead_letter", "owned_elsewhere", "unreadable"]

UNREADABLE: Final = "unreadable"


def unreadable(store: str, error: Exception) -> ResumeProblem:
    """Why a run that cannot be read is left alone."""
    problem = f"{type(error).__name__}: {error}"[:1000]
    return ResumeProblem(
        UNREADABLE,
        f"its record in store {store!r} cannot be read ({problem}); run `hubbub fsck`, and put "
        "the store back from a backup",
    )


def owned_elsewhere(store: str) -> ResumeProblem:
    """Why a run is left alone that another runtime drives."""
    return ResumeProblem(
        "owned elsewhere",
        f"another runtime runs it in store {store!r}; open a store in one runtime only",
    )


def dead_letter(item: InLane, reason: str) -> HubDeadLetter:
    """The dead letter for an accepted item that will not be handled."""
    return HubDeadLetter(
        to=item.run_id, reason=reason, message=item, run_id=item.run_id,
        root_run_id=item.root_run_id, parent_run_id=item.parent_run_id, agent=item.agent,
    )  # fmt: skip


class Quarantine:
    """The runs that are left alone, and why; and what is to be said of them."""

    __slots__ = ("_hub", "_is_open", "_kept", "_why")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._why: dict[str, ResumeProblem] = {}
        self._is_open = False
        self._kept: list[Event] = []

    def ignores(self, item: InLane) -> bool:
        """Whether an item has to wait in its inbox until the run is resumed."""
        why = self._why.get(item.run_id)
        if why is None:
            return False
        return why.reason == UNREADABLE or not isinstance(item, SessionTerminate | SessionCancel)

    def reason(self, run_id: str) -> str:
        """Why messages to a run are refused; empty where they are not."""
        why = self._why.get(run_id)
        return why.reason if why is not None else ""

    def why(self, run_id: str) -> str:
        """The same, in words for the run that has called this one."""
        why = self._why.get(run_id)
        return why.remedy.partition(";")[0] if why is not None else ""

    def error(self, run_id: str) -> OperatorError | None:
        """What is raised to those who wait for a run that does not continue."""
        why = self._why.get(run_id)
        if why is None:
            return None
        return OperatorError(f"run {run_id} cannot continue: {why.remedy}")

    def add(self, run_id: str, why: ResumeProblem, lane: OwnLane | None = None) -> None:
        """Leave a run alone from now on, and say so once."""
        if run_id in self._why:
            return
        self._why[run_id] = why
        about = HubErrorEvent(
            error=f"run {run_id} is left as it is: {why.remedy}", error_type=why.reason,
            during="agent:restore", run_id=run_id,
        )  # fmt: skip
        if lane is not None:
            about = structs.replace(
                about, root_run_id=lane.root_run_id, parent_run_id=lane.parent_run_id,
                agent=lane.agent,
            )  # fmt: skip
        log.warning(
            "run.withheld", run_id=run_id, agent=about.agent, reason=why.reason, remedy=why.remedy
        )
        self.emit(about)

    def release(self, run_id: str) -> None:
        """The run ends, or is looked at again."""
        self._why.pop(run_id, None)

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def emit(self, event: Event) -> None:
        """Emit an event, as soon as there may be subscribers."""
        hub = self._hub
        if not self._is_open:
            self._kept.append(event)
        elif not hub.is_closed:
            hub.emit(event)

    def report_folders(self, problems: Iterable[str]) -> None:
        """Agents' folders were not adopted."""
        for problem in problems:
            self.emit(
                HubErrorEvent(error=problem, error_type="agent folder", during=AgentRestore.type)
            )

    def report_dropped(self, event: SessionDropped, commit: Commit) -> None:
        """A commit is done by which a run has dropped items: each has its letter."""
        for item in event.items if not commit.error else ():
            self.emit(dead_letter(item, event.reason))

    def opened(self) -> None:
        """The runtime is open: its user listens from his next turn on."""
        if self._kept:
            self._hub.tasks.start(self._emit_kept(), name="hubbub boot", steady=True)
        else:
            self._is_open = True

    async def _emit_kept(self) -> None:
        self._is_open = True
        kept, self._kept = self._kept, []
        for event in kept:
            self.emit(event)
