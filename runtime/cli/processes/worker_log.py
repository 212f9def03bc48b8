"""``WorkerLog``: what a worker says of itself, a line each, for people or for machines.

    2026-11-23T16:12:01Z claimed 12 trees
    {"time": "2026-11-23T16:12:01Z", "event": "trees.claimed", "level": "info", "count": 12}

For people that is what becomes of its trees and of the way to its store; for machines everything
that the library logs from ``info`` on.  Warnings and failures go to stderr where lines are for
people.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from hubbub.hub.events.moments import shown_moment
from hubbub.hub.ports import Clock
from hubbub.runtime.cli.printing import CommandScreen
from hubbub.runtime.text import printable

__all__ = ["WorkerLog"]

SAID: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "trees.claimed": lambda fields: f"claimed {_trees(fields)}",
    "trees.handed_over": lambda fields: f"handed over {_trees(fields)}",
    "trees.lost": lambda fields: (
        f"lost {_trees(fields)}: the lease was over, so others may drive them"
    ),
    "store.waits": lambda fields: (
        f"waiting for the store, for up to {fields['patience']:g} s: {fields['problem']}"
    ),
    "store.back": lambda fields: f"the store is back after {fields['waited']:g} s",
    "retention.passed": lambda fields: (
        f"removed so far: {_trees({'count': fields['trees']})}, {fields['events']:,} events; "
        f"ended for silence: {fields['silent']:,}"
    ),
    "store.failed": lambda fields: f"the store has failed: {fields['problem']}",
}
"""What is logged that people want to see of a worker, in words."""


class WorkerLog(logging.Handler):
    """Takes what the library logs, from any thread."""

    def __init__(self, screen: CommandScreen, clock: Clock, *, as_json: bool) -> None:
        super().__init__(logging.INFO)
        self._screen = screen
        self._clock = clock
        self._as_json = as_json
        self.setFormatter(logging.Formatter("%(message)s"))

    def say(self, event: str, words: str, **fields: Any) -> None:
        """Say something that is not logged: in ``words``, or as an event with its fields."""
        if self._as_json:
            self._write(event, "info", fields)
        else:
            self._screen.write(f"{self._now()} {printable(words)}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Say what is logged within."""
        logger = logging.getLogger("hubbub")
        before = logger.level
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.setLevel(before)
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        event = str(getattr(record, "hubbub_event", record.getMessage()))
        fields = dict(getattr(record, "hubbub_fields", {}))
        if self._as_json:
            if record.exc_info:
                fields["exception"] = logging.Formatter().formatException(record.exc_info)
            self._write(event, record.levelname.lower(), fields)
        elif event in SAID:
            self._screen.write(f"{self._now()} {printable(SAID[event](fields))}")
        elif record.levelno >= logging.WARNING:
            self._screen.notice(self.format(record))

    def _write(self, event: str, level: str, fields: Mapping[str, Any]) -> None:
        line = {"time": self._now(), "event": event, "level": level, **fields}
        self._screen.write(msgspec.json.encode(line, enc_hook=str).decode())

    def _now(self) -> str:
        return shown_moment(self._clock.now())


def _trees(fields: Mapping[str, Any]) -> str:
    count = fields["count"]
    return "1 tree" if count == 1 else f"{count:,} trees"
