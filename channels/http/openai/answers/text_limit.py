"""``TextLimit``: how much of an answer's text its client wants to be told.

An agent is not told of it: it says what it says, and a conversation has all of it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["TextLimit"]

_WORD: Final = re.compile(r"\S+")


class TextLimit:
    """At most so many words as tokens are asked for (a word takes at least one), and nothing from
    the first of the texts on at which the client wants it to stop."""

    __slots__ = ("_is_stopped", "_room", "_stops", "is_cut")

    def __init__(self, notes: Mapping[str, Any]) -> None:
        most, stops = notes.get("max_output_tokens"), notes.get("stop")
        self._room: int | None = most if isinstance(most, int) else None
        self._stops: tuple[str, ...] = tuple(stops) if isinstance(stops, list) else ()
        self._is_stopped = False
        self.is_cut = False
        """Whether there was more text than the client asked for."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be told."""
        return self._is_stopped or self.is_cut

    def allowed(self, text: str) -> str:
        """What may be told of the beginning of a text; for a longer one it may be more."""
        if self._is_stopped:
            return ""
        end = self._stop_in(text)
        if end is None:
            longest = max(map(len, self._stops), default=1)
            end = len(text) - longest + 1  # The rest may begin one.
        return self._words_of(text[: max(0, end)])

    def take(self, text: str) -> str:
        """What is told of a whole text."""
        if self._is_stopped:
            return ""
        end = self._stop_in(text)
        whole = text[:end]
        told = self._words_of(whole)
        self._is_stopped = end is not None
        self.is_cut = self.is_cut or len(told) < len(whole)
        if self._room is not None:
            self._room -= len(told.split())
        return told

    def _stop_in(self, text: str) -> int | None:
        found = [at for at in map(text.find, self._stops) if at >= 0]
        return min(found, default=None)

    def _words_of(self, text: str) -> str:
        """The text up to where the first word too many begins."""
        most = self._room
        if most is None or len(text) < 2 * most:
            return text
        for at, word in enumerate(_WORD.finditer(text)):
            if at == most:
                return text[: word.start()]
        return text
