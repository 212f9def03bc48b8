"""A figure: what was measured, beside its floor and its aim."""

import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable
from time import perf_counter, process_time
from typing import Any, Literal

import anyio
from msgspec import Struct

__all__ = ["Aim", "Figure", "Loop", "cost", "on_loop", "rate", "rounds_of", "timed", "versus"]

Loop = Literal["asyncio", "trio"]
Work = Callable[[int], Awaitable[float]]
"""Does its work so many times and returns the seconds it took, setting up not counted."""


class Aim(Struct, frozen=True):
    """``figure >= 0.4 × floor``, ``figure <= 100``, …, as the issue's table has it."""

    sign: Literal["<=", ">="]
    value: float
    of_floor: bool = False

    def is_met(self, figure: float, floor: float | None) -> bool:
        measured = figure / floor if self.of_floor and floor else figure
        return measured <= self.value if self.sign == "<=" else measured >= self.value

    def __str__(self) -> str:
        return f"{self.sign} {self.value:,g}{' × floor' if self.of_floor else ''}"


def cost(loop: Loop, times: float) -> Aim:
    """At most so many times the floor's; on Trio 1.4 times as much, for its own tasks cost more."""
    return Aim("<=", round(times * (1.4 if loop == "trio" else 1), 3), of_floor=True)


def rate(loop: Loop, share: float) -> Aim:
    """At least this share of the floor's rate; on Trio a 1.4th of it."""
    return Aim(">=", round(share / (1.4 if loop == "trio" else 1), 3), of_floor=True)


class Figure(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    what: str
    loop: str
    unit: str
    value: float
    floor: float | None = None
    aim: Aim | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None

    @property
    def is_met(self) -> bool | None:
        return None if self.aim is None else self.aim.is_met(self.value, self.floor)


def on_loop(loop: Loop, work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run ``work`` on a fresh event loop of that kind."""
    return anyio.run(work, *args, backend=loop)


def rounds_of(work: Callable[[], float], rounds: int) -> float:
    """The median of several rounds."""
    return statistics.median(work() for _ in range(rounds))


def timed(loop: Loop, work: Work, count: int) -> float:
    """Times per second at which ``work`` is done."""
    gc.collect()
    return count / float(on_loop(loop, work, count))


def versus(
    loop: Loop, ours: Work, floor: Work, count: int, rounds: int, floor_count: int = 0
) -> tuple[float, float]:
    """How often a second ours and the floor are done, taken in turns, so that noise hits both.

    The floor always runs on asyncio, whichever loop ours is measured on.  Of all rounds the one
    whose ratio is the median is returned.
    """
    pairs = []
    for _ in range(rounds):
        mine = timed(loop, ours, count)
        pairs.append((mine, timed("asyncio", floor, floor_count or count)))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    return pairs[len(pairs) // 2]


class stopwatch:  # noqa: N801 - reads as a word at its use: ``with stopwatch() as watch``
    """``with stopwatch() as watch: …`` then ``watch.seconds``.

    Seconds of this process's CPU time, which on an idle machine is the time that passes, and on
    a busy one does not count what others take; with ``passing=True`` the time that passes.
    """

    def __init__(self, *, passing: bool = False) -> None:
        self.seconds = 0.0
        self._clock = perf_counter if passing else process_time

    def __enter__(self) -> "stopwatch":
        self._start = self._clock()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds = self._clock() - self._start


async def turns(count: int = 1) -> None:
    """Let asyncio's other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)
