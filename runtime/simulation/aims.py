"""``aim``: what Hypothesis is to seek more of, where a world is played under it."""

import sys
from itertools import pairwise

from hubbub.hub import events as e
from hubbub.runtime.simulation.history import History

__all__ = ["aim", "depth_of", "interleavings_of"]


def aim(history: History) -> None:
    """Have Hypothesis look for deeper trees and for more interleavings (``hypothesis.target``).

    Outside of a test of Hypothesis, and without Hypothesis, it does nothing.  Once an example:
    Hypothesis refuses a second time.
    """
    hypothesis = sys.modules.get("hypothesis")  # Who uses it has imported it.
    if hypothesis is not None and hypothesis.currently_in_test_context():
        hypothesis.target(float(depth_of(history)), label="depth of the deepest tree")
        hypothesis.target(float(interleavings_of(history)), label="interleavings")


def depth_of(history: History) -> int:
    """How deep the deepest tree of runs is; 0 is a root alone."""
    openings = (x for x in history.events if isinstance(x, e.SessionOpen))
    return max((x.depth for x in openings), default=0)


def interleavings_of(history: History) -> int:
    """How often another run comes to a word, in what listeners were told."""
    runs = [each.event.run_id for each in history.heard if each.event.lane]
    return sum(one != two for one, two in pairwise(runs))
