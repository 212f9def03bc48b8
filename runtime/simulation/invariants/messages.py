"""Invariants of messages: each has exactly one outcome, and order is kept.

An item is identified by the inbox that accepted it and its number there.  When a run ends, an item
that still waits

    is a dead letter   if it is a message, a result or an answer, which nobody will handle
    is moved           if it is a message to a frame: to the frame below, as a new item
    is dropped         if it is a control item, a timer or variables: it has no effect any more
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from hubbub.agents.state.commands import command_of
from hubbub.hub import events as e
from hubbub.hub.addressing import is_from_user
from hubbub.hub.events import Event, InLane, SessionMessage
from hubbub.hub.store.inbox_rules import can_be_left_over
from hubbub.runtime.simulation.story.history import History, Sent

__all__ = ["no_idle_run_with_mail", "no_message_lost", "order_kept", "taken_over"]

Place: TypeAlias = tuple[str, int]
"""An inbox and the number of an item in it."""


def no_message_lost(history: History) -> Iterator[str]:
    """Every accepted item has one outcome: it is taken once, it waits, it is one dead letter, or it
    is moved to the frame below.

    Every message with an accepted receipt is in an inbox, and only items of an inbox are taken.
    """
    yield from _unaccounted_sends(history)
    records = _records(history)
    letters = _dead_letters(history)
    ends = {own[-1].run_id: own[-1] for own in history.own.values() if own and _is_end(own[-1])}
    left: dict[str, list[InLane]] = defaultdict(list)
    for run_id, inbox in history.inbox.items():
        end = ends.get(run_id)
        for item in inbox:
            place = (run_id, item.seq)
            if _is_behind(history, *place):
                continue
            taken, told = records.pop(place, ()), letters[place]
            if len(taken) > 1:
                yield f"{_what(item)} was taken {len(taken)} times: {_ids(taken)}"
            elif told > 1:
                yield f"{_what(item)} has {told} dead letters"
            elif told and taken and not isinstance(taken[0], e.SessionDropped):
                yield f"{_what(item)} is a dead letter, but was taken ({taken[0].id})"
            elif end is not None and not (taken or told) and can_be_left_over(item):
                left[run_id].append(item)
    for run_id, items in left.items():
        yield from _without_outcome(history, ends[run_id], items)
    for (run_id, seq), taken in records.items():
        # What frames have taken before a fork is told of, though of the message nothing is left.
        is_copy = all(each.id in history.forked for each in taken)
        if seq and run_id in history.inbox and not (is_copy and _is_behind(history, run_id, seq)):
            yield f"run {run_id}: in {seq} was taken ({_ids(taken)}), but never came"


def order_kept(history: History) -> Iterator[str]:
    """The messages of one sender to one run are accepted and taken in the order they were sent.

    User commands that return the conversation overtake other messages, and what answers a prompt
    overtakes what was said before that was asked.  Before is where the store has it: the clock may
    be set meanwhile.  What was said in the same microsecond may be either: who comes back after a
    restart knows the times alone.  So may what was said while the prompt was on its way to a store
    that processes share, once another one has taken the run over.
    """
    last: dict[tuple[str, str, bool, bool], int] = {}
    asked: dict[str, tuple[e.SessionPrompt, int]] = {}
    came: dict[Place, int] = {}
    driven = taken_over(history)
    for place, event in enumerate(history.events):
        if isinstance(event, e.SessionPrompt):
            asked[event.prompt_id] = event, place
        elif isinstance(event, e.SessionPromptEnd):
            asked.pop(event.prompt_id, None)
        elif isinstance(event, SessionMessage):
            came[event.run_id, event.seq] = place
        if not isinstance(event, e.SessionTaken):
            continue
        for item in event.items:
            if not isinstance(item, SessionMessage) or not item.seq or command_of(item):
                continue
            at = came.get((item.run_id, item.seq), -1)
            until = item.at if event.root_run_id in driven else 0
            open_ = [x for x in asked.values() if x[0].root_run_id == event.root_run_id]
            sender = (item.run_id, item.source, is_from_user(item))
            is_answer = any(since <= at for _, since in open_)
            if not is_answer and any(x.at == item.at or x.at < until for x, _ in open_):
                is_answer = item.seq >= last.get((*sender, True), 0)
            before = last.get((*sender, is_answer), 0)
            if item.seq < before:
                yield f"{_what(item)} was taken by {event.id} after in {before}"
            last[*sender, is_answer] = item.seq
    yield from _order_of_runs(history)


def taken_over(history: History) -> Collection[str]:
    """The roots of the trees that one of several workers went on with after another.

    It knows the times of what was said and asked before, and not in which order the store has it.
    """
    drivers = {(root, lease) for root, _, lease in history.writers}
    counts = Counter(root for root, _ in drivers)
    return {root for root, count in counts.items() if count > 1}


def no_idle_run_with_mail(history: History) -> Iterator[str]:
    """When the world is at rest, no message waits for an idle run, and no user message waits for a
    conversation whose top frame is idle.

    Exempt are code agents, which read messages when they choose to, runs that were reported as not
    resumable, and messages to the id of a frame, which waits for the frame above it.
    """
    if not history.is_settled:
        return
    gone = {x.run_id for x in history.errors if x.during == "agent:restore"}
    for run_id, items in _waiting(history).items():
        thread = history.threads[run_id]
        if run_id in gone or thread.phase != "live":
            continue
        if not thread.in_session:
            yield f"run {run_id} is idle, but has mail: {_whats(items)}"
            continue
        top = run_id if thread.origin.frame else _top(history, run_id)
        if top == run_id or top in gone or history.threads[top].in_session:
            continue
        said = [x for x in items if isinstance(x, SessionMessage) and is_from_user(x)]
        if said:
            yield f"frame {top} is idle, but its conversation has mail: {_whats(said)}"


# ── what becomes of items ────────────────────────────────────────────────────────────────────


def _records(history: History) -> dict[Place, list[Event]]:
    """Where each item was taken, or dropped."""
    found: dict[Place, list[Event]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, e.SessionTaken | e.SessionDropped):
            for item in event.items:
                found[item.run_id, item.seq].append(event)
    return found


def _dead_letters(history: History) -> Counter[Place]:
    """How many letters there are of what was accepted; what was refused has no number."""
    messages = (letter.message for letter in history.dead_letters)
    return Counter((x.run_id, x.seq) for x in messages if x is not None and x.seq)


def _is_behind(history: History, run_id: str, seq: int) -> bool:
    """Whether an item had come before the base that its run goes on from: nothing waited then."""
    base = history.bases.get(run_id)
    return base is not None and seq <= base.inbox


def _without_outcome(history: History, end: Event, items: list[InLane]) -> Iterator[str]:
    """What an ended run has left, of which nobody knows anything."""
    after = history.events[history.events.index(end) + 1 :]
    moved = Counter(
        _said(x)
        for x in after
        if isinstance(x, SessionMessage) and x.lane == "in" and x.root_run_id == end.root_run_id
    )
    is_untold = _is_unheard(history, end)
    for item in items:
        if isinstance(item, SessionMessage) and moved[_said(item)]:
            moved[_said(item)] -= 1
        elif not is_untold:
            yield f"{_what(item)} was lost when its run ended ({end.id}): without a dead letter"


def _said(item: SessionMessage) -> tuple[int, str, str, str]:
    """What stays the same of a message that is moved."""
    return item.at, item.source, item.role, item.content


def _is_end(event: Event) -> bool:
    return isinstance(event, e.AgentComplete)


def _is_unheard(history: History, event: Event) -> bool:
    """Whether a process died when the event was written, and could tell nobody what it means; or
    whether that was told of the run before it was forked."""
    return event.id in history.forked or history.died_unheard(event)


def _unaccounted_sends(history: History) -> Iterator[str]:
    """Messages whose receipt says accepted, and which are in no inbox."""
    accepted: dict[tuple[str, str], list[Sent]] = defaultdict(list)
    for sent in history.sent:
        if sent.verb == "say" and sent.status == "accepted" and sent.run_id in history.inbox:
            accepted[sent.run_id, sent.text].append(sent)
    for (run_id, text), sends in accepted.items():
        came = sum(
            isinstance(x, SessionMessage) and x.content == text for x in history.inbox[run_id]
        )
        if came < len(sends):
            life = sends[-1].life
            yield (
                f"run {run_id}: {text!r} was accepted {len(sends)} times (life {life}), "
                f"but {came} came to its inbox"
            )


# ── order, rest ──────────────────────────────────────────────────────────────────────────────


def _order_of_runs(history: History) -> Iterator[str]:
    """What one run says to another, by the keys that it has on record."""
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, e.AgentMessage) and event.lane == "own" and event.key:
            said[event.run_id, event.to].append(event.key)
    for (speaker, to), keys in said.items():
        came = [
            x.key for x in history.inbox.get(to, ())
            if isinstance(x, SessionMessage) and x.source == speaker and x.key in keys
        ]  # fmt: skip
        if came != [key for key in keys if key in came]:
            yield f"run {to}: messages of run {speaker} came as {came}, not as {keys}"


def _waiting(history: History) -> Mapping[str, list[InLane]]:
    """What was not taken from the inboxes of runs that are not over."""
    records = _records(history)
    found: dict[str, list[InLane]] = {}
    for run_id, inbox in history.inbox.items():
        own = history.own.get(run_id, ())
        if not own or _is_end(own[-1]):
            continue
        items = [
            item for item in inbox
            if (run_id, item.seq) not in records and not _is_behind(history, run_id, item.seq)
        ]  # fmt: skip
        if items:
            found[run_id] = items
    return found


def _top(history: History, run_id: str) -> str:
    """Who has the conversation of a run."""
    while (call := history.threads[run_id].frame) is not None and call.child in history.threads:
        run_id = call.child
    return run_id


def _what(item: InLane) -> str:
    words = f" {item.content[:40]!r}" if isinstance(item, SessionMessage) else ""
    return f"run {item.run_id}: {item.type}{words} ({item.id})"


def _whats(items: Sequence[InLane]) -> str:
    return "; ".join(_what(item).partition(": ")[2] for item in items)


def _ids(events: list[Event]) -> str:
    return ", ".join(event.id for event in events)
