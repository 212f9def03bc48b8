"""``decide``: what must be under way now.

    Thread × kinds of item that wait × the turn being asked → Command

Rules, in this order
--------------------
1. A run that has ended leaves memory, once hooks have been called for its end.
2. Control is taken before anything else, and with it the words that give the conversation back
   (agents/state/commands.py); then hooks are called for what was written, while what is at work
   continues; then results are taken, before messages.
3. While calls are open they are worked on: all at once if the step was parallel, else the first
   one; nothing is asked of the model and no message is taken until each has its result.
   Where only children are left to wait for, the run waits, and costs no task.  While a
   frame has the conversation, what a person says is lent to it: the run without an open call takes
   it.  Where the user's answer is waited for, what a person says first is the answer.
4. Subagents that start with a prompt are started before its first step, which the blocking ones
   hold back.
5. Messages are taken, all that wait, before the model is asked: at work, by the side they
   are for.  What comes while it is being asked waits for its answer: the model has not seen it,
   so its answer is none to it.
6. Inside a session the model's next step is due.
7. A run that is closing, or was started for one session, ends when nothing waits;
   one of two sides whose session was the run, at once.
8. Otherwise the run parks: it says so once, then leaves memory until something arrives.

The command is never stored: the live loop, a wake-up and a restart after a crash all ask again.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.state.thread import OpenStep, Thread
from hubbub.hub import events as e
from hubbub.hub.events import InLane

__all__ = [
    "Activity",
    "AwaitChildren",
    "CallHooks",
    "CallModel",
    "Command",
    "Conclude",
    "Do",
    "Kind",
    "Leave",
    "Lend",
    "Park",
    "Receive",
    "RunTool",
    "StartChild",
    "Take",
    "decide",
    "is_wanted",
    "kind_of",
    "needs_record",
]

Kind: TypeAlias = Literal["control", "result", "message", "said", "stop", "back"]
"""Kinds of item.  What a person says is a message, and ``said`` too; some of it is a word."""


class CallModel(Struct, frozen=True, gc=False):
    """Ask the model for step ``step``, after ``delay`` seconds."""

    turn: int
    step: int
    attempt: int
    delay: float


class RunTool(Struct, frozen=True, gc=False):
    """Run call ``index`` of step ``step``; its start is on record already."""

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
    """Show what waits to the hooks that may change it, and take it."""

    kind: Kind


class CallHooks(Struct, frozen=True, gc=False):
    """Tell the hooks of what is on record."""


Activity: TypeAlias = CallModel | RunTool | StartChild | Receive | CallHooks


def needs_record(activity: Activity) -> bool:
    """Whether what led to an activity must be on record, durably, before it may begin.

    It must, for whatever has effects outside; asking a model has none, and is done again after a
    crash.
    """
    return activity.__class__ is not CallModel


class Do(Struct, frozen=True, gc=False):
    """These activities, and no others, must be under way."""

    activities: tuple[Activity, ...]


class Take(Struct, frozen=True, gc=False):
    """Take every waiting item of this kind; of what was ``said``, and of ``back``, the first."""

    kind: Kind


class Lend(Struct, frozen=True, gc=False):
    """Wait for a frame, and have it look at what waits here: the first of it is ``said``."""

    frame_run_id: str


class AwaitChildren(Struct, frozen=True, gc=False):
    """Wait for children: nothing is to be done until one reports, or something else comes."""


class Conclude(Struct, frozen=True, gc=False):
    """Write the terminal record."""


class Park(Struct, frozen=True, gc=False):
    """Write that the run parks."""


class Leave(Struct, frozen=True, gc=False):
    """Leave memory: nothing is due until something arrives, if ever."""


Command: TypeAlias = Do | Take | Lend | AwaitChildren | Conclude | Park | Leave

_WAIT = AwaitChildren()
_CALL_HOOKS = Do((CallHooks(),))
_PARK = Park()
_LEAVE = Leave()
_CONCLUDE = Conclude()
_TAKE: dict[Kind, Take] = {
    kind: Take(kind) for kind in ("control", "result", "message", "said", "stop", "back")
}


def decide(
    thread: Thread,
    waiting: frozenset[Kind],
    asking: int = 0,
    *,
    hook_events: bool = False,
    hooked: frozenset[Kind] = frozenset(),
) -> Command:
    """The command that follows from the state and from which kinds of item wait.

    ``asking`` is the turn on whose behalf the model is being asked just now, 0 for none.
    ``hook_events``: hooks have not been called yet for what was committed; ``hooked``: the kinds of
    items that hooks see before they are taken.
    """
    if thread.phase == "ended":
        return _CALL_HOOKS if hook_events else _LEAVE
    if "control" in waiting:
        if "message" in hooked and thread.phase == "new":
            return Do((Receive("control"),))
        return _TAKE["control"]
    if "said" in waiting and (word := _command_due(thread, waiting)):
        return _TAKE[word]
    if hook_events:
        return Do((CallHooks(), *_at_work(thread, asking)))
    if thread.phase == "new":
        return _LEAVE
    if thread.in_session and thread.open is None and asking == thread.turn:
        return Do((_next_step(thread),))
    if "result" in waiting:
        if "result" in hooked and thread.open is not None:
            return Do((Receive("result"), *_at_work(thread, asking)))
        return _TAKE["result"]
    if thread.open is not None:
        under_way = _under_way(thread.open)
        return Do(under_way) if under_way else _waits(thread.open, waiting)
    if thread.in_session and thread.family.starts and thread.family.holds:
        due = _starts(thread)
        return Do(due) if due else _WAIT
    if thread.once and thread.two_sided and thread.session and not thread.in_session:
        return _CONCLUDE
    if "message" in waiting and (
        not thread.in_session or not thread.two_sided or thread.side == thread.origin.receives
    ):
        return Do((Receive("message"),)) if "message" in hooked else _TAKE["message"]
    if thread.in_session:
        return Do((_next_step(thread),))
    if thread.closing or (thread.once and thread.session):
        return _CONCLUDE
    return _LEAVE if thread.parked else _PARK


def _command_due(thread: Thread, waiting: frozenset[Kind]) -> Literal["", "stop", "back"]:
    """The word that waits and is for this run to act upon, if one is."""
    is_below = thread.frame is not None
    is_frame = thread.origin.frame > 0 and thread.converses
    if "stop" in waiting and (is_below or is_frame or thread.pause is not None):
        return "stop"
    if "back" in waiting and not is_below and (is_frame or thread.pause is not None):
        return "back"
    return ""


def _waits(step: OpenStep, waiting: frozenset[Kind]) -> Command:
    """What a run does while its open calls wait for others."""
    if "said" in waiting:
        if step.pause is not None:
            return _TAKE["said"]
        frame = step.frame
        if frame is not None:
            return Lend(frame.child)
    return _WAIT


def is_wanted(thread: Thread, activity: Activity) -> bool:
    """Whether what ``activity`` says still counts: its turn, or its call, is not over."""
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


def _at_work(thread: Thread, asking: int) -> tuple[Activity, ...]:
    """What continues while hooks are called."""
    if not thread.in_session:
        return ()
    if thread.open is not None:
        return _under_way(thread.open)
    return (_next_step(thread),) if asking == thread.turn else ()


def _next_step(thread: Thread) -> CallModel:
    return CallModel(thread.turn, thread.step + 1, thread.attempt, thread.delay)


def _under_way(step: OpenStep) -> tuple[Activity, ...]:
    started = tuple(
        [
            RunTool(step.number, call.index, call.name, call.arguments)
            for call in step.calls
            if call.status == "started"
        ]
    )
    return started if step.parallel else started[:1]


def _starts(thread: Thread) -> tuple[Activity, ...]:
    return tuple(
        StartChild(thread.turn, index, start.name, start.message)
        for index, start in enumerate(thread.family.starts)
        if start.status == "todo"
    )[:1]


_KINDS: dict[type, Kind] = {
    e.SessionOpen: "control",
    e.SessionAbort: "control",
    e.SessionCancel: "control",
    e.SessionClose: "control",
    e.SessionTerminate: "control",
    e.SessionReset: "control",
    e.SessionResult: "result",
    e.SessionReply: "result",
    e.SessionTimer: "result",
    e.SessionVariables: "result",
    e.SessionMessage: "message",
}


def kind_of(item: InLane) -> Kind:
    """Which kind an item of an inbox is."""
    return _KINDS[item.__class__]
