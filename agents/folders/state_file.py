"""``Record``: what ``state.json`` says of a run beside its history.

    Record × event of either lane → Record               (``follow`` in history.py)
    Record ⇄ the text of state.json                      (``write_state``, ``read_state``)

Rules
-----
* AT's keys come first, in AT's spelling.  ``run`` holds the rest of the thread; a key there is
  left out while it has its default.
* ``seq`` and ``inSeq`` say how far in the run's two lanes the file has come; ``historyBytes``
  is the length of ``history.jsonl`` that goes with it.
* The thread in a record is the run's own fold without what was said, which is in the history.
* ``active_stack`` is no part of a record: it follows from the frames' lanes, too (context.py).
* Keys that this program does not know survive a rewrite.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.agents.state.area import Area
from hubbub.agents.state.compactions import NO_COMPACTIONS, Compactions
from hubbub.agents.state.family import Child, Deferred, Family, Start
from hubbub.agents.state.spending import NOTHING_SPENT, Spent
from hubbub.agents.state.thread import (
    EMPTY,
    CallStatus,
    OpenCall,
    OpenStep,
    Origin,
    Outcome,
    Thread,
)
from hubbub.hub.errors import BadValue
from hubbub.hub.events import NO_USAGE, FileRef, InLane, Limits, OutcomeName, Usage
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.values import NULL, Json

__all__ = ["Record", "StateText", "begin", "read_state", "write_state"]


class Record(Struct, frozen=True, kw_only=True):
    """A run as its folder shows it."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    agent: str
    """What the run was opened as; ``thread.agent`` once it has begun."""
    title: str = ""
    session_key: str = ""
    tags: tuple[str, ...] = ()
    created_at: int = 0
    updated_at: int = 0
    deadline: int | None = None
    """When the run's time is over (µs since the epoch)."""
    seq: int = 0
    in_seq: int = 0
    thread: Thread = EMPTY
    pending: tuple[InLane, ...] = ()
    """What waits in the inbox, in order."""
    idle: tuple[str, ...] = ()
    """Children whose latest session is over."""
    spawned: Mapping[str, int] = {}
    """Which of a code agent's children, by number, a run is."""
    drafts: Mapping[int, str] = {}
    """Texts of model steps that are not finished, by step."""
    took_over: bool = False
    """Whether a call of the run has ever begun a takeover frame."""


class StateText(Struct, frozen=True):
    """What ``state.json`` holds: the record, the length of the history, unknown keys, the stack."""

    record: Record
    history_bytes: int
    unknown: Mapping[str, Json]
    stack: tuple[StackFrameMeta, ...] = ()


def begin(info: RunInfo) -> Record:
    """The record of a run of which nothing is known but its address."""
    return Record(
        run_id=info.run_id,
        root_run_id=info.root_run_id,
        parent_run_id=info.parent_run_id,
        agent=info.agent,
        title=info.name,
        session_key=info.session_key,
        created_at=info.created_at,
        updated_at=info.created_at,
        deadline=info.wake_at,
    )


# ── as text ──────────────────────────────────────────────────────────────────────────────────


class _Entry(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A child; the first four keys are always there."""

    reference: str
    agent: str
    name: str
    status: str
    title: str = ""
    description: str = ""
    tool: str = ""
    side: str = "side_a"
    group: str = ""
    created_at: int = 0
    resumable: bool = False
    blocking: bool = False
    explicit: bool = False
    reports: bool = False
    takeover: bool = False
    number: int = 0
    result: str = ""
    call: str = ""


class _Content(Struct, frozen=True, kw_only=True):
    digest: str
    size: int


class _Call(Struct, frozen=True, kw_only=True, omit_defaults=True):
    index: int
    name: str
    status: CallStatus
    child: str = ""
    key: str = ""
    takeover: bool = False
    expires_at: int = 0


class _Step(Struct, frozen=True, kw_only=True):
    number: int
    parallel: bool
    calls: tuple[_Call, ...]


class _Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    session: int
    success: bool
    outcome: OutcomeName
    reason: str = ""
    output: Json = NULL
    usage: Usage = NO_USAGE


class _Run(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What of the thread has no key of AT's."""

    phase: Literal["new", "live", "ended"] = "new"
    two_sided: bool = False
    once: bool = False
    closing: bool = False
    session: int = 0
    in_session: bool = False
    side: Literal["side_a", "side_b"] = "side_a"
    turn: int = 0
    session_turns: int = 0
    step: int = 0
    turn_steps: int = 0
    attempt: int = 1
    has_spoken: bool = False
    unseen: tuple[str, ...] = ()
    answering: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    total_usage: Usage = NO_USAGE
    spent: Spent = NOTHING_SPENT
    spent_before: Spent = NOTHING_SPENT
    limits: Limits | None = None
    outcome: _Outcome | None = None
    parked: bool = False
    restarts: int = 0
    depth: int = 0
    receives: Literal["side_a", "side_b"] = "side_a"
    reports: bool = False
    opened: bool = False
    name: str = ""
    frame: int = 0
    is_conversation: bool | None = None
    """Where it is not what one would think of a root."""
    took_over: bool = False
    open: _Step | None = None
    starts: tuple[Start, ...] = ()
    activated: tuple[str, ...] = ()
    given_up: tuple[tuple[str, str], ...] = ()
    deferred: tuple[Deferred, ...] = ()
    booted: tuple[str, ...] = ()
    drafts: dict[int, str] = {}
    deadline: int | None = None
    compactions: Compactions = NO_COMPACTIONS


class _State(Struct, frozen=True, kw_only=True):
    agent: str
    status: str
    title: str
    tags: tuple[str, ...]
    children: tuple[_Entry, ...]
    active_stack: tuple[StackFrameMeta, ...]
    terminated: int | None
    created_at: int = msgspec.field(name="createdAt")
    updated_at: int = msgspec.field(name="updatedAt")
    seq: int
    in_seq: int = msgspec.field(name="inSeq")
    history_bytes: int = msgspec.field(name="historyBytes")
    reference: str
    root: str
    parent: str | None
    session_key: str = msgspec.field(name="sessionKey")
    files: dict[str, _Content]
    kv: dict[str, Json]
    pending: tuple[Json, ...]
    run: _Run


_KNOWN: Final = frozenset(field.encode_name for field in msgspec.structs.fields(_State))
_Value = TypeVar("_Value")
_decoder: Final = msgspec.json.Decoder(_State)
_objects: Final = msgspec.json.Decoder(dict[str, Json])
_encoder: Final = msgspec.json.Encoder()


def write_state(
    record: Record,
    history_bytes: int,
    unknown: Mapping[str, Json] = {},
    stack: tuple[StackFrameMeta, ...] = (),
) -> bytes:
    """``state.json`` as one line of text."""
    thread = record.thread
    entries = [_entry(child, record) for child in thread.family.children]
    text = _encoder.encode(
        _State(
            agent=thread.agent or record.agent,
            status=thread.status,
            title=record.title,
            tags=record.tags,
            children=tuple(entries),
            active_stack=stack,
            terminated=thread.terminated,
            created_at=record.created_at,
            updated_at=record.updated_at,
            seq=record.seq,
            in_seq=record.in_seq,
            history_bytes=history_bytes,
            reference=record.run_id,
            root=record.root_run_id,
            parent=record.parent_run_id,
            session_key=record.session_key,
            files={
                path: _Content(digest=ref.digest, size=ref.size)
                for path, ref in thread.area.files.items()
            },
            kv=dict(thread.area.keys),
            pending=tuple([msgspec.Raw(encode_event(item)) for item in record.pending]),
            run=_run_of(record),
        )
    )
    if unknown:
        more = b",".join(_encoder.encode(key) + b":" + bytes(unknown[key]) for key in unknown)
        text = text[:-1] + b"," + more + b"}"
    return text + b"\n"


def read_state(data: bytes) -> StateText:
    """The reverse of ``write_state``; raises ``BadValue`` for what is none, with the key."""
    try:
        state = _decoder.decode(data)
        unknown = {
            key: value.copy() for key, value in _objects.decode(data).items() if key not in _KNOWN
        }
        pending = tuple([_item(raw) for raw in state.pending])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("state.json", str(error)) from None
    record = Record(
        run_id=state.reference,
        root_run_id=state.root,
        parent_run_id=state.parent,
        agent=state.agent,
        title=state.title,
        session_key=state.session_key,
        tags=state.tags,
        created_at=state.created_at,
        updated_at=state.updated_at,
        seq=state.seq,
        in_seq=state.in_seq,
        thread=_thread_of(state),
        pending=pending,
        idle=tuple(entry.reference for entry in state.children if entry.status == "idle"),
        spawned={entry.reference: entry.number for entry in state.children if entry.number},
        drafts=state.run.drafts,
        deadline=state.run.deadline,
        took_over=state.run.took_over,
    )
    return StateText(record, state.history_bytes, unknown, state.active_stack)


def _item(raw: Json) -> InLane:
    event = decode_event(bytes(raw))
    if not isinstance(event, InLane):
        raise BadValue("state.json", f"pending holds {event.type}, which no inbox takes")
    return event


def _entry(child: Child, record: Record) -> _Entry:
    status = "running"
    if child.ended:
        status = "terminated"
    elif child.run_id in record.idle:
        status = "idle"
    return _Entry(
        reference=child.run_id, agent=child.agent, name=child.name, status=status,
        title=child.title, description=child.description, tool=child.tool,
        side=_known(child.side, "side_a"),
        group=child.group, created_at=child.created_at, resumable=child.resumable,
        blocking=child.blocking, explicit=child.explicit, reports=child.reports,
        takeover=child.takeover, number=record.spawned.get(child.run_id, 0),
        result=child.result, call=child.call,
    )  # fmt: skip


def _child(entry: _Entry) -> Child:
    return Child(
        run_id=entry.reference, agent=entry.agent, name=entry.name, title=entry.title,
        description=entry.description, tool=entry.tool, side=entry.side, group=entry.group,
        created_at=entry.created_at, resumable=entry.resumable, blocking=entry.blocking,
        explicit=entry.explicit, reports=entry.reports, takeover=entry.takeover,
        ended=entry.status == "terminated", result=entry.result, call=entry.call,
    )  # fmt: skip


def _known(value: _Value, default: _Value) -> _Value:
    """A default as itself: msgspec leaves out what is the same object, and keeps what is equal."""
    return default if value == default else value


def _run_of(record: Record) -> _Run:
    thread, step, last = record.thread, record.thread.open, record.thread.outcome
    family, origin = thread.family, thread.origin
    return _Run(
        phase=thread.phase, two_sided=thread.two_sided, once=thread.once, closing=thread.closing,
        session=thread.session, in_session=thread.in_session, turn=thread.turn,
        side=_known(thread.side, "side_a"),  # type: ignore[arg-type]
        session_turns=thread.session_turns, step=thread.step, turn_steps=thread.turn_steps,
        attempt=thread.attempt, has_spoken=thread.has_spoken, unseen=thread.unseen,
        answering=thread.answering, usage=_known(thread.usage, NO_USAGE),
        total_usage=_known(thread.total_usage, NO_USAGE),
        spent=_known(thread.spent, NOTHING_SPENT), limits=thread.limits,
        spent_before=_known(thread.spent_before, NOTHING_SPENT),
        outcome=None if last is None else _Outcome(
            session=last.session, success=last.success, outcome=last.outcome, reason=last.reason,
            output=_known(last.output_json, NULL), usage=_known(last.usage, NO_USAGE),
        ),
        parked=thread.parked, restarts=thread.restarts, depth=origin.depth,
        receives=_known(origin.receives, "side_a"),  # type: ignore[arg-type]
        reports=origin.reports, opened=bool(origin.run_id),
        name=origin.name, frame=origin.frame, took_over=record.took_over,
        is_conversation=None
        if origin.is_conversation == _is_conversation(
            origin.parent_run_id, once=thread.once, two_sided=thread.two_sided
        )
        else origin.is_conversation,
        open=None if step is None else _Step(
            number=step.number, parallel=step.parallel, calls=tuple([
                _Call(
                    index=c.index, name=c.name, status=c.status, child=c.child, key=c.key,
                    takeover=c.takeover, expires_at=c.expires_at,
                )
                for c in step.calls
            ]),
        ),
        starts=family.starts, activated=family.activated, given_up=family.given_up,
        deferred=family.deferred, booted=family.booted, drafts=dict(record.drafts),
        deadline=record.deadline, compactions=_known(thread.compactions, NO_COMPACTIONS),
    )  # fmt: skip


def _thread_of(state: _State) -> Thread:
    run, step, last = state.run, state.run.open, state.run.outcome
    talks = run.is_conversation
    children = tuple([_child(entry) for entry in state.children])
    if talks is None:
        talks = _is_conversation(state.parent, once=run.once, two_sided=run.two_sided)
    values: dict[str, Any] = {
        "agent": state.agent if run.phase != "new" else "",
        "status": state.status,
        "terminated": state.terminated,
        "origin": Origin(
            state.reference, state.root, state.parent, run.depth, run.receives, run.reports,
            run.name, run.frame, talks,
        ) if run.opened else EMPTY.origin,
        "acts_as": "frame" if run.frame else run.side,
        "family": Family(
            children, run.starts, run.activated, run.given_up, run.deferred, run.booted,
            tuple([child.run_id for child in children if child.is_undecided]), run.took_over,
        ),
        "area": Area(
            {p: FileRef(path=p, digest=c.digest, size=c.size) for p, c in state.files.items()},
            {key: value.copy() for key, value in state.kv.items()},
        ),
        "open": None if step is None else OpenStep(
            step.number, "", (), tuple([
                OpenCall(
                    c.index, c.name, "", c.status, child=c.child, key=c.key, takeover=c.takeover,
                    expires_at=c.expires_at,
                )
                for c in step.calls
            ]), step.parallel,
        ),
        "outcome": None if last is None else Outcome(
            last.session, last.success, last.outcome, last.reason, last.output.copy(),
            last.usage,
        ),
    }  # fmt: skip
    for name in _PLAIN:
        values[name] = getattr(run, name)
    return Thread(**values)


def _is_conversation(parent: str | None, *, once: bool, two_sided: bool) -> bool:
    """What one would think: two sides make one session unless somebody says otherwise."""
    return parent is None and (two_sided or not once)


_PLAIN: Final = (
    "phase", "two_sided", "once", "closing", "session", "in_session", "side", "turn",
    "session_turns", "step", "turn_steps", "attempt", "has_spoken", "unseen", "answering",
    "usage", "total_usage", "spent", "spent_before", "limits", "parked", "restarts", "compactions",
)  # fmt: skip
