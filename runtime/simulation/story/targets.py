"""What a world tells Hypothesis when played in its test: what to maximise, and what to print.

Nothing of this does anything outside of a test of Hypothesis, or without Hypothesis.
"""

import sys
from itertools import pairwise
from typing import Any, Final

from hubbub.hub import events as e
from hubbub.runtime.simulation.story.history import History

__all__ = ["depth_of", "interleavings_of", "note", "set_targets"]

# Users have labels of their own, and none may be given twice in one example.
DEPTH: Final = "hubbub: depth of the deepest tree"
INTERLEAVINGS: Final = "hubbub: interleavings"


def set_targets(history: History) -> None:
    """Have Hypothesis look for deeper trees and for more interleavings (``hypothesis.target``).

    Of the worlds of one example the first one counts; the others are ignored.
    """
    if (hypothesis := _hypothesis()) is None:
        return
    for label, score in ((DEPTH, depth_of(history)), (INTERLEAVINGS, interleavings_of(history))):
        try:
            hypothesis.target(float(score), label=label)
        except hypothesis.errors.InvalidArgument:
            return  # It has the scores of this example.


def note(text: str) -> None:
    """Have Hypothesis print ``text`` with the failure that it has found, if this leads to one."""
    if (hypothesis := _hypothesis()) is not None:
        hypothesis.note(text)


def _hypothesis() -> Any:
    """Hypothesis, in one of its tests."""
    hypothesis = sys.modules.get("hypothesis")  # Who uses it has imported it.
    if hypothesis is None or not hypothesis.currently_in_test_context():
        return None
    return hypothesis


def depth_of(history: History) -> int:
    """How deep the deepest tree of runs is; 0 is a root alone."""
    openings = (x for x in history.events if isinstance(x, e.SessionOpen))
    return max((x.depth for x in openings), default=0)


def interleavings_of(history: History) -> int:
    """How often successive events that listeners got are of different runs."""
    runs = [each.event.run_id for each in history.heard if each.event.lane]
    return sum(one != two for one, two in pairwise(runs))
