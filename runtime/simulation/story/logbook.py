"""``Logbook``: what the library logs while a simulated world is at work.

It goes into the world's history, not to the log of the process: a failing property simulates
hundreds of worlds in which things go wrong on purpose.
"""

import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from hubbub.agents.definitions.tools import error_text
from hubbub.runtime.simulation.story.faults import INJECTED

__all__ = ["MAX_LOGGED", "Logbook", "Logged", "new_log"]

MAX_LOGGED: Final = 200
"""How many messages are kept: the last ones."""

MAX_FACT: Final = 300

_LEFT_OUT: Final = ("exc_info", "path")
"""``path`` is that of the world's own folder, another one each time."""


class Logged(Struct, frozen=True, kw_only=True):
    """A message of the library, as plain data; what it is about is in ``facts``."""

    at: float
    """Seconds since the world began."""
    level: str
    event: str
    facts: Mapping[str, str | int | float | bool | None]
    error: str = ""
    """What was raised, as ``TypeName: message``."""
    traceback: str = ""

    def __str__(self) -> str:
        told = " ".join(f"{name}={value!r}" for name, value in self.facts.items())
        text = f"{self.at:.3f} {self.level} {self.event} {told}".rstrip()
        return f"{text}: {self.error.splitlines()[0]}" if self.error else text


def new_log() -> deque[Logged]:
    """An empty log of bounded length."""
    return deque(maxlen=MAX_LOGGED)


class Logbook:
    """Takes what is logged, except for errors of injected faults (see ``History.injected``)."""

    def __init__(self, logged: deque[Logged], now: Callable[[], float]) -> None:
        self._logged = logged
        self._now = now

    def __call__(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        error = fields.get("exc_info")
        if any(map(_is_injected, (error, fields.get("error"), fields.get("reason")))):
            return
        what = Logged(
            at=self._time(), level=level, event=event,
            facts={name: _plain(value) for name, value in fields.items() if name not in _LEFT_OUT},
        )  # fmt: skip
        if isinstance(error, BaseException):
            # As text: an exception would keep alive all that its frames hold.
            told = "".join(traceback.format_exception(error))
            what = structs.replace(what, error=error_text(error), traceback=told)
        self._logged.append(what)

    def _time(self) -> float:
        try:
            return self._now()
        except RuntimeError:  # Between the rules of a machine: its loop stands still.
            return self._logged[-1].at if self._logged else 0.0


def _is_injected(problem: object) -> bool:
    if isinstance(problem, BaseExceptionGroup):
        return all(map(_is_injected, problem.exceptions))
    if isinstance(problem, BaseException):
        return problem.args == (INJECTED,)
    return isinstance(problem, str) and INJECTED in problem


def _plain(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    return (value if isinstance(value, str) else repr(value))[:MAX_FACT]
