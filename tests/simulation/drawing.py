"""What happens in a world of ``own_world``, drawn by its seed: users, programs and faults.

    drawn(seed) ─► Drawn: steps, faults, store, the world's setup ─► play ─► History

The same seed draws the same, forever as long as nothing in here changes.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, get_args

from msgspec import Struct, structs
from simulation.aging import aging_steps, drawn_retention, prune_at_rest
from simulation.approved import answer_late, approval_steps
from simulation.asking import drawn_asking, wish
from simulation.at_once import Moment, drawn_moments, in_one_moment
from simulation.beside import beside_steps
from simulation.crowded import crowded_steps
from simulation.forking import ForkDrawn, drawn_forks, last_forks
from simulation.hasty import hasty_steps
from simulation.hooked_users import hooked_steps, provide
from simulation.kept import check_store
from simulation.lasting import kept_turns_of, lasting_steps
from simulation.limited import Raised, raised, raises, tree_limits
from simulation.own_invariants import LAST_QUESTION
from simulation.own_world import CHILDREN, LASTING, NO_TEXT, TALKERS, OwnWorld, spoken
from simulation.raisers import RAISED
from simulation.several import several_steps

from hubbub import Retention
from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionOpen
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    Descriptor,
    HeartbeatDescriptor,
    descriptor_of_key,
)
from hubbub.runtime.schedules import Misfire
from hubbub.runtime.simulation import (
    ChannelFault,
    ClockJump,
    Close,
    Crash,
    Interrupt,
    ListenerFault,
    ModelFault,
    Open,
    Restart,
    Say,
    Step,
    Terminate,
    ToolFault,
    Wait,
    World,
    WorldFault,
    simulate,
)
from hubbub.runtime.simulation.story.history import History, StoreName
from hubbub.runtime.simulation.world.users import play

__all__ = ["Drawn", "drawn", "lived"]

USERS: Final = ("ann", "ben", "cleo")
ROOTS: Final = ("main",) * 8 + ("lead", "lead", "clerk", "shop", "shop", "ask", "watcher")
STORES: Final[tuple[StoreName, ...]] = ("memory",) * 5 + ("late",) * 4 + ("sqlite",)
DEPTH: Final = 3
SETTLE: Final = 4_000.0
"""Seconds: a pause takes an hour at the most, and schedules go on meanwhile."""

MAX_ROUNDS: Final = 3_000
"""Rounds of the scheduler in one moment; a world that makes more has stopped its clock."""

SHARED_ROUNDS: Final = 30_000
"""Of several workers: they beat all the time."""

_BEGINS: Final = ("open", "fork")
_WORDS: Final = ("/back", "stop", "hello")


LONGEST_MISSED: Final = 2 * 3600
"""Seconds in which a cron may miss a tick each minute, and fire it later."""


class Drawn(Struct, frozen=True, kw_only=True):
    """A world that may be: what its users do, and what goes wrong."""

    seed: int
    steps: tuple[Step, ...]
    whispers: tuple[tuple[int, int], ...] = ()
    """After which steps somebody writes to a child, and to which one."""
    named: tuple[tuple[int, Descriptor], ...] = ()
    """After which steps somebody names an agent by what it stands for."""
    hostile: tuple[int, ...] = ()
    """After which steps somebody sends what is no text, and has models and tools say it."""
    faults: tuple[WorldFault, ...] = ()
    store: StoreName = "memory"
    workers: int | None = None
    has_schedules: bool = False
    misfire: Misfire = "latest"
    has_more: bool = False
    has_raisers: bool = False
    provided: tuple[int, ...] = ()
    """After which steps somebody provides the variables that are wanted."""
    has_hooks: bool = False
    late: tuple[int, ...] = ()
    """After which steps somebody answers what was asked before, once more."""
    has_approvals: bool = False
    wishes: tuple[tuple[int, int], ...] = ()
    """After which steps somebody wishes for a summary, and of which run."""
    has_asking: bool = False
    moments: tuple[Moment, ...] = ()
    """What people do at once."""
    has_crowd: bool = False
    has_several: bool = False
    options: dict[str, Any] = {}
    limits_of_turns: int | None = None
    """What draws the limits of its agents' turns, and of their runs."""
    raised: tuple[Raised, ...] = ()
    is_aging: bool = False
    has_turns: bool = False
    """Whether there is a long conversation, whose old turns go."""
    prunings: tuple[tuple[int, Retention, bool], ...] = ()
    """After which steps the process leaves, or is killed, and its store is pruned, by what."""
    forks: tuple[ForkDrawn, ...] = ()
    has_beside: bool = False


def drawn(seed: int) -> Drawn:
    """The world of a seed."""
    random = Random(f"own world {seed}")  # A text: the same in every Python.
    options: dict[str, Any] = {}
    if random.random() < 0.15:
        options["max_live"] = random.randint(1, 4)
    if random.random() < 0.1:
        options |= {"max_depth": 2, "max_descendants": 4}
    steps, faults = _steps(random), _faults(random)
    has_schedules = random.random() < 0.25
    if has_schedules:  # Time must pass for them, and processes die at it.
        steps = tuple(each for step in steps for each in (step, Wait(seconds=40)))
        faults = (*faults, *_crashes(random, 12, random.randint(4, 9)))
    world = Drawn(
        seed=seed, store=random.choice(STORES), has_schedules=has_schedules, options=options,
        steps=steps, faults=faults, whispers=_whispers(random, len(steps)),
        named=_named(Random(f"named {seed}"), len(steps)),
        hostile=_hostile(seed, len(steps)),
    )  # fmt: skip
    world = _with_hasty(_with_approvals(_with_hooks(_with_raisers(_with_more(world)))))
    world = _with_limits(_with_crowd(_with_asking(_with_several(world))))
    return _with_beside(_with_misfire(_with_moments(_with_forks(_with_turns(_with_age(world))))))


def _with_misfire(world: Drawn) -> Drawn:
    """What becomes of the missed ticks of its cron.  Each of a day is fired in no world: a run with
    ten thousand events says nothing that one with a hundred does not, and takes minutes."""
    leaps = [each.seconds for each in world.faults if isinstance(each, ClockJump)]
    waits = [each.seconds for each in world.steps if isinstance(each, Wait)]
    kinds: tuple[Misfire, ...] = get_args(Misfire)
    if max((*leaps, *waits), default=0) > LONGEST_MISSED:
        kinds = tuple([each for each in kinds if each != "all"])
    return structs.replace(world, misfire=Random(f"misfire {world.seed}").choice(kinds))


def _with_age(world: Drawn) -> Drawn:
    """From some worlds trees go: beside runs at work, and at rest, where there is a file."""
    random = Random(f"age of own world {world.seed}")
    if random.random() < 0.75:
        return world
    options, prunings = world.options, ()
    steps = (*world.steps, *aging_steps(random, spoken))
    if random.random() < 0.8:
        options = {**options, "retention": drawn_retention(random)}
    if "retention" not in options or random.random() < 0.25:
        prunings = tuple(_pruning(random, len(steps)) for _ in range(random.randint(1, 3)))
        world = structs.replace(world, store="sqlite")
    return structs.replace(world, steps=steps, options=options, prunings=prunings, is_aging=True)


def _with_turns(world: Drawn) -> Drawn:
    """From some worlds old turns of runs that live go, and processes die meanwhile."""
    random = Random(f"turns of own world {world.seed}")
    if random.random() < 0.8:
        return world
    first = sum(isinstance(each, Open) for each in world.steps)
    more = lasting_steps(random, first, spoken, may_kill=not world.has_more)
    faults = world.faults
    if not world.has_more:
        lives = [random.randint(0, 8) for _ in range(random.randint(0, 4))]
        faults = (*faults, *(_crash(random, 30, life) for life in lives))
    retention = kept_turns_of(random, world.options.get("retention"))
    return structs.replace(
        world, steps=(*world.steps, *more), faults=faults, is_aging=True, has_turns=True,
        options={**world.options, "retention": retention},
    )  # fmt: skip


def _pruning(random: Random, steps: int) -> tuple[int, Retention, bool]:
    retention = drawn_retention(random)
    while not retention.removes:
        retention = drawn_retention(random)
    return random.randrange(steps), retention, random.random() < 0.5


def _with_forks(world: Drawn) -> Drawn:
    """In some worlds runs are forked, and what comes of it lives on."""
    random = Random(f"forks of own world {world.seed}")
    if random.random() < 0.7:
        return world
    forks = drawn_forks(random, len(world.steps), _program, spoken)
    if world.has_turns:
        forks += last_forks(len(world.steps))
    return structs.replace(world, forks=forks)


def _with_limits(world: Drawn) -> Drawn:
    """In some worlds turns, runs and trees may use so much."""
    random = Random(f"limits of own world {world.seed}")
    if random.random() < 0.85:
        return world
    which = random.choice(("trees", "turns", "both"))
    if which != "trees":
        world = structs.replace(world, limits_of_turns=world.seed)
    if which != "turns":
        world = structs.replace(world, options={**world.options, "limits": tree_limits(random)})
    return structs.replace(world, raised=raises(random, len(world.steps)))


def _with_several(world: Drawn) -> Drawn:
    """In some worlds code has tasks that run at once, and its processes die."""
    random = Random(f"several in own world {world.seed}")
    if random.random() < 0.8:
        return world
    first = sum(isinstance(each, Open) for each in world.steps)
    steps = (*world.steps, *several_steps(random, first, may_kill=not world.has_more))
    faults = world.faults
    if not world.has_more:
        lives = [random.randint(1, 8) for _ in range(random.randint(1, 4))]
        faults = (*faults, *(_crash(random, 20, life) for life in lives))
    return structs.replace(world, steps=steps, faults=faults, has_several=True)


def _with_asking(world: Drawn) -> Drawn:
    """In some worlds tools ask people, who speak of something else, and processes die meanwhile."""
    random = Random(f"asking in own world {world.seed}")
    if random.random() < 0.8:
        return world
    first, before = sum(isinstance(each, Open) for each in world.steps), len(world.steps)
    more = drawn_asking(random, first, spoken, may_kill=not world.has_more)
    return structs.replace(
        world, steps=(*world.steps, *more.steps), faults=(*world.faults, *more.faults),
        wishes=tuple((before + place, which) for place, which in more.wishes), has_asking=True,
    )  # fmt: skip


def _with_moments(world: Drawn) -> Drawn:
    """In some worlds several people answer at once."""
    random = Random(f"moments of own world {world.seed}")
    if random.random() < 0.85:
        return world
    first, before = sum(isinstance(each, Open) for each in world.steps), len(world.steps)
    more, moments = drawn_moments(random, first, before, spoken, may_kill=not world.has_more)
    return structs.replace(
        world, steps=(*world.steps, *more), moments=moments, has_asking=True, has_approvals=True
    )


def _with_beside(world: Drawn) -> Drawn:
    """In some worlds frames lie beside each other."""
    random = Random(f"beside in own world {world.seed}")
    if random.random() < 0.85:
        return world
    first = sum(isinstance(each, Open) for each in world.steps)
    steps = beside_steps(random, first, spoken, may_kill=not world.has_more)
    return structs.replace(world, steps=(*world.steps, *steps), has_beside=True)


def _with_hasty(world: Drawn) -> Drawn:
    """In some worlds runs are terminated as they end."""
    random = Random(f"hasty in own world {world.seed}")
    more = hasty_steps(random) if random.random() < 0.4 else ()
    return structs.replace(world, steps=(*world.steps, *more))


def _with_more(world: Drawn) -> Drawn:
    """Some worlds have runs besides that start children by code, and one that kills its process:
    there nothing else does."""
    random = Random(f"more of own world {world.seed}")
    if random.random() < 0.75:
        return world
    steps, faults = [*world.steps], list(world.faults)
    steps += [_hiring(random, number) for number in range(random.randint(1, 3))]
    if random.random() < 0.5:
        program: list[Any] = [["die"], ["say"]]
        if random.random() < 0.4:
            program = [["child", random.choice(CHILDREN), [["die"]]], ["say"]]
        steps = [each for each in steps if not (isinstance(each, Restart) and each.kill)]
        faults = [each for each in faults if not _kills(each)]
        # At the end: the number of a run is its place among the openings.
        killer = Open(agent="main", input=spoken("killer", program), user="cleo")
        steps += [killer, *(Wait(seconds=random.choice((1.0, 5.0, 30.0))) for _ in range(8))]
    return structs.replace(world, steps=tuple(steps), faults=tuple(faults), has_more=True)


def _with_raisers(world: Drawn) -> Drawn:
    """In some worlds tools, models, listeners and code raise what is no error."""
    random = Random(f"raisers of own world {world.seed}")
    if random.random() < 0.8:
        return world
    steps = [*world.steps]
    for number in range(random.randint(1, 4)):
        steps.append(Say(to=0, text=spoken(f"t{number}", _throwing(random)), user="ben"))
        if random.random() < 0.4:
            steps.append(Wait(seconds=random.choice((0.2, 3.0))))
    if random.random() < 0.5:  # At the end: the number of a run is its place among the openings.
        kind = random.choice([*RAISED])
        steps.insert(-2, Wait(seconds=0.5))
        steps += [Open(agent="thrower", input=spoken("x", [[kind]]), user="cleo"), steps[-1]]
    return structs.replace(world, steps=tuple(steps), has_raisers=True)


def _with_hooks(world: Drawn) -> Drawn:
    """In some worlds there are agents with hooks, and with variables that must be provided."""
    random = Random(f"hooks of own world {world.seed}")
    if random.random() < 0.8:
        return world
    first = sum(isinstance(each, Open) for each in world.steps)
    more = hooked_steps(random, first, may_kill=not world.has_more)
    steps = (*world.steps, *more)
    provided = [x for x in range(len(world.steps), len(steps)) if random.random() < 0.6]
    return structs.replace(world, steps=steps, provided=tuple(provided), has_hooks=True)


def _with_approvals(world: Drawn) -> Drawn:
    """In some worlds a person must approve what tools do, and processes die meanwhile."""
    random = Random(f"leave in own world {world.seed}")
    if random.random() < 0.8:
        return world
    first = sum(isinstance(each, Open) for each in world.steps)
    more = approval_steps(random, first, spoken, may_kill=not world.has_more)
    steps = (*world.steps, *more)
    late = [x for x in range(len(world.steps), len(steps)) if random.random() < 0.2]
    faults = world.faults
    if not world.has_more:
        lives = [random.randint(1, 8) for _ in range(random.randint(0, 4))]
        faults = (*faults, *(_crash(random, 20, life) for life in lives))
    return structs.replace(world, steps=steps, faults=faults, late=tuple(late), has_approvals=True)


def _with_crowd(world: Drawn) -> Drawn:
    """In worlds with little room others have all of it when a run is ended."""
    room = world.options.get("max_live")
    if room is None or world.has_more:
        return world
    random = Random(f"crowd of own world {world.seed}")
    first = sum(isinstance(each, Open) for each in world.steps)
    more = crowded_steps(random, first, room, spoken)
    return structs.replace(world, steps=(*world.steps, *more), has_crowd=True)


def _throwing(random: Random) -> list[list[Any]]:
    kind, tool = random.choice([*RAISED]), random.choice(("throw", "throw_plain"))
    match random.choice(("call", "calls", "child", "leave", "leave", "break", "broken child")):
        case "call":
            return [[tool, kind], ["say"]]
        case "calls":
            return [["tell", ["throw", kind], ["look"], ["throw_plain", kind]], ["say"]]
        case "child":
            return [["child", random.choice(CHILDREN), [[tool, kind], ["note"]]], ["say"]]
        case "leave":
            who = random.choice((*CHILDREN, "main"))
            below = [random.choice((["note"], ["throw", kind], ["break", kind]))]
            return [["leave", who, below, kind], ["note"], ["say"]]
        case "break":
            return [["note"], ["break", kind]]
    return [["child", random.choice(CHILDREN), [["break", kind]]], ["say"]]


def _kills(fault: WorldFault) -> bool:
    return isinstance(fault, Crash) or getattr(fault, "kind", "") == "crash"


def _hiring(random: Random, number: int) -> Step:
    who = random.choice((*CHILDREN, "main"))
    below = [["note"]] if who == "main" else [[random.choice(("look", "slow", "note"))]]
    program = [[random.choice(("hire", "hire", "fetch")), who, below], ["note"], ["say"]]
    return Say(to=0, text=spoken(f"h{number}", program), user="ann")


def lived(world: Drawn) -> History:
    """Live it, and check it; raises ``SimulationFailed``."""
    own = OwnWorld(
        has_schedules=world.has_schedules,
        misfire=world.misfire,
        has_more=world.has_more,
        has_raisers=world.has_raisers,
        has_hooks=world.has_hooks,
        has_approvals=world.has_approvals,
        has_asking=world.has_asking,
        has_crowd=world.has_crowd,
        has_several=world.has_several,
        options=world.options,
        limits_of_turns=world.limits_of_turns,
        is_aging=world.is_aging,
        has_turns=world.has_turns,
        has_forks=bool(world.forks),
        has_beside=world.has_beside,
    )
    own.aging.retention = world.options.get("retention")
    own.forking.has_turns = world.has_turns

    async def own_scenario(live: World) -> None:
        own.plan, own.aging.clock = live.plan, live.clock
        opened: list[str] = []
        for number, step in enumerate(world.steps):
            await play([step], live, opened)
            for _, which in (each for each in world.whispers if each[0] == number):
                await _whisper(live, number, which)
            for _, who in (each for each in world.named if each[0] == number):
                await live.open("main", spoken(f"d{number}", [["say"]]), descriptor=who)
            for _, which in (each for each in world.wishes if each[0] == number):
                await wish(live, opened, which)
            for each in world.moments:
                if each.after == number:
                    await in_one_moment(live, opened, each.steps)
            if number in world.provided:
                await provide(live)
            if number in world.late:
                await answer_late(live, number)
            for _, which, limits in (each for each in world.raised if each[0] == number):
                await raised(live, opened, which, limits)
            if number in world.hostile and opened:
                is_prompt = not any(isinstance(each, ChannelFault) for each in world.faults)
                await _babble(live, number, opened[number % len(opened)], is_prompt=is_prompt)
            for each in world.forks:
                if each.step == number:
                    await own.forking.do(live, each, opened)
            for _, retention, kill in (each for each in world.prunings if each[0] == number):
                await prune_at_rest(live, own.aging, retention, kill=kill and not world.has_more)
        live.end_faults()
        await live.settle(SETTLE)
        # Now that nothing happens by itself: what does a model see?
        for run_id in dict.fromkeys(x.run_id for x in live.history.sent if x.verb in _BEGINS):
            await live.say(run_id, spoken(LAST_QUESTION, [["say"]]), user="last")
        await live.settle(SETTLE)
        if world.is_aging or world.forks:
            await own.aging.rest(live)
        live.history.is_settled = True
        check_store(live)

    return simulate(
        own_scenario, own.setup, seed=world.seed, faults=world.faults, store=world.store,
        workers=world.workers,
        invariants=own.invariants(), settle=False,
        max_rounds=MAX_ROUNDS if world.workers is None else SHARED_ROUNDS,
    )  # fmt: skip


async def _whisper(live: World, number: int, which: int) -> None:
    """A child's id is known to whoever listens."""
    heard = (each.event for each in live.history.heard)
    below = [x.run_id for x in heard if isinstance(x, SessionOpen) and x.parent_run_id]
    if below:
        text = spoken(f"w{number}", [["say"]])
        await live.say(below[which % len(below)], text, user="ann")


async def _babble(live: World, number: int, to: str, *, is_prompt: bool) -> None:
    """It is the sender's, the tool's, the model's, the child's trouble, and nobody else's.

    A channel that is not prompt would hold the text back, to be refused when nobody looks.
    """
    if is_prompt:
        with suppress(BadValue):
            await live.say(to, NO_TEXT, user="ann")
            raise AssertionError("what is no text was taken")
    wrong = [["babble"], ["mumble"]]
    await live.say(to, spoken(f"h{number}", [["child", "ask", wrong], *wrong]), user="ann")


# ── users ────────────────────────────────────────────────────────────────────────────────────


def _steps(random: Random) -> tuple[Step, ...]:
    steps: list[Step] = []
    opened: list[str] = []
    for number in range(random.randint(6, 18)):
        if not opened or random.random() < 0.22:
            steps.append(_open(random, number, opened))
        elif random.random() < 0.08:
            steps += _burst(random, number, opened)
        else:
            steps.append(_one(random, number, opened, steps))
    return tuple(steps)


def _whispers(random: Random, steps: int) -> tuple[tuple[int, int], ...]:
    if random.random() < 0.7:
        return ()
    return tuple((random.randrange(steps), random.randrange(20)) for _ in range(4))


def _named(random: Random, steps: int) -> tuple[tuple[int, Descriptor], ...]:
    """Openings by descriptor: of users who open by key, too, and of schedules."""
    if random.random() < 0.7:
        return ()
    whom: list[Descriptor] = [descriptor_of_key(f"web_{user}") for user in USERS]
    whom += [CronDescriptor(id="tick"), HeartbeatDescriptor()]
    return tuple((random.randrange(steps), random.choice(whom)) for _ in range(4))


def _hostile(seed: int, steps: int) -> tuple[int, ...]:
    random = Random(f"hostile texts of {seed}")  # Its own: other worlds stay as they were.
    return () if random.random() < 0.9 else tuple(random.randrange(steps) for _ in range(2))


def _burst(random: Random, number: int, opened: Sequence[str]) -> Iterator[Step]:
    """One thing is said after the other to a run that had time to leave memory."""
    to = random.randrange(len(opened))
    yield Wait(seconds=random.choice((3.0, 30.0)))
    for part in "abc":
        program = [["say"]] if opened[to] not in ("shop", "watcher") else []
        yield Say(to=to, text=spoken(f"m{number}{part}", program), user=random.choice(USERS))


def _open(random: Random, number: int, opened: list[str]) -> Step:
    agent = random.choice(ROOTS) if opened else "main"
    user = random.choice(USERS)
    has_key = agent in ("main", "lead") and random.random() < 0.5
    opened.append(agent)
    return Open(
        agent=agent, input=spoken(f"m{number}", _program(random, agent)), user=user,
        key=f"web_{user}" if has_key else "",
    )  # fmt: skip


def _one(random: Random, number: int, opened: Sequence[str], steps: Sequence[Step]) -> Step:
    to = random.randrange(len(opened))
    said = [step for step in steps if isinstance(step, Say) and step.key]
    user = random.choice(USERS)
    choice = random.random()
    if choice < 0.08 and said:
        return random.choice(said)  # Somebody's line was bad.
    if choice < 0.5:
        return Say(
            to=to, text=spoken(f"m{number}", _program(random, opened[to])), user=user,
            key=f"k{number // 2}" if random.random() < 0.4 else "",
        )  # fmt: skip
    if choice < 0.56:
        return Say(to=to, text=random.choice(_WORDS), user=user)
    if choice < 0.8:
        return Wait(seconds=random.choice((0.1, 0.3, 0.5, 1.0, 3.0, 70.0)))
    if choice < 0.87:
        return Interrupt(to=to, reason="enough")
    if choice < 0.92:
        return Terminate(to=to)
    if choice < 0.95:
        return Close(to=to)
    return Restart(kill=random.random() < 0.6)


# ── programs ─────────────────────────────────────────────────────────────────────────────────


def _program(random: Random, agent: str, depth: int = DEPTH) -> list[list[Any]]:
    if agent == "shop":
        agent = "ask"
    return [_step(random, agent, depth) for _ in range(random.randint(1, 3))]


def _step(random: Random, agent: str, depth: int) -> list[Any]:
    kinds = ["note", "look", "say"] * 2 + ["slow", "flaky", "tell", "both"]
    if agent in (*CHILDREN, *LASTING):
        kinds += ["child", "child", "report", "give_up", "file"]
    else:
        kinds += ["fail", "complete", "complete", "use", "use", "skill", "pause", "hand", "file"]
        kinds += ["child"] * 4 + ["stay", "stay", "to"]
    kind = random.choice(kinds)
    if kind in ("tell", "both"):
        simple = ("note", "look", "slow", "child", "stay", "use")
        picked = [random.choice(simple) for _ in range(random.randint(1, 3))]
        return [kind, *(_call(random, each, depth) for each in picked)]
    return _call(random, kind, depth)


def _call(random: Random, kind: str, depth: int) -> list[Any]:
    if depth == 0 and kind in ("child", "stay", "to", "use", "skill"):
        return ["look"]
    match kind:
        case "child":
            who = random.choice(CHILDREN)
            return ["child", who, _program(random, who, depth - 1)]
        case "stay":
            who = random.choice(LASTING)
            return ["stay", who, _program(random, who, depth - 1)]
        case "to":
            return ["to", random.randrange(3), _program(random, "keep", depth - 1)]
        case "use":
            who = random.choice(TALKERS)
            return ["use", who, _program(random, who, depth - 1)]
        case "skill":
            return ["skill", _program(random, "writer", depth - 1)]
        case "hand":
            return ["hand", random.choice(("clerk", "main"))]
    return [kind]


# ── faults ───────────────────────────────────────────────────────────────────────────────────

_MODEL: Final = (
    "hang", "error", "refused", "rate_limit", "cut", "empty", "bad_arguments", "unknown_tool",
    "duplicate_id", "slow", "crash",
)  # fmt: skip


def _faults(random: Random) -> tuple[WorldFault, ...]:
    if random.random() < 0.35:  # A machine that is switched off and on again.
        return _crashes(random, 25, random.randint(2, 7))
    return tuple(_fault(random) for _ in range(random.choice((0, 1, 2, 2, 3, 4))))


def _crashes(random: Random, commits: int, lives: int) -> tuple[Crash, ...]:
    return tuple(_crash(random, commits, life) for life in range(lives))


def _crash(random: Random, commits: int, life: int) -> Crash:
    commit = random.randint(1, commits)
    if random.random() < 0.3:
        return Crash(commit=commit, when="torn", life=life, sectors=random.randint(0, 40))
    return Crash(commit=commit, when=random.choice(("before", "after")), life=life)


def _fault(random: Random) -> WorldFault:
    seconds = random.choice((0.0, 0.5, 5.0))
    match random.choice(("crash",) * 7 + ("model", "model", "tool", "listener", "line", "clock")):
        case "crash":
            life = random.choice((0, 0, 0, 1, 2))
            return _crash(random, 12 if life else 45, life)
        case "model":
            kind: Any = random.choice(_MODEL)
            return ModelFault(call=random.randint(1, 20), kind=kind, seconds=seconds)
        case "tool":
            kind = random.choice(("hang", "raise", "late", "crash"))
            return ToolFault(call=random.randint(1, 8), kind=kind, seconds=seconds)
        case "listener":
            kind = random.choice(("slow", "stuck", "raise"))
            pattern = random.choice(("*", "agent:*", "session:message"))
            return ListenerFault(kind=kind, pattern=pattern, seconds=seconds)
        case "line":
            kind = random.choice(("duplicate", "reorder", "late"))
            return ChannelFault(message=random.randint(1, 6), kind=kind, seconds=seconds)
        case _:
            return ClockJump(at=random.randint(0, 20), seconds=random.choice((-3600, 90, 86_400)))
