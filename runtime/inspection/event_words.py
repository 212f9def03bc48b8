"""What an event says, in words for people: one line for each, and a conversation of several.

Pure.  Texts are given as they are; the caller that prints them makes them printable and short.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.definitions.skills import SKILL_PREFIX
from hubbub.hub import events as e
from hubbub.hub.events import Event, FileRef
from hubbub.hub.events.codec import encode_event
from hubbub.hub.values import NULL, Json

__all__ = ["Said", "conversation_of", "headline", "talk_of"]

_COMMON: Final = frozenset((*Event.__struct_fields__, "type"))


class Said(Struct, frozen=True, kw_only=True):
    """A piece of a conversation; ``who`` says it, ``at`` is µs since the Unix epoch.

    ``depth`` counts the takeover frames that it is said in, below the run that is described.
    """

    at: int
    seq: int
    who: str
    text: str
    files: tuple[str, ...] = ()
    depth: int = 0


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
        case _:
            return _fields(event)


def conversation_of(events: Iterable[Event]) -> Iterator[Said]:
    """What was said in a run, from its own lane: by people and agents, by tools, by children."""
    for event in events:
        if isinstance(event, e.SessionTaken):
            for item in event.items:
                yield from _of_item(event, item)
        else:
            yield from _of_event(event)


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
            yield _said(event, name, f"takes over as {event.frame_run_id}{task}")
        case e.SessionPop():
            without = ", without a result" if event.is_error else ""
            name = f"↩ {_short(event.frame_agent)}"
            yield _said(event, name, f"gives the conversation back{without}")
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
            for message in item.history:
                calls = "".join(f" {call.name}({call.arguments})" for call in message.calls)
                yield _said(taken, f"before: {message.role}", f"{message.content}{calls}")
            yield _said(taken, "input", _value(item.input_json), item.files)
        case e.SessionMessage():
            who = item.source or item.role
            yield _said(taken, who, item.content, item.files, item.attachments)
        case e.SessionResult():
            how = "" if item.success else f"({item.outcome}) "
            who = item.name or item.child_agent or item.child_run_id
            yield _said(taken, who, f"{how}{item.content or item.reason}", item.files)
        case e.SessionReply():
            yield _said(taken, item.source or "reply", item.content)
        case e.SessionReset():
            yield _said(taken, "reset", item.message)
        case e.SessionCompact():
            yield _said(taken, "compact", "a summary is to take the place of the older messages")
        case e.SessionTerminate() | e.SessionClose() | e.SessionAbort() | e.SessionCancel():
            yield _said(taken, item.type.removeprefix("session:"), item.reason)


def _of_event(event: Event) -> Iterator[Said]:
    who = _short(event.agent)
    if event.side == "side_b":
        who = f"{who} ({event.label or event.side})"
    match event:
        case e.AgentText():
            yield _said(event, who, event.text)
        case e.AgentStep() if event.calls:
            for call in event.calls:
                yield _said(event, who, f"→ {call.name}({call.arguments})")
        case e.AgentToolComplete():
            failed = "failed: " if event.is_error else ""
            yield _said(event, event.name, f"{failed}{event.output}")
        case e.AgentChild():
            which = event.child_agent or event.name
            text = f"could not start {which}: {event.error}" if event.error else ""
            yield _said(event, who, text or f"→ starts {which} as {event.child_run_id}")
        case e.SessionPrompt():
            yield _said(event, who, f"asks {event.to}: {event.question}")
        case e.SessionCompaction():
            what = f"its {event.covers} oldest messages: {event.summary}"
            text = f"no summary: {event.error}" if event.error else what
            yield _said(event, "summary", text)
        case e.AgentHandoff():
            yield _said(event, who, f"→ goes on as {event.to}")
        case e.AgentInterrupted():
            yield _said(event, "interrupted", event.reason)
        case e.AgentFailed():
            yield _said(event, "failed", event.error)


def _said(
    event: Event, who: str, text: str, files: tuple[FileRef, ...] = (), names: tuple[str, ...] = ()
) -> Said:
    paths = (*names, *(ref.path for ref in files))
    return Said(at=event.at, seq=event.seq, who=who, text=text, files=paths)


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
