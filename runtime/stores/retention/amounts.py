"""Spans of time and sizes as people write them: ``30d``, ``90min``, ``10GB``."""

import re
from datetime import timedelta
from typing import Final, TypeAlias

from hubbub.hub.errors import BadValue
from hubbub.hub.values import LIMIT_OF_TIME, MAX_COUNT, check_counts, check_seconds

__all__ = ["Size", "Span", "bytes_of", "seconds_of"]

Span: TypeAlias = timedelta | float | str
"""How long: a ``timedelta``, seconds, or a text: ``30d``, ``12h``, ``90min``, ``8w``, ``45s``."""

Size: TypeAlias = int | str
"""How much: bytes, or a text: ``500MB``, ``10GB``."""

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d|w)", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)(|kB|MB|GB|TB)", re.ASCII)
_UNITS: Final = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SECONDS: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}


def seconds_of(what: str, span: Span) -> float:
    """A span in seconds.  Raises ``BadValue`` for what is none, or not above 0 and below ten years;
    ``what`` is what that calls it."""
    if isinstance(span, str):
        found = _SPAN.fullmatch(span)
        seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
        try:
            _check(what, seconds)
        except BadValue as error:
            wanted = "expected how long, above 0 and below 10 years: 30d, 12h, 90min, 8w"
            raise BadValue(f"{what} {span[:40]}", wanted) from error
        return seconds
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    _check(what, seconds)
    return seconds


def _check(what: str, seconds: float) -> None:
    check_seconds(what, seconds)
    if seconds == 0:
        raise BadValue(what, f"expected {LIMIT_OF_TIME}")


def bytes_of(what: str, size: Size, *, bare: bool = False) -> int:
    """A size in bytes.  Raises ``BadValue`` for what is none, or not above 0; ``what`` is what that
    calls it, and ``bare`` whether a text may be a number alone."""
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        count = int(float(found[1]) * _UNITS[found[2]]) if found else 0
        if not 0 < count <= MAX_COUNT or not (bare or (found and found[2])):
            wanted = f"expected how much, above 0: 500MB, 10GB{', 10000' if bare else ''}"
            raise BadValue(f"{what} {size[:40]}", wanted)
        return count
    check_counts(1, **{what: size})
    return size
