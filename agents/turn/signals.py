"""What happened outside (a signal), and what is written about it (a decision).

A decision is one commit: the events to write, the items taken, what goes to other runs, and
whether the run continues, waits, parks or ends.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from hubbub.agents.model import ModelReply
from hubbub.agents.retry import Failure
from hubbub.agents.state.context_limit import Summarize
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.child_calls import Budget, ChildRequest
from hubbub.agents.turn.crash_limit import MAX_CRASHES
from hubbub.hub.events import (
    NO_USAGE,
    ContentPart,
    Event,
    InLane,
    PromptKind,
    SessionMessage,
    SessionReply,
    Usage,
    Variable,
)
from hubbub.hub.store.journal import RunStatus

__all__ = [
    "CAME_BACK",
    "PARKED",
    "CameBack",
    "Concluded",
    "DeadlinePassed",
    "Decision",
    "Delegated",
    "FrameUnavailable",
    "Held",
    "HooksCalled",
    "LimitReached",
    "LoopFailed",
    "ModelFailed",
    "ModelReplied",
    "Parked",
    "Restored",
    "Signal",
    "Summarized",
    "Taken",
    "ToolFinished",
    "taken_items",
    "unsummarised",
]


class Taken(Struct, frozen=True, gc=False):
    """These items were taken out of the inbox."""

    items: tuple[InLane, ...]
    budget: Budget | None = None
    replies: tuple[tuple[str, SessionReply], ...] = ()
    """What a person's words among the items answer besides: open prompts, by the run that asks."""
    unasked: frozenset[str] = frozenset()
    """The open prompts of the run's own calls that the first item does not answer: they were not
    open yet when it was said."""


class ModelFailed(Struct, frozen=True, gc=False):
    """The model call of the next step failed, in turn ``turn``.

    ``models`` are the names of all models that may be asked, where they are several.
    """

    failure: Failure
    turn: int
    models: tuple[str, ...] = ()


class ToolFinished(Struct, frozen=True, gc=False):
    """The tool of call ``index`` of step ``step`` returned, raised, or ran out of time.

    ``ran`` is False where it was not called: bad arguments, a missing file or variable.
    ``is_late``: it ran out of time.
    """

    step: int
    index: int
    output: str
    is_error: bool = False
    attachments: tuple[str, ...] = ()
    ran: bool = True
    is_late: bool = False
    parts: tuple[ContentPart, ...] = ()


class Delegated(Struct, frozen=True, gc=False, kw_only=True):
    """What a call of a child comes to has been looked up.

    ``step`` is 0 for a subagent that starts with its prompt.  ``problem`` says why the call as it
    stands cannot be carried out; ``missing`` are scoped variables without a value.
    ``variables`` go into the child's scope.  ``budget`` is what the tree may still grow by.
    """

    step: int
    index: int
    request: ChildRequest
    problem: str = ""
    is_enabled: bool = True
    child_run_id: str = ""
    request_id: str = ""
    now: int = 0
    required: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    budget: Budget | None = None


class Held(Struct, frozen=True, gc=False):
    """Call ``index`` of a reply does not simply run: a person is asked for ``asks`` first.

    Where there is a ``problem``, that is its result, and nobody is asked.
    """

    index: int
    asks: PromptKind
    problem: str = ""


class ModelReplied(Struct, frozen=True, gc=False):
    """The model call of the next step succeeded, in turn ``turn``.

    ``looked_up`` is about those of its calls that delegate and run first: what they come to is
    then written together with the step.
    """

    reply: ModelReply
    turn: int
    looked_up: tuple[Delegated, ...] = ()
    held: tuple[Held, ...] = ()
    """Those of its calls that need a person's approval, or are carried out elsewhere."""
    models: tuple[str, ...] = ()
    """The names of all models that may be asked, where they are several."""
    cached_apart: bool = False
    """Whether the provider counts what it cached beside the input."""
    cost_nanos: int | None = None
    """What the call has cost, in billionths, if that is known."""


class Summarized(Struct, frozen=True, gc=False, kw_only=True):
    """The first ``covers`` messages of a side's view were summarised after ``step``, or
    (``error``) could not be."""

    side: str
    step: int
    covers: int
    summary: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    model: str = ""
    cached_apart: bool = False
    cost_nanos: int | None = None


def unsummarised(activity: Summarize, error: str) -> Summarized:
    """No summary has come of it."""
    return Summarized(side=activity.side, step=activity.step, covers=activity.covers, error=error)


class Restored(Struct, frozen=True, gc=False):
    """The run is back in memory, in the middle of something.

    ``cause``: what its loop died of; nothing where its process did; else ``LEFT``, ``FORKED`` or
    ``CONTEXT_ONLY`` of ``agents/turn/recovery.py``.  ``before``: the causes of the times before,
    since it last made progress.  ``max_crashes``: deaths of the process in a row after which it
    fails.  ``control`` are the control items that wait.
    """

    cause: str = ""
    before: tuple[str, ...] = ()
    max_crashes: int = MAX_CRASHES
    control: tuple[InLane, ...] = ()


class CameBack(Struct, frozen=True, gc=False):
    """The run is back in memory, in the middle of nothing: it waits, or has yet to begin."""


CAME_BACK: Final = CameBack()


class FrameUnavailable(Struct, frozen=True, gc=False):
    """The user speaks to a frame that cannot be resumed: its definition is missing.

    ``words`` are those that ask for what follows anyway.
    """

    frame_run_id: str
    why: str
    words: tuple[InLane, ...] = ()


class LimitReached(Struct, frozen=True, gc=False):
    """A limit is used up in turn ``turn``; its name is ``turn.``, ``run.`` or ``tree.`` and what
    is used up."""

    limit: str
    turn: int


class DeadlinePassed(Struct, frozen=True, gc=False):
    """The time the run was given is over."""


class LoopFailed(Struct, frozen=True, gc=False):
    """The run cannot continue at all."""

    error: str
    error_type: str


class Concluded(Struct, frozen=True, gc=False):
    """Nothing waits, and the run was to end then."""


class Parked(Struct, frozen=True, gc=False):
    """Nothing is due.

    ``keep_turns``: how many turns are to be kept, 0 for all; ``worked``: how long the run was at
    work (µs), as far as that was counted.
    """

    keep_turns: int = 0
    worked: int = 0


PARKED: Final = Parked()


class HooksCalled(Struct, frozen=True, gc=False):
    """Hooks were called for what is on record."""


Signal: TypeAlias = (
    Taken
    | ModelReplied
    | ModelFailed
    | ToolFinished
    | Summarized
    | Delegated
    | Restored
    | CameBack
    | FrameUnavailable
    | LimitReached
    | DeadlinePassed
    | LoopFailed
    | Concluded
    | Parked
    | HooksCalled
)


def taken_items(items: Iterable[InLane], run_id: str) -> dict[str, Any]:
    """The fields of a decision by which run ``run_id`` takes items: its own, and those lent to it
    by the conversation that it has."""
    items = tuple(items)
    return {
        "taken": tuple([item.seq for item in items if item.run_id == run_id]),
        "lent": tuple([(item.run_id, item.seq) for item in items if item.run_id != run_id]),
    }


class Decision(Struct, frozen=True, gc=False):
    """One commit."""

    events: tuple[Event, ...] = ()
    taken: tuple[int, ...] = ()
    status: RunStatus | None = None
    after: Thread | None = None
    """The thread with ``events`` folded in, in their order, where it is known already."""
    mail: tuple[tuple[str, InLane], ...] = ()
    """What goes to other runs, by run id."""
    agent: str = ""
    """The agent that the run is from now on, if that changes."""
    lent: tuple[tuple[str, int], ...] = ()
    """What is taken out of other inboxes, by run id and number."""
    leave_to: str = ""
    """The run whose inbox gets the messages that an ending run leaves."""
    again: SessionMessage | None = None
    """What is said once more where no reply of ``mail`` is accepted."""
