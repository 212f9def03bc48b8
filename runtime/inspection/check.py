"""``StoreCheck``: whether a store is as it was written, and agrees with itself (``hubbub fsck``).

    the file      SQLite's own check
    events        see ``lane_check.py``
    rows          what the tables of runs, inboxes and keys say, against the events
    contents      every file that an event names, by digest
    folders       ``agents/``, where there is one, against the database

Nothing is written, no damage raises, and a problem is one line: where, what, and the remedy.
Memory grows with the number of runs and of named contents, not with that of events.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.runtime.inspection.lanes import FROM_BACKUP, Lane, Lanes, Problem
from hubbub.runtime.inspection.run_check import MISFITS, RunCheck, is_key_of
from hubbub.runtime.stores.folders.conversation_reader import ContextReader
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.read import Broken
from hubbub.runtime.stores.folders.write import AgentFolders
from hubbub.runtime.stores.open import folder_of_store
from hubbub.runtime.stores.sqlite.file import UNREADABLE, StoreFile, failure_of, open_store_file
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.reader import SqliteReader
from hubbub.runtime.stores.sqlite.regular_files import open_regular

__all__ = ["StoreCheck"]

PAGE: Final = 1_000
STEP: Final = 200_000
"""Events after which progress is told."""

CHUNK: Final = 1 << 20

Tell = Callable[[str], object]


class StoreCheck:
    """One check of the store that ``store`` names; ``thorough`` looks at its indexes too.

    ``problems`` yields what is wrong; when it is through, ``runs`` and ``events`` say how much
    was looked at.  ``tell`` is told how far it has come, now and then.
    """

    def __init__(self, store: str, *, thorough: bool = False, tell: Tell | None = None) -> None:
        self._store = store
        self._thorough = thorough
        self._tell = tell or (lambda _: None)
        self.runs = 0
        self.events = 0

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong.  Raises ``OperatorError`` only where there is no store."""
        folder = folder_of_store(self._store)
        file = str(folder.database)
        try:
            with open_store_file(self._store) as store:
                try:
                    with store.one_moment():
                        yield from self._all(store)
                except UNREADABLE as error:
                    yield _of_file(file, error)
                    return
                yield from self._folders(store)
        except OperatorError as error:
            if not folder.database.is_file():
                raise
            words = str(error).removeprefix(f"{file}: ")
            what, _, remedy = words.partition("; ")
            yield Problem(file, what, remedy or FROM_BACKUP)

    def _all(self, store: StoreFile) -> Iterator[Problem]:
        yield from self._file(store)
        lanes = Lanes(f"{store.folder.database}: event", _run_ids(store))
        try:
            yield from self._scan(store, lanes)
        except UNREADABLE as error:
            # What cannot be read would be missed by every other check.
            yield _of_file(f"{store.folder.database}: event: after {lanes.events:,} of them", error)
        else:
            yield from self._rows(store, lanes)
            yield from self._references(store)
        yield from self._contents(store.folder, lanes)

    # ── the file, the events ─────────────────────────────────────────────────────────────────

    def _file(self, store: StoreFile) -> Iterator[Problem]:
        pragma = "integrity_check" if self._thorough else "quick_check"
        try:
            found = store.db.execute(f"PRAGMA {pragma}(100)").fetchall()
        except UNREADABLE as error:
            yield _of_file(str(store.folder.database), error)
            return
        for (text,) in found:
            if text != "ok":
                what = " ".join(str(text).split())
                yield Problem(str(store.folder.database), what, FROM_BACKUP)

    def _scan(self, store: StoreFile, lanes: Lanes) -> Iterator[Problem]:
        select = (
            "SELECT position, run, root, lane, seq, type, crc, CAST(body AS BLOB) FROM event "
            f"WHERE position > ? ORDER BY position LIMIT {PAGE}"
        )
        position = -(1 << 62)
        while rows := store.db.execute(select, (position,)).fetchall():
            for row in rows:
                yield from lanes.take(row)
            position = rows[-1][0]
            if lanes.events % STEP == 0:
                self._tell(f"{lanes.events:,} events checked")
        self.events = lanes.events
        hub = lanes.hub.seq
        self._tell_end(lanes.events, hub)

    def _tell_end(self, events: int, hub: int) -> None:
        if events >= STEP:
            self._tell(f"all {events:,} events checked ({hub:,} of the hub's); now the runs")

    # ── the rows ─────────────────────────────────────────────────────────────────────────────

    def _rows(self, store: StoreFile, lanes: Lanes) -> Iterator[Problem]:
        table = f"{store.folder.database}: run"
        check = RunCheck(store.db)
        for row in check.rows():
            self.runs += 1
            lane = lanes.runs.pop(row["number"], None) or Lane(str(row["run_id"]))
            for what in check.problems(row, lane):
                yield Problem(f"{table}: run {row['run_id']}", what, FROM_BACKUP)
        for lane in lanes.runs.values():
            yield Problem(table, f"there are events of run {lane.name}, but no row", FROM_BACKUP)
        for key, run_ids in check.doubled_keys():
            what = f"runs {run_ids} are both open under the session key {key!r}"
            yield Problem(table, what, FROM_BACKUP)

    def _references(self, store: StoreFile) -> Iterator[Problem]:
        """Rows that point to an event that is not there, or to one of another run."""
        for table, wrong in _REFERENCES.items():
            for run, what, position in store.db.execute(wrong):
                where = f"{store.folder.database}: {table}: number {run}, {what!r}"
                pointed = f"it points to position {position}, where no such item stands"
                yield Problem(where, pointed, FROM_BACKUP)
        select = (
            "SELECT a.run, a.source, a.key, e.body FROM accepted AS a JOIN event AS e "
            "USING (position) WHERE e.run = a.run AND e.lane = 'in'"
        )
        for run, source, key, body in store.db.execute(select):
            try:
                is_of_it = is_key_of(decode_event(body), source, key)
            except (BadValue, TypeError, ValueError):  # Which has been told.
                continue
            if not is_of_it:
                where = f"{store.folder.database}: accepted: number {run}, {key!r}"
                what = f"what was accepted says of itself another key than that of {source!r}"
                yield Problem(where, what, FROM_BACKUP)

    # ── beside the database ──────────────────────────────────────────────────────────────────

    def _contents(self, folder: DataFolder, lanes: Lanes) -> Iterator[Problem]:
        for count, (digest, (position, _)) in enumerate(lanes.digests.items(), 1):
            if what := _content_problem(folder.blobs, digest):
                place = folder.blobs / digest[:2] / digest
                named = f"named at position {position}"
                remedy = "put it back from a backup"
                yield Problem(str(place), f"{what} ({named})", remedy)
            if count % 10_000 == 0:
                self._tell(f"{count:,} of {len(lanes.digests):,} contents of files checked")

    def _folders(self, store: StoreFile) -> Iterator[Problem]:
        """``agents/``, which a runtime at work writes a moment after the database."""
        if not os.path.lexists(store.folder.agents):
            return
        if StoreLock(store.folder.database).is_held():
            self._tell("a runtime is at work on the store: agents/, which follows it, is left out")
            return

        def events_of(run_id: str) -> list[Event]:
            return [x.event for x in store.events(run_id) if x.event.lane in ("own", "in")]

        reader = SqliteReader(store.db)
        folders = AgentFolders(
            store.folder.agents, RealDisk(), events_of, store.folder.blobs,
            conversations=ContextReader(store),
        )  # fmt: skip
        select = "SELECT run_id FROM run WHERE descriptor IS NOT NULL ORDER BY number"
        try:
            run_ids = [run_id for (run_id,) in store.db.execute(select)]
            roots = reader.roots()
        except UNREADABLE:  # Which the check of the file has told.
            return
        for one in folders.foreign(roots.get):
            if isinstance(one, Broken):
                where = f"{one.file}:{one.line}" if one.line else one.file
                yield Problem(where, one.what, one.remedy)
        for run_id in run_ids:
            problems: list[tuple[str, bool]] = []
            for _ in range(2):  # What was just being written is there the second time.
                try:
                    info = reader.info(run_id)
                    problems = folders.check_apart(info) if info is not None else []
                except MISFITS:  # Its events cannot be read, which has been told.
                    problems = []
                if not problems:
                    break
            for text, is_behind in problems:
                where, _, what = text.partition(": ")
                remedy = "it is brought in line when a runtime opens the store"
                yield Problem(where, what, remedy, heals=is_behind)


_REFERENCES: Final = {
    "waiting": "SELECT w.run, w.seq, w.position FROM waiting AS w "
    "LEFT JOIN event AS e ON e.position = w.position "
    "WHERE e.run IS NOT w.run OR e.lane IS NOT 'in' OR e.seq IS NOT w.seq",
    "accepted": "SELECT a.run, a.key, a.position FROM accepted AS a "
    "LEFT JOIN event AS e ON e.position = a.position "
    "WHERE e.run IS NOT a.run OR e.lane IS NOT 'in'",
}


def _run_ids(store: StoreFile) -> Callable[[Any], str | None]:
    def run_id_of(number: Any) -> str | None:
        select = "SELECT run_id FROM address WHERE number = ?"
        found = store.db.execute(select, (number,)).fetchone()
        return found[0] if found is not None else None

    return run_id_of


def _content_problem(blobs: Path, digest: str) -> str:
    """Why a content is not what its digest says; empty when it is."""
    if len(digest) != 64 or not (digest.isascii() and digest.isalnum()):
        return f"{digest!r} is no digest"
    hashed = hashlib.sha256()
    try:
        with open_regular(blobs / digest[:2] / digest) as file:
            while chunk := file.read(CHUNK):
                hashed.update(chunk)
    except FileNotFoundError:
        return "the content is missing"
    except OSError as error:
        return f"the content cannot be read ({error.strerror})"
    return "" if hashed.hexdigest() == digest else "the content has changed"


def _of_file(where: str, error: sqlite3.Error | UnicodeDecodeError) -> Problem:
    words = failure_of(Path(), error).removeprefix(".: ")
    what, _, remedy = words.partition("; ")
    return Problem(where, what, remedy)
