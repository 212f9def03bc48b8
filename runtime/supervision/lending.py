"""``Lending``: what was said to a conversation is lent to the frame that has it.

    root's mailbox ──► the frame that the root waits for ──► the frame that that one waits for ──► …

Each that is not in memory is brought there first.
"""

from collections.abc import Callable, Sequence

from hubbub.agents.state.thread import Thread
from hubbub.hub.events import InLane
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.kernel.mailbox import Mailbox
from hubbub.runtime.supervision.quarantine import Quarantine

__all__ = ["Lending"]


class Lending:
    """The conversations of one runtime (``ConversationKeeper``)."""

    __slots__ = ("_bring", "_families", "_live", "_quarantine")

    def __init__(
        self,
        live: LiveRuns,
        families: Families,
        quarantine: Quarantine,
        bring: Callable[[str], object],
    ) -> None:
        self._live = live
        self._families = families
        self._quarantine = quarantine
        self._bring = bring
        """Has a run brought into memory, whether there is room for it or not."""

    def lent_to(self, lane: OwnLane, thread: Thread) -> Mailbox | None:
        """The mailbox of the conversation that a frame has, if there is anything for it."""
        root = self._live.find_model_run(lane.root_run_id)
        if root is None or not root.mail.lends or not thread.converses:
            return None
        return root.mail if self._families.has_conversation(lane) else None

    def note_taken(self, lane: OwnLane, items: Sequence[InLane]) -> None:
        """What a frame has taken waits no longer, whatever has become of the frame since hooks were
        shown it."""
        root = self._live.find_model_run(lane.root_run_id)
        if root is not None and root.mail.said:
            root.mail.remove(items)

    def lend(self, frame_run_id: str, below: tuple[str, ...] = ()) -> str:
        """Have a frame look at what was said to its conversation, wherever the frame is.

        ``below`` are frames that wait for it.  Returns why it cannot; empty where it can, or where
        that is about to turn out.
        """
        if why := self._quarantine.why(frame_run_id):
            return why
        run = self._live.find_model_run(frame_run_id)
        if run is not None:
            run.advance()
            return ""
        above = self._families.frame_of(frame_run_id)
        if above and above not in below and not self.lend(above, (*below, frame_run_id)):
            return ""
        self._bring(frame_run_id)
        return ""

    def lend_again(self, parent_run_id: str | None, root_run_id: str) -> None:
        """A frame turned out to be missing: the run that speaks to it has to learn of that."""
        for run_id in (parent_run_id, root_run_id):
            if (run := self._live.find_model_run(run_id or "")) is not None:
                run.advance()
