"""``NamedContents``: which runs name which contents of files, so that one goes when none does.

    named    a digest, and a run in whose events it stands (0: in the hub's own lane)
    loose    a digest that some run named that is gone

* Whatever looks like a digest in an event names a content.  Events are looked at in the store's
  order, each once; ``meta`` has the position up to which they were.  Who writes them need not know
  of it: nothing goes before all events were looked at, in the transaction that decides.
* What a run named it names as long as it is there, also in turns that have gone from the store: its
  folder has them.
* A run that is taken out, by whichever program, leaves what it named in ``loose``: a trigger.
* What is loose goes if nothing names it and nobody holds it (``HeldContents``): its event may be
  on its way.  It is removed in the thread that writes, between two batches, so that whatever a
  batch names is there, or was refused.
* The files go after the transaction that decided so.  Killed before that, the next life removes
  them.  Each looks once at what lies in the folder: of a run that was killed between putting a
  content and naming it, there is nothing else that would say so.

All of it in the writing thread.
"""

import re
from collections.abc import Container, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from hubbub.hub.store.cursor import is_position
from hubbub.hub.store.store import DroppedContents
from hubbub.runtime.stores.sql.connection import SqlConnection
from hubbub.runtime.stores.sql.removal import behind
from hubbub.runtime.stores.sql.rows import REQUESTS
from hubbub.runtime.stores.sqlite.contents.lock import ContentsLock

__all__ = ["COUNT_DROP", "LOOKED_AT", "NamedContents", "OnRecord", "named_by_runs"]

EVENTS: Final = 2_000
"""Events that are looked at together."""

CONTENTS: Final = 50
"""Contents that go together."""

FOLDERS: Final = 256

SWEPT: Final = 500
"""Contents that are looked for together among those that are named."""

OnRecord: TypeAlias = Sequence[tuple[str, str]]
"""What is held and has been found in an event: the root of its tree, and its digest."""

COUNT_DROP: Final = (
    "INSERT INTO meta VALUES ('drops', '1') "
    "ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1"
)
"""Counts how often contents were removed that nothing names any more."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS named (digest BLOB NOT NULL, run INTEGER NOT NULL, "
    "PRIMARY KEY (digest, run)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS named_run ON named(run)",
    "CREATE TABLE IF NOT EXISTS loose (digest BLOB PRIMARY KEY) WITHOUT ROWID",
    "CREATE TRIGGER IF NOT EXISTS run_gone AFTER DELETE ON run BEGIN "
    "INSERT OR IGNORE INTO loose SELECT digest FROM named WHERE run = OLD.number; "
    "DELETE FROM named WHERE run = OLD.number; END",
)
LOOKED_AT: Final = "SELECT value FROM meta WHERE key = 'contents_looked_at'"
_LOOK_AT: Final = "INSERT OR REPLACE INTO meta VALUES ('contents_looked_at', ?)"
_HAS_NAMED: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'named'"
_NEXT: Final = (
    "SELECT position, CASE lane WHEN 'hub' THEN 0 ELSE run END, root, "
    "coalesce(CAST(body AS TEXT), '') FROM event WHERE position > ? ORDER BY position LIMIT ?"
)
_ROOT: Final = "SELECT run_id FROM address WHERE number = ?"
_NAME: Final = "INSERT OR IGNORE INTO named VALUES (?, ?)"
_IS_NAMED: Final = "SELECT 1 FROM named WHERE digest = ? LIMIT 1"
_LOOSEN: Final = "INSERT OR IGNORE INTO loose VALUES (?)"
_LOOSE: Final = "SELECT digest FROM loose WHERE digest > ? ORDER BY digest LIMIT ?"
_NO_MORE: Final = "DELETE FROM loose WHERE digest = ?"
# Those of requests have digests of requests.
_NOTES: Final = (
    "SELECT value FROM note WHERE length(value) >= 64 "
    f"AND (key < '{REQUESTS}' OR key >= '{behind(REQUESTS)}')"
)


class NamedContents:
    """What of a store's contents is named, from the first retention on."""

    def __init__(self, db: SqlConnection, folder: Path, held: Container[str]) -> None:
        self._db = db
        self._folder = folder
        self._held = held
        for statement in _TABLES:
            db.execute(statement)
        (found,) = db.execute(LOOKED_AT).fetchone() or ("0",)
        self._place = int(found) if is_position(found) else 0  # Else all of it is looked at again.
        if self._place > db.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()[0]:
            self._place = 0  # Not of this record.
        self._swept = 0
        """Folders of contents that were looked through since the store was opened."""
        self._after = b""
        """Up to where what is loose was looked at in this round."""
        self._gone: Sequence[bytes] = ()
        """What has gone and is still called loose."""
        self._on_record: list[tuple[str, str]] = []
        """Of what is held what was found in an event."""

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    def look(self) -> bool:
        """Look at the next events; whether there are more."""
        with self._transaction():
            place, count = self._look(self._place, EVENTS)
        self._place = place
        return count == EVENTS

    def look_at_all(self) -> int:
        """Look at all that there is, within a transaction: few, after ``look``.  Returns the
        position reached, for ``looked_at`` once that is committed."""
        place, _ = self._look(self._place, -1)
        return place

    def looked_at(self, place: int) -> None:
        """A transaction that looked at all up to a position is committed."""
        self._place = place

    def _look(self, place: int, limit: int) -> tuple[int, int]:
        before, count = place, 0
        found: list[tuple[bytes, int]] = []
        for position, run, root, body in self._db.execute(_NEXT, (before, limit)):
            place, count = position, count + 1
            for digest in _DIGEST.findall(body):
                found.append((bytes.fromhex(digest), run))
                if digest in self._held:
                    (root_run_id,) = self._db.execute(_ROOT, (root,)).fetchone() or ("",)
                    self._on_record.append((root_run_id, digest))
        self._db.executemany(_NAME, found)
        if place != before:
            self._db.execute(_LOOK_AT, (str(place),))
        return place, count

    # ── letting go ───────────────────────────────────────────────────────────────────────────

    def drop(self, loose: Sequence[str]) -> tuple[DroppedContents, OnRecord]:
        """Have some contents go that nothing names and nobody holds; ``loose``: what nobody holds
        any more, and may never have been named."""
        self._loosen(map(bytes.fromhex, loose))
        dropped = self._drop_some()
        found, self._on_record = self._on_record, []
        return dropped, found

    def _drop_some(self) -> DroppedContents:
        if self._swept < FOLDERS:
            return DroppedContents(problems=self._sweep(), more=True)
        with ContentsLock(self._folder).alone() as is_alone:
            if not is_alone:  # Somebody copies them: the next time.
                return DroppedContents(more=False)
            return self._drop()

    def _sweep(self) -> list[str]:
        """Call loose what the next folders have that nothing names: an earlier life left it.
        Returns why that is not known of some."""
        found: list[bytes] = []
        problems: list[str] = []
        while self._swept < FOLDERS and len(found) < SWEPT:
            folder = self._folder / f"{self._swept:02x}"
            self._swept += 1
            try:
                names = [place.name for place in folder.iterdir()]
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{folder}: {error.strerror}; make it a folder to read from")
                continue
            found += [bytes.fromhex(name) for name in names if _DIGEST.fullmatch(name)]
        self._loosen(x for x in found if not self._db.execute(_IS_NAMED, (x,)).fetchone())
        return problems

    def _loosen(self, digests: Iterable[bytes]) -> None:
        if found := [(digest,) for digest in digests]:
            with self._transaction():
                self._db.executemany(_LOOSEN, found)

    def _drop(self) -> DroppedContents:
        with self._transaction():
            going, last, place = self._decide()
        self._place, self._after, self._gone = place, last, ()
        contents = size = 0
        gone, problems = [], []
        for digest in going:
            file = self._folder / digest.hex()[:2] / digest.hex()
            try:
                size += file.stat().st_size
                file.unlink()
                contents += 1
            except FileNotFoundError:
                pass
            except OSError as error:
                problems.append(f"{file}: {error.strerror}; make it removable")
                continue
            gone.append(digest)
        self._gone = gone
        more = bool(last)
        return DroppedContents(contents=contents, size=size, problems=problems, more=more)

    def _decide(self) -> tuple[list[bytes], bytes, int]:
        """Of what is loose next: what goes; the last that was looked at, nothing at the end of a
        round; the position up to which all events were looked at."""
        place = self.look_at_all()
        self._db.executemany(_NO_MORE, [(digest,) for digest in self._gone])
        page = [digest for (digest,) in self._db.execute(_LOOSE, (self._after, CONTENTS))]
        if not page:
            return [], b"", place
        named = [x for x in page if self._db.execute(_IS_NAMED, (x,)).fetchone()]
        self._db.executemany(_NO_MORE, [(digest,) for digest in named])
        kept = {*named, *self._noted(page)}
        going = [x for x in page if x not in kept and x.hex() not in self._held]
        if going:
            self._db.execute(COUNT_DROP)  # First: a backup looks at it when it has copied.
        return going, page[-1], place

    def _noted(self, page: Sequence[bytes]) -> set[bytes]:
        """Those of them that a note names."""
        wanted = {digest.hex() for digest in page}
        notes = (note for (note,) in self._db.execute(_NOTES))
        return {bytes.fromhex(x) for note in notes for x in wanted & {*_DIGEST.findall(note)}}

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def named_by_runs(db: SqlConnection) -> Container[str]:
    """The digests that the runs of a store have named, including in turns that have gone.

    Events still in the store may name more: those not looked at yet."""
    if db.execute(_HAS_NAMED).fetchone() is None:
        return ()
    return {digest.hex() for (digest,) in db.execute("SELECT DISTINCT digest FROM named")}
