"""``Deltas``: what a model hands over while it answers, as events.

Whether there are subscribers is checked again as soon as one begins or ends: a listener that begins
in the middle of an answer gets the rest of it, and a partial stream the text before it as well.
"""

from typing import Final

from msgspec import Struct, structs

from hubbub.agents.model import Delta, TextDelta, ThinkingDelta
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.turn.decide import CallModel
from hubbub.hub.delivery.answers import MAX_KEPT, Block, PartialAnswer, Place
from hubbub.hub.events import AgentTextDelta, AgentThinkingDelta
from hubbub.hub.hub import Hub
from hubbub.hub.run_hub import RunScope
from hubbub.hub.texts import text_problem

__all__ = ["Deltas"]

_TEXT: Final[Place] = (AgentTextDelta, 0)


class Deltas(Struct, eq=False):
    """Takes the pieces of one answer, as the model's ``on_delta``; drops what is too late."""

    hub: Hub
    work: RunScope
    activity: CallModel
    turn: int
    side: ActiveSide
    answer: PartialAnswer | None = None
    """What has been handed over, from the first piece on."""
    asked: int = -1
    wanted: dict[type, bool] | None = None
    """Which classes had subscribers when ``asked`` was the number of changes."""

    def __call__(self, delta: Delta) -> None:
        text = getattr(delta, "text", None)
        if not isinstance(text, str):
            return
        if isinstance(delta, TextDelta):
            place = _TEXT
        elif isinstance(delta, ThinkingDelta) and delta.block.__class__ is int:
            place = (AgentThinkingDelta, delta.block)
        else:
            return
        hub, work = self.hub, self.work
        answer = self.answer or self._begin()
        if answer.ended_at is not None:
            return
        # Without any call, for nobody may listen.
        block = answer.blocks.get(place)
        if block is None:
            block = Block(answer.about) if place is _TEXT else answer.block(place)
            answer.blocks[place] = block
        offset = block.length
        block.length = end = offset + len(text)
        block.pieces.append(text)
        if end - block.start > MAX_KEPT:
            block.pieces.clear()
            block.start = end
        dispatcher, lane, kind = hub.dispatcher, work.lane, place[0]
        if self.asked != dispatcher.changes:
            self.asked, self.wanted = dispatcher.changes, None
        if self.wanted is None:
            self.wanted = {}
        wanted = self.wanted.get(kind)
        if wanted is None:
            wanted = dispatcher.has(kind.type, run_id=lane.run_id, root_run_id=lane.root_run_id)
            self.wanted[kind] = wanted
        if not wanted or hub.pipeline.is_closed or not work.is_live:
            return
        if not text.isascii() and text_problem(text):
            return  # So will the reply be refused that it is part of.
        dispatcher.number += 1  # ``emit_ephemeral`` in place: each piece comes this way.
        # A copy takes a sixth of the time of a new one.
        event = structs.replace(
            block.about, at=hub.ports.clock.now(), after_seq=lane.seq, text=text, offset=offset,
            seq=dispatcher.number,
        )  # fmt: skip
        commit = dispatcher.answers.uncommitted.get(lane.run_id)
        if commit is None:
            dispatcher.dispatch((event,))
        else:
            hub.pipeline.trail(commit, event)

    def _begin(self) -> PartialAnswer:
        lane, activity, side = self.work.lane, self.activity, self.side
        about = AgentTextDelta(
            run_id=lane.run_id, root_run_id=lane.root_run_id, parent_run_id=lane.parent_run_id,
            agent=lane.agent, step=activity.step, attempt=activity.attempt, turn=self.turn,
            side=side.name, label=side.config.label,
        )  # fmt: skip
        self.answer = answer = self.hub.dispatcher.answers.begin(about, lane)
        return answer
