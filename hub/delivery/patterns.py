"""Subscription patterns.

    "*"             every event
    "agent:start"   exactly this type
    "agent:*"       every type that begins with "agent:"
    ["a:b", "c:*"]  any of these, one delivery

``*`` stands alone or after a ``:`` at the end; anything else is refused.  Of ``agent:``,
``session:``, ``hub:`` and ``schedule:`` all types are known: what is nearly one of them, and none,
is refused, too, and so is one of them with other signs between its words.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias

from hubbub.hub.errors import BadPattern
from hubbub.hub.events import KNOWN_TYPES
from hubbub.hub.near_misses import nearest
from hubbub.hub.texts import check_label

__all__ = ["MAX_PATTERNS", "Pattern", "Patterns"]

Pattern: TypeAlias = str | Iterable[str]

MAX_PATTERNS = 1000

_OWN: Final = frozenset(("agent", "session", "hub", "schedule"))
"""Where every type is the library's own."""

NEAR: Final = 0.7
"""How like a known pattern another one must be to be a mistake for it."""


class Patterns:
    """A validated list of patterns."""

    __slots__ = ("everything", "exact", "prefixes", "unmatched")

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
            if (meant := _misspelt(part)) is not None:
                raise BadPattern(part, meant)
        self.unmatched = tuple(part for part in parts if _is_unheard_of(part))
        """Those that no event of the library has, although it would be the library's."""
        for part in self.unmatched:
            if (meant := _meant(part)) is not None:
                raise BadPattern(part, meant)
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


def _misspelt(part: str) -> str | None:
    """The known type that this is with other signs, or none, between its words: ``agent.text``,
    ``agent_text``, ``AgentText``."""
    if part in KNOWN_TYPES or part.partition(":")[0] in _OWN:
        return None
    return _known_words().get(_words(part))


@cache
def _known_words() -> dict[str, str]:
    return {_words(each): each for each in KNOWN_TYPES}


def _words(part: str) -> str:
    return "".join(each for each in part.lower() if each.isalnum())


def _is_unheard_of(part: str) -> bool:
    if part in KNOWN_TYPES or part.partition(":")[0] not in _OWN:
        return False
    stem = part.removesuffix("*")
    return stem == part or not any(each.startswith(stem) for each in KNOWN_TYPES)


def _meant(part: str) -> str | None:
    """The known pattern that is most like it; what stands before the first ``:`` is no likeness."""
    own, _, rest = part.partition(":")
    known: dict[str, str] = {}
    for each in sorted(KNOWN_TYPES):
        names = each.split(":")
        if names[0] == own:
            known[":".join(names[1:])] = each
            if len(names) > 2:
                known[f"{names[1]}:*"] = f"{own}:{names[1]}:*"
    found = nearest(rest, known, likeness=NEAR)
    return None if found is None else known[found]
