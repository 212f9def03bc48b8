"""``Heard``: what subscribers have heard, one after another, on record."""

import os
from pathlib import Path
from typing import Final, TypeAlias

from hubbub import Event

__all__ = ["Heard", "HeardEvent", "read_heard"]

HeardEvent: TypeAlias = tuple[str, str, int]
"""The run, the lane and the number of an event that a subscriber has seen."""

NOBODY: Final = "-"


class Heard:
    """A file with a line for each event; whoever opens it goes on where the last one came to."""

    def __init__(self, path: Path) -> None:
        lines = path.read_text().splitlines() if path.exists() else []
        self.cursor = lines[-1].split()[-1] if lines else "start"
        """After the last event in it."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, event: Event, cursor: str) -> None:
        line = f"{event.run_id or NOBODY} {event.lane} {event.seq} {cursor}\n"
        os.write(self._file, line.encode())
        self.cursor = cursor


def read_heard(path: Path) -> list[HeardEvent]:
    found = [line.split() for line in path.read_text().splitlines()]
    return [("" if run_id == NOBODY else run_id, lane, int(seq)) for run_id, lane, seq, _ in found]
