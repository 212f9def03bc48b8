"""What the calls of models change in a thread.

steps      what is said, the calls of tools, what was used
misfits    answers that are not of the form they are to be: one that was given by a call has its
           result, which says why; to one that was a text the reason is said, in the transcript,
           so that later requests of the side begin with it, too
summaries  take the place of the older messages of one side's view
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from hubbub.agents.model import AssistantMessage, ModelMessage, Thinking, UserMessage
from hubbub.agents.retry import REQUEST
from hubbub.agents.state.compactions import (
    NO_COMPACTIONS,
    after_step,
    compactions_after,
    length_of,
    wanted,
)
from hubbub.agents.state.models_in_use import FIRST, answered_by, switched
from hubbub.agents.state.spending import Spent, with_event
from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.agents.state.transcript import said, tell
from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE

__all__ = [
    "MISFIT", "is_said", "misfits_of_turn", "summary_message", "summary_problem", "with_misfit",
    "with_retry", "with_step", "with_summary", "with_text", "with_thinking", "with_wish",
]  # fmt: skip


def with_text(thread: Thread, event: e.AgentText) -> Thread:
    if event.step != thread.step + 1:
        return thread  # Said by a tool on the way, not by the model in its step.
    return replace(thread, draft_text=thread.draft_text + event.text, last_text=event.text)


def with_thinking(thread: Thread, event: e.AgentThinking) -> Thread:
    block = Thinking(text=event.text, signature=event.signature, redacted=event.redacted)
    return replace(thread, draft_thinking=(*thread.draft_thinking, block))


def with_retry(thread: Thread, event: e.AgentRetry) -> Thread:
    if event.kind == MISFIT:
        return with_misfit(thread, event)
    models = thread.models
    if event.choice != models.of(thread.side):
        models = switched(
            models, thread.side, event.choice, event.attempt, may_accept=event.kind != REQUEST
        )
    return replace(
        thread,
        attempt=event.attempt + 1,
        delay=event.delay,
        models=models,
        draft_text="",
        draft_thinking=(),
        restarts=0,
    )


def with_step(thread: Thread, event: e.AgentStep) -> Thread:
    calls = []
    for at, call in enumerate(event.calls):
        calls.append(OpenCall(at, call.name, call.arguments))
    step = OpenStep(
        event.step,
        thread.draft_text,
        thread.draft_thinking,
        tuple(calls),
        event.parallel,
        event.stop_reason if event.stop_reason in ("refusal", "length") else "",
    )
    unseen = thread.unseen and tuple([side for side in thread.unseen if side != thread.side])
    models = thread.models
    if event.choice or models is not FIRST:
        models = answered_by(models, thread.side, event.choice)
    usage, spent = event.usage, thread.spent
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    compactions, is_a = thread.compactions, thread.side == "side_a"
    if compactions is not NO_COMPACTIONS:
        compactions = after_step(compactions, thread.side, usage)
    spoken = None if event.calls else AssistantMessage(text=step.text, thinking=step.thinking)
    if spoken is not None and thread.two_sided:
        thread, spoken = said(thread, spoken), None
    return replace(
        thread,
        step=event.step,
        turn_steps=thread.turn_steps + 1,
        attempt=1,
        delay=0.0,
        models=models,
        has_spoken=thread.has_spoken or bool(thread.draft_text),
        draft_text="",
        draft_thinking=(),
        open=step if event.calls else None,
        closed=None if event.calls else step,
        transcript=thread.transcript if spoken is None else (*thread.transcript, spoken),
        unseen=unseen,
        usage=usage if thread.usage is NO_USAGE else thread.usage + usage,
        total_usage=thread.total_usage if usage == NO_USAGE else thread.total_usage + usage,
        # As ``with_call`` has it; here it is no call.
        spent=Spent(
            spent.model_calls + 1,
            spent.input_tokens
            + usage.input_tokens
            + (cached if event.cached_apart or cached > usage.input_tokens else 0),
            spent.output_tokens + usage.output_tokens,
            spent.nanos + (event.cost_nanos or 0),
            spent.unpriced + (event.cost_nanos is None),
        ),
        seen=usage if is_a else thread.seen,
        seen_b=thread.seen_b if is_a else usage,
        compactions=compactions,
        restarts=0,
    )


# ── answers that are not of the form they are to be ──────────────────────────────────────────


MISFIT: Final = "output"
"""The kind of a retry by which the model is told that its answer does not fit."""


def misfits_of_turn(thread: Thread) -> int:
    """How many answers of this turn have not fitted."""
    turn, count = thread.misfits
    return count if turn == thread.turn else 0


def is_said(event: e.AgentRetry) -> bool:
    """Whether the model reads a retry among its messages."""
    return event.kind == MISFIT and not event.call_id


def with_misfit(thread: Thread, event: e.AgentRetry) -> Thread:
    """The thread when the model has been told."""
    thread = replace(thread, misfits=(thread.turn, misfits_of_turn(thread) + 1))
    if not is_said(event):
        return thread
    return tell(thread, UserMessage(content=event.error, role="system"), thread.side)


# ── summaries ────────────────────────────────────────────────────────────────────────────────


SUMMARY = "Summary of the conversation so far, in place of its older messages:\n\n{}"


def summary_message(summary: str) -> UserMessage:
    """A summary as the model is shown it."""
    return UserMessage(content=SUMMARY.format(summary), role="system")


def summary_problem(summary: str, covered: Iterable[ModelMessage]) -> str:
    """Why a summary cannot take the place of what it covers; empty where it can.

    One that is no shorter would not help, and it would be summarised again and again.
    """
    if not summary:
        return "the model's summary was empty"
    before = sum(map(length_of, covered))
    if len(summary) < before:
        return ""
    sizes = f"{len(summary):,} characters in place of {before:,}"
    return f"the model's summary is no shorter than what it covers: {sizes}"


def with_wish(thread: Thread, item: e.SessionCompact) -> Thread:
    """The thread after somebody asked for a summary."""
    return replace(thread, compactions=wanted(thread.compactions, thread.two_sided))


def with_summary(thread: Thread, event: e.SessionCompaction) -> Thread:
    """The thread after a summary, or after one that has failed and changes nothing."""
    is_b = event.side == "side_b"
    view = thread.transcript_b if is_b else thread.transcript
    compactions = compactions_after(thread.compactions, event)
    if event.summary or event.usage != NO_USAGE:  # Else nothing was asked, or nobody answered.
        thread = replace(
            thread, usage=thread.usage + event.usage, total_usage=thread.total_usage + event.usage,
            spent=with_event(thread.spent, event),
        )  # fmt: skip
    if event.error or not event.summary:
        return replace(thread, compactions=compactions)
    view = (summary_message(event.summary), *view[event.covers :])
    if is_b:
        return replace(thread, transcript_b=view, seen_b=NO_USAGE, compactions=compactions)
    return replace(thread, transcript=view, seen=NO_USAGE, compactions=compactions)
