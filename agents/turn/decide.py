"""``decide``: what must be under way now.

    Thread × kinds of item that wait × the turn being asked → Command

Rules, in this order
--------------------
1. A run that has ended leaves memory, after the hooks for its end have been called.
2. Control items and user commands that return the conversation (agents/state/commands.py) are
   taken first, and with them what ends the question of a tool or a hook at work, which can come to
   its end only then.  Then hooks are called for committed events, while activities that have begun
   continue.  Then results are taken, before messages.
3. Open calls are executed: all at once if the step was parallel, else one after another.  Until
   each has its result, the model is not asked and no message is taken.  A run that waits only for
   children or people has no task.  While a frame has the conversation, user messages are lent to
   it: they are taken by the frame without an open call.  If a person is asked for something, by
   this run or by one that it waits for, the next user message is the answer: the first one said
   since.  What was said before waits until nothing is asked any more, and is simply heard.
4. Subagents that start with a prompt are started before its first step; blocking ones delay it.
5. All waiting messages are taken before the model is asked, in a session by the side they are for.
   A message that arrives during a model call waits for its end: the model has not seen it, so the
   reply does not answer it.
6. Where a limit of the turn, the run or the tree is used up, nothing is asked any more: the turn
   ends, and so does each one that begins while it is.
7. A summary of older messages, where one is due (context_limit.py), comes before the model's next
   step, which is due in a session.
8. A run that is closing, or was started for one session, ends when nothing waits; a two-sided run
   that was started for one session, or one that reports to a parent, ends with that session: the
   results of children that still wait begin none.
9. Otherwise the run parks: it records that once and leaves memory until an item arrives.

The command is never stored: the live loop, a wake-up and a restart after a crash compute it again.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.state.context_limit import NO_LIMIT, ContextLimit, Summarize, summary_due
from hubbub.agents.state.thread import OpenStep, Thread
from hubbub.hub import events as e
from hubbub.hub.events import InLane

__all__ = [
    "KIND_OF",
    "SUMMARIZING",
    "Activity",
    "AwaitChildren",
    "CallHooks",
    "CallModel",
    "Command",
    "Conclude",
    "Do",
    "EndByLimit",
    "Kind",
    "Leave",
    "Lend",
    "Park",
    "Receive",
    "RunTool",
    "StartChild",
    "Summarize",
    "Take",
    "decide",
    "is_wanted",
    "kind_of",
    "needs_record",
]

Kind: TypeAlias = Literal["control", "result", "message", "said", "stop", "back", "answer", "reply"]
"""Kinds of item.  A user's message is a ``message`` and ``said``; some are commands.  It is an
``answer``, too, if it was said since this run, or one that it waits for, asks a person.  A
``reply`` is for a tool or a hook that asks, and no ``result``."""


class CallModel(Struct, frozen=True, gc=False):
    """Call the model for step ``step``, after ``delay`` seconds."""

    turn: int
    step: int
    attempt: int
    delay: float


class RunTool(Struct, frozen=True, gc=False):
    """Run call ``index`` of step ``step``; its start is committed already."""

    step: int
    index: int
    name: str
    arguments: str


class StartChild(Struct, frozen=True, gc=False):
    """Start the subagent that is number ``index`` of those that start with the prompt."""

    turn: int
    index: int
    name: str
    message: str


class Receive(Struct, frozen=True, gc=False):
    """Pass the waiting items to the hooks that may change them, and take them."""

    kind: Kind


class CallHooks(Struct, frozen=True, gc=False):
    """Call the hooks for committed events."""


Activity: TypeAlias = CallModel | Summarize | RunTool | StartChild | Receive | CallHooks

SUMMARIZING: Final = -1
"""In place of the turn being asked, while a summary is made."""


def needs_record(activity: Activity) -> bool:
    """Whether an activity may begin only when the events that led to it are durable.

    True for every activity with outside effects.  A model call has none: it is repeated after a
    crash.
    """
    return activity.__class__ is not CallModel and activity.__class__ is not Summarize


class EndByLimit(Struct, frozen=True, gc=False):
    """End the turn: ``limit`` is used up."""

    limit: str


class Do(Struct, frozen=True, gc=False):
    """Exactly these activities must be running."""

    activities: tuple[Activity, ...]


class Take(Struct, frozen=True, gc=False):
    """Take every waiting item of this kind; only the first one of ``answer`` and of ``back``."""

    kind: Kind


class Lend(Struct, frozen=True, gc=False):
    """Wait for a frame, and wake it to take the user message that waits here."""

    frame_run_id: str


class AwaitChildren(Struct, frozen=True, gc=False):
    """Wait until a child reports or another item arrives."""


class Conclude(Struct, frozen=True, gc=False):
    """Record that the run has ended."""


class Park(Struct, frozen=True, gc=False):
    """Record that the run parks."""


class Leave(Struct, frozen=True, gc=False):
    """Leave memory: nothing is due until an item arrives."""


Command: TypeAlias = Do | Take | Lend | AwaitChildren | EndByLimit | Conclude | Park | Leave

_WAIT = AwaitChildren()
_CALL_HOOKS = Do((CallHooks(),))
_PARK = Park()
_LEAVE = Leave()
_CONCLUDE = Conclude()
_TAKE: dict[Kind, Take] = {
    kind: Take(kind) for kind in ("control", "result", "message", "answer", "stop", "back", "reply")
}


def decide(
    thread: Thread,
    waiting: frozenset[Kind],
    asking: int = 0,
    *,
    hook_events: bool = False,
    hooked: frozenset[Kind] = frozenset(),
    limit: ContextLimit = NO_LIMIT,
    used_up: str = "",
) -> Command:
    """The command that follows from the thread and the kinds of waiting items.

    ``asking`` is the turn of the running model call, 0 for none, ``SUMMARIZING`` for a summary.
    ``hook_events``: hooks have not been called yet for what was committed; ``hooked``: the kinds of
    items that hooks see before they are taken; ``limit``: of what the side's model can be shown;
    ``used_up``: the limit of the turn, the run or the tree that is reached.
    """
    if thread.phase == "ended":
        return _CALL_HOOKS if hook_events else _LEAVE
    is_shown_opening = "message" in hooked and thread.phase == "new"
    if "control" in waiting and not is_shown_opening:
        return _TAKE["control"]
    if "reply" in waiting:
        return _TAKE["reply"]
    if "control" in waiting:
        return Do((Receive("control"),))
    if "said" in waiting and (word := _command_due(thread, waiting)):
        return _TAKE[word]
    if hook_events:
        return Do((CallHooks(), *_at_work(thread, asking, limit)))
    if thread.phase == "new":
        return _LEAVE
    if thread.in_session and thread.open is None and asking == thread.turn:
        return Do((_next_step(thread),))
    if asking == SUMMARIZING and (summary := summary_due(thread, limit)) is not None:
        return Do((summary,))
    if thread.once and thread.session and not thread.in_session and thread.has_one_session:
        return _CONCLUDE
    if "result" in waiting:
        if "result" in hooked and thread.open is not None:
            return Do((Receive("result"), *_at_work(thread, asking, limit)))
        return _TAKE["result"]
    if thread.open is not None:
        under_way = _under_way(thread.open)
        if "said" in waiting:
            if (frame := thread.open.frame) is None:
                if "answer" in waiting:
                    return _TAKE["answer"]
            elif not under_way:
                return Lend(frame.child)
        return Do(under_way) if under_way else _WAIT
    if thread.in_session and thread.family.starts and thread.family.holds:
        if "answer" in waiting:
            return _TAKE["answer"]
        due = _starts(thread)
        if due and used_up:
            return EndByLimit(used_up)
        return Do(due) if due else _WAIT
    if "message" in waiting and (
        not thread.in_session or not thread.two_sided or thread.side == thread.origin.receives
    ):
        return Do((Receive("message"),)) if "message" in hooked else _TAKE["message"]
    if used_up and thread.in_session:
        return EndByLimit(used_up)
    if limit is not NO_LIMIT and not used_up:
        summary = summary_due(thread, limit)
        if summary is not None:
            return Do((summary,))
    if thread.in_session:
        return Do((_next_step(thread),))
    if thread.closing or (thread.once and thread.session):
        return _CONCLUDE
    return _LEAVE if thread.parked else _PARK


def _command_due(thread: Thread, waiting: frozenset[Kind]) -> Literal["", "stop", "back"]:
    """The waiting user command that this run must execute, if there is one."""
    is_below = thread.frame is not None
    is_frame = thread.origin.frame > 0 and thread.converses
    gives_up = "answer" in waiting and thread.asks_user
    if "stop" in waiting and (is_below or is_frame or gives_up):
        return "stop"
    if "back" in waiting and not is_below and (is_frame or gives_up):
        return "back"
    return ""


def is_wanted(thread: Thread, activity: Activity) -> bool:
    """Whether the outcome of ``activity`` is still needed: its turn, or its call, is not over."""
    if isinstance(activity, CallModel):
        return thread.in_session and thread.turn == activity.turn
    if not isinstance(activity, RunTool):
        return True
    step = thread.open
    return (
        step is not None
        and step.number == activity.step
        and step.calls[activity.index].status != "done"
    )


def _at_work(thread: Thread, asking: int, limit: ContextLimit) -> tuple[Activity, ...]:
    """The activities that continue while hooks are called."""
    if asking == SUMMARIZING:
        summary = summary_due(thread, limit)
        return () if summary is None else (summary,)
    if not thread.in_session:
        return ()
    if thread.open is not None:
        return _under_way(thread.open)
    return (_next_step(thread),) if asking == thread.turn else ()


def _next_step(thread: Thread) -> CallModel:
    return CallModel(thread.turn, thread.step + 1, thread.attempt, thread.delay)


def _under_way(step: OpenStep) -> tuple[Activity, ...]:
    started: list[Activity] = []
    for call in step.calls:
        if call.status == "started":
            arguments = call.given or call.arguments
            started.append(RunTool(step.number, call.index, call.name, arguments))
            if not step.parallel:
                break
    return tuple(started)


def _starts(thread: Thread) -> tuple[Activity, ...]:
    return tuple(
        StartChild(thread.turn, index, start.name, start.message)
        for index, start in enumerate(thread.family.starts)
        if start.status == "todo"
    )[:1]


KIND_OF: Final[Mapping[type, Kind]] = {
    e.SessionOpen: "control",
    e.SessionAbort: "control",
    e.SessionCancel: "control",
    e.SessionClose: "control",
    e.SessionTerminate: "control",
    e.SessionReset: "control",
    e.SessionCompact: "control",
    e.SessionLimits: "control",
    e.SessionResult: "result",
    e.SessionReply: "result",
    e.SessionTimer: "result",
    e.SessionVariables: "result",
    e.SessionMessage: "message",
}
"""The kind of an inbox item, by its class."""


def kind_of(item: InLane) -> Kind:
    """The kind of an inbox item."""
    return KIND_OF[item.__class__]
