"""``ArrayDumper``: lists of texts or numbers as the server's arrays, without a step for each.

A group of commits sends its rows column by column, so most of what goes to the server are elements
of arrays: psycopg looks at each of them by itself, which took more of a commit than all the rest.
"""

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.adapt import Dumper

__all__ = ["ArrayDumper"]

BETWEEN: Final = "\x1f"
"""Stands between texts until they are quoted; JSON never holds it as it is."""


class ArrayDumper(Dumper):
    """Writes a list of texts, numbers, truth values and ``None`` in PostgreSQL's notation.

    What type the elements have is said by the statement: by a cast, or a comparison.
    Raises ``psycopg.DataError`` for elements of other types, and for what no text may hold.
    """

    oid = 0

    def dump(self, obj: Sequence[Any]) -> bytes:
        kinds = set(map(type, obj))
        if kinds == {str}:
            elements = _texts(obj)
        elif kinds <= {int}:
            elements = ",".join(map(str, obj))
        else:
            elements = ",".join(map(_element, obj))
        return f"{{{elements}}}".encode()


def _texts(texts: Sequence[str]) -> str:
    joined = BETWEEN.join(texts)
    if joined.count(BETWEEN) >= len(texts):
        return ",".join(map(_quoted, texts))
    return _quoted(joined).replace(BETWEEN, '","')


def _quoted(text: str) -> str:
    if "\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int):  # Truth values are, too; PostgreSQL takes "true" and "false".
        return str(value).lower()
    raise psycopg.DataError(f"an array of PostgreSQL's holds no {type(value).__name__}")
