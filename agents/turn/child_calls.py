"""Calls of children: what is asked for, what refuses it, what carries it out.

Rules
-----
* Two facts make the four modes.  ``blocking``: the call waits for a session of the child, else it
  is answered at once with the child's reference.  ``resumable``: the child stays after its
  session, and is started and written to by ``subagent_create`` and ``subagent_message``.
* Refused, in this order, each in words that say what to do: bad arguments; a name that is no
  subagent here, or a branch that is not enabled; a file that is not there; the cap on instances;
  the tree's budget; scoped variables that nobody has given (the creation is then kept).
* Nothing is started, written or copied by a refused call.

Children that start with their prompt
-------------------------------------
* They are due when a prompt becomes active: at the run's first session, at side B's first turn,
  at a handoff.  Not when sides alternate, and not after a restart.
* Each starts once per activation, without asking a model; its first message is the value of its
  ``description_env``, else what made the prompt active, its name that of ``name_env``.
* A blocking one holds the next model step back.  Every result is reported to the side in the words
  for a child's result, a child that could not be started in those for a failure.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from hubbub.agents.built_in import CREATE, MESSAGE
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.signature import Parameter
from hubbub.agents.model import ToolSpec, UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide, ChildTool
from hubbub.agents.state.area import find_files
from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import FileRef, Variable
from hubbub.hub.texts import label_problem
from hubbub.hub.values import encode_value

__all__ = [
    "CREATE",
    "MESSAGE",
    "Budget",
    "ChildRequest",
    "activation",
    "child_specs",
    "opening_of",
    "read_call",
    "refusal_of_creation",
    "refusal_of_message",
    "sent_text",
    "start_of",
    "started_text",
    "wanted",
]


class ChildRequest(Struct, frozen=True, gc=False, kw_only=True):
    """What a call asks for: a new child of ``agent``, or a message to the child ``reference``."""

    agent: str = ""
    reference: str = ""
    message: str = ""
    name: str = ""
    attachments: tuple[str, ...] = ()
    takeover: bool = False
    """Whether the child is to have the conversation (agents/turn/takeover.py)."""


class Budget(Struct, frozen=True, gc=False):
    """What a tree of runs may still grow by."""

    max_depth: int = 16
    max_live: int = 1_000
    max_spawns: int = 10_000
    live: int = 0
    spawned: int = 0

    def refusal(self, depth: int) -> str:
        """Why no child may be started at ``depth``; empty when one may."""
        if depth > self.max_depth:
            return f"children may be {self.max_depth} deep; do the work in this run"
        if self.live >= self.max_live:
            return (
                f"{self.max_live:,} runs below one root may live at once; "
                "wait for one to end, or terminate one"
            )
        if self.spawned >= self.max_spawns:
            return f"one root may start {self.max_spawns:,} runs; do the work in this run"
        return ""


# ── what the model is shown ──────────────────────────────────────────────────────────────────

_CREATE = Arguments(
    CREATE,
    (
        Parameter(name="agent", type=str),
        Parameter(name="name", type=str),
        Parameter(name="arguments", type=dict[str, Any]),
    ),
)
_MESSAGE = Arguments(
    MESSAGE,
    (
        Parameter(name="reference", type=str),
        Parameter(name="message", type=str),
        Parameter(name="attachments", type=list[str], default=()),
    ),
)


def child_specs(side: ActiveSide, is_enabled: Callable[[str], bool]) -> tuple[ToolSpec, ...]:
    """The tools for handing over and delegating, of the branches that are enabled."""
    specs = [_handoff_spec(agent) for agent in side.handoffs.values()]
    enabled = [c for c in side.children.values() if _is_open(c, is_enabled)]
    specs += [child.spec for child in enabled if not child.config.stays]
    lasting = [child for child in enabled if child.config.stays]
    if lasting:
        specs += [_create_spec(lasting), _message_spec()]
    return tuple(specs)


def _is_open(child: ChildTool, is_enabled: Callable[[str], bool]) -> bool:
    optional = child.config.optional
    return optional is None or is_enabled(optional)


def _handoff_spec(agent: AgentDefinition) -> ToolSpec:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return ToolSpec(name=agent.name, description=agent.tool_text, schema=schema)


def _create_spec(children: Iterable[ChildTool]) -> ToolSpec:
    lines = []
    for child in children:
        shown = msgspec.json.encode(child.spec.schema).decode()
        lines.append(f"- {child.agent.name}: {child.agent.tool_text}\n  arguments: {shown}")
    schema = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": [child.agent.name for child in children]},
            "name": {"type": "string", "description": "A name for the new instance, not empty."},
            "arguments": {"type": "object", "description": "By the schema of the agent."},
        },
        "required": ["agent", "name", "arguments"],
        "additionalProperties": False,
    }
    text = "Start a subagent that stays and can be written to again. Agents:\n" + "\n".join(lines)
    return ToolSpec(name=CREATE, description=text, schema=schema)


def _message_spec() -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": "The subagent's reference."},
            "message": {"type": "string"},
            "attachments": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Paths of files that it gets copies of.",
            },
        },
        "required": ["reference", "message"],
        "additionalProperties": False,
    }
    return ToolSpec(name=MESSAGE, description="Write to a subagent you started.", schema=schema)


# ── what a call asks for ─────────────────────────────────────────────────────────────────────


def read_call(side: ActiveSide, name: str, arguments: str) -> ChildRequest:
    """What a call of ``name`` asks for; raises ``BadArguments``."""
    if name == MESSAGE:
        given = _MESSAGE.parse(arguments)
        return ChildRequest(
            reference=given["reference"].strip(),
            message=given["message"],
            attachments=tuple(given.get("attachments", ())),
        )
    if name != CREATE:
        return _by_schema(side.children[name], arguments, "")
    given = _CREATE.parse(arguments)
    if not given["name"].strip():
        raise BadArguments(CREATE, ["`name`: give the new instance a name that is not empty"])
    child = side.children.get(given["agent"])
    if child is None or not child.config.stays:
        known = ", ".join(c.agent.name for c in side.resumable) or "none"
        raise BadArguments(CREATE, [f"`agent`: {given['agent']!r} is not one of {known}"])
    inner = msgspec.json.encode(given["arguments"]).decode()
    return _by_schema(child, inner, given["name"].strip())


def _by_schema(child: ChildTool, arguments: str, name: str) -> ChildRequest:
    config = child.config
    given = child.arguments.parse(arguments)
    paths = given.get(config.init_attachments_property or "", ())
    if isinstance(paths, str):
        paths = (paths,)
    if paths and not isinstance(paths, list | tuple):
        problem = f"`{config.init_attachments_property}`: expected a list of paths"
        raise BadArguments(child.agent.name, [problem])
    name = name or str(given.get(config.init_agent_name_property or "", ""))
    if problem := label_problem(name):
        raise BadArguments(child.agent.name, [f"its name: {problem}"])
    message = given.get(child.message_property)
    if message is None:  # A schema without such a field: the child reads all of it.
        message = arguments
    return ChildRequest(
        agent=child.agent.name,
        message=message if isinstance(message, str) else msgspec.json.encode(message).decode(),
        name=name,
        attachments=tuple(map(str, paths or ())),
    )


# ── what refuses it ──────────────────────────────────────────────────────────────────────────


def refusal_of_creation(
    thread: Thread, request: ChildRequest, child: ChildTool | None, enabled: bool, budget: Budget
) -> str:
    """Why no child is started; empty when one may be."""
    if child is None or not enabled:
        return f"the subagent {request.agent!r} is not available here"
    if request.attachments and (absent := find_files(thread.area, request.attachments)[1]):
        return _no_files(absent)
    stays = child.config.stays
    if stays is not None and stays.max_instances is not None:
        living = thread.family.living(child.key)
        if len(living) >= stays.max_instances:
            names = ", ".join(f"{each.run_id} ({each.name or each.agent})" for each in living)
            return (
                f"at most {stays.max_instances} instances of {request.agent!r} may live at once, "
                f"and they do: {names}. Write to one of them with {MESSAGE} instead."
            )
    refused = budget.refusal(thread.origin.depth + 1)
    return f"not started: {refused}" if refused else ""


def refusal_of_message(thread: Thread, request: ChildRequest, enabled: bool) -> str:
    """Why a message to a child is not sent; empty when it may be."""
    child = thread.family.find(request.reference)
    if child is None:
        known = ", ".join(c.run_id for c in thread.family.registry if not c.ended) or "none"
        return f"there is no subagent with the reference {request.reference!r}; there are: {known}"
    if not child.resumable:
        return f"the subagent {child.run_id} takes no messages: it ends with its result"
    if child.ended:
        return f"the subagent {child.run_id} is terminated; start another with {CREATE}"
    if not enabled:
        return f"the subagent {child.agent!r} is not available here"
    absent = find_files(thread.area, request.attachments)[1]
    return _no_files(absent) if absent else ""


def _no_files(paths: Iterable[str]) -> str:
    names = ", ".join(repr(path) for path in paths)
    return f"nothing was sent: there is no file {names}; list your files and name one that is there"


# ── what carries it out ──────────────────────────────────────────────────────────────────────


def start_of(
    child: ChildTool,
    *,
    run_id: str,
    name: str,
    side: str,
    group: str,
    now: int,
    waits: bool,
    **place: Any,
) -> e.AgentChild:
    """The record of a child's start."""
    stays = child.config.stays
    return e.AgentChild(
        child_run_id=run_id,
        child_agent=child.agent.name,
        name=name or child.agent.name,
        title=child.agent.title,
        description=child.agent.tool_text,
        tool=child.key,
        resumable=stays is not None,
        blocking=child.config.blocking,
        explicit=stays is not None and stays.parent_communication == "explicit",
        reports=True,
        waits=waits,
        side=side,
        group=group,
        created_at=now,
        **place,
    )


def opening_of(
    thread: Thread,
    child: ChildTool,
    *,
    name: str,
    message: str,
    files: tuple[FileRef, ...],
    variables: tuple[Variable, ...] = (),
) -> e.SessionOpen:
    """What starts the child."""
    stays = child.config.stays
    return e.SessionOpen(
        open_agent=child.agent.name,
        input_json=encode_value("message", message),
        root_run_id=thread.origin.root_run_id,
        parent_run_id=thread.origin.run_id,
        name=name,
        tags=(f"name:{name}",) if name else (),
        once=stays is None,
        receives=(stays.receives_messages if stays is not None else None) or "side_a",
        reports=True,
        depth=thread.origin.depth + 1,
        files=files,
        variables=variables,
    )


def wanted(
    thread: Thread, request_id: str, agent: str, required: Iterable[str], missing: Iterable[str]
) -> str:
    """The structured error that says which variables a creation waits for."""
    names = ", ".join(missing)
    return msgspec.json.encode(
        {
            "error": "subagent_env_required",
            "request_id": request_id,
            "agent": agent,
            "required": list(required),
            "missing": list(missing),
            "path": f"/threads/{thread.origin.run_id}/variables/{request_id}",
            "message": (
                f"{agent} is started as soon as these variables are provided: {names}. Do not ask "
                "for their values here; its result will come as a message."
            ),
        }
    ).decode()


def started_text(child: e.AgentChild) -> str:
    """What a call that does not wait is answered with."""
    started = f"Subagent {child.name!r} (reference: {child.child_run_id}) was started."
    return started if child.explicit else f"{started} Its result will come as a message."


def sent_text(run_id: str, *, explicit: bool) -> str:
    """What a message that nobody waits for is answered with."""
    later = "" if explicit else " Its result will come as a message."
    return f"Sent to the subagent (reference: {run_id}).{later}"


# ── children that start with their prompt ────────────────────────────────────────────────────


def activation(thread: Thread, definitions: Definitions) -> list[e.AgentImmediate]:
    """What is due now that a side is at work."""
    if thread.side in thread.family.activated:
        return []
    side = definitions.sides.get((thread.agent, thread.acts_as))
    if side is None or not side.children:
        return []
    names = side.immediate
    if not names:
        return []
    heard = (m.content for m in reversed(thread.view) if isinstance(m, UserMessage))
    return [e.AgentImmediate(names=names, message=next(heard, ""), side=side.name)]
