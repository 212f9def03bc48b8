"""Taking an export into a store: its runs with the same ids, all or none of them.

What the store numbers by itself is numbered anew (positions, checksums); inboxes, and the keys
under which things were accepted, come along, so a runtime on this store goes on with the runs.
See ``run_export.py`` for the format.
"""

import hashlib
import sqlite3
import zlib
from base64 import b64decode
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.hub.codec import decode_event
from hubbub.hub.descriptors import kind_of_descriptor, read_descriptor
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import SessionMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.blob_folder import BlobFolder
from hubbub.runtime.data_folder import DataFolder, FolderLock
from hubbub.runtime.run_export import (
    FORMAT,
    AcceptedLine,
    ContentLine,
    EndLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)
from hubbub.runtime.sqlite_schema import connect, store_failure
from hubbub.runtime.store_file import BY_ID, IMPORTED
from hubbub.runtime.stores import folder_of_store

__all__ = ["BadExport", "Imported", "import_runs"]

_decoder: Final = msgspec.json.Decoder(ExportLine)

_INBOXES: Final = (("open", "closing", "terminated"), ("terminated", "ended"))
"""What the inbox of a run can be: of a live one, of one that has ended."""


class BadExport(OperatorError):
    """A file is no export, or not a whole one; nothing was imported."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        super().__init__(f"{name} line {line}: {problem}; nothing was imported, export it again")


class Imported(Struct, frozen=True, kw_only=True):
    """What came in."""

    run_id: str
    runs: int
    events: int
    contents: int
    replaced: int


class _Misfit(Exception):
    """What a line says does not fit what came before it."""


class _Incoming:
    """A run on its way in."""

    __slots__ = ("born", "chain", "items", "line", "number", "root", "seq")

    def __init__(self, line: RunLine, number: int, root: int) -> None:
        self.line = line
        self.number = number
        self.root = root
        self.seq = 0
        self.chain = 0
        self.born = 0
        self.items: list[tuple[int, bool]] = []
        """Position of each item of the in lane, and whether it is a message."""

    def position(self, seq: int) -> int:
        if not 0 < seq <= len(self.items):
            raise _Misfit(f"run {self.line.run_id} has no item {seq} in its inbox")
        return self.items[seq - 1][0]


async def import_runs(
    store: str, name: str, lines: Iterable[bytes], *, replace: bool = False, ports: Ports
) -> Imported:
    """Take the runs of an export into a store; ``name`` is what the file is called in errors.

    The store is made if there is none.  No runtime may be at work on it.  All or nothing: raises
    ``BadExport`` for what is no whole export, and ``OperatorError`` for runs that the store has
    (with ``replace`` they are replaced), for a conversation that another run has, and where the
    store cannot be written.
    """
    folder = folder_of_store(store)
    folder.make()
    folder.check_file_system()
    lock = FolderLock(folder.root / "hubbub.lock")
    lock.acquire()
    try:
        db = connect(folder.database)
        try:
            return await _import(db, folder, name, lines, replace, ports)
        except sqlite3.Error as error:
            raise OperatorError(store_failure(folder.database, error)) from error
        finally:
            db.close()
    finally:
        lock.release()


async def _import(
    db: sqlite3.Connection,
    folder: DataFolder,
    name: str,
    lines: Iterable[bytes],
    replace: bool,
    ports: Ports,
) -> Imported:
    folder.database.chmod(0o600)
    blobs = BlobFolder(folder.blobs)
    blobs.worker = worker = ports.make_worker()
    new_name = f"sqlite-{ports.ids.number():012x}"
    count = 0
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT OR IGNORE INTO meta VALUES ('store', ?)", (new_name,))
        import_ = _Import(db, replace)
        for data in lines:
            count += 1
            content = import_.take(data)
            if content is not None:
                # On disk before what names it is committed.
                await blobs.put(import_.run_id, *content)
        imported = import_.finish()
        db.execute("COMMIT")
    except (msgspec.DecodeError, _Misfit, BadValue, ValueError, OverflowError) as error:
        raise BadExport(name, count, str(error)) from error
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        worker.close()
    return imported


class _Import:
    """Takes one line after another, inside of a transaction."""

    def __init__(self, db: sqlite3.Connection, replace: bool) -> None:
        self._db = db
        self._replace = replace
        self._runs: dict[str, _Incoming] = {}
        self._header: HeaderLine | None = None
        self._is_over = False
        self._lines = 0
        self._events = 0
        self._contents = 0
        self._replaced = 0
        # What is replaced gives no position free: cursors may point there.
        (self._tip,) = db.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()

    @property
    def run_id(self) -> str:
        return self._header.run_id if self._header is not None else ""

    def take(self, data: bytes) -> tuple[str, bytes] | None:
        """A line; returns the content that it brings, with its digest."""
        line = _decoder.decode(data)
        if self._is_over:
            raise _Misfit("there is something after the end")
        if self._header is None and not isinstance(line, HeaderLine):
            raise _Misfit("this is no export of hubbub's")
        self._lines += not isinstance(line, EndLine)
        match line:
            case HeaderLine():
                self._begin(line)
            case RunLine():
                self._take_run(line)
            case EventLine():
                self._take_event(bytes(line.event))
            case AcceptedLine():
                self._take_key(line)
            case ContentLine():
                self._contents += 1
                return line.digest, _content_of(line)
            case EndLine():
                self._is_over = True
                if line.lines != self._lines:
                    raise _Misfit(f"{line.lines} lines were exported, {self._lines} came")
        return None

    def _begin(self, line: HeaderLine) -> None:
        if self._header is not None:
            raise _Misfit("a second export begins; give one file for each")
        if line.format > FORMAT:
            known = f"this hubbub knows {FORMAT}, upgrade it"
            raise _Misfit(f"written in format {line.format}; {known}")
        self._header = line

    def _take_run(self, line: RunLine) -> None:
        if line.run_id in self._runs:
            raise _Misfit(f"run {line.run_id} comes twice")
        if line.inbox not in _INBOXES[line.status == "ended"]:
            raise _Misfit(f"run {line.run_id}: status {line.status}, inbox {line.inbox!r}")
        if line.run_id != self.run_id and line.parent_run_id not in self._runs:
            raise _Misfit(f"run {line.run_id}: its parent is not in the export")
        if self._db.execute(f"SELECT 1 FROM run WHERE {BY_ID}", (line.run_id,)).fetchone():
            if not self._replace:
                raise OperatorError(
                    f"run {line.run_id} is in this store already; import with --replace to put "
                    "the export in its place, or give another --store"
                )
            self._remove(line.run_id)
        number, root = self._number(line.run_id), self._number(line.root_run_id)
        self._runs[line.run_id] = _Incoming(line, number, root)

    def _remove(self, run_id: str) -> None:
        number = self._number(run_id)
        self._replaced += 1
        for statement in (
            "DELETE FROM event WHERE run = ? AND lane <> 'hub'",
            "DELETE FROM waiting WHERE run = ?",
            "DELETE FROM accepted WHERE run = ?",
            "DELETE FROM run WHERE number = ?",
        ):
            self._db.execute(statement, (number,))

    def _take_event(self, body: bytes) -> None:
        event = decode_event(body)
        run = self._runs.get(event.run_id)
        if run is None or event.root_run_id != run.line.root_run_id:
            raise _Misfit(f"an event of run {event.run_id!r}, which is not in the export")
        due = {"own": run.seq + 1, "in": len(run.items) + 1}.get(event.lane)
        if event.seq != due:
            raise _Misfit(f"{event.id}: {event.lane} {due} is due")
        self._tip += 1
        self._events += 1
        if event.lane == "own":
            run.seq += 1
        else:
            run.items.append((self._tip, isinstance(event, SessionMessage)))
        run.chain = zlib.crc32(body, run.chain)
        run.born = run.born or self._tip
        self._db.execute(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._tip, run.number, run.root, event.lane, event.seq, event.type, run.chain,
                body.decode(),
            ),
        )  # fmt: skip

    def _take_key(self, line: AcceptedLine) -> None:
        run = self._runs.get(line.run_id)
        if run is None:
            raise _Misfit(f"a key of run {line.run_id!r}, which is not in the export")
        values = (run.number, line.source, line.key, run.position(line.seq))
        if self._db.execute("INSERT OR IGNORE INTO accepted VALUES (?, ?, ?, ?)", values).rowcount:
            return
        raise _Misfit(f"run {line.run_id}: key {line.key!r} comes twice")

    def finish(self) -> Imported:
        """Write the rows of the runs, whose events are all there now."""
        if self._header is None or not self._is_over:
            raise _Misfit("the file ends before the export does")
        if self.run_id not in self._runs:
            raise _Misfit(f"run {self.run_id} itself is missing")
        for run in self._runs.values():
            self._put_run(run)
        for run in self._runs.values():
            self._check_key(run.line)
        note = (f"{IMPORTED}{self.run_id}", self._header.store)
        self._db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", note)
        return Imported(
            run_id=self.run_id, runs=len(self._runs), events=self._events,
            contents=self._contents, replaced=self._replaced,
        )  # fmt: skip

    def _put_run(self, run: _Incoming) -> None:
        line = run.line
        if not run.items:
            raise _Misfit(f"run {line.run_id} has no opening")
        waiting = [(run.number, seq, run.position(seq)) for seq in line.waiting]
        if waiting and line.status == "ended":
            raise _Misfit(f"run {line.run_id} has ended, but something waits for it")
        if len({seq for _, seq, _ in waiting}) != len(waiting):
            raise _Misfit(f"run {line.run_id}: an item waits twice")
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?)", waiting)
        self._db.execute(_INSERT_RUN, _values(run))

    def _check_key(self, line: RunLine) -> None:
        """A conversation has one open run."""
        if not line.session_key or line.inbox != "open":
            return
        select = (
            "SELECT run_id FROM run WHERE session_key <> '' AND session_key = ? "
            "AND inbox = 'open' AND run_id <> ?"
        )
        other = self._db.execute(select, (line.session_key, line.run_id)).fetchone()
        if other is not None:
            raise OperatorError(
                f"run {line.run_id}: the conversation {line.session_key!r} is that of run "
                f"{other[0]} here; end that run first, or give another --store"
            )

    def _number(self, run_id: str) -> int:
        insert = "INSERT INTO address (run_id) VALUES (?) ON CONFLICT DO NOTHING"
        self._db.execute(insert, (run_id,))
        select = "SELECT number FROM address WHERE run_id = ?"
        (number,) = self._db.execute(select, (run_id,)).fetchone()
        return int(number)


_INSERT_RUN: Final = (
    "INSERT INTO run (number, run_id, root_run_id, parent_run_id, agent, name, session_key, kind, "
    "descriptor, status, inbox, ready, seq, in_seq, chain, waiting, messages, born, created_at, "
    f"wake_at, recent) VALUES ({', '.join('?' * 21)})"
)


def _values(run: _Incoming) -> tuple[Any, ...]:
    line = run.line
    descriptor, kind = None, ""
    if bytes(line.descriptor) != b"null":
        descriptor = bytes(line.descriptor).decode()
        kind = kind_of_descriptor(read_descriptor(descriptor))
    messages = sum(run.items[seq - 1][1] for seq in line.waiting)
    is_ready = line.status == "active" or (line.status != "ended" and bool(line.waiting))
    return (
        run.number, line.run_id, line.root_run_id, line.parent_run_id, line.agent, line.name,
        line.session_key, kind, descriptor, line.status, line.inbox, is_ready, run.seq,
        len(run.items), run.chain, len(line.waiting), messages, run.born, line.created_at,
        line.wake_at, line.recent,
    )  # fmt: skip


def _content_of(line: ContentLine) -> bytes:
    content = b64decode(line.content, validate=True)
    if hashlib.sha256(content).hexdigest() != line.digest:
        raise _Misfit(f"content {line.digest} has changed")
    return content
