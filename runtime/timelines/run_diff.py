"""``diff_runs``: where two runs part, and what differs from there on.

    own lane of either  →  records that say something, without ids and times
                        →  the first pair that differs  →  what was said, done and spent since

* What two runs that do the same may differ in counts for nothing: ids of runs, times, tokens, cost,
  and that a process was left, parked or began again.
* The runs' own records are compared, and what their children came to; not the children's records.
* A run is the same as itself, and an earlier part of a run parts where that goes on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain, zip_longest
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.model import Usage
from hubbub.agents.state.bases import thread_of
from hubbub.hub import events as e
from hubbub.hub.errors import UnknownRun
from hubbub.hub.events import NO_USAGE, Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.store.reader import StoreReader, own_lane
from hubbub.hub.values import NULL, Json
from hubbub.runtime.inspection.event_words import Said, SaidKind, conversation_of, headline

__all__ = ["Difference", "Parted", "RunDiff", "RunTotals", "diff_runs"]

MAX_PIECES: Final = 1_000
"""Pieces of either run, from where they part, in which differences are looked for."""

_UNSAID: Final = (e.AgentPark, e.AgentRestore, e.AgentClaim, e.AgentBase)
"""What a process did with a run, not what the run did."""

_ASIDE: Final = frozenset((
    "at", "run_id", "root_run_id", "parent_run_id", "seq", "usage", "cost_nanos", "worked",
    "delay", "created_at", "expires_at", "provided_at", "owner", "session_key", "descriptor",
    "correlation_id", "cached_apart",
))  # fmt: skip
"""Fields in which runs that do the same may differ."""

MIN_ID: Final = 8
"""Characters from which an id is known again inside of a text."""


class Parted(Struct, frozen=True, kw_only=True):
    """The record of a run with which it parts from the other one."""

    seq: int
    type: str
    text: str


class Difference(Struct, frozen=True, kw_only=True):
    """What one run said or did in the place of what the other did; ``None`` for nothing there.

    ``left_seq`` and ``right_seq`` are the numbers of the records.
    """

    kind: SaidKind
    left: str | None
    right: str | None
    left_seq: int | None = None
    right_seq: int | None = None


class RunTotals(Struct, frozen=True, kw_only=True):
    """What a run came to, as a whole; ``outcome`` and ``output`` are of its end, or else of its
    latest session."""

    run_id: str
    agent: str
    records: int
    models: tuple[str, ...]
    steps: int
    usage: Usage
    outcome: str
    output: Json


class RunDiff(Struct, frozen=True, kw_only=True):
    """Two runs side by side.

    ``alike`` counts the records before those with which they part; of a run that has none more
    there is no ``Parted``.  ``more`` counts pieces that were not compared.
    """

    left: RunTotals
    right: RunTotals
    same: bool
    alike: int
    left_parted: Parted | None
    right_parted: Parted | None
    differences: Sequence[Difference]
    more: int


def diff_runs(store: StoreReader, left: str, right: str) -> RunDiff:
    """Where two runs of a store part, and what differs from there on.

    Raises ``UnknownRun``, and ``StoreFailed`` for a record that cannot be read.
    """
    with store.one_moment():
        sides = [_Side(store, run_id) for run_id in (left, right)]
        alike, heads = _parting(*sides)
        since = [list(side.since(head)) for side, head in zip(sides, heads, strict=True)]
        differences = tuple(_differences(*(found[:MAX_PIECES] for found in since)))
        more = sum(max(0, len(found) - MAX_PIECES) for found in since)
        parted = [
            None if head is None
            else Parted(seq=head.seq, type=head.type, text=headline(head).strip())
            for head in heads
        ]  # fmt: skip
        return RunDiff(
            left=sides[0].totals(), right=sides[1].totals(), same=parted == [None, None],
            alike=alike, left_parted=parted[0], right_parted=parted[1], differences=differences,
            more=more,
        )  # fmt: skip


class _Piece(Struct, frozen=True):
    """What was said, and how it is compared."""

    said: Said
    words: str


class _Side:
    """One of the two runs, read twice: as far as they are alike, and from there on."""

    def __init__(self, store: StoreReader, run_id: str) -> None:
        row = store.row(run_id)
        if row is None:
            raise UnknownRun(run_id)
        self._row = row
        self._store = store
        tree = [each.run_id for each in store.tree(row.root_run_id)]
        self._names = _Names(run_id, [each for each in tree if each != run_id])
        self._models: dict[str, None] = {}
        self._steps = 0
        self._usage = NO_USAGE
        self._end: e.Ending | None = None
        self._events = self._read()

    def _read(self) -> Iterator[Event]:
        last = 0
        for event in own_lane(self._store, self._row.run_id):
            has_gap, last = event.seq > last + 1, event.seq
            if isinstance(event, e.AgentStep):
                self._models.setdefault(event.model)
                self._steps += 1
                self._usage += event.usage
            elif isinstance(event, e.Ending):
                self._end = event
            elif isinstance(event, e.AgentBase) and has_gap:  # Its old turns have gone.
                thread = thread_of(event)
                self._steps, self._usage = thread.step, thread.total_usage
            if not isinstance(event, _UNSAID):
                yield event

    def next(self) -> Event | None:
        """Its next record that says something; ``None`` behind the last one."""
        return next(self._events, None)

    def facts(self, event: Event) -> Any:
        """What a record says, as far as it counts."""
        return event.type, self._names.without(_bare(msgspec.json.decode(encode_event(event))))

    def since(self, head: Event | None) -> Iterator[_Piece]:
        """What was said and done from a record on."""
        events = chain(() if head is None else (head,), self._events)
        for said in conversation_of(events):
            words = f"{said.kind} {said.name} {said.text} {' '.join(said.files)}"
            yield _Piece(said, str(self._names.without(words)))

    def totals(self) -> RunTotals:
        """What it came to; all of it has been read."""
        end, row = self._end, self._row
        return RunTotals(
            run_id=row.run_id, agent=row.agent, records=row.seq,
            models=tuple(each for each in self._models if each), steps=self._steps,
            usage=self._usage, outcome=end.outcome if end is not None else "",
            output=end.output_json if end is not None else NULL,
        )  # fmt: skip


class _Names:
    """The ids of a tree's runs, and what stands for them where runs are compared."""

    def __init__(self, run_id: str, others: Sequence[str]) -> None:
        self._known = {run_id: "‹run›"} | {
            each: f"‹run {number}›" for number, each in enumerate(others, 1)
        }
        long = sorted((each for each in self._known if len(each) >= MIN_ID), key=len, reverse=True)
        words = "|".join(map(re.escape, long))
        self._in_text = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if long else None

    def without(self, value: Any) -> Any:
        """A value of JSON with these in the place of ids."""
        match value:
            case str():
                if value in self._known:
                    return self._known[value]
                known = self._in_text
                return value if known is None else known.sub(lambda m: self._known[m[0]], value)
            case list():
                return [self.without(each) for each in value]
            case dict():
                return {
                    name: self._without_asker(each) if name == "prompt_id" else self.without(each)
                    for name, each in value.items()
                }
            case _:
                return value

    def _without_asker(self, prompt_id: str) -> str:
        """The id of a prompt without that of the run that asks, however short that is."""
        asker, dot, rest = prompt_id.partition(".")
        return f"{self._known.get(asker, asker)}{dot}{rest}"


def _bare(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An event's fields, and those of the items in it, without what counts for nothing."""
    bare = {name: value for name, value in fields.items() if name not in _ASIDE}
    for name in ("items", "message"):
        if isinstance(items := bare.get(name), list):
            bare[name] = [_bare(each) for each in items]
        elif isinstance(items, dict):
            bare[name] = _bare(items)
    return bare


def _parting(left: _Side, right: _Side) -> tuple[int, tuple[Event | None, Event | None]]:
    """How many records are alike, and those with which the runs part."""
    alike = 0
    while True:
        one, other = left.next(), right.next()
        if one is None or other is None or left.facts(one) != right.facts(other):
            return alike, (one, other)
        alike += 1


def _differences(left: Sequence[_Piece], right: Sequence[_Piece]) -> Iterator[Difference]:
    words = [each.words for each in left], [each.words for each in right]
    matcher = SequenceMatcher(None, *words, autojunk=False)
    for tag, i, j, k, n in matcher.get_opcodes():
        if tag != "equal":
            yield from _replaced(left[i:j], right[k:n])


def _replaced(left: Sequence[_Piece], right: Sequence[_Piece]) -> Iterator[Difference]:
    """One thing for another where they are of one kind; else each by itself."""
    for one, other in zip_longest(left, right):
        if one is not None and other is not None and one.said.kind == other.said.kind:
            yield _difference(one, other)
            continue
        if one is not None:
            yield _difference(one, None)
        if other is not None:
            yield _difference(None, other)


def _difference(left: _Piece | None, right: _Piece | None) -> Difference:
    known = left or right
    assert known is not None
    return Difference(
        kind=known.said.kind,
        left=None if left is None else _words(left.said),
        right=None if right is None else _words(right.said),
        left_seq=None if left is None else left.said.seq,
        right_seq=None if right is None else right.said.seq,
    )


def _words(said: Said) -> str:
    files = f" [{', '.join(said.files)}]" if said.files else ""
    return f"{said.who}: {said.text}{files}"
