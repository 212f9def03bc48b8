"""A PostgreSQL server of the tests' own: made by ``initdb``, with ``fsync``, on a local socket."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest
from torture.audit import Record

from hubbub.runtime.stores.postgres.migrations import check_format
from hubbub.runtime.stores.postgres.sealing import KEY_VARIABLE, Seal
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader

__all__ = [
    "SECRETS_KEY",
    "SchemaRecord",
    "Server",
    "folder_in_memory",
    "free_port",
    "running_pair",
    "running_server",
    "schema_record",
]

BINARIES: Final = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin")

SECRETS_KEY: Final = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 1 << 30

MISSING: Final = "PostgreSQL is not installed: apt-get install postgresql"

SETTINGS: Final = {
    "fsync": "on", "synchronous_commit": "on", "listen_addresses": "127.0.0.1",
    "shared_buffers": "64MB", "max_connections": "60", "max_wal_size": "256MB",
    "logging_collector": "off",
    "autovacuum_naptime": "5s",
}  # fmt: skip


def binaries() -> Path | None:
    """Where the programs of PostgreSQL are; ``None`` where it is not installed."""
    for pattern in BINARIES:
        found = sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
        for folder in found:
            if (folder / "initdb").exists() and (folder / "postgres").exists():
                return folder
    found_initdb = shutil.which("initdb")
    return Path(found_initdb).parent if found_initdb else None


class Server:
    """A server with a database ``test``; each ``schema`` is a store.

    It is reached by a socket in its folder, and at ``port`` of 127.0.0.1.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = ThreadPoolExecutor(1)  # It ends with the thread that has started it.
        self._count = 0
        self._as_user: tuple[str, ...] = ()
        if os.geteuid() == 0:  # initdb refuses root.
            user = "postgres" if _exists("postgres") else "nobody"
            shutil.chown(folder, user)
            self._as_user = (
                "setpriv", f"--reuid={user}", "--clear-groups", f"--regid={_group_of(user)}",
                "--pdeathsig=QUIT",
            )  # fmt: skip

    def _run(self, program: str, *arguments: str) -> None:
        command = (*self._as_user, str(self._programs / program), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        assert done.returncode == 0, f"{program}: {done.stderr}"

    def make(self) -> None:
        """Make the cluster."""
        self._run(
            "initdb", "-D", str(self.data), "-U", "hubbub", "--auth=trust", "--encoding=UTF8",
            "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers."""
        options = SETTINGS | settings
        options |= {"unix_socket_directories": str(self.folder), "port": str(self.port)}
        command = [*self._as_user, str(self._programs / "postgres"), "-D", str(self.data)]
        command += [f"--{name}={value}" for name, value in options.items()]
        with (self.folder / "log").open("ab") as log:
            start = partial(subprocess.Popen, command, stdout=log, stderr=log, cwd="/")
            self._process = self._starter.submit(start).result()
        for _ in range(1500):
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                self.query("SELECT 1", database="postgres")
            except psycopg.OperationalError:
                signal.sigtimedwait([], 0.02)
                continue
            return
        raise AssertionError("the server does not answer")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop it at once; with ``SIGINT`` in order."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def freeze(self, *, is_frozen: bool = True) -> None:
        """Stop all its processes where they stand, or let them go on."""
        assert self._process is not None
        sent = signal.SIGSTOP if is_frozen else signal.SIGCONT
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for pid in (self._process.pid, *map(int, children.read_text().split())):
            with suppress(ProcessLookupError):
                os.kill(pid, sent)

    def restart(self, **settings: str) -> None:
        self.stop()
        self.start(**settings)

    def query(self, sql: str, *, database: str = "test") -> list[tuple[object, ...]]:
        """What a statement finds, as the server's owner."""
        with psycopg.connect(
            host=str(self.folder), port=self.port, dbname=database, user="hubbub", autocommit=True
        ) as db:
            cursor = db.execute(sql)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def dsn(self, schema: str = "", *, user: str = "hubbub", database: str = "test") -> str:
        """A new store, or the one of a schema."""
        schema = schema or self.new_schema()
        place = f"host={self.folder}&port={self.port}"
        return f"postgresql://{user}@/{database}?{place}&schema={schema}"

    def dsn_at(self, *ports: int, schema: str = "", database: str = "test") -> str:
        """A store by TCP: at the server's port, or at others, which are tried in turn."""
        places = ",".join(f"127.0.0.1:{port}" for port in ports or (self.port,))
        schema = schema or self.new_schema()
        return f"postgresql://hubbub@{places}/{database}?schema={schema}"

    def new_schema(self) -> str:
        self._count += 1
        return f"store_{self._count}"

    def end_connections(self, name: str = "hubbub:%") -> int:
        """End those whose names are like that; how many there were."""
        found = self.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name LIKE '{name}' AND pid <> pg_backend_pid()"
        )
        return len(found)

    def standby(self, folder: Path, spaces: Mapping[Path, Path] | None = None) -> "Server":
        """A streaming standby, which this server's commits wait for from now on; not started.

        ``spaces``: where its tablespaces are, by where this server has them.
        """
        standby = Server(self._programs, folder)
        moved = [f"--tablespace-mapping={old}={new}" for old, new in (spaces or {}).items()]
        self._run(
            "pg_basebackup", "-D", str(standby.data), "-h", str(self.folder), "-p", str(self.port),
            "-U", "hubbub", "-R", "-c", "fast", "--no-sync", *moved,
        )  # fmt: skip
        return standby

    def wait_for_standby(self, *, is_wanted: bool = True) -> None:
        """Have commits wait for any standby that streams, or for none any more."""
        names = "*" if is_wanted else ""
        self.query(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.query("SELECT pg_reload_conf()")
        for _ in range(500):
            states = self.query("SELECT sync_state FROM pg_stat_replication")
            if not is_wanted or ("sync",) in states:
                return
            signal.sigtimedwait([], 0.02)
        raise AssertionError(f"no standby is synchronous: {states}")

    def promote(self) -> None:
        """Make a standby the primary, which waits for no standby itself."""
        self.query("SELECT pg_promote(true)")
        self.wait_for_standby(is_wanted=False)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port: int = place.getsockname()[1]
        return port


def _exists(user: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _group_of(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


@contextmanager
def running_server(**settings: str) -> Iterator[Server]:
    """A server, until this is left; skips the test where PostgreSQL is missing, but for CI."""
    programs = binaries()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with folder_in_memory() as folder:
        server = Server(programs, folder)
        try:
            server.make()
            server.start(**settings)
            server.query("CREATE DATABASE test", database="postgres")
            yield server
        finally:
            server.stop()


@contextmanager
def running_pair() -> Iterator[tuple[Server, Server]]:
    """A server and its synchronous standby, until this is left."""
    with running_server() as primary, folder_in_memory() as folder:
        standby = primary.standby(folder)
        try:
            standby.start()
            primary.wait_for_standby()
            yield primary, standby
        finally:
            standby.stop()


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder, in memory wherever there is enough of it: here processes die, not machines."""
    place = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH else None
    with tempfile.TemporaryDirectory(prefix="pg", dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


class SchemaRecord(Record):
    """A schema between two lives of a process."""

    def damage(self) -> list[str]:
        reader = PostgresStoreReader(self.db)
        with reader.one_moment():
            return [f"damaged: {what}" for what in reader.faults(thorough=True)]

    def secrets(self) -> set[str]:
        seal = Seal("the store", {KEY_VARIABLE: SECRETS_KEY})
        found = self.db.execute("SELECT key, value FROM secret")
        return {seal.open(key, bytes(value)) for key, value in found}


def schema_record(store: str) -> SchemaRecord | None:
    """What ``Audit`` looks at; ``None`` where no store has been made yet."""
    db = PostgresConnection(PostgresAddress(store), "audit")
    db.connect()
    if check_format(db):
        return SchemaRecord(db)
    db.close()
    return None
