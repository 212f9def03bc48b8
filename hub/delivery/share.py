"""``HubShare``: what a hub hears of the other processes at work on its store.

    others' events ─► dispatch, in their place in the order ─► the owner's mail
    trees claimed, trees lost ─► the owner of runs

Of a store that is one process's it hears nothing, and everything is its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from hubbub.hub.delivery.dispatch import Dispatcher
from hubbub.hub.events import (
    AgentComplete,
    Event,
    InLane,
    SessionPrompt,
    SessionPromptEnd,
    SessionReply,
)
from hubbub.hub.store.sharing import RemovedTree, Sharing, sharing_of

__all__ = ["HubShare"]

_OF_PROMPTS: Final = (SessionReply, SessionPrompt, SessionPromptEnd)


class HubShare:
    """A hub as the journal of a shared store knows it."""

    __slots__ = (
        "_dispatcher", "_early", "_has_offered", "_prompted", "_replied", "_run_ended", "sharing",
    )  # fmt: skip

    def __init__(
        self,
        dispatcher: Dispatcher,
        replied: Callable[[SessionReply], object],
        prompted: Callable[[SessionPrompt | SessionPromptEnd], object],
        run_ended: Callable[[str], object],
    ) -> None:
        self._dispatcher = dispatcher
        self._replied = replied
        """Called for a reply that another process has brought, ahead of its dispatch."""
        self._prompted = prompted
        """Called for what another process asks in nobody's name, and for the end of that."""
        self._early: dict[str, None] = {}
        """Trees that were claimed before there was an owner of runs."""
        self._has_offered = False
        self._run_ended = run_ended
        """Called for a run that has ended in another process, behind the dispatch of that."""
        self.sharing: Sharing | None = sharing_of(dispatcher.journal)
        """``None`` where the store is one process's."""

    def begin(self) -> None:
        """Hear what is written from now on; in the same breath in which the journal is opened.

        A hub by itself drives no runs: where nothing was offered, no tree is to be its own.
        """
        if self.sharing is not None:
            if not self._has_offered:
                self.sharing.offer((), 0)
            self.sharing.attach(self)

    def offer(self, agents: Collection[str], capacity: int | None) -> None:
        """A runtime takes trees of these agents, at most ``capacity``."""
        if self.sharing is not None:
            self._has_offered = True
            self.sharing.offer(agents, capacity)

    async def declare(self, definitions: Mapping[str, str], *, replaces: bool) -> None:
        """Say how a runtime has defined its agents; raises ``OtherDefinition``."""
        if self.sharing is not None:
            await self.sharing.declare(definitions, replaces=replaces)

    def leave(self) -> None:
        """The hub is being closed: what others write is waited for no more."""
        if self.sharing is not None:
            self.sharing.leave()

    def owns(self, root_run_id: str) -> bool:
        """Whether the runs of a tree are this process's to drive."""
        return self.sharing is None or self.sharing.owns(root_run_id)

    def is_early(self, root_run_id: str) -> bool:
        """Whether a tree was claimed, and no owner of runs was told so far."""
        return root_run_id in self._early

    def take_early(self) -> Sequence[str]:
        """The trees that were claimed before there was an owner of runs; once."""
        early, self._early = tuple(self._early), {}
        return early

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        """Dispatch what others have written.  Its owner gets what has entered inboxes."""
        dispatcher = self._dispatcher
        owner = dispatcher.owner
        for event in events:
            if not isinstance(event, _OF_PROMPTS):
                continue
            if not isinstance(event, SessionReply):
                if event.lane == "hub":
                    self._prompted(event)
            elif event.lane == "in":
                self._replied(event)
        if owner is not None:
            dispatcher.mail.extend([x for x in events if isinstance(x, InLane) and x.lane == "in"])
        dispatcher.dispatch(events)
        for event in events:
            if isinstance(event, AgentComplete) and event.lane == "own":
                self._run_ended(event.run_id)
        if owner is not None:
            owner.heard_elsewhere(events)

    def passed(self, position: int) -> None:
        """What was there up to a position has gone before it was heard of."""
        self._dispatcher.passed(position)

    def removed(self, trees: Sequence[RemovedTree] | None) -> None:
        """Trees have gone: who has yet to read them is told, and nothing is kept for them."""
        dispatcher = self._dispatcher
        if trees is None:
            dispatcher.removed(None, None, dispatcher.journal.tip)
        for tree in trees or ():
            dispatcher.removed(tree.root_run_id, tree.run_ids, tree.last)
            if tree.is_cut:
                continue
            for run_id in tree.run_ids or ():
                self._run_ended(run_id)
            dispatcher.ports.blobs.drop(tree.root_run_id)

    def claimed(self, root_run_ids: Collection[str]) -> None:
        """Trees are this process's from now on."""
        if (owner := self._dispatcher.owner) is not None:
            owner.claimed(root_run_ids)
        else:
            self._early.update(dict.fromkeys(root_run_ids))

    def lost(self, root_run_ids: Collection[str]) -> None:
        """Trees are another process's."""
        for root in root_run_ids:
            self._early.pop(root, None)
        if (owner := self._dispatcher.owner) is not None:
            owner.lost(root_run_ids)

    def crowded(self, room: Mapping[str, int]) -> None:
        """Others have room for so many trees, by agent."""
        if (owner := self._dispatcher.owner) is not None:
            owner.crowded(room)
