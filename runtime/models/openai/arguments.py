"""``GrowingArguments``: the arguments of a call as they come, read once each.  Pure."""

import re
from typing import Final

import msgspec

from hubbub.agents.model import parse_arguments

__all__ = ["GrowingArguments"]

_OUTSIDE: Final = re.compile(r'["{}\[\]]')
_INSIDE: Final = re.compile(r'["\\]')
_BLANK: Final = " \t\r\n"


class GrowingArguments:
    """Pieces of JSON, and whether they are an object by now.

    Only brackets are followed as it grows; it is parsed once, where they have been closed.
    """

    __slots__ = (
        "_depth",
        "_escapes",
        "_followed",
        "_in_text",
        "_is_closed",
        "_is_whole",
        "_pieces",
    )

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._followed = 0
        """How many pieces have been followed."""
        self._depth = 0
        self._in_text = self._escapes = False
        """Whether a piece ends within a text, and behind a backslash."""
        self._is_closed = False
        self._is_whole: bool | None = None
        """What parsing has found since the brackets were closed."""

    def add(self, piece: str) -> None:
        """What comes next."""
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        """All that has come."""
        return "".join(self._pieces)

    @property
    def is_whole(self) -> bool:
        """Whether it is an object, with nothing behind it."""
        for piece in self._pieces[self._followed :]:
            if not self._is_closed:
                self._follow(piece)
            elif piece.strip(_BLANK):
                self._is_whole = False
        self._followed = len(self._pieces)
        if self._is_closed and self._is_whole is None:
            self._is_whole = _is_object(self.text)
        return bool(self._is_whole)

    def _follow(self, piece: str) -> None:
        at = 0
        while at < len(piece) and not self._is_closed:
            if self._escapes:
                self._escapes = False
                at += 1
                continue
            found = (_INSIDE if self._in_text else _OUTSIDE).search(piece, at)
            if found is None:
                return
            at = found.end()
            match found[0]:
                case '"':
                    self._in_text = not self._in_text
                case "\\":
                    self._escapes = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    self._is_closed = self._depth <= 0


def _is_object(text: str) -> bool:
    try:
        parse_arguments(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
