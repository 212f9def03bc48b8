"""A disk that loses power: an SQLite VFS (apsw) over files in memory.

What was written and not yet synced is kept as a list.  At a crash each write of it is cut into
sectors of 512 bytes, and a chance subset of these reaches the disk, in a chance order, some with
garbage in them; what was synced stays, and a file that was deleted without a sync of its folder
may come back.  Any I/O from the n-th on can fail, too: with an error, with a full disk, or because
the power goes in that moment.

``Connection`` gives the few methods of ``sqlite3.Connection`` that the store uses, and raises
sqlite3's errors, so that the store's own writer, with its own statements and pragmas, is what runs.
The VFS has no shared memory, so SQLite wants ``locking_mode=EXCLUSIVE`` before WAL: the one
difference to the store, which bears on locks and on nothing that is written.
"""

import itertools
import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import apsw

from hubbub.runtime.stores.sqlite.schema import PRAGMAS, is_io_error, prepare

__all__ = ["PATH", "Connection", "CrashDisk", "Fault", "PowerLost", "connect"]

SECTOR: Final = 512
PATH: Final = Path("/hubbub.db")

Fault = Literal["power", "error", "full", "sync"]
"""``error``: every I/O fails.  ``full``: every write that makes a file longer fails.  ``sync``: a
sync fails, and what it was to write is gone; later ones seem to succeed (as Linux does it)."""


class PowerLost(OSError):
    """The process is gone: nothing of it goes on after this."""


class _File:
    """A file: as programs see it, as the disk has it, and the writes in between."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.kept = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        self.is_new = True
        """Whether the folder does not yet name it durably."""
        self.syncs_folder = False

    def write(self, offset: int, data: bytes) -> None:
        _put(self.seen, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        del self.seen[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self.pending:
            if data is None:
                del self.kept[offset:]
            else:
                _put(self.kept, offset, data)
        self.pending.clear()

    def lose_power(self, draw: random.Random) -> None:
        """Leave what a disk may hold of it: all that was synced, and chance parts of the rest."""
        pieces: list[tuple[int, bytes | None]] = []
        for offset, data in self.pending:
            if data is None:
                pieces.append((offset, None))
                continue
            at = 0
            while at < len(data):
                end = at + SECTOR - (offset + at) % SECTOR
                pieces.append((offset + at, data[at:end]))
                at = end
        share = draw.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        pieces = [piece for piece in pieces if draw.random() < share]
        if draw.random() < 0.5:
            draw.shuffle(pieces)
        for offset, piece in pieces:
            if piece is None:
                del self.kept[offset:]
            else:
                is_garbage = draw.random() < 0.02
                _put(self.kept, offset, draw.randbytes(len(piece)) if is_garbage else piece)
        self.seen = bytearray(self.kept)
        self.pending.clear()


def _put(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


class CrashDisk:
    """The disk.  ``fail_at`` counts writes, truncations, syncs and deletions from now on."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.files: dict[str, _File] = {}
        self._deleted: dict[str, _File] = {}
        self.operations = 0
        self.fault: Fault | None = None
        self._fail_at: int | None = None
        self.is_off = False
        self.is_marked = False
        """Whether the store has noted that a sync failed (``sqlite_schema.mark_failed``)."""

    def fail_at(self, operation: int, fault: Fault = "power") -> None:
        """Have the operation with that number, counted from now, and all after it, fail."""
        self._fail_at, self.fault = self.operations + operation, fault

    @property
    def has_failed(self) -> bool:
        return self._fail_at is not None and self.operations >= self._fail_at

    def restart(self, *, lose_power: bool = True) -> None:
        """Go on with what the disk holds after the power was lost, or the process killed."""
        if lose_power:
            self.is_marked = False
            for name, file in self._deleted.items():
                if name not in self.files and self.draw.random() < 0.5:
                    self.files[name] = file
            for name, file in list(self.files.items()):
                file.lose_power(self.draw)
                if file.is_new and self.draw.random() < 0.5:
                    del self.files[name]
        self._deleted.clear()
        self.fault = self._fail_at = None
        self.is_off = False

    def operate(self, what: Literal["write", "grow", "truncate", "sync", "delete"]) -> None:
        """Count an operation; raises what the fault makes of it."""
        if self.is_off:
            raise apsw.IOError("no power")
        self.operations += 1
        if not self.has_failed:
            return
        match self.fault:
            case "power":
                self.is_off = True
                raise apsw.IOError("no power")
            case "error":
                raise apsw.IOError("input/output error")
            case "full" if what == "grow":
                raise apsw.FullError("no space left on device")
            case _:
                return

    def sync(self, file: _File) -> None:
        self.operate("sync")
        if self.has_failed and self.fault == "sync":
            self.fault = None
            file.pending.clear()
            raise apsw.IOError("sync failed")
        file.sync()
        if file.syncs_folder:
            # As on Unix: the first sync of a log or a journal makes the folder durable, too.
            file.syncs_folder = False
            self._deleted.clear()
            for each in self.files.values():
                each.is_new = False

    def copy(self, name: str) -> None:
        """Put a synced copy in the place of a file, as the store does after a failed sync."""
        if (file := self.files.get(name)) is None:
            return
        new = _File()
        new.write(0, bytes(file.seen))
        self.operate("grow")
        self.sync(new)
        self.operate("write")
        self.files[name] = new

    def make_room(self, name: str, size: int) -> None:
        """Make a file longer by zeros, as the store does with its log; not where that fails."""
        if (file := self.files.get(name)) is not None:
            with suppress(apsw.Error):
                self.operate("grow")
                file.write(len(file.seen), bytes(size))

    def delete(self, name: str, *, is_synced: bool) -> None:
        self.operate("delete")
        file = self.files.pop(name, None)
        if file is not None and not is_synced:
            self._deleted[name] = file


class _OpenFile:
    """What SQLite sees of a file: apsw calls these by name."""

    def __init__(self, disk: CrashDisk, file: _File) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self._disk.is_off:
            raise apsw.IOError("no power")
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        grows = offset + len(data) > len(self._file.seen)
        self._disk.operate("grow" if grows else "write")
        self._file.write(offset, bytes(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.operate("truncate")
        self._file.truncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.sync(self._file)

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._file.seen)

    def xSectorSize(self) -> int:  # noqa: N802
        return SECTOR

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xFileControl(self, operation: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xLock(self, level: int) -> None:  # noqa: N802
        """Only one connection at a time is there."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """See ``xLock``."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xClose(self) -> None:  # noqa: N802
        """The file stays on the disk."""


_numbers = itertools.count()


class _Vfs(apsw.VFS):
    def __init__(self, disk: CrashDisk) -> None:
        self.name = f"crash-{next(_numbers)}"
        self._disk = disk
        super().__init__(self.name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:  # A file of SQLite's own, for the moment.
            return _OpenFile(self._disk, _File())
        flags[1] = flags[0]
        file = self._disk.files.setdefault(path, _File())
        file.syncs_folder = file.is_new and not flags[0] & apsw.SQLITE_OPEN_MAIN_DB
        return _OpenFile(self._disk, file)

    def xDelete(self, path: str, is_synced: bool) -> None:  # noqa: N802
        # Not forwarded, it would leave a rollback journal that undoes what was committed.
        self._disk.delete(path, is_synced=is_synced)

    def xAccess(self, path: str, flags: int) -> bool:  # noqa: N802
        return path in self._disk.files

    def xFullPathname(self, path: str) -> str:  # noqa: N802
        return path


class _Cursor:
    """Rows of one statement, read at once: sqlite3's cursors may be left half read, too."""

    def __init__(self, rows: Iterator[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


class Connection:
    """An apsw connection with the face of sqlite3's."""

    def __init__(self, disk: CrashDisk) -> None:
        self._disk = disk
        self._vfs = _Vfs(disk)
        with self._errors():
            self._db = apsw.Connection(str(PATH), vfs=self._vfs.name)

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    def execute(self, sql: str, values: Sequence[Any] = ()) -> _Cursor:
        with self._errors():
            try:
                rows = list(self._db.execute(sql, tuple(values)))
            except UnicodeDecodeError as error:  # As sqlite3 says it.
                raise sqlite3.OperationalError(f"Could not decode to UTF-8: {error}") from error
            return _Cursor(iter(rows), self._db.changes())

    def executemany(self, sql: str, values: Iterable[Sequence[Any]]) -> None:
        with self._errors():
            self._db.executemany(sql, [tuple(each) for each in values])

    def executescript(self, sql: str) -> None:
        self.execute(sql)

    def close(self) -> None:
        with self._errors():
            self._db.close()
        self._vfs.unregister()

    def abandon(self) -> None:
        """Let go as a process does that is killed: nothing more reaches the disk."""
        was_off, self._disk.is_off = self._disk.is_off, True
        try:
            self._db.close(True)
            self._vfs.unregister()
        except apsw.Error:
            pass
        finally:
            self._disk.is_off = was_off

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            if self._disk.is_off:
                raise PowerLost from error
            name = f"SQLITE_{type(error).__name__.removesuffix('Error').upper()}"
            translated = sqlite3.OperationalError(str(error))
            translated.sqlite_errorname = {"SQLITE_IO": "SQLITE_IOERR"}.get(name, name)
            self._disk.is_marked |= is_io_error(translated)
            raise translated from error


def connect(disk: CrashDisk, *, synchronous: str = "") -> Connection:
    """The store's writing connection, made as the store makes it, on ``disk``.

    ``synchronous`` plants a weakness: that setting in the place of the store's.
    """
    # As ``sqlite_schema.connect`` does, but for the two pragmas.
    try:
        if disk.is_marked:
            disk.copy(f"{PATH}-wal")
    except apsw.Error as error:
        raise (PowerLost if disk.is_off else sqlite3.OperationalError)(str(error)) from error
    db = Connection(disk)
    try:
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        for pragma in PRAGMAS:
            db.execute(f"PRAGMA {pragma}")
        if synchronous:
            db.execute(f"PRAGMA synchronous={synchronous}")
        prepare(db, PATH)  # type: ignore[arg-type]
        disk.is_marked = False
    except BaseException:
        db.abandon()
        raise
    return db
