"""Formats of the database: how a file of an older one becomes a file of this one.

    PRAGMA user_version    1 ──step──► 2 ──step──► … ──► newest()      forward only

* A step runs in one transaction with the number it leads to: whenever the process dies, the file
  is wholly of one format, and the next opening continues from there.
* Only the store's writer upgrades, when a runtime or an import opens the file.  What only reads an
  older file changes nothing: it sees it through ``VIEWS``, and a backup of it is of its own format.
* A file of a newer format is refused.

To change the tables: change them in ``schema.py``, add the step that makes the same of an older
file, and say in ``VIEWS`` how each older format is read.  Then keep a store that was written
before the change (``tests/stores``).
"""

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.logs import log

__all__ = [
    "FIRST", "Migration", "check_newest", "check_version", "newest", "show_as_newest", "upgrade",
]  # fmt: skip

FIRST: Final = 1
"""The oldest format there is."""


class Migration(Struct, frozen=True, kw_only=True):
    """What makes a file of the format before it one of format ``to``.

    ``run`` gets a connection within a transaction, which it must not end, and must not use
    ``executescript``, which ends it.
    """

    to: int
    run: Callable[[sqlite3.Connection], object]


STEPS: tuple[Migration, ...] = ()
"""In order, one for each format but the first."""

VIEWS: Mapping[int, tuple[str, ...]] = {}
"""By format, statements that make temporary views of the tables that have changed since, called
like them.  A format that is left out can be read once a runtime has upgraded it."""


def newest() -> int:
    """The format of the files that this program writes."""
    return STEPS[-1].to if STEPS else FIRST


def version_of(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_version(db: sqlite3.Connection, path: Path) -> None:
    """Raise ``OperatorError`` for a file of a format that this program does not know."""
    version = version_of(db)
    if version > newest():
        raise OperatorError(
            f"{path}: written by a newer hubbub (format {version}; this one knows {newest()}); "
            "upgrade hubbub, or give another path, for example that of an older backup"
        )


def check_newest(db: sqlite3.Connection, path: Path) -> None:
    """Raise ``OperatorError`` for a file that is not of the newest format."""
    check_version(db, path)
    version = version_of(db)
    if version != newest():
        raise OperatorError(
            f"{path}: of an older format ({version}; this hubbub writes {newest()}); open a "
            "runtime on it once, which upgrades it, and migrate it then"
        )


def upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Bring a file to the newest format, step by step, each durable before the next begins.

    Raises ``OperatorError`` where what is in the file is in a step's way, and
    ``sqlite3.Error``; the file is then as the last complete step has left it.
    """
    for step in STEPS:
        version = version_of(db)
        if version >= step.to:
            continue
        db.execute("BEGIN IMMEDIATE")
        try:
            step.run(db)
            db.execute(f"PRAGMA user_version={step.to}")
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(error, _OF_OTHERS) or not isinstance(error, Exception):
                raise
            words = " ".join(f"{type(error).__name__}: {error}".split())
            raise OperatorError(
                f"{path}: cannot be upgraded from format {version} to {step.to} ({words}); nothing "
                "has changed: hubbub fsck says what is damaged, hubbub backup copies what there is"
            ) from error
        log.info("store.upgraded", path=str(path), before=version, now=step.to)


_OF_OTHERS: Final = (sqlite3.Error, OSError, MemoryError, OperatorError)
"""What does not speak of the contents of a file."""


def show_as_newest(db: sqlite3.Connection, path: Path) -> None:
    """Have a connection that only reads find an older file as though it were upgraded.

    Raises ``OperatorError`` for a format of which that cannot be done.
    """
    version = version_of(db)
    if version == newest():
        return
    views = VIEWS.get(version)
    if views is None:
        raise OperatorError(
            f"{path}: of an older format ({version}; this hubbub reads {newest()}); copy the "
            "folder while nothing uses it, as a backup, and open a runtime on it: that upgrades it"
        )
    for view in views:
        db.execute(view)
