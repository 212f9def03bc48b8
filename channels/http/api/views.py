"""What a runtime answers, as types: for the OpenAPI document, and for who reads it.

They follow what ``hubbub.runtime`` makes, which channels do not import; a test holds both together.
All times are µs since the Unix epoch, UTC.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from hubbub.hub.events import FileRef, PromptKind, Usage
from hubbub.hub.events.event import OutcomeName
from hubbub.hub.store.journal import RunStatus

__all__ = [
    "AgentView", "AwaitedView", "ConversationPage", "ConversationView", "FileView", "PromptView",
    "ReportView", "RunView", "ScheduleView", "StateView", "TreesView", "VariableRequestView",
    "VariableView", "WantedVariableView",
]  # fmt: skip


class VariableView(Struct, frozen=True, kw_only=True):
    """A variable that an agent, or a subagent of its, reads: a ``secret``, or a ``text``.

    ``needed``: the opening of a run has to bring it (``env``); nothing else gives it a value, and
    without one turns fail.  One that is ``required`` and ``scoped`` is asked for when the subagent
    that reads it is to be started.
    """

    name: str
    type: Literal["secret", "text"] = "secret"
    description: str = ""
    required: bool = False
    scoped: bool = False
    needed: bool = False


class AgentView(Struct, frozen=True, kw_only=True):
    """An agent: what it is called, what it does, which variables it reads."""

    name: str
    title: str = ""
    description: str = ""
    variables: tuple[VariableView, ...] = ()


class UsedView(Struct, frozen=True, kw_only=True):
    """What the models of a tree of runs have used, calls and tokens, cached ones included.

    ``cost`` is in the currency of the runtime's prices; ``null`` where it is not known of every
    call.
    """

    model_calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None


class RunView(Struct, frozen=True, kw_only=True):
    """A run as a line of a list; ``depth`` counts the shown runs above it.

    ``status`` is ``active`` (at work, or has something to take), ``waiting`` (for a child, a person
    or an external result), ``parked`` (for the next message) or ``ended``.  ``inbox`` is ``open``,
    ``closing``, ``terminated`` or ``ended``; ``waiting`` how much waits in it; ``outcome`` is empty
    until the run has ended.  ``tree`` is what it and all below it have used: in a report, and in
    lists of the roots whose trees are not too long to count.  ``damage`` is what of it, or of a run
    below it that is not shown, cannot be read.
    """

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    depth: int
    agent: str
    name: str
    status: RunStatus
    inbox: Literal["open", "closing", "terminated", "ended"]
    outcome: Literal[OutcomeName, ""]
    created_at: int
    waiting: int
    session_key: str
    tree: UsedView | None = None
    damage: str = ""


class PromptView(Struct, frozen=True, kw_only=True):
    """What a person is asked.

    ``kind`` is ``question``, ``approval`` (may ``tool`` run with these ``arguments``?) or
    ``external`` (the result of ``tool``).  An answer must fit ``schema`` where there is one;
    ``options`` are suggestions.
    ``is_answered``: an answer waits in its run's inbox.
    """

    prompt_id: str
    run_id: str
    root_run_id: str
    agent: str
    kind: PromptKind
    question: str
    options: tuple[str, ...]
    tool: str
    arguments: Any
    schema: Any
    since: int
    expires_at: int | None
    waits_in: str
    is_answered: bool


class WantedVariableView(Struct, frozen=True, kw_only=True):
    """A variable that a subagent needs: a ``secret``, or a ``text`` that people may see.

    ``is_missing``: it had no value when the subagent was called.
    """

    name: str
    type: Literal["secret", "text"]
    description: str
    is_missing: bool


class VariableRequestView(Struct, frozen=True, kw_only=True):
    """A subagent that is started as soon as its variables are given, by a POST to ``path``.

    ``run_id`` is the run that called it, ``agent`` the subagent; ``path`` is relative to where the
    app is mounted.
    """

    request_id: str
    run_id: str
    root_run_id: str
    agent: str
    path: str
    variables: tuple[WantedVariableView, ...]
    since: int
    expires_at: int


class TreesView(Struct, frozen=True, kw_only=True):
    """Trees of runs, the newest first, each from its root down; ``more`` trees are left out,
    counted up to 1,000.

    ``prompts`` is what people are asked by these runs.
    """

    runs: tuple[RunView, ...]
    more: int
    prompts: tuple[PromptView, ...]


class WaitingView(Struct, frozen=True, kw_only=True):
    """An item in an inbox."""

    at: int
    seq: int
    type: str
    source: str
    text: str


SaidKind: TypeAlias = Literal[
    "user", "assistant", "system", "call", "tool", "result", "child", "takeover", "question",
    "reply", "handoff", "reset", "summary", "control", "interrupted", "failed",
]  # fmt: skip


class SaidView(Struct, frozen=True, kw_only=True):
    """A piece of a conversation; ``depth`` counts the takeover frames that it is said in.

    ``who`` and ``text`` are words for people.  ``kind`` says what it is and ``agent`` whose it is;
    a ``call`` has the tool's ``name``, its ``arguments`` as the model wrote them (JSON) and a
    ``call_id``, which its ``tool`` has, too, beside the ``output``; a ``question`` and its
    ``reply`` have a ``prompt_id``.
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


class ReportView(Struct, frozen=True, kw_only=True):
    """Everything about one run but its secrets.

    ``ancestors`` begins with the root.  ``stack`` names the agents through whom a conversation is
    held, while one has taken it over.  ``conversation`` leaves out ``earlier`` pieces at its
    beginning.  ``failure`` is the last error on record; ``prompts`` is asked by it and below it,
    ``requests`` are the variables that subagents of theirs wait for.  ``output`` is what its last
    turn came to, if it completed: a text, or the value that its agent answers with.  All of it is
    of one moment, whose position is ``position``: the stream after that is what came since.
    ``usage`` is the run's own, ``tree`` that of all below it, too.
    """

    run: RunView
    descriptor: dict[str, Any] | None
    ancestors: tuple[str, ...]
    stack: tuple[str, ...]
    kind: Literal["", "model", "code"]
    phase: Literal["new", "live", "ended"]
    session: int
    step: int
    seq: int
    usage: Usage
    children: tuple[RunView, ...]
    files: tuple[FileRef, ...]
    keys: dict[str, Any]
    waiting: tuple[WaitingView, ...]
    conversation: tuple[SaidView, ...]
    earlier: int
    failure: str
    prompts: tuple[PromptView, ...]
    position: str = ""
    requests: tuple[VariableRequestView, ...] = ()
    tree: UsedView | None = None
    output: Any = None


class StateView(Struct, frozen=True, kw_only=True):
    """A run's state after record ``seq`` of its own lane.

    ``kind`` is ``model`` or ``code``, or empty before a session has begun.  ``conversation`` is
    what the model sees (side B of a two-sided agent: ``conversation_b``); ``calls`` are those of
    the step at work, with their results so far.  ``outcome`` is how the run has ended, or else its
    latest session; empty before one has.
    """

    run_id: str
    seq: int
    at: int
    kind: Literal["", "model", "code"]
    agent: str
    phase: Literal["new", "live", "ended"]
    session: int
    in_session: bool
    side: str
    turn: int
    step: int
    attempt: int
    restarts: int
    status: str
    parked: bool
    closing: bool
    usage: Usage
    draft: str
    conversation: tuple[dict[str, Any], ...]
    conversation_b: tuple[dict[str, Any], ...]
    calls: tuple[dict[str, Any], ...]
    children: tuple[str, ...]
    files: tuple[FileRef, ...]
    keys: dict[str, Any]
    outcome: str = ""


class AwaitedView(Struct, frozen=True, kw_only=True):
    """Something that a conversation waits for: a ``question``, an ``approval``, an ``external``
    result, ``variables`` (those of ``request``), or a ``child``."""

    kind: PromptKind | Literal["variables", "child"]
    run_id: str
    prompt_id: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    tool: str = ""
    arguments: Any = None
    schema: Any = None
    request: VariableRequestView | None = None


class ConversationView(Struct, frozen=True, kw_only=True):
    """A conversation.

    ``key`` is its session key, empty for one without.  ``title`` are the first words said in it.
    ``last_activity`` is when it was opened or a user spoke to it last.  ``cursor`` is its place.
    """

    key: str
    run_id: str
    agent: str
    status: RunStatus
    title: str
    last_activity: int
    created_at: int
    waits_for: tuple[AwaitedView, ...] = ()
    cursor: str = ""


class ConversationPage(Struct, frozen=True, kw_only=True):
    """A page of conversations, the one that was spoken to last first.

    ``next`` is the cursor to go on ``before``; empty where nothing older is left.
    """

    conversations: tuple[ConversationView, ...]
    next: str = ""


class FileView(Struct, frozen=True, kw_only=True):
    """A file of a run; one that ``waits`` came to its inbox and is its own when it is taken."""

    path: str
    size: int
    digest: str
    waits: bool = False


class ScheduleView(Struct, frozen=True, kw_only=True):
    """A schedule: when it is due next, and what its last fire came to."""

    uid: str
    kind: str
    agent: str
    next_at: int | None
    last_tick: int
    last_fired_at: int
    last_outcome: str
    run_id: str
