"""``RunFiles``: ``run.jsonl`` of agents' folders, a run as an export has it, word for word.

    header and run, then for each batch:  events of both lanes, keys of items, the run as it is then

Rules
-----
* The file is an open export (``stores/exchange/export.py``): only ever added to, and the last line
  of the run is the one that counts.  Contents of files are in ``files/``.
* What a batch adds ends with the run.  What comes behind the last such line was torn off while it
  was written: it is passed over, and written again.
* Everything comes from the store, in the form and the order in which it is kept there.  What has
  gone from the store, behind a base, stays here.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.hub.events import AgentBase
from hubbub.hub.store.reader import IMPORTED, EventRow, RunRow, StoreReader
from hubbub.runtime.stores.exchange.export import (
    FORMAT,
    AcceptedLine,
    EventLine,
    HeaderLine,
    run_line,
    write_line,
)
from hubbub.runtime.stores.folders.disk import Disk
from hubbub.runtime.stores.folders.files import MISSING
from hubbub.runtime.stores.folders.lines import problem_in, set_aside

__all__ = ["RUN", "RunFiles"]

RUN: Final = "run.jsonl"

CHUNK: Final = 2_000
"""Lines that are added at a time where there are many."""

END: Final = 64 * 1024
"""Bytes at the end of a file in which its last batch is looked for."""

_EVENT: Final = b'{"line":"event"'
_RUN: Final = b'{"line":"run"'


_decoder: Final = msgspec.json.Decoder(EventLine)


class _File(Struct):
    """How far a file has come: a position in the store, the bytes that count, its last run."""

    position: int = 0
    size: int = 0
    last: bytes = b""


class _Looked(Struct, frozen=True):
    """A file beside the store; ``problem`` is a line and what is wrong there."""

    file: _File
    problem: tuple[int, str] | None = None
    is_behind: bool = False
    is_torn: bool = False


class RunFiles:
    """Follows the runs of the store that ``reader`` reads; ``keep`` bounds how many it remembers.

    Plain calls, from the thread of ``reader``; they raise ``OSError`` where a file cannot be read
    or written, and what a reader raises.
    """

    def __init__(self, disk: Disk, reader: StoreReader, keep: int = 1_000) -> None:
        self._disk = disk
        self._reader = reader
        self._keep = keep
        self._known: OrderedDict[str, _File] = OrderedDict()

    def write_missing(self, path: str, run_id: str) -> None:
        """Write the file where a folder has none yet."""
        if self._disk.is_folder(path) and self._disk.size(f"{path}/{RUN}") is None:
            self.update(path, run_id)

    def update(self, path: str, run_id: str) -> list[str]:
        """Add what the store has and the file has not; returns what was wrong with it."""
        known = self._known.pop(run_id, None) or self._found(path)
        if known is None:  # Not whole at its end, or not clearly so.
            return self.reconcile(path, run_id)
        self._add(path, run_id, known)
        return []

    def look(self, path: str, run_id: str) -> list[tuple[str, bool]]:
        """What is wrong with a file, and whether it is only behind; changes nothing."""
        with self._reader.one_moment():
            found = self._look(path, run_id)
        if found.problem is None:
            return []
        return [(problem_in(path, RUN, *found.problem), found.is_behind)]

    def reconcile(self, path: str, run_id: str, *, keeps: bool = True) -> list[str]:
        """Have the file say what the store says; returns what was wrong with it.

        What says something else is kept beside it, if ``keeps``.
        """
        self.forget(run_id)
        with self._reader.one_moment():
            found = self._look(path, run_id)
        file, problems = found.file, []
        if found.problem is not None and not found.is_behind:
            problems.append(problem_in(path, RUN, *found.problem))
            if keeps:
                kept = set_aside(self._disk, path, RUN)
                problems.append(f"{path}/{RUN}: rewritten from the store; what it was is in {kept}")
            self._disk.remove(f"{path}/{RUN}")
            file = _File()
        elif found.is_torn:
            assert found.problem is not None
            problems.append(problem_in(path, RUN, *found.problem))
            data = self._disk.read(f"{path}/{RUN}") or b""
            self._disk.replace(f"{path}/{RUN}", data[: file.size])
        self._add(path, run_id, file)
        return problems

    def forget(self, run_id: str) -> None:
        """Look at all of the file the next time."""
        self._known.pop(run_id, None)

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def _add(self, path: str, run_id: str, file: _File) -> None:
        with self._reader.one_moment():
            row = self._reader.row(run_id)
            if row is None:
                return
            lines = self._lines(row, file)
            while chunk := [line for _, line in zip(range(CHUNK), lines, strict=False)]:
                self._disk.append(f"{path}/{RUN}", b"".join(chunk))
        self._known[run_id] = file
        while len(self._known) > self._keep:
            self._known.popitem(last=False)

    def _lines(self, row: RunRow, file: _File) -> Iterator[bytes]:
        """What a file lacks; ``file`` is as far as they are when the last one was given."""
        before = file.position
        waiting = [item.seq for item in self._reader.waiting(row.run_id)]
        last = write_line(run_line(row, waiting))
        if not file.size:
            yield self._header(row.run_id)
            yield last
        for event in self._events(row.run_id, before):
            file.position = event.position
            yield _line(event)
        if file.position > before:
            for key in self._reader.accepted(row.run_id, after=before):
                yield write_line(
                    AcceptedLine(run_id=row.run_id, source=key.source, key=key.key, seq=key.seq)
                )
        if last != file.last or file.position > before:
            file.last = last
            yield last
        file.size = file.size or 1  # There is a header from now on.

    def _header(self, run_id: str) -> bytes:
        key = f"{IMPORTED}{run_id}"
        store = self._reader.notes(key).get(key, self._reader.name)
        return write_line(
            HeaderLine(format=FORMAT, run_id=run_id, store=store, has_contents=False, is_open=True)
        )

    def _events(self, run_id: str, after: int = 0) -> Iterator[EventRow]:
        rows = self._reader.event_rows((run_id,), after=after)
        return (row for row in rows if row.lane != "hub")

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    def _found(self, path: str) -> _File | None:
        """How far a file has come that is whole at its end; ``None`` where that is not clear."""
        size = self._disk.size(f"{path}/{RUN}")
        if size is None:
            return _File()
        end = self._disk.read_end(f"{path}/{RUN}", END) or b""
        if not size or not end.endswith(b"\n"):
            return None
        *lines, last, _ = end.split(b"\n")
        event = next((line for line in reversed(lines) if line.startswith(_EVENT)), b"")
        if not last.startswith(_RUN) or not event:
            return None
        try:
            position = _decoder.decode(event).position
        except msgspec.MsgspecError:
            return None
        return _File(position=position, size=size, last=last + b"\n")

    def _look(self, path: str, run_id: str) -> _Looked:
        data = self._disk.read(f"{path}/{RUN}")
        if data is None:
            return _Looked(_File(), (0, MISSING), is_behind=True)
        header, *lines = data.split(b"\n")
        expected = self._header(run_id)
        if not lines and expected.startswith(data):
            what = "torn off in its first line; it is written again"
            return _Looked(_File(), (1, what), is_behind=True, is_torn=True)
        if header + b"\n" != expected:
            return _Looked(_File(), (1, "is no export of this run from this store"))
        file, at = _File(size=len(header) + 1), len(header) + 1
        events, position, whole = self._events(run_id), 0, 0
        due, own = next(events, None), 0
        for number, line in enumerate(lines, 2):
            at += len(line) + 1
            if at > len(data):  # Without its end.
                break
            if line.startswith(_EVENT):
                if due is not None and _is_before_gap(line, due, own):
                    continue  # It has gone from the store.
                if due is None or line + b"\n" != _line(due):
                    return self._differs(lines, number, file)
                position, own = due.position, due.seq if due.lane == "own" else own
                due = next(events, None)
            elif line.startswith(_RUN):
                file = _File(position=position, size=at, last=line + b"\n")
                whole = number
        if file.size < len(data):
            what = f"torn off behind line {whole or 1}; it is written again"
            return _Looked(file, (whole + 1, what), is_behind=True, is_torn=True)
        if due is not None:
            return _Looked(file, (0, "lines are missing at its end"), is_behind=True)
        row = self._reader.row(run_id)
        waiting = [item.seq for item in self._reader.waiting(run_id)]
        if row is None or file.last != write_line(run_line(row, waiting)):
            return _Looked(file, (0, "the run has changed since"), is_behind=True)
        return _Looked(file)

    def _differs(self, lines: list[bytes], number: int, file: _File) -> _Looked:
        """An event's line that is another one: torn off, where no whole batch follows."""
        if not any(line.startswith(_RUN) for line in lines[number - 1 : -1]):
            what = "torn off; it is written again"
            return _Looked(file, (number, what), is_behind=True, is_torn=True)
        return _Looked(_File(), (number, "says something else than the store"))


def _is_before_gap(line: bytes, due: EventRow, own: int) -> bool:
    """Whether a line is of an event that has gone before the one that is due, which is a base and
    not the next one behind own record ``own``."""
    if due.type != AgentBase.type or due.seq <= own + 1:
        return False
    try:
        return _decoder.decode(line).position < due.position
    except msgspec.MsgspecError:
        return False


def _line(row: EventRow) -> bytes:
    return write_line(EventLine(event=msgspec.Raw(row.body), position=row.position))
