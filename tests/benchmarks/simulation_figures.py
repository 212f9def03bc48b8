"""What simulated worlds cost: how many a second, and a week of schedules."""

import sys
from pathlib import Path

import anyio
from figures import Aim, Figure, Loop, rounds_of, stopwatch

from hubbub.hub import events as e
from hubbub.runtime.simulation import History, World, run_seeded, simulate

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.simulations import desk, two_users, week

__all__ = ["week_of_schedules", "worlds"]

DAY = 86_400


def worlds(loop: Loop, rounds: int, scale: float) -> Figure:
    """Two users, three conversations, children and tools; history and invariants included."""
    setup = desk()
    count = max(2, int(200 * scale))

    def lived() -> float:
        with stopwatch() as watch:
            for seed in range(count):
                simulate(two_users, setup, seed=seed)
        return count / watch.seconds

    async def sleeps() -> None:
        for _ in range(operations):
            await anyio.sleep(1)

    def floor() -> float:
        with stopwatch() as watch:
            for seed in range(count):
                run_seeded(sleeps, seed)
        return count / watch.seconds

    operations = _operations(simulate(two_users, setup))
    return Figure(
        what=f"simulated worlds of {operations} operations, memory store", loop="trio",
        unit="/s", value=rounds_of(lived, rounds), floor=rounds_of(floor, rounds),
        aim=Aim(">=", 200), note="floor: so many sleeps on the seeded loop",
    )  # fmt: skip


def _operations(history: History) -> int:
    """What users, models and the store did."""
    return len(history.sent) + len(history.requests) + sum(x.commits for x in history.lives)


def week_of_schedules(loop: Loop, rounds: int, scale: float) -> Figure:
    """A heartbeat every half hour and an hourly cron, each answered by a model in a second."""
    days = max(1, int(7 * scale))

    async def passes(world: World) -> None:
        await world.wait(days * DAY)

    def lived() -> float:
        with stopwatch() as watch:
            history = simulate(passes, week())
        assert sum(isinstance(x, e.ScheduleFire) for x in history.events) == days * 72
        return watch.seconds

    return Figure(
        what=f"{days} simulated days of heartbeat and cron", loop="trio", unit="s",
        value=rounds_of(lived, rounds), aim=Aim("<=", 2),
    )  # fmt: skip
