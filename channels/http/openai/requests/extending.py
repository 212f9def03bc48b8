"""``extends``: whether a client's transcript is what was said in a run, and one message more.

A client has seen less than was said, or other words for it, and repeats those:

    what it was told of an answer            or all of it: it may have heard that elsewhere
    a value, where its turn came to one      a whole completion tells that alone, as JSON
    nothing of what stood beside calls       many clients drop it; nor has one that was cut off, or
                                             sends more than results, heard the answer to these
    its own replies (``approve``, an answer  which are no messages of the run; other channels' it
    to a code agent)                         has not seen, nor what was said to them

A question that is still open it must have been told: what it says next is the answer.  Who shows
nothing of what came of its answer says that again (``repeated``), and answers nothing else.  Blank
space does not count, and what the assistant said in a row, whatever stood between, is one message.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from hubbub.channels.http.openai.requests.wanted import Entry

__all__ = ["INSTRUCTIONS", "Exchange", "Telling", "extends", "repeated", "seen_by", "shown"]

INSTRUCTIONS: Final = "Instructions of the caller:\n"
"""Begins the message of a history that holds what the system said."""


class Telling(Struct, eq=False):
    """What was said in one answer, or behind its end."""

    told: list[str] = field(default_factory=list)
    """What its client was told, in that order."""
    whole: list[str] = field(default_factory=list)
    """All of it, as it is on record."""
    value: str = ""
    """The value that the turn came to."""
    has_calls: bool = False
    """Whether it calls tools of the client's."""
    is_of_results: bool = False
    """Whether it answers results of such calls."""
    is_unheard: bool = False
    """Whether no client was told, or may not have listened."""
    questions: dict[str, str] = field(default_factory=dict)
    """What was asked here first and is still open, by prompt."""

    def readings(self, *, is_kept: bool = True) -> set[str]:
        """What may stand for it in a transcript, an empty one where nothing may; ``is_kept``: its
        client keeps what stands beside calls."""
        if self.has_calls and not is_kept:
            return {""}
        told = _joined(self.told)
        whole = told if self.whole == self.told else _joined(self.whole)
        found = {told, whole, shown(self.value)} - {""}
        may_be_left_out = not (self.questions if self.is_unheard else told)
        return found | {""} if may_be_left_out else found


class Exchange(Struct):
    """What somebody said, and what was said to that."""

    heard: str = ""
    """Nothing where the beginning has gone."""
    is_reply: bool = False
    """Whether it is a reply to what was asked, which only its own client has seen."""
    seq: int = 0
    """The number of the item in the run's inbox that says it; 0 for none."""
    is_answer: bool = False
    """Whether a client of these endpoints answers with it what was asked."""
    tellings: list[Telling] = field(default_factory=list)


class _Seen(Struct):
    """What a client says that somebody said, and was told."""

    heard: str = ""
    texts: list[str] = field(default_factory=list)
    has_calls: bool = False


def extends(entries: Sequence[Entry], said: Sequence[Exchange], *, is_cut: bool) -> bool:
    """Whether a client's transcript is what was said, and one message of the user's more; where old
    turns have gone (``is_cut``), whether it ends as they do that are left."""
    if not entries or entries[-1].role != "user":
        return False
    seen, groups = seen_by(entries[:-1]), _merged(_without_others(said, entries[:-1]))
    if is_cut:
        seen = seen[max(0, len(seen) - len(groups)) :]
        if seen and groups and not groups[0].heard:
            seen[0].heard = ""  # What was said there has gone.
    if len(seen) != len(groups):
        return False
    is_same = any(all(map(partial(_is_same, is_kept=x), seen, groups)) for x in (True, False))
    return is_same and all(_has_been_asked(seen[at:], x) for at, x in enumerate(groups))


def repeated(
    entries: Sequence[Entry], said: Sequence[Exchange], *, is_cut: bool, is_retry: bool
) -> Exchange | None:
    """What a client says again that has not heard what came of it: its transcript is what was said
    before that.  Only answers to what was asked are taken for such, and of a client that says that
    it tries again (``is_retry``) everything."""
    if not entries or entries[-1].role != "user":
        return None
    text = shown(entries[-1].text).casefold()
    users = sum(x.role == "user" and bool(shown(x.text)) for x in entries[:-1])
    least = most = 0
    for at, each in enumerate(said):
        heard = shown(each.heard)
        may_be = each.seq and (each.is_answer or is_retry) and heard.casefold() == text
        fits = least <= users and (is_cut or users <= most)
        if may_be and fits and extends(entries, said[:at], is_cut=is_cut):
            return each
        most += bool(heard)
        least += bool(heard) and not each.is_reply
    return None


def seen_by(entries: Iterable[Entry]) -> list[_Seen]:
    """A client's transcript: what each of its users' messages was answered."""
    found: list[_Seen] = []
    for each in entries:
        text = shown(each.text)
        if each.role == "user" and text:
            found.append(_Seen(text))
        elif each.role == "assistant" and (text or each.calls):
            if not found:
                found.append(_Seen())
            found[-1].has_calls |= bool(each.calls)
            if text:
                found[-1].texts.append(text)
    return found


def _without_others(said: Sequence[Exchange], entries: Sequence[Entry]) -> list[Exchange]:
    """What was said but for replies that the client does not know of: from the end backwards, since
    of what was first there may be nothing left."""
    users = [text for x in entries if x.role == "user" and (text := shown(x.text))]
    found: list[Exchange] = []
    unheard: list[Telling] = []
    for each in reversed(said):
        text = shown(each.heard)
        if text and each.is_reply:
            if not users or users[-1].casefold() != text.casefold():
                unheard[:0] = [replace(x, is_unheard=True) for x in each.tellings]
                continue
            text = users[-1]
        if text:
            del users[-1:]
        found.append(Exchange(text, tellings=[*_heard(each.tellings), *unheard]))
        unheard.clear()
    found.reverse()
    return found


def _heard(tellings: Sequence[Telling]) -> list[Telling]:
    """With the last as unheard, if it answers results: who sends more with them, or was cut off,
    has not heard it."""
    found = list(tellings)
    at = max((at for at, x in enumerate(found) if not x.is_unheard), default=-1)
    if at >= 0 and found[at].is_of_results:
        found[at] = replace(found[at], is_unheard=True)
    return found


def _merged(said: Iterable[Exchange]) -> list[Exchange]:
    """Without what shows no text: what was answered to that is told with what was before."""
    groups: list[Exchange] = []
    for each in said:
        if each.heard or (not groups and any(x.readings() != {""} for x in each.tellings)):
            groups.append(each)
        elif groups:
            groups[-1].tellings += each.tellings
    return groups


def _is_same(seen: _Seen, group: Exchange, *, is_kept: bool) -> bool:
    text = " ".join(seen.texts)
    if not text and not seen.has_calls and any(x.told for x in group.tellings):
        return False
    return seen.heard == group.heard and _reads_as(group.tellings, text, is_kept=is_kept)


def _reads_as(tellings: Iterable[Telling], text: str, *, is_kept: bool) -> bool:
    """Whether a text is one reading of each, in order."""
    places = {0}
    for telling in tellings:
        ends: set[int] = set()
        for reading in telling.readings(is_kept=is_kept):
            if not reading:
                ends |= places
                continue
            size = len(reading)
            ends.update(
                place + size + 1
                for place in places
                if text.startswith(reading, place) and text[place + size : place + size + 1] in " "
            )
        places = ends
    return (len(text) + 1 if text else 0) in places


def _has_been_asked(seen: Sequence[_Seen], group: Exchange) -> bool:
    """Whether a client shows, there or later, what is still asked."""
    asked = [shown(x) for each in group.tellings for x in each.questions.values()]
    return all(any(x in " ".join(each.texts) for each in seen) for x in asked)


def _joined(texts: Iterable[str]) -> str:
    return " ".join(filter(None, map(shown, texts)))


def shown(text: str) -> str:
    """A text as it is compared; empty where it is not."""
    text = " ".join(text.split())
    return "" if text.startswith(INSTRUCTIONS.strip()) else text
