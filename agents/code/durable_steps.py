"""What earlier executions of a code agent have left on record.

    events of the own lane → Recorded          (``recall``), page by page
    an event → what is known at once           (``with_call``, ``with_spawned``)

Rules
-----
* A step is found again by its name and by how many of that name came before it in the execution.
  So concurrent steps of different names may come in any order, and of one name none may.
* A child is found by what was asked of it (agents/state/call_order.py), in whatever order.
* A message is on record once it is consumed, and once only, however often it is redelivered.
* Where consumed messages are passed over (``redelivered=False``), nothing that was done for one of
  them is found for another: while a message is handled only what came behind the last consumed one
  is.  Its steps are numbered on from those.
* A model's calls that no result is on record of get one now: nobody else will give it.
* The children and these calls are part of what the run has come to (``CodeThread``), and so of its
  snapshots.  Results of steps and messages are as many as the run is long: they are read when the
  function asks for them.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.values import Json, decode_value

__all__ = ["RECALLED", "Recorded", "Spawned", "recall", "step_value", "with_call", "with_spawned"]

RECALLED: Final = frozenset((e.AgentRecord.type, e.SessionTaken.type))
"""The types of the events that ``recall`` looks at."""

NOT_BEGUN = "not run: the process stopped before this tool was called"


class Recorded(Struct, frozen=True):
    """What some events hold for the function to find."""

    steps: list[tuple[tuple[str, int], Json]]
    """Values of steps, each with its name and occurrence, from 1."""
    messages: list[e.SessionMessage]
    """What was consumed, in order, marked as redelivered."""
    places: list[int]
    """Of each of these, how many of the steps came before it."""


class Spawned(Struct, frozen=True, gc=False):
    """A child that ``ctx.spawn`` has started."""

    number: int
    run_id: str
    agent: str
    identity: str = ""
    in_order: bool = False


def recall(events: Iterable[Event]) -> Recorded:
    """What ``events``, a part of the run's own lane, say of its earlier executions."""
    steps: list[tuple[tuple[str, int], Json]] = []
    messages: list[e.SessionMessage] = []
    places: list[int] = []
    for event in events:
        match event:
            case e.AgentRecord():
                steps.append(((event.name, event.index), event.value_json))
            case e.SessionTaken():
                messages += [
                    structs.replace(item, redelivered=True)
                    for item in event.items
                    if isinstance(item, e.SessionMessage)
                ]
                places += [len(steps)] * (len(messages) - len(places))
    return Recorded(steps, messages, places)


def with_spawned(spawned: tuple[Spawned, ...], event: e.AgentChild) -> tuple[Spawned, ...]:
    """The children on record after one more; what no number tells is not found again."""
    if not event.index:
        return spawned
    child = Spawned(
        event.index, event.child_run_id, event.child_agent, event.identity, event.in_order
    )
    return (*spawned, child)


def with_call(
    calls: tuple[e.AgentToolComplete, ...],
    event: e.AgentStep | e.AgentToolStart | e.AgentToolComplete,
) -> tuple[e.AgentToolComplete, ...]:
    """What the calls of a model come to that no result is on record of, if nobody gives one."""
    match event:
        case e.AgentStep():
            return (*calls, *_unanswered(event)) if event.calls else calls
        case e.AgentToolStart():
            place = event.step, event.index
            return tuple([
                structs.replace(x, output=LOST, ran=True) if (x.step, x.index) == place else x
                for x in calls
            ])  # fmt: skip
        case e.AgentToolComplete():
            place = event.step, event.index
            return tuple([x for x in calls if (x.step, x.index) != place])


def _unanswered(step: e.AgentStep) -> Iterable[e.AgentToolComplete]:
    """What the calls of a step come to if nothing more is recorded of them."""
    for index, call in enumerate(step.calls):
        yield e.AgentToolComplete(
            step=step.step, index=index, name=call.name, output=NOT_BEGUN, is_error=True,
            ran=False, turn=step.turn, side=step.side, label=step.label,
            call_id=f"{step.step}.{index}",
        )  # fmt: skip


def step_value(name: str, value: Json, type_: Any) -> Any:
    """A fresh copy of a step's value, as ``type_``; ``BadValue`` when it is none."""
    if type_ is Any:
        return decode_value(value)
    try:
        return msgspec.json.decode(value, type=type_)
    except (msgspec.ValidationError, TypeError) as error:
        remedy = "change type=, or give a step that returns something else another name"
        raise BadValue(f"result of step {name!r}", f"{error}; {remedy}") from None
