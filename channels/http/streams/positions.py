"""Positions: the hub's cursors as a client is given them, keeps them and sends them back.

A cursor may name whatever an event names itself by, line breaks included; a position is one word
of ASCII that an ``id:``, a header and a query take as it is.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

from hubbub.hub.texts import label_problem

__all__ = ["cursor_of_position", "position_of"]

_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")

_is_plain: Final = re.compile(r"[!-$&-~]*").fullmatch

UNREADABLE: Final = "unreadable"
"""A cursor that no store can place, in the place of what is none."""


def position_of(cursor: str) -> str:
    """The position that stands for a cursor."""
    return cursor if _is_plain(cursor) else quote(cursor, safe=_PLAIN)


def cursor_of_position(position: str) -> str:
    """The cursor that a position stands for; for any other text one that no store can place."""
    cursor = unquote(position)
    return UNREADABLE if label_problem(cursor) else cursor
