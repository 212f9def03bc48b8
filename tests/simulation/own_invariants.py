"""What must hold of the project's own world, besides what must hold of every world."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from simulation.forking import forked_from, originals
from simulation.raisers import RAISED, THROWING

from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.descriptors import Descriptor, SubagentDescriptor
from hubbub.runtime.simulation import ClockJump
from hubbub.runtime.simulation.story.history import History

__all__ = [
    "CRON", "LAST_QUESTION", "SECRET", "accepted_once", "ended_below", "fired_once", "guilty_alone",
    "heard_program", "idle_children_shown_idle", "one_agent_each", "prompts_end_once",
    "raised_alone",
    "replies_have_outcomes", "secrets_kept", "spawned_results_told",
    "ticks_accounted_for", "untold_gaps",
]  # fmt: skip

SECRET: Final = "hush-hush-5b1e"
"""The value of a variable: it must appear nowhere."""

LAST_QUESTION: Final = "last"
"""The label of what is said when everything is at rest."""


CRON: Final = "tick"
"""The cron of the world, each minute."""

_MINUTE: Final = 60_000_000

_CLOSING: Final = (e.SessionTerminate, e.SessionClose, e.AgentComplete)


def heard_program(request: ModelRequest) -> tuple[int, str]:
    """Where the last program of a request stands, and what it is."""
    for at in range(len(request.messages) - 1, -1, -1):
        message = request.messages[at]
        if isinstance(message, UserMessage) and " [" in message.content:
            return at, message.content
    return 0, ""


def untold_gaps(history: History, told: Sequence[Event]) -> Iterator[str]:
    """What a listener to everything has missed without being told so (H-05)."""
    places = {event.id: place for place, event in enumerate(history.events)}
    last: int | None = None
    for event in told:
        if isinstance(event, e.HubGap):
            last = None
        elif event.lane and event.id in places:
            place = places[event.id]
            if last is not None and place != last + 1:
                missing = history.events[last + 1]
                yield f"a listener was not told that it missed {missing.type} ({missing.id})"
            last = place


def accepted_once(history: History) -> Iterator[str]:
    """What is sent again under its key is in the inbox once (H-09), also where it has gone."""
    olds = forked_from(history) if history.bases else {}
    for run_id, inbox in history.inbox.items():
        seen: dict[tuple[str, str], str] = {}
        for item in (*_gone_before(history, run_id, olds), *inbox):
            if isinstance(item, e.SessionMessage) and item.key:
                first = seen.setdefault((item.source, item.key), item.id)
                if first != item.id:
                    yield f"run {run_id}: {item.id} has the key {item.key!r} of {first}"


def _gone_before(history: History, run_id: str, olds: Mapping[str, str]) -> Iterator[Event]:
    """What had come to the run that one is a fork of, and had gone before its base."""
    base, old = history.bases.get(run_id), olds.get(run_id)
    if base is not None and old is not None:
        there = {item.seq for item in history.inbox[run_id]}
        items = (*_gone_before(history, old, olds), *history.inbox[old])
        yield from (x for x in items if x.seq <= base.inbox and x.seq not in there)


def fired_once(history: History) -> Iterator[str]:
    """A tick that a schedule has fired is never fired again, nor passed over (P-07)."""
    fired: dict[tuple[str, int], str] = {}
    for event in history.events:
        if not isinstance(event, e.ScheduleFire | e.ScheduleSkip):
            continue
        tick = (event.schedule, event.tick)
        if tick in fired:
            yield f"{event.schedule}: {event.type} ({event.id}) of a tick fired by {fired[tick]}"
        elif isinstance(event, e.ScheduleFire):
            fired[tick] = event.id


def ticks_accounted_for(history: History) -> Iterator[str]:
    """Each tick of a cron is fired or passed over, unless somebody sets the clock (P-07)."""
    if any(isinstance(fault, ClockJump) for fault in history.faults):
        return
    kinds = e.ScheduleFire | e.ScheduleSkip
    found = [x for x in history.events if isinstance(x, kinds) and x.schedule == CRON]
    counts = [x.count if isinstance(x, e.ScheduleSkip) else 1 for x in found]
    if not found:
        return
    first = min(x.tick - (count - 1) * _MINUTE for x, count in zip(found, counts, strict=True))
    come = (max(x.tick for x in found) - first) // _MINUTE + 1
    if come != sum(counts):
        yield f"{CRON}: of {come} ticks {sum(counts)} were fired or passed over"


def secrets_kept(history: History) -> Iterator[str]:
    """The value of a variable stands in no event that is kept or told (H-19)."""
    for event in (*history.events, *(x.event for x in history.heard)):
        if isinstance(event, e.SessionOpen) and any(x.value.reveal() for x in event.variables):
            yield f"run {event.run_id}: {event.type} ({event.id}) still holds a secret"
        elif isinstance(event, e.AgentToolComplete) and SECRET in event.output:
            yield f"run {event.run_id}: {event.id} tells a secret"


def one_agent_each(history: History) -> Iterator[str]:
    """A user, a cron task and the heartbeat have one live agent at the most (P-06)."""
    live: dict[Descriptor, str] = {}
    for event in history.events:
        info = history.runs.get(event.run_id)
        who = info.descriptor if info is not None else None
        if who is None or isinstance(who, SubagentDescriptor):
            continue
        if isinstance(event, e.SessionOpen) and event.lane == "in":
            if live.setdefault(who, event.run_id) != event.run_id:
                yield f"run {event.run_id} is a second agent of {who}, beside {live[who]}"
        elif isinstance(event, _CLOSING) and live.get(who) == event.run_id:
            del live[who]


def ended_below(history: History) -> Iterator[str]:
    """Whoever is below a run that was terminated has ended (T-05)."""
    if not history.is_settled:
        return
    below: dict[str, list[str]] = {}
    for run_id, info in history.runs.items():
        below.setdefault(info.parent_run_id or "", []).append(run_id)
    for run_id, own in history.own.items():
        if not own or not isinstance(own[-1], e.AgentComplete) or own[-1].outcome != "terminated":
            continue
        for child in below.get(run_id, ()):
            if history.runs[child].status != "ended":
                yield f"run {run_id} was terminated ({own[-1].id}), but its child {child} lives"


def prompts_end_once(history: History) -> Iterator[str]:
    """What a run asks ends once, and with the run at the latest (H-10)."""
    for run_id, own in history.own.items():
        open_: set[str] = set()
        for event in own:
            if isinstance(event, e.SessionPrompt):
                if event.prompt_id in open_:
                    yield f"run {run_id}: {event.id} opens {event.prompt_id} again"
                open_.add(event.prompt_id)
            elif isinstance(event, e.SessionPromptEnd):
                if event.prompt_id not in open_ or not event.reason:
                    yield f"run {run_id}: {event.id} ends {event.prompt_id}, which is not open"
                open_.discard(event.prompt_id)
        if open_ and own and isinstance(own[-1], e.AgentComplete):
            yield f"run {run_id} has ended, but not what it asked: {', '.join(sorted(open_))}"


def replies_have_outcomes(history: History) -> Iterator[str]:
    """An accepted reply answers its prompt, or one letter says that it came too late (G-09)."""
    if not history.is_settled:
        return
    told = Counter(  # Of one that was refused, too, there may be a letter: it has no number.
        (x.message.prompt_id, x.message.seq)
        for x in history.dead_letters
        if isinstance(x.message, e.SessionReply)
    )
    is_untold = any(life.end in ("crashed", "killed") for life in history.lives)
    for run_id, inbox in history.inbox.items():
        own = history.own.get(run_id, ())
        ends = [x for x in own if isinstance(x, e.SessionPromptEnd) and _is_by_reply(x)]
        items = [item for x in own if isinstance(x, e.SessionTaken) for item in x.items]
        taken = {item.seq for item in items if item.run_id == run_id}  # A frame takes others, too.
        for item in inbox:
            if not isinstance(item, e.SessionReply):
                continue
            answered = sum(x.prompt_id == item.prompt_id for x in ends) * (item.seq in taken)
            letters = told[item.prompt_id, item.seq]
            if answered + letters != 1 and not (is_untold and answered + letters == 0):
                yield f"the reply {item.id}: used {answered} times, told of {letters} times"


def _is_by_reply(end: e.SessionPromptEnd) -> bool:
    return end.reason.partition(":")[0] in ("answered", "approved", "denied")


def idle_children_shown_idle(history: History) -> Iterator[str]:
    """Who asks when all is at rest is shown no child of before as running, unless what was said
    woke it: it may be the answer to what the child asked people (C-14)."""
    before: set[str] = set()
    woken: set[str] = set()
    has_begun = False
    for event in history.events:
        has_begun |= isinstance(event, e.SessionMessage) and event.content.startswith(
            f"{LAST_QUESTION} "
        )
        (woken if has_begun else before).add(event.run_id)
    for asked in history.requests:
        if not heard_program(asked.request)[1].startswith(f"{LAST_QUESTION} "):
            continue
        for line in "\n".join(asked.request.system_notes).splitlines():
            if line.endswith(": running") and line[2:].partition(":")[0] in before - woken:
                yield f"run {asked.run_id} is shown {line[2:]}, and nothing runs"


def guilty_alone(history: History) -> Iterator[str]:
    """Where processes die of nothing but what ``die`` does, no other run pays for it (P-10)."""
    deadly = {
        run_id
        for run_id, own in history.own.items()
        if any(isinstance(x, e.AgentToolStart) and x.name == "die" for x in own)
    }
    if deadly & originals(history).keys():  # One that is tried alone is taken for the cause then.
        return
    for run_id, own in history.own.items():
        failed = [x for x in own if isinstance(x, e.AgentFailed) and x.error_type == "CrashLoop"]
        if failed and deadly and run_id not in deadly:
            yield f"run {run_id}: {failed[0].id} pays for another one"


def spawned_results_told(history: History) -> Iterator[str]:
    """The result of a child that a tool has started, and not asked for, is told once (G-10)."""
    if not history.is_settled:
        return
    for run_id, own in history.own.items():
        if any(isinstance(x, e.AgentComplete | e.SessionReset) for x in own):
            continue
        called = {x.call_id for x in own if isinstance(x, e.AgentToolStart) and x.name in _LEAVING}
        answered = {x.call_id for x in own if isinstance(x, e.AgentToolComplete)}
        for child in own:
            if not isinstance(child, e.AgentChild) or child.call_id not in called & answered:
                continue
            ended = history.own.get(child.child_run_id, ())
            if not any(isinstance(x, e.SessionEnd | e.AgentComplete) for x in ended):
                continue
            words = [getattr(x, "content", "") for x in history.threads[run_id].transcript]
            shown = f"Subagent (reference: {child.child_run_id}) has"
            if (told := sum(x.startswith(shown) for x in words)) != 1:
                yield f"run {run_id} was told {told} times what {child.child_run_id} came to"


_LEAVING: Final = ("hire", "leave")


def raised_alone(history: History) -> Iterator[str]:
    """What users' code raises affects what raised it, which has its outcome, alone (G-02)."""
    # Who has heard it: a frame hears what is said to its conversation.
    guilty = {x.run_id for x in history.requests if '["break"' in heard_program(x.request)[1]}
    guilty |= {run_id for run_id, info in history.runs.items() if info.agent == "thrower"}
    for new, old in forked_from(history).items():  # In their order: forks of forks, too.
        guilty |= {new} if old in guilty else set()
    for run_id, own in history.own.items():
        for event in own:
            if isinstance(event, e.AgentToolComplete) and event.name in THROWING:
                is_struck = any(each[0] == "tool" for each in history.injected)
                if event.ran and not event.is_error:
                    yield f"run {run_id}: {event.id} is no error, but its tool raised"
                elif event.output.startswith("timed out") and not is_struck:
                    yield f"run {run_id}: {event.id} came of no answer, but its tool raised"
            elif run_id not in guilty and any(x in getattr(event, "reason", "") for x in _NAMES):
                yield f"run {run_id}: {event.id} tells of what somebody else raised"


_NAMES: Final = frozenset(type(make()).__name__ for make in RAISED.values())
