"""Tool calls of a step, from todo to done.

Rules
-----
* In a sequential step a call begins when the one before it is done; in a parallel step all
  begin at once.  Results are in call order either way.
* A call that cannot run (unknown tool, too many calls) is answered at once, with an error that
  says what the model can do about it.
* A call that ends the session or hands the conversation over is the last: the ones after it are
  skipped.  A step that holds such a call runs in order.
* A handoff, ``complete``, ``final_answer`` and ``interrupt`` need nothing run: they are carried
  out as they begin.
* Of all calls of a step that need a person's approval, or are carried out elsewhere, the prompts
  are opened at once, in its commit, whether calls run in order or not.  One that is approved begins
  in its turn; the answer may come before that.
* A call whose start is on record but which is not running (after a crash) is *lost*: it is run
  again if its tool is declared idempotent, else its result says that it may have run.  One that
  only delegates has had no effect before its record, and is made again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hubbub.agents.built_in import COMPLETE, FINAL_ANSWER, INTERRUPT, USE_SKILL
from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.signature import Parameter
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model import parse_arguments
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.open_calls import MAX_CALLS
from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.agents.turn.signals import Held
from hubbub.agents.turn.stop import terminal
from hubbub.hub.delivery.pending_prompt import APPROVE, DENY
from hubbub.hub.events import (
    AgentHandoff,
    AgentToolComplete,
    AgentToolStart,
    Event,
    SessionPop,
    SessionPrompt,
    SessionPromptEnd,
)
from hubbub.hub.values import Json

__all__ = [
    "HANDED_OVER", "MAX_CALLS", "PAUSE_SECONDS", "answer", "begin_calls", "given_up", "lost_calls",
    "misfit_words", "notes_of_approval", "popped", "refuse_open_calls",
]  # fmt: skip

LOST = (
    "the process stopped while this tool was running; it may or may not have had its effect. "
    "Check before you call it again."
)

HANDED_OVER: Final = "The conversation was handed over to {}."
COMPLETED: Final = "Completed."

PAUSE_SECONDS: Final = 3600.0
"""How long the answer to ``interrupt`` is waited for."""

_ARGUMENTS: Final[Mapping[str, Arguments]] = {
    COMPLETE: Arguments(COMPLETE, (Parameter(name="result", type=str),)),
    INTERRUPT: Arguments(
        INTERRUPT,
        (
            Parameter(name="prompt", type=str),
            Parameter(name="options", type=list[str], default=()),
        ),
    ),
}


def begin_calls(thread: Thread, side: ActiveSide, held: Sequence[Held] = ()) -> list[Event]:
    """The starts, the refusals, the prompts and the handoff that are due in the open step."""
    step = thread.open
    if step is None:
        return []
    begun: list[Event] = []
    skipped = ""
    is_blocked = False
    for call in step.calls:
        if call.status == "done":
            skipped = skipped or _ends(call, side)
        elif skipped:
            begun += given_up(thread, step, call, f"skipped: {skipped}")
            begun.append(answer(thread, step, call, f"skipped: {skipped}"))
        elif call.status in ("started", "waiting"):
            is_blocked = not step.parallel
        elif side.may_ask and (asked := _ask(thread, step, call, side, held)):
            begun += asked
            is_blocked = is_blocked or not (
                step.parallel or isinstance(asked[-1], AgentToolComplete)
            )
        elif is_blocked:
            continue
        elif refusal := _refusal(thread, call, side):
            begun.append(answer(thread, step, call, refusal))
        elif call.name in side.handoffs:
            begun += _hand_over(thread, step, call, side)
            skipped = f"the conversation was handed over to {call.name}"
        elif call.name in (COMPLETE, FINAL_ANSWER):
            begun += _complete(thread, step, call, side)
            skipped = f"the session ended with {call.name}"
        elif call.name == INTERRUPT:
            begun += _interrupt(thread, step, call, side)
            is_blocked = True
        else:
            begun.append(_start(thread, step, call, side))
            is_blocked = not step.parallel
        if is_blocked and not side.may_ask:
            break  # Nothing behind it asks.
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
        if call.name == USE_SKILL and side.is_skill:
            return "a skill cannot use skills; do it yourself, or complete and say what is missing"
        if (server := side.server_of(call.name)) is not None:
            what = f"the server {server.name!r} lists no tool {call.name!r}"
            return f"{what} now; use another tool, or go on without it"
        known = ", ".join(sorted(side.offered)) or "none"
        return f"there is no tool named {call.name!r}; available tools: {known}"
    if call.name == INTERRUPT and not thread.converses:
        return "nobody is there who could answer; go on without an answer"
    if call.name == FINAL_ANSWER and side.output is not None:
        return misfit_words(side.output.problem(call.arguments or "{}"))
    arguments = _ARGUMENTS.get(call.name)
    if arguments is not None:
        try:
            arguments.parse(call.arguments)
        except BadArguments as error:
            return error.message
    return ""


def misfit_words(problem: str) -> str:
    """What the model is told of an answer that does not fit; nothing, if it does."""
    if not problem:
        return ""
    what = "Give it again, whole: JSON that fits the schema, and nothing else."
    return f"Your final answer does not fit:\n{problem}\n{what}"


def _start(thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide) -> Event:
    return AgentToolStart(
        step=step.number,
        index=call.index,
        name=call.name,
        arguments=call.given or call.arguments,
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


def _complete(thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide) -> Iterator[Event]:
    yield _start(thread, step, call, side)
    yield answer(thread, step, call, COMPLETED, is_error=False, ran=True)


def _interrupt(thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide) -> Iterator[Event]:
    """Pause for the user's answer: the prompt is on record, and so is until when it waits."""
    given = _ARGUMENTS[INTERRUPT].parse(call.arguments)
    yield _start(thread, step, call, side)
    yield _prompt(
        thread, step, call, side, question=given["prompt"],
        options=tuple(given.get("options", ())), timeout=PAUSE_SECONDS,
    )  # fmt: skip


def _ask(
    thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide, held: Sequence[Held]
) -> list[Event]:
    """What is written of a call that a person is asked about; nothing where it simply runs."""
    if call.is_approved or call.index >= MAX_CALLS:
        return []
    tool = side.tool_of(call.name, call.arguments)
    if tool is None or not tool.asks:
        return []
    found = next((each for each in held if each.index == call.index), None)
    if found is not None and found.problem:
        return [answer(thread, step, call, found.problem)]
    needs_one = tool.is_external or found is not None
    # Of a predicate only what it said when the model made the call counts.
    if not needs_one and (tool.approval is None or tool.approval.predicate is not None):
        return []
    try:
        parse_arguments(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []  # Its error result says so.
    if tool.is_external:
        return [_start(thread, step, call, side), _external(thread, step, call, side, tool)]
    return [_approval(thread, step, call, side, tool)]


def _approval(
    thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide, tool: Tool[..., Any]
) -> SessionPrompt:
    timeout = tool.approval.timeout if tool.approval is not None else None
    return _prompt(
        thread, step, call, side, question=f"May {call.name} run?", options=(APPROVE, DENY),
        timeout=timeout, kind="approval", tool=call.name, arguments_json=_json_of(call),
    )  # fmt: skip


def _external(
    thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide, tool: Tool[..., Any]
) -> SessionPrompt:
    return _prompt(
        thread, step, call, side, question=f"What is the result of {call.name}?",
        timeout=tool.timeout, kind="external", tool=call.name, arguments_json=_json_of(call),
    )  # fmt: skip


def _json_of(call: OpenCall) -> Json:
    return Json((call.arguments or "{}").encode())


def _prompt(
    thread: Thread, step: OpenStep, call: OpenCall, side: ActiveSide, **asked: Any
) -> SessionPrompt:
    """A prompt that a call waits for; its id does not depend on the caller."""
    return SessionPrompt(
        prompt_id=f"{thread.origin.run_id}.call_{step.number}_{call.index}",
        pauses=True,
        side=thread.side,
        label=side.config.label,
        turn=thread.turn,
        call_id=f"{step.number}.{call.index}",
        **asked,
    )


def notes_of_approval(call: OpenCall) -> tuple[str, ...]:
    """What the model reads beside the result of a call that was approved with other arguments."""
    if not call.given:
        return ()
    return (f"The person who approved this call changed its arguments; it ran with: {call.given}",)


def refuse_open_calls(thread: Thread, reason: str, depth: int | None = None) -> Iterator[Event]:
    """An error result for every call that has none yet; what it waited for is no longer wanted.

    ``depth`` is how many frames are left of the stack, where not only those above go.
    """
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status != "done":
            assert step is not None
            yield from given_up(thread, step, call, reason, depth)
            yield answer(thread, step, call, reason, ran=call.status == "started")


def given_up(
    thread: Thread, step: OpenStep, call: OpenCall, reason: str, depth: int | None = None
) -> Iterator[Event]:
    """What comes before the answer of a call that is no longer waited for."""
    if call.status != "waiting":
        return
    if call.takeover:
        yield popped(thread, step, call, is_error=True, depth=depth)
    elif not call.child:
        yield SessionPromptEnd(
            prompt_id=call.key, reason=reason, turn=thread.turn,
            call_id=f"{step.number}.{call.index}",
        )  # fmt: skip


def popped(
    thread: Thread, step: OpenStep, call: OpenCall, *, is_error: bool, depth: int | None = None
) -> SessionPop:
    """The frame that a call has waited for gives the conversation back."""
    child = thread.family.find(call.child)
    return SessionPop(
        frame_run_id=call.child,
        frame_agent=child.agent if child is not None else "",
        depth=(thread.origin.frame or 1) if depth is None else depth,
        is_error=is_error,
        turn=thread.turn,
        call_id=f"{step.number}.{call.index}",
    )


def lost_calls(thread: Thread, side: ActiveSide) -> Iterator[Event]:
    """The honest result of every call that was running when its process stopped."""
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status == "started":
            tool = side.tool_of(call.name, call.arguments)
            delegates = side.delegates(call.name, call.arguments)
            if not delegates and (tool is None or not tool.idempotent):
                assert step is not None
                yield answer(thread, step, call, LOST, ran=True, notes=notes_of_approval(call))


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
