"""``Patience``: tells a program that is busy forever from one that has a lot to do.

    a round ─► another … ─► max_rounds, and no time has passed ─► who runs is noted ─► cancelled

In a round of Trio's scheduler each task that can run makes a step.
"""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Any, Final

import anyio
import trio
from trio.abc import Instrument

from hubbub.hub.errors.copied import CopiedWhole

__all__ = ["MAX_ROUNDS", "NeverRests", "Patience"]

MAX_ROUNDS: Final = 100_000
"""About two seconds of real time.  At one moment, programs that rest need some hundreds."""

ALL_ROUNDS: Final = 20
"""So many times as many rounds a program may make in all, however much time passes."""

_WATCHED: Final = 100
"""Rounds in which it is noted who runs."""
_SHOWN: Final = 3
_LOOPS: Final = ("trio", "anyio")


class NeverRests(CopiedWhole, AssertionError):
    """The program is busy forever: it goes on and on, and time does not, or its end does not."""

    def __init__(self, rounds: int, time: float, who: str, when: str = "at one moment") -> None:
        super().__init__(
            f"the program never rests: it goes on after {rounds:,} rounds of the scheduler at "
            f"{time:.3f} s of virtual time, with {who}; give a larger max_rounds if it has that "
            f"much to do {when}"
        )


class Patience(Instrument):
    """Counts rounds of the scheduler, and cancels what continues without time going on.

    Also what goes on and on while time does: schedules have something to do forever, whoever
    waits beside them for what never comes.  Trio asks it once a round, not once a step.  When
    there were too many it watches for some more who it is that runs.
    """

    def __init__(self, max_rounds: int) -> None:
        self.scope = anyio.CancelScope()
        self._max_rounds = max_rounds
        self._time = 0.0
        self._rounds = 0
        self._before = 0
        """Rounds at earlier moments."""
        self._enough: float = max_rounds
        self._witness: _Witness | None = None

    def before_io_wait(self, timeout: float) -> None:
        self._rounds += 1
        if self._rounds < self._enough:
            return
        now = trio.current_time()
        is_late = self._before + self._rounds >= ALL_ROUNDS * self._max_rounds
        if now != self._time and not is_late:  # Some of these rounds were at an earlier moment.
            self._before += self._rounds
            self._time, self._rounds, self._enough = now, 0, self._max_rounds
            self._dismiss()
            self._witness = None
        elif self._witness is None:
            self._witness, self._time = _Witness(), now
            self._enough = self._rounds + _WATCHED
            trio.lowlevel.add_instrument(self._witness)
        else:
            self._enough = math.inf
            self._dismiss()
            self.scope.cancel()

    def verdict(self) -> NeverRests | None:
        """What is wrong with the program, if it was cancelled for it."""
        if self._witness is None or not self.scope.cancel_called:
            return None
        if self._before + self._rounds >= ALL_ROUNDS * self._max_rounds:
            rounds = self._before + self._rounds
            return NeverRests(rounds, self._time, self._witness.report(), "in all")
        return NeverRests(self._max_rounds, self._time, self._witness.report())

    def _dismiss(self) -> None:
        if self._witness is not None:
            trio.lowlevel.remove_instrument(self._witness)


class _Witness(Instrument):
    """Notes which tasks make steps, and where they are then."""

    def __init__(self) -> None:
        self._steps: Counter[tuple[str, str]] = Counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps[task.name, _place_of(task)] += 1

    def report(self) -> str:
        """Who made the most steps, in one line."""
        most = self._steps.most_common(_SHOWN)
        return ", ".join(f"{name}{place and f' in {place}'}" for (name, place), _ in most)


def _place_of(task: trio.lowlevel.Task) -> str:
    """The innermost line of code that is not the loop's own."""
    place = ""
    for frame in _frames(task.coro):
        code = frame.f_code
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LOOPS:
            place = f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
    return place


def _frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of what is awaited, from the outermost on."""
    while awaited is not None:
        sort = "cr" if hasattr(awaited, "cr_frame") else "gi"
        frame = getattr(awaited, f"{sort}_frame", None)
        if frame is None:
            return
        yield frame
        inner = getattr(awaited, "cr_await" if sort == "cr" else "gi_yieldfrom")
        # What ``stepped`` drives by hand is awaited by nobody.
        awaited = inner if inner is not None else frame.f_locals.get("work")
