"""Subscription patterns.

    "*"             every event
    "agent:start"   exactly this type
    "agent:*"       every type that begins with "agent:"
    ["a:b", "c:*"]  any of these, one delivery

``*`` stands alone or after a ``:`` at the end; anything else is refused.
"""

from collections.abc import Iterable
from typing import TypeAlias

from hubbub.hub.errors import BadPattern
from hubbub.hub.texts import check_label

__all__ = ["MAX_PATTERNS", "Pattern", "Patterns"]

Pattern: TypeAlias = str | Iterable[str]

MAX_PATTERNS = 1000


class Patterns:
    """A validated list of patterns."""

    __slots__ = ("everything", "exact", "prefixes")

    def __init__(self, pattern: Pattern) -> None:
        if not isinstance(pattern, str | Iterable):
            raise BadPattern(pattern)
        parts = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        if not parts or len(parts) > MAX_PATTERNS:
            raise BadPattern(pattern)
        for part in parts:
            if not isinstance(part, str) or not _is_valid(part):
                raise BadPattern(part)
            check_label("pattern", part)
        self.everything = "*" in parts
        self.exact = frozenset(part for part in parts if not part.endswith("*"))
        self.prefixes = tuple(part[:-1] for part in parts if part.endswith(":*"))

    def match(self, type_: str) -> bool:
        """Whether an event of this type is meant."""
        return self.everything or type_ in self.exact or type_.startswith(self.prefixes)

    @property
    def types(self) -> frozenset[str] | None:
        """The exact types, or ``None`` when the list has wildcards."""
        return None if self.everything or self.prefixes else self.exact


def _is_valid(part: str) -> bool:
    if part == "*":
        return True
    stem = part[:-1] if part.endswith(":*") else part
    return bool(stem.strip(":")) and "*" not in stem and part.split() == [part]
