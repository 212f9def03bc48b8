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
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hubbub.hub.descriptors import kind_of_descriptor, read_descriptor
from hubbub.hub.errors import BadValue, HubbubError, OperatorError
from hubbub.hub.events import Event
from hubbub.runtime.agent_folders import AgentFolders
from hubbub.runtime.context_reader import ContextReader
from hubbub.runtime.data_folder import DataFolder, FolderLock
from hubbub.runtime.disk import RealDisk
from hubbub.runtime.foreign_folders import Broken
from hubbub.runtime.lane_check import FROM_BACKUP, Lane, Lanes, Problem
from hubbub.runtime.sqlite_reader import SqliteReader
from hubbub.runtime.store_file import (
    BY_ID,
    IMPORTED,
    UNREADABLE,
    StoreFile,
    failure_of,
    open_store_file,
)
from hubbub.runtime.stores import folder_of_store

__all__ = ["StoreCheck"]

PAGE: Final = 1_000
STEP: Final = 200_000
"""Events after which progress is told."""

CHUNK: Final = 1 << 20

Tell = Callable[[str], object]

_STATUSES: Final = ("active", "waiting", "parked", "ended")
_INBOXES: Final = ("open", "closing", "terminated", "ended")

_MISFITS: Final = (
    HubbubError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
    RecursionError, sqlite3.Error,
)  # fmt: skip
"""What values that do not fit together come to."""


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
        gone = _known_gone(store)
        number = -(1 << 62)
        select = f"SELECT {', '.join(_COLUMNS)} FROM run WHERE number > ? ORDER BY number LIMIT"
        while rows := store.db.execute(f"{select} {PAGE}", (number,)).fetchall():
            for values in rows:
                row = dict(zip(_COLUMNS, values, strict=True))
                self.runs += 1
                where = f"{table}: run {row['run_id']}"
                lane = lanes.runs.pop(row["number"], None) or Lane(str(row["run_id"]))
                for what in (
                    *_own_problems(row, lane),
                    *_counter_problems(row, lane),
                    *_inbox_problems(store, row, lane),
                    *_family_problems(store, row, gone),
                ):
                    yield Problem(where, what, FROM_BACKUP)
            number = rows[-1][0]
        for lane in lanes.runs.values():
            yield Problem(table, f"there are events of run {lane.name}, but no row", FROM_BACKUP)

    def _references(self, store: StoreFile) -> Iterator[Problem]:
        """Rows that point to an event that is not there, or to one of another run."""
        for table, wrong in _REFERENCES.items():
            for run, what, position in store.db.execute(wrong):
                where = f"{store.folder.database}: {table}: number {run}, {what!r}"
                pointed = f"it points to position {position}, where no such item stands"
                yield Problem(where, pointed, FROM_BACKUP)

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
        if not store.folder.agents.is_dir():
            return
        if FolderLock(store.folder.root / "hubbub.lock").is_held():
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
        except UNREADABLE:  # Which the check of the file has told.
            return
        known = frozenset(run_ids)
        for one in folders.foreign(known.__contains__):
            if isinstance(one, Broken):
                where = f"{one.file}:{one.line}" if one.line else one.file
                yield Problem(where, one.what, one.remedy)
        for run_id in run_ids:
            problems: list[str] = []
            for _ in range(2):  # What was just being written is there the second time.
                try:
                    info = reader.info(run_id)
                    problems = folders.check(info) if info is not None else []
                except _MISFITS:  # Its events cannot be read, which has been told.
                    problems = []
                if not problems:
                    break
            for text in problems:
                where, _, what = text.partition(": ")
                remedy = "it is brought in line when a runtime opens the store"
                yield Problem(where, what, remedy)


_COLUMNS: Final = (
    "number", "run_id", "root_run_id", "parent_run_id", "kind", "descriptor", "status", "inbox",
    "ready", "seq", "in_seq", "chain", "waiting", "messages", "born", "recent",
    "created_at",
)  # fmt: skip

_REFERENCES: Final = {
    "waiting": "SELECT w.run, w.seq, w.position FROM waiting AS w "
    "LEFT JOIN event AS e ON e.position = w.position "
    "WHERE e.run IS NOT w.run OR e.lane IS NOT 'in' OR e.seq IS NOT w.seq",
    "accepted": "SELECT a.run, a.key, a.position FROM accepted AS a "
    "LEFT JOIN event AS e ON e.position = a.position "
    "WHERE e.run IS NOT a.run OR e.lane IS NOT 'in'",
}


def _own_problems(row: dict[str, Any], lane: Lane) -> Iterator[str]:
    """What is wrong with a row by itself."""
    if lane.name != row["run_id"]:
        yield f"number {row['number']} stands for {lane.name} in the table of addresses"
    if row["status"] not in _STATUSES:
        yield f"its status is {row['status']!r}, not one of {', '.join(_STATUSES)}"
    recent = row["recent"]  # 0 where no user is meant, as with a schedule's agent.
    if not isinstance(recent, int) or (recent and recent < (row["created_at"] or 0)):
        yield f"recent is {recent!r}, before it was created"
    if row["inbox"] not in _INBOXES:
        yield f"its inbox is {row['inbox']!r}, not one of {', '.join(_INBOXES)}"
    try:
        text = row["descriptor"]
        kind = kind_of_descriptor(None if text is None else read_descriptor(text))
    except (BadValue, TypeError, UnicodeError) as error:
        yield f"its descriptor cannot be read ({error})"
    else:
        if kind != row["kind"]:
            yield f"its kind is {row['kind']!r}, its descriptor's {kind!r}"


def _counter_problems(row: dict[str, Any], lane: Lane) -> Iterator[str]:
    for column, counted in (("seq", lane.seq), ("in_seq", lane.in_seq), ("born", lane.born)):
        if row[column] != counted:
            yield f"{column} is {row[column]!r}, but its events say {counted}"
    if row["chain"] not in lane.chains:
        yield "its chain of checksums ends otherwise than its events' does"


def _inbox_problems(store: StoreFile, row: dict[str, Any], lane: Lane) -> Iterator[str]:
    untaken = {} if row["status"] == "ended" else lane.untaken
    select = "SELECT seq FROM waiting WHERE run = ? ORDER BY seq"
    waiting = [seq for (seq,) in store.db.execute(select, (row["number"],))]
    if lane.is_clear:
        present = frozenset(waiting)
        if lost := [seq for seq in untaken if seq not in present]:
            yield f"in {lost[0]!r} was not taken, but does not wait ({len(lost)} such)"
        if extra := [seq for seq in waiting if seq not in untaken]:
            yield f"in {extra[0]!r} waits, but was taken or never came ({len(extra)} such)"
    if row["waiting"] != len(waiting):
        yield f"waiting is {row['waiting']!r}, but {len(waiting)} items wait"
    messages = sum(untaken.get(seq, False) for seq in waiting)
    if lane.is_clear and row["messages"] != messages:
        yield f"messages is {row['messages']!r}, but {messages} messages wait"
    is_ready = row["status"] == "active" or (row["status"] != "ended" and bool(waiting))
    if row["ready"] != is_ready:
        yield f"ready is {row['ready']!r}, but it has {'' if is_ready else 'no '}work to go on with"


def _family_problems(store: StoreFile, row: dict[str, Any], gone: frozenset[str]) -> Iterator[str]:
    run_id, root, parent = row["run_id"], row["root_run_id"], row["parent_run_id"]
    if parent is None:
        if root != run_id:
            yield f"it has no parent, but {root} as its root"
        return
    select = f"SELECT root_run_id FROM run WHERE {BY_ID}"
    found = store.db.execute(select, (parent,)).fetchone()
    if found is None and parent not in gone:
        yield f"its parent {parent} is missing"
    elif found is not None and found[0] != root:
        yield f"its root is {root}, its parent's {found[0]}"
    if root not in gone and not store.db.execute(select, (root,)).fetchone():
        yield f"its root {root} is missing"


def _known_gone(store: StoreFile) -> frozenset[str]:
    """Runs that were not in the exports their descendants came in."""
    select = (
        "SELECT root_run_id, parent_run_id FROM note JOIN address ON address.run_id = "
        "substr(note.key, length(?1) + 1) JOIN run USING (number) "
        "WHERE substr(note.key, 1, length(?1)) = ?1 AND parent_run_id IS NOT NULL"
    )
    rows = store.db.execute(select, (IMPORTED,))
    return frozenset(run_id for row in rows for run_id in row)


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
        with (blobs / digest[:2] / digest).open("rb") as file:
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
