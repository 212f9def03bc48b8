"""``TakeOvers``: how long the trees of workers that were ended had nobody to drive them."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

__all__ = ["Disturbance", "TakeOvers"]

Disturbance: TypeAlias = tuple[float, float]
"""Since when something was wrong with the network or the server, and until when."""


class TakeOvers:
    """What ``owner_watch`` knows of workers that were ended, each at some time.

    A tree is somebody else's a lease and ``spare`` after its worker has ended, and after whatever
    kept the others from it meanwhile: one that was stopped may have stood in everybody's way, a
    lease long; connections may have been gone; and a server that began anew gives each lease its
    whole time again.
    """

    def __init__(
        self, db: Any, ends: Sequence[tuple[str, float]], disturbances: Sequence[Disturbance],
        ttl: float, spare: float,
    ) -> None:  # fmt: skip
        self._ends, self._disturbances = ends, disturbances
        self._bound = ttl + spare
        self.alone: list[float] = []
        """Seconds, each of a tree, where nothing else happened meanwhile."""
        self.late: list[str] = []
        """Problems."""
        for name, at in ends:
            for (when,) in db.execute(_TAKEN_OVER, (name, at)):
                if when is not None:
                    self._note(name, at, float(when))

    def _note(self, name: str, at: float, when: float) -> None:
        others = [end for _, end in self._ends if at < end < when]
        others += [min(end, when) for start, end in self._disturbances if at < end and start < when]
        if not others:
            self.alone.append(when - at)
        seconds = when - max([at, *others])
        if seconds > self._bound:
            after = f", {seconds:.2f} s after something else" if others else ""
            self.late.append(f"a tree of {name} was taken over after {when - at:.2f} s{after}")


_TAKEN_OVER: Final = """
SELECT (
  SELECT extract(epoch FROM min(later.at)) FROM owner_watch AS later
  WHERE later.root = mine.root AND later.number > mine.number AND later.owner <> mine.owner
)
FROM owner_watch AS mine JOIN worker ON worker.id = mine.owner
WHERE worker.name = ?1 AND extract(epoch FROM mine.at) <= ?2::float8 AND mine.number = (
  SELECT max(number) FROM owner_watch
  WHERE root = mine.root AND extract(epoch FROM at) <= ?2::float8
)
"""
