"""Actions: what each run did, one line per action, for comparison with its counterpart.

    helper, step 1: refund(order=7) → "paid back"
    helper: session 1: completed, "It is paid back."

Said here is what a change for the worse shows in: calls with their arguments and answers, texts,
questions and statuses, children with their modes, messages to them, takeovers, turns, handovers,
and what sessions and runs came to.  Left out is what may differ between two runs that are alike:
ids (a run is named by the agents that lead to it: ``main/writer``, ``main/writer 2``), times,
usage, thinking, streamed pieces, retries, restarts, files and keys.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.model import parse_arguments
from hubbub.hub import events as e
from hubbub.hub.events import Event, ToolCall
from hubbub.hub.values import decode_value

__all__ = ["Action", "RunLane", "actions_of", "names_of", "unheard"]

UNANSWERED: Final = "(no answer)"
REFUSED: Final = "(refused)"

_REST: Final = (e.SessionEnd, e.AgentPark, e.AgentComplete)


class RunLane(Struct, frozen=True):
    """A run and its own events, in order."""

    run_id: str
    parent: str | None
    agent: str
    """Its agent at the beginning: a run may be handed over."""
    events: Sequence[Event]
    has_mail: bool = False
    """Whether something waits in its inbox."""

    @property
    def is_at_rest(self) -> bool:
        """Whether it does nothing more by itself.  What code waits for shows nowhere."""
        last = self.events[-1] if self.events else None
        is_of_model = any(isinstance(x, e.SessionStart) and x.side for x in self.events)
        rests = is_of_model and isinstance(last, _REST) and not self.has_mail
        return rests or isinstance(last, e.AgentComplete)


class Action(Struct, frozen=True):
    """One thing that a run did."""

    run: str
    what: str
    step: int = 0
    at: int = 0

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"

    @property
    def place(self) -> str:
        """The run, and where in it."""
        return f"{self.run}, step {self.step}" if self.step else self.run


def names_of(
    lanes: Iterable[RunLane], known: Mapping[str, str] | None = None, taken: Iterable[str] = ()
) -> dict[str, str]:
    """The names of runs by id, parents first.

    ``known`` are names that some have already, ``taken`` those that no other gets.
    """
    names: dict[str, str] = {}
    used = set(taken)
    for lane in lanes:
        above = names.get(lane.parent or "")
        stem = f"{above}/{lane.agent}" if above else lane.agent
        numbered = (stem if number == 1 else f"{stem} {number}" for number in count(1))
        name = (known or {}).get(lane.run_id) or next(x for x in numbered if x not in used)
        used.add(name)
        names[lane.run_id] = name
    return names


def unheard(lane: RunLane) -> dict[str, str]:
    """The calls whose result is not compared, each with the words used instead.

    There was none, or it was a refusal (no such tool, bad arguments), in the library's own words.
    """
    results = {x.call_id: x for x in lane.events if isinstance(x, e.AgentToolComplete)}
    calls = [call_id for x in lane.events if isinstance(x, e.AgentStep) for call_id in _calls(x)]
    refused = {x.call_id: REFUSED for x in results.values() if x.is_error and not x.ran}
    return {each: UNANSWERED for each in calls if each not in results} | refused


def actions_of(
    lane: RunLane, name: str, unheard: Mapping[str, str], named: Callable[[str], str]
) -> Iterator[Action]:
    """What a run did.  ``named`` puts names in the place of ids."""
    results = {x.call_id: x for x in lane.events if isinstance(x, e.AgentToolComplete)}
    answers = _Answers(results, unheard)
    for event in lane.events:
        for what in _told(event, answers):
            step = getattr(event, "step", 0)
            yield Action(name, named(what), step, event.at)


class _Answers(Struct, frozen=True):
    """The result of each call of a run."""

    results: Mapping[str, e.AgentToolComplete]
    unheard: Mapping[str, str]

    def of(self, call_id: str) -> str:
        result, instead = self.results.get(call_id), self.unheard.get(call_id)
        if instead == UNANSWERED or (instead and (result is None or result.is_error)):
            return instead
        if result is None:
            return UNANSWERED
        kind = "error " if result.is_error else ""
        shown = (part.words for part in result.parts)
        return f"{kind}{_value(result.output)}{_listed((*result.attachments, *shown))}"


# ── one event ────────────────────────────────────────────────────────────────────────────────


def _told(event: Event, answers: _Answers) -> Iterator[str]:
    match event:
        case e.AgentStart():
            yield f"begins with {_value(event.input)}"
        case e.AgentText():
            yield f"says {_value(event.text)}"
        case e.AgentStatus():
            yield f"tells its status: {_value(event.status)}"
        case e.AgentStep():
            for call_id, call in _calls(event).items():
                yield f"{_call(call)} → {answers.of(call_id)}"
        case e.AgentChild():
            yield from _child(event)
        case e.AgentMessage():
            yield f"writes to {event.to}: {_value(event.content)}"
        case e.AgentHandoff() if event.to != event.agent:  # Else a fork asks another model.
            yield f"hands over to {event.to}"
        case e.SessionPush():
            yield f"{event.frame_run_id} takes over as frame {event.depth}: {_value(event.message)}"
        case e.SessionPop():
            how = "gives up" if event.is_error else "gives back"
            yield f"{event.frame_run_id} {how}; frames left: {event.depth}"
        case e.SessionTurn():
            yield f"{event.reason}: the turn goes to {event.side}"
        case e.SessionPrompt():
            yield f"asks {_value(event.question)} of {event.to}{_listed(event.options)}"
        case e.SessionEnd():
            paths = tuple(ref.path for ref in event.files)
            yield f"session {event.session}: {_ending(event)}{_listed(paths)}"
        case e.AgentComplete():
            yield f"ends: {_ending(event)}"
        case _:
            pass


def _calls(step: e.AgentStep) -> dict[str, ToolCall]:
    return {f"{step.step}.{index}": call for index, call in enumerate(step.calls)}


def _call(call: ToolCall) -> str:
    try:
        arguments: dict[str, Any] = parse_arguments(call.arguments)
    except ValueError:
        return f"{call.name}({_value(call.arguments)})"
    return f"{call.name}({', '.join(f'{key}={_value(x)}' for key, x in arguments.items())})"


def _child(child: e.AgentChild) -> Iterator[str]:
    modes = [
        "blocking" if child.blocking else "non-blocking",
        *(word for word in ("resumable", "explicit", "immediate", "takeover")
          if getattr(child, word)),
    ]  # fmt: skip
    if child.error:
        yield f"cannot start {child.child_agent} ({', '.join(modes)})"
    elif child.child_run_id:
        yield f"starts {child.child_run_id} ({', '.join(modes)}), named {_value(child.name)}"


def _ending(end: e.Ending) -> str:
    if end.success:
        return f"{end.outcome}, {_value(decode_value(end.output_json))}"
    return f"{end.outcome}, {_value(end.reason)}" if end.reason else end.outcome


def _listed(items: Collection[str]) -> str:
    return f" [{', '.join(items)}]" if items else ""


def _value(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # Half of a surrogate pair.
        return repr(value)
