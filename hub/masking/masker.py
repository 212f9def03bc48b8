"""``Masker``: texts and exceptions without the values of secrets.

What users' code and providers raise quotes what they were given, in whatever form it had just
then: in the ``repr`` of a dict, in JSON, in a URL, in a header.  So it is not the values that are
written in every form and looked for; the text is read in every way instead:

    text ──┬─► as it is ─────────────────┬─► which parts of it are a value, or a line of one,
           ├─► without backslash escapes ┤   or the base64, base32 or hex of it?
           ├─► without percent-encoding ─┤
           ├─► without entities of HTML  ┤
           ├─► without doubled quotes    ┤   (whatever separates its digits)
           └─► … and of these again      ┘   each part, where it is in the text  ──► ***

Rules
-----
* Values of six characters and more are found anywhere, shorter ones as whole tokens, blank ones
  not at all; of a value with several lines also each line of six characters and more.
* Of a value that was cut by who quotes it (``'sk-ant...9xQ'``, as pydantic and reprlib do) both
  ends are found beside the dots, from six characters on.
* A value that was cut without dots (``int`` quotes its first 200 characters) is found by its first
  ``BEGINNING`` bytes, and masked as far as it goes.
* Base64 is found at each of its three alignments, by the part that depends on the value alone;
  base32 so at its five.
* Hex is found in capitals, too, and with anything but digits of hex between its digits, as
  ``bytes.hex(":")``, a dump and an array of C show it.
* A text is masked before it is cut: half a value is no longer found.
* What it costs is bounded by ``MAX_CHARS`` and ``MAX_WORK``, whatever the text: of one that is
  too large to be read in every way, only a beginning that is not too large is left.

An exception is logged with its traceback, which shows the words of its causes, contexts, notes
and members as well: ``Masker.error`` makes one to be shown in its place (``exceptions``).
"""

import re
from array import array
from base64 import b32encode, b64encode
from collections.abc import Iterable, Iterator
from itertools import compress, islice, takewhile
from typing import Final, NamedTuple

from hubbub.hub.masking.exceptions import shown
from hubbub.hub.masking.readings import TextReading, as_bytes, readings_of, without_breaks

__all__ = ["LONG", "MASK", "MAX_CHARS", "Masker"]

MASK: Final = "***"
"""What replaces a secret."""

MAX_CHARS: Final = 1_100_000
"""How much of a text is looked at: the rest is cut off."""

SHORTER: Final = 4
"""By how much a text is cut, again and again, that comes to more."""

MAX_DOTS: Final = 2_000
"""So many dots of one reading are looked at, for values that were cut there."""

LONG: Final = 6
"""Characters from which on a value is looked for anywhere."""

BEGINNING: Final = 40
"""So many bytes are enough to know a longer value by, whatever follows them.  Tokens of one kind
share fewer; what cuts a value to quote it keeps more."""


class Masker:
    """Masks the given values.  Without any, what is given is returned as it is."""

    __slots__ = ("_digits", "_encoded", "_reach", "_values")

    def __init__(self, values: Iterable[str]) -> None:
        given = {value for value in values if value.strip()}
        for value in tuple(given):
            given.update(line.strip() for line in value.splitlines() if len(line.strip()) >= LONG)
        self._values: Final = [_Needle(as_bytes(each), len(each) < LONG) for each in given]
        self._encoded: Final = [needle for each in given for needle in _encodings(each)]
        self._digits: Final = [as_bytes(each).hex().encode() for each in given if len(each) >= LONG]
        longest = max((len(n.text) for n in self._values), default=0)
        self._reach: Final = max(min(longest * 12, 200_000), longest)
        """How far what has begun may continue: most characters are twelve at the most in a URL."""

    def __call__(self, text: str, limit: int = MAX_CHARS) -> str:
        """``text`` with ``***`` for each value; what begins after ``limit`` is cut off."""
        if not self._values:
            return text[:limit]
        window = text[: limit + self._reach]
        readings = readings_of(window)
        while readings is None:
            limit = min(limit, len(text)) // SHORTER
            if not limit:
                return MASK
            window = text[: limit + self._reach]
            readings = readings_of(window)
        parts: list[str] = []
        at = 0
        for start, end in _united(self._found(readings)):
            if start >= limit:
                break
            parts += (window[at:start], MASK)
            at = end
        return "".join((*parts, window[at:limit]))[:limit]

    def error(self, error: BaseException) -> BaseException:
        """``error`` as it may be shown with its traceback: itself, unless it quotes a value.

        Nor does what is returned hold what no log could write, nor call what a user wrote.
        """
        return shown(error, self)

    def _found(self, readings: Iterable["TextReading"]) -> Iterator[tuple[int, int]]:
        """Where values occur in what was read, in no order."""
        for reading in readings:
            yield from _places(reading, self._values)
            yield from _places(reading, self._encoded)
            yield from _in_hex(reading, self._digits)
            yield from _ends(reading, self._values)
            yield from _beginnings(reading, self._values)
            if b"\n" in reading.text:  # Base64 may be broken into lines.
                yield from _places(without_breaks(reading), self._encoded)


# ── what is looked for ───────────────────────────────────────────────────────────────────────


class _Needle(NamedTuple):
    """Bytes to look for; ``before`` and ``after`` are base64 that hangs on their neighbours."""

    text: bytes
    is_token: bool = False
    before: int = 0
    after: int = 0
    is_base64: bool = False


def _encodings(value: str) -> Iterator[_Needle]:
    """The base64 and base32 of a value, wherever it begins in what was encoded."""
    data = as_bytes(value)
    if len(value) < LONG:
        whole = b64encode(data).rstrip(b"=")
        for text in {whole, whole.translate(_URLSAFE)}:
            yield _Needle(text, True, is_base64=True)
        return
    for skipped in range(3):
        text, after = _own(b64encode(bytes(skipped) + data), skipped, data, 6)
        for each in {text, text.translate(_URLSAFE)}:
            yield _Needle(each, False, int(skipped > 0), after, is_base64=True)
    for skipped in range(5):
        text, after = _own(b32encode(bytes(skipped) + data), skipped, data, 5)
        for each in (text, text.lower()):
            yield _Needle(each, False, int(skipped > 0), after, is_base64=True)


def _own(whole: bytes, skipped: int, data: bytes, size: int) -> tuple[bytes, int]:
    """What of an encoding depends on ``data`` alone, and whether a character follows that
    does in part; each stands for ``size`` bits."""
    bits = 8 * (skipped + len(data))
    return whole[-(-8 * skipped // size) : bits // size], int(bits % size > 0)


_DOTS: Final = re.compile(rb"\.{2,}|\xe2\x80\xa6")
_PREFIX: Final = b"\0\0"
"""Stands in the place of ``0x``."""
_HEX: Final = b"0123456789abcdefABCDEF"
_LOWER: Final = bytes(range(256)).lower()
_NO_DIGITS: Final = bytes(range(256)).translate(None, _HEX)
_IS_DIGIT: Final = bytes(byte in _HEX for byte in range(256))
_URLSAFE: Final = bytes.maketrans(b"+/", b"-_")
_BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_WORD: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_" + bytes(range(128, 256))
)


def _places(reading: TextReading, needles: Iterable[_Needle]) -> Iterator[tuple[int, int]]:
    """Where needles occur in what a reading was made of."""
    text = reading.text
    for needle in needles:
        start = text.find(needle.text)
        while start >= 0:
            end = start + len(needle.text)
            if not needle.is_token or _is_token(text, start, end):
                first, last = start, end
                if needle.is_base64:
                    first, last = _widened(text, start, end, needle)
                yield reading.place(first, last - 1)
            start = text.find(needle.text, start + 1)


def _in_hex(reading: TextReading, needles: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Where digits of hex are needles, whatever else stands between them."""
    texts = [reading.text]
    if b"0x" in reading.text or b"0X" in reading.text:  # Its zero is a digit, too.
        texts.append(reading.text.replace(b"0x", _PREFIX).replace(b"0X", _PREFIX))
    for text in texts:
        digits = text.translate(_LOWER, _NO_DIGITS)
        found = [(at, needle) for needle in needles for at in _all(digits, needle)]
        if found:  # Only then: it costs more than all the rest.
            at_digits = array("L", compress(range(len(text)), text.translate(_IS_DIGIT)))
            for at, needle in found:
                first = at_digits[at]
                first -= len(_PREFIX) * text.startswith(_PREFIX, max(0, first - len(_PREFIX)))
                yield reading.place(first, at_digits[at + len(needle) - 1])


def _all(text: bytes, needle: bytes) -> Iterator[int]:
    """Where a needle begins."""
    start = text.find(needle)
    while start >= 0:
        yield start
        start = text.find(needle, start + 1)


def _ends(reading: TextReading, needles: Iterable[_Needle]) -> Iterator[tuple[int, int]]:
    """Where needles begin before dots, or end behind them."""
    text = reading.text
    dots = [(each.start(), each.end()) for each in islice(_DOTS.finditer(text), MAX_DOTS)]
    if not dots:
        return
    for value, is_token, *_ in needles:
        if is_token:
            continue
        head, tail, size = value[:LONG], value[-LONG:], len(value)
        for left, right in dots:
            start = text.find(head, max(0, left - size), left)
            while start >= 0 and text[start:left] != value[: left - start]:
                start = text.find(head, start + 1, left)
            if start >= 0:
                yield reading.place(start, left - 1)
            end = text.rfind(tail, right, right + size) + LONG
            while end >= right + LONG and text[right:end] != value[right - end :]:
                end = text.rfind(tail, right, end - 1) + LONG
            if end >= right + LONG:
                yield reading.place(right, end - 1)


def _beginnings(reading: TextReading, needles: Iterable[_Needle]) -> Iterator[tuple[int, int]]:
    """Where long needles begin, up to where the text goes on otherwise."""
    text = reading.text
    for value, *_ in needles:
        if len(value) <= BEGINNING:
            continue
        head = value[:BEGINNING]
        start = text.find(head)
        while start >= 0:
            size = BEGINNING
            rest = zip(text[start + size : start + len(value)], value[size:], strict=False)
            size += sum(takewhile(bool, (one == other for one, other in rest)))
            end = start + size
            yield reading.place(start, end - 1)
            start = text.find(head, end - BEGINNING + 1)


def _is_token(text: bytes, start: int, end: int) -> bool:
    is_joined = (start > 0 and text[start - 1] in _WORD) or (end < len(text) and text[end] in _WORD)
    return not is_joined


def _widened(text: bytes, start: int, end: int, needle: _Needle) -> tuple[int, int]:
    """The same with the characters that hold the rest of its bits, and the padding."""
    if needle.before and start and text[start - 1] in _BASE64:
        start -= 1
    if needle.after and end < len(text) and text[end] in _BASE64:
        end += 1
    while end < len(text) and text[end] == ord("="):
        end += 1
    return start, end


def _united(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same places in order, those that touch or overlap as one."""
    at: tuple[int, int] | None = None
    for start, end in sorted(places):
        if at is None:
            at = start, end
        elif start <= at[1]:
            at = at[0], max(at[1], end)
        else:
            yield at
            at = start, end
    if at is not None:
        yield at
