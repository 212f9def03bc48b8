"""The tables of a store, in a schema of its own, and what a server must be for it.

    head       where the one order of the store has come to: positions, the hub's lane, depths;
               ``version`` counts the groups of commits, which lock it and come one by one
    worker     who is at work: one row a process, its lease, checked and renewed by each group;
               ``told``: the position up to which its hub has heard of events by then
    tree       which worker owns a tree of runs, since which change of owner (``epoch``), and how
               many of its runs live: with the last one the row goes
    definition what each worker has declared of its agents, so that two programs that mean
               different ones by one name are not at work together
    run, address, event, waiting, accepted, note, meta    as in SQLite
    snapshot   what long runs have come to; it follows from their events
    secret     values of variables, encrypted;  blob  contents of files, by digest

Texts compare by their bytes, whatever the database's own order is.  ``event.body`` is text: it
comes back as it was written, which its checksums need.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psycopg

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.postgres.migrations import (
    SNAPSHOT,
    format_of,
    formats,
    making,
    newest,
    upgrade,
)
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.sql.store_reader import IS_SPOKEN_TO

__all__ = [
    "LOCK", "MADE", "analyze_tables", "check_server", "drop_schema", "drop_tables", "make_schema",
    "make_tables",
]  # fmt: skip

MADE: Final = "schema"
"""The key in ``meta`` that is there where the schema was made with the tables."""

OLDEST_SERVER: Final = 130000

NUMBERS: Final = 64
"""Numbers for run ids that a process takes at a time."""

LOCK: Final = "hashtextextended('hubbub:' || current_schema(), {})"
"""The number of an advisory lock: 0 is held by who makes the tables; 1 by every process at work,
shared, and by an import alone; 2 by who joins or declares definitions, for one transaction."""

_HOT: Final = (
    "WITH (fillfactor = {}, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)"
)

_DEFINITION: Final = """
CREATE TABLE definition (
  agent text COLLATE "C" NOT NULL, worker bigint NOT NULL, digest text COLLATE "C" NOT NULL,
  replaces boolean NOT NULL DEFAULT false, PRIMARY KEY (agent, worker)
);
"""

_TABLES: Final = f"""
CREATE TABLE meta (key text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE SEQUENCE run_number INCREMENT BY {NUMBERS};
CREATE TABLE address (
  number bigint PRIMARY KEY DEFAULT nextval('run_number'),
  run_id text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE head (
  log smallint PRIMARY KEY, position bigint NOT NULL,
  hub_seq bigint NOT NULL, hub_crc bigint NOT NULL, recent bigint NOT NULL,
  live bigint NOT NULL, parked bigint NOT NULL, waiting bigint NOT NULL,
  version bigint NOT NULL
) {_HOT.format(10)};
INSERT INTO head (log, position, hub_seq, hub_crc, recent, live, parked, waiting, version)
  VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0);
CREATE TABLE worker (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL, kind text NOT NULL, live boolean NOT NULL, expires timestamptz NOT NULL,
  group_no bigint NOT NULL DEFAULT 0, agents text[] COLLATE "C", capacity bigint,
  drains boolean NOT NULL DEFAULT false, format integer NOT NULL DEFAULT 1,
  since timestamptz NOT NULL DEFAULT clock_timestamp(), pid integer, connected timestamptz,
  told bigint
) {_HOT.format(10)};
CREATE TABLE tree (
  root bigint PRIMARY KEY, owner bigint, epoch bigint NOT NULL DEFAULT 0,
  want text COLLATE "C" NOT NULL, live bigint NOT NULL, needs integer NOT NULL DEFAULT 1
);
CREATE INDEX tree_owner ON tree (owner);
{SNAPSHOT};
CREATE TABLE run (
  number bigint PRIMARY KEY,
  run_id text COLLATE "C" NOT NULL, root_run_id text COLLATE "C" NOT NULL,
  parent_run_id text COLLATE "C", agent text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  session_key text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL,
  descriptor text COLLATE "C", status text COLLATE "C" NOT NULL, inbox text COLLATE "C" NOT NULL,
  ready smallint NOT NULL, seq bigint NOT NULL, in_seq bigint NOT NULL, chain bigint NOT NULL,
  waiting bigint NOT NULL, messages bigint NOT NULL, born bigint NOT NULL,
  created_at bigint NOT NULL, wake_at bigint, recent bigint NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX run_id ON run (run_id);
CREATE INDEX run_ready ON run (born) WHERE ready = 1;
CREATE INDEX run_timed ON run (wake_at) WHERE wake_at IS NOT NULL AND status <> 'ended';
CREATE INDEX run_live ON run (agent) WHERE status <> 'ended';
CREATE INDEX run_key ON run (session_key) WHERE session_key <> '' AND inbox = 'open';
CREATE INDEX run_recent ON run (kind, recent)
  WHERE inbox = 'open' AND kind IN ('user', 'heartbeat');
CREATE INDEX run_child ON run (root_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX run_identity ON run (descriptor)
  WHERE inbox = 'open' AND kind IN ('user', 'cron', 'heartbeat');
CREATE INDEX run_spoken_to ON run (recent, born) WHERE {IS_SPOKEN_TO};
CREATE TABLE event (
  position bigint PRIMARY KEY, run bigint NOT NULL, root bigint NOT NULL,
  lane text COLLATE "C" NOT NULL, seq bigint NOT NULL, type text COLLATE "C" NOT NULL,
  crc bigint NOT NULL, body text COLLATE "C" NOT NULL, writer bigint NOT NULL DEFAULT 0
);
CREATE INDEX event_run ON event (run, position);
CREATE INDEX event_hub ON event (root) WHERE lane = 'hub';
CREATE TABLE waiting (
  run bigint NOT NULL, seq bigint NOT NULL, position bigint NOT NULL, PRIMARY KEY (run, seq)
) {_HOT.format(50)};
CREATE TABLE accepted (
  run bigint NOT NULL, source text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
  position bigint NOT NULL, PRIMARY KEY (run, source, key)
);
CREATE TABLE note (
  key text COLLATE "C" PRIMARY KEY, value text COLLATE "C" NOT NULL,
  version bigint NOT NULL DEFAULT 0
);
CREATE TABLE secret (
  key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL,
  version bigint NOT NULL, writer bigint NOT NULL
);
CREATE INDEX secret_version ON secret (version);
CREATE TABLE blob (digest text COLLATE "C" PRIMARY KEY, content bytea NOT NULL);
ALTER TABLE blob ALTER COLUMN content SET STORAGE EXTERNAL;
{_DEFINITION}"""


def check_server(db: PostgresConnection) -> None:
    """Raise ``OperatorError`` for a server that cannot keep what is acknowledged."""
    place = db.address.place
    (version, fsync, commit, encoding, is_recovering) = db.execute(
        "SELECT current_setting('server_version_num')::int, current_setting('fsync'), "
        "current_setting('synchronous_commit'), current_setting('server_encoding'), "
        "pg_is_in_recovery()"
    ).fetchone()
    if version < OLDEST_SERVER:
        raise OperatorError(f"{place}: PostgreSQL {version // 10000}; it takes 13 or newer")
    if is_recovering:
        raise OperatorError(
            f"{place}: the server is in recovery, a standby that takes no writes; give the "
            "primary, or both with target_session_attrs=read-write"
        )
    if fsync != "on":
        raise OperatorError(
            f"{place}: the server runs with fsync={fsync}, and would lose what was acknowledged; "
            "set fsync=on in postgresql.conf"
        )
    if commit in ("off", "local", "remote_write"):
        raise OperatorError(
            f"{place}: synchronous_commit={commit}, so what is acknowledged could be lost; set it "
            "to on: ALTER ROLE … SET synchronous_commit = on, or in the address or postgresql.conf"
        )
    if encoding != "UTF8":
        raise OperatorError(
            f"{place}: the database holds {encoding}; make one of UTF8 (createdb -E UTF8)"
        )


def make_schema(db: PostgresConnection, name: str) -> bool:
    """Make the tables if they are missing, whoever else does so at the time; whether they were.
    Those of an older format are upgraded.

    ``name`` is what a new store is called.  Raises ``OperatorError`` for tables that this program
    may not work on, and for a role that may not read and write them.
    """
    _check_role(db)
    found, is_new = format_of(db), False
    if found is None:
        with making(db):
            db.execute("BEGIN")
            found = format_of(db)
            is_new = found is None
            if is_new:
                make_tables(db, {**formats(), "store": name})
            db.execute("COMMIT")
    if found is not None and found < newest():
        upgrade(db.address)
    _add_definition(db)
    return is_new


def _check_role(db: PostgresConnection) -> None:
    """Raise ``OperatorError`` for a role that only reads, or that may not read and write what there
    is of the tables."""
    place, schema = db.address.place, db.address.schema
    is_reading, lacks_tables, lacks_sequence, role = db.execute(
        _RIGHTS, (_names().split(", "), ["SELECT", "INSERT", "UPDATE", "DELETE"])
    ).fetchone()
    if is_reading:
        raise OperatorError(
            f"{place}: the role {role} only reads here (default_transaction_read_only=on); give "
            f"another one, or let it write: ALTER ROLE {role} SET default_transaction_read_only = "
            "off"
        )
    if lacks_tables or lacks_sequence:
        lacks = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"
        if not lacks_tables:
            lacks = "USAGE ON ALL SEQUENCES"
        raise OperatorError(
            f"{place}: the role {role} lacks rights on what this store is made of; have their "
            f"owner grant them: GRANT {lacks} IN SCHEMA {schema} TO {role}"
        )


_RIGHTS: Final = (
    "SELECT current_setting('transaction_read_only') = 'on', EXISTS (SELECT 1 FROM "
    "unnest(?1::text[]) AS own (name), unnest(?2::text[]) AS wanted (privilege) "
    "WHERE to_regclass(name) IS NOT NULL "
    "AND NOT has_table_privilege(to_regclass(name), privilege)), "
    "to_regclass('run_number') IS NOT NULL "
    "AND NOT has_sequence_privilege(to_regclass('run_number'), 'USAGE'), "
    "quote_ident(current_user)"
)


def _add_definition(db: PostgresConnection) -> None:
    """Make the one table that stores of this format may lack: a program that does not know it is
    at work beside others all the same."""
    if not _has_definition(db):
        with making(db):
            db.execute("BEGIN")
            if not _has_definition(db):
                db.execute(_DEFINITION)
            db.execute("COMMIT")


def _has_definition(db: PostgresConnection) -> bool:
    return bool(db.execute("SELECT to_regclass('definition') IS NOT NULL").fetchone()[0])


def make_tables(db: PostgresConnection, meta: Mapping[str, str]) -> None:
    """Make the tables, and their schema if it is missing, within a transaction; ``meta`` says what
    they are."""
    schema = db.address.schema
    (is_there,) = db.execute("SELECT to_regnamespace(?) IS NOT NULL", (f'"{schema}"',)).fetchone()
    if not is_there:
        db.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        meta = {MADE: "hubbub", **meta}
    db.execute(_TABLES)
    db.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", list(meta.items()))


def drop_tables(db: PostgresConnection) -> None:
    """Drop the tables, and nothing else that the schema may hold."""
    db.execute(f"DROP TABLE IF EXISTS {_names()}")
    db.execute("DROP SEQUENCE IF EXISTS run_number")


def analyze_tables(db: PostgresConnection) -> None:
    """Have the server count the tables' rows: these alone, for it locks what it counts."""
    db.execute(f"ANALYZE {_names()}")


def _names() -> str:
    return ", ".join(re.findall(r"CREATE TABLE (\w+)", _TABLES))


def drop_schema(db: PostgresConnection) -> None:
    """Take back what ``make_schema`` has made: the schema itself only if it did not exist."""
    is_made = db.execute("SELECT 1 FROM meta WHERE key = ?", (MADE,)).fetchone() is not None
    drop_tables(db)
    if is_made:
        with suppress(psycopg.errors.DependentObjectsStillExist):
            db.execute(f'DROP SCHEMA "{db.address.schema}"')
