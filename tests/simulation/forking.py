"""Worlds in which runs are forked: from any record of any run, and forks of forks.

A fork begins as the old run was at that record, and from there on both go on by themselves: what
must hold of any run holds of both, and neither is told anything of the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from msgspec import Struct, field, json

from hubbub.hub import events as e
from hubbub.hub.errors import UnknownRun
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event
from hubbub.runtime.simulation import World
from hubbub.runtime.simulation.story.history import ForkMade, History

__all__ = [
    "ForkDrawn", "Forking", "drawn_forks", "forked_from", "forks_invariants", "last_forks",
    "originals",
]  # fmt: skip

_OPENINGS: Final = (e.SessionOpen, e.AgentStart, e.SessionTaken)
"""What says how a root was opened, which a fork does not take over."""

_OTHERS: Final = ("main", "lead", "clerk", "ann")


class ForkDrawn(Struct, frozen=True, kw_only=True):
    """After a step somebody forks a run, or says something to a fork."""

    step: int
    what: str
    """``fork``, or what is done to a fork: ``say``, ``resend``, ``interrupt``, ``terminate``,
    ``close``, ``approve``."""
    which: int
    """Of all runs that were opened or forked, or of all forks."""
    part: float = 0.0
    """How far in the old run's records; beyond 1 there is none, below 0 it is as it is now."""
    change: str = ""
    text: str = ""


def drawn_forks(random: Random, steps: int, program: Any, spoken: Any) -> tuple[ForkDrawn, ...]:
    """What is forked in a story of so many steps, and what comes of it."""
    found: list[ForkDrawn] = []
    for number in range(random.randint(1, 5)):
        at = random.randrange(steps)
        found.append(_fork(random, at, number, program, spoken))
        for part in range(random.randint(0, 4)):
            if random.random() < 0.2:
                found.append(_fork(random, random.randrange(at, steps), number, program, spoken))
                continue
            what = random.choice(
                ("say", "say", "say", "resend", "resend", "interrupt", "close", "terminate",
                 "approve", "approve"),
            )  # fmt: skip
            found.append(
                ForkDrawn(
                    step=random.randrange(at, steps), what=what, which=random.randrange(5),
                    text=spoken(f"fs{number}{part}", program(random, "main")),
                )
            )  # fmt: skip
    return tuple(sorted(found, key=lambda each: each.step))


def last_forks(steps: int) -> tuple[ForkDrawn, ...]:
    """Forks of what old turns have gone of by then, which are told again what that was told."""
    return tuple(
        ForkDrawn(step=steps - 1, what=what, which=which, part=-1.0)
        for number in range(3)
        for what, which in (("fork", 2 * number), ("resend", -1))
    )


def _fork(random: Random, step: int, number: int, program: Any, spoken: Any) -> ForkDrawn:
    part = random.choice((-1.0, -1.0, random.random(), random.random(), random.random(), 1.0))
    return ForkDrawn(
        step=step, what="fork", which=random.randrange(12),
        part=2.0 if random.random() < 0.04 else part,
        change=random.choice(("", "", "message", "message", "agent", "prompt", "model")),
        text=spoken(f"f{number}", program(random, "main")),
    )  # fmt: skip


class Forking(Struct):
    """The forks of a world, in order."""

    made: list[str] = field(default_factory=list)
    has_turns: bool = False
    """Whether old turns go: then what was said first is said again, too."""

    async def do(self, live: World, drawn: ForkDrawn, opened: Sequence[str]) -> None:
        """Do what was drawn."""
        if drawn.what == "fork":
            runs = [*opened, *self.made]
            if runs:
                await self._fork(live, drawn, runs[-1 - drawn.which % len(runs)])
            return
        if not self.made:
            return
        fork = self.made[drawn.which % len(self.made)]
        match drawn.what:
            case "say":
                await live.say(fork, drawn.text, user="dora")
            case "resend":
                await self._resend(live, fork)
            case "interrupt":
                await live.interrupt(fork, "enough")
            case "terminate":
                await live.terminate(fork)
            case "close":
                await live.close(fork)
            case "approve":
                if prompt_id := live.open_prompt(fork, "approval"):
                    await live.approve(prompt_id, user="dora")

    async def _fork(self, live: World, drawn: ForkDrawn, run_id: str) -> None:
        seq = None
        if drawn.part >= 0:
            try:
                state = await live._processes.do(lambda rt: rt.state_at(run_id), None)
            except UnknownRun:
                return
            last = 0 if state is None else state.seq
            seq = round(drawn.part * last) + (drawn.part > 1)
        changes: dict[str, Any] = {}
        if drawn.change == "message":
            changes["message"] = drawn.text
        elif drawn.change == "agent":
            changes["agent"] = _OTHERS[drawn.which % len(_OTHERS)]
        elif drawn.change == "prompt":
            changes["prompt"] = "You do as you are told."
        elif drawn.change == "model":
            changes["model"] = "other"
        if fork := await live.fork(run_id, seq, user="dora", **changes):
            self.made.append(fork)

    async def _resend(self, live: World, fork: str) -> None:
        """Say again under its key what was said to the run that was forked."""
        of = next(x.of_run_id for x in live.history.forks if x.run_id == fork)
        said = [x for x in live.history.sent if x.verb == "say" and x.key and x.run_id == of]
        for each in (*said[:1], *said[-1:]) if self.has_turns else said[-2:]:
            await live.say(fork, each.text, user=each.user, key=each.key)


# ── which run is a fork of which ─────────────────────────────────────────────────────────────


def originals(history: History) -> Mapping[str, str]:
    """The runs of forks, also those below their roots, with the first runs that they go on from:
    of a fork of a fork with those that the first fork was made of."""
    found: dict[str, str] = {}
    for made in _made(history):
        found.update((new, found.get(old, old)) for old, new in _pairs(history, made).items())
    return found


def forked_from(history: History) -> Mapping[str, str]:
    """The runs of forks, also those below their roots, with the runs that they are forks of; in the
    order in which they were made."""
    return {new: old for made in _made(history) for old, new in _pairs(history, made).items()}


def _made(history: History) -> Iterator[ForkMade]:
    for made in history.forks:
        if made.run_id in history.runs and made.of_run_id in history.runs:
            yield made


def _openings(history: History, root: str) -> list[Event]:
    return [
        event
        for event in history.events
        if isinstance(event, e.SessionOpen) and event.lane == "in" and event.root_run_id == root
    ]


def _pairs(history: History, made: ForkMade) -> dict[str, str]:
    """The runs of the old tree at the cut, each with the one in its place: opened as it was."""
    old, new = _openings(history, made.of_run_id), _openings(history, made.run_id)
    found: dict[str, str] = {}
    for one, other in zip(old, new, strict=False):
        if (one.at, one.agent) != (other.at, other.agent) and found:
            break
        found[one.run_id] = other.run_id
    return found


def _cut(
    history: History, made: ForkMade, names: Mapping[str, str]
) -> Iterator[tuple[str, str, int]]:
    """How many events of each lane of the old tree there were at the record, at the least."""
    own = history.own[made.of_run_id]
    by_seq = {x.seq: x.id for x in own}  # Of a fork the first ones may have gone before.
    if made.seq is None:
        ended = next((x.seq for x in own if _ends(x)), max(by_seq, default=0) + 1) - 1
        is_over = any(
            isinstance(x, e.SessionClose | e.SessionTerminate)
            for x in history.events[: made.tip]
            if x.run_id == made.of_run_id
        )
        if is_over:
            ended = 0
        mark = by_seq.get(ended, "")
        if mark and not is_over:
            # What there was when it was asked for, at the least.
            places = {x.id: place for place, x in enumerate(history.events)}
            last = [x for x in own if x.seq <= ended and places[x.id] < made.tip]
            mark = last[-1].id if last else ""
    else:
        mark = by_seq.get(made.seq, "")
    counts = {(run_id, lane): 0 for run_id in names for lane in ("own", "in")}
    for event in history.events if mark else ():
        if (event.run_id, event.lane) in counts:
            counts[event.run_id, event.lane] += 1
        if event.id == mark:
            break
    for (run_id, lane), count in counts.items():
        yield run_id, lane, count


def _ends(event: Event) -> bool:
    return isinstance(event, e.AgentComplete | e.AgentFailed)


# ── what must hold ───────────────────────────────────────────────────────────────────────────


def begins_as_it_was(history: History) -> Iterator[str]:
    """A fork has the records of the old tree up to the one it was made of, and their messages; but
    for those that had gone."""
    gone = {x.event.id for each in history.gone if each.cut is not None for x in each.events}
    for made in _made(history):
        names = _pairs(history, made)
        for old, lane, count in _cut(history, made, names):
            new = names[old]
            lanes = history.own if lane == "own" else history.inbox
            ours, theirs = lanes.get(new, ()), lanes.get(old, ())[:count]
            there = {x.seq for x in ours}
            theirs = [x for x in theirs if x.seq in there or x.id not in gone]
            ours = ours[: len(theirs)]
            if len(ours) < len(theirs):
                yield f"run {new} has {len(ours)} events in {lane}, run {old} had {len(theirs)}"
            for one, other in zip(ours, theirs, strict=False):
                if _facts(one, new == made.run_id, {}) != _facts(other, new == made.run_id, names):
                    yield f"run {new}: {one.id} is not what {other.id} was"
                    break


def _facts(event: Event, is_root: bool, names: Mapping[str, str]) -> Any:
    if is_root and isinstance(event, _OPENINGS):
        return event.type, event.seq, event.at, event.lane
    text = encode_event(event).decode()
    for old, new in names.items():
        text = text.replace(old, new)
    facts = json.decode(text)
    if is_root and isinstance(event, e.AgentBase):  # It says, too, how its run was opened.
        facts["thread"].pop("origin")
        facts["thread"].pop("once", None)
    return facts


def apart(history: History) -> Iterator[str]:
    """Nothing that is of a fork's tree names a run of the old one, nor the other way round."""
    trees: dict[str, set[str]] = {}
    for run_id, info in history.runs.items():
        trees.setdefault(info.root_run_id, set()).add(run_id)
    for made in _made(history):
        others = {made.run_id: trees[made.of_run_id], made.of_run_id: trees[made.run_id]}
        for event in history.events:
            if event.root_run_id in others and event.lane != "hub":
                text = encode_event(event).decode()
                for other in others[event.root_run_id]:
                    if other in text:
                        yield f"run {event.run_id}: {event.id} ({event.type}) names run {other}"


def forks_whole(history: History) -> Iterator[str]:
    """Who was told that a fork is there finds it; who was refused finds none."""
    for made in history.forks:
        is_there = made.run_id in history.runs
        if made.status == "accepted" and not is_there:
            yield f"the fork {made.run_id} of {made.of_run_id} is not there"
        if made.status == "rejected" and is_there:
            yield f"the fork {made.run_id} is there, though it was refused: {made.reason}"


forks_invariants: Final = (begins_as_it_was, apart, forks_whole)
