"""Bases: records from which on a run is known, so that its older ones need not be kept.

    Thread ──base_of──► ``agent:base`` ──thread_of──► the same Thread

Rules
-----
* A base says what the fold of all own records before it comes to.  Where these are kept it changes
  nothing; where they are not, which shows by no session, the run begins with that state (``fold``).
* Once they are gone it is the only copy.  So its text can be read by every later version: fields
  of the state are never taken away and never mean something else, new ones have defaults
  (``tests/agents/state/test_bases.py`` pins them).  What cannot be so is another ``VERSION``, for
  which ``thread_of`` gets a function that reads the older ones.
* One of a later version cannot be read: its run is left alone, as any that cannot be.
* It is written where a run rests (``is_due``): nothing is under way, asked or waited for, so that
  nobody has to look into the past when the run goes on.  What may last longer than that, and
  begins later (children that wait for variables, or for the next session), is in it.
* One that was taken over writes none until every frame has ended, so that what a base stands for is
  in the store's order before it, also of the conversation's frames; frames write none.
* The next one is worth it after as many turns as are to be kept, and once a share of what the last
  one holds was said: a run whose context only grows does not write it again and again.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.model import ModelMessage, UserMessage
from hubbub.agents.state.family import NO_FAMILY, Family
from hubbub.agents.state.thread import Thread
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, ContentPart, Event, FileRef

__all__ = [
    "VERSION", "base_behind_gap", "base_of", "begun_at", "changed", "family_of", "files_in",
    "is_due", "marked", "parts_in", "thread_of",
]  # fmt: skip

T = TypeVar("T")

VERSION: Final = 1
"""How a base is written."""

SHARE: Final = 4
"""So many times what is said between two bases, the second one holds of before, at most."""


def is_due(thread: Thread, keep_turns: int) -> bool:
    """Whether a run that has nothing to do writes a base, of whose turns so many are to be kept."""
    turns, said = thread.based
    return (
        thread.turn - turns >= keep_turns
        and _said(thread) >= said
        and thread.phase == "live"
        and not (thread.in_session or thread.closing)
        and thread.open is None
        and not thread.prompts
        and thread.terminated is None
        and not thread.origin.frame
        and not thread.family.undecided
        and not any(child.takeover for child in thread.family.children)
    )


def base_of(thread: Thread, worked: int = 0) -> AgentBase | None:
    """The base of a run that has come to ``thread`` and was at work for so long (µs); ``None``
    where its texts are none that a record can hold."""
    try:
        text = _ENCODER.encode(thread)
    except UnicodeEncodeError:  # Halves of surrogate pairs, until it is read from the journal.
        return None
    return AgentBase(
        turn=thread.turn,
        version=VERSION,
        thread_json=msgspec.Raw(text),
        files=files_in(thread),
        parts=parts_in(thread),
        children=tuple([child.run_id for child in thread.family.children]),
        worked=worked,
    )


def thread_of(base: AgentBase) -> Thread:
    """What a run had come to with its base.  Raises ``BadValue`` for one that cannot be read."""
    return marked(_read(base), base)


def family_of(base: AgentBase) -> Family:
    """Its children alone, and those it was about to start; no more than that is read.

    Raises ``BadValue`` like ``thread_of``.
    """
    return _decoded(base, _family_decoder()).family


def _read(base: AgentBase) -> Thread:
    return _decoded(base, _decoder())


def _decoded(base: AgentBase, decoder: msgspec.json.Decoder[T]) -> T:
    if base.version != VERSION:
        what = f"its base is of version {base.version}, this hubbub reads {VERSION}; upgrade it"
        raise BadValue(f"run {base.run_id}", what)
    try:
        return decoder.decode(base.thread_json)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        what = f"its base cannot be read ({error}); see fsck"
        raise BadValue(f"run {base.run_id}", what) from error


def marked(thread: Thread, base: AgentBase) -> Thread:
    """The thread of a run, from now on with that base."""
    held = len(thread.transcript) + len(thread.transcript_b)
    return replace(thread, based=(base.turn, _said(thread) + held // SHARE))


def changed(base: AgentBase, change: Callable[[Thread], Thread]) -> AgentBase:
    """The base of a run as another one's, with a state that says so.  Raises ``BadValue`` for one
    that cannot be read."""
    thread = change(_read(base))
    children = tuple([child.run_id for child in thread.family.children])
    text = msgspec.Raw(_ENCODER.encode(thread))
    return replace(base, version=VERSION, thread_json=text, children=children)


def begun_at(events: Iterable[Event]) -> AgentBase | None:
    """The base that an own lane begins with, as it is loaded where older records have gone."""
    first = next(iter(events), None)
    return first if isinstance(first, AgentBase) and first.seq > 1 else None


def base_behind_gap(events: Iterable[Event]) -> int:
    """The number of the last base, among all events of a run in order, before which others have
    gone; 0 where none have."""
    own = found = 0
    for event in events:
        if event.lane == "own":
            if event.seq > own + 1 and isinstance(event, AgentBase):
                found = event.seq
            own = event.seq
    return found


def files_in(thread: Thread) -> tuple[FileRef, ...]:
    """The files of a run, and those that children get that are yet to be started."""
    own, awaited = thread.area.files.values(), thread.family.deferred
    return (*own, *dict.fromkeys(ref for each in awaited for ref in each.files if ref not in own))


def parts_in(thread: Thread) -> tuple[ContentPart, ...]:
    """The parts with a content of their own that any model of a run is shown."""
    if not thread.has_parts:
        return ()
    shown = (*thread.transcript, *thread.transcript_b)
    return tuple(dict.fromkeys(part for each in shown for part in _parts_in(each) if part.digest))


def _said(thread: Thread) -> int:
    """Grows with each message that comes to what models are shown, whatever goes from that."""
    return thread.turn + thread.step


def _parts_in(message: ModelMessage) -> Iterator[ContentPart]:
    if isinstance(message, UserMessage):
        yield from message.parts
        return
    for call in message.calls:
        yield from call.parts


_ENCODER: Final = msgspec.json.Encoder()


class _WithFamily(Struct, frozen=True):
    """A ``Thread``, as far as it is read."""

    family: Family = NO_FAMILY


@cache
def _decoder() -> msgspec.json.Decoder[Thread]:
    # Made when the first is read: a program that reads none does not wait for it.
    return msgspec.json.Decoder(Thread)


@cache
def _family_decoder() -> msgspec.json.Decoder[_WithFamily]:
    return msgspec.json.Decoder(_WithFamily)
