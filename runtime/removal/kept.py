"""``KeptTrees``: what should go and could not, and when it is tried again.

could not be removed, is damaged      ─► a later pass, after twice as long each time
cannot be read, its folders hinder it ─► each pass: finding that out costs little
"""

from typing import Final

from msgspec import Struct

from hubbub.hub.logs import log
from hubbub.hub.ports import Clock
from hubbub.hub.store.store import Removed

__all__ = ["KeptTrees"]

MAX_TOLD: Final = 1_000
"""Trees that cannot go of which is remembered that they were told."""

LONGEST: Final = 3_600.0
"""After so many seconds, at the latest, it is tried again, unless passes are rarer."""


class _Kept(Struct):
    due: float = 0.0
    wait: float = 0.0


class KeptTrees:
    """What the passes of one runtime were to have go and could not."""

    def __init__(self, removed: Removed, clock: Clock, seconds_between: float) -> None:
        self._removed = removed
        self._clock = clock
        self._shortest = 2 * seconds_between
        self._kept: dict[str, _Kept] = {}

    def keep(self, problem: str, root: str = "", *, is_tried: bool = False) -> None:
        """A tree, or a content, stays although it should go: say so, once.  ``is_tried``: by each
        pass."""
        about = root or problem
        kept = self._kept.get(about)
        if kept is None:
            kept = _Kept()
            self._removed.problems += 1
            if len(self._kept) < MAX_TOLD:
                self._kept[about] = kept
            log.warning("retention.kept", run_id=root, problem=problem)
        if not is_tried:
            kept.wait = min(max(LONGEST, self._shortest), max(self._shortest, 2 * kept.wait))
            kept.due = self._clock.monotonic() + kept.wait

    def is_due(self, root: str) -> bool:
        """Whether a tree is to be tried, which may be one of these."""
        kept = self._kept.get(root)
        return kept is None or kept.due <= self._clock.monotonic()

    def has_gone(self, root: str) -> None:
        """A tree is not there any more."""
        self._kept.pop(root, None)
