"""What must hold of hooks and variables in the own world."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from simulation.forking import originals
from simulation.hooked import FILTERED, HOOKED, MARK, REFUSED, SAID, STORED, Watched

from hubbub.agents.model import UserMessage
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event
from hubbub.runtime.simulation import Invariant
from hubbub.runtime.simulation.story.history import History

__all__ = ["hooked_invariants"]


def hooked_invariants(watched: Watched) -> tuple[Invariant, ...]:
    """All of them, of a world whose agents are ``watched``."""

    def hooks_told_once(history: History) -> Iterator[str]:
        """Hooks are called once for what is on record, and never when it is read again (D-06)."""
        yield from _told_wrongly(history, watched)

    def values_of_the_own_tree(history: History) -> Iterator[str]:
        """A run reads its own values, else its ancestors', and loses none (D-07, D-09, V-02)."""
        forks = originals(history)  # These have the values that the old runs have.
        for seen in watched.seen:
            own = history.own.get(seen.run_id, ())
            if history.runs[seen.run_id].root_run_id not in forks and _is_done(own, seen.label):
                for name, value in seen.values.items():
                    problem = _value_problem(history, seen.run_id, seen.label, name, value)
                    if problem:
                        yield f"run {seen.run_id}: {name} as read in {seen.label} {problem}"

    return (
        hooks_told_once, values_of_the_own_tree, hooks_change_once, variables_asked_once,
        values_kept,
    )  # fmt: skip


# ── hooks ────────────────────────────────────────────────────────────────────────────────────


def hooks_change_once(history: History) -> Iterator[str]:
    """What is recorded, or sent, has gone through the hooks of its point once (D-06)."""
    for run_id, own in _hooked(history):
        inbox = {each.id: each for each in history.inbox.get(run_id, ())}
        for event in own:
            if isinstance(event, e.AgentText) and event.text.count(SAID) != 1:
                yield f"run {run_id}: {event.id} has said {event.text!r}"
            elif isinstance(event, e.AgentToolComplete) and _is_unmarked(event):
                yield f"run {run_id}: {event.id} holds {event.output!r}"
            elif isinstance(event, e.SessionTaken):
                for item in event.items:
                    said = inbox.get(item.id)
                    if not isinstance(item, e.SessionMessage):
                        continue
                    if isinstance(said, e.SessionMessage) and item.content != f"~{said.content}":
                        yield f"run {run_id}: {event.id} has taken {item.content!r}"
    for asked in history.requests:
        if asked.agent in HOOKED:
            messages = [x for x in asked.request.messages if isinstance(x, UserMessage)]
            if (count := sum(x.content == FILTERED for x in messages)) != 1:
                yield f"run {asked.run_id}: a request at {asked.at} was filtered {count} times"


def _is_unmarked(event: e.AgentToolComplete) -> bool:
    """Whether a result in a tool's own words is not as the hooks leave it."""
    if not event.output.startswith(("noted ", "read ", "assigned ", REFUSED)):
        return False
    words = event.output.partition(" ~ok")[0].partition(" ~bad")[0]
    return event.output != f"{words}{STORED[event.is_error]}"


def _told_wrongly(history: History, watched: Watched) -> Iterator[str]:
    told = Counter((x.run_id, x.point, x.what) for x in watched.told)
    life_of = {x.event.id: x.life for x in history.heard}
    last = len(history.lives) - 1
    expected: Counter[tuple[str, str, str]] = Counter()
    needed: Counter[tuple[str, str, str]] = Counter()
    for run_id, own in _hooked(history):
        is_cut = any(isinstance(x, e.AgentComplete | e.AgentInterrupted) for x in own)
        for event in own:
            if (key := _notice(run_id, event)) is not None:
                expected[key] += 1
                is_due = life_of.get(event.id) == last and event.id not in history.forked
                needed[key] += history.is_settled and not is_cut and is_due
    for key, count in told.items():
        if key[1] != "after_create_message" and count > expected[key]:
            yield f"run {key[0]}: {key[1]} {key[2]!r} was told {count} times of {expected[key]}"
    for key, count in needed.items():
        if told[key] < count:
            yield f"run {key[0]}: {key[1]} {key[2]!r} was told {told[key]} times of {count}"
    for run_id, _ in _hooked(history):
        yield from _messages_told(history, run_id, told)


def _notice(run_id: str, event: Event) -> tuple[str, str, str] | None:
    match event:
        case e.AgentStart():
            return run_id, "after_thread_created", str(event.input)
        case e.AgentChild() if event.child_run_id and not event.error:
            return run_id, "after_subagent_created", event.child_run_id
        case e.SessionEnd():
            return run_id, "after_session", ""
    return None


def _messages_told(
    history: History, run_id: str, told: Mapping[tuple[str, str, str], int]
) -> Iterator[str]:
    thread = history.threads[run_id]
    shown: Counter[str] = Counter()
    for message in (*thread.transcript, *thread.transcript_b):
        shown[getattr(message, "content", None) or getattr(message, "text", "")] += 1
    for (of, point, what), count in told.items():
        if of == run_id and point == "after_create_message" and count > shown[what]:
            yield f"run {run_id}: of the message {what!r} hooks were told {count} times"


def _hooked(history: History) -> Iterator[tuple[str, list[Event]]]:
    for run_id, info in history.runs.items():
        if info.agent in HOOKED:
            yield run_id, history.own.get(run_id, [])


# ── variables ────────────────────────────────────────────────────────────────────────────────


def values_kept(history: History) -> Iterator[str]:
    """A value stands in no event, in no request, and in no line of the log (H-19, V-03)."""
    secret = MARK.encode()
    for event in (*history.events, *(x.event for x in history.heard)):
        if secret in encode_event(event):
            yield f"run {event.run_id}: {event.type} ({event.id}) tells a value"
    for asked in history.requests:
        if MARK in repr(asked.request):
            yield f"run {asked.run_id}: a request at {asked.at} tells a value"
    if MARK in repr(history.logged):
        yield "the log tells a value"


def variables_asked_once(history: History) -> Iterator[str]:
    """A call asks for its variables once, and what is provided starts one child (V-01, V-02)."""
    for run_id, own in history.own.items():
        asked = [x for x in own if isinstance(x, e.SessionVariables)]
        for message, count in Counter(x.message for x in asked).items():
            if count > 1:
                yield f"run {run_id} has asked {count} times for what {message!r} wants"
        given = [x for x in history.inbox[run_id] if isinstance(x, e.SessionVariables)]
        for request_id, count in Counter(x.request_id for x in given).items():
            if count > 1:
                yield f"run {run_id} has got what {request_id} asked for {count} times"
        children = Counter(x.child_run_id for x in own if isinstance(x, e.AgentChild))
        is_over = any(isinstance(x, e.AgentComplete) for x in own)
        for each in given:
            count = children[each.child_run_id]
            if count > 1 or (history.is_settled and not is_over and not count):
                yield f"run {run_id}: {each.id} has started {count} children"


def _is_done(own: list[Event] | tuple[()], label: str) -> bool:
    done = f"read {label}"
    return any(isinstance(x, e.AgentToolComplete) and _words(x) == done for x in own)


def _words(event: e.AgentToolComplete) -> str:
    return event.output.partition(" ~ok")[0]


def _value_problem(history: History, run_id: str, label: str, name: str, value: str | None) -> str:
    """Why a run cannot have read this value; else empty."""
    line = [run_id]
    while (above := history.runs[line[-1]].parent_run_id) is not None:
        line.append(above)
    requests = {
        each.child_run_id: each.request_id
        for inbox in (history.inbox.get(each, ()) for each in line)
        for each in inbox
        if isinstance(each, e.SessionVariables)
    }
    owner, since = value.split("|")[2:] if value is not None else ("", "")
    if name == "KEY" and history.runs[run_id].agent == "vault":
        wanted = requests.get(run_id)
        return "" if owner == wanted else f"is of {owner or 'nobody'}, not of {wanted}"
    if owner and owner not in (*line, *(requests.get(each) for each in line)):
        return f"is of {owner}, who is not above it"
    last, completed = _assigned(history.own[run_id], name, _reads(label))
    if last and owner != run_id:
        return f"is of {owner or 'nobody'}, but {last} has given it a value"
    if owner == run_id and since != last and since in completed:
        return f"is that of {since}, not of {last or 'later'}"
    if value is None and _is_inherited(history, line, name):
        return "is not set, but above it it was"
    return ""


def _reads(label: str) -> Callable[[Event], bool]:
    return lambda x: isinstance(x, e.AgentToolComplete) and _words(x) == f"read {label}"


def _assigned(own: list[Event], name: str, is_end: Callable[[Event], bool]) -> tuple[str, set[str]]:
    """Which call has given a value last before something, and which ones ever have."""
    last, completed, is_over = "", set[str](), False
    for event in own:
        is_over = is_over or is_end(event)
        start: Any = f"assigned {name} "
        if isinstance(event, e.AgentToolComplete) and event.output.startswith(start):
            label = _words(event).removeprefix(start)
            completed.add(label)
            last = last if is_over else label
    return last, completed


def _is_inherited(history: History, line: list[str], name: str) -> bool:
    """Whether one above had a value when the branch was started, and has it still."""
    if any(isinstance(x, e.AgentComplete) for each in line[1:] for x in history.own[each]):
        return False
    return any(
        _assigned(history.own[above], name, _starts(below))[0] for below, above in pairwise(line)
    )


def _starts(child: str) -> Callable[[Event], bool]:
    return lambda x: isinstance(x, e.AgentChild) and x.child_run_id == child
