"""The stop ladder: what a finished step stops.

    1  session bindings      a call of ``session_stop`` or ``session_fail`` that succeeded ends the
                             session; the first in call order counts
    2  ``stop_tool``         a call that ran, well or not, ends the turn; the other side gets
                             ``stop_tool_response_property`` of its result, else all of it
    3  ``output``            an answer that fits ends the turn; of one that does not the model is
                             told, twice in a turn; the third ends the session, as a refusal does
       ``stop_on_response``  text without calls ends the turn
    4  ``max_steps``         so many steps end the turn
       limits                that of a turn (a prompt's), of a run (an agent's), of a tree (given as
                             its root is opened, or to the runtime): see ``limit_reached``
       ``max_session_turns`` so many turns of both sides end the session

Always in this order, whatever holds at once.  Nothing here looks at the inbox: mail that came
meanwhile is the next turn's.  Limits are looked at before a model is asked, not with its step: what
a tree has used is known outside, and may have been used up before the turn began.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.definitions.agent import SessionToolBinding
from hubbub.agents.definitions.output import Misfit, OutputForm
from hubbub.agents.model import parse_arguments
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.area import find_files
from hubbub.agents.state.spending import NOTHING_SPENT, Spent, used_up
from hubbub.agents.state.steps import misfits_of_turn
from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.hub.events import FileRef, Limits, OutcomeName
from hubbub.hub.values import NULL, Json

__all__ = [
    "MAX_MISFITS", "NO_FIT", "EndSession", "EndTurn", "Stop", "TellAgain", "Worked", "is_of_answer",
    "limit_reached", "message_of",
    "paths_of", "stop_of", "terminal",
]  # fmt: skip

_STOPPED: Final = {
    "refusal": "the model refused to answer",
    "length": "the answer was cut off at the most tokens that it may have; raise max_tokens",
}


class EndTurn(Struct, frozen=True, gc=False):
    """The side's turn is over; ``content`` is handed over beside what was said."""

    reason: Literal["response", "stop_tool", "limit"]
    content: str = ""
    value: Json = NULL
    """What the answer is, where it is to be a value."""


class TellAgain(Struct, frozen=True, gc=False):
    """The answer does not fit: the model is told why, and answers again."""

    problem: str
    call_id: str = ""
    """The call that gave the answer, and whose result says why, if one did."""


class EndSession(Struct, frozen=True, gc=False):
    """The session is over; ``content`` is its result, if a binding gave one."""

    outcome: OutcomeName
    reason: str = ""
    content: str | None = None
    files: tuple[FileRef, ...] = ()


Stop: TypeAlias = EndTurn | EndSession | TellAgain

MAX_MISFITS: Final = 2
"""Answers of a turn that the model is told of; one more ends it."""

NO_FIT: Final = f"{MAX_MISFITS + 1} answers did not fit the output:"
"""How the reason of such an end begins."""


def stop_of(thread: Thread, side: ActiveSide) -> Stop | None:
    """What the last step of ``thread`` stops, if anything."""
    step = thread.closed
    if step is None:
        return None
    if side.bindings and step.calls:
        bound = next((call for call in step.calls if terminal(call, side)), None)
        if bound is not None:
            return _end_by(bound, thread, side)
    turn: Stop | None = None
    if side.config.stop_tool or side.output is not None:
        turn = _answered(step, thread, side)
    if turn is None:
        is_response = not step.calls and (bool(step.text.strip()) or step.is_refused)
        if side.config.stop_on_response and is_response:
            turn = EndTurn("response")
        elif thread.turn_steps >= side.max_steps:
            turn = EndTurn("limit")
    if turn is not None and side.two_sided and thread.session_turns >= side.max_turns:
        return EndSession("limit", "limit")
    return turn


def _answered(step: OpenStep, thread: Thread, side: ActiveSide) -> Stop | None:
    """What the stop tool of the side, or an answer of the form it is to be, comes to."""
    config = side.config
    for call in step.calls if config.stop_tool else ():
        if call.name == config.stop_tool and call.ran:
            content = _property(call, config.stop_tool_response_property)
            return EndTurn("stop_tool", content if content.strip() else "")
    if side.output is not None and (judged := _judged(step, thread, side.output)) is not None:
        is_limit = isinstance(judged, TellAgain) and thread.turn_steps >= side.max_steps
        return EndTurn("limit") if is_limit else judged
    return None


def _judged(step: OpenStep, thread: Thread, form: OutputForm) -> Stop | None:
    """What a step's answer comes to; ``None`` where it gives none."""
    problem, call_id = None, ""
    for call in step.calls:
        if call.name == FINAL_ANSWER and call.ran:
            value = form.read(call.arguments or "{}")
            return EndTurn("response", bytes(value).decode(), value)
        if call.name == FINAL_ANSWER and problem is None:
            found = form.problem(call.arguments or "{}")
            if found and found in call.output:  # Else it was skipped.
                problem, call_id = found, f"{step.number}.{call.index}"
    if step.is_refused and (problem is not None or not step.calls):
        return EndSession("failed", _STOPPED[step.stopped_by], "")
    if not step.calls:
        try:
            return EndTurn("response", value=form.read(step.text))
        except Misfit as misfit:
            problem = misfit.lines
    if problem is None:
        return None
    if misfits_of_turn(thread) >= MAX_MISFITS:
        return EndSession("failed", f"{NO_FIT}\n{problem}", "")
    return TellAgain(problem, call_id)


def is_of_answer(reason: str) -> bool:
    """Whether a session has failed by what its model answered, and not because it did not."""
    return reason.startswith(NO_FIT) or reason in _STOPPED.values()


class Worked(Struct, gc=False):
    """Microseconds at work: in this turn, in the run, in the tree."""

    turn: int = 0
    run: int = 0
    tree: int = 0


def limit_reached(
    thread: Thread,
    turn: Limits | None,
    run: Limits | None,
    tree: Limits | None,
    tree_spent: Spent = NOTHING_SPENT,
    worked: Worked | None = None,
) -> str:
    """The name of the first limit that is used up; empty where none is.

    Of a turn only while there is one.
    """
    worked = worked or Worked()
    turn = turn if thread.in_session else None
    if turn and (name := used_up(turn, thread.spent - thread.spent_before, worked.turn)):
        return f"turn.{name}"
    if run is not None and (name := used_up(run, thread.spent, worked.run)):
        return f"run.{name}"
    if tree is not None and (name := used_up(tree, tree_spent, worked.tree)):
        return f"tree.{name}"
    return ""


def terminal(call: OpenCall, side: ActiveSide) -> bool:
    """Whether a call has ended the session."""
    if call.status != "done" or call.is_error or not call.ran:
        return False
    which = side.bindings.get(call.name)
    return which is not None and which[0] in ("session_stop", "session_fail")


def _end_by(call: OpenCall, thread: Thread, side: ActiveSide) -> EndSession:
    which, binding = side.bindings[call.name]
    paths = paths_of(binding, call.runs_with)
    files, absent = find_files(thread.area, paths) if paths else ((), ())
    if absent:  # The tool itself has deleted one: all or none.
        files = ()
    content = message_of(binding, call.runs_with, call.output)
    if which == "session_stop":
        return EndSession("completed", content=content, files=files)
    return EndSession("failed", content, content, files)


def message_of(binding: SessionToolBinding, arguments: str, output: str) -> str:
    """The message of a bound call: a field of its arguments, else the tool's result."""
    if binding.message_property is None:
        return output
    return _as_text(parse_arguments(arguments).get(binding.message_property, ""))


def paths_of(binding: SessionToolBinding, arguments: str) -> tuple[str, ...]:
    """The files that a bound call names; none if it is not well formed."""
    if binding.attachments_property is None:
        return ()
    try:
        named = parse_arguments(arguments).get(binding.attachments_property)
    except msgspec.DecodeError:
        return ()
    if isinstance(named, str):
        return (named,) if named else ()
    return tuple(map(str, named)) if isinstance(named, list) else ()


def _property(call: OpenCall, name: str | None) -> str:
    """A field of a call's result, or all of it."""
    if name is None:
        return call.output
    try:
        found = msgspec.json.decode(call.output)
    except msgspec.DecodeError:
        return call.output
    return _as_text(found[name]) if isinstance(found, dict) and name in found else call.output


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
