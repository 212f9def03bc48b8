"""``TextReading``: a text read in some way, such as without its escapes, and where it comes from.

    text ──┬─► as it is
           ├─► without backslash escapes ──┬─► again in every way, ``MAX_DEPTH`` times
           ├─► without percent-encoding ───┤
           ├─► without entities of HTML ───┤
           ├─► without doubled quotes ─────┤
           └─► … ──────────────────────────┘

What this costs is bounded by ``MAX_WORK``, whatever the text.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from html.entities import html5
from itertools import accumulate
from typing import Final, TypeAlias

__all__ = ["TextReading", "as_bytes", "readings_of", "without_breaks"]

MAX_WORK: Final = 150_000
"""What may be replaced, or ``CHEAPER`` times as many bytes passed over, in all readings of one
text together: about a fifth of a second."""

CHEAPER: Final = 32

MAX_DEPTH: Final = 3
"""How many encodings may lie one in another, such as JSON in the ``repr`` of a URL's query."""


def as_bytes(text: str) -> bytes:
    """A text as UTF-8, half of a surrogate pair included."""
    return text.encode("utf-8", "surrogatepass")


class TextReading:
    """A text read in some way: what was replaced where, in the reading that it was made of.

    Where a part of it stands in the text is only looked up for what is found.
    """

    __slots__ = ("ends", "made", "made_ends", "of", "starts", "text")

    def __init__(self, text: bytes, of: "TextReading | None") -> None:
        self.text = text
        self.of = of
        self.made: list[int] = []
        """Where replacements begin in ``text``, in order, and beside them where they end."""
        self.made_ends: list[int] = []
        self.starts: list[int] = []
        """Where what they replace begins in ``of.text``, and beside it where it ends."""
        self.ends: list[int] = []

    def place(self, first: int, last: int) -> tuple[int, int]:
        """Where in the text what the bytes from ``first`` to ``last`` stand for begins and ends."""
        if self.of is None:
            return first, last + 1
        return self.of.place(self._source(first)[0], self._source(last)[1])

    def _source(self, at: int) -> tuple[int, int]:
        """The first and the last byte that one was made of."""
        index = bisect_right(self.made, at) - 1
        if index < 0:
            return at, at
        if at < self.made_ends[index]:
            return self.starts[index], self.ends[index] - 1
        at += self.ends[index] - self.made_ends[index]
        return at, at


class _Plain(TextReading):
    """A text as it is; of one that is not ASCII it is known to which character a byte belongs."""

    __slots__ = ("_characters",)

    def __init__(self, text: str) -> None:
        data = as_bytes(text)
        super().__init__(data, None)
        is_ascii = len(data) == len(text)
        self._characters = () if is_ascii else tuple(accumulate(data.translate(_BEGINS)))

    def place(self, first: int, last: int) -> tuple[int, int]:
        if not self._characters:
            return first, last + 1
        return self._characters[first] - 1, self._characters[last]


_BEGINS: Final = bytes(not 0x80 <= byte < 0xC0 for byte in range(256))
"""1 for a byte that begins a character in UTF-8."""

_Replace: TypeAlias = Callable[[re.Match[bytes]], bytes | None]

_PERCENT: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_FORM: Final = re.compile(rb"%([0-9A-Fa-f]{2})|\+")
_BREAK: Final = re.compile(rb"[\r\n]+[ \t]*")
_ESCAPE: Final = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})"
    rb"|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([\\'\"/abfnrtv]))"
)
_ENTITY: Final = re.compile(rb"&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]*));")
_QUOTES: Final = re.compile(rb"''|\"\"")
_SHELL: Final = re.compile(rb"'\"'\"'|'\\''")
_SIMPLE: Final = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def _from_percent(found: re.Match[bytes]) -> bytes:
    return bytes((int(found[1], 16),)) if found[1] else b" "


def _from_escape(found: re.Match[bytes]) -> bytes | None:
    """The character that an escape in a ``str`` or in JSON encodes."""
    if found[6]:
        return bytes((_SIMPLE.get(found[6][0], found[6][0]),))
    if found[1]:
        high, low = int(found[1], 16), int(found[2], 16)
        code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
    else:
        code = int(found[3] or found[4] or found[5], 16)
    return as_bytes(chr(code)) if code <= 0x10FFFF else None


def _from_byte_escape(found: re.Match[bytes]) -> bytes | None:
    """The byte that an escape in ``bytes`` encodes."""
    return bytes((int(found[5], 16),)) if found[5] else _from_escape(found)


def _from_entity(found: re.Match[bytes]) -> bytes | None:
    """The character that an entity of HTML or XML stands for."""
    if found[3]:
        named = html5.get(f"{found[3].decode()};")
        return None if named is None else named.encode()
    code = int(found[1]) if found[1] else int(found[2], 16)
    return as_bytes(chr(code)) if code <= 0x10FFFF else None


def _from_quotes(found: re.Match[bytes]) -> bytes:
    """One quote, which CSV and SQL double, and a shell ends its text for."""
    return found[0][:1]


_WAYS: Final[tuple[tuple[bytes, re.Pattern[bytes], _Replace], ...]] = (
    (b"\\", _ESCAPE, _from_escape),
    (b"%", _PERCENT, _from_percent),
    (b"\\x", _ESCAPE, _from_byte_escape),
    (b"+", _FORM, _from_percent),
    (b"&", _ENTITY, _from_entity),
    (b'""', _QUOTES, _from_quotes),
    (b"''", _QUOTES, _from_quotes),
    (b"'\"'\"'", _SHELL, _from_quotes),
    (b"'\\''", _SHELL, _from_quotes),
)


def readings_of(text: str) -> list[TextReading] | None:
    """``text`` as it is, and read in every way, and what that gives again.

    ``None`` for one that is too large for that.
    """
    first = _Plain(text)
    readings: list[TextReading] = [first]
    seen, work = {first.text}, 0
    at_hand: list[TextReading] = [first]
    for _ in range(MAX_DEPTH):
        made: list[TextReading] = []
        for reading in at_hand:
            for sign, pattern, replace in _WAYS:
                signs = reading.text.count(sign)
                if not signs:
                    continue
                work += signs + len(reading.text) // CHEAPER
                if work > MAX_WORK:
                    return None
                other = _read(reading, pattern, replace)
                if other.text not in seen:
                    seen.add(other.text)
                    made.append(other)
        readings += made
        at_hand = made
    return readings


def _read(reading: TextReading, pattern: re.Pattern[bytes], replace: _Replace) -> TextReading:
    text, other = reading.text, TextReading(b"", reading)
    parts: list[bytes] = []
    at = size = 0
    for found in pattern.finditer(text):
        new = replace(found)
        if new is None:
            continue
        start, end = found.span()
        size += start - at
        other.made.append(size)
        size += len(new)
        other.made_ends.append(size)
        other.starts.append(start)
        other.ends.append(end)
        parts += (text[at:start], new)
        at = end
    other.text = b"".join((*parts, text[at:]))
    return other


def without_breaks(reading: TextReading) -> TextReading:
    """The same without its line breaks and what indents the lines."""
    return _read(reading, _BREAK, lambda _: b"")
