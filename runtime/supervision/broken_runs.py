"""``BrokenRuns``: runs whose records cannot be read, and who has to learn of that.

    a run cannot be read ──► it is left as it is, and told of once (``quarantine``)
                         ──► its parent gets a last result of it: it has failed
                         ──► a frame's caller gets the conversation, and what was said to it

Rules
-----
* Nothing is written of the run itself: its record and what waits in its inbox stay as they are.
* The parent is told by an item in its inbox, and only once, however often the store is opened.  It
  does not wait for a repair: a backup brings back the parent, too.  A run that is mended by itself
  goes on, and what it sends comes too late for the call that waited for it.
* A frame that somebody speaks to gives the conversation back as one that is missing does
  (``Lending``): the words by which the user asks for just that are taken with it.
* Where the store itself has failed nobody is told: then nothing can be read.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from hubbub.agents.state.family import OPENING, Child
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, HubbubError, StoreFailed
from hubbub.hub.logs import log
from hubbub.hub.store.journal import RunInfo, Selection
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.spending.recorded import pages_of
from hubbub.runtime.supervision.lending import Lending
from hubbub.runtime.supervision.quarantine import Quarantine, unreadable

__all__ = ["BrokenRuns"]

DAMAGED: Final = (
    "its record in the store is damaged, so it does not go on; `hubbub fsck` examines the store"
)
_RESULTS: Final = frozenset((e.SessionResult.type,))


class BrokenRuns:
    """The runs of one runtime that cannot be read."""

    __slots__ = (
        "_families", "_hub", "_left_id", "_live", "_outcomes", "_phase", "_quarantine", "_reported",
        "is_reported", "lend_again",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        live: LiveRuns,
        families: Families,
        outcomes: Outcomes,
        lending: Lending,
        quarantine: Quarantine,
        left_id: Callable[[str], object],
    ) -> None:
        self._hub, self._phase = services.hub, services.phase
        self._live = live
        self._families = families
        self._outcomes = outcomes
        self._quarantine = quarantine
        self.lend_again = lending.lend_again
        """Has those who may speak to a frame look again, which turned out to be missing."""
        self._left_id = left_id
        """Called for a run that does not come into memory."""
        self._reported: set[str] = set()
        self.is_reported = self._reported.__contains__
        """Whether a run's parent is told, or about to be."""

    def leave(self, run_id: str, error: Exception) -> None:
        """Leave a run as it is that could not be read."""
        log.error("run.unreadable", run_id=run_id, exc_info=error)
        self._quarantine.add(run_id, unreadable(self._hub.journal.name, error))
        self._report(run_id)
        self._left_id(run_id)

    def found_damage(self, run_id: str, error: Exception | None = None) -> None:
        """The store could not read a run that something was sent to, or that is waited for."""
        error = error or BadValue(f"run {run_id}", "its row has changed")
        self._quarantine.add(run_id, unreadable(self._hub.journal.name, error))
        self._report(run_id)
        self._outcomes.changed(run_id)

    def _report(self, run_id: str) -> None:
        hub = self._hub
        if run_id in self._reported or self._phase.is_leaving or hub.is_closed:
            return
        if not hub.journal.failure:
            self._reported.add(run_id)
            hub.tasks.start(self._tell(run_id), name="hubbub damage", steady=True)

    async def _tell(self, run_id: str) -> None:
        parent = root = ""
        try:
            info = await self._info(run_id)
            parent, root = await self._above(run_id, info)
            is_own = bool(parent) and self._hub.share.owns(root)
            is_told = is_own and await self._tell_parent(run_id, info, parent, root)
        except Exception as error:  # What is above it cannot be read, either.
            log.warning("run.not_reported", run_id=run_id, to=parent, error=str(error))
            is_told = False
        if not is_told:
            self._reported.discard(run_id)
            self._outcomes.changed(run_id)
            self._outcomes.changed(root)

    async def _info(self, run_id: str) -> RunInfo | None:
        try:
            return await self._hub.journal.info(run_id)
        except HubbubError:  # Its row is what is damaged.
            return None

    async def _above(self, run_id: str, info: RunInfo | None) -> tuple[str, str]:
        """A run's parent and root, by its row, or by the first of its events."""
        if info is not None:
            return info.parent_run_id or "", info.root_run_id
        journal = self._hub.journal
        first, _ = await journal.read(Selection(run_id=run_id), until=journal.tip, limit=1)
        return (first[0].parent_run_id or "", first[0].root_run_id) if first else ("", "")

    async def _tell_parent(self, run_id: str, info: RunInfo | None, parent: str, root: str) -> bool:
        """Put a last result of a run into its parent's inbox, if that expects any."""
        self.lend_again(parent, root)
        try:
            found = await self._families.look_at(parent)
        except (BadValue, StoreFailed) as error:
            if self._live.find(parent) is None and not self._hub.journal.failure:
                self.found_damage(parent, error)  # So it goes on upwards.
            raise
        if found is None:
            return False
        thread = found[1]()
        child = thread.family.find(run_id)
        if thread.phase == "ended" or child is None or child.ended or not child.reports:
            return False
        if child.takeover and run_id not in thread.frames:
            return False  # It was given back just now, or long ago.
        sessions = await self._sessions(parent, run_id)
        if sessions is None:
            return True
        is_idle = info is not None and info.status == "parked" and not info.waiting
        if is_idle or any(given_up == run_id for given_up, _ in thread.family.given_up):
            numbers: Iterable[int] = (0,)  # Nothing is owed; but that it is over has to be known.
        else:
            numbers = count(sessions + 1)  # The last ones may have gone with old turns.
        for session in numbers:
            receipt = self._hub.pipeline.deliver(_failure(child, session), to=parent)
            await receipt
            if not receipt.duplicate:
                return receipt.accepted
        return True

    async def _sessions(self, parent: str, run_id: str) -> int | None:
        """How many sessions a run has reported to its parent; ``None`` where its end is."""
        journal = self._hub.journal
        results = [
            event
            async for page in pages_of(journal, parent, _RESULTS)
            for event in page
            if isinstance(event, e.SessionResult) and event.child_run_id == run_id
        ]
        if any(result.final for result in results):
            return None
        return max((result.session for result in results), default=0)


def _failure(child: Child, session: int) -> e.SessionResult:
    return e.SessionResult(
        child_run_id=child.run_id, child_agent=child.agent, name=child.name, session=session,
        success=False, outcome="failed", reason=DAMAGED, final=True,
        answers=(OPENING,) if child.takeover else (),
    )  # fmt: skip
