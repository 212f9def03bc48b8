"""The invariants of every history, whichever faults were injected.

    History → lines, one for each violation, with its runs and events

Each invariant is a plain function of the history.  It returns or yields its lines, or raises
``AssertionError``; a function that only asserts and returns nothing is valid, too.  ``INVARIANTS``
maps names to the invariants that hold in every world, so that users can remove or add some:

    simulate(scenario, setup, invariants={**INVARIANTS, "polite": all_answers_say_please})

    lives of runs      start_before_everything, one_terminal_event             here
    store and memory   replay_equals_live, no_leaked_task                      here
    messages           no_message_lost, order_kept, no_idle_run_with_mail      message_invariants.py
    calls, children    valid_history_at_every_model_call, takeover_stack,      call_invariants.py
                       one_completion_per_invocation
    several workers    one_owner_at_a_time, no_tree_left_alone,                sharing.py
                       workers_hear_alike
    limits             budgets_held                                            budgets.py
                       limits_held                                             spending.py
    failures           no_run_failed: not one of INVARIANTS, for worlds        failure_invariants.py
                       in which nothing is meant to fail

Rules
-----
* What the contract allows is not a violation: dead letters instead of deliveries, items dropped by
  a restore, messages lent to a frame or moved when it is popped, results that are not reported,
  messages that a code agent receives again.
* Events that only listeners receive (dead letters) may be missing if the process died before it
  dispatched them; events in the store may not.
* What must have happened eventually is checked only in a world at rest (``history.is_settled``).
"""

import inspect
import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final, TypeAlias

from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.runtime.simulation.invariants.calls import (
    one_completion_per_invocation,
    takeover_stack,
    valid_history_at_every_model_call,
)
from hubbub.runtime.simulation.invariants.failures import no_run_failed
from hubbub.runtime.simulation.invariants.messages import (
    no_idle_run_with_mail,
    no_message_lost,
    order_kept,
)
from hubbub.runtime.simulation.invariants.sharing import (
    no_tree_left_alone,
    one_owner_at_a_time,
    workers_hear_alike,
)
from hubbub.runtime.simulation.story.budgets import budgets_held
from hubbub.runtime.simulation.story.differing import differing
from hubbub.runtime.simulation.story.fields import shown
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.story.spending import limits_held

__all__ = [
    "INVARIANTS",
    "Invariant",
    "budgets_held",
    "limits_held",
    "no_idle_run_with_mail",
    "no_leaked_task",
    "no_message_lost",
    "no_run_failed",
    "no_tree_left_alone",
    "one_completion_per_invocation",
    "one_owner_at_a_time",
    "one_terminal_event",
    "order_kept",
    "problems_of",
    "replay_equals_live",
    "start_before_everything",
    "takeover_stack",
    "valid_history_at_every_model_call",
    "workers_hear_alike",
]

Invariant: TypeAlias = Callable[[History], Iterable[str] | None]
"""A function that returns what is wrong with a history, a line each, or nothing."""


# ── asking ───────────────────────────────────────────────────────────────────────────────────


def problems_of(name: str, invariant: Invariant, history: History) -> list[str]:
    """What an invariant has to say: its lines, and what it asserts as one more.

    Raises ``BadValue`` for what are no lines: a text would be taken letter by letter, and ``True``
    means one thing to one author and the other to the next.
    """
    problems: list[str] = []
    try:
        found: object = invariant(history)
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable | None):
            raise BadValue(f"invariants[{name!r}]", _wrong_answer(found))
        problems.extend(str(each) for each in found or ())
    except AssertionError as failed:
        problems.append(_assertion(failed))
    except BadValue:
        raise
    except Exception as failed:
        problems.append(f"it raised {type(failed).__name__}: {_assertion(failed)}")
    return problems


def _wrong_answer(found: object) -> str:
    if inspect.iscoroutine(found):
        found.close()
        return "it is async; make it a plain function, the world is over when it is asked"
    return (
        f"it returned {shown(found)}; return the problems, a list of lines, or raise AssertionError"
    )


def _assertion(failed: Exception) -> str:
    """What was asserted and does not hold, and where."""
    frame = traceback.extract_tb(failed.__traceback__)[-1]
    text = str(failed) or linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{text or 'AssertionError'} ({PurePath(frame.filename).name}:{frame.lineno})"


# ── the life of a run ────────────────────────────────────────────────────────────────────────


def start_before_everything(history: History) -> Iterator[str]:
    """A run has one ``agent:start``, before its first other ``agent:*`` event."""
    for run_id, own in history.own.items():
        starts = [x for x in own if isinstance(x, e.AgentStart)]
        if len(starts) > 1:
            yield f"run {run_id} started {len(starts)} times: {_ids(starts)}"
        first = next((x for x in own if x.type.startswith("agent:")), None)
        if first is not None and not isinstance(first, e.AgentStart):
            yield f"run {run_id} began with {first.type} ({first.id}), not with agent:start"


def one_terminal_event(history: History) -> Iterator[str]:
    """A run has at most one ``agent:complete``, and it is its last own event.

    The store calls a run ended exactly if it has one.  What was terminated before ends terminated.
    """
    yield from _unheeded(history)
    for run_id, own in history.own.items():
        ends = [x for x in own if isinstance(x, e.AgentComplete)]
        if len(ends) > 1:
            yield f"run {run_id} ended {len(ends)} times: {_ids(ends)}"
        elif ends and own[-1] is not ends[0]:
            behind = own[-1]
            yield f"run {run_id} went on after its end {ends[0].id}: {behind.type} ({behind.id})"
        info = history.runs.get(run_id)
        if info is not None and (info.status == "ended") != bool(ends):
            said = "has no agent:complete" if not ends else f"has ended ({ends[0].id})"
            yield f"run {run_id} {said}, but the store calls it {info.status}"


def _unheeded(history: History) -> Iterator[str]:
    places: dict[str, int] = {}
    for run_id, inbox in history.inbox.items():
        own = history.own.get(run_id)
        stop = next((x for x in inbox if isinstance(x, e.SessionTerminate)), None)
        if stop is None or not own or _is_dropped(stop, own):
            continue
        end = own[-1]
        if not isinstance(end, e.AgentComplete) or end.outcome == "terminated":
            continue
        places = places or {event.id: place for place, event in enumerate(history.events)}
        if places[stop.id] < places[end.id]:
            yield f"run {run_id} was terminated ({stop.id}), but ended as {end.outcome} ({end.id})"


def _is_dropped(stop: Event, own: Iterable[Event]) -> bool:
    """Whether it was the end of the run that this one is a fork of."""
    dropped = (item for x in own if isinstance(x, e.SessionDropped) for item in x.items)
    return any(item.seq == stop.seq for item in dropped)


# ── store and memory ─────────────────────────────────────────────────────────────────────────


def replay_equals_live(history: History) -> Iterator[str]:
    """What the journal comes to is what was lived: nothing was heard or thought that it lacks.

    * Lanes are numbered from 1 without a gap, but for what was never there before the base of a
      fork; a durable event that listeners were given is in the store, the same, and was given once
      a life, in the store's order.
    * Folding a run's own lane gives the state it has in memory, and what the store says of
      its address: its agent, whether it is parked, how much waits.  So it does with each of
      its commits (``history.strayed``).
    """
    yield from history.strayed
    yield from _numbers(history)
    yield from _heard(history)
    if not history.is_settled:
        return
    for run_id, live in history.live.items():
        own = history.own.get(run_id, ())
        last = own[-1].seq if own else 0
        seq, thread = history.live_seq.get(run_id, last), history.threads.get(run_id)
        if seq != last:
            thread = fold_all(EMPTY, [event for event in own if event.seq <= seq])
        if thread is not None and thread != live:
            fields = ", ".join(differing(thread, live))
            yield f"run {run_id} has another state in memory than in the journal: {fields}"
    for run_id, info in history.runs.items():
        thread = history.threads.get(run_id)
        if thread is None or thread.phase == "new":
            continue
        if thread.agent != info.agent:
            yield f"run {run_id} is {thread.agent!r} by its journal, {info.agent!r} in the store"
        if info.status == "parked" and not thread.parked and thread.phase != "ended":
            yield f"run {run_id} has not parked by its journal, but is parked in the store"
        if info.waiting != len(history.waiting.get(run_id, ())):
            count = len(history.waiting.get(run_id, ()))
            yield f"run {run_id} has {count} items waiting; the store counts {info.waiting}"


def _numbers(history: History) -> Iterator[str]:
    for lanes in (history.own, history.inbox):
        for run_id, lane in lanes.items():
            base, last = history.bases.get(run_id), 0
            for event in lane:
                if base is not None:
                    first = base.seq if event.lane == "own" else base.inbox + 1
                    last = first - 1 if last < first - 1 and event.seq >= first else last
                if event.seq != last + 1:
                    yield f"run {run_id} has {event.id} where {event.lane} {last + 1} is due"
                    break
                last = event.seq


def _heard(history: History) -> Iterator[str]:
    places = {event.id: place for place, event in enumerate(history.events)}
    life, last, before = -1, -1, ""
    for each in history.heard:
        event = each.event
        if not event.lane:
            continue
        if each.life != life:
            life, last = each.life, -1
        place = places.get(event.id)
        if place is None:
            yield f"run {event.run_id}: {event.type} ({event.id}) was dispatched, but is not stored"
            continue
        if place <= last:
            yield f"run {event.run_id}: {event.id} was dispatched after its successor {before}"
        if history.events[place] != event:
            yield f"run {event.run_id}: {event.id} was dispatched otherwise than it is stored"
        last, before = place, event.id


def no_leaked_task(history: History) -> Iterator[str]:
    """At rest no task is left but those that a runtime has anyway."""
    for name in history.tasks:
        yield f"task {name!r} was still there at rest"


def _ids(events: Iterable[Event]) -> str:
    return ", ".join(event.id for event in events)


INVARIANTS: Final[Mapping[str, Invariant]] = {
    invariant.__name__: invariant
    for invariant in (
        start_before_everything,
        one_terminal_event,
        no_message_lost,
        order_kept,
        no_idle_run_with_mail,
        valid_history_at_every_model_call,
        one_completion_per_invocation,
        takeover_stack,
        budgets_held,
        limits_held,
        replay_equals_live,
        no_leaked_task,
        one_owner_at_a_time,
        no_tree_left_alone,
        workers_hear_alike,
    )
}
"""All of them, by name."""
