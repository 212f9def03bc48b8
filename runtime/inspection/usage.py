"""What a tree of runs has used, as its records say."""

from collections.abc import Iterable

from msgspec import Struct

from hubbub.agents.state.bases import thread_of
from hubbub.agents.state.spending import NOTHING_SPENT, Spent, with_event
from hubbub.hub import events as e
from hubbub.hub.store.reader import StoreReader, decoded

__all__ = ["Used", "used_by"]


class Used(Struct, frozen=True, kw_only=True):
    """What the models of some runs have used; ``cost`` is ``None`` where it is not known of every
    call.  ``input_tokens`` are all that they were shown, cached ones included."""

    model_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None


def used_by(store: StoreReader, run_ids: Iterable[str]) -> Used:
    """What these runs have used in all.  Raises ``StoreFailed`` for a record that cannot be
    read."""
    spent: Spent = NOTHING_SPENT
    for run_id in run_ids:
        for row in store.event_rows((run_id,)):
            if row.type in _CALLS and row.lane == "own":
                event = decoded(store, row.position, row.body)
                if isinstance(event, e.AgentBase):  # Those before it may have gone.
                    spent = thread_of(event).spent
                else:
                    spent = with_event(spent, event)
    return Used(
        model_calls=spent.model_calls, input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens, cost=spent.cost,
    )  # fmt: skip


_CALLS = (e.AgentStep.type, e.SessionCompaction.type, e.AgentBase.type)
