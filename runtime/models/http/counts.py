"""``counted``: a number of tokens as a provider says it."""

from typing import Any

from hubbub.agents.model import MAX_TOKENS

__all__ = ["counted"]


def counted(usage: Any, *path: str) -> int:
    """What ``usage`` says there; 0 where it says nothing, or what can be no number of tokens.

    An answer is not worth less for that its server cannot count.
    """
    for key in path:
        usage = usage.get(key) if isinstance(usage, dict) else None
    if isinstance(usage, bool) or not isinstance(usage, int | float):
        return 0
    return int(usage) if 0 <= usage < MAX_TOKENS and usage == int(usage) else 0
