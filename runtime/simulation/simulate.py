"""``simulate``: a scenario in a world where things go wrong, and what must hold of it.

history = simulate(scenario, setup, seed=7, faults=[Crash(commit=5)])

scenario ─► faults end ─► the world settles ─► every invariant is asked ─► History
    └── raises ──┴─────────────────────────────────┴─ is broken ─► SimulationFailed
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from hubbub.hub.tasks.raised import is_of, parts_of
from hubbub.runtime.simulation.invariants.all import INVARIANTS, Invariant, problems_of
from hubbub.runtime.simulation.loop.seeded import MAX_ROUNDS, run_seeded
from hubbub.runtime.simulation.replay_line import replay_of
from hubbub.runtime.simulation.story.arguments import (
    NotAsync,
    awaited,
    check_call,
    check_steps,
    setup_of,
)
from hubbub.runtime.simulation.story.budgets import with_limits_of
from hubbub.runtime.simulation.story.faults import WorldFault
from hubbub.runtime.simulation.story.history import History, StoreName
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.story.steps import Step
from hubbub.runtime.simulation.story.targets import note, set_targets
from hubbub.runtime.simulation.world.users import play
from hubbub.runtime.simulation.world.world import World

__all__ = ["Scenario", "SimulationFailed", "failure_of", "replay_of", "simulate"]

Scenario: TypeAlias = Callable[[World], Awaitable[object]] | Sequence[Step]
"""What happens: a function of a world, or what users do as data."""

MAX_VIOLATIONS: Final = 10
MAX_LINES: Final = 40
"""Lines of the trace that are shown."""
MAX_WIDTH: Final = 500
MAX_PROBLEM: Final = 4_000
MAX_COMPLAINTS: Final = 10
"""Warnings and errors of the log that are shown."""


class SimulationFailed(AssertionError):
    """A scenario raised, or an invariant does not hold.

    ``broken`` is the invariant's name (empty where something was raised, which is the cause),
    ``problems`` says what is wrong, ``history`` what happened, and ``replay`` is the line of code
    that does it all again.  Each invariant has a subclass of its own, so that Hypothesis, which
    tells failures apart by their class, does not shrink one into another.
    """

    broken = ""

    def __init__(self, problems: Sequence[str], history: History, replay: str) -> None:
        self.problems = tuple(problems)
        self.history = history
        self.replay = replay
        super().__init__(_text(self.problems, history, replay))

    def __reduce__(self) -> tuple[Any, ...]:
        # A subclass of ``failure_of`` is found by no name.
        return (
            _failed, (self.broken, self.problems, self.history, self.replay), dict(self.__dict__)
        )  # fmt: skip


def simulate(
    scenario: Scenario,
    setup: Setup | Callable[[], Setup],
    *,
    seed: int = 0,
    faults: Sequence[WorldFault] = (),
    store: StoreName = "memory",
    workers: int | None = None,
    invariants: Mapping[str, Invariant] = INVARIANTS,
    settle: bool = True,
    max_rounds: int = MAX_ROUNDS,
) -> History:
    """Play ``scenario`` in a world of its own, and check what came of it.

    ``seed`` decides in which order tasks run, and the ids; ``faults`` what goes wrong, and when.
    The same arguments come to the same history, in every process, as long as the code under test
    draws no numbers and starts no threads of its own.  Give a function as ``setup`` where tools
    or models keep something: each world then begins with new ones.

    With ``workers`` from 2 on, so many processes are at work on one store in memory at once: each
    tree of runs is owned by one of them, under a lease, and taken over when that dies, stands
    still or is cut off for too long (``KillWorker``, ``PauseWorker``, ``CutWorker``).  Lives 0, 1,
    … are the workers, in order; the life after them is that of the process that the scenario
    speaks through, which owns none.

    Once the scenario is over the world is given the time to come to rest, and then once more with
    nothing going wrong any longer: what was accepted must be handled by then.  ``settle=False``
    leaves both out.
    ``invariants`` is asked in its order; ``budgets_held`` and ``limits_held`` have the limits of
    the setup.  Raises ``SimulationFailed``, also for what waits forever, and for what is busy for
    more than ``max_rounds`` of the scheduler without time passing (``NothingHappens`` and
    ``NeverRests``, see ``loop``).
    In a test of Hypothesis the first world of an example is aimed at depth and interleavings
    (``aims``); ``settings(phases=…)`` without ``Phase.target`` has it seek nothing.
    """
    check_call(scenario, faults, store, invariants, settle, workers)
    __tracebackhide__ = True
    made: list[World] = []

    async def main() -> None:
        given = setup_of(setup)
        check_steps(scenario, given)
        world = World(given, seed=seed, faults=faults, store=store, workers=workers)
        made.append(world)
        async with world:
            if callable(scenario):
                await awaited("scenario", scenario, world)
            else:
                await play(scenario, world)
            if settle:
                await world.settle()  # What is still at work meets the rest of the faults.
                world.end_faults()
                await world.settle()
                world.history.is_settled = True

    replay = replay_of(
        scenario, setup, seed=seed, faults=faults, store=store, workers=workers,
        invariants=invariants, settle=settle, max_rounds=max_rounds,
    )  # fmt: skip
    try:
        run_seeded(main, seed, max_rounds=max_rounds)
    except Exception as error:
        # What is wrong is what was given: there is no history, or nothing to learn from it.
        if not made or isinstance(error, NotAsync):
            raise
        raise SimulationFailed(_raised(error), made[0].history, replay) from error
    (world,) = made
    for name, invariant in with_limits_of(world.setup, invariants).items():
        if problems := problems_of(name, invariant, world.history):
            raise failure_of(name)([f"{name}: {each}" for each in problems], world.history, replay)
    set_targets(world.history)
    note(f"To see it again: {replay}")  # What fails now fails in the test.
    return world.history


def _raised(error: Exception) -> list[str]:
    """What was raised, a line for each; a group is what it holds."""
    found = [each for each in parts_of(error) if not is_of(each, BaseExceptionGroup)]
    return [f"{type(each).__name__}: {each}" for each in found]


@cache
def failure_of(name: str) -> type[SimulationFailed]:
    """The class of failures of one invariant, the same one each time."""
    what = f"The invariant ``{name}`` does not hold."
    space = {"broken": name, "__module__": __name__, "__doc__": what}
    return type("SimulationFailed", (SimulationFailed,), space)


def _failed(
    broken: str, problems: Sequence[str], history: History, replay: str
) -> SimulationFailed:
    """A failure as it was before it was pickled."""
    cls = failure_of(broken) if broken else SimulationFailed
    return cls(problems, history, replay)


def _text(problems: Sequence[str], history: History, replay: str) -> str:
    """What failed, what happened last, and how to see it again."""
    lines = [_cut(history.named(each), MAX_PROBLEM) for each in problems[:MAX_VIOLATIONS]]
    if (more := len(problems) - MAX_VIOLATIONS) > 0:
        lines.append(f"… and {more} more")
    trace = history.trace()
    left_out = len(trace) - MAX_LINES
    lines += ["", f"What happened ({left_out} lines before):" if left_out > 0 else "What happened:"]
    lines += [f"    {_cut(line, MAX_WIDTH)}" for line in trace[-MAX_LINES:]]
    if history.injected:
        lines += ["", "Faults that struck:", *(f"    {each}" for each in history.injected)]
    if logged := [each for each in history.logged if each.level in ("warning", "error")]:
        shown = [history.named(str(each)) for each in logged[-MAX_COMPLAINTS:]]
        lines += ["", "Logged last:", *(f"    {_cut(line, MAX_WIDTH)}" for line in shown)]
    return "\n".join([*lines, "", "To see it again:", f"    {replay}"])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
