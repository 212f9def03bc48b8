"""Facts about one text: lines, words, headings, links, broken relative links.  No file is read.

What is counted
---------------
* A line ends with ``\\n``, ``\\r\\n`` or ``\\r``; the last one need not.  The longest line is the
  first of those with the most characters.
* A word is what stands between white space, as ``wc -w`` counts.
* Headings, links and images are CommonMark's (with tables), so nothing inside code spans, fences
  or HTML counts: ATX and setext headings, inline, reference and ``<…>`` links.  A YAML block at
  the very beginning is not part of the document.
* A link or image is *broken* when its target is a relative path to nothing.  Percent-escapes are
  decoded, query and fragment cut off.  URLs, bare anchors and paths from ``/`` are not relative.
"""

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec import Struct

from hubbub.hub.errors import MissingExtra

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["MAX_TARGETS", "MarkdownFacts", "TextFacts", "markdown_facts", "text_facts"]

MAX_TARGETS: Final = 20
"""Broken targets that are named; further ones are only counted."""

_newlines = re.compile(r"\r\n?")
_front_matter_line = re.compile(r"[\w-]+[ \t]*:|[ \t#-]|$")


class TextFacts(Struct, frozen=True, kw_only=True):
    """What any text has.  ``longest_line`` is a line number from 1, 0 for an empty text."""

    lines: int
    words: int
    longest_line: int
    longest_length: int


class MarkdownFacts(Struct, frozen=True, kw_only=True):
    """What a Markdown text has besides.  ``broken`` names different targets, as written."""

    headings: int = 0
    links: int = 0
    images: int = 0
    broken_links: int = 0
    broken: tuple[str, ...] = ()


def text_facts(text: str) -> TextFacts:
    """Count the lines and words of ``text``."""
    lines = _newlines.sub("\n", text).split("\n")
    if not lines[-1]:
        lines.pop()
    lengths = list(map(len, lines))
    longest = max(lengths, default=0)
    return TextFacts(
        lines=len(lines),
        words=len(text.split()),
        longest_line=lengths.index(longest) + 1 if lengths else 0,
        longest_length=longest,
    )


def markdown_facts(text: str, exists: Callable[[str], bool]) -> MarkdownFacts:
    """Count the headings and links of a Markdown text.

    ``exists`` is asked once for each different relative path, decoded, as it stands in the
    text.  Raises ``MissingExtra`` without markdown-it-py, which comes with the ``cli`` extra.
    """
    headings = links = images = 0
    tokens = _parser().parse(_without_front_matter(_newlines.sub("\n", text)))
    targets: list[str] = []
    for token in _flat(tokens):
        if token.type == "heading_open":
            headings += 1
        elif token.type == "link_open":
            links += 1
            targets.append(str(token.attrGet("href") or ""))
        elif token.type == "image":
            images += 1
            targets.append(str(token.attrGet("src") or ""))
    known: dict[str, bool] = {}
    broken: list[str] = []
    for target in targets:
        path = relative_path(target)
        if path is not None:
            if path not in known:
                known[path] = exists(path)
            if not known[path]:
                broken.append(target)
    named = tuple(dict.fromkeys(broken))[:MAX_TARGETS]
    return MarkdownFacts(
        headings=headings, links=links, images=images, broken_links=len(broken), broken=named
    )


def relative_path(target: str) -> str | None:
    """The file that a link's target names relative to its document, if it names one."""
    try:
        parts = urlsplit(target)
    except ValueError:  # "http://[": an address, though not a good one.
        return None
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return None
    return os.fsdecode(unquote_to_bytes(parts.path))


def _without_front_matter(text: str) -> str:
    """The text after a YAML block at its beginning, whose end would pass for a heading."""
    if not text.startswith("---"):
        return text
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return text
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[number + 1 :]) if number > 1 else text
        if not _front_matter_line.match(line):
            return text
    return text


def _flat(tokens: "list[Token]") -> "Iterator[Token]":
    """Blocks and what stands in them; an image's description is no text of the document."""
    for token in tokens:
        yield token
        if token.type == "inline":
            yield from token.children or ()


@cache
def _parser() -> "MarkdownIt":
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        raise MissingExtra("reading Markdown", "cli") from None

    # Neither safe for a browser nor escaped: targets are to be seen as they were written.
    class Plain(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802
            return True

        def normalizeLink(self, url: str) -> str:  # noqa: N802
            return url

    return Plain("commonmark").enable("table")
