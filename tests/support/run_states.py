"""The states of a model run, found by walking: whatever can happen next, until nothing is new.

``arrows`` asks the library itself.  ``decide`` says what is due, each outcome of that is given to
``interpret``, and the thread after it is looked at again.  ``diagram`` writes down what was found,
the same lines each time: they stand in the docstring of ``hubbub.agents.turn``.
"""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Final

from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.external import external_tool
from hubbub.agents.definitions.prompt import PromptDefinition, SubagentToolConfig
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.retry import Failure
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.child_calls import ChildRequest
from hubbub.agents.turn.decide import (
    CallModel,
    Conclude,
    Do,
    Kind,
    Park,
    RunTool,
    Take,
    decide,
    kind_of,
)
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import (
    Concluded,
    DeadlinePassed,
    Decision,
    Delegated,
    LoopFailed,
    ModelFailed,
    ModelReplied,
    Parked,
    Restored,
    Signal,
    Taken,
    ToolFinished,
)
from hubbub.agents.turn.takeover import request_of
from hubbub.hub import events as e
from hubbub.hub.events import InLane
from hubbub.hub.values import encode_value
from hubbub.runtime.models.scripted import FunctionModel, call, reply

__all__ = ["STATES", "arrows", "decisions", "diagram", "state_of"]

STATES: Final = {
    "new": "opened, and nothing taken yet",
    "session": "in a session: the model is asked, or is about to be",
    "open call": "tools run; nothing is asked of the model until each call has its result",
    "child": "calls wait for children's results",
    "frame": "a call's child has the conversation",
    "pause": "a call waits for a person: an answer, an approval, a result from elsewhere",
    "idle": "between sessions, in memory",
    "parked": "between sessions, out of memory until something arrives",
    "ended": "its terminal record is written",
}
"""What a run is at, and what that means.  From ``session`` to ``parked`` it is live."""


def state_of(thread: Thread) -> str:
    """Which of ``STATES`` a thread is in."""
    if thread.phase != "live":
        return thread.phase
    if not thread.in_session:
        return "parked" if thread.parked else "idle"
    step = thread.open
    if step is None:
        return "child" if thread.waits else "session"
    if not step.waits:
        return "open call"
    if step.frame is not None:
        return "frame"
    return "pause" if thread.asks_user else "child"


@tool
def look() -> None:
    """A tool like any other."""


@tool(approval=True)
def pay() -> None:
    """A tool that a person must approve."""


_PICK: Final = external_tool("pick")
_ASIDE: Final = SubagentToolConfig(name="aside", blocking=False)


def _definitions() -> Definitions:
    model = FunctionModel(lambda _: "x")

    def prompt(name: str, **options: object) -> SideConfig:
        return SideConfig(prompt=PromptDefinition(name=name, prompt="", model=model, **options))  # type: ignore[arg-type]

    return Definitions(
        [
            AgentDefinition(
                name="main", supports_checkpointing=True,
                side_a=prompt(
                    "main", agents=("other",),
                    tools=(look, pay, _PICK, SubagentToolConfig(name="kid"), _ASIDE),
                ),
            ),
            AgentDefinition(name="other", expose_as_tool=True, side_a=prompt("other")),
            *(
                AgentDefinition(
                    name=name, type="dual_ai", expose_as_tool=True, max_session_turns=4,
                    side_a=prompt(f"{name}-a"), side_b=prompt(f"{name}-b"),
                )
                for name in ("kid", "aside")
            ),
        ]
    )  # fmt: skip


_KNOWN: Final = _definitions()
_CALLS: Final = {
    "look": call("look"),
    "kid": call("kid", message="Go."),
    "aside": call("aside", message="Go."),
    "interrupt": call("interrupt", prompt="Really?"),
    "use_agent": call("use_agent", name="other", message="Go."),
    "pay": call("pay"),
    "pick": call("pick"),
}


def _openings() -> Iterator[e.SessionOpen]:
    opening = e.SessionOpen(
        agent="main", open_agent="main", run_id="main-1", root_run_id="main-1",
        input_json=encode_value("input", "hello"),
    )  # fmt: skip
    above = {"parent_run_id": "above", "depth": 1, "reports": True}
    yield opening
    yield structs.replace(opening, input_json=e.SessionOpen().input_json)
    yield structs.replace(opening, once=True)
    yield structs.replace(opening, **above, frame=2)
    yield structs.replace(opening, **above, agent="kid", open_agent="kid")


def _items(thread: Thread) -> Iterator[tuple[str, InLane]]:
    """What may arrive."""
    yield "a message", e.SessionMessage(content="go on", source="web")
    yield "interrupted", e.SessionAbort()
    yield "closed", e.SessionClose()
    yield "terminated", e.SessionTerminate()
    if thread.family.find("aside-1") is not None:
        yield "a child's result", _result("aside-1")
    for waiting in thread.open.calls if thread.open is not None else ():
        if waiting.status == "waiting" and waiting.child:
            yield "its result", _result(waiting.child)
        elif waiting.status == "waiting":
            if waiting.asks == "approval":
                yield "approved", e.SessionReply(prompt_id=waiting.key, decision="approve")
                yield "denied", e.SessionReply(prompt_id=waiting.key, decision="deny")
            else:
                yield "its answer", e.SessionReply(prompt_id=waiting.key, content="yes")
            yield "nobody answered", e.SessionTimer(timer=waiting.key)


def _result(child_run_id: str) -> e.SessionResult:
    return e.SessionResult(
        child_run_id=child_run_id, child_agent="kid", session=1, final=True, success=True,
        outcome="completed", content="found", answers=("open",),
    )  # fmt: skip


def _outcomes(thread: Thread) -> Iterator[tuple[str, Signal]]:
    """What may come of what is due."""
    match decide(thread, frozenset()):
        case Do(activities=activities):
            for activity in activities:
                if isinstance(activity, CallModel):
                    yield from _replies(thread)
                elif isinstance(activity, RunTool):
                    yield from _results(activity)
        case Park():
            yield "nothing is due", Parked()
        case Conclude():
            yield "nothing is due", Concluded()
        case _:
            pass
    if thread.phase == "live" and not thread.parked:
        yield "a crash", Restored()
        yield "its loop failed", LoopFailed("lost", "Error")
    yield "its deadline", DeadlinePassed()


def _replies(thread: Thread) -> Iterator[tuple[str, Signal]]:
    turn = thread.turn
    yield "a text", ModelReplied(ModelReply(text="done"), turn)
    for name, each in _CALLS.items():
        yield "a call", ModelReplied(reply("", each), turn)
        if name != "look":
            yield "a call", ModelReplied(reply("", each, _CALLS["look"]), turn)
            yield "a call", ModelReplied(reply("", _CALLS["look"], each), turn)
    for retryable in (True, False):
        failure = Failure(kind="server", error="lost", retryable=retryable)
        yield "the model failed", ModelFailed(failure, turn)


def _results(activity: RunTool) -> Iterator[tuple[str, Signal]]:
    if activity.name in ("look", "pay"):
        yield "a tool returned", ToolFinished(activity.step, activity.index, "fine")
        return
    request = ChildRequest(agent=activity.name, message="Go.")
    if activity.name == "use_agent":
        request = request_of("other", "Go.")
    for problem in ("", "there is no such file"):
        label = "it is refused" if problem else "its child is started"
        yield label, Delegated(
            step=activity.step, index=activity.index, request=request, problem=problem,
            child_run_id=f"{activity.name}-1",
        )  # fmt: skip


def _next(thread: Thread) -> Iterator[tuple[str, Signal]]:
    if thread.phase == "new":
        yield from (("opened", Taken((opening,))) for opening in _openings())
        return
    yield from _outcomes(thread)
    for label, item in _items(thread):
        kinds: frozenset[Kind] = frozenset((kind_of(item),))
        if isinstance(item, e.SessionMessage):
            kinds |= {"said", "answer"} if thread.asks_user else {"said"}
        if isinstance(decide(thread, kinds), Take):
            yield label, Taken((structs.replace(item, run_id=thread.origin.run_id),))


def _likeness(thread: Thread) -> tuple[object, ...]:
    """What a thread is at: of those that are alike in this, one is looked at."""
    calls = thread.open.calls if thread.open is not None else ()
    return (
        state_of(thread), thread.agent, thread.origin.frame, thread.once, thread.closing,
        thread.side, min(thread.turn_steps, 1), min(thread.session_turns, 2),
        tuple((each.name, each.status) for each in calls), min(thread.attempt, 6),
        min(thread.restarts, 4), bool(thread.session), thread.family.find("aside-1") is not None,
    )  # fmt: skip


@cache
def arrows() -> frozenset[tuple[str, str, str]]:
    """Every state that can be reached, what happens there, and the state after it."""
    return frozenset(
        (state_of(thread), label, state_of(fold_all(thread, decision.events)))
        for thread, label, decision in decisions()
    )


def decisions() -> Iterator[tuple[Thread, str, Decision]]:
    """Every decision on the way: the thread before it, what happens there, and what is decided."""
    known, left = {_likeness(EMPTY)}, deque([EMPTY])
    while left:
        thread = left.popleft()
        for label, signal in _next(thread):
            decision = interpret(thread, signal, _KNOWN)
            yield thread, label, decision
            after = fold_all(thread, decision.events)
            if after.phase != "ended" and (like := _likeness(after)) not in known:
                known.add(like)
                left.append(after)


def diagram() -> tuple[str, ...]:
    """The states and their arrows as lines of text: of each state, what leads where."""
    found = arrows()
    lines = []
    for state in STATES:
        heading = state
        for other in STATES:
            labels = sorted({x for here, x, there in found if (here, there) == (state, other)})
            if labels and other != state:
                lines.append(f"{heading:9} ──► {other:9}  {', '.join(labels)}")
                heading = ""
    return tuple(line.rstrip() for line in lines)
