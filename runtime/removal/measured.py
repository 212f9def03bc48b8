"""``MeasuredEvents``: how many bytes the events of a store take; a life looks at each once."""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.removal.imported import StoreLook
from hubbub.runtime.stores.retention.trees import EventSize, size_of_runs, sizes_after

__all__ = ["MeasuredEvents"]

RUNS: Final = 1_000
"""Runs that are looked for together."""


class MeasuredEvents:
    """``keeps_all``: whether nothing leaves the store but what a retention has go; else it is
    remembered how much each run takes."""

    def __init__(self, *, keeps_all: bool) -> None:
        self.size = 0
        self._keeps_all = keeps_all
        self._counted = 0
        """The position up to which events were looked at."""
        self._runs: dict[str, int] = {}
        self._hub: deque[tuple[int, int]] = deque()
        """Of the events in the hub's own lane their positions and sizes."""

    async def measure(self, look: StoreLook, tip: int) -> None:
        """Look at what was written since, and leave out what has left the store."""
        while self._counted < tip:
            sizes, place = await look(partial(sizes_after, after=self._counted))
            if place == self._counted:
                break
            self._add(sizes)
            self._counted = place
        if not self._keeps_all:
            known = [*self._runs]
            for first in range(0, len(known), RUNS):
                runs = known[first : first + RUNS]
                self._leave_out(await look(partial(_missing, run_ids=runs)))
            while self._hub and not await look(partial(_has, position=self._hub[0][0])):
                self.size -= self._hub.popleft()[1]

    async def size_of(self, look: StoreLook, run_ids: Sequence[str]) -> int:
        """How much of ``size`` some runs take."""
        if not self._keeps_all:
            return sum(self._runs.get(run_id, 0) for run_id in run_ids)
        return await look(partial(size_of_runs, run_ids=run_ids, until=self._counted))

    @property
    def counted(self) -> int:
        """The position up to which events are counted."""
        return self._counted

    def cut(self, run_id: str, size: int) -> None:
        """Events of a run that are counted, and take so much, have gone."""
        self.size -= size
        if not self._keeps_all:
            self._runs[run_id] = self._runs.get(run_id, 0) - size

    def gone(self, run_ids: Sequence[str], size: int) -> None:
        """Runs that take so much have gone."""
        if self._keeps_all:
            self.size -= size
        else:
            self._leave_out(run_ids)

    def _add(self, sizes: Iterable[EventSize]) -> None:
        for run_id, position, size in sizes:
            self.size += size
            if self._keeps_all:
                continue
            if run_id:
                self._runs[run_id] = self._runs.get(run_id, 0) + size
            else:
                self._hub.append((position, size))

    def _leave_out(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self.size -= self._runs.pop(run_id, 0)


def _missing(store: StoreReader, run_ids: Iterable[str]) -> list[str]:
    return [run_id for run_id in run_ids if store.row(run_id) is None]


def _has(store: StoreReader, position: int) -> bool:
    return any(store.event_rows(after=position - 1, until=position))
