"""Reading a folder that the database does not know: copied here, or all that is left.

    folder ──► Adopted   events, inbox and files to put into the store, with warnings
           └─► Broken    what cannot be read, where, and what to do; its files stay

Rules
-----
* Nothing here changes a file, and nothing that stands in one raises.
* Without a state or a history the agent was just being created: it has an empty conversation.
* A torn last line is passed over.  Other damage is for somebody to look at: a conversation with a
  hole in it is not adopted in silence.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from hubbub.agents.folders.history_lines import Line, StartLine
from hubbub.agents.folders.read_back import ReadBack, read_back
from hubbub.agents.folders.state_file import Record, StateText, begin, read_state
from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.addressing import is_minted
from hubbub.hub.errors import BadValue, HubbubError
from hubbub.hub.events import Event, InLane
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.descriptors import (
    Descriptor,
    SubagentDescriptor,
    encode_descriptor,
    kind_of_descriptor,
    read_descriptor,
)
from hubbub.hub.store.journal import RunInfo, RunStatus
from hubbub.hub.store.reader import EventRow, RunRow
from hubbub.hub.texts import readable
from hubbub.runtime.stores.exchange.lanes import Lanes
from hubbub.runtime.stores.exchange.run_check import own_problems
from hubbub.runtime.stores.folders.disk import MAX_JSON, Disk
from hubbub.runtime.stores.folders.families import Place
from hubbub.runtime.stores.folders.files import FolderFiles
from hubbub.runtime.stores.folders.lines import HistoryText, read_history

__all__ = [
    "Adopted",
    "Broken",
    "misplaced",
    "out_of_place",
    "parent_in",
    "read_folder",
    "unreadable",
]


_MISFITS: Final = (
    HubbubError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError,
    RecursionError,
)  # fmt: skip
"""What values that do not fit together come to, wherever it is noticed."""


class Adopted(Struct, frozen=True, kw_only=True):
    """A run to be put into the store.

    ``events`` is its own lane, ``items`` its in lane, ``pending`` what of that is not taken; all
    numbered from 1.  ``files`` are the contents that are here, by digest.
    """

    folder: str
    info: RunInfo
    events: tuple[Event, ...]
    items: tuple[InLane, ...]
    pending: tuple[InLane, ...]
    files: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class Broken(Struct, frozen=True, kw_only=True):
    """A folder that cannot be read; ``line`` is 0 where the whole file is meant."""

    folder: str
    file: str
    line: int
    what: str
    remedy: str

    def __post_init__(self) -> None:
        # Names on a disk are bytes, and what is told of them is text.
        for name in ("file", "what", "remedy"):
            said = getattr(self, name)
            if not said.isprintable():
                force_setattr(self, name, " ".join(readable(said).split()))

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {self.what}; {self.remedy}"


class _Unreadable(Exception):
    def __init__(self, file: str, line: int, what: str, remedy: str) -> None:
        super().__init__(what)
        self.file, self.line, self.what, self.remedy = file, line, what, remedy


def read_folder(
    disk: Disk,
    files: FolderFiles,
    path: str,
    run_id: str,
    *,
    default_agent: str,
    is_there: Callable[[str], bool],
    place: Place,
) -> Adopted | Broken:
    """What the folder at ``path`` comes to, for a run that has that place in its family."""
    try:
        if place.is_circle:
            what, remedy = "its parents stand in a circle", "restore the folder from a backup"
            raise _Unreadable(f"{path}/state.json", 1, what, remedy)
        descriptor = _descriptor(disk, path)
        history = _history(disk, path)
        state = _state(disk, path, run_id)
        warnings = _warnings(disk, path, state, history)
        record = state.record if state is not None else _guess(run_id, descriptor, history.lines)
        record = _placed(replace(record, agent=record.agent or default_agent), place)
        if place.lost:
            warnings.append(f"{path}: its parent {place.lost} is not here; it is a root of its own")
        if not record.agent:
            warnings.append(f"{path}/state.json: names no agent; give the runtime a default_agent")
        found = read_back(
            record, history.lines, is_there=is_there, descriptor=encode_descriptor(descriptor)
        )
        info = _info(record, found, descriptor)
        _check(info, found)
        contents, lost = _contents(files, path, found.thread)
        return Adopted(
            folder=path,
            info=info,
            events=found.events,
            items=found.items,
            pending=found.pending,
            files=contents,
            warnings=(*warnings, *(f"{path}: {text}" for text in found.warnings), *lost),
        )
    except _Unreadable as problem:
        return Broken(
            folder=path, file=problem.file, line=problem.line, what=problem.what,
            remedy=problem.remedy,
        )  # fmt: skip
    except OSError as error:
        what = error.strerror or str(error)
        return Broken(folder=path, file=path, line=0, what=what, remedy="make it readable")
    except (
        HubbubError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        # Whatever somebody has made of these files, the others are read.
        return Broken(
            folder=path, file=f"{path}/state.json", line=1,
            what=f"does not fit together: {error}",
            remedy="restore the folder from a backup, or remove state.json to adopt the history",
        )  # fmt: skip


def parent_in(disk: Disk, path: str, run_id: str) -> str | None:
    """The run above the one whose folder it is, as far as the folder says."""
    try:
        state = _state(disk, path, run_id)
        if state is not None:
            return state.record.parent_run_id
        descriptor = _descriptor(disk, path)
    except (_Unreadable, OSError, HubbubError, ValueError, RecursionError):
        return None  # Reading all of it says why.
    return descriptor.parent_agent_id if isinstance(descriptor, SubagentDescriptor) else None


def misplaced(disk: Disk, path: str, run_id: str | None) -> str | None:
    """Why what stands there is no folder of an agent; empty for one, ``None`` for what was
    never meant to be one.

    A project may keep code of its own in a folder of that name.
    """
    is_link = disk.is_link(path)
    if not (is_link or disk.is_folder(path)) or not _is_certainly_ours(disk, path):
        return None
    if is_link:
        return "a link, which is not followed"
    return "its name is that of no run" if run_id is None else ""


def _is_certainly_ours(disk: Disk, path: str) -> bool:
    """Whether a folder has the id of a run as its name, or what nobody else writes in it."""
    if is_minted(path.rpartition("/")[2]):
        return True
    try:
        names = disk.listdir(path)
    except OSError:
        return False
    return "descriptor.json" in names or {"state.json", "history.jsonl"} <= {*names}


def out_of_place(path: str, what: str) -> Broken:
    remedy = "put the folder itself there under the id of its run, or remove it"
    return Broken(folder=path, file=path, line=0, what=what, remedy=remedy)


def unreadable(path: str, error: OSError) -> Broken:
    what = error.strerror or str(error)
    return Broken(folder=path, file=path, line=0, what=what, remedy="make it readable")


def _placed(record: Record, place: Place) -> Record:
    """The record of a run that has that place; without a parent it has nobody to report to."""
    thread = record.thread
    if thread.origin.run_id:
        origin = replace(thread.origin, root_run_id=place.root, parent_run_id=place.parent)
        if place.lost:
            origin = replace(origin, reports=False, depth=0)
        thread = replace(thread, origin=origin)
    return replace(record, root_run_id=place.root, parent_run_id=place.parent, thread=thread)


def _descriptor(disk: Disk, path: str) -> Descriptor:
    file = f"{path}/descriptor.json"
    data = disk.read(file, MAX_JSON)
    remedy = "write it again in one of the four shapes, or remove the folder"
    if data is None:
        raise _Unreadable(file, 0, "missing", remedy)
    try:
        return read_descriptor(data)
    except (BadValue, ValueError, RecursionError) as error:
        raise _Unreadable(file, 1, str(error), remedy) from None


def _history(disk: Disk, path: str) -> HistoryText[Line]:
    file = f"{path}/history.jsonl"
    history = read_history(disk.read(file) or b"")
    for line, what in history.broken:
        remedy = "restore the file from a backup, or remove that line"
        raise _Unreadable(file, line, what, remedy)
    seqs = [line.seq for line in history.lines]
    for before, after, number in zip(seqs, seqs[1:], history.numbers[1:], strict=False):
        if after < before:
            what = f"stands at event {after}, behind one at {before}"
            raise _Unreadable(file, number, what, "put the lines in order of seq")
    return history


def _state(disk: Disk, path: str, run_id: str) -> StateText | None:
    file = f"{path}/state.json"
    data = disk.read(file, MAX_JSON)
    if not data:
        return None
    remedy = "restore it from a backup, or remove it to adopt what history.jsonl says"
    try:
        state = read_state(data)
    except HubbubError as error:
        raise _Unreadable(file, 1, str(error), remedy) from None
    if state.record.run_id != run_id:
        what = f"is of run {state.record.run_id!r}"
        raise _Unreadable(file, 1, what, f"rename the folder, or put the file of {run_id} here")
    return state


def _warnings(
    disk: Disk, path: str, state: StateText | None, history: HistoryText[Line]
) -> list[str]:
    warnings = []
    if history.torn:
        warnings.append(f"{path}/history.jsonl:{history.torn}: torn off; it is passed over")
    if state is None:
        warnings.append(
            f"{path}/state.json: missing; files, values, children and waiting messages are unknown"
        )
        return warnings
    size = disk.size(f"{path}/history.jsonl") or 0
    if size < state.history_bytes:
        missing = state.history_bytes - size
        warnings.append(f"{path}/history.jsonl: {missing} bytes are missing at its end")
    return warnings


def _guess(run_id: str, descriptor: Descriptor, lines: Sequence[Line]) -> Record:
    """A record where there is none."""
    start = next((line for line in lines if isinstance(line, StartLine)), None)
    parent = name = None
    if isinstance(descriptor, SubagentDescriptor):
        parent, name = descriptor.parent_agent_id, descriptor.name
    at = lines[0].at if lines else 0
    info = RunInfo(
        run_id=run_id, root_run_id=parent or run_id, parent_run_id=parent,
        agent=start.agent if start is not None else "", name=name or "",
        session_key=start.session_key if start is not None else "", status="active",
        inbox="open", waiting=0, created_at=at,
    )  # fmt: skip
    record = begin(info)
    return replace(record, updated_at=lines[-1].at if lines else at)


def _check(info: RunInfo, found: ReadBack) -> None:
    """Raise ``ValueError`` for what ``hubbub fsck`` would tell of, once it is in the store."""
    lanes = Lanes("")
    taken = found.items[: len(found.items) - len(found.pending)]
    chain = 0
    for position, event in enumerate((*taken, *found.events, *found.pending), 1):
        body = encode_event(event)  # What cannot be written down again must not come in.
        chain = zlib.crc32(body, chain)
        row = EventRow(
            position, info.run_id, info.root_run_id, event.lane, event.seq, event.type, chain, body
        )
        for problem in lanes.take(row):
            raise ValueError(problem.what)
    lane = lanes.runs[info.run_id]
    row_of_it = RunRow(
        address=info.run_id, run_id=info.run_id, root_run_id=info.root_run_id,
        parent_run_id=info.parent_run_id, agent=info.agent, name=info.name,
        session_key=info.session_key, kind=kind_of_descriptor(info.descriptor),
        descriptor=bytes(encode_descriptor(info.descriptor)).decode(), status=info.status,
        inbox=info.inbox, ready=False, seq=lane.seq, in_seq=lane.in_seq, chain=None,
        waiting=info.waiting, messages=0, born=lane.born, created_at=info.created_at,
        wake_at=info.wake_at, recent=0,
    )  # fmt: skip
    for what in own_problems(row_of_it, lane):
        raise ValueError(what)


def _contents(files: FolderFiles, path: str, thread: Thread) -> tuple[dict[str, str], list[str]]:
    contents: dict[str, str] = {}
    lost = []
    for name, ref in thread.area.files.items():
        if problem := files.problem(path, ref):
            lost.append(f"{path}/files/{name}: {problem}")
        elif place := files.place(path, name):
            contents[ref.digest] = place
    return contents, lost


def _info(record: Record, found: ReadBack, descriptor: Descriptor) -> RunInfo:
    thread = found.thread
    closes: dict[type, Literal["closing", "terminated"]] = {
        e.SessionClose: "closing", e.SessionTerminate: "terminated",
    }  # fmt: skip
    status: RunStatus = "active"
    inbox: Any = "closing" if thread.closing else "open"
    for item in found.pending:
        if inbox != "terminated":
            inbox = closes.get(item.__class__, inbox)
    if thread.phase == "ended":
        status, inbox = "ended", "terminated" if thread.terminated is not None else "ended"
    elif thread.parked:
        status = "parked"
    elif thread.waits:
        status = "waiting"
    return RunInfo(
        run_id=record.run_id, root_run_id=record.root_run_id,
        parent_run_id=record.parent_run_id, agent=thread.agent or record.agent,
        name=record.title, session_key=record.session_key, status=status, inbox=inbox,
        waiting=len(found.pending), created_at=record.created_at, wake_at=record.deadline,
        descriptor=descriptor,
    )  # fmt: skip
