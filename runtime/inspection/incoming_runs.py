"""``IncomingRuns``: the lines of an export, put into a store one after another and then checked.

    line ──► decoded ──► its rows put in, in a transaction ──► the last one: everything checked

Rules
-----
* What ``hubbub fsck`` would tell of a run afterwards is refused here: events as they come
  (``lane_check.py``), rows, inboxes and families when all are there (``run_check.py``).
* Beyond that an export is whole: one header, every run with its parent but for the first, which
  may have its own elsewhere; every content that events name, and none that they do not.
* A run that is put in the place of one keeps its place in the family.  One whose parent is in the
  store already must be a child that this parent knows of.
"""

import hashlib
import sqlite3
import zlib
from array import array
from base64 import b64decode
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.hub.addressing import is_run_id
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import AgentChild, Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import encode_descriptor, kind_of_descriptor, read_descriptor
from hubbub.hub.values import NULL
from hubbub.runtime.inspection.export import (
    FORMAT,
    AcceptedLine,
    ContentLine,
    EndLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)
from hubbub.runtime.inspection.lanes import Lane, Lanes
from hubbub.runtime.inspection.run_check import RunCheck, is_key_of
from hubbub.runtime.stores.sqlite.addresses import HAS_KEY
from hubbub.runtime.stores.sqlite.file import BY_ID, IMPORTED

__all__ = ["MISFITS", "Imported", "IncomingRuns", "Misfit"]

MISFITS: Final = (
    msgspec.DecodeError, BadValue, ValueError, OverflowError, RecursionError, TypeError
)  # fmt: skip
"""What a line that is none comes to."""

MAX_LINE_BYTES: Final = 128 * 1024 * 1024
"""Longer lines are refused: a content of the largest size takes less."""

_decoder: Final = msgspec.json.Decoder(ExportLine)

_INBOXES: Final = (("open", "closing", "terminated"), ("terminated", "ended"))
"""What the inbox of a run can be: of a live one, of one that has ended."""


class Imported(Struct, frozen=True, kw_only=True):
    """What came in."""

    run_id: str
    runs: int
    events: int
    contents: int
    replaced: int


class Misfit(Exception):
    """What a line says does not fit what came before it; ``line`` is 0 for the latest."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


class _Incoming:
    """A run on its way in."""

    __slots__ = ("at", "chain", "items", "line", "number", "root")

    def __init__(self, at: int, line: RunLine, number: int, root: int) -> None:
        self.at = at
        """The number of its line."""
        self.line = line
        self.number = number
        self.root = root
        self.chain = 0
        self.items = array("q")
        """Position of each item of the in lane."""

    def position(self, seq: int) -> int:
        if not 0 < seq <= len(self.items):
            raise Misfit(f"run {self.line.run_id} has no item {seq} in its inbox")
        return self.items[seq - 1]


class IncomingRuns:
    """Takes one line after another, inside of a transaction."""

    def __init__(self, db: sqlite3.Connection, replace: bool) -> None:
        self._db = db
        self._replace = replace
        self._runs: dict[str, _Incoming] = {}
        self._names: dict[int, str] = {}
        self._lanes = Lanes("", self._name)
        self._header: HeaderLine | None = None
        self._is_over = False
        self._lines = 0
        self._contents: set[str] = set()
        self._replaced = 0
        # What is replaced gives no position free: cursors may point there.
        (self._tip,) = db.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()

    @property
    def run_id(self) -> str:
        return self._header.run_id if self._header is not None else ""

    def take(self, number: int, data: bytes) -> tuple[str, bytes] | None:
        """A line; returns the content that it brings, with its digest."""
        if len(data) > MAX_LINE_BYTES:
            raise Misfit(f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
        line = _decoder.decode(data)
        if self._is_over:
            raise Misfit("there is something after the end")
        if self._header is None and not isinstance(line, HeaderLine):
            raise Misfit("this is no export of hubbub's")
        self._lines += not isinstance(line, EndLine)
        match line:
            case HeaderLine():
                self._begin(line)
            case RunLine():
                self._take_run(number, line)
            case EventLine():
                self._take_event(bytes(line.event))
            case AcceptedLine():
                self._take_key(line)
            case ContentLine():
                return line.digest, self._content(line)
            case EndLine():
                self._is_over = True
                if line.lines != self._lines:
                    raise Misfit(f"{line.lines} lines were exported, {self._lines} came")
        return None

    # ── lines ────────────────────────────────────────────────────────────────────────────────

    def _begin(self, line: HeaderLine) -> None:
        if self._header is not None:
            raise Misfit("a second export begins; give one file for each")
        if line.format > FORMAT:
            known = f"this hubbub knows {FORMAT}, upgrade it"
            raise Misfit(f"written in format {line.format}; {known}")
        if line.format < 1 or not is_run_id(line.run_id):
            raise Misfit(f"format {line.format}, run {line.run_id!r}: no export of hubbub's")
        self._header = line

    def _take_run(self, number: int, line: RunLine) -> None:
        if line.run_id in self._runs:
            raise Misfit(f"run {line.run_id} comes twice")
        for run_id in (line.run_id, line.root_run_id, line.parent_run_id):
            if run_id is not None and not is_run_id(run_id):
                raise Misfit(f"{run_id!r} is no id of a run")
        if line.inbox not in _INBOXES[line.status == "ended"]:
            raise Misfit(f"run {line.run_id}: status {line.status}, inbox {line.inbox!r}")
        select = f"SELECT root_run_id, parent_run_id FROM run WHERE {BY_ID}"
        before = self._db.execute(select, (line.run_id,)).fetchone()
        if before is not None:
            if not self._replace:
                raise OperatorError(
                    f"run {line.run_id} is in this store already; import with --replace to put "
                    "the export in its place, or give another --store"
                )
            if before != (line.root_run_id, line.parent_run_id):
                raise Misfit(
                    f"run {line.run_id} stands below {before[1]} of {before[0]} in this store"
                )
            self._remove(line.run_id)
        run, root = self._number(line.run_id), self._number(line.root_run_id)
        self._names[run], self._names[root] = line.run_id, line.root_run_id
        self._runs[line.run_id] = _Incoming(number, line, run, root)

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
            raise Misfit(f"an event of run {event.run_id!r}, which is not in the export")
        if event.lane not in ("own", "in"):
            raise Misfit(f"{event.id}: it is of no lane of a run's")
        self._tip += 1
        run.chain = zlib.crc32(body, run.chain)
        row = (
            self._tip, run.number, run.root, event.lane, event.seq, event.type, run.chain, body,
        )  # fmt: skip
        for problem in self._lanes.take(row):
            raise Misfit(f"{event.id}: {problem.what}")
        if event.lane == "in":
            run.items.append(self._tip)
        self._db.execute(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row[:-1], body.decode())
        )

    def _take_key(self, line: AcceptedLine) -> None:
        run = self._runs.get(line.run_id)
        if run is None:
            raise Misfit(f"a key of run {line.run_id!r}, which is not in the export")
        position = run.position(line.seq)
        if not is_key_of(self._event_at(position), line.source, line.key):
            raise Misfit(f"run {line.run_id}: in {line.seq} says of itself another key")
        values = (run.number, line.source, line.key, position)
        if not self._db.execute(
            "INSERT OR IGNORE INTO accepted VALUES (?, ?, ?, ?)", values
        ).rowcount:
            raise Misfit(f"run {line.run_id}: key {line.key!r} comes twice")

    def _content(self, line: ContentLine) -> bytes:
        named = self._lanes.digests.get(line.digest)
        if named is None:
            raise Misfit(f"content {line.digest!r}, which no event before it names")
        if line.digest in self._contents:
            raise Misfit(f"content {line.digest} comes twice")
        content = b64decode(line.content, validate=True)
        if hashlib.sha256(content).hexdigest() != line.digest or len(content) != named[1]:
            raise Misfit(f"content {line.digest} has changed")
        self._contents.add(line.digest)
        return content

    # ── when all are there ───────────────────────────────────────────────────────────────────

    def finish(self) -> Imported:
        """Write the rows of the runs, whose events are all there now, and check them."""
        if self._header is None or not self._is_over:
            raise Misfit("the file ends before the export does")
        if self.run_id not in self._runs:
            raise Misfit(f"run {self.run_id} itself is missing")
        if self._header.has_contents and (lost := self._lanes.digests.keys() - self._contents):
            raise Misfit(f"content {min(lost)} is missing")
        for run in self._runs.values():
            try:
                self._put_run(run)
            except MISFITS as error:
                raise Misfit(f"run {run.line.run_id}: {error}", run.at) from error
        note = (f"{IMPORTED}{self.run_id}", self._header.store)
        self._db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", note)
        self._check_families()
        check = RunCheck(self._db)
        for run in self._runs.values():
            self._check_key(run.line)
            self._check_descriptor(run.line)
            lane = self._lanes.runs[run.number]
            for what in check.problems(check.row(run.line.run_id), lane):
                raise Misfit(f"run {run.line.run_id}: {what}", run.at)
        for run_id, what in check.problems_below(self._runs):
            raise Misfit(f"run {run_id}, which is in this store already: {what}")
        return Imported(
            run_id=self.run_id, runs=len(self._runs), events=self._lanes.events,
            contents=len(self._contents), replaced=self._replaced,
        )  # fmt: skip

    def _put_run(self, run: _Incoming) -> None:
        line = run.line
        lane = self._lanes.runs.get(run.number)
        if lane is None or not run.items:
            raise Misfit(f"run {line.run_id} has no opening", run.at)
        if line.waiting and line.status == "ended":
            raise Misfit(f"run {line.run_id} has ended, but something waits for it", run.at)
        if len(set(line.waiting)) < len(line.waiting):
            raise Misfit(f"run {line.run_id}: an item waits twice", run.at)
        waiting = [(run.number, seq, run.position(seq)) for seq in line.waiting]
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?)", waiting)
        self._db.execute(_INSERT_RUN, _values(run, lane))

    def _check_families(self) -> None:
        """Every run but the first has its parent here, which knows of it."""
        for run in self._runs.values():
            run_id, parent = run.line.run_id, run.line.parent_run_id
            above = self._runs.get(parent or "")
            if above is None and run_id != self.run_id:
                raise Misfit(f"run {run_id}: its parent is not in the export", run.at)
            opened = self._lanes.runs[run.number].opened
            if opened is not None and opened.descriptor_json is not NULL:
                known = True  # It was not its parent that opened it.
            elif above is not None:
                known = run_id in self._lanes.runs[above.number].children
            else:
                known = parent is None or self._is_known_here(parent, run_id)
            if not known:
                raise Misfit(f"run {run_id}: its parent {parent} knows of no such child", run.at)

    def _is_known_here(self, parent: str, run_id: str) -> bool:
        """Whether a run of the store, if it is there, has a child on record."""
        if not self._db.execute(f"SELECT 1 FROM run WHERE {BY_ID}", (parent,)).fetchone():
            return True
        select = (
            "SELECT position FROM event WHERE run = (SELECT number FROM address WHERE run_id = ?) "
            "AND lane = 'own' AND type = ?"
        )
        found = self._db.execute(select, (parent, AgentChild.type)).fetchall()
        events = (self._event_at(position) for (position,) in found)
        return any(isinstance(x, AgentChild) and x.child_run_id == run_id for x in events)

    def _check_key(self, line: RunLine) -> None:
        """A conversation has one open run."""
        _, kind = _descriptor_of(line)
        if not line.session_key or line.inbox != "open" or kind in ("cron", "heartbeat"):
            return
        select = f"SELECT run_id FROM run WHERE session_key = ? AND {HAS_KEY} AND run_id <> ?"
        other = self._db.execute(select, (line.session_key, line.run_id)).fetchone()
        if other is not None:
            raise OperatorError(
                f"run {line.run_id}: the conversation {line.session_key!r} is that of run "
                f"{other[0]} here; end that run first, or give another --store"
            )

    def _check_descriptor(self, line: RunLine) -> None:
        """So has a user, a cron task, the heartbeat."""
        text, kind = _descriptor_of(line)
        if kind not in ("user", "cron", "heartbeat") or line.inbox != "open":
            return
        select = (
            "SELECT run_id FROM run WHERE descriptor = ? AND inbox = 'open' "
            "AND kind IN ('user', 'cron', 'heartbeat') AND run_id <> ?"
        )
        other = self._db.execute(select, (text, line.run_id)).fetchone()
        if other is not None:
            raise OperatorError(
                f"run {line.run_id}: the agent {text} is run {other[0]} here; end that run first, "
                "or give another --store"
            )

    # ── the store ────────────────────────────────────────────────────────────────────────────

    def _event_at(self, position: int) -> Event:
        select = "SELECT body FROM event WHERE position = ?"
        return decode_event(self._db.execute(select, (position,)).fetchone()[0])

    def _number(self, run_id: str) -> int:
        insert = "INSERT INTO address (run_id) VALUES (?) ON CONFLICT DO NOTHING"
        self._db.execute(insert, (run_id,))
        select = "SELECT number FROM address WHERE run_id = ?"
        (number,) = self._db.execute(select, (run_id,)).fetchone()
        return int(number)

    def _name(self, number: int) -> str | None:
        return self._names.get(number)


_INSERT_RUN: Final = (
    "INSERT INTO run (number, run_id, root_run_id, parent_run_id, agent, name, session_key, kind, "
    "descriptor, status, inbox, ready, seq, in_seq, chain, waiting, messages, born, created_at, "
    f"wake_at, recent) VALUES ({', '.join('?' * 21)})"
)


def _values(run: _Incoming, lane: Lane) -> tuple[Any, ...]:
    line = run.line
    descriptor, kind = _descriptor_of(line)
    messages = sum(lane.untaken.get(seq, False) for seq in line.waiting)
    is_ready = line.status == "active" or (line.status != "ended" and bool(line.waiting))
    return (
        run.number, line.run_id, line.root_run_id, line.parent_run_id, line.agent, line.name,
        line.session_key, kind, descriptor, line.status, line.inbox, is_ready, lane.seq,
        lane.in_seq, run.chain, len(line.waiting), messages, lane.born, line.created_at,
        line.wake_at, line.recent,
    )  # fmt: skip


def _descriptor_of(line: RunLine) -> tuple[str | None, str]:
    """A run's descriptor as every store writes it, and its kind."""
    if bytes(line.descriptor) == b"null":
        return None, ""
    found = read_descriptor(line.descriptor)
    return bytes(encode_descriptor(found)).decode(), kind_of_descriptor(found)
