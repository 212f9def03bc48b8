"""Texts that come from outside, made fit to be shown or read."""

import codecs
import os
import re
import stat
from typing import Final

__all__ = [
    "CONTROLS",
    "HEAD",
    "MARKS",
    "decode",
    "printable",
    "printable_json",
    "read_head",
    "without_passwords",
]

HEAD: Final = 8192
MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROLS: Final = bytes({*range(0x20), 0x7F} - set(b"\t\n\f\r\b\x1b"))


def decode(data: bytes, *, is_whole: bool = True) -> tuple[str, str]:
    """Bytes as text, and the encoding they were read in; a character cut in two is left out."""
    for mark, encoding in MARKS:
        if data.startswith(mark):
            decoder = codecs.getincrementaldecoder(encoding)("replace")
            return decoder.decode(data, final=is_whole), encoding
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def read_head(path: str, limit: int) -> tuple[bytes, int]:
    """At most ``limit`` bytes of a regular file, and its size; never waits for a writer."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):  # It was one when it was listed.
            raise OSError("not a regular file")
        chunks = []
        while limit > 0 and (chunk := file.read(min(limit, 65536))):
            chunks.append(chunk)
            limit -= len(chunk)
    data = b"".join(chunks)
    # Files of /proc and the like have no honest size: where reading came to an end, that is it.
    return data, len(data) if limit else max(status.st_size, len(data))


# ── names ────────────────────────────────────────────────────────────────────────────────────


def printable(text: str) -> str:
    """``text`` on one line, safe to print anywhere: what cannot be printed is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def without_passwords(text: str) -> str:
    """``text`` without the passwords of the addresses in it, wherever their user has put them."""
    return _PASSWORD.sub(r"\1:…@", text)


def printable_json(text: str) -> str:
    """JSON that a terminal can be shown: its controls, and what turns the direction of a line, are
    escaped.  It means the same."""
    return text if text.isascii() and "\x7f" not in text else _CONTROL.sub(_as_json, text)


_CONTROL: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _as_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # A byte that is no UTF-8 (surrogateescape).
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape", "backslashreplace").decode()


_PASSWORD: Final = re.compile(r"""(\b[A-Za-z][\w+.-]*:/{1,2}[^\s:/@'"]*):[^\s'"]*@""")
"""A path has lost a slash."""
