"""``no_run_failed``: for worlds in which nothing may fail except by an injected fault.

Agents and tools may fail: neither a failed run nor an error result breaks the contract.  An agent
that fails in every world by a bug of its author therefore violates none of ``INVARIANTS``; use
this invariant to find such bugs.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.values import NULL
from hubbub.hub.virtual import EPOCH
from hubbub.runtime.simulation.story.history import History

__all__ = ["no_run_failed"]

_DEATHS: Final = ("Interrupted", "CrashLoop")
"""Error types of runs that ended because their process died, by a fault or by the scenario."""


def no_run_failed(history: History) -> Iterator[str]:
    """No run and no session has failed, and no tool that was called answered with an error.

    Failures are runs and sessions with the outcome ``failed`` (code or a model raised), and error
    results of tools that ran, also by ``ToolError``.  Each is reported once, for the run in which
    it happened: not for the run that a failed session ends, nor for the call that waited for it.

    Other outcomes (``interrupted``, ``terminated``, ``timed_out``, ``limit``) and their error
    results, invalid calls of a model (unknown tools, bad arguments) and sessions that a model ended
    by ``session_fail`` are not failures.  Neither is a failure that is explained by

    * a fault injected into this tool, or into this agent's model, anywhere in this world;
    * the end of a process: calls that it cut off, and code agents that are not resumed;
    * its text, if that repeats the text of an explained failure.

    Run some worlds without faults, too.
    """
    found = [
        failure
        for run_id, own in history.own.items()
        for failure in _failures(history, run_id, own)
    ]
    explained = [each.text for each in found if each.is_explained and each.text]
    for each in found:
        if not each.is_explained and not any(text in each.text for text in explained):
            event = each.event
            at = (event.at - EPOCH) / 1_000_000
            yield (
                f"run {event.run_id} ({each.agent}): {each.what} at {at:.3f} s ({event.id}): "
                f"{each.text}"
            )


class _Failure(Struct, frozen=True, kw_only=True):
    """One thing that failed, and whether something explains it."""

    event: Event
    agent: str
    what: str
    text: str
    is_explained: bool


def _failures(history: History, run_id: str, own: Sequence[Event]) -> Iterator[_Failure]:
    info = history.runs.get(run_id)
    delegated = {(x.step, x.index) for x in own if isinstance(x, e.AgentChild)}
    agent, told, is_dead = info.agent if info is not None else "", "", False
    for place, event in enumerate(own):
        agent = event.agent or agent
        match event:
            case e.SessionStart():
                told = ""
            case e.AgentFailed():
                is_dead = event.error_type in _DEATHS and len(history.lives) > 1
            case e.AgentToolComplete(is_error=True, ran=True):
                if (event.step, event.index) not in delegated:
                    yield _Failure(
                        event=event, agent=agent, text=event.output,
                        what=f"call {event.step}.{event.index} ({event.name}) was an error",
                        is_explained=event.output == LOST
                        or _is_cut_off(own[place + 1 :])
                        or _is_struck(history, "tool", event.name),
                    )  # fmt: skip
            case e.Ending(outcome="failed") if event.reason != told:
                told = event.reason
                # A session that ended in failure has reported it to its caller, too.
                is_meant = event.output_json is not NULL and event.output == event.reason
                if not is_meant:
                    is_struck = _is_struck(history, "model", agent)
                    yield _Failure(
                        event=event, agent=agent, text=event.reason, what="failed",
                        is_explained=is_dead or is_struck,
                    )  # fmt: skip


def _is_cut_off(later: Sequence[Event]) -> bool:
    """Whether a session or run ended, in the commit that answered the call, before it was done."""
    besides = e.AgentToolComplete | e.SessionPop | e.SessionPromptEnd
    end = next((x for x in later if not isinstance(x, besides)), None)
    return isinstance(end, e.Ending) and end.outcome != "completed"


def _is_struck(history: History, sort: str, name: str) -> bool:
    return any(len(each) > 2 and (each[0], each[2]) == (sort, name) for each in history.injected)
