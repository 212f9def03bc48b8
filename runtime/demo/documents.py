"""Finding and reading the text files of a folder, whatever it contains.

Everything here blocks, so it is called through ``Offload``.

* Looked at: every file below the folder, in the order of its path.  Passed over without a word:
  hidden names, ``node_modules``, ``__pycache__``, ``*.egg-info`` and virtual environments.
* *SkippedFile*, with a reason: binary files, what cannot be read, what is no regular file, links to
  nothing, to themselves or to folders.  Links to files are followed.  Nothing is opened that
  could block: pipes, sockets and devices are recognized by their kind.
* Text is UTF-8, UTF-16 or UTF-32 with a byte order mark, or else Latin-1; binary is what has a
  NUL byte, or is neither UTF-8 nor free of control characters, in its first 8 KiB.
* Bounded: ``MAX_DOCUMENTS`` text files, ``MAX_ENTRIES`` names looked at, and of each file the
  first ``MAX_BYTES``; each bound that was reached is reported.
* Names may be any bytes.  ``FoundDocument.path`` is for people: what cannot be printed, terminal
  escapes and text direction marks among it, is written ``\\x1b``.  ``FoundDocument.uri`` is exact.
"""

import codecs
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from msgspec import Struct

from hubbub.runtime.demo.facts import MarkdownFacts, markdown_facts, text_facts
from hubbub.runtime.text import CONTROLS, HEAD, MARKS, decode, printable, read_head

__all__ = [
    "MAX_BYTES",
    "MAX_DOCUMENTS",
    "MAX_ENTRIES",
    "DocumentFacts",
    "FoundDocument",
    "Listing",
    "SkippedFile",
    "document_facts",
    "is_document",
    "list_documents",
    "path_of",
    "read_text",
]

MAX_DOCUMENTS: Final = 10_000
MAX_ENTRIES: Final = 200_000
MAX_SKIPPED: Final = 1_000
"""SkippedFile files that are named; further ones are only counted."""
MAX_BYTES: Final = 1024 * 1024
"""Bytes read of each file; markdown-it needs up to 10 s for the worst text of this size."""
_MARKDOWN: Final = frozenset({".md", ".markdown", ".mdown", ".mkd"})
_PASSED_OVER: Final = frozenset({"node_modules", "__pycache__"})
_DOCUMENTS: Final = frozenset({"readme", "license", "copying", "changelog", "authors", "notice"})


class FoundDocument(Struct, frozen=True, kw_only=True):
    """A text file: its name for people, its exact address, its size."""

    path: str
    uri: str
    size: int


class SkippedFile(Struct, frozen=True, kw_only=True):
    """A file that is not read, and why."""

    path: str
    reason: str


class Listing(Struct, frozen=True, kw_only=True):
    """What a folder holds.  ``notes`` tell which bounds were met."""

    documents: tuple[FoundDocument, ...]
    skipped: tuple[SkippedFile, ...]
    skipped_count: int
    notes: tuple[str, ...] = ()


class DocumentFacts(Struct, frozen=True, kw_only=True):
    """What was found in one file; the counts are of the first ``bytes_read`` bytes.

    ``truncated`` says that the file is longer.  See ``document_facts`` for what is counted.
    """

    path: str
    kind: str
    encoding: str
    size: int
    bytes_read: int
    truncated: bool
    lines: int
    words: int
    longest_line: int
    longest_length: int
    headings: int
    links: int
    images: int
    broken_links: int
    broken: tuple[str, ...]


# ── finding ──────────────────────────────────────────────────────────────────────────────────


def list_documents(
    folder: Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    max_documents: int = MAX_DOCUMENTS,
    max_entries: int = MAX_ENTRIES,
) -> Listing:
    """Find the text files below ``folder`` whose names are ``wanted``.

    Never raises for what lies in the folder; a folder that cannot be listed is *skipped*.
    """
    root = os.path.abspath(folder)
    documents: list[FoundDocument] = []
    skipped: list[SkippedFile] = []
    notes: tuple[str, ...] = ()
    count = 0
    for number, (path, found) in enumerate(_walk(root, wanted)):
        name = printable(os.path.relpath(path, root))
        if isinstance(found, str):
            count += 1
            if len(skipped) < MAX_SKIPPED:
                skipped.append(SkippedFile(path=name, reason=found))
        elif len(documents) == max_documents:
            notes = (f"there are more than {max_documents:,} text files; the others are not read",)
            break
        else:
            documents.append(FoundDocument(path=name, uri=_uri(path), size=found))
        if number + 1 >= max_entries:
            notes = (f"only the first {max_entries:,} files were looked at",)
            break
    return Listing(
        documents=tuple(documents), skipped=tuple(skipped), skipped_count=count, notes=notes
    )


def is_document(name: str) -> bool:
    """Whether a name is that of a project's document: ``*.md``, ``*.txt``, README, LICENSE …"""
    stem, suffix = os.path.splitext(name.lower())
    return suffix in (".md", ".txt") or (not suffix and stem in _DOCUMENTS)


def _walk(root: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int | str]]:
    """Files below ``root`` with their size, or with the reason why they are skipped."""
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
        except OSError as error:
            yield folder, f"a folder that cannot be listed: {_words(error)}"
            continue
        if folder != root and "pyvenv.cfg" in names:
            continue
        below = []
        for name in names:
            if name.startswith(".") or name in _PASSED_OVER or name.endswith(".egg-info"):
                continue
            path = os.path.join(folder, name)
            found = _look(path)
            if found is None:
                below.append(path)
            elif wanted(name):
                yield path, found
        folders += reversed(below)


def _look(path: str) -> int | str | None:
    """The size of a text file, None for a folder, else why it is skipped."""
    is_link = os.path.islink(path)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return "a link to a folder" if is_link else None
        if not stat.S_ISREG(mode):
            return "not a regular file"
        head, size = read_head(path, HEAD)
    except OSError as error:
        if is_link and isinstance(error, FileNotFoundError):
            return "a link to nothing"
        return f"cannot be read: {_words(error)}"
    return "binary" if _is_binary(head) else size


def _is_binary(head: bytes) -> bool:
    if any(head.startswith(mark) for mark, _ in MARKS):
        return False
    if 0 in head:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return len(head) - len(head.translate(None, CONTROLS)) > 0
    return False


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def document_facts(document: FoundDocument, *, max_bytes: int = MAX_BYTES) -> DocumentFacts:
    """Read a document and count; raises ``OSError`` when it cannot be read any more."""
    path = path_of(document.uri)
    data, size = read_head(path, max_bytes)
    text, encoding = decode(data, is_whole=len(data) >= size)
    plain = text_facts(text)
    kind, marked = "text", MarkdownFacts()
    if os.path.splitext(path)[1].lower() in _MARKDOWN:
        home = os.path.dirname(path)
        kind = "markdown"
        marked = markdown_facts(text, lambda target: os.path.exists(os.path.join(home, target)))
    return DocumentFacts(
        path=document.path, kind=kind, encoding=encoding, size=size, bytes_read=len(data),
        truncated=len(data) < size, lines=plain.lines, words=plain.words,
        longest_line=plain.longest_line, longest_length=plain.longest_length,
        headings=marked.headings, links=marked.links, images=marked.images,
        broken_links=marked.broken_links, broken=tuple(map(printable, marked.broken)),
    )  # fmt: skip


def read_text(path: str, max_bytes: int) -> tuple[str, bool]:
    """The beginning of a text file, and whether that is all of it.

    Raises ``OSError``; ``ValueError`` for a binary file.
    """
    data, size = read_head(path, max_bytes)
    if _is_binary(data[:HEAD]):
        raise ValueError("a binary file")
    return decode(data, is_whole=len(data) >= size)[0], len(data) >= size


def path_of(uri: str) -> str:
    """The path that a document's ``uri`` stands for."""
    return os.fsdecode(unquote_to_bytes(uri.removeprefix("file://")))


def _uri(path: str) -> str:
    return "file://" + quote_from_bytes(os.fsencode(path))


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
