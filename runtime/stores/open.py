"""Which store a text names: what ``Runtime(store=…)`` and ``--store`` take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Final

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError
from hubbub.hub.ports import IdSource, Ports
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import Store
from hubbub.hub.texts import check_label

if TYPE_CHECKING:
    from hubbub.runtime.stores.folders.disk import Disk
    from hubbub.runtime.stores.postgres.server.address import PostgresAddress
    from hubbub.runtime.stores.postgres.whole_copy import PostgresCopy, PostgresOriginal
    from hubbub.runtime.stores.sqlite.folder import DataFolder
    from hubbub.runtime.stores.sqlite.store import SqliteStore
    from hubbub.runtime.stores.sqlite.whole_copy import SqliteCopy, SqliteOriginal

__all__ = [
    "DEFAULT_STORE", "folder_of_store", "identity_of_store", "open_copy", "open_intake",
    "open_original", "open_reader", "open_store", "place_of_store", "sqlite_store", "watch_of",
]  # fmt: skip

DEFAULT_STORE: Final = "sqlite:.hubbub"
"""A folder where the program runs."""

POSTGRES: Final = ("postgresql:", "postgres:")
"""How the address of a database begins."""

OTHERS: Final = (
    "cockroachdb", "file", "mariadb", "memory", "mongodb", "mssql", "mysql", "nats", "oracle",
    "redis", "rediss", "sqlite", "sqlite3",
)  # fmt: skip
"""What is repeated of a text that names no store, if it begins so.  All else may be a password."""


def open_store(
    store: str | Store, ports: Ports, *, keep: int = 10_000, is_worker: bool = True, name: str = ""
) -> Store:
    """The store that ``store`` names, not open yet; a ``Store`` is taken as it is.

    Of one that several processes share: whether this one drives runs, and what it is called.

    Raises ``BadValue`` for a text that names none, and ``MissingExtra`` for one in PostgreSQL
    without the extra ``postgres``.
    """
    if not isinstance(store, str):
        return store
    if store == "memory":
        return MemoryJournal(keep=keep, ids=ports.ids)
    if _postgres_address(store) is not None:
        from hubbub.runtime.stores.postgres.store import PostgresStore

        return PostgresStore(store, ports=ports, is_worker=is_worker, name=name)
    return sqlite_store(_path(store), ports=ports)


def sqlite_store(
    path: str | PathLike[str],
    *,
    ports: Ports | None = None,
    disk: "Disk | None" = None,
    mirror: bool = True,
    command: str = "",
) -> "SqliteStore":
    """A SQLite store with folders of agents beside it, not open yet.

    ``path`` is the folder, or a file that ends in ``.db``.  ``mirror=False`` leaves out the folders
    of agents.  ``disk`` is where folders are written.  ``command`` is the command that opens it for
    a moment, of which others are told that find it in use; empty for a runtime.  Raises as
    ``SqliteStore`` does.
    """
    from hubbub.runtime.stores.folders.projection import Projection
    from hubbub.runtime.stores.sqlite.store import SqliteStore

    make = partial(Projection, disk=disk) if mirror else None
    return SqliteStore(path, ports=ports, mirror=make, command=command)


@contextmanager
def open_reader(store: str) -> Iterator[StoreReader]:
    """A reader of the store that ``store`` names, for as long as one is inside.

    Raises ``BadValue`` for a text that names none and ``OperatorError`` where there is none, or
    where it cannot be read.
    """
    if store == "memory":
        raise OperatorError("a store in memory ends with its program; give --store sqlite:PATH")
    reader = _reader_of(store)
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def open_intake(store: str, ids: IdSource, command: str = "hubbub import") -> Iterator[RunIntake]:
    """What takes runs into the store that ``store`` names, or out of it, for as long as one is
    inside; ``command`` is the command that does so.

    The store is made if there is none, and is not left there if that comes to nothing.  Raises
    ``BadValue`` for a text that names none and ``OperatorError`` where nothing can be written, or
    where a runtime is at work.
    """
    if (address := _postgres_address(store)) is not None:
        from hubbub.runtime.stores.postgres.intake import open_postgres_intake

        with open_postgres_intake(address, f"postgres-{ids.number():012x}", command) as taking:
            yield taking
        return
    from hubbub.runtime.stores.sqlite.folder import DataFolder
    from hubbub.runtime.stores.sqlite.intake import open_sqlite_intake

    name = f"sqlite-{ids.number():012x}"
    with open_sqlite_intake(DataFolder(_path(store)), name, command) as intake:
        yield intake


@contextmanager
def open_original(store: str) -> Iterator["SqliteOriginal | PostgresOriginal"]:
    """A whole store to be copied, on which nobody is at work as long as one is inside.

    Raises ``BadValue`` for a text that names none and ``OperatorError`` where there is none, where
    it cannot be read, or where a runtime is at work.
    """
    if (address := _postgres_address(store)) is not None:
        from hubbub.runtime.stores.postgres.whole_copy import open_postgres_original

        with open_postgres_original(address) as original:
            yield original
        return
    from hubbub.runtime.stores.sqlite.folder import DataFolder
    from hubbub.runtime.stores.sqlite.whole_copy import open_sqlite_original

    with open_sqlite_original(DataFolder(_path(store))) as found:
        yield found


@contextmanager
def open_copy(store: str, source: str) -> Iterator["SqliteCopy | PostgresCopy"]:
    """A store in the making, a copy of the one that is called ``source``.

    It is a store once it is complete, and goes if what is inside ends before.  Raises ``BadValue``
    for a text that names none and ``OperatorError`` where something else stands already, or where
    nothing can be written.
    """
    if (address := _postgres_address(store)) is not None:
        from hubbub.runtime.stores.postgres.whole_copy import open_postgres_copy

        with open_postgres_copy(address, source) as copy:
            yield copy
        return
    from hubbub.runtime.stores.sqlite.folder import DataFolder
    from hubbub.runtime.stores.sqlite.whole_copy import open_sqlite_copy

    with open_sqlite_copy(DataFolder(_path(store)), source) as made:
        yield made


def watch_of(store: str) -> Callable[[], None]:
    """What raises ``OperatorError`` as soon as the database of a store on disk is another one than
    now, or none: who has opened it would read on what nobody writes any more.  A server says so
    itself."""
    folder = folder_of_store(store)
    if folder is None:
        return lambda: None
    from hubbub.runtime.stores.sqlite.lock import identity_of

    database = folder.database
    known = identity_of(database)

    def check() -> None:
        if identity_of(database) != known:
            raise OperatorError(
                f"{database}: was removed or replaced, so nothing more can be seen here; put it "
                "back, or name another --store, and start again"
            )

    return check


def folder_of_store(store: str) -> "DataFolder | None":
    """The folder of a named store; ``None`` for one in PostgreSQL.

    Raises ``BadValue`` for a text that names no store that is kept.
    """
    from hubbub.runtime.stores.sqlite.folder import DataFolder

    return None if _postgres_address(store) is not None else DataFolder(_path(store))


def identity_of_store(store: str) -> tuple[str, ...]:
    """What two texts that name one store have in common, however they spell it.

    Raises ``BadValue`` for a text that names no store that is kept, and ``OperatorError`` where a
    server cannot be asked.
    """
    if (address := _postgres_address(store)) is not None:
        from hubbub.runtime.stores.postgres.whole_copy import identity_in

        return identity_in(address)
    folder = folder_of_store(store)
    return (str(folder.database),) if folder is not None else ()


def place_of_store(store: str) -> str:
    """What messages call the store that a text names: no password is in it.

    Raises ``BadValue`` for a text that names no store that is kept.
    """
    address = _postgres_address(store)
    return address.place if address is not None else f"sqlite:{_path(store)}"


def _reader_of(store: str) -> StoreReader:
    if (address := _postgres_address(store)) is not None:
        from hubbub.runtime.stores.postgres.store_reader import open_postgres_reader

        return open_postgres_reader(address)
    from hubbub.runtime.stores.sqlite.folder import DataFolder
    from hubbub.runtime.stores.sqlite.store_reader import open_sqlite_reader

    return open_sqlite_reader(DataFolder(_path(store)))


def _postgres_address(store: str) -> "PostgresAddress | None":
    """The address that a text is, if it is one of PostgreSQL."""
    if not store.startswith(POSTGRES):
        return None
    try:
        from hubbub.runtime.stores.postgres.server.address import PostgresAddress
    except ImportError:
        raise MissingExtra("A store in PostgreSQL", "postgres") from None
    return PostgresAddress(store)


def _path(store: str) -> str:
    check_label("store", store)
    if store == "memory":
        raise BadValue("store", "one in memory ends with its program; give sqlite:PATH")
    kind, _, path = store.partition(":")
    if kind != "sqlite" or not path or "://" in path:  # An address, which may hold a password.
        given = f", not '{kind}:…'" if kind in OTHERS and ":" in store else ""
        expected = 'expected "sqlite:PATH", "postgresql://…" or "memory"'
        raise BadValue("store", expected + given)
    return path
