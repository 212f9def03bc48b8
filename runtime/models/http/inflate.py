"""``Inflater``: an answer's bytes, in pieces of bounded size, whatever it was compressed with.

Nothing compressed is asked for; some servers and proxies send it all the same.  A few bytes may
hold millions of others, which nobody can read in one go without holding up the event loop.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from hubbub.hub.errors.copied import CopiedWhole

__all__ = ["PIECE_BYTES", "CannotInflate", "Inflater"]

PIECE_BYTES: Final = 64 * 1024
"""The most that one piece holds of what was compressed."""

HEADER_BYTES: Final = 2
"""By so many the formats can be told apart."""

_PLAIN: Final = ("", "identity")
_KNOWN: Final = ("gzip", "x-gzip", "deflate")
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS + 32


class CannotInflate(CopiedWhole, Exception):
    """The answer is damaged, or compressed in a way that nobody asked for."""


class Inflater:
    """Takes chunks as they come, gives pieces as they were before they were compressed."""

    __slots__ = ("_head", "_is_plain", "_zip")

    def __init__(self, encoding: str) -> None:
        """``encoding``: the value of ``content-encoding``; raises ``CannotInflate``."""
        name = encoding.strip().lower()
        if name not in _PLAIN and name not in _KNOWN:
            raise CannotInflate(f"the answer is compressed ({name[:40]}), which was not asked for")
        self._is_plain = name in _PLAIN
        self._zip = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._head: bytes | None = b""
        """What has come of the header; nothing once it is known."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """What ``chunk`` adds, piece by piece; raises ``CannotInflate``."""
        if self._is_plain:
            yield chunk
            return
        if self._head is not None:
            chunk = self._head = self._head + chunk
            if len(chunk) < HEADER_BYTES:
                return
            self._head = None
            self._begin(chunk)
        try:
            while chunk:
                if piece := self._zip.decompress(chunk, PIECE_BYTES):
                    yield piece
                chunk = self._zip.unconsumed_tail
                if self._zip.eof:
                    chunk = self._zip.unused_data
                    if chunk:  # Another member, as gzip allows.
                        self._zip = zlib.decompressobj(_GZIP_OR_ZLIB)
        except zlib.error:
            raise CannotInflate("the compressed answer is damaged") from None

    def _begin(self, chunk: bytes) -> None:
        """Some servers mean by "deflate" the bare format, without a header."""
        try:
            zlib.decompressobj(_GZIP_OR_ZLIB).decompress(chunk[:HEADER_BYTES], 1)
        except zlib.error:
            self._zip = zlib.decompressobj(-zlib.MAX_WBITS)
