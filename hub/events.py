"""The event catalogue: everything that can happen, one frozen struct each.

Rules
-----
* A tag (``type``) and the meaning of a field are for ever; new fields have defaults.  A golden
  file pins tag, lane and fields.
* Fields hold ids and plain values, never live objects; tuples, never lists.
* ``home`` says where an event of this class is kept:

      own     the lane of the run it is about, written by the run's owner alone
      in      the lane of what others sent to a run; the hub turns it into a delivery
      hub     the hub's own lane: carried and journaled, never a fact about a run
      none    dispatched only
      scope   own inside a run's scope (``ctx.hub``), hub outside of one

* What every event carries (H-12) is stamped by the hub, not by whoever emits it.

Sections: AP (``agent:*``, ``session:message``, ``session:prompt``), SA and SB (children,
sessions), IA (``session:push``, ``session:pop``), AT (``agent:restore``).
"""

import re
import sys
from typing import Any, ClassVar, Final, Literal, TypeAlias, dataclass_transform

import msgspec
from msgspec import Struct, structs

from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.values import NULL, Json, Secret, decode_value, encode_value

Home: TypeAlias = Literal["own", "in", "hub", "none", "scope"]
OutcomeName: TypeAlias = Literal[
    "completed", "failed", "interrupted", "terminated", "timed_out", "limit"
]


_MUTABLE = re.compile(r"\b(list|dict|set|bytearray|Any|List|Dict|Set|MutableMapping)\b")
_SECRET = re.compile(r"\bSecret\b")


def _own_annotations(cls: Any, namespace: dict[str, Any]) -> dict[str, Any]:
    found = namespace.get("__annotations__")
    if found is None and sys.version_info >= (3, 14):
        found = cls.__annotations__  # Made when asked for, since PEP 649.
    return found or {}


# Events hold plain values and can be part of no cycle: the garbage collector may leave the many
# that a journal keeps alone.
_CONFIG: Final = {"frozen": True, "kw_only": True, "omit_defaults": True, "gc": False}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta):
    """Makes a subclass of ``Event`` frozen and keyword-only, and gives it its ``type``.

    ``class OrderPlaced(Event, tag="shop:order"): order_id: str`` is all a user's event needs;
    ``home="none"`` makes it ephemeral.
    """

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any
    ) -> Any:
        home = config.pop("home", None)
        config = {**_CONFIG, **config}
        cls: Any = super().__new__(mcls, name, bases, namespace, **config)
        if "tag" in config:
            cls.type = config["tag"]
            cls.home = home or ("none" if cls.type.endswith(":delta") else cls.home)
        kinds = {
            field: kind if isinstance(kind, str) else repr(kind)
            for field, kind in _own_annotations(cls, namespace).items()
        }
        mutable = [
            f"{field}: {kind} can be changed by a listener; use a tuple, a frozen Struct or Json"
            for field, kind in kinds.items()
            if "ClassVar" not in kind and _MUTABLE.search(kind)
        ]
        if mutable:
            raise DefinitionError(f"event {name}", mutable)
        inherited = getattr(bases[0], "secret_fields", ()) if bases else ()
        own = tuple(field for field, kind in kinds.items() if _SECRET.search(kind))
        cls.secret_fields = (*inherited, *own)
        return cls


class Event(Struct, metaclass=EventMeta, tag_field="type", tag="event"):
    """What every event carries (H-12); leave these fields out when you emit.

    ``at`` is µs since the Unix epoch, UTC.  ``lane`` and ``seq`` are set on durable events and
    with ``run_id`` identify them; on ephemeral ones ``lane`` is empty and ``seq`` is unique to
    the hub.  ``call_id`` names the tool call at work, ``turn`` and ``side`` the speaker.
    """

    type: ClassVar[str] = "event"
    home: ClassVar[Home] = "scope"
    secret_fields: ClassVar[tuple[str, ...]] = ()

    at: int = 0
    run_id: str = ""
    root_run_id: str = ""
    parent_run_id: str | None = None
    agent: str = ""
    lane: str = ""
    seq: int = 0
    side: str = ""
    label: str = ""
    turn: int = 0
    call_id: str = ""

    @property
    def id(self) -> str:
        """Unique everywhere; for durable events ``run_id/lane/seq``."""
        return f"{self.run_id}/{self.lane or '~'}/{self.seq}"

    @property
    def is_durable(self) -> bool:
        """Whether the event is in the journal."""
        return bool(self.lane)

    def __repr__(self) -> str:
        """The fields that differ from their defaults, values decoded."""
        shown = []
        for field in structs.fields(self.__class__):
            value = getattr(self, field.name)
            if value != field.default:
                text = decode_value(value) if isinstance(value, Json) else value
                shown.append(f"{field.encode_name}={text!r}")
        return f"{self.__class__.__name__}({', '.join(shown)})"


_KNOWN: set[str] = set()
"""The catalogue's own types, filled in at the end of this module."""


class CustomEvent(Event, tag="custom"):
    """An event of a type the catalogue does not know (H-13).

    Make one with ``CustomEvent.of("shop:order", order_id=7)``; ``event.type`` is the given
    text, ``event.data`` a fresh dict each time.  Types ending in ``:delta`` and ``channel:*``
    are ephemeral unless ``durable=True``.
    """

    name: str = ""
    data_json: Json = msgspec.field(name="data", default=NULL)
    durable: bool | None = None

    def __post_init__(self) -> None:
        if self.name in _KNOWN:
            raise BadValue("CustomEvent", f"{self.name} is in the catalogue; use its own class")

    @property
    def data(self) -> Any:
        return decode_value(self.data_json)

    @classmethod
    def of(cls, type_: str, /, *, durable: bool | None = None, **data: Any) -> "CustomEvent":
        """An event named ``type_``; raises ``BadValue`` for data that JSON cannot hold."""
        return cls(name=type_, data_json=encode_value(type_, data), durable=durable)


def _name_as_type(self: CustomEvent) -> str:
    return self.name


# A property of this name in the class body would become part of the struct's definition.
CustomEvent.type = property(_name_as_type)  # type: ignore[assignment]


# ── parts ────────────────────────────────────────────────────────────────────────────────────


class Usage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Tokens of one or more model calls, as the provider counted them; 0 where it did not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


NO_USAGE = Usage()


class ToolCall(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A call that a model asks for.

    ``arguments`` is the JSON text exactly as the model wrote it, which may be malformed; ``id``
    is the provider's id, data that is neither unique nor trusted (S-07).
    """

    name: str
    arguments: str = "{}"
    id: str = ""


class Variable(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A variable's value on its way to the runtime; ``scoped`` ones reach the run they are given
    to and its descendants, whatever is declared (D-07)."""

    name: str
    value: Secret
    scoped: bool = False


class FileRef(Struct, frozen=True, gc=False, kw_only=True):
    """A file of a run's area: its name there, and its content by digest (T-07, A-01)."""

    path: str
    digest: str
    size: int


# ── agent:* — what a run does, in its own lane ───────────────────────────────────────────────


class AgentStart(Event, tag="agent:start", home="own"):
    """A run begins; exactly one per run (R-03).  ``correlation_id`` is its opener's (R-09)."""

    input_json: Json = msgspec.field(name="input", default=NULL)
    correlation_id: str = ""
    session_key: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    two_sided: bool = False
    once: bool = False
    """Whether the run ends with its first session (decision 12)."""

    @property
    def input(self) -> Any:
        return decode_value(self.input_json)


class AgentThinking(Event, tag="agent:thinking", home="own"):
    """A finished block of reasoning; ``signature`` and ``redacted`` are the provider's."""

    step: int = 0
    block: int = 0
    text: str = ""
    signature: str = ""
    redacted: str = ""


class AgentText(Event, tag="agent:text", home="own"):
    """A finished block of text, said to the user."""

    step: int = 0
    block: int = 0
    text: str = ""


class AgentStep(Event, tag="agent:step", home="own"):
    """One model call is over; its text and thinking stand in the events before it (R-11)."""

    step: int = 0
    attempt: int = 1
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE
    stop_reason: str = "end"
    model: str = ""
    parallel: bool = False


class AgentRetry(Event, tag="agent:retry", home="own"):
    """A model call failed and is tried again after ``delay`` seconds (M-03)."""

    step: int = 0
    attempt: int = 1
    kind: str = ""
    error: str = ""
    delay: float = 0.0


class AgentToolStart(Event, tag="agent:tool:start", home="own"):
    """A tool is about to run; recorded before it does."""

    step: int = 0
    index: int = 0
    name: str = ""
    arguments: str = "{}"


class AgentToolComplete(Event, tag="agent:tool:complete", home="own"):
    """A call has its one result (S-07).

    ``ran`` is False where its tool was never called (unknown, bad arguments, skipped).
    ``notes`` are shown to the model behind the output.
    """

    step: int = 0
    index: int = 0
    name: str = ""
    output: str = ""
    is_error: bool = False
    attachments: tuple[str, ...] = ()
    ran: bool = True
    notes: tuple[str, ...] = ()


class AgentStatus(Event, tag="agent:status", home="own"):
    """What the run is busy with, in words."""

    status: str = ""


class AgentMessage(Event, tag="agent:message", home="own"):
    """The run sent a message to another run (``to``).

    Where a call did (``subagent_message``), ``step`` and ``index`` name it, ``key`` is the
    message's own, and with ``waits`` the call's result is that of the session that takes it.
    """

    to: str = ""
    content: str = ""
    key: str = ""
    step: int = 0
    index: int = 0
    waits: bool = False


class AgentChild(Event, tag="agent:child", home="own"):
    """The run started a child, or (``error``) one that was due at once could not be started.

    ``waits``: a call, or with ``immediate`` the next model step, is held back until the child's
    first session is over.  ``resumable``: the child stays.  ``reports``: its results come to
    this run's inbox; without, by the handle only (R-13).  ``tool`` names what configured it.
    """

    child_run_id: str = ""
    child_agent: str = ""
    name: str = ""
    title: str = ""
    description: str = ""
    tool: str = ""
    resumable: bool = False
    waits: bool = False
    blocking: bool = False
    explicit: bool = False
    reports: bool = False
    immediate: bool = False
    takeover: bool = False
    """Whether the child takes the conversation over until it calls ``complete`` (I-01)."""
    step: int = 0
    index: int = 0
    group: str = ""
    created_at: int = 0
    error: str = ""
    result: str = ""
    """Where code has started it, what becomes of its result: it is read by the ``handle``, told as
    a ``message``, or nobody's (``ignore``); ``call``: the end of the call ``call_id`` decides."""


class AgentRead(Event, tag="agent:read", home="own"):
    """The code that has started a child asks for its result by its handle."""

    child_run_id: str = ""


class AgentImmediate(Event, tag="agent:immediate", home="own"):
    """A prompt became active that starts these subagents before its first step (C-04).

    ``message`` is what made it active.  With ``skipped``, places among those of the latest such
    event, nothing became active: these do not start, as their branch is disabled.
    """

    names: tuple[str, ...] = ()
    message: str = ""
    skipped: tuple[int, ...] = ()


class AgentFile(Event, tag="agent:file", home="own"):
    """The run's file area changed: files written, or deleted (T-07)."""

    files: tuple[FileRef, ...] = ()
    deleted: tuple[str, ...] = ()


class AgentKey(Event, tag="agent:key", home="own"):
    """The run's key-value area changed (T-01)."""

    key: str = ""
    value_json: Json = msgspec.field(name="value", default=NULL)
    deleted: bool = False

    @property
    def value(self) -> Any:
        return decode_value(self.value_json)


class AgentRecord(Event, tag="agent:record", home="own"):
    """What a step of a code agent (``ctx.step``) has come to: kept for later executions (P-15).

    ``index`` counts the run's steps of that ``name``, from 1.
    """

    name: str = ""
    index: int = 0
    value_json: Json = msgspec.field(name="value", default=NULL)

    @property
    def value(self) -> Any:
        return decode_value(self.value_json)


class AgentHandoff(Event, tag="agent:handoff", home="own"):
    """The run goes on as another agent."""

    to: str = ""


class AgentPark(Event, tag="agent:park", home="own"):
    """The run has nothing to do and leaves memory until something arrives.

    ``waits``: it stays there; after a restart its code has come as far as to wait for others.
    """

    waits: bool = False


class AgentRestore(Event, tag="agent:restore", home="own"):
    """The run goes on after a crash or restart; partial text streamed before it is void."""

    attempt: int = 2
    reason: str = ""


class AgentClaim(Event, tag="agent:claim", home="own"):
    """An owner took the run over."""

    owner: str = ""
    epoch: int = 0


class AgentInterrupted(Event, tag="agent:interrupted", home="own"):
    """The turn at work was interrupted."""

    reason: str = ""


class AgentFailed(Event, tag="agent:failed", home="own"):
    """An error ends the run; the terminal ``agent:complete`` follows it."""

    error: str = ""
    error_type: str = ""


class Ending(Event):
    """The fields that the end of a session and the end of a run share."""

    success: bool = True
    outcome: OutcomeName = "completed"
    reason: str = ""
    output_json: Json = msgspec.field(name="output", default=NULL)
    usage: Usage = NO_USAGE

    @property
    def output(self) -> Any:
        return decode_value(self.output_json)


class AgentComplete(Ending, tag="agent:complete", home="own"):
    """The run is over: exactly one per run, and the last of its own events (R-03, R-04)."""


# ── session:* — sessions and conversations ───────────────────────────────────────────────────


class SessionStart(Event, tag="session:start", home="own"):
    """A session begins with what is taken in the same commit; ``side`` takes the first turn."""

    session: int = 1


class SessionTurn(Event, tag="session:turn", home="own"):
    """The turn goes to ``side`` of a two-sided agent (S-02).

    ``reason`` says why the other's ended: ``response``, ``stop_tool`` or ``limit``.  ``content``
    is handed over beside what the other side has said.
    """

    content: str = ""
    reason: str = ""


class SessionEnd(Ending, tag="session:end", home="own"):
    """A session is over; the run goes idle or ends (decision 12)."""

    session: int = 1
    files: tuple[FileRef, ...] = ()


class SessionOpen(Event, tag="session:open", home="in"):
    """Start a run, or find the one of ``session_key`` (R-09).

    ``run_id`` may be minted by the opener.  ``once`` ends the run with its first session;
    ``timeout`` is in seconds; ``open_agent`` names the agent.
    """

    open_agent: str = ""
    input_json: Json = msgspec.field(name="input", default=NULL)
    session_key: str = ""
    correlation_id: str = ""
    name: str = ""
    once: bool = False
    timeout: float | None = None
    descriptor_json: Json = msgspec.field(name="descriptor", default=NULL)
    variables: tuple[Variable, ...] = ()
    tags: tuple[str, ...] = ()
    files: tuple[FileRef, ...] = ()
    receives: str = "side_a"
    """The side that later messages are for (C-08)."""
    reports: bool = False
    """Whether each session's result goes to the parent's inbox."""
    depth: int = 0
    frame: int = 0
    """The place of a takeover frame in its stack, 2 for the one above the main agent; else 0."""
    message: "SessionMessage | None" = None
    """The first message, where it is more than a text; its content is the input, too (U-07)."""

    @property
    def input(self) -> Any:
        return decode_value(self.input_json)

    @property
    def descriptor(self) -> Any:
        return decode_value(self.descriptor_json)


class SessionMessage(Event, tag="session:message", home="in"):
    """Something said to a run (H-20).  ``source`` and ``key`` deduplicate (H-09)."""

    content: str = ""
    role: str = "user"
    source: str = ""
    key: str = ""
    attachments: tuple[str, ...] = ()
    files: tuple[FileRef, ...] = ()
    silent: bool = False
    triggers: bool = True
    prompt_id: str = ""
    redelivered: bool = False
    from_run: bool = False
    """Whether a run said it, in its own name (``ctx.hub``, ``state``)."""
    metadata_json: Json = msgspec.field(name="metadata", default=NULL)

    @property
    def metadata(self) -> Any:
        return decode_value(self.metadata_json) or {}


class SessionResult(Event, tag="session:result", home="in"):
    """A child's session is over; keyed ``<child run>#<session>``.

    ``answers`` are the keys of the parent's messages that the session took (``open`` for its
    first); ``final`` says that the child's run is over, too.
    """

    child_run_id: str = ""
    child_agent: str = ""
    name: str = ""
    session: int = 1
    success: bool = True
    outcome: OutcomeName = "completed"
    reason: str = ""
    content: str = ""
    files: tuple[FileRef, ...] = ()
    answers: tuple[str, ...] = ()
    final: bool = False

    @property
    def metadata(self) -> dict[str, str]:
        """What a message about it carries beside its text (C-09)."""
        return {"reference": self.child_run_id, "name": self.name, "reason": self.reason}


class SessionReply(Event, tag="session:reply", home="in"):
    """The answer to a prompt; the first one counts (H-10)."""

    prompt_id: str = ""
    content: str = ""
    source: str = ""


class SessionTimer(Event, tag="session:timer", home="in"):
    """A timer of the run has fired."""

    timer: str = ""


class SessionVariables(Event, tag="session:variables", home="in"):
    """Variables are wanted, or (in the inbox) were provided; names only (V-01, V-02).

    ``names`` are missing, or were given.  Where they are wanted, the rest is the creation that
    waits for them; where they were provided, ``child_run_id`` is the run they belong to.
    """

    request_id: str = ""
    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    child_run_id: str = ""
    child_agent: str = ""
    name: str = ""
    message: str = ""
    files: tuple[FileRef, ...] = ()
    owner: str = ""
    """The agent that asked, which the run may no longer be."""
    expires_at: int = 0
    provided_at: int = 0


class SessionAbort(Event, tag="session:abort", home="in"):
    """Interrupt the turn at work; without a ``run_id``, of every run of the hub (H-11)."""

    reason: str = ""


class SessionCancel(Event, tag="session:cancel", home="in"):
    """Unwind the frames above the main agent; to a frame: it is popped, with those above it.

    ``depth``: how many frames are left of the stack, where it is being unwound already.
    """

    reason: str = ""
    depth: int = 0


class SessionClose(Event, tag="session:close", home="in"):
    """Accept nothing more, handle what waits, then end (R-17)."""

    reason: str = ""


class SessionTerminate(Event, tag="session:terminate", home="in"):
    """End now and for good; its acceptance closes the inbox (T-05)."""

    reason: str = ""


class SessionReset(Event, tag="session:reset", home="in"):
    """Forget the context but for ``message``."""

    message: str = ""


class SessionPrompt(Event, tag="session:prompt", home="own"):
    """A question to ``to``: a run, a service, or ``user``, whoever listens (H-10)."""

    prompt_id: str = ""
    question: str = ""
    to: str = "user"
    options: tuple[str, ...] = ()
    timeout: float | None = None
    pauses: bool = False
    """Whether the asking model's call ``interrupt`` waits for it, over restarts (I-15)."""


class SessionPromptEnd(Event, tag="session:prompt:end", home="own"):
    """A prompt can no longer be answered; channels take it off the screen."""

    prompt_id: str = ""
    reason: str = ""


class SessionPush(Event, tag="session:push", home="own"):
    """A frame takes the conversation over: in its caller's lane, with the call's ``call_id``.

    ``depth`` counts the frames of the stack from now on, the main agent's included.  The rest is
    what the frame was begun with (IA's ``StackFrameMeta``): ``model`` as it is named, ``tools``
    by name, ``variables`` without their values.
    """

    frame_run_id: str = ""
    frame_agent: str = ""
    depth: int = 0
    model: str = ""
    max_iterations: int = 0
    tools: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    message: str = ""


class SessionPop(Event, tag="session:pop", home="own"):
    """A frame gives the conversation back: in its caller's lane, beside the call's one result.

    ``depth`` counts the frames that are left.  ``is_error``: it did not call ``complete``.
    """

    frame_run_id: str = ""
    frame_agent: str = ""
    depth: int = 0
    is_error: bool = False


InLane: TypeAlias = (
    SessionOpen
    | SessionMessage
    | SessionResult
    | SessionReply
    | SessionTimer
    | SessionVariables
    | SessionAbort
    | SessionCancel
    | SessionClose
    | SessionTerminate
    | SessionReset
)


class SessionTaken(Event, tag="session:taken", home="own"):
    """The owner takes these items out of its inbox, by name and with their contents."""

    items: tuple[InLane, ...] = ()


class SessionDropped(Event, tag="session:dropped", home="own"):
    """The owner takes these items out of its inbox unread; each becomes a dead letter (T-09).

    ``reason`` is the letter's: of a reply, how its prompt had ended (G-09).
    """

    items: tuple[InLane, ...] = ()
    reason: str = ""


# ── deltas, schedules, the hub itself ────────────────────────────────────────────────────────


class AgentTextDelta(Event, tag="agent:text:delta"):
    """A piece of text as it is written; void once a durable event with a higher seq came.

    It begins at ``offset`` of its block's text, in code points: whoever has heard less than that
    has missed something.
    """

    step: int = 0
    attempt: int = 1
    block: int = 0
    after_seq: int = 0
    text: str = ""
    offset: int = 0


class AgentThinkingDelta(Event, tag="agent:thinking:delta"):
    """A piece of reasoning as it is written; its fields are those of ``AgentTextDelta``."""

    step: int = 0
    attempt: int = 1
    block: int = 0
    after_seq: int = 0
    text: str = ""
    offset: int = 0


class ScheduleFire(Event, tag="schedule:fire", home="hub"):
    """A schedule's tick (µs) starts a session of the run ``run_id``: recorded before it does."""

    schedule: str = ""
    tick: int = 0


class ScheduleSkip(Event, tag="schedule:skip", home="hub"):
    """``count`` ticks of a schedule, the last one at ``tick`` (µs), are passed over.

    ``reason`` is ``busy`` (its run is at work) or ``missed`` (nothing ran at the time).
    """

    schedule: str = ""
    tick: int = 0
    reason: str = ""
    count: int = 1


class ChannelStart(Event, tag="channel:start", home="none"):
    """A channel is attached and ready."""

    channel: str = ""


class ChannelComplete(Event, tag="channel:complete", home="none"):
    """A channel is detached."""

    channel: str = ""


class ChannelError(Event, tag="channel:error", home="none"):
    """A channel's handler raised; not delivered back to that channel."""

    channel: str = ""
    error: str = ""
    error_type: str = ""
    during: str = ""


class HubErrorEvent(Event, tag="hub:error", home="none"):
    """A listener raised (H-01)."""

    error: str = ""
    error_type: str = ""
    listener: str = ""
    during: str = ""


class HubDeadLetter(Event, tag="hub:dead_letter", home="none"):
    """A message that nobody will handle: rejected, or left over when its run ended (T-09).

    Told once, together with what it comes of, to whoever listens at that moment.  It is not kept:
    if the process dies at that very commit, the journal alone says so, by an ended run whose inbox
    has a message that it never took.
    """

    to: str = ""
    reason: str = ""
    message: InLane | None = None


class HubGap(Event, tag="hub:gap", home="none"):
    """Put into a stream that fell behind or began at a cursor this store cannot place.

    ``dropped`` events are missing here (0 when the number is not known); ``cursor`` resumes at
    the place of the gap.
    """

    dropped: int = 0
    cursor: str = ""
    reason: str = "overflow"


CATALOGUE: tuple[type[Event], ...] = (
    AgentStart, AgentThinking, AgentText, AgentStep, AgentRetry, AgentToolStart,
    AgentToolComplete, AgentStatus, AgentMessage, AgentChild, AgentRead, AgentImmediate,
    AgentFile, AgentKey, AgentRecord, AgentHandoff, AgentPark,
    AgentRestore, AgentClaim, AgentInterrupted, AgentFailed, AgentComplete,
    SessionStart, SessionTurn, SessionEnd, SessionOpen, SessionMessage, SessionResult, SessionReply,
    SessionTimer, SessionVariables, SessionAbort, SessionCancel, SessionClose,
    SessionTerminate, SessionReset, SessionPrompt, SessionPromptEnd, SessionPush, SessionPop,
    SessionTaken, SessionDropped, AgentTextDelta, AgentThinkingDelta, ScheduleFire, ScheduleSkip,
    ChannelStart, ChannelComplete, ChannelError, HubErrorEvent, HubDeadLetter, HubGap,
)  # fmt: skip

_KNOWN.update(event.type for event in CATALOGUE)
