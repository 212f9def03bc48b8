"""Worlds from which trees go: a retention beside runs at work, and prunings between two lives.

    dozer     a code agent that hears of everything, without losses, and falls asleep over it
    leaver    ends at once, and leaves a sleeper behind, who is at work for minutes
    send_off  a tool of main's that does the same, while the conversation rests

What has gone was to go by a rule that is said here once more, as plainly as can be; what is kept
lacks nothing; and whoever reads behind is told of a hole, and of nothing else.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import anyio
from msgspec import Struct, field
from simulation.lasting import turns_went_rightly, undue_turns
from support.retention_model import SECOND, kept_by, micros, trees_of

from hubbub import AgentDefinition, Retention, RunContext, RunState, agent, tool
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.files import kept_contents
from hubbub.hub.ports import Clock, Ports, SystemIds
from hubbub.hub.virtual import LoopClock
from hubbub.runtime.removal.passes import seconds_between
from hubbub.runtime.simulation import ClockJump, Invariant, Open, Step, Wait, World
from hubbub.runtime.simulation.story.gone import gone_tree
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.retention.pruning import find_trees, prune_store

__all__ = ["Aging", "aging_steps", "drawn_retention", "prune_at_rest", "send_off"]

_WATCHED: Final = 600.0
_NAPS: Final = (0.2, 5.0, 30.0, 90.0)


def drawn_retention(random: Random) -> Retention:
    """Limits so narrow that trees go while a story is told."""
    limits: dict[str, Any] = {}
    for name, values in (
        ("ended", (40, 80, 200, 900)),
        ("silent", (50, 100, 300, 1_200)),
        ("keep_last", (1, 2, 4)),
        ("max_bytes", (8_000, 30_000, 120_000)),
    ):
        if random.random() < 0.45:
            limits[name] = random.choice(values)
    return Retention(**(limits or {"ended": 40, "silent": 80}))


def aging_steps(random: Random, spoken: Any) -> list[Step]:
    """What comes besides: somebody who reads behind, time that passes, and new trees."""
    steps: list[Step] = []
    sleepers = range(random.randint(1, 2))
    steps += [Open(agent="dozer", input=f"z{number}", user="cleo") for number in sleepers]
    for number in range(random.randint(2, 5)):
        agent = random.choice(("ask", "main", "shop", "ask"))
        program = [["file"], ["look"], ["say"]] if agent != "shop" else [["note"]]
        label = random.choice((f"g{number}", "same"))  # Which is what the file holds.
        steps.append(Open(agent=agent, input=spoken(label, program), user="ben"))
        steps.append(Wait(seconds=random.choice((0.5, 20.0, 60.0, 150.0))))
    steps.append(Open(agent="leaver", input="b0", user="ben"))
    steps.append(Open(agent="main", input=spoken("b1", [["send_off"], ["say"]]), user="ben"))
    random.shuffle(steps)
    return steps


# ── who reads behind ─────────────────────────────────────────────────────────────────────────


@agent("sleeper", on_restart="resume")
async def sleeper(input: str, ctx: RunContext) -> str:
    """Is at work, and says nothing of it."""
    await anyio.sleep(Random(input).choice((60.0, 150.0, 500.0)))
    return "slept"


@agent("leaver")
async def leaver(input: str, ctx: RunContext) -> str:
    """Leaves somebody behind."""
    ctx.spawn("sleeper", input, result="ignore")
    return "left"


@tool(idempotent=True)
async def send_off(text: str, state: RunState) -> str:
    """Have somebody sleep, and leave it at that."""
    state.spawn("sleeper", text, result="ignore")
    return f"sent off {text}"


class Listened(Struct):
    """What one stream was given."""

    after: str
    """Where it began: ``start``, a cursor, or, where that is empty, with what came then."""
    last: str = ""
    """The id of the event that the cursor is of."""
    at: int = 0
    """When it began."""
    events: list[Event] = field(default_factory=list)


class Aging(Struct):
    """What the sleepers of a world heard, and how it ended."""

    retention: Retention | None = None
    clock: Clock = field(default_factory=LoopClock)
    listened: list[Listened] = field(default_factory=list)
    pruned: list[tuple[Retention, int]] = field(default_factory=list)
    """Of each tree that was pruned at rest, in order, the limits and its place in ``gone``."""
    ended_at: int = 0
    """What the clock said when nothing happened any more, and passes had been made since."""

    def agents(self) -> tuple[AgentDefinition, ...]:
        """The one who reads behind, and those who are left at work."""

        @agent("dozer", on_restart="resume")
        async def dozer(input: str, ctx: RunContext) -> str:
            """Listens, sleeps over it, leaves, and comes back to where it was."""
            chance = Random(f"{input} {ctx.attempt}")
            after, last = chance.choice(("", "start")), ""
            with anyio.move_on_after(_WATCHED):
                while True:
                    listened = Listened(after, last, self.clock.now())
                    self.listened.append(listened)
                    how: dict[str, Any] = {"after": after} if after else {}
                    async with ctx.hub.subscribe("*", lossless=True, buffer=2, **how) as stream:
                        for _ in range(chance.randint(3, 80)):
                            event = await anext(stream)
                            listened.events.append(event)
                            last = event.id if event.lane else last
                            if chance.random() < 0.08:
                                await anyio.sleep(chance.choice(_NAPS))
                        after = stream.cursor
                    await anyio.sleep(chance.choice((0.0, *_NAPS)))
            return "slept well"

        return dozer, leaver, sleeper

    def invariants(self) -> tuple[Invariant, ...]:
        """What must hold of a history from which trees have gone."""

        def went_rightly(history: History) -> Iterator[str]:
            """What has gone was to go: it had ended, whole, and no limit kept it."""
            if not any(isinstance(fault, ClockJump) for fault in history.faults):
                yield from _wrongly_gone(history, self)

        def stays_rightly(history: History) -> Iterator[str]:
            """What no limit keeps has gone, when passes have been made since."""
            if self.ended_at and self.retention is not None:
                yield from _wrongly_kept(history, self.retention, self.ended_at)
                yield from undue_turns(history, self.retention, self.ended_at)

        def turns_went_right(history: History) -> Iterator[str]:
            """What has gone of runs that live was to go, and nothing of them is another one."""
            yield from turns_went_rightly(history, self.retention)

        def holes_told(history: History) -> Iterator[str]:
            """Who reads behind misses what has gone, is told so, and misses nothing else."""
            for listened in self.listened:
                yield from _untold_holes(history, listened)

        def ended_in_silence(history: History) -> Iterator[str]:
            """A tree that was ended for its silence was silent."""
            if not any(isinstance(fault, ClockJump) for fault in history.faults):
                yield from _disturbed(history, self.retention)

        def passes_sound(history: History) -> Iterator[str]:
            """No pass has failed, and no tree was kept for a problem."""
            for each in history.logged:
                if each.event in ("retention.failed", "retention.kept"):
                    yield str(each)

        return (
            went_rightly, turns_went_right, stays_rightly, holes_told, ended_in_silence,
            passes_sound,
        )  # fmt: skip

    async def rest(self, live: World) -> None:
        """Have passes be made over what is at rest, and look whether what is kept is whole."""
        if self.retention is not None:
            every = seconds_between(self.retention)
            await live.wait(2 * every + 1)
            self.ended_at = live.clock.now() - int((every + 1) * SECOND)
            await live.settle(60)  # A schedule may have begun something meanwhile.
        await contents_kept(live)


async def contents_kept(live: World) -> None:
    """What the events that are kept say of files is there."""
    history = await live.read()
    gone = {run_id for tree in history.gone for run_id in tree.run_ids}
    cut = {x.event.id for tree in history.gone if tree.cut is not None for x in tree.events}
    blobs = live.hub.ports.blobs
    for event in history.events:
        if event.run_id in gone or event.id in cut:
            continue
        for ref in kept_contents(event):
            found = await blobs.get(event.root_run_id, ref.digest)
            assert found is not None, f"run {event.run_id}: {event.id} lacks {ref.digest}"


# ── at rest ──────────────────────────────────────────────────────────────────────────────────


async def prune_at_rest(live: World, aging: Aging, retention: Retention, *, kill: bool) -> None:
    """Have the process leave, or die, and prune its store before the next one begins."""
    if kill:
        await live.die()
        if (dead := live._processes.process) is not None:
            await dead.wait_ended()
    else:
        await live.end()
    history, clock = live.history, live.clock
    store = f"sqlite:{live._processes._folder}"
    ports = Ports(clock=clock, ids=SystemIds(len(history.lives)))
    with open_reader(store) as reader:
        found = find_trees(reader, retention, clock.now()).trees
        before = [
            gone_tree(reader, tree.run_ids, life=live.lives - 1, at=clock.now()) for tree in found
        ]
    pruned = prune_store(store, retention, ports=ports)
    assert not pruned.problems, pruned.problems
    assert [x.root_run_id for x in pruned.trees] == [x.root_run_id for x in before]
    aging.pruned += [(retention, len(history.gone) + at) for at in range(len(before))]
    history.gone += before
    await live._processes.living()  # A message that was on its way may have begun it already.


# ── what went, and what stays ────────────────────────────────────────────────────────────────


def _wrongly_gone(history: History, aging: Aging) -> Iterator[str]:
    by_place = dict(zip(history.positions, history.events, strict=True)) if history.gone else {}
    for tree in history.gone:  # Those whose ids others have now, too.
        by_place.update((x.position, x.event) for x in tree.events)
    pruned = {number: retention for retention, number in aging.pruned}
    gone: set[int] = set()
    for number, tree in enumerate(history.gone):
        if tree.cut is not None:
            gone.update(x.position for x in tree.events)
            continue
        there = {x: by_place[x] for x in sorted(by_place) if x <= tree.tip and x not in gone}
        trees, root = trees_of([*there.values()]), tree.root_run_id
        size = sum(len(encode_event(x)) for x in there.values())
        found, retention = trees[root], pruned.get(number, aging.retention)
        gone.update(x.position for x in tree.events)
        if retention is None:
            yield f"run {root} has gone, and nobody wanted that"
        elif not found.is_over:
            yield f"run {root} has gone, and in its tree {found.runs - found.ended} live"
        elif found.runs != tree.run_ids:
            yield f"run {root} has gone without {found.runs - tree.run_ids}"
        elif (last := there[max(there)]).run_id in found.runs and last.lane != "hub":
            yield f"run {root} has gone, and had the last event of the store"
        elif why := kept_by(
            root, trees, retention, tree.at, size, is_shared=history.workers is not None
        ):
            yield f"run {root} has gone, and {why}"


def _wrongly_kept(history: History, retention: Retention, at: int) -> Iterator[str]:
    gone = {run_id for tree in history.gone for run_id in tree.run_ids}
    cut = {x.event.id for tree in history.gone if tree.cut is not None for x in tree.events}
    there = [x for x in history.events if x.run_id not in gone and x.at <= at and x.id not in cut]
    if not retention.removes or not there:
        return
    later = {x.root_run_id for x in history.events if x.at > at}
    trees, last = trees_of(there), there[-1]
    size = sum(len(encode_event(x)) for x in there)
    for root, tree in trees.items():
        if not tree.is_over or root in later or last.root_run_id == root:
            continue
        is_shared = history.workers is not None
        if not kept_by(root, trees, retention, at, size, is_shared=is_shared):
            yield f"run {root} is kept, and nothing keeps it"


def _disturbed(history: History, retention: Retention | None) -> Iterator[str]:
    last: dict[str, int] = {}
    asked: dict[str, dict[str, str]] = {}
    waiting: dict[str, Counter[str]] = {}
    busy: dict[str, set[str]] = {}
    lent: Counter[str] = Counter()
    """Those that wait for frames, whatever is said to them meanwhile."""
    for event in history.events:
        root = event.root_run_id
        if event.lane == "hub":
            continue
        waits, open_ = waiting.setdefault(root, Counter()), asked.setdefault(root, {})
        if _calls_silent(event):
            assert retention is not None and retention.silent is not None
            if last[root] > event.at - micros(retention.silent):
                heard = f"but it was heard of at {last[root]}"
                yield f"run {root}: {event.id} calls it silent at {event.at}, {heard}"
            if count := sum(waits.values()):
                yield f"run {root}: {event.id} calls it silent, but {count} items wait"
            if found := [*open_, *(busy.get(root, set()) - {*(+lent)})]:
                yield f"run {root}: {event.id} calls it silent, but {found} are open or at work"
        last[root] = max(last.get(root, 0), event.at)
        if isinstance(event, e.SessionPush):
            lent[event.run_id] += 1
        elif isinstance(event, e.SessionPop):
            lent[event.run_id] -= 1
        # Also at rest a fork is handed to another agent, and a late reply is dropped.
        if event.lane == "own" and not isinstance(event, e.AgentHandoff | e.SessionDropped):
            is_resting = isinstance(event, e.AgentPark | e.AgentComplete | e.SessionPush)
            at_work = busy.setdefault(root, set())
            (at_work.discard if is_resting else at_work.add)(event.run_id)
        base = history.bases.get(event.run_id)
        if base is not None and event.id == base.id:
            del waits[event.run_id]  # What had come before was taken by then.
        if event.lane == "in":
            waits[event.run_id] += 1
        elif isinstance(event, e.SessionTaken | e.SessionDropped):
            waits.subtract(item.run_id for item in event.items if item.seq)
        elif isinstance(event, e.SessionPrompt):
            open_[event.prompt_id] = event.run_id
        elif isinstance(event, e.SessionPromptEnd):
            open_.pop(event.prompt_id, None)
        elif isinstance(event, e.AgentComplete):
            del waits[event.run_id]


def _calls_silent(event: Event) -> bool:
    is_end = event.lane == "in" and isinstance(event, e.SessionTerminate)
    return is_end and event.run_id == event.root_run_id and event.reason.startswith("silent for")


# ── what readers were told ───────────────────────────────────────────────────────────────────


def _untold_holes(history: History, listened: Listened) -> Iterator[str]:
    places = {event.id: place for place, event in enumerate(history.events)}
    went = {x.event.id: tree.at for tree in history.gone for x in tree.events}
    told = {x.id for x in listened.events}
    last = places.get(listened.last) if listened.after not in ("", "start") else None
    if listened.after == "start":
        last = -1
    gaps: list[e.HubGap] = []
    has_times = not any(isinstance(fault, ClockJump) for fault in history.faults)
    for event in listened.events:
        if isinstance(event, e.HubGap):
            gaps.append(event)
            if event.reason == "removed":
                rest = history.events[(-1 if last is None else last) + 1 :]
                if last is not None and not any(x.id in went and x.id not in told for x in rest):
                    yield f"a reader was told of a hole ({event.at}) where nothing has gone"
            elif event.reason == "unknown cursor":
                if listened.last not in went:
                    yield f"a reader's cursor at {listened.last} was unknown, which is kept"
                last = -1  # It begins anew.
            elif event.dropped or event.reason != "closed":
                yield f"a reader that loses nothing was told of a gap: {event.reason}"
            continue
        place = places.get(event.id)
        if not event.lane or place is None:
            continue
        if last is not None:
            if place <= last:
                yield f"a reader was told of {event.id} after {history.events[last].id}"
            for missing in history.events[last + 1 : place]:
                if missing.id not in went:
                    yield f"a reader has missed {missing.id} before {event.id}, which is kept"
                    break
                # Else it was not there for it.
                is_since = has_times and went[missing.id] > listened.at
                if is_since and not any(gap.at >= went[missing.id] for gap in gaps):
                    yield f"a reader was not told of a hole with {missing.id} before {event.id}"
                    break
        last = place
