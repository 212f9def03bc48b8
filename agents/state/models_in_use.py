"""Which of its models a run asks: the fold of what has answered and what has failed.

A prompt may have several models, tried in order.  A run stays with the one that answers until that
fails for good; then the next is asked, after the last one the first.  In one step each is asked
once: when all have failed, the session has, and the next session begins with the first again.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["FIRST", "ModelsInUse", "answered_by", "begun", "given_up", "switched"]


class ModelsInUse(Struct, frozen=True, gc=False):
    """The place of the model that a run asks, in the list of each of its sides."""

    side_a: int = 0
    side_b: int = 0
    failed: int = 0
    """How many models have failed in the step that is due."""
    attempts: int = 0
    """The attempts of that step which other models than this have had."""
    may_accept: bool = False
    """Whether one that has failed in that step may accept the same another time."""

    def of(self, side: str) -> int:
        """The place of a side's model."""
        return self.side_a if side == "side_a" else self.side_b


FIRST: Final = ModelsInUse()


def switched(
    models: ModelsInUse, side: str, choice: int, attempt: int, *, may_accept: bool
) -> ModelsInUse:
    """The model has failed for good at this attempt, and another is asked."""
    return replace(
        _with(models, side, choice), failed=models.failed + 1, attempts=attempt,
        may_accept=models.may_accept or may_accept,
    )  # fmt: skip


def answered_by(models: ModelsInUse, side: str, choice: int) -> ModelsInUse:
    """The model at this place has answered: the next step is asked of it, too."""
    return replace(_with(models, side, choice), failed=0, attempts=0, may_accept=False)


def begun(models: ModelsInUse) -> ModelsInUse:
    """A new turn begins."""
    return replace(models, failed=0, attempts=0, may_accept=False)


def given_up(models: ModelsInUse, side: str) -> ModelsInUse:
    """All have failed, or another prompt is read: the first one is due again."""
    return replace(_with(models, side, 0), failed=0, attempts=0, may_accept=False)


def _with(models: ModelsInUse, side: str, choice: int) -> ModelsInUse:
    return replace(models, **{"side_a" if side == "side_a" else "side_b": choice})
