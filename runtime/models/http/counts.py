"""``counted``: a number of tokens as a provider says it."""

from hubbub.agents.model import MAX_TOKENS

__all__ = ["counted"]


def counted(tokens: int | None) -> int:
    """``tokens``; 0 where none are said, or a number that cannot be.

    An answer is not worth less for that its server cannot count.
    """
    return tokens if tokens is not None and 0 <= tokens < MAX_TOKENS else 0
