"""Tool calls of a step, from todo to done (S-07, S-08).

Rules
-----
* In a sequential step a call begins when the one before it is done; in a parallel step all
  begin at once.  Results stand in call order either way.
* A call that cannot run (unknown tool, too many calls) is answered at once, with an error that
  says what the model can do about it.
* A call whose start is on record but which is not running (after a crash) is *lost*: it is run
  again if its tool is declared idempotent, else its result says that it may have run.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hubbub.agents.thread import OpenCall, OpenStep, Thread
from hubbub.agents.tools import Tool
from hubbub.hub.events import AgentToolComplete, AgentToolStart, Event

__all__ = ["begin_calls", "lost_calls", "refuse_open_calls"]

LOST = (
    "the process stopped while this tool was running; it may or may not have had its effect. "
    "Check before you call it again."
)


def begin_calls(thread: Thread, tools: Mapping[str, Tool[..., Any]], max_calls: int) -> list[Event]:
    """The starts, and the refusals, that are due in the open step."""
    step = thread.open
    if step is None:
        return []
    begun: list[Event] = []
    for call in step.calls:
        if call.status == "done":
            continue
        if call.status == "started":
            if step.parallel:
                continue
            break
        refusal = _refusal(call, tools, max_calls)
        if refusal is not None:
            begun.append(_answer(thread, step, call, refusal))
            continue
        begun.append(
            AgentToolStart(
                step=step.number,
                index=call.index,
                name=call.name,
                arguments=call.arguments,
                turn=thread.turn,
                call_id=f"{step.number}.{call.index}",
            )
        )
        if not step.parallel:
            break
    return begun


def refuse_open_calls(thread: Thread, reason: str) -> Iterator[Event]:
    """An error result for every call that has none yet."""
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status != "done":
            assert step is not None
            yield _answer(thread, step, call, reason)


def lost_calls(thread: Thread, tools: Mapping[str, Tool[..., Any]]) -> Iterator[Event]:
    """The honest result of every call that was running when its process stopped."""
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status == "started":
            tool = tools.get(call.name)
            if tool is None or not tool.idempotent:
                assert step is not None
                yield _answer(thread, step, call, LOST)


def _refusal(call: OpenCall, tools: Mapping[str, Tool[..., Any]], max_calls: int) -> str | None:
    if call.index >= max_calls:
        return f"not run: at most {max_calls} calls are run in one step; call again in the next"
    if call.name not in tools:
        known = ", ".join(sorted(tools)) or "none"
        return f"there is no tool named {call.name!r}; available tools: {known}"
    return None


def _answer(thread: Thread, step: OpenStep, call: OpenCall, reason: str) -> Event:
    return AgentToolComplete(
        step=step.number,
        index=call.index,
        name=call.name,
        output=reason,
        is_error=True,
        turn=thread.turn,
        call_id=f"{step.number}.{call.index}",
    )
