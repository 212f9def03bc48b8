"""``RunText``: the contents of a ``run.jsonl``, read back and checked alone.

    bytes ──► RunText   the run up to its last whole batch, with a warning for what was torn off
          └─► Broken    what is wrong, where, and what to do; the file stays

Rules
-----
* Nothing here changes a file, and nothing that is in one raises.
* What ``hubbub fsck`` would report of the run alone, once it is in a store, is reported here.
"""

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.store.reader import EventRow
from hubbub.hub.texts import readable
from hubbub.runtime.stores.exchange.export import (
    FORMAT,
    AcceptedLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)
from hubbub.runtime.stores.exchange.incoming_runs import ImportProblem, row_of
from hubbub.runtime.stores.exchange.lanes import Lanes
from hubbub.runtime.stores.exchange.run_check import READ_ERRORS, fold_problem, own_problems
from hubbub.runtime.stores.folders.disk import Disk
from hubbub.runtime.stores.folders.run_files import RUN

__all__ = ["Broken", "RunText", "StoredEvent", "read_run", "unreadable"]

MISSING: Final = (
    "open the database that it belongs to once with this version, which writes the file in the "
    "background, or remove the folder"
)
REMEDY: Final = "restore the file from a backup, or remove the folder"

_RUN: Final = b'{"line":"run"'
_decoder: Final = msgspec.json.Decoder(ExportLine)


class Broken(Struct, frozen=True, kw_only=True):
    """A folder that cannot be read; ``line`` is 0 where the whole file is meant."""

    folder: str
    file: str
    line: int
    what: str
    remedy: str

    def __post_init__(self) -> None:
        # Names on a disk are bytes, and messages about them are text.
        for name in ("file", "what", "remedy"):
            said = getattr(self, name)
            if not said.isprintable():
                force_setattr(self, name, " ".join(readable(said).split()))

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {self.what}; {self.remedy}"


class StoredEvent(Struct, frozen=True):
    """An event, where it stood in its store, and its body."""

    position: int
    event: Event
    body: bytes


class RunText(Struct, frozen=True, kw_only=True):
    """A run as its file has it; ``store`` is where it began, ``line`` the run as it was last."""

    folder: str
    store: str
    line: RunLine
    events: tuple[StoredEvent, ...]
    accepted: tuple[AcceptedLine, ...]
    warnings: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return self.line.run_id


class _Wrong(CopiedWhole, Exception):
    def __init__(self, line: int, what: str, remedy: str = REMEDY) -> None:
        super().__init__(what)
        self.line, self.what, self.remedy = line, what, remedy


def read_run(disk: Disk, path: str, run_id: str) -> RunText | Broken:
    """Read the ``run.jsonl`` in a run's folder at ``path``."""
    file = f"{path}/{RUN}"
    try:
        data = disk.read(file)
        if data is None:
            raise _Wrong(0, "missing", MISSING)
        return _Reader(path, run_id).read(data)
    except _Wrong as wrong:
        return Broken(folder=path, file=file, line=wrong.line, what=wrong.what, remedy=wrong.remedy)
    except OSError as error:
        return unreadable(path, error, file)


def unreadable(path: str, error: OSError, file: str = "") -> Broken:
    """The problem of a folder or file that the system does not let us read."""
    what = error.strerror or str(error)
    return Broken(folder=path, file=file or path, line=0, what=what, remedy="make it readable")


def _last_run(rows: list[bytes]) -> int:
    """Where the last whole batch ends; -1 where none does.  A last line may be damaged."""
    for number in range(len(rows) - 1, -1, -1):
        if not rows[number].startswith(_RUN):
            continue
        if number == len(rows) - 1:
            try:
                _decoder.decode(rows[number])
            except READ_ERRORS:
                continue
        return number
    return -1


class _Reader:
    def __init__(self, path: str, run_id: str) -> None:
        self.path = path
        self.run_id = run_id
        self.lanes = Lanes("")
        self.line: RunLine | None = None
        self.events: list[StoredEvent] = []
        self.accepted: list[AcceptedLine] = []

    def read(self, data: bytes) -> RunText:
        rows = data.split(b"\n")
        whole = _last_run(rows[:-1])
        warnings = []
        if any(rows[whole + 1 :]):
            what = "torn off; it is passed over"
            warnings.append(f"{self.path}/{RUN}:{whole + 2}: {what}")
        header = self._header(rows[0] if whole > 0 else b"")
        for number, row in enumerate(rows[1 : whole + 1], 2):
            try:
                self._take(number, _decoder.decode(row))
            except READ_ERRORS as error:
                raise _Wrong(number, f"cannot be read: {error}") from None
        line = self._checked()
        return RunText(
            folder=self.path, store=header.store, line=line, events=tuple(self.events),
            accepted=tuple(self.accepted), warnings=tuple(warnings),
        )  # fmt: skip

    def _header(self, row: bytes) -> HeaderLine:
        if not row:
            raise _Wrong(1, "ends before the run does", MISSING)
        try:
            header = _decoder.decode(row)
        except READ_ERRORS as error:
            raise _Wrong(1, f"cannot be read: {error}") from None
        if not isinstance(header, HeaderLine) or not header.is_open:
            raise _Wrong(1, "is no run as an agent's folder has it")
        if header.run_id != self.run_id:
            remedy = f"rename the folder, or put the file of {self.run_id} here"
            raise _Wrong(1, f"is of run {header.run_id!r}", remedy)
        if not 1 <= header.format <= FORMAT:
            known = f"this hubbub knows {FORMAT}, upgrade it"
            raise _Wrong(1, f"written in format {header.format}", known)
        return header

    def _take(self, number: int, line: ExportLine) -> None:
        match line:
            case RunLine():
                before = self.line or line
                kept = (line.run_id, line.root_run_id, line.parent_run_id)
                if kept != (self.run_id, before.root_run_id, before.parent_run_id):
                    raise _Wrong(number, "is of another run, or below another one")
                self.line = line
            case AcceptedLine() if line.run_id == self.run_id:
                self.accepted.append(line)
            case EventLine():
                self._take_event(number, line)
            case _:
                raise _Wrong(number, "is no line of this run's")

    def _take_event(self, number: int, line: EventLine) -> None:
        body = bytes(line.event)
        event = decode_event(body)
        root = self.line.root_run_id if self.line is not None else ""
        if (event.run_id, event.root_run_id) != (self.run_id, root):
            raise _Wrong(number, f"an event of run {event.run_id!r} below {event.root_run_id!r}")
        if event.lane not in ("own", "in"):
            raise _Wrong(number, "an event of no lane of a run's")
        row = EventRow(
            self.lanes.events + 1, event.run_id, root, event.lane, event.seq, event.type, None,
            body,
        )  # fmt: skip
        for problem in self.lanes.take(row):
            raise _Wrong(number, problem.what)
        self.events.append(StoredEvent(line.position, event, body))

    def _checked(self) -> RunLine:
        line, lane = self.line, self.lanes.runs.get(self.run_id)
        if line is None or lane is None or not lane.in_seq:
            raise _Wrong(0, "ends before the run's first batch does", MISSING)
        try:
            what = next(own_problems(row_of(line, lane), lane), "")
        except (*READ_ERRORS, ImportProblem) as error:
            what = f"does not fit together: {error}"
        what = what or fold_problem(x.event for x in self.events if x.event.lane == "own")
        if what:
            raise _Wrong(0, what)
        return line
