"""``agent:*``: what runs do, as facts in their own lanes, and the pieces of text on the way."""

from typing import Any

import msgspec

from hubbub.hub.events.event import (
    NO_USAGE,
    ContentPart,
    Event,
    FileRef,
    OutcomeName,
    ToolCall,
    Usage,
)
from hubbub.hub.values import NULL, Json, decode_value

__all__ = [
    "AgentBase",
    "AgentChild",
    "AgentClaim",
    "AgentComplete",
    "AgentFailed",
    "AgentFile",
    "AgentHandoff",
    "AgentImmediate",
    "AgentInterrupted",
    "AgentKey",
    "AgentMessage",
    "AgentPark",
    "AgentRecord",
    "AgentRestore",
    "AgentRetry",
    "AgentStart",
    "AgentStatus",
    "AgentStep",
    "AgentText",
    "AgentTextDelta",
    "AgentThinking",
    "AgentThinkingDelta",
    "AgentToolComplete",
    "AgentToolStart",
    "Ending",
]


# ── agent:* — what a run does, in its own lane ───────────────────────────────────────────────


class AgentStart(Event, tag="agent:start", home="own"):
    """A run begins; exactly one per run.  ``correlation_id`` is its opener's."""

    input_json: Json = msgspec.field(name="input", default=NULL)
    correlation_id: str = ""
    session_key: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    two_sided: bool = False
    once: bool = False
    """Whether the run ends with its first session."""

    @property
    def input(self) -> Any:
        """The input, decoded again at each access."""
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
    """One model call is over; its text and thinking are in the events before it.

    ``choice`` is the place of the model that answered, among those of the prompt.
    """

    step: int = 0
    attempt: int = 1
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE
    stop_reason: str = "end"
    model: str = ""
    parallel: bool = False
    choice: int = 0
    cached_apart: bool = False
    """Whether the provider counts what it cached beside ``usage.input_tokens``, not in it."""
    cost_nanos: int | None = None
    """What it has cost, in billionths; ``None`` where its model has no price."""
    worked: int = 0
    """Microseconds at work since the step before, of a code agent's conversation."""


class AgentRetry(Event, tag="agent:retry", home="own"):
    """A model call failed and is tried again after ``delay`` seconds.

    ``choice`` is the place of the model that is asked then, among those of the prompt; ``model``
    its name, where it is another one.  Of the ``kind`` ``output``: the answer of the step before
    does not fit what it is to be, and ``error`` is what the model reads of it, as the result of
    the call ``call_id`` or, where that is empty, as a message.
    """

    step: int = 0
    attempt: int = 1
    kind: str = ""
    error: str = ""
    delay: float = 0.0
    choice: int = 0
    model: str = ""


class AgentToolStart(Event, tag="agent:tool:start", home="own"):
    """A tool is about to run; recorded before it does."""

    step: int = 0
    index: int = 0
    name: str = ""
    arguments: str = "{}"


class AgentToolComplete(Event, tag="agent:tool:complete", home="own"):
    """A call has its one result.

    ``ran`` is False where its tool was never called (unknown, bad arguments, skipped).
    ``notes`` and ``parts`` are shown to the model behind the output.
    """

    step: int = 0
    index: int = 0
    name: str = ""
    output: str = ""
    is_error: bool = False
    attachments: tuple[str, ...] = ()
    ran: bool = True
    notes: tuple[str, ...] = ()
    parts: tuple[ContentPart, ...] = ()


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
    this run's inbox; without, by the handle only.  ``tool`` names what configured it.
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
    """Whether the child takes the conversation over until it calls ``complete``."""
    step: int = 0
    index: int = 0
    group: str = ""
    created_at: int = 0
    error: str = ""
    result: str = ""
    """Where code has started it, what becomes of its result: it is read by the ``handle``, told as
    a ``message``, or nobody's (``ignore``); ``call``: the end of the call ``call_id`` decides."""
    identity: str = ""
    """What code that is executed again finds it by: its key, or a digest of what was asked for."""
    in_order: bool = False
    """Whether the code's calls until then were made by one task, whose order is always the same."""


class AgentImmediate(Event, tag="agent:immediate", home="own"):
    """A prompt became active that starts these subagents before its first step.

    ``message`` is what made it active.  With ``skipped``, places among those of the latest such
    event, nothing became active: these do not start, as their branch is disabled.
    """

    names: tuple[str, ...] = ()
    message: str = ""
    skipped: tuple[int, ...] = ()


class AgentFile(Event, tag="agent:file", home="own"):
    """The run's file area changed: files written, or deleted."""

    files: tuple[FileRef, ...] = ()
    deleted: tuple[str, ...] = ()


class AgentKey(Event, tag="agent:key", home="own"):
    """The run's key-value area changed."""

    key: str = ""
    value_json: Json = msgspec.field(name="value", default=NULL)
    deleted: bool = False

    @property
    def value(self) -> Any:
        """The value, decoded again at each access."""
        return decode_value(self.value_json)


class AgentRecord(Event, tag="agent:record", home="own"):
    """What a step of a code agent (``ctx.step``) has come to: kept for later executions.

    ``index`` counts the run's steps of that ``name``, from 1.
    """

    name: str = ""
    index: int = 0
    value_json: Json = msgspec.field(name="value", default=NULL)

    @property
    def value(self) -> Any:
        """The value, decoded again at each access."""
        return decode_value(self.value_json)


class AgentHandoff(Event, tag="agent:handoff", home="own"):
    """The run continues as another agent.

    In a fork also as the same one: with another ``model``, and another ``prompt`` (the text of
    its instructions), where these are given.
    """

    to: str = ""
    model: str = ""
    prompt: str = ""


class AgentPark(Event, tag="agent:park", home="own"):
    """The run has nothing to do and leaves memory until something arrives.

    ``waits``: it stays there; after a restart its code has come as far as to wait for others.
    """

    waits: bool = False


class AgentBase(Event, tag="agent:base", home="own"):
    """What a run has come to by then: its older records may go, and its lane begins with this.

    ``thread`` is its state, and ``version`` says how to read it.  Beside it is what else is looked
    for in the records that go: the ``files`` and the ``parts`` that the state names, the
    ``children`` that the run still knows, of all it has started, how long it was at work
    (``worked``, µs, as far as that was counted).  ``inbox`` is how many items had come to its inbox
    before, which the store counts.
    """

    version: int = 1
    thread_json: Json = msgspec.field(name="thread", default=NULL)
    files: tuple[FileRef, ...] = ()
    parts: tuple[ContentPart, ...] = ()
    children: tuple[str, ...] = ()
    worked: int = 0
    inbox: int = 0


class AgentRestore(Event, tag="agent:restore", home="own"):
    """The run continues after a crash or restart; partial text streamed before it is void."""

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
        """The output, decoded again at each access; ``None`` if there is none."""
        return decode_value(self.output_json)


class AgentComplete(Ending, tag="agent:complete", home="own"):
    """The run is over: exactly one per run, and the last of its own events."""


# ── deltas, schedules, the hub itself ────────────────────────────────────────────────────────


class AgentTextDelta(Event, tag="agent:text:delta"):
    """A piece of text as it is written; void once a durable event with a higher seq came.

    It begins at ``offset`` of its block's text, in code points: a listener that has
    received less than that has missed something.
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
