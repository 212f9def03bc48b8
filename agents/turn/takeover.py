"""Takeover: a child gets the conversation and gives it back (IA).

    use_agent(name, message)  ─►  an exposed ``ai_human`` agent    ─┐
    use_skill(name, message)  ─►  a skill                          ─┴► a frame: a run that talks
                                                                       with the user
    complete(result)          ─►  the frame ends; the call that began it gets the result
    interrupt(prompt)         ─►  the run pauses for the user's answer

Rules
-----
* A frame is a run like any other, and its caller waits as for any blocking child.  What it says
  ends its session; what the user says next begins another.  It ends when it is popped.
* Which run talks to the user follows from the open calls: the one that has none.  No stack is kept.
* Calls of one parallel step may begin several frames, which lie beside each other.  The first
  call's has the conversation, then the next one's; what ends their caller's turn ends all of them.
* A push is one commit of the caller's, with the start of the frame; a pop one of the frame's, with
  its result for the caller; the result's entry into the open call is one of the caller's again.
* Refused before anything is started, in words that say what to do: bad arguments, an unknown
  name, oneself, variables that are not set, a model that cannot be resolved, the tree's budget.
* ``complete`` is offered to every frame and to nothing else, whatever list of tools it has.  It is
  answered as soon as it is called: there is nothing to run (agents/turn/calls.py).
* Where nobody listens (a run for one session, a schedule, an isolated child, a conversation that
  is being closed), a frame's first text is its result.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hubbub.agents.built_in import COMPLETE, INTERRUPT, USE_AGENT, USE_SKILL
from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.signature import Parameter
from hubbub.agents.definitions.skills import SKILL_PREFIX
from hubbub.agents.model import ToolSpec
from hubbub.agents.model_choice import named
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.family import failure_of, succeeded
from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.agents.turn.calls import answer
from hubbub.agents.turn.child_calls import Budget, ChildRequest
from hubbub.agents.turn.signals import Delegated
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.values import encode_value

__all__ = [
    "message_of_skill",
    "model_name",
    "not_completed",
    "push",
    "read_takeover",
    "request_of",
    "result_of",
    "takeover_specs",
]

_ARGUMENTS: Final = {
    name: Arguments(name, (Parameter(name="name", type=str), Parameter(name="message", type=str)))
    for name in (USE_AGENT, USE_SKILL)
}


# ── what the model is shown ──────────────────────────────────────────────────────────────────


def takeover_specs(side: ActiveSide) -> tuple[ToolSpec, ...]:
    """The tools by which the conversation changes hands, or pauses."""
    specs = []
    if side.agents:
        listed = [(name, agent.tool_text) for name, agent in side.agents.items()]
        specs.append(_spec_of(USE_AGENT, "an agent", listed))
    if side.skills:
        listed = [(name, skill.description) for name, skill in side.skills.items()]
        specs.append(_spec_of(USE_SKILL, "a skill", listed))
    if INTERRUPT in side.offered:
        specs.append(_INTERRUPT)
    if side.is_frame:
        specs.append(_COMPLETE)
    return tuple(specs)


def _spec_of(tool: str, what: str, listed: Iterable[tuple[str, str]]) -> ToolSpec:
    listed = list(listed)
    lines = "\n".join(f"- {name}: {text}" if text else f"- {name}" for name, text in listed)
    return ToolSpec(
        name=tool,
        description=(
            f"Let {what} take the conversation over. It talks with the user until it is done; "
            f"its result is the result of this call.\n{lines}"
        ),
        schema=_schema(
            name={"type": "string", "enum": [name for name, _ in listed]},
            message={"type": "string", "description": "What it is to do, complete in itself."},
        ),
    )


def _schema(*, optional: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


_COMPLETE: Final = ToolSpec(
    name=COMPLETE,
    description="Signal that your task is complete and return a result.",
    schema=_schema(result={"type": "string", "description": "What the caller is told."}),
)
_INTERRUPT: Final = ToolSpec(
    name=INTERRUPT,
    description="Ask the user, and wait for the answer. It is the result of this call.",
    schema=_schema(
        prompt={"type": "string", "description": "The question."},
        options={
            "type": "array",
            "items": {"type": "string"},
            "description": "Answers to choose from, if there are any.",
        },
        optional=("options",),
    ),
)


# ── what a call asks for, and what refuses it ────────────────────────────────────────────────


def read_takeover(side: ActiveSide, agent: str, name: str, arguments: str) -> ChildRequest:
    """Whom a call of ``use_agent`` or ``use_skill`` is for; raises ``BadArguments``."""
    given = _ARGUMENTS[name].parse(arguments)
    target = given["name"].strip()
    if name == USE_SKILL:
        if target not in side.skills:
            raise BadArguments(name, [_unknown("skill", target, side.skills)])
        return request_of(side.skills[target].agent_name, given["message"])
    if target == agent:
        raise BadArguments(name, [f"`name`: you are {agent} already; go on yourself"])
    if target not in side.agents:
        raise BadArguments(name, [_unknown("agent", target, side.agents)])
    return request_of(target, given["message"])


def message_of_skill(arguments: str) -> str:
    """The arguments of ``use_skill`` as the tool of a passthrough skill takes them."""
    given = _ARGUMENTS[USE_SKILL].parse(arguments)
    return msgspec.json.encode({"message": given["message"]}).decode()


def request_of(agent: str, message: str) -> ChildRequest:
    """A request that ``agent`` take the conversation over."""
    return ChildRequest(agent=agent, message=message, takeover=True)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = ", ".join(sorted(known)) or "none"
    return f"`name`: there is no {what} {name!r} for you; there are: {names}"


def _refusal(thread: Thread, signal: Delegated, target: ActiveSide | None) -> str:
    request = signal.request
    if signal.problem:
        return signal.problem
    if target is None:
        return f"there is no agent {request.agent!r}"
    if request.agent == thread.agent:
        return f"you are {thread.agent} already; go on yourself"
    if not request.message.strip():
        return "`message` is empty: say what it is to do"
    if signal.missing:
        names = ", ".join(signal.missing)
        name = request.agent.removeprefix(SKILL_PREFIX)
        return f"{name} was not started: {names} is not set; go on without it"
    refused = (signal.budget or Budget()).refusal(thread.origin.depth + 1)
    return f"not started: {refused}" if refused else ""


# ── push, and what comes back ────────────────────────────────────────────────────────────────


def push(
    thread: Thread, signal: Delegated, target: ActiveSide | None, step: OpenStep, call: OpenCall
) -> tuple[list[Event], tuple[tuple[str, InLane], ...]]:
    """What is written when a call begins a frame, or is refused."""
    refused = _refusal(thread, signal, target)
    if refused or target is None:
        return [answer(thread, step, call, refused)], ()
    request, child = signal.request, signal.child_run_id
    level = (thread.origin.frame or 1) + 1
    place = {"side": thread.side, "turn": thread.turn, "call_id": f"{step.number}.{call.index}"}
    events: list[Event] = [
        e.AgentChild(
            child_run_id=child, child_agent=request.agent, name=request.agent, tool=call.name,
            blocking=True, reports=True, waits=True, takeover=True, step=step.number,
            index=call.index, group=f"{thread.origin.run_id}.{step.number}",
            created_at=signal.now, **place,  # type: ignore[arg-type]
        ),
        e.SessionPush(
            frame_run_id=child, frame_agent=request.agent, depth=level,
            model=model_name(target), max_iterations=target.max_steps,
            tools=tuple(sorted(target.offered)),
            variables=tuple(each.name for each in target.variables),
            message=request.message, **place,  # type: ignore[arg-type]
        ),
    ]  # fmt: skip
    opening = e.SessionOpen(
        open_agent=request.agent,
        input_json=encode_value("message", request.message),
        root_run_id=thread.origin.root_run_id,
        parent_run_id=thread.origin.run_id,
        name=request.agent,
        once=thread.closing or not thread.converses,
        reports=True,
        depth=thread.origin.depth + 1,
        frame=level,
    )
    return events, ((child, opening),)


def model_name(side: ActiveSide) -> str:
    """A side's model as it is named, the first of several."""
    return named(side.choices[0].model)


def result_of(call: OpenCall, item: e.SessionResult) -> tuple[str, bool]:
    """What a child's result comes to for the call that waited for it, and whether as an error."""
    if not call.takeover:
        well = succeeded(item)
        return (item.content if well else failure_of(item)), not well
    if item.outcome == "completed":
        return item.content, False
    if item.outcome == "limit":
        why = "it made as many model calls as it may without an answer"
    elif item.outcome == "interrupted" and item.reason:
        why = item.reason
    else:
        why = failure_of(item)
    return not_completed(item.child_agent, why), True


def not_completed(agent: str, why: str) -> str:
    """What the caller of a frame reads when it is popped without a result."""
    return f"{agent.removeprefix(SKILL_PREFIX)} did not complete: {why}"
