"""The files and the contents that events name, and what a name of a file is."""

import re
from collections.abc import Iterator
from typing import Final

from hubbub.hub.events.event import ContentPart, Event, FileRef

__all__ = [
    "MAX_FILE_BYTES", "MAX_PART", "file_problem", "files_of", "kept_contents", "parts_of",
    "path_problem",
]  # fmt: skip

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_PATH: Final = 1024
MAX_PART: Final = 255
"""Characters of a part of a path."""

_is_digest: Final = re.compile(r"[0-9a-f]{64}").fullmatch


def files_of(event: Event) -> Iterator[FileRef]:
    """Every file that an event names, in what it takes too."""
    yield from getattr(event, "files", ())
    for item in getattr(event, "items", ()):
        yield from getattr(item, "files", ())


def parts_of(event: Event) -> Iterator[ContentPart]:
    """Every part that an event has, in what it opens a run with and in what it takes, too."""
    yield from getattr(event, "parts", ())
    if (message := getattr(event, "message", None)) is not None:
        yield from getattr(message, "parts", ())
    for said in getattr(event, "history", ()):
        yield from said.parts
    for item in getattr(event, "items", ()):
        yield from parts_of(item)


def kept_contents(event: Event) -> Iterator[FileRef | ContentPart]:
    """Whatever of an event has a content that a store keeps, with its digest and its size."""
    yield from files_of(event)
    yield from (part for part in parts_of(event) if part.digest)


def path_problem(path: object) -> str:
    """Why ``path`` is no name of a file; empty when it is one."""
    if not isinstance(path, str):
        return f"a path is a text, not {type(path).__name__}"
    if not path or len(path) > MAX_PATH:
        return f"a path has 1 to {MAX_PATH} characters"
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "a path holds no control characters"
    if not path.isprintable() or "\ufffd" in path:
        return "a path holds printable characters only"
    if path[0] in "/\\" or "\\" in path:
        return "a path is relative, with '/' between its parts"
    if len(path) > 1 and path[1] == ":":
        return "a path begins with no drive letter"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return f"a path has no part {part!r}"
        if len(part) > MAX_PART:
            return f"a part of a path has at most {MAX_PART} characters"
    return ""


def file_problem(ref: FileRef) -> str:
    """Why a file reference is invalid; empty if it is valid."""
    if what := path_problem(ref.path):
        return f"it names a file {ref.path!r}; {what}"
    if not _is_digest(ref.digest):
        return f"it names a content {ref.digest!r}, which is not a digest"
    if not 0 <= ref.size <= MAX_FILE_BYTES:
        return f"it names a content of {ref.size} bytes"
    return ""
