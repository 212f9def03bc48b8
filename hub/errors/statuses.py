"""What counts as the status of an answer over HTTP."""

from enum import IntEnum

from hubbub.hub.near_misses import shown

__all__ = ["checked_status"]


def checked_status(status: int | None) -> int | None:
    """A status as a plain number, as HTTP writes them: three digits; ``None`` where there was none.

    Raises ``TypeError`` for what is no number, ``ValueError`` for one of another size.
    """
    if status is None:
        return None
    if status.__class__ is not int and not isinstance(status, IntEnum):
        raise TypeError(f"status: expected a number such as 400, not {shown(status)}")
    if not 0 <= status <= 999:
        raise ValueError(f"status: expected three digits such as 400, not {shown(status)}")
    return int(status)
