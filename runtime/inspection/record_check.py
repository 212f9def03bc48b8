"""``RecordCheck``: whether the record of a store is as it was written, and agrees with itself.

    the store     what it finds wrong with how it is kept
    events        see ``stores/exchange/lanes.py``
    rows          what is kept of runs, inboxes and keys, against the events
    contents      every file that an event names, by digest

No damage raises, but that the store cannot be read at all.  Memory grows with the number of runs
and of named contents, not with that of events.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from hubbub.agents.state.lasting_prompts import read_note
from hubbub.agents.state.prompts import LASTING
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events.identities import can_be_known_by
from hubbub.hub.store.cursor import REMOVED, is_position
from hubbub.hub.store.reader import StoreReader, StoreUnreadable, decoded
from hubbub.hub.store.store import RETENTION
from hubbub.runtime.stores.exchange.lanes import FROM_BACKUP, Lane, Lanes, Problem
from hubbub.runtime.stores.exchange.run_check import RunCheck, holds_key

__all__ = ["RecordCheck", "Tell"]

STEP: Final = 200_000
"""Events after which progress is reported."""

FIRST: Final = -(1 << 62)
"""Before every position, damaged ones included."""

JSON_NOTES: Final = ("agents", "runs:", "schedule/", RETENTION)
"""How the keys of notes begin that are JSON."""

Tell = Callable[[str], object]


class RecordCheck:
    """One check of what ``store`` reads; ``thorough`` looks at its indexes too.

    ``problems`` yields what is wrong; when it is through, ``runs`` and ``events`` say how much
    was looked at.  ``tell`` gets the progress, now and then.
    """

    def __init__(self, store: StoreReader, *, thorough: bool = False, tell: Tell) -> None:
        self._store = store
        self._thorough = thorough
        self._tell = tell
        self.runs = 0
        self.events = 0

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong, as of one moment.  Raises ``StoreUnreadable``."""
        with self._store.one_moment():
            yield from self._all(self._store)

    def _all(self, store: StoreReader) -> Iterator[Problem]:
        yield from self._faults(store)
        lanes = Lanes(f"{store.place}: event")
        try:
            yield from self._scan(store, lanes)
        except StoreUnreadable as error:
            # What cannot be read would be missed by every other check.
            where = f"{store.place}: event: after {lanes.events:,} of them"
            yield Problem(where, error.what, error.remedy)
        else:
            yield from self._rows(store, lanes)
            yield from self._references(store)
            yield from _notes(store)
            yield from _snapshots(store)
        yield from self._contents(store, lanes)

    # ── the store, the events ────────────────────────────────────────────────────────────────

    def _faults(self, store: StoreReader) -> Iterator[Problem]:
        try:
            for what in store.faults(thorough=self._thorough):
                yield Problem(store.place, what, FROM_BACKUP)
        except StoreUnreadable as error:
            yield Problem(store.place, error.what, error.remedy)

    def _scan(self, store: StoreReader, lanes: Lanes) -> Iterator[Problem]:
        for row in store.event_rows(after=FIRST):
            yield from lanes.take(row)
            if lanes.events % STEP == 0:
                self._tell(f"{lanes.events:,} events checked")
        self.events = lanes.events
        if self.events >= STEP:
            of_hub = f"({lanes.hub.seq:,} of the hub's)"
            self._tell(f"all {self.events:,} events checked {of_hub}; now the runs")

    # ── the rows ─────────────────────────────────────────────────────────────────────────────

    def _rows(self, store: StoreReader, lanes: Lanes) -> Iterator[Problem]:
        table = f"{store.place}: run"
        check = RunCheck(store, lanes.runs)
        rowless = dict.fromkeys(lanes.runs)
        by_key: dict[str, list[str]] = {}
        for row in store.rows():
            self.runs += 1
            rowless.pop(row.address, None)
            lane = lanes.runs.get(row.address) or Lane(row.address)
            for what in check.problems(row, lane):
                yield Problem(f"{table}: run {row.run_id}", what, FROM_BACKUP)
            if holds_key(row):
                by_key.setdefault(row.session_key, []).append(row.run_id)
        for run_id in rowless:
            yield Problem(table, f"there are events of run {run_id}, but no row", FROM_BACKUP)
        for key, run_ids in by_key.items():
            if len(run_ids) > 1:
                both = ", ".join(map(str, run_ids))
                what = f"runs {both} are both open under the session key {key!r}"
                yield Problem(table, what, FROM_BACKUP)

    def _references(self, store: StoreReader) -> Iterator[Problem]:
        """Rows that point to an event that is not there, or to one of another run."""
        nowhere = "it points to position {}, where no such item stands"
        for item in store.waiting():
            if item.body is None:
                where = f"{store.place}: waiting: run {item.run_id}, {item.seq!r}"
                yield Problem(where, nowhere.format(item.position), FROM_BACKUP)
        for known in store.accepted():
            if known.number:  # Its item has gone.
                continue
            where = f"{store.place}: accepted: run {known.run_id}, {known.key!r}"
            if known.body is None:
                yield Problem(where, nowhere.format(known.position), FROM_BACKUP)
                continue
            try:
                event = decoded(store, known.position, known.body)
                is_of_it = can_be_known_by(event, known.source, known.key)
            except (BadValue, StoreFailed, TypeError, ValueError):  # Which has been told.
                continue
            if not is_of_it:
                what = f"its accepted event has another key than that of {known.source!r}"
                yield Problem(where, what, FROM_BACKUP)

    # ── contents of files ────────────────────────────────────────────────────────────────────

    def _contents(self, store: StoreReader, lanes: Lanes) -> Iterator[Problem]:
        for count, (digest, (position, _)) in enumerate(lanes.digests.items(), 1):
            if what := _content_problem(store, digest):
                remedy = "put it back from a backup"
                named = f"{what} (named at position {position})"
                yield Problem(store.place_of(digest), named, remedy)
            if count % 10_000 == 0:
                self._tell(f"{count:,} of {len(lanes.digests):,} contents of files checked")


def _notes(store: StoreReader) -> Iterator[Problem]:
    """Notes that cannot be read.  What one says is known from elsewhere, but slower."""
    for key, note in store.notes().items():
        where = f"{store.place}: note {key!r}"
        try:
            if key.startswith(LASTING) and note:
                read_note(key.removeprefix(LASTING), note)
            elif key.startswith(JSON_NOTES) and note:
                msgspec.json.decode(note)
            elif key == REMOVED and not is_position(note):
                raise ValueError("it is no position")
        except ValueError as error:
            remedy = "it is written again, or left out, when a runtime opens the store"
            yield Problem(where, f"it cannot be read ({error})", remedy, heals=True)


def _content_problem(store: StoreReader, digest: str) -> str:
    """Why a content is not what its digest says; empty when it is."""
    if len(digest) != 64 or not (digest.isascii() and digest.isalnum()):
        return f"{digest!r} is not a digest"
    try:
        content = store.content(digest)
    except FileNotFoundError:
        return "the content is missing"
    except OSError as error:
        return f"the content cannot be read ({error.strerror})"
    is_sound = hashlib.sha256(content).hexdigest() == digest
    return "" if is_sound else "the content has changed"


def _snapshots(store: StoreReader) -> Iterator[Problem]:
    """Nothing is lost with a snapshot: its run is read whole."""
    remedy = "the run is read whole, until its next snapshot takes the place of this one"
    for run_id, what in store.snapshot_problems():
        yield Problem(f"{store.place}: snapshot: run {run_id}", what, remedy, heals=True)
