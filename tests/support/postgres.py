"""A PostgreSQL server of the tests' own: made by ``initdb``, with ``fsync``, on a local socket."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from torture.audit import Record

from hubbub.runtime.stores.postgres.address import PostgresAddress
from hubbub.runtime.stores.postgres.connection import PostgresConnection
from hubbub.runtime.stores.postgres.schema import has_schema
from hubbub.runtime.stores.postgres.sealing import KEY_VARIABLE, Seal
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader

__all__ = ["SECRETS_KEY", "SchemaRecord", "Server", "running_server", "schema_record"]

BINARIES: Final = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/bin")

SECRETS_KEY: Final = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 1 << 30

MISSING: Final = "PostgreSQL is not installed: apt-get install postgresql"

SETTINGS: Final = {
    "fsync": "on", "synchronous_commit": "on", "listen_addresses": "", "shared_buffers": "64MB",
    "max_connections": "60", "max_wal_size": "256MB", "logging_collector": "off",
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
    """A server with a database ``test``; each ``schema`` is a store."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self.folder = folder
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
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
        options = SETTINGS | {"unix_socket_directories": str(self.folder)} | settings
        command = [*self._as_user, str(self._programs / "postgres"), "-D", str(self.data)]
        command += [f"--{name}={value}" for name, value in options.items()]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/")
        log.close()
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

    def restart(self, **settings: str) -> None:
        self.stop()
        self.start(**settings)

    def query(self, sql: str, *, database: str = "test") -> list[tuple[object, ...]]:
        """What a statement finds, as the server's owner."""
        with psycopg.connect(
            host=str(self.folder), dbname=database, user="hubbub", autocommit=True
        ) as db:
            cursor = db.execute(sql)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def dsn(self, schema: str = "", *, user: str = "hubbub", database: str = "test") -> str:
        """A new store, or the one of a schema."""
        if not schema:
            self._count += 1
            schema = f"store_{self._count}"
        return f"postgresql://{user}@/{database}?host={self.folder}&schema={schema}"


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
def running_server() -> Iterator[Server]:
    """A server, until this is left; skips the test where PostgreSQL is missing, but for CI."""
    programs = binaries()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    # In memory wherever there is enough of it, also for CI: here processes die, not machines.
    place = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH else None
    with tempfile.TemporaryDirectory(prefix="pg", dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(programs, folder)
        try:
            server.make()
            server.start()
            server.query("CREATE DATABASE test", database="postgres")
            yield server
        finally:
            server.stop()


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
    if has_schema(db):
        return SchemaRecord(db)
    db.close()
    return None
