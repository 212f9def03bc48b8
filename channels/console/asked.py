"""``prompt_lines``: how a prompt is put on a screen.

    ? Which one?                            ? bot wants to run refund(order=7)
      1) red                                  approve (or y); deny …
      2) blue

Arguments stand on the line of their tool, or below it as indented JSON.  They are shown whole, for
nobody should approve what he has not seen, up to ``MAX_SHOWN`` characters; that there are more is
said.  Every character that does not print is escaped, those that change the direction of writing
included.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from hubbub.channels.console.answers import HOW
from hubbub.hub import events as e

__all__ = ["prompt_lines", "prompt_title"]

MAX_ON_LINE: Final = 72
"""Characters of arguments that stand on the line of their tool."""

MAX_SHOWN: Final = 20_000
MAX_LINE: Final = 1_000

Line = tuple[str, int]
"""A text and its indentation."""

_WANTS: Final = {"approval": "wants to run", "external": "waits for the result of"}


def prompt_lines(prompt: e.SessionPrompt, who: str) -> Iterator[Line]:
    """Everything about a prompt; ``who`` asks, and is empty where that goes without saying."""
    if prompt.kind == "question":
        yield f"{who}: ? {prompt.question}" if who else f"? {prompt.question}", 0
        for number, option in enumerate(prompt.options, 1):
            yield f"{number}) {option}", 2
        return
    short = _on_line(prompt)
    title = f"? {prompt_title(prompt, who)}"
    if short is not None:
        yield f"{title}({short})", 0
    else:
        yield f"{title} with", 0
        yield from ((line, 2) for line in _document(prompt))
    yield HOW[prompt.kind], 2


def prompt_title(prompt: e.SessionPrompt, who: str) -> str:
    """A prompt in a few words."""
    who = who or prompt.agent or "an agent"
    if prompt.kind == "question":
        return f"{who} asks: {prompt.question}"
    return f"{who} {_WANTS[prompt.kind]} {_printable(prompt.tool)}"


def _arguments(prompt: e.SessionPrompt) -> dict[str, Any] | None:
    """The arguments as the tool gets them; None for what is no object."""
    try:
        return msgspec.json.decode(bytes(prompt.arguments_json), type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _on_line(prompt: e.SessionPrompt) -> str | None:
    """The arguments as they would be written in Python, if they are short."""
    if len(prompt.arguments_json) > 4 * MAX_ON_LINE or (found := _arguments(prompt)) is None:
        return None
    text = ", ".join(f"{_printable(name)}={value!r}" for name, value in found.items())
    return text if len(text) <= MAX_ON_LINE else None


def _document(prompt: e.SessionPrompt) -> Iterator[str]:
    """The arguments as indented JSON, in lines that a screen takes whole."""
    found = _arguments(prompt)
    raw = bytes(prompt.arguments_json) if found is None else msgspec.json.encode(found)
    text = msgspec.json.format(raw, indent=2) if found is not None else raw
    shown = text.decode(errors="replace")
    for line in shown[:MAX_SHOWN].split("\n"):
        yield from _pieces(_printable(line))
    if len(shown) > MAX_SHOWN:
        yield f"… and {len(shown) - MAX_SHOWN:,} characters that are not shown"


def _pieces(line: str) -> Iterator[str]:
    for at in range(0, len(line) or 1, MAX_LINE):
        yield line[at : at + MAX_LINE]


def _printable(text: str) -> str:
    """``text`` with whatever does not print escaped."""
    if text.isprintable():
        return text
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)
