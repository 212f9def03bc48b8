"""``DemoStore``: the schema in which the demo of several workers keeps itself, and its server.

Without a schema in the address it has one of its own, which is made anew for each demo.
"""

import base64
import hashlib
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import psycopg

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.postgres.migrations import format_of
from hubbub.runtime.stores.postgres.schema import drop_schema
from hubbub.runtime.stores.postgres.sealing import KEY_VARIABLE
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import postgres_failure
from hubbub.runtime.stores.postgres.store import PostgresStore

__all__ = ["DemoStore", "without_password"]

SCHEMA: Final = "hubbub_demo"

A_SERVER: Final = (
    "several workers share a PostgreSQL server; start one (docker compose up -d database in a "
    "checkout, or apt-get install postgresql) and name it: --store postgresql://USER@HOST/DATABASE"
)


class DemoStore:
    """A store for the demo, emptied.

    Raises ``OperatorError`` for an address of no server, a server that is not there, and a store
    that somebody is at work on.
    """

    def __init__(self, store: str | None) -> None:
        if store is None or not store.startswith(("postgresql:", "postgres:")):
            raise OperatorError(A_SERVER)
        PostgresAddress(store)  # What is none is refused as everywhere, before it is changed.
        is_own = "schema" not in dict(parse_qsl(urlsplit(store).query))
        self.text = _with_schema(store) if is_own else store
        self.address = PostgresAddress(self.text)
        self.shown, password = without_password(self.text)
        """The address as other processes may be given it on their command line."""
        ports = Ports()
        seed = hashlib.sha256(ports.ids.run_id(ports.clock.now()).encode()).digest()
        key = base64.b64encode(seed).decode()
        self.environ: Mapping[str, str] = {
            KEY_VARIABLE: key, **os.environ, **({"PGPASSWORD": password} if password else {}),
        }  # fmt: skip
        """Their environment: with the password, and with a key where there is none."""
        self._empty(may_drop=is_own)

    @property
    def place(self) -> str:
        return self.address.place

    def channel(self, ports: Ports) -> PostgresStore:
        """The store for a process that only carries channels."""
        return PostgresStore(
            self.text, ports=ports, environ=self.environ, is_worker=False, name="demo"
        )

    def cut(self) -> int:
        """Have the server end every connection of the store's processes; how many there were."""
        db = self._connected()
        try:
            found = db.execute(_CUT, (self.address.prefix,)).fetchone()
        except psycopg.Error as error:
            raise OperatorError(postgres_failure(self.place, error)) from None
        finally:
            db.close()
        return int(found[0]) if found else 0

    def _empty(self, *, may_drop: bool) -> None:
        db = self._connected()
        try:
            if format_of(db) is None:
                return
            with open_reader(self.text) as reader:
                names = [each.name for each in reader.processes()]
            if names:
                raise OperatorError(
                    f"{self.place}: {', '.join(names)} at work on this store; leave that first, or "
                    "name another schema (?schema=NAME)"
                )
            if may_drop:
                drop_schema(db)
        except psycopg.Error as error:
            raise OperatorError(postgres_failure(self.place, error)) from None
        finally:
            db.close()

    def _connected(self) -> PostgresConnection:
        db = PostgresConnection(self.address, "hubbub demo")
        try:
            db.connect()
        except psycopg.Error as error:
            raise OperatorError(f"{postgres_failure(self.place, error)} ({A_SERVER})") from None
        return db


def _with_schema(store: str) -> str:
    parts = urlsplit(store)
    query = "&".join((*filter(None, (parts.query,)), urlencode({"schema": SCHEMA})))
    return urlunsplit((*parts[:3], query, parts.fragment))


def without_password(store: str) -> tuple[str, str]:
    """An address, and the password that was in it."""
    parts = urlsplit(store)
    user_info, at, host = parts.netloc.rpartition("@")
    user, _, password = user_info.partition(":")
    query = parse_qsl(parts.query, keep_blank_values=True)
    found = [unquote(password), *(value for name, value in query if name == "password")]
    kept = urlencode([each for each in query if each[0] != "password"], safe="/:,")
    shown = urlunsplit((parts.scheme, f"{user}{at}{host}", parts.path, kept, parts.fragment))
    return shown, next(filter(None, reversed(found)), "")


_CUT: Final = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE starts_with(application_name, ?) AND pid <> pg_backend_pid()"
)
