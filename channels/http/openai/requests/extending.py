"""``extends``: whether a client's transcript is what was said in a run, and one message more.

A client has seen less than was said, or other words for it, and repeats those:

    what it was told of an answer            or all of it: it may have heard that elsewhere
    a value, where its turn came to one      a whole completion tells that alone, as JSON
    its own replies (``approve``, an answer  which are no messages of the run; other channels' it
    to a code agent)                         has not seen.  What is asked still is told once more

Blank space does not count, and what the assistant said in a row is one message.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from hubbub.channels.http.openai.requests.wanted import Entry

__all__ = ["INSTRUCTIONS", "SeenMessage", "extends", "seen_by"]

INSTRUCTIONS: Final = "Instructions of the caller:\n"
"""Begins the message of a history that holds what the system said."""


class SeenMessage(Struct):
    """What somebody said."""

    role: str
    text: str
    told: str | None = None
    """What the client was told of it, where that may be less."""
    value: str | None = None
    """The value that the turn came to which ends with it."""
    is_reply: bool = False
    """Whether it is a reply to what was asked, which only its own client has seen."""
    is_again: bool = False
    """Whether it follows such a reply, and was said before."""


class _Group(Struct):
    role: str
    texts: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    value: str | None = None

    def reads_as(self, text: str) -> bool:
        return text in (" ".join(self.texts), " ".join(filter(None, self.told)), self.value)


def extends(entries: Sequence[Entry], said: Sequence[SeenMessage], *, is_cut: bool) -> bool:
    """Whether a client's transcript is what was said, and one message of the user's more; where old
    turns have gone (``is_cut``), whether it ends as they do that are left."""
    if not entries or entries[-1].role != "user":
        return False
    seen, groups = seen_by(entries[:-1]), _groups(_without_others(said, entries[:-1]))
    if is_cut:
        seen = seen[max(0, len(seen) - len(groups)) :]
    return len(seen) == len(groups) and all(
        role == group.role and group.reads_as(text)
        for (role, text), group in zip(seen, groups, strict=True)
    )


def seen_by(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """A client's transcript: roles and texts."""
    said = (SeenMessage(each.role, each.text) for each in entries if each.role != "output")
    return [(group.role, " ".join(group.texts)) for group in _groups(said)]


def _without_others(said: Sequence[SeenMessage], entries: Sequence[Entry]) -> list[SeenMessage]:
    """What was said but for replies that the client does not know of: from the end backwards, since
    of what was first there may be nothing left."""
    users = [text for x in entries if x.role == "user" and (text := _shown(x.text))]
    found: list[SeenMessage] = []
    for each in reversed(said):
        if each.role != "user" or not (text := _shown(each.text)):
            found.append(each)
        elif not each.is_reply:
            found.append(each)
            del users[-1:]
        elif users and users[-1].casefold() == text.casefold():
            found.append(SeenMessage("user", users.pop()))
        else:
            while found and found[-1].is_again:
                found.pop()
    found.reverse()
    return found


def _groups(said: Iterable[SeenMessage]) -> list[_Group]:
    groups: list[_Group] = []
    for each in said:
        text = _shown(each.text)
        value = None if each.value is None else _shown(each.value)
        if not text and not value:
            continue
        if not (each.role == "assistant" and groups and groups[-1].role == each.role):
            groups.append(_Group(each.role))
        group = groups[-1]
        if text:
            group.texts.append(text)
            group.told.append(text if each.told is None else _shown(each.told))
        if value:
            group.value = value
    return groups


def _shown(text: str) -> str:
    """A text as it is compared; empty where it is not."""
    text = " ".join(text.split())
    return "" if text.startswith(INSTRUCTIONS.strip()) else text
