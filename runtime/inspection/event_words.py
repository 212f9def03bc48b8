"""What an event says, in words for people: one line for each, and a conversation of several.

Pure.  Texts are given as they are; the caller that prints them makes them printable and short.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.definitions.skills import SKILL_PREFIX
from hubbub.agents.state.steps import is_said
from hubbub.hub import events as e
from hubbub.hub.events import ContentPart, Event, FileRef, Limits
from hubbub.hub.events.codec import encode_event
from hubbub.hub.values import NULL, Json

__all__ = ["Said", "conversation_of", "headline", "talk_of"]

_COMMON: Final = frozenset((*Event.__struct_fields__, "type"))


SaidKind: TypeAlias = Literal[
    "user", "assistant", "system", "call", "tool", "result", "child", "takeover", "question",
    "reply", "handoff", "reset", "summary", "control", "interrupted", "failed",
]  # fmt: skip
"""What a piece of a conversation is:

    user, assistant, system  words in that role; the first ``user`` of a run is its input
    call, tool               a call that the model wants made; its result
    child, takeover          a run was started below this one; took the conversation or gave it back
    result                   what a child's session came to
    question, reply          a prompt, and its answer
    handoff, reset           another agent goes on; the conversation begins anew
    summary                  of older messages, which takes their place in what the model sees
    control                  somebody ends the run or unwinds it
    interrupted, failed      how a turn has ended
"""


class Said(Struct, frozen=True, kw_only=True):
    """A piece of a conversation; ``who`` says it, ``at`` is µs since the Unix epoch.

    ``depth`` counts the takeover frames that it is said in, below the run that is described.
    ``kind`` says what it is, ``agent`` whose it is.  A ``call`` has the tool's ``name``, the
    ``arguments`` as the model wrote them, and a ``call_id`` that its ``tool`` has, too, beside the
    ``output``; a ``question`` and its ``reply`` have a ``prompt_id``.
    """

    at: int
    seq: int
    who: str
    text: str
    files: tuple[str, ...] = ()
    depth: int = 0
    kind: SaidKind = "system"
    agent: str = ""
    run_id: str = ""
    name: str = ""
    call_id: str = ""
    arguments: str = ""
    output: str = ""
    is_error: bool = False
    silent: bool = False
    prompt_id: str = ""


def headline(event: Event) -> str:
    """What an event says beside who and when: its fields that say something."""
    match event:
        case e.SessionTaken(items=items) | e.SessionDropped(items=items):
            return ", ".join(f"{item.type} {item.seq}" for item in items)
        case e.AgentText(text=text) | e.AgentThinking(text=text):
            return text
        case e.AgentToolStart():
            return f"{event.name}({event.arguments})"
        case e.AgentToolComplete():
            failed = " failed" if event.is_error else ""
            return f"{event.name}{failed}: {event.output}"
        case e.SessionMessage():
            return f"{event.source or event.role}: {event.content}"
        case e.AgentBase():
            return f"all that came of turns 1 to {event.turn}"
        case _:
            return _fields(event)


def conversation_of(events: Iterable[Event]) -> Iterator[Said]:
    """What was said in a run, from its own lane: by people and agents, by tools, by children.

    Of turns that have gone it says that they have.
    """
    last: int | None = None
    for event in events:
        if isinstance(event, e.SessionTaken):
            for item in event.items:
                yield from _of_item(event, item)
        elif isinstance(event, e.AgentBase):
            if last is not None and event.seq > last + 1:
                yield _said(event, "system", "system", f"turns 1 to {event.turn} have gone")
        else:
            yield from _of_event(event)
        last = event.seq


def talk_of(events: Iterable[Event]) -> Iterator[Said]:
    """What was said in a run and its takeover frames, from their own lanes in the store's order.

    That is who took over and who gave back, and each piece with its depth; what two lanes say is
    told once.
    """
    depths: dict[str, int] = {}
    for event in events:
        depth = depths.get(event.run_id, 0)
        if isinstance(event, e.SessionPush):
            depths[event.frame_run_id] = depth + 1
        for said in _of_talk(event, depths):
            yield replace(said, depth=depth) if depth else said


def _of_talk(event: Event, frames: Container[str]) -> Iterator[Said]:
    match event:
        case e.SessionPush():
            task = f": {event.message}" if event.message else ""
            name = f"▸ {_short(event.frame_agent)}"
            yield _said(event, "takeover", name, f"takes over as {event.frame_run_id}{task}")
        case e.SessionPop():
            without = ", without a result" if event.is_error else ""
            name = f"↩ {_short(event.frame_agent)}"
            text = f"gives the conversation back{without}"
            yield _said(event, "takeover", name, text, is_error=event.is_error)
        case e.AgentChild(takeover=True, error=""):
            return  # Its push says so.
        case e.SessionTaken():
            for item in event.items:
                if isinstance(item, e.SessionOpen) and event.run_id in frames:
                    continue  # Its push has said it.
                if isinstance(item, e.SessionResult) and item.child_run_id in frames:
                    continue  # The call's result says it.
                yield from _of_item(event, item)
        case _:
            yield from _of_event(event)


def _of_item(taken: Event, item: Event) -> Iterator[Said]:
    match item:
        case e.SessionOpen():
            yield from _of_opening(taken, item)
        case e.SessionMessage():
            who = item.source or item.role
            paths = _paths(item.files, (*item.attachments, *_parts(item.parts)))
            yield _said(
                taken, _role(item.role), who, item.content, paths, silent=item.silent,
                prompt_id=item.prompt_id,
            )  # fmt: skip
        case e.SessionResult():
            how = "" if item.success else f"({item.outcome}) "
            who = item.name or item.child_agent or item.child_run_id
            text = f"{how}{item.content or item.reason}"
            yield _said(
                taken, "result", who, text, _paths(item.files), name=item.child_agent,
                output=item.content or item.reason, is_error=not item.success,
            )  # fmt: skip
        case e.SessionReply():
            who = item.source or "reply"
            yield _said(
                taken, "reply", who, _reply(item), prompt_id=item.prompt_id,
                is_error=item.is_error,
            )  # fmt: skip
        case e.SessionReset():
            yield _said(taken, "reset", "reset", item.message)
        case e.SessionLimits():
            yield _said(taken, "control", "limits", _limits(item.limits))
        case e.SessionCompact():
            text = "a summary is to take the place of the older messages"
            yield _said(taken, "control", "compact", text)
        case e.SessionTerminate() | e.SessionClose() | e.SessionAbort() | e.SessionCancel():
            yield _said(taken, "control", item.type.removeprefix("session:"), item.reason)


def _limits(limits: Limits | None) -> str:
    if limits is None:
        return "those of the runtime"
    found = ((name, getattr(limits, name)) for name in limits.__struct_fields__)
    return ", ".join(f"{name} {value:,}" for name, value in found if value is not None) or "none"


def _of_opening(taken: Event, item: e.SessionOpen) -> Iterator[Said]:
    for message in item.history:
        calls = "".join(f" {call.name}({call.arguments})" for call in message.calls)
        who = f"before: {message.role}"
        text = f"{message.content}{calls}"
        yield _said(taken, _role(message.role), who, text, _parts(message.parts))
    role = "user" if item.message is None else item.message.role
    said = item.message
    attached = () if said is None else (*said.attachments, *_parts(said.parts))
    paths = _paths(item.files, attached)
    yield _said(taken, _role(role), "input", _value(item.input_json), paths)


def _reply(item: e.SessionReply) -> str:
    """What was answered: a text, or what was decided about a call."""
    given = _value(item.arguments_json)
    decided = f"{item.decision}, with {given}" if given else item.decision
    return ": ".join(each for each in (decided, item.content) if each)


def _of_event(event: Event) -> Iterator[Said]:
    who = _short(event.agent)
    if event.side == "side_b":
        who = f"{who} ({event.label or event.side})"
    match event:
        case e.AgentText():
            yield _said(event, "assistant", who, event.text)
        case e.AgentStep() if event.calls:
            for index, call in enumerate(event.calls):
                yield _said(
                    event, "call", who, f"→ {call.name}({call.arguments})", name=call.name,
                    arguments=call.arguments, call_id=f"{event.step}.{index}",
                )  # fmt: skip
        case e.AgentToolComplete():
            failed = "failed: " if event.is_error else ""
            yield _said(
                event, "tool", event.name, f"{failed}{event.output}", _parts(event.parts),
                name=event.name,
                output=event.output, is_error=event.is_error,
                call_id=f"{event.step}.{event.index}",
            )  # fmt: skip
        case e.AgentRetry() if is_said(event):
            yield _said(event, "system", "system", event.error)
        case e.AgentChild():
            which = event.child_agent or event.name
            text = f"could not start {which}: {event.error}" if event.error else ""
            text = text or f"→ starts {which} as {event.child_run_id}"
            yield _said(event, "child", who, text, name=which, is_error=bool(event.error))
        case e.SessionPrompt():
            text = f"asks {event.to}: {event.question}"
            yield _said(event, "question", who, text, prompt_id=event.prompt_id, name=event.tool)
        case e.SessionCompaction():
            what = f"its {event.covers} oldest messages: {event.summary}"
            text = f"no summary: {event.error}" if event.error else what
            yield _said(event, "summary", "summary", text, is_error=bool(event.error))
        case e.AgentHandoff():
            text = f"→ goes on as {event.to}"
            text += f", asking {event.model}" if event.model else ""
            text += ", with other instructions" if event.prompt else ""
            yield _said(event, "handoff", who, text, name=event.to)
        case e.AgentInterrupted():
            yield _said(event, "interrupted", "interrupted", event.reason)
        case e.AgentFailed():
            yield _said(event, "failed", "failed", event.error, is_error=True)


def _said(
    event: Event, kind: SaidKind, who: str, text: str, files: tuple[str, ...] = (), **more: Any
) -> Said:
    return Said(
        at=event.at, seq=event.seq, who=who, text=text, files=files, kind=kind, agent=event.agent,
        run_id=event.run_id, **more,
    )  # fmt: skip


def _paths(files: tuple[FileRef, ...], names: tuple[str, ...] = ()) -> tuple[str, ...]:
    return (*names, *(ref.path for ref in files))


def _role(role: str) -> SaidKind:
    return role if role in ("user", "assistant") else "system"  # type: ignore[return-value]


def _parts(parts: tuple[ContentPart, ...]) -> tuple[str, ...]:
    return tuple(part.words for part in parts)


def _short(agent: str) -> str:
    """What people call an agent: a skill by its own name."""
    return agent.removeprefix(SKILL_PREFIX)


def _value(value: Json) -> str:
    if value is NULL or bytes(value) == b"null":
        return ""
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.DecodeError:
        return bytes(value).decode(errors="replace")


def _fields(event: Event) -> str:
    """The fields that are an event's own, as JSON tells them, without quotes where it can be."""
    fields = msgspec.json.decode(encode_event(event), type=dict[str, msgspec.Raw])
    return " ".join(
        f"{name}={_value(value)}" for name, value in fields.items() if name not in _COMMON
    )
