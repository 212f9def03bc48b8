"""What earlier executions of a code agent have left on record.

    events of the own lane → Recorded          (``recall``)

Rules
-----
* A step is found again by its name and by how many of that name came before it in the execution.
  So concurrent steps of different names may come in any order, and of one name none may.
* A child is found by what was asked of it (agents/state/call_order.py), in whatever order.
* A message is on record once it is consumed, and once only, however often it is redelivered.
* A model's calls that no result is on record of get one now: nobody else will give it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.values import Json, decode_value

__all__ = ["NOTHING", "Recorded", "recall", "step_value"]

NOT_BEGUN = "not run: the process stopped before this tool was called"


class Recorded(Struct, frozen=True):
    """What an execution finds."""

    steps: Mapping[tuple[str, int], Json] = {}
    """Values by name and occurrence, from 1."""
    children: Mapping[int, e.AgentChild] = {}
    """Those that ``ctx.spawn`` started, by number, from 1."""
    messages: tuple[e.SessionMessage, ...] = ()
    """What was consumed, in order, marked as redelivered."""
    lost: tuple[e.AgentToolComplete, ...] = ()
    """The results of calls that no execution will give any more."""


NOTHING = Recorded()


def recall(events: Iterable[Event]) -> Recorded:
    """What ``events``, the run's own lane, say of its earlier executions."""
    steps: dict[tuple[str, int], Json] = {}
    children: dict[int, e.AgentChild] = {}
    messages: list[e.SessionMessage] = []
    calls: dict[tuple[int, int], e.AgentToolComplete] = {}
    for event in events:
        match event:
            case e.AgentRecord():
                steps[event.name, event.index] = event.value_json
            case e.AgentChild() if event.index:
                children[event.index] = event
            case e.SessionTaken():
                messages += [
                    structs.replace(item, redelivered=True)
                    for item in event.items
                    if isinstance(item, e.SessionMessage)
                ]
            case e.AgentStep():
                calls |= {(x.step, x.index): x for x in _unanswered(event)}
            case e.AgentToolStart() if call := calls.get((event.step, event.index)):
                calls[event.step, event.index] = structs.replace(call, output=LOST, ran=True)
            case e.AgentToolComplete():
                calls.pop((event.step, event.index), None)
    return Recorded(steps, children, tuple(messages), tuple(calls.values()))


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
