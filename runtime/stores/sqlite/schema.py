"""The SQLite file: its tables, how it is opened, and what its errors mean to people.

    run        one row a run: who it is, how far its lanes are, what waits
    address    the numbers that stand for run ids
    event      every durable event, numbered in the one order of the store
    waiting    what is in inboxes, by where it is in ``event``
    accepted   what was accepted under a key, permanently
    note       texts by key;  secret  values of variables, which stand nowhere else;  meta
    snapshot   what long runs have come to; it follows from their events

``event.body`` is the event as JSON text, whole; ``crc`` chains the events of a lane's run, so that
``hubbub fsck`` finds what has changed or is missing.

Only the store's one writer connection writes or checkpoints, which also keeps clear of the
defect in SQLite before 3.51.3 that two writing connections can meet (sqlite.org/wal.html,
"WAL-reset bug").  Readers see committed transactions and never block the writer.
"""

import os
import shutil
import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sql.store_reader import IS_SPOKEN_TO, RESTS
from hubbub.runtime.stores.sql.whole_copy import unfinished_copy
from hubbub.runtime.stores.sqlite.blobs import sync_folder
from hubbub.runtime.stores.sqlite.folder import BESIDE
from hubbub.runtime.stores.sqlite.lock import identity_of
from hubbub.runtime.stores.sqlite.migrations import (
    check_version,
    newest,
    show_as_newest,
    upgrade,
)
from hubbub.runtime.stores.sqlite.private_files import make_private_file, narrow, open_private

__all__ = [
    "INCREMENTAL", "KEEP_NOTE", "MAX_LOG_BYTES", "PRAGMAS", "HeldLog", "begin_copy",
    "complete_copy", "connect", "connect_read_only", "drops_of", "is_damage", "is_io_error",
    "mark_failed", "prepare", "source_of_copy", "store_failure",
]  # fmt: skip

APPLICATION: Final = 0x68756221
"""``PRAGMA application_id``: ``hub!``."""

UNFINISHED: Final = 0x68756200
"""The same of a database that a migration has begun to copy: no program takes it for a store."""

BUSY_SECONDS: Final = 5.0

DAMAGED: Final = (
    "restore it from a backup, or move the file away and start again: agents come back from the "
    "folder agents/"
)

MAX_LOG_BYTES: Final = 64 * 1024 * 1024
"""To what a log is cut that was longer, when SQLite begins it again."""

PRAGMAS: Final = (
    "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0",
    f"journal_size_limit={MAX_LOG_BYTES}", "fullfsync=1", "temp_store=MEMORY",
)  # fmt: skip
"""How the writing connection is set; ``tests/runtime/stores/test_crash_vfs.py`` shows why."""

INCREMENTAL: Final = 2
"""``PRAGMA auto_vacuum``: a file that can give back the room that is free in it, when asked to."""

FULL: Final = 1
"""The same: one that does so with every commit."""

_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE address (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE);
CREATE TABLE run (
  number INTEGER PRIMARY KEY REFERENCES address,
  run_id TEXT NOT NULL, root_run_id TEXT NOT NULL, parent_run_id TEXT,
  agent TEXT NOT NULL, name TEXT NOT NULL, session_key TEXT NOT NULL,
  kind TEXT NOT NULL, descriptor TEXT,
  status TEXT NOT NULL, inbox TEXT NOT NULL, ready INTEGER NOT NULL,
  seq INTEGER NOT NULL, in_seq INTEGER NOT NULL, chain INTEGER NOT NULL,
  waiting INTEGER NOT NULL, messages INTEGER NOT NULL, born INTEGER NOT NULL,
  created_at INTEGER NOT NULL, wake_at INTEGER, recent INTEGER NOT NULL
);
CREATE INDEX run_ready ON run(born) WHERE ready = 1;
CREATE INDEX run_timed ON run(wake_at) WHERE wake_at IS NOT NULL AND status <> 'ended';
CREATE INDEX run_live ON run(agent) WHERE status <> 'ended';
CREATE INDEX run_key ON run(session_key) WHERE session_key <> '' AND inbox = 'open';
CREATE INDEX run_recent ON run(kind, recent)
  WHERE inbox = 'open' AND kind IN ('user', 'heartbeat');
CREATE INDEX run_child ON run(root_run_id) WHERE parent_run_id IS NOT NULL;
CREATE TABLE event (
  position INTEGER PRIMARY KEY,
  run INTEGER NOT NULL, root INTEGER NOT NULL, lane TEXT NOT NULL, seq INTEGER NOT NULL,
  type TEXT NOT NULL, crc INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE INDEX event_run ON event(run);
CREATE INDEX event_hub ON event(root) WHERE lane = 'hub';
CREATE TABLE waiting (
  run INTEGER NOT NULL, seq INTEGER NOT NULL, position INTEGER NOT NULL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE accepted (
  run INTEGER NOT NULL, source TEXT NOT NULL, key TEXT NOT NULL, position INTEGER NOT NULL,
  PRIMARY KEY (run, source, key)
) WITHOUT ROWID;
CREATE TABLE note (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE secret (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


READABLE: Final = partial(str, encoding="utf-8", errors="replace")
"""How texts are read: bytes that are none make what they are in unreadable, and nothing else."""


def connect(path: Path) -> sqlite3.Connection:
    """The writing connection; makes the file if there is none.

    Raises ``OperatorError`` for a file that is none of ours, of a newer version, damaged, or
    where nothing may be written.
    """
    try:
        _refuse_links(path)
        _refuse_emptied(path)
        # SQLite gives its log the mode that the database has.  Nobody but SQLite may open that:
        # closing it again would take from SQLite every lock that this process has on it.
        make_private_file(path)
        narrow((path, *(path.with_name(f"{path.name}{end}") for end in BESIDE)))
        _copy_log(path)
        before = identity_of(path)
        db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
        db.text_factory = READABLE
        try:
            if not _is_empty(db):  # Before anything is changed in a file that may not be ours.
                _check_format(db, path)
            _set_up(db)
            prepare(db, path)
            if identity_of(path) != before:
                raise OperatorError(f"{path}: was replaced while it was opened; start again")
            _mark(path).unlink(missing_ok=True)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        mark_failed(path, error)
        raise OperatorError(store_failure(path, error)) from error
    except UnicodeDecodeError as error:  # The words of SQLite's own complaint are damaged, too.
        raise OperatorError(f"{path}: damaged ({error.reason}); {DAMAGED}") from error
    except OSError as error:
        raise OperatorError(
            f"{error.filename or path}: {error.strerror}; make it a file that can be written, or "
            "give another path"
        ) from error
    return db


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that reads what is committed, beside a writer or without one."""
    if not path.exists():
        remedy = "give the folder that a runtime has used"
        if (path.parent / "agents").is_dir():
            remedy = "open a runtime on its folder, and the agents in agents/ come back"
        raise OperatorError(f"{path}: no such store; {remedy}")
    _refuse_links(path)
    try:
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None,
            timeout=BUSY_SECONDS, check_same_thread=False,
        )  # fmt: skip
        db.text_factory = READABLE
        try:
            if _is_empty(db):
                raise OperatorError(f"{path}: nothing in it yet; open a runtime on it first")
            _check_format(db, path)
            show_as_newest(db, path)
            _show_added(db)
            db.execute("PRAGMA query_only=1")
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise OperatorError(store_failure(path, error)) from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"{path}: damaged ({error.reason}); {DAMAGED}") from error
    return db


def _set_up(db: sqlite3.Connection) -> None:
    # Later it takes a rewriting of the file.  FULL is what a vacuum leaves that was killed.
    if _is_empty(db) or db.execute("PRAGMA auto_vacuum").fetchone()[0] == FULL:
        db.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}")


class HeldLog:
    """As long as it is open, nothing that is written later is moved from the log of the database
    at ``path`` into the file, and SQLite does not empty the log when the store is closed.

    For who tries what a disk may lose.
    """

    def __init__(self, path: Path) -> None:
        self._db = connect_read_only(path)
        self._db.execute("BEGIN")
        # A transaction begins with its first read.
        self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def close(self) -> None:
        """Release the log; idempotent."""
        self._db.close()


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, upgrade an older one, refuse one of no known format."""
    if _is_empty(db):
        script = f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id={APPLICATION};"
        db.executescript(f"{script} PRAGMA user_version={newest()}; COMMIT;")
    _check_format(db, path)
    upgrade(db, path)
    for added in _ADDED:
        db.execute(added)
    # What a killed process has left in the log, and the tables, are on the disk from here on.
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _refuse_links(path: Path) -> None:
    """By its other name a database has another log, and another lock."""
    if path.exists() and (names := path.stat().st_nlink) > 1:
        raise OperatorError(
            f"{path}: one of {names} names of this file (hard links); its log lies beside one of "
            "them only: keep that one, remove the others, and start again"
        )


def _refuse_emptied(path: Path) -> None:
    """SQLite throws the log of an empty file away, and with it what was acknowledged last."""
    log = path.with_name(f"{path.name}-wal")
    if path.exists() and log.exists() and log.stat().st_size and not path.stat().st_size:
        raise OperatorError(
            f"{path}: empty, but its log {log.name} is not; restore it from a backup, or move "
            "both away and start again: agents come back from the folder agents/"
        )


def mark_failed(path: Path, error: sqlite3.Error) -> None:
    """Have the next opening of the file take nothing for written that a flush may have lost."""
    if is_io_error(error):
        with suppress(OSError):
            make_private_file(_mark(path))


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}-failed")


def _copy_log(path: Path) -> None:
    """Put a flushed copy in the place of a log that a flush has failed on.

    After such a failure the system may show what it was to write and have it on no disk, and call
    the next flush a success all the same.  What were added behind it, or moved into the file, would
    be lost with the power, or undone by the older log that is on the disk.
    """
    if not _mark(path).exists():
        return
    log = path.with_name(f"{path.name}-wal")
    copy = path.with_name(f"{path.name}-wal-copy")
    with suppress(FileNotFoundError):
        with log.open("rb") as content, open_private(copy) as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        copy.replace(log)
        sync_folder(path.parent)


KEEP_NOTE: Final = (
    "INSERT INTO note VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value "
    "WHERE value <> excluded.value"
)
"""Keeps a text by its key; writes nothing where it stands there."""


def drops_of(db: sqlite3.Connection) -> str:
    """How often contents were removed (``COUNT_DROP``), as a connection sees it."""
    found = db.execute("SELECT value FROM meta WHERE key = 'drops'").fetchone()
    return str(found[0]) if found else "0"


_SNAPSHOT: Final = (
    "snapshot (run INTEGER PRIMARY KEY, seq INTEGER NOT NULL, version TEXT NOT NULL, "
    "crc INTEGER NOT NULL, body BLOB NOT NULL)"
)

_ADDED: Final = (
    f"CREATE TABLE IF NOT EXISTS {_SNAPSHOT}",
    """
    CREATE INDEX IF NOT EXISTS run_identity ON run(descriptor)
      WHERE inbox = 'open' AND kind IN ('user', 'cron', 'heartbeat')
    """,
    f"CREATE INDEX IF NOT EXISTS run_spoken_to ON run(recent, born) WHERE {IS_SPOKEN_TO}",
    "CREATE INDEX IF NOT EXISTS run_root ON run(born) WHERE parent_run_id IS NULL",
    # Who is at work stands in ``run_ready``: a run that never rests need not go in and out here.
    "DROP INDEX IF EXISTS run_live_root",
    "DROP INDEX IF EXISTS run_live_child",
    f"""
    CREATE INDEX IF NOT EXISTS run_resting_root ON run(born)
      WHERE parent_run_id IS NULL AND {RESTS}
    """,
    f"""
    CREATE INDEX IF NOT EXISTS run_resting_child ON run(root_run_id)
      WHERE parent_run_id IS NOT NULL AND {RESTS}
    """,
)
"""Also for files that an older program made; it keeps an index up to date like any other, and a
snapshot is of the record that it was made of, whatever comes after."""


def _show_added(db: sqlite3.Connection) -> None:
    """Have a connection that only reads find a table that an older program did not make."""
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'snapshot'").fetchone():
        db.execute(f"CREATE TEMP TABLE {_SNAPSHOT}")


def _is_empty(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]


def _check_format(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application == UNFINISHED:
        raise unfinished_copy(str(path), _source_of(db))
    if application != APPLICATION:
        raise OperatorError(f"{path}: a database, but not of hubbub; give another path")
    check_version(db, path)


def begin_copy(path: Path, source: str) -> sqlite3.Connection:
    """A connection to a new database, which is to become a copy of the store ``source``.

    Until ``complete_copy`` whoever opens it is refused.  Raises ``sqlite3.Error``.
    """
    make_private_file(path)
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    db.text_factory = READABLE
    try:
        _set_up(db)
        script = f"BEGIN IMMEDIATE; {_TABLES} {'; '.join(_ADDED)};"
        script += f"PRAGMA application_id={UNFINISHED}; PRAGMA user_version={newest()};"
        db.executescript(script)
        db.execute("INSERT INTO meta VALUES ('source', ?)", (source,))
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except BaseException:
        db.close()
        raise
    return db


def complete_copy(db: sqlite3.Connection, name: str) -> None:
    """Make a store of a copy, durably; ``name`` is what it is called.  Raises ``sqlite3.Error``."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.execute("BEGIN IMMEDIATE")
    db.execute("DELETE FROM meta WHERE key = 'source'")
    db.execute("INSERT INTO meta VALUES ('store', ?)", (name,))
    db.execute(f"PRAGMA application_id={APPLICATION}")
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def source_of_copy(path: Path) -> str | None:
    """The store of which the database at ``path`` is an unfinished copy; empty where there is
    nothing in it yet, ``None`` if it is anything else.

    Raises ``sqlite3.Error`` for what cannot be read.
    """
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    try:
        if _is_empty(db):
            return ""
        (application,) = db.execute("PRAGMA application_id").fetchone()
        return _source_of(db) if application == UNFINISHED else None
    finally:
        db.close()


def _source_of(db: sqlite3.Connection) -> str:
    found = db.execute("SELECT value FROM meta WHERE key = 'source'").fetchone()
    return str(found[0]) if found else "unknown"


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is the trouble."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def is_io_error(error: sqlite3.Error) -> bool:
    """Whether the disk, or the way to it, is the trouble."""
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR")


def store_failure(path: Path, error: sqlite3.Error) -> str:
    """What is wrong with the store, and what to do, in one line."""
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    words = f"{path}: {' '.join(str(error).split())} ({name})"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"{words}; {DAMAGED}"
    if name.startswith("SQLITE_FULL"):
        return f"{words}; free some space and start again: what was acknowledged is kept"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"{words}; make the folder and the file writable, or give another path"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{words}; another program writes this file: stop it and start again"
    return f"{words}; look at the disk and start again: what was acknowledged is kept"
