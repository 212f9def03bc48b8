"""``Deltas``: what a model hands over while it answers, as events.

Whether there are subscribers is checked again as soon as one begins or ends: who begins to
listen in the middle of an answer hears the rest of it.
"""

from typing import Final

from hubbub.agents.model import Delta, TextDelta, ThinkingDelta
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.turn.decide import CallModel
from hubbub.hub.events import AgentTextDelta, AgentThinkingDelta
from hubbub.hub.hub import Hub
from hubbub.hub.run_hub import RunScope
from hubbub.hub.texts import text_problem

__all__ = ["Deltas"]

_KINDS: Final = (AgentTextDelta, AgentThinkingDelta)


class Deltas:
    """Takes the pieces of one answer, as the model's ``on_delta``; drops what is too late."""

    __slots__ = (
        "_activity", "_asked", "_hub", "_side", "_text", "_thoughts", "_turn", "_wanted",
        "_work",
    )  # fmt: skip

    def __init__(
        self, hub: Hub, work: RunScope, activity: CallModel, turn: int, side: ActiveSide
    ) -> None:
        self._hub = hub
        self._work = work
        self._activity = activity
        self._turn = turn
        self._side = side
        self._text = 0
        """Code points of the text so far."""
        self._thoughts: dict[int, int] = {}
        """The same of each block of reasoning."""
        self._asked = -1
        self._wanted: tuple[type, ...] = ()
        """The classes that had subscribers when ``_asked`` was the number of changes."""

    def __call__(self, delta: Delta) -> None:
        kind: type[AgentTextDelta] | type[AgentThinkingDelta]
        block = 0
        if not isinstance(getattr(delta, "text", None), str):
            return
        if isinstance(delta, TextDelta):
            kind, offset = AgentTextDelta, self._text
            self._text = offset + len(delta.text)
        elif isinstance(delta, ThinkingDelta):
            kind, block = AgentThinkingDelta, delta.block
            if block.__class__ is not int:
                return
            offset = self._thoughts.get(block, 0)
            self._thoughts[block] = offset + len(delta.text)
        else:
            return
        hub, work, activity = self._hub, self._work, self._activity
        pipeline = hub.pipeline
        lane = work.lane
        run_id, root = lane.run_id, lane.root_run_id
        if self._asked != pipeline.dispatcher.changes:
            self._ask()
        if kind not in self._wanted or pipeline.is_closed or not work.is_live:
            return
        if not delta.text.isascii() and text_problem(delta.text):
            return  # So will the reply be refused that it is part of.
        pipeline.emit_ephemeral(
            kind(
                at=hub.ports.clock.now(), run_id=run_id, root_run_id=root,
                parent_run_id=lane.parent_run_id, agent=lane.agent, step=activity.step,
                attempt=activity.attempt, block=block, after_seq=lane.seq, text=delta.text,
                offset=offset, turn=self._turn, side=self._side.name,
                label=self._side.config.label,
            )
        )  # fmt: skip

    def _ask(self) -> None:
        dispatcher, lane = self._hub.dispatcher, self._work.lane
        wanted: tuple[type, ...] = ()
        for kind in _KINDS:
            if dispatcher.has(kind.type, run_id=lane.run_id, root_run_id=lane.root_run_id):
                wanted += (kind,)
        self._asked, self._wanted = dispatcher.changes, wanted
