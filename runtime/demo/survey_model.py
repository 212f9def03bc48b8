"""The model of the demo's surveyor: a pure function of its request.

    plan ─► list_documents ─► read_documents, in ``BATCHES`` parts ─► report
                                   ▲ a message may arrive at any step boundary

A message that asks for the longest line is acknowledged in the step that sees it, looked into
with ``compare_documents`` once everything is read, and answered in the report.  What else it is
told it repeats in the report, and admits that it follows a script.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelReply, ModelRequest
from hubbub.runtime.demo.documents import MAX_BYTES, SkippedFile
from hubbub.runtime.models.scripted import call, reply

__all__ = ["BATCHES", "Extreme", "Overview", "Totals", "many", "surveyor_model"]

BATCHES: Final = 4


class Overview(Struct, frozen=True, kw_only=True):
    """What ``list_documents`` answers; ``skipped`` names the first few."""

    folder: str
    documents: int
    skipped_count: int
    skipped: tuple[SkippedFile, ...] = ()
    notes: tuple[str, ...] = ()


class Totals(Struct, frozen=True, kw_only=True):
    """What was counted in some documents, or in all; the sum of two is the total of both.

    ``broken`` and ``failed`` name the first few: ``document → target``, ``document: reason``.
    """

    documents: int = 0
    markdown: int = 0
    lines: int = 0
    words: int = 0
    headings: int = 0
    links: int = 0
    images: int = 0
    broken_links: int = 0
    truncated: int = 0
    failures: int = 0
    broken: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __add__(self, other: "Totals") -> "Totals":
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return Totals(**{name: value + theirs[name] for name, value in mine.items()})


class Extreme(Struct, frozen=True, kw_only=True):
    """What ``compare_documents`` answers: where the longest line stands, if there is any."""

    path: str = ""
    line: int = 0
    length: int = 0


def surveyor_model(request: ModelRequest) -> ModelReply:
    """The next step: what to call, or the report."""
    calls = [each for m in request.messages if isinstance(m, AssistantMessage) for each in m.calls]
    wishes = _wishes(request)
    noted = _noted(request)
    if not calls:
        text = "I list the documents, read each of them in a run of its own, and add up the facts."
        return reply(text, call("list_documents"))
    if calls[0].is_error:
        return reply(f"The folder could not be listed: {calls[0].output}")
    overview = msgspec.json.decode(calls[0].output, type=Overview)
    reads = [each for each in calls if each.name == "read_documents"]
    first = sum(_size(each) for each in reads) + 1
    if first <= overview.documents:
        last = min(first - 1 + -(-overview.documents // BATCHES), overview.documents)
        which = f"document {first}" if first == last else f"documents {first} to {last}"
        text = f"{noted}Reading {which} of {overview.documents}."
        return reply(text, call("read_documents", first=first, last=last))
    compared = [each for each in calls if each.name == "compare_documents"]
    if overview.documents and any(map(_is_about_longest, wishes)) and not compared:
        return reply(f"{noted}Everything is read. Which has the longest line?",
                     call("compare_documents", by="longest_line"))  # fmt: skip
    return reply(_report(overview, reads, wishes, compared))


# ── what it was told ─────────────────────────────────────────────────────────────────────────


def _wishes(request: ModelRequest) -> list[str]:
    """What was said after the first message."""
    said = [m.content for m in request.messages if not isinstance(m, AssistantMessage)]
    return said[1:]


def _noted(request: ModelRequest) -> str:
    """An acknowledgement of what has arrived since the last step."""
    arrived = 0
    for message in reversed(request.messages):
        if isinstance(message, AssistantMessage):
            break
        arrived += 1
    if not arrived or arrived == len(request.messages):
        return ""
    texts = " ".join(f"“{wish}”" for wish in _wishes(request)[-arrived:])
    return f"Noted: {texts} "


def _is_about_longest(wish: str) -> bool:
    return "longest" in wish.lower()


def _size(read: AnsweredCall) -> int:
    arguments: dict[str, Any] = msgspec.json.decode(read.arguments)
    return int(arguments["last"]) - int(arguments["first"]) + 1


# ── the report ───────────────────────────────────────────────────────────────────────────────


def _report(
    overview: Overview,
    reads: list[AnsweredCall],
    wishes: list[str],
    compared: list[AnsweredCall],
) -> str:
    lines = []
    total = Totals()
    for read in reads:
        if read.is_error:
            lines.append(f"{_size(read)} documents could not be read: {read.output}")
        else:
            total += msgspec.json.decode(read.output, type=Totals)
    if overview.documents:
        lines[:0] = _found(overview, total)
    else:
        lines.append(f"There are no text files in {overview.folder}.")
    lines += _not_read(overview, total)
    for wish in wishes:
        lines.append(_answer(wish, compared))
    return "\n".join(lines)


def _found(overview: Overview, total: Totals) -> list[str]:
    lines = [
        f"{many(total.documents, 'document')} in {overview.folder}: "
        f"{many(total.words, 'word')} in {many(total.lines, 'line')}."
    ]
    if total.markdown:
        lines.append(
            f"{total.markdown:,} of them in Markdown, with {many(total.headings, 'heading')}, "
            f"{many(total.links, 'link')} and {many(total.images, 'image')}."
        )
        lines.append(_broken(total))
    return lines


def _broken(total: Totals) -> str:
    if not total.broken_links:
        return "No relative link is broken."
    text = "\n".join(f"  {each}" for each in total.broken[:5])
    more = "\n  …" if len(total.broken) > 5 or total.broken_links > len(total.broken) else ""
    return f"Broken relative links: {total.broken_links:,}.\n{text}{more}"


def _not_read(overview: Overview, total: Totals) -> list[str]:
    lines = []
    if overview.skipped_count:
        named = [f"{each.path} ({each.reason})" for each in overview.skipped[:3]]
        more = ", …" if overview.skipped_count > len(named) else ""
        lines.append(f"Skipped {many(overview.skipped_count, 'file')}: {', '.join(named)}{more}.")
    if total.failures:
        lines.append(f"Could not be read after all: {', '.join(total.failed[:3])}.")
    if total.truncated:
        count = many(total.truncated, "long document")
        lines.append(f"Of {count} only the first {MAX_BYTES:,} bytes were read.")
    lines += [f"{note[:1].upper()}{note[1:]}." for note in overview.notes]
    return lines


def _answer(wish: str, compared: list[AnsweredCall]) -> str:
    if not _is_about_longest(wish):
        return f"You also said “{wish}”: I follow a script and can only tell the longest line."
    if not compared or compared[-1].is_error:
        why = compared[-1].output if compared else "nothing was read"
        return f"You asked for the longest line: {why}."
    found = msgspec.json.decode(compared[-1].output, type=Extreme)
    if not found.path:
        return "You asked for the longest line: there is none."
    return (
        f"You asked for the longest line: line {found.line:,} of {found.path}, "
        f"{many(found.length, 'character')}."
    )


def many(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
