"""Tool calls of a step, from todo to done (S-07, S-08).

Rules
-----
* In a sequential step a call begins when the one before it is done; in a parallel step all
  begin at once.  Results stand in call order either way.
* A call that cannot run (unknown tool, too many calls) is answered at once, with an error that
  says what the model can do about it.
* A call that ends the session or hands the conversation over is the last: the ones after it are
  skipped.  A step that holds such a call runs in order.
* A call whose start is on record but which is not running (after a crash) is *lost*: it is run
  again if its tool is declared idempotent, else its result says that it may have run.  One that
  only delegates has had no effect before its record, and is made again.
"""

from collections.abc import Iterator
from typing import Any, Final

from hubbub.agents.sides import ActiveSide
from hubbub.agents.stop import terminal
from hubbub.agents.thread import OpenCall, OpenStep, Thread
from hubbub.hub.events import AgentHandoff, AgentToolComplete, AgentToolStart, Event

__all__ = ["HANDED_OVER", "MAX_CALLS", "answer", "begin_calls", "lost_calls", "refuse_open_calls"]

MAX_CALLS: Final = 128
"""Calls of one step that are run; the model is told that the others were not."""

LOST = (
    "the process stopped while this tool was running; it may or may not have had its effect. "
    "Check before you call it again."
)

HANDED_OVER: Final = "The conversation was handed over to {}."


def begin_calls(thread: Thread, side: ActiveSide) -> list[Event]:
    """The starts, the refusals and the handoff that are due in the open step."""
    step = thread.open
    if step is None:
        return []
    begun: list[Event] = []
    skipped = ""
    for call in step.calls:
        if call.status == "done":
            skipped = skipped or _ends(call, side)
        elif skipped:
            begun.append(answer(thread, step, call, f"skipped: {skipped}"))
        elif call.status in ("started", "waiting"):
            if not step.parallel:
                break
        elif refusal := _refusal(thread, call, side):
            begun.append(answer(thread, step, call, refusal))
        elif call.name in side.handoffs:
            begun += _hand_over(thread, step, call, side)
            skipped = f"the conversation was handed over to {call.name}"
        else:
            begun.append(_start(thread, step, call, side))
            if not step.parallel:
                break
    return begun


def _ends(call: OpenCall, side: ActiveSide) -> str:
    """What a call that is done has ended, in words."""
    return f"the session ended with {call.name}" if terminal(call, side) else ""


def _refusal(thread: Thread, call: OpenCall, side: ActiveSide) -> str:
    if call.index >= MAX_CALLS:
        return f"not run: at most {MAX_CALLS} calls are run in one step; call again in the next"
    if call.name in side.handoffs:
        if call.name == thread.agent:
            return f"you are {call.name} already; go on yourself"
        return ""
    if call.name not in side.tools and call.name not in side.offered:
        known = ", ".join(sorted(side.offered)) or "none"
        return f"there is no tool named {call.name!r}; available tools: {known}"
    return ""


def _start(thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide) -> Event:
    return AgentToolStart(
        step=step.number,
        index=call.index,
        name=call.name,
        arguments=call.arguments,
        side=thread.side,
        label=side.config.label,
        turn=thread.turn,
        call_id=f"{step.number}.{call.index}",
    )


def _hand_over(thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide) -> Iterator[Event]:
    yield _start(thread, step, call, side)
    yield AgentHandoff(to=call.name, turn=thread.turn, call_id=f"{step.number}.{call.index}")
    text = HANDED_OVER.format(call.name)
    yield answer(thread, step, call, text, is_error=False, ran=True)


def refuse_open_calls(thread: Thread, reason: str) -> Iterator[Event]:
    """An error result for every call that has none yet."""
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status != "done":
            assert step is not None
            yield answer(thread, step, call, reason, ran=call.status == "started")


def lost_calls(thread: Thread, side: ActiveSide) -> Iterator[Event]:
    """The honest result of every call that was running when its process stopped."""
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status == "started":
            tool = side.tools.get(call.name)
            delegates = tool is None and call.name in side.offered
            if not delegates and (tool is None or not tool.idempotent):
                assert step is not None
                yield answer(thread, step, call, LOST, ran=True)


def answer(
    thread: Thread,
    step: OpenStep,
    call: OpenCall,
    output: str,
    *,
    is_error: bool = True,
    ran: bool = False,
    **more: Any,
) -> AgentToolComplete:
    """A call's one result."""
    return AgentToolComplete(
        step=step.number,
        index=call.index,
        name=call.name,
        output=output,
        is_error=is_error,
        ran=ran,
        side=thread.side,
        turn=thread.turn,
        call_id=f"{step.number}.{call.index}",
        **more,
    )
