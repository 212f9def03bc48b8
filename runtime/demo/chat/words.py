"""What the offline models make of what is typed: plain readings of a line, no state.

Every reading is a question about one text, answered the same way each time.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.runtime.text import printable

__all__ = [
    "as_name",
    "cut",
    "first_task",
    "is_done",
    "is_yes",
    "last_said",
    "named_file",
    "named_files",
    "slug",
    "topic_words",
    "wants_all",
    "wants_list",
]

_DONE: Final = re.compile(
    r"(?:ok(?:ay)?[ ,]*)?(?:no|nope|done|no more|that'?s (?:all|it)|that is (?:all|it)|thanks?"
    r"|thank you|thx|enough|finished?|quit|exit|bye|never ?mind|forget it|leave it|nothing)"
    r"(?:[ ,]+(?:thanks?|thank you|please|then|a lot|very much))?"
)
_YES: Final = re.compile(
    r"(?:yes|y|yep|yeah|sure|ok(?:ay)?|fine|go on|do it|write(?: it| that)?|save(?: it)?)"
    r"(?:[ ,]+(?:please|write it|do it))?"
)
_ALL: Final = re.compile(r"\b(?:all|every|everything|each)\b")
_LIST: Final = re.compile(
    r"\b(?:ls|(?:list|what|which|show)\b.*\b(?:files?|documents?|folders?))\b"
)
_FILE: Final = re.compile(
    r"\b(?:read|open|show|cat)\s+(?:me\s+)?(?:the\s+)?(file\s+)?[\"'“]?([^\s\"'”?!,]+)", re.I
)
_WORD: Final = re.compile(r"[^\W\d_][\w-]{2,}")
_COMMON_WORDS: Final = """
    about after again also and any anything are around based but can could did does doing every
    everything file files find folder for from get give has have how into investigate just know let
    like list look make material may need not note notes now of one open other our out please read
    research say says search see shall should show skill some someone something tell than that the
    their them then there these they thing things this those use user using want wants was were
    what when where which who whom why will with write would you your
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())


def is_done(text: str) -> bool:
    """Whether the user has had enough, or declines."""
    return _DONE.fullmatch(_plain(text)) is not None


def is_yes(text: str) -> bool:
    return _YES.fullmatch(_plain(text)) is not None


def wants_all(text: str) -> bool:
    return _ALL.search(text.casefold()) is not None


def wants_list(text: str) -> bool:
    """Whether it asks for the names of the files, and for none of them."""
    return _LIST.search(text.casefold()) is not None and not named_file(text)


def named_file(text: str) -> str:
    """The file that is to be read, whether or not there is such a file; ``""`` if none is named."""
    wish = _FILE.search(text)
    if wish is None:
        return ""
    name = wish[2].rstrip(".;:")
    return name if wish[1] or {".", "/"} & {*name} else ""


def named_files(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names`` that occur in the text: by path, by name, or by name without ending."""
    folded = text.casefold()
    words = {each.strip("-") for each in re.findall(r"[\w-]+", folded)}
    return tuple(name for name in names if _is_named(name.casefold(), folded, words))


def topic_words(text: str) -> tuple[str, ...]:
    """What the text is about: its words, but for the common ones, each once."""
    found = (each.casefold().strip("-") for each in _WORD.findall(text))
    return tuple(dict.fromkeys(each for each in found if each not in _COMMON))


def slug(text: str) -> str:
    """A short name for what the text is about."""
    words = re.findall(r"[a-z0-9]+", text.casefold())
    chosen = [each for each in words if each not in _COMMON and len(each) > 1][:3]
    return "-".join(chosen)[:40].strip("-") or "my-skill"


def as_name(text: str) -> str:
    """A name as it was given, its words as one, in letters that any file may have; ``""`` if it is
    no name."""
    if not re.fullmatch(r"[\w -]+", text):
        return ""
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(each for each in plain if not unicodedata.combining(each))
    return "-".join(re.findall(r"[a-z0-9]+", plain))[:40].strip("-")


def cut(text: str, length: int = 120) -> str:
    """A text on one line that is not too long."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def last_said(request: ModelRequest) -> str:
    """What the user said last; for a frame that may be its task."""
    said = _said(request)
    return said[-1] if said else ""


def first_task(request: ModelRequest) -> str:
    """What a frame was begun with."""
    said = _said(request)
    return said[0] if said else ""


def _said(request: ModelRequest) -> Sequence[str]:
    return [
        each.content.strip()
        for each in request.messages
        if isinstance(each, UserMessage) and each.role == "user"
    ]


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split()).strip(" .!?,;")


def _is_named(name: str, text: str, words: set[str]) -> bool:
    last = name.rpartition("/")[2]
    stem = last.partition(".")[0]
    return name in text or (len(last) > 2 and last in text) or (len(stem) > 2 and stem in words)
