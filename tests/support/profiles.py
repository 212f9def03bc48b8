"""How many examples Hypothesis draws: all of them where ``CI`` is set, a tenth for people."""

import os
from collections.abc import Sequence
from random import Random
from typing import Final, TypeVar

from hypothesis import settings

__all__ = ["DEV", "examples", "load_profile", "portion"]

T = TypeVar("T")

DEV: Final = "dev"
TENTH: Final = 10


def load_profile() -> None:
    """Choose ``dev`` where Hypothesis has not chosen ``ci`` itself, as it does where ``CI`` is set.

    Its ``ci`` draws the same examples every time.  ``dev`` draws others every time, so the search
    goes on wherever people work.  ``--hypothesis-profile`` has the last word.
    """
    settings.register_profile(DEV, settings.get_profile("default"), max_examples=10, deadline=None)
    if settings.get_current_profile_name() == "default":
        settings.load_profile(DEV)


def examples(number: int) -> int:
    """``number`` in CI, a tenth of it for people.

    For properties.  A test that has to find a planted bug says its number itself.
    """
    if settings.get_current_profile_name() == DEV:
        return max(number // TENTH, 1)
    return number


def portion(values: Sequence[T]) -> Sequence[T]:
    """All ``values`` in CI, every tenth of them for people, from another one on each time.

    For tests that try one place after the other: the commits of a story, the bytes of a file.
    """
    if settings.get_current_profile_name() == DEV:
        # All processes of a run must collect the same tests.
        chance = Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
        return values[chance.randrange(min(TENTH, len(values))) :: TENTH] if values else values
    return values
