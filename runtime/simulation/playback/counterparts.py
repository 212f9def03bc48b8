"""``Counterparts``: which run of now is which of a recording, and its questions and requests.

What is played again gets ids of its own.  Whatever a recording says is said in the ids of now
(``as_now``), so that a model's call of a child by its reference finds that child.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event, encode_event

__all__ = ["Counterparts", "renaming"]

T = TypeVar("T", bound=Struct | str | bytes)


def renaming(names: Mapping[str, str]) -> Callable[[str], str]:
    """A function that replaces the ids in a text by ``names``, the longest id first."""
    # Ids of questions begin with that of their run.
    ids = sorted(names, key=lambda each: (-len(each), each))
    pattern = re.compile("|".join(map(re.escape, ids)) or "(?!)")
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


class Counterparts:
    """Ids of a recording and of its playing, in pairs, as they become known."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}
        self._then: dict[str, str] = {}
        self._renamed: Callable[[str], str] | None = None

    def meet(self, then: str, now: str) -> None:
        """Note that ``now`` is the counterpart of ``then``."""
        self._now[then] = now
        self._then[now] = then
        self._renamed = None

    def now_of(self, then: str) -> str | None:
        """The id of now, if its counterpart has begun."""
        return self._now.get(then)

    def then_of(self, now: str) -> str | None:
        """The id in the recording, if it is there."""
        return self._then.get(now)

    def pairs(self) -> Iterable[tuple[str, str]]:
        """The pairs of ids: in the recording, and now."""
        return self._now.items()

    def as_now(self, said: T) -> T:
        """A value of the recording, with every id in it replaced by that of now."""
        match said:
            case str():
                return cast("T", self._as_now(said))
            case bytes():
                return cast("T", self._as_now(said.decode("latin-1")).encode("latin-1"))
            case Event():
                return cast("T", decode_event(self._as_now(encode_event(said).decode())))
            case _:
                text = self._as_now(msgspec.json.encode(said).decode())
                return msgspec.json.decode(text, type=type(said))

    def _as_now(self, text: str) -> str:
        if self._renamed is None:
            self._renamed = renaming({a: b for a, b in self._now.items() if a != b})
        return self._renamed(text)
