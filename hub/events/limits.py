"""``Limits``: what a turn, a run or a tree of runs may use."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from hubbub.hub.errors import DefinitionError
from hubbub.hub.near_misses import shown, told_fields

__all__ = ["Limits"]

MOST: Final = 10**18
"""All limits are below it: more means nothing, and sums of what is used stay exact."""

_Count = Annotated[int, Meta(gt=0, lt=MOST)]
_Amount = Annotated[float, Meta(gt=0, lt=MOST)]


class Limits(Struct, metaclass=told_fields, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn, a run or a tree may use; where it is given says which of them.

    * ``input_tokens``, ``output_tokens``: of all its model calls.  The input is counted whole, with
      what the provider has read from its cache or written to it.
    * ``model_calls``: answers of models, summaries of long conversations included.
    * ``seconds``: at work, that is asking models and running tools.  Waiting for children or for
      people is no work.  Of code it is the time of its conversations with models, each by itself.
    * ``cost``: in the currency of ``Runtime(prices=…)``, without which it is refused.

    Reaching one of them ends the turn with the outcome ``limit``; the reason is the name of what
    is used up, such as ``turn.output_tokens`` or ``tree.cost``.  It is looked at between the steps
    of a turn, so that calls under way may use more; ``seconds`` cuts them short.

    Each is a number above 0 and below 10**18; leave out what is not to be limited.  Raises
    ``DefinitionError``.
    """

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    model_calls: _Count | None = None
    seconds: _Amount | None = None
    cost: _Amount | None = None

    def __post_init__(self) -> None:
        problems = [
            f"{name}: expected a whole number, at least 1 and below 10**18, not {shown(value)}"
            for name in ("input_tokens", "output_tokens", "model_calls")
            if not _is_count(value := getattr(self, name))
        ]
        problems += [
            f"{name}: expected a number above 0 and below 10**18, not {shown(value)}"
            for name in ("seconds", "cost")
            if not _is_amount(value := getattr(self, name))
        ]
        if problems:
            raise DefinitionError("Limits", problems)


def _is_count(value: object) -> bool:
    return value is None or (type(value) is int and 0 < value < MOST)


def _is_amount(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < MOST
