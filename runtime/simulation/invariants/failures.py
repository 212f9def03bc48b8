"""What must hold where nothing is meant to fail.

Agents and tools are their author's, and may fail: a run that ends failed and a call that is
answered by an error break no contract.  So an agent that dies of its author's own mistake in every
world breaks none of the invariants that hold of all worlds.  ``no_run_failed`` is for worlds in
which nothing is meant to fail, except for what faults do.
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
"""The types of what ends a run whose process died: in a world, faults and scenarios do that."""


def no_run_failed(history: History) -> Iterator[str]:
    """No run and no session has failed, and no tool that was called answered with an error.

    What counts: a run or a session whose outcome is ``failed`` (code or a model that raised), and
    an error result of a tool that ran, by ``ToolError`` too.  It is told once, by the run in which
    it came about: not by the run that a failed session ends, nor by the call that waited for it.

    What does not: the other outcomes (``interrupted``, ``terminated``, ``timed_out``, ``limit``)
    and the errors that they leave calls with; calls that a model got wrong (unknown tools, bad
    arguments); a session that a model has ended by ``session_fail``; and what is explained by

    * a fault that struck this tool, or this agent's model, anywhere in this world;
    * the end of a process: calls that it cut off, and code agents that are not resumed;
    * its words, where they repeat those of a failure that is explained.

    So play some worlds without faults, too.
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
                # Whoever says that it has failed has said it to its caller, too.
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
