"""Invariants of calls: each has one result, and so has each call of a child.

Rules
-----
* The calls of code agents are not checked: a code agent may use several models at once, and may
  end with open calls, since no further request will contain them.
* In a run that was adopted from its folder, the order of children and frames is not checked: its
  lanes were written again from what the folder contains.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeGuard

from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.agents.state.bases import thread_of
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.runtime.models.http.messages import UserTurn, conversation
from hubbub.runtime.simulation.story.history import History

__all__ = [
    "one_completion_per_invocation",
    "takeover_stack",
    "valid_history_at_every_model_call",
]

Call: TypeAlias = tuple[int, int]
"""Step and index."""


def valid_history_at_every_model_call(history: History) -> Iterator[str]:
    """Every provider accepts every model request, and no step begins while a call of the previous
    step has no result."""
    for asked in history.requests:
        for problem in _problems(asked.request):
            yield f"run {asked.run_id}, life {asked.life}: its model was shown {problem}"
    for run_id, own in _model_lanes(history):
        open_calls: dict[Call, str] = {}
        for event in own:
            match event:
                case e.AgentStep():
                    for call in open_calls:
                        before = f"before {_named(call, open_calls)} had its result"
                        yield f"run {run_id}: step {event.step} ({event.id}) was made {before}"
                    open_calls = {(event.step, at): x.name for at, x in enumerate(event.calls)}
                case e.AgentToolComplete():
                    open_calls.pop((event.step, event.index), None)


def one_completion_per_invocation(history: History) -> Iterator[str]:
    """Each call has one result.  Each session of a child is reported to its parent once, also the
    end of an idle child; the session of a frame is reported when the frame is popped.

    If the parent has ended, the report is a dead letter; if the process died before that, there is
    none.  The end of an idle child is one only where the child has had no session.  Of a child that
    does not stay its first session is all there is to report.
    """
    for run_id, own in _model_lanes(history):
        yield from _answers(history, run_id, own)
    results = _results(history)
    letters = {x.message.child_run_id for x in history.dead_letters if _is_of_end(x.message)}
    for run_id, own in history.own.items():
        opening = next(iter(history.inbox.get(run_id, ())), None)
        if (
            isinstance(opening, e.SessionOpen)
            and opening.reports
            and opening.parent_run_id in history.own
        ):
            lines = list(_reports(history, opening, own, results.get(run_id, ())))
            if run_id in letters and not opening.frame and history.threads[run_id].session:
                lines.append(f"child {run_id}: its end is a dead letter, besides its last session")
            if lines and not _is_adopted(history, run_id, opening.parent_run_id):
                yield from lines


def takeover_stack(history: History) -> Iterator[str]:
    """In each lane pushes minus pops are the takeover calls that are open: one at most, or several
    of one parallel step, whose frames lie beside each other.  A frame is pushed and popped once,
    and a pop stands beside the result of its call.

    At rest a frame that was popped has ended.
    """
    for run_id, own in history.own.items():
        line = _misfit(run_id, own)
        if line and not _is_adopted(history, run_id):
            yield line
        for event in own if history.is_settled else ():
            if isinstance(event, e.SessionPop) and _is_live(history, event.frame_run_id):
                yield f"frame {event.frame_run_id} was popped ({event.id}), but has not ended"


# ── what a model is shown ────────────────────────────────────────────────────────────────────


def _problems(request: ModelRequest) -> Iterator[str]:
    """What a provider would refuse, or read as something else."""
    ids = Counter(
        call.id for message in request.messages if isinstance(message, AssistantMessage)
        for call in message.calls
    )  # fmt: skip
    for id_, count in ids.items():
        if count > 1:
            yield f"{count} calls {id_}"
    turns = conversation(request.messages)
    if not turns:
        yield "nothing at all"
        return
    if not isinstance(turns[0], UserTurn):
        yield "its own words first"
    for one, two in pairwise(turns):
        has_results = isinstance(one, AssistantMessage) and bool(one.calls)
        if isinstance(one, UserTurn) == isinstance(two, UserTurn) and not has_results:
            yield f"two turns of one speaker in a row: {one!r:.80} and {two!r:.80}"
    last = turns[-1]
    if isinstance(last, AssistantMessage) and not last.calls:
        yield f"its own words last: {last.text[:40]!r}"


def _model_lanes(history: History) -> Iterator[tuple[str, list[Event]]]:
    """The own lanes of model runs; a session of a code agent begins on no side."""
    for run_id, own in history.own.items():
        start = next((x for x in own if isinstance(x, e.SessionStart)), None)
        if start is None or start.side:
            yield run_id, own


# ── calls and results ────────────────────────────────────────────────────────────────────────


def _answers(history: History, run_id: str, own: Sequence[Event]) -> Iterator[str]:
    calls: dict[Call, str] = {}
    answers: dict[Call, list[str]] = defaultdict(list)
    for event in own:
        if isinstance(event, e.AgentStep):
            calls |= {(event.step, at): call.name for at, call in enumerate(event.calls)}
        elif isinstance(event, e.AgentToolComplete):
            answers[event.step, event.index].append(event.id)
    for call, ids in answers.items():
        if call not in calls:
            yield f"run {run_id}: {', '.join(ids)} answers call {_place(call)}, which nobody made"
        elif len(ids) > 1:
            yield f"run {run_id}: {_named(call, calls)} has {len(ids)} results: {', '.join(ids)}"
    is_over = not _is_live(history, run_id)
    if not (is_over or history.is_settled):
        return
    step = history.threads[run_id].open
    waiting = () if is_over or step is None else step.calls
    open_calls = {(step.number, x.index) for x in waiting if step and x.status != "done"}
    for call in calls:
        if call not in answers and call not in open_calls:
            what = "is over" if is_over else "is at rest"
            yield f"run {run_id} {what}, but {_named(call, calls)} has no result"


def _results(history: History) -> Mapping[str, list[e.SessionResult]]:
    """What was reported of each child: to its parent's inbox, or in a dead letter."""
    found: dict[str, list[e.SessionResult]] = defaultdict(list)
    for inbox in history.inbox.values():
        for item in inbox:
            if isinstance(item, e.SessionResult):
                found[item.child_run_id].append(item)
    for letter in history.dead_letters:
        refused = letter.message
        if isinstance(refused, e.SessionResult) and not refused.seq:
            found[refused.child_run_id].append(refused)
    return found


def _is_of_end(item: InLane | None) -> TypeGuard[e.SessionResult]:
    """Whether an item says of a child that its run is over, outside of any session."""
    return isinstance(item, e.SessionResult) and not item.session


def _reports(
    history: History, opening: e.SessionOpen, own: Sequence[Event], found: Sequence[e.SessionResult]
) -> Iterator[str]:
    """The results that a child's parent got, against those that it should have got."""
    child = f"child {opening.run_id} of run {opening.parent_run_id}"
    ends = {x.session: x for x in own if isinstance(x, e.SessionEnd)}
    end = own[-1] if own and isinstance(own[-1], e.AgentComplete) else None
    base = history.bases.get(opening.run_id)
    before = thread_of(base).session if base is not None else 0
    for session, count in Counter(x.session for x in found).items():
        what = f"session {session}" if session else "the end"
        if count > 1:
            yield f"{child}: {what} is reported {count} times"
        elif session not in ends and (session > before or (not session and end is None)):
            yield f"{child}: {what} is reported, but has not come"
    if opening.once and len(ends) > 1 and not opening.frame and not _is_reset(history, opening):
        yield f"{child}: it was opened for one session, and had {len(ends)}"
    if sum(x.final for x in found) > 1:
        yield f"{child}: its end is reported {sum(x.final for x in found)} times"
    reported = {x.session for x in found}
    due: list[tuple[str, Event]] = []
    if not opening.frame:  # A frame is reported once, when it is popped.
        due += [(f"session {n}", x) for n, x in ends.items() if n not in reported]
    is_told = (reported or before) and not _is_live(history, opening.parent_run_id or "")
    if end is not None and not (is_told or any(x.final for x in found)):
        due.append(("its end", end))
    for what, event in due:
        if not _went_unheard(history, opening.parent_run_id, event):
            yield f"{child}: {what} ({event.id}) is not reported"


def _is_reset(history: History, opening: e.SessionOpen) -> bool:
    """Whether a run was told to begin anew."""
    return any(isinstance(x, e.SessionReset) for x in history.inbox.get(opening.run_id, ()))


def _went_unheard(history: History, parent: str | None, event: Event) -> bool:
    """Whether a result was refused by a parent that is over, and the process died just then, or
    that was before the run was forked."""
    if event.id in history.forked and parent in history.bases:
        return True
    if parent is None or _is_live(history, parent):
        return False
    if event.id in history.forked:
        return True
    return history.died_unheard(event)


# ── the stack ────────────────────────────────────────────────────────────────────────────────


def _misfit(run_id: str, own: Sequence[Event]) -> str:
    """The first thing in a lane that does not fit a stack."""
    calls: dict[str, str] = {}
    frames: dict[str, str] = {}
    parallel = ""
    for place, event in enumerate(own):
        match event:
            case e.AgentStep():
                parallel = f"{event.step}." if event.parallel else ""
                continue
            case e.AgentChild(takeover=True) if not event.error:
                calls[event.call_id] = event.child_run_id
                continue
            case e.SessionPush():
                if event.frame_run_id in frames:
                    return f"run {run_id}: {event.id} pushes frame {event.frame_run_id} again"
                frames[event.frame_run_id] = "open"
            case e.SessionPop():
                if frames.get(event.frame_run_id) != "open":
                    return f"run {run_id}: {event.id} pops frame {event.frame_run_id}, not on top"
                frames[event.frame_run_id] = "popped"
                if not _is_answered(own, place):
                    return f"run {run_id}: {event.id} does not stand beside the result of its call"
                continue
            case e.AgentToolComplete():
                calls.pop(event.call_id, None)
            case _:
                continue
        above = [frame for frame, status in frames.items() if status == "open"]
        if above != list(calls.values()):
            waiting = ", ".join(calls.values()) or "none"
            return (
                f"run {run_id}: after {event.id} open calls wait for frames: {waiting}; "
                f"pushed and not popped: {', '.join(above) or 'none'}"
            )
        beside = [call for call in calls if not (parallel and call.startswith(parallel))]
        if len(calls) > 1 and beside:
            return (
                f"run {run_id}: after {event.id} frames lie beside each other, though their calls "
                f"({', '.join(calls)}) are not of one parallel step: {', '.join(above)}"
            )
    return ""


def _is_answered(own: Sequence[Event], place: int) -> bool:
    """Whether the pop at a place stands before the one result of its call."""
    pop, beside = own[place], own[place + 1] if place + 1 < len(own) else None
    return (
        isinstance(pop, e.SessionPop)
        and isinstance(beside, e.AgentToolComplete)
        and (beside.call_id, beside.is_error) == (pop.call_id, pop.is_error)
    )


def _is_adopted(history: History, *run_ids: str | None) -> bool:
    """Whether a run's lanes were written again: a result before the child that it is of, or frames
    without any push."""
    for run_id in run_ids:
        begun: set[str] = set()
        frames, pushes = 0, 0
        for event in history.events:
            if event.run_id != run_id:
                continue
            if isinstance(event, e.SessionResult) and event.child_run_id not in begun:
                return True
            if isinstance(event, e.AgentChild):
                begun.add(event.child_run_id)
                frames += event.takeover
            pushes += isinstance(event, e.SessionPush)
        if frames and not pushes:
            return True
    return False


# ── names ────────────────────────────────────────────────────────────────────────────────────


def _is_live(history: History, run_id: str) -> bool:
    own = history.own.get(run_id)
    return own is not None and len(own) > 0 and not isinstance(own[-1], e.AgentComplete)


def _place(call: Call) -> str:
    return f"{call[0]}.{call[1]}"


def _named(call: Call, calls: Mapping[Call, str]) -> str:
    return f"call {_place(call)} ({calls[call]})"
