"""Values that nobody expects where they stand, and JSON documents with one of them inside."""

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["TEXTS", "VALUES", "mutated", "places"]

VALUES: Final[Sequence[Any]] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**63 - 1, 2**63, -(2**63), 2**70, 0.5, 1e308, "", "x",
    "..", "../../escape", "/etc/passwd", ".", "a/b", "null", "a\0b", "x" * 300, "é" * 100, "open",
    "ended", "own", "in", "hub", "user", [], [[]], {}, [0], [1, 1], [-1], [2**63], {"type": "user"},
    {"a": {"b": []}}, "{", "0" * 64, "../" * 20 + "etc/passwd", "\ufeff", "\u202e", "�",
)  # fmt: skip
"""Of every type; of every size; with a meaning elsewhere."""

DELETED: Final = object()

TEXTS: Final[Sequence[bytes]] = (
    b"", b"\n", b"\xef\xbb\xbf", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b'"\\ud800"', b"[" * 100_000,
    b'{"a":' * 50_000, b"x" * (1 << 20), b"null", b"[]", b"{}", b'{"line":"run"}', b"\r\n",
    b"NaN", b"1e999", b"-0", b'{"line":"end","lines":0}', b'{"line":"end","lines":0}\n{}',
)  # fmt: skip
"""What stands in the place of a line, or of a file."""


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a document a value stands, the document itself left out."""
    parts: Any = ()
    if isinstance(document, dict):
        parts = document.items()
    elif isinstance(document, list):
        parts = enumerate(document)
    for key, part in parts:
        yield (*path, key)
        yield from places(part, (*path, key))


def mutated(chance: random.Random, document: Any, others: Sequence[Any] = ()) -> Any:
    """A copy of a document with one value replaced, left out or doubled."""
    document = copy.deepcopy(document)
    at = chance.choice(list(places(document)))
    holder = document
    for key in at[:-1]:
        holder = holder[key]
    value = chance.choice((*VALUES, *others, *others, DELETED, DELETED, "unknown"))
    if value is DELETED:
        del holder[at[-1]]
    elif value == "unknown" and isinstance(holder, dict):
        holder[f"{at[-1]}2"] = holder[at[-1]]
    elif isinstance(holder[at[-1]], int) and not isinstance(value, str) and chance.random() < 0.3:
        holder[at[-1]] += chance.choice((-1, 1))
    else:
        holder[at[-1]] = value
    return document
