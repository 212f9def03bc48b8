"""Formats of the tables: how those of an older format become those of this program.

    meta.format   what the tables are:  1 ──step──► 2 ──step──► … ──► newest()    forward only
    meta.reads    the oldest format of a program that may be at work on them

* Programs of two adjacent versions work on one store.  So a step only adds what the older one need
  not know: tables, indexes, columns with a default.  What nobody uses any more is dropped by a
  version after that, which then says so by ``beside``.
* The first process of a newer version that opens the store upgrades it, under a lock, while others
  are at work on it.  A process that the tables have left behind is refused with one line, and so is
  the upgrade while a process is at work that would be left behind.
* What a version records that the one before does not know has a format of its own, too.  A tree
  with such a record is only for processes that know it (``tree.needs``): who owns it lets it go.
* A step and its number are one transaction; indexes are built before it, without holding up
  anybody.  Whenever the process dies, the tables are of one format, and the next one goes on.

To change the tables: change them in ``schema.py``, and add the step that makes the same of older
ones.  Statements name the columns that they read and write.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.logs import log
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import LOCK_WAIT, PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import is_passing
from hubbub.runtime.stores.sql.removal import IS_REQUEST
from hubbub.runtime.stores.sql.whole_copy import unfinished_copy

__all__ = [
    "BASES",
    "FIRST",
    "SNAPSHOT",
    "UNFINISHED",
    "Upgrade",
    "build_index",
    "check_format",
    "format_of",
    "formats",
    "index_for_removals", "let_bases_in",
    "making",
    "new_records",
    "newest",
    "upgrade",
]  # fmt: skip

FIRST: Final = 1
"""The oldest format there is."""

BASES: Final = 5
"""The oldest format of a program that knows bases of runs, and that old turns go: such a program
has the tables exclude all older ones before a base is written (``take_bases``)."""

UNFINISHED: Final = "unfinished"
"""What stands in the place of a format where a migration has begun to copy a store into tables."""


class Upgrade(Struct, frozen=True, kw_only=True):
    """What makes tables of the format before it ones of format ``to``.

    ``beside``: the oldest format of a program that works on them all the same: the newest one of
    the version before this.  ``changes``: statements, in one transaction, each of which takes no
    time worth mentioning.  ``indexes``: by name what each is on, as ``"ON run (title)"``; of tables
    and columns that are there before the step.  ``records``: types of events that programs of the
    formats before do not know.
    """

    to: int
    beside: int
    changes: tuple[str, ...] = ()
    indexes: Mapping[str, str] = {}
    records: tuple[str, ...] = ()


SNAPSHOT: Final = """
CREATE TABLE snapshot (
  run bigint PRIMARY KEY, seq bigint NOT NULL, version text COLLATE "C" NOT NULL,
  crc bigint NOT NULL, body bytea NOT NULL
)
""".strip()
"""A snapshot is of the record that it was made of, whoever writes on that without knowing of it."""

STEPS: tuple[Upgrade, ...] = (
    Upgrade(to=2, beside=1, changes=("ALTER TABLE worker ADD COLUMN told bigint",)),
    Upgrade(to=3, beside=1, changes=(SNAPSHOT,)),
    Upgrade(to=4, beside=1),
    Upgrade(to=BASES, beside=1),
)
"""In order, one for each format but the first.  Programs of format 4 know that trees go beside
them: none do while an older one is at work."""


def newest() -> int:
    """The format of the tables that this program makes."""
    return STEPS[-1].to if STEPS else FIRST


def formats() -> dict[str, str]:
    """What ``meta`` says of tables that this program has made."""
    reads = max((step.beside for step in STEPS), default=FIRST)
    return {"format": str(newest()), "reads": str(reads)}


def new_records() -> Mapping[str, int]:
    """The types of events that not every program knows, with the formats of those that do."""
    return {type_: step.to for step in STEPS for type_ in step.records}


def format_of(db: PostgresConnection) -> int | None:
    """The format of the tables; ``None`` where there are none.

    Raises ``OperatorError`` for other tables than ours, and for a format that this program may not
    work on.
    """
    place, schema = db.address.place, db.address.schema
    (found,) = db.execute("SELECT to_regclass(?)", (f'"{schema}".meta',)).fetchone()
    if found is None:
        return None
    meta: dict[str, str] = dict(db.execute("SELECT key, value FROM meta").fetchall())
    text = meta.get("format", "none")
    if text == UNFINISHED:
        raise unfinished_copy(place, meta.get("source", "unknown"))
    reads = meta.get("reads", text)
    if not (text.isdecimal() and reads.isdecimal()):
        raise OperatorError(
            f"{place}: the schema {schema!r} holds other tables than hubbub's; give another one "
            "with ?schema=NAME"
        )
    if int(reads) > newest() or int(text) < FIRST:
        raise _refusal(place, int(text))
    return int(text)


def check_format(db: PostgresConnection, *, exactly: bool = False) -> bool:
    """Whether the tables are there, for who does not upgrade them.

    Raises ``OperatorError`` for an older format and for one that excludes this program;
    ``exactly``: for every other than this program's own.
    """
    found = format_of(db)
    if found is not None and (found < newest() or (exactly and found > newest())):
        raise _refusal(db.address.place, found)
    return found is not None


def _refusal(place: str, format_: int) -> OperatorError:
    age, remedy = ("a newer", "upgrade hubbub") if format_ > newest() else (
        "an older", "open a runtime on it, which upgrades it"
    )  # fmt: skip
    if format_ < FIRST:
        remedy = "export its runs with the hubbub that wrote it"
    return OperatorError(
        f"{place}: written by {age} hubbub (format {format_}; this one knows {newest()}); "
        f"{remedy}, or give another schema"
    )


# ── changing the tables ──────────────────────────────────────────────────────────────────────


@contextmanager
def making(db: PostgresConnection) -> Iterator[None]:
    """Be the only one who makes or changes the tables.

    Raises ``psycopg.errors.LockNotAvailable``, which passes, where another process does for long.
    """
    values = (db.address.schema,)
    for _ in range(ATTEMPTS):
        # A statement that waited would keep an index from being built: it looks at a snapshot.
        (has,) = db.execute(f"SELECT pg_try_advisory_lock({_LOCK})", values).fetchone()
        if has:
            break
        db.execute(f"SELECT pg_sleep({PAUSE})")
    else:
        raise psycopg.errors.LockNotAvailable("another process makes or changes the tables")
    try:
        yield
    finally:
        db.roll_back()
        if not db.is_lost:
            db.execute(f"SELECT pg_advisory_unlock({_LOCK})", values)


def upgrade(address: PostgresAddress) -> None:
    """Bring the tables to the newest format, step by step, each durable before the next begins.

    Raises ``OperatorError`` where a process is at work that would be left behind, or where a step
    fails, ``psycopg.Error`` where the server does; the tables are then as the last complete step
    has left them.
    """
    name = f"hubbub:{address.schema}:upgrade"
    db = PostgresConnection(address, name, silence=None)  # An index takes as long as it takes.
    try:
        db.connect()
        with making(db):
            before = format_of(db) or newest()
            missing = [step for step in STEPS if step.to > before]
            if missing:
                _check_left_behind(db, missing[-1].to, max(step.beside for step in missing))
            for step in missing:
                _take(db, step)
                log.info("store.upgraded", place=address.place, before=step.to - 1, now=step.to)
    finally:
        db.close()


def _take(db: PostgresConnection, step: Upgrade) -> None:
    execute = db.execute
    try:
        for name, on in step.indexes.items():
            build_index(db, name, on)
        _lock_tables(db)
        _check_left_behind(db, step.to, step.beside)
        for change in step.changes:
            execute(change)
        execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(step.to),))
        execute(_PUT_READS, (str(step.beside),))
        execute("COMMIT")
    except psycopg.Error as error:
        if is_passing(error):
            raise
        words = " ".join(str(error).split())
        raise OperatorError(
            f"{db.address.place}: cannot be upgraded from format {step.to - 1} to {step.to} "
            f"({words}); nothing has changed: look at the server's log, and make a backup"
        ) from error


def build_index(db: PostgresConnection, name: str, on: str) -> None:
    """Build an index while others write; within ``making``.  One that a dead process has left
    half-built goes."""
    execute = db.execute
    execute("SET lock_timeout = 0")
    found: Any = execute(_IS_VALID, (name,)).fetchone()
    if found == (False,):
        execute(f"DROP INDEX CONCURRENTLY {name}")
    if found != (True,):
        execute(f"CREATE INDEX CONCURRENTLY {name} {on}")
    execute(f"SET lock_timeout = '{LOCK_WAIT}'")


def index_for_removals(address: PostgresAddress) -> None:
    """Have by what is found what goes beside runtimes (``RemovesTrees``); in a large store that
    takes a while, once, and nobody waits for it.  A role that may not make an index does without,
    and says so.

    Raises ``psycopg.Error``.
    """
    db = PostgresConnection(address, f"hubbub:{address.schema}:index", silence=None)
    try:
        db.connect()
        if db.execute(_HAS_INDEXES, (list(_INDEXES),)).fetchone() == (True,):
            return
        with making(db):
            for name, on in _INDEXES.items():
                build_index(db, name, on)
    except psycopg.errors.InsufficientPrivilege as error:
        made = "; ".join(f"CREATE INDEX CONCURRENTLY {name} {on}" for name, on in _INDEXES.items())
        log.warning(
            "retention.unindexed", problem=" ".join(str(error).split()),
            remedy=f"what goes is found slowly; have the tables' owner do this: {made}",
        )  # fmt: skip
    finally:
        db.close()


_INDEXES: Final = {
    "event_end": "ON event (position) WHERE type = 'agent:complete'",
    "event_base": "ON event (position) WHERE type = 'agent:base'",
    "note_request": f"ON note (value) WHERE {IS_REQUEST}",
    "run_live_root": "ON run (born) WHERE parent_run_id IS NULL AND status <> 'ended'",
    "run_live_child": "ON run (root_run_id) WHERE parent_run_id IS NOT NULL AND status <> 'ended'",
}
_HAS_INDEXES: Final = (
    "SELECT count(*) = cardinality(?1::text[]) FROM pg_index AS i, unnest(?1::text[]) AS own (name)"
    " WHERE i.indexrelid = to_regclass(own.name) AND i.indisvalid"
)


# ── bases of runs ────────────────────────────────────────────────────────────────────────────


def admits_bases(db: PostgresConnection) -> bool:
    """Whether the tables exclude all programs that know no bases of runs.

    One of these would take a run whose old turns have gone for damaged, and what was accepted under
    a key in one of them for new.
    """
    found = db.execute("SELECT value FROM meta WHERE key = 'reads'").fetchone()
    return found is not None and int(found[0]) >= BASES


def let_bases_in(db: PostgresConnection) -> None:
    """Have them do so, within the transaction of who is alone at work and puts bases in."""
    db.execute(_PUT_READS, (str(BASES),))


def take_bases(address: PostgresAddress) -> bool:
    """Have them do so, unless such a program is at work; whether they do.  Raises
    ``psycopg.Error``."""
    db = PostgresConnection(address, f"hubbub:{address.schema}:bases")
    try:
        db.connect()
        _lock_tables(db)
        (is_older_at_work,) = db.execute(_IS_OLDER_AT_WORK, (BASES,)).fetchone()
        if not is_older_at_work:
            let_bases_in(db)
        db.execute("COMMIT")
    finally:
        db.close()
    return not is_older_at_work


def _lock_tables(db: PostgresConnection) -> None:
    """Begin a transaction in which nobody else joins."""
    db.execute("BEGIN")
    # Each group of commits begins with the head and its worker's row: none is in the middle of it
    # now, and none waits for a table while it has one that is changed here.
    db.execute("LOCK TABLE head IN EXCLUSIVE MODE")
    db.execute("LOCK TABLE worker IN EXCLUSIVE MODE")
    db.execute("SELECT value FROM meta FOR UPDATE")


def _check_left_behind(db: PostgresConnection, to: int, beside: int) -> None:
    """Raise ``OperatorError`` where a process is at work whose program the new format excludes."""
    found = db.execute(_OLDER, (beside,)).fetchall()
    if found:
        names = ", ".join(f"{name!r} (format {format_})" for name, format_ in found)
        raise OperatorError(
            f"{db.address.place}: to be upgraded to format {to}, which programs from format "
            f"{beside} on can work on, but an older one is at work: {names}; stop it first, or "
            "upgrade it to the version between"
        )
    db.execute("UPDATE worker SET live = false WHERE live AND format < ?", (beside,))


ATTEMPTS: Final = 20
PAUSE: Final = 0.1
"""How often, and after how many seconds, the lock is tried that another process has."""

_LOCK: Final = "hashtextextended('hubbub:' || ?::text, 0)"
"""The number of the lock, of a schema that may not be there yet."""

_PUT_READS: Final = (
    "INSERT INTO meta (key, value) VALUES ('reads', ?) ON CONFLICT (key) DO UPDATE "
    "SET value = greatest(meta.value::int, excluded.value::int)::text"
)
_IS_VALID: Final = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(?)"
_IS_OLDER_AT_WORK: Final = "SELECT EXISTS (SELECT 1 FROM worker WHERE live AND format < ?)"
_OLDER: Final = (
    "SELECT name, format FROM worker WHERE live AND format < ? AND clock_timestamp() < "
    "greatest(expires, pg_postmaster_start_time() + interval '10 seconds') ORDER BY name LIMIT 3"
)
"""Whose leases hold; after a restart of the server, they have had no time yet to renew them."""
