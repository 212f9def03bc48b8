"""``session:*``: what is said to runs, and what becomes of their conversations."""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.events.agents import Ending
from hubbub.hub.events.event import (
    NO_USAGE,
    ContentPart,
    DecisionName,
    Event,
    FileRef,
    OutcomeName,
    PromptKind,
    Usage,
    Variable,
)
from hubbub.hub.events.left_out import LeftOut
from hubbub.hub.events.limits import Limits
from hubbub.hub.values import NULL, Json, decode_value

__all__ = [
    "IN_BOTH_LANES",
    "GivenTool",
    "HistoryCall",
    "HistoryMessage",
    "InLane",
    "SessionAbort",
    "SessionCancel",
    "SessionClose",
    "SessionCompact",
    "SessionCompaction",
    "SessionDropped",
    "SessionEnd",
    "SessionLimits",
    "SessionMessage",
    "SessionOpen",
    "SessionPop",
    "SessionPrompt",
    "SessionPromptEnd",
    "SessionPush",
    "SessionReply",
    "SessionReset",
    "SessionResult",
    "SessionStart",
    "SessionTaken",
    "SessionTerminate",
    "SessionTimer",
    "SessionTurn",
    "SessionVariables",
]


# ── session:* — sessions and conversations ───────────────────────────────────────────────────


class SessionStart(Event, tag="session:start", home="own"):
    """A session begins with what is taken in the same commit; ``side`` takes the first turn."""

    session: int = 1


class SessionTurn(Event, tag="session:turn", home="own"):
    """The turn goes to ``side`` of a two-sided agent.

    ``reason`` says why the other's ended: ``response``, ``stop_tool`` or ``limit``.  ``content``
    is handed over beside what the other side has said.
    """

    content: str = ""
    reason: str = ""


class SessionEnd(Ending, tag="session:end", home="own"):
    """A session is over; the run goes idle or ends.

    ``side`` is given where its request failed that told it what children had reported: that is not
    told again by a turn of its own.

    Where the provider of a model ``refused`` its ``request``, for what is in it or for its
    ``length``: what is ``left_out`` of the side's later requests, or that these ``summarise`` what
    is older first.
    """

    session: int = 1
    files: tuple[FileRef, ...] = ()
    refused: str = ""
    left_out: tuple[LeftOut, ...] = ()
    summarise: bool = False


class HistoryCall(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A tool call of a history, with its result; ``arguments`` is the JSON text of an object."""

    name: str
    arguments: str = "{}"
    output: str = ""
    is_error: bool = False


class HistoryMessage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A message of a history that a run is opened with: the ``user`` or the ``assistant``, which
    may have made calls.  ``parts`` are the user's."""

    role: str = "user"
    content: str = ""
    calls: tuple[HistoryCall, ...] = ()
    parts: tuple[ContentPart, ...] = ()


class GivenTool(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An external tool of one run; ``schema_json`` is a JSON schema of an object, ``timeout`` in
    seconds."""

    name: str
    description: str = ""
    schema_json: Json = msgspec.field(name="schema", default=NULL)
    timeout: float | None = None


class SessionOpen(Event, tag="session:open", home="in"):
    """Start a run, or find the one of ``session_key``.

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
    """The side that later messages are for."""
    reports: bool = False
    """Whether each session's result goes to the parent's inbox."""
    depth: int = 0
    frame: int = 0
    """The place of a takeover frame in its stack, 2 for the one above the main agent; else 0."""
    message: "SessionMessage | None" = None
    """The first message, where it is more than a text; its content is the input, too."""
    history: tuple[HistoryMessage, ...] = ()
    """What was said before the run began, as its model sees it."""
    tools: tuple[GivenTool, ...] = ()
    """External tools that this run has beside its agent's."""
    limits: Limits | None = None
    """What the run and all below it may use; of a root."""
    model: str = ""
    """Of a fork: the model that it asks instead of its agent's."""
    prompt: str = ""
    """Of a fork: the text of its instructions, instead of its agent's."""

    @property
    def input(self) -> Any:
        """The input, decoded again at each access."""
        return decode_value(self.input_json)

    @property
    def descriptor(self) -> Any:
        """The run's descriptor, decoded again at each access."""
        return decode_value(self.descriptor_json)


class SessionMessage(Event, tag="session:message", home="in"):
    """Something said to a run.  ``source`` and ``key`` deduplicate."""

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
    parts: tuple[ContentPart, ...] = ()
    """Images, documents and recordings that the model is shown beside the text."""

    @property
    def metadata(self) -> Any:
        """The metadata, decoded again at each access."""
        return decode_value(self.metadata_json) or {}


class SessionResult(Event, tag="session:result", home="in"):
    """A child's session is over; keyed ``<child run>#<session>``.

    ``answers`` are the keys of the parent's messages that the session took (``open`` for its
    first); ``final`` says that the child's run is over, too.  Session 0 is the end of a run outside
    of any: a result where it answers something, else only the word that the run is over.
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
    def only_ends(self) -> bool:
        """Whether it only says that the run is over: what there was to report has been reported."""
        return not (self.session or self.answers)

    @property
    def metadata(self) -> dict[str, str]:
        """What a message about it carries beside its text."""
        return {"reference": self.child_run_id, "name": self.name, "reason": self.reason}


class SessionReply(Event, tag="session:reply", home="in"):
    """The answer to a prompt; the first one counts.

    ``decision`` is always given to an approval, and ``deny`` may be given to any prompt, whose
    reason is then ``content``.  ``arguments_json`` are those to run with instead of the model's.
    ``is_error``: the result of an external tool is a failure.
    """

    prompt_id: str = ""
    content: str = ""
    source: str = ""
    decision: DecisionName = ""
    arguments_json: Json = msgspec.field(name="arguments", default=NULL)
    is_error: bool = False
    metadata_json: Json = msgspec.field(name="metadata", default=NULL)

    @property
    def metadata(self) -> Any:
        """The metadata, decoded again at each access."""
        return decode_value(self.metadata_json) or {}


class SessionTimer(Event, tag="session:timer", home="in"):
    """A timer of the run has fired."""

    timer: str = ""


class SessionVariables(Event, tag="session:variables", home="in"):
    """Variables are wanted, or (in the inbox) were provided; names only.

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
    """Interrupt the turn at work; without a ``run_id``, of every run of the hub."""

    reason: str = ""


class SessionCancel(Event, tag="session:cancel", home="in"):
    """Unwind the frames above the main agent; to a frame: it is popped, with those above it.

    ``depth``: how many frames are left of the stack, where it is being unwound already.
    """

    reason: str = ""
    depth: int = 0


class SessionClose(Event, tag="session:close", home="in"):
    """Accept nothing more, handle what waits, then end."""

    reason: str = ""


class SessionTerminate(Event, tag="session:terminate", home="in"):
    """End now and permanently; its acceptance closes the inbox."""

    reason: str = ""


class SessionReset(Event, tag="session:reset", home="in"):
    """Forget the context except for ``message``."""

    message: str = ""


class SessionCompact(Event, tag="session:compact", home="in"):
    """Put a summary in place of the older messages, when no call is open."""


class SessionLimits(Event, tag="session:limits", home="in"):
    """What a root and all below it may use from now on, together; ``None``: what its runtime says.

    Of a run that is no root it changes nothing.
    """

    limits: Limits | None = None


class SessionCompaction(Event, tag="session:compaction", home="own"):
    """From here on a summary stands for the older messages of ``side``, in what its model sees.

    ``covers`` counts them, from the first that it was shown until now; the record keeps them.
    ``step`` is the last step before.  With ``error`` there is no summary, and everything stays as
    it was; ``covers`` is 0 where there was nothing to summarise.  ``usage`` is what it has cost.
    """

    step: int = 0
    covers: int = 0
    own: int = 0
    """How many of these were the model's own."""
    summary: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    model: str = ""
    cached_apart: bool = False
    """As in ``agent:step``."""
    cost_nanos: int | None = None


class SessionPrompt(Event, tag="session:prompt", home="own"):
    """A question to ``to``: a run, a service, or ``user``, which is anyone who listens."""

    prompt_id: str = ""
    question: str = ""
    to: str = "user"
    options: tuple[str, ...] = ()
    timeout: float | None = None
    pauses: bool = False
    """Whether a call of the model's waits for it in no task, over restarts."""
    kind: PromptKind = "question"
    """``approval``: whether ``tool`` may run; ``external``: the result of ``tool``."""
    tool: str = ""
    arguments_json: Json = msgspec.field(name="arguments", default=NULL)
    """What the model wants ``tool`` to be run with."""
    schema_json: Json = msgspec.field(name="schema", default=NULL)
    """The JSON schema that the answer must fit, where it must."""
    ordinal: int = 0
    """Which question of its call or code this is, from 1, where the answer is kept on record."""
    identity: str = ""
    """What code that is executed again finds it by: its key, or a digest of what is asked."""

    @property
    def arguments(self) -> Any:
        """What the model wants ``tool`` to be run with; a fresh copy each time."""
        return decode_value(self.arguments_json)


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
    | SessionCompact
    | SessionLimits
)
"""What a run's inbox can hold."""

IN_BOTH_LANES: Final = (SessionVariables,)
"""Inbox items that a run's owner writes as well: first it asks by one, then others answer."""


class SessionTaken(Event, tag="session:taken", home="own"):
    """The owner takes these items out of its inbox, by name and with their contents."""

    items: tuple[InLane, ...] = ()


class SessionDropped(Event, tag="session:dropped", home="own"):
    """The owner takes these items out of its inbox unread; each becomes a dead letter.

    ``reason`` is the letter's: of a reply, how its prompt had ended.
    """

    items: tuple[InLane, ...] = ()
    reason: str = ""
