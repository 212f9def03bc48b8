"""``AgentFolders``: what the store knows of agents, as files that people can read (AT, P-01).

    agents/<id>/descriptor.json   what the agent stands for; written once
                state.json        what it is now; replaced with each commit
                history.jsonl     what was said; one line each, only ever added to
                files/<path>      its files

Rules
-----
* The store is the truth.  What stands here is written after each commit, from the events of that
  commit, and needs no reading as long as nothing else writes here.
* A failure here fails no commit: it is logged once for a folder, counted, and made up for with
  the folder's next commit or by ``heal``.
* What does not fit the store's events is brought in line with them: a torn last line is dropped,
  other damage is reported with file and line and kept beside as ``history.jsonl.corrupt-<n>``.
* Nothing is flushed to the device: after a power cut the files may be behind.

Ids of ``a-z0-9_-`` (64 at most) are folder names as they are; others are percent-encoded.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from hubbub.agents.agent_record import Record, begin, read_state, write_state
from hubbub.agents.history import follow
from hubbub.agents.history_lines import write_line
from hubbub.hub.descriptors import encode_descriptor, read_descriptor
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.journal import RunInfo
from hubbub.hub.logs import log
from hubbub.hub.values import Json
from hubbub.runtime.disk import Disk
from hubbub.runtime.folder_files import FolderFiles
from hubbub.runtime.folder_history import Compared, compare
from hubbub.runtime.foreign_folders import Adopted, Broken, read_folder

__all__ = ["AgentFolders", "Projected", "folder_name", "run_id_of"]

REMEDY: Final = "free space or make it writable; the folder is made up for from the database"
_PLAIN: Final = re.compile(r"[a-z0-9_-]{1,64}")
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_MAX_NAME: Final = 255


class Projected(Struct, frozen=True):
    """What commits wrote for one run with a descriptor: events of both lanes, in order."""

    info: RunInfo
    events: Sequence[Event]


class _Folder:
    """What is known of a folder that is in line with the store."""

    __slots__ = ("path", "record", "size", "unknown")

    def __init__(self, path: str, record: Record, size: int, unknown: Mapping[str, Json]) -> None:
        self.path = path
        self.record = record
        self.size = size
        self.unknown = unknown


class _Findings(Struct, frozen=True, kw_only=True):
    """What a folder should be, and where it is not."""

    record: Record
    history: Compared
    size: int
    state: bytes | None
    descriptor: bytes | None
    unknown: Mapping[str, Json]
    files: Mapping[str, str]
    problems: tuple[str, ...]


def folder_name(run_id: str) -> str:
    """The name of a run's folder: one part, on every system another one for another id.

    Raises ``BadValue`` for an id whose name would be too long for a file system.
    """
    if _PLAIN.fullmatch(run_id):
        return run_id
    data = run_id.encode("utf-8", "surrogatepass")
    name = "".join([chr(byte) if byte in _SAFE else f"%{byte:02x}" for byte in data])
    if not name or len(name) > _MAX_NAME:
        raise BadValue("run_id", f"{len(name)} characters as a folder's name; shorten it")
    return name


def run_id_of(name: str) -> str | None:
    """The run that a folder of that name is of; ``None`` for the name of no run."""
    try:
        run_id = unquote_to_bytes(name).decode("utf-8", "surrogatepass")
        return run_id if folder_name(run_id) == name else None
    except (UnicodeDecodeError, UnicodeEncodeError, BadValue):
        return None


class AgentFolders:
    """The folders under ``root``.  Plain calls, from one thread at a time.

    ``read_events`` gives all durable events of a run's two lanes, in order, the latest commit
    included.  ``blobs`` is where contents of files are; without it there is no ``files/``.
    ``keep`` bounds how many folders are remembered.
    """

    def __init__(
        self,
        root: Path,
        disk: Disk,
        read_events: Callable[[str], Sequence[Event]],
        blobs: Path | None = None,
        *,
        keep: int = 1_000,
    ) -> None:
        self._root = str(root)
        self._disk = disk
        self._read_events = read_events
        self._files = FolderFiles(disk, blobs)
        self._keep = keep
        self._open: OrderedDict[str, _Folder] = OrderedDict()
        self._failing: dict[str, None] = {}
        self.failures = 0
        """How often something could not be written here."""

    # ── after each commit ────────────────────────────────────────────────────────────────────

    def project(self, batch: Sequence[Projected]) -> None:
        """Write down what the commits of a batch wrote.  Raises nothing."""
        for one in batch:
            if one.info.descriptor is None or not one.events:
                continue
            run_id = one.info.run_id
            try:
                self._project(one.info, one.events)
            except Exception as error:  # The commit is done: nothing here may undo it.
                self._failed(run_id, error)
            else:
                if self._failing and run_id in self._failing:
                    del self._failing[run_id]
                    log.info("agent_folder.caught_up", run_id=run_id)

    def _project(self, info: RunInfo, events: Sequence[Event]) -> None:
        folder = self._open.get(info.run_id)
        if folder is not None:
            self._open.move_to_end(info.run_id)
        else:
            folder = self._find(info, events)
        if folder is not None:
            events = _unseen(folder.record, events)
            if not events:
                return
        if folder is None or not _follows(folder.record, events):
            self._report(info.run_id, self._heal(info))
            return
        # Until all is written nothing is known of the folder.
        del self._open[info.run_id]
        record, lines = follow(folder.record, events)
        if lines:
            data = b"".join([write_line(line) for line in lines])
            self._disk.append(f"{folder.path}/history.jsonl", data)
            folder.size += len(data)
        state = write_state(record, folder.size, folder.unknown)
        self._disk.replace(f"{folder.path}/state.json", state)
        before, after = folder.record.thread.area.files, record.thread.area.files
        if before is not after:
            self._say(info.run_id, self._files.update(folder.path, before, after))
        folder.record = record
        self._remember(info.run_id, folder)

    def _find(self, info: RunInfo, events: Sequence[Event]) -> _Folder | None:
        """The folder as it stands, or a new one; ``None`` for one that must be looked into."""
        path = self._path(info.run_id)
        if self._disk.mkdir(path) and _is_first(events):
            data = bytes(encode_descriptor(info.descriptor)) + b"\n"
            self._disk.write_new(f"{path}/descriptor.json", data)
            folder = _Folder(path, begin(info), 0, {})
        else:
            data_of_state = self._disk.read(f"{path}/state.json")
            if data_of_state is None:
                return None
            try:
                state = read_state(data_of_state)
            except BadValue:
                return None
            size = self._disk.size(f"{path}/history.jsonl") or 0
            has_descriptor = self._disk.size(f"{path}/descriptor.json")
            if size != state.history_bytes or not has_descriptor:
                return None
            if state.record.run_id != info.run_id:
                return None
            folder = _Folder(path, state.record, size, state.unknown)
        self._remember(info.run_id, folder)
        return folder

    def _remember(self, run_id: str, folder: _Folder) -> None:
        self._open[run_id] = folder
        while len(self._open) > self._keep:
            self._open.popitem(last=False)

    # ── looking into a folder ────────────────────────────────────────────────────────────────

    def heal(self, info: RunInfo) -> list[str]:
        """Bring a folder in line with the run's events; returns what was wrong.

        Raises nothing: what could not be done is logged and counted.
        """
        try:
            problems = self._heal(info)
        except Exception as error:
            self._failed(info.run_id, error)
            return [f"{self._root}/{info.run_id}: {error}"]
        self._report(info.run_id, problems)
        return problems

    def check(self, info: RunInfo) -> list[str]:
        """What is wrong with a folder, one line each; changes nothing."""
        if info.descriptor is None:
            return []
        try:
            return list(self._look(info).problems)
        except (OSError, BadValue) as error:
            return [f"{self._root}/{info.run_id}: {error}; {REMEDY}"]

    def _look(self, info: RunInfo) -> _Findings:
        path = self._path(info.run_id)
        record, lines = follow(begin(info), self._read_events(info.run_id))
        data = self._disk.read(f"{path}/history.jsonl")
        history = compare(data, lines)
        size = len(history.instead) if history.instead is not None else len(data or b"")
        size += len(history.more)
        problems = [_problem(path, "history.jsonl", *each) for each in history.problems]
        descriptor, wrong = self._look_at_descriptor(path, info)
        problems += wrong
        unknown, state, wrong = self._look_at_state(path, record, size)
        files = self._files.differences(path, record.thread.area.files)
        problems += wrong
        problems += [_problem(path, f"files/{name}", 0, why) for name, why in files.items()]
        return _Findings(
            record=record, history=history, size=size, state=state, descriptor=descriptor,
            unknown=unknown, files=files, problems=tuple(problems),
        )  # fmt: skip

    def _look_at_descriptor(self, path: str, info: RunInfo) -> tuple[bytes | None, list[str]]:
        wanted = bytes(encode_descriptor(info.descriptor)) + b"\n"
        data = self._disk.read(f"{path}/descriptor.json")
        if data is None:
            return wanted, [_problem(path, "descriptor.json", 0, "missing")]
        try:
            if read_descriptor(data) == info.descriptor:
                return None, []
            problem = "says something else than the database"
        except (BadValue, UnicodeDecodeError) as error:
            problem = f"cannot be read: {error}"
        return wanted, [_problem(path, "descriptor.json", 1, problem)]

    def _look_at_state(
        self, path: str, record: Record, size: int
    ) -> tuple[Mapping[str, Json], bytes | None, list[str]]:
        """Unknown keys to keep, what should stand there if something else does, and why."""
        data = self._disk.read(f"{path}/state.json")
        if data is None:
            return {}, write_state(record, size), [_problem(path, "state.json", 0, "missing")]
        try:
            state = read_state(data)
        except BadValue as error:
            wanted = write_state(record, size)
            return {}, wanted, [_problem(path, "state.json", 1, f"cannot be read: {error}")]
        wanted = write_state(record, size, state.unknown)
        # Read again, as what stands there was: a default is left out by identity, not by value.
        again = read_state(wanted)
        if (again.record, again.history_bytes) == (state.record, state.history_bytes):
            return state.unknown, None, []
        if (state.record.seq, state.record.in_seq) != (record.seq, record.in_seq):
            problem = f"stands at event {state.record.seq} of {record.seq}"
        else:
            problem = "says something else than the database"
        return state.unknown, wanted, [_problem(path, "state.json", 1, problem)]

    def renew(self, info: RunInfo) -> None:
        """Write a folder again whose run was adopted: its events have other numbers now.

        Lines and keys of unknown kinds stay; no copy is kept.  Raises nothing.
        """
        try:
            self._heal(info, keeps=False)
        except Exception as error:
            self._failed(info.run_id, error)

    def _heal(self, info: RunInfo, *, keeps: bool = True) -> list[str]:
        if info.descriptor is None:
            return []
        self._open.pop(info.run_id, None)
        found = self._look(info)
        path = self._path(info.run_id)
        problems = list(found.problems)
        is_new = self._disk.mkdir(path)
        if found.descriptor is not None:
            self._disk.replace(f"{path}/descriptor.json", found.descriptor)
        history = f"{path}/history.jsonl"
        if found.history.keeps and keeps:
            kept = self._keep_corrupt(path)
            problems.append(f"{history}: rewritten from the database; what it was is in {kept}")
        if found.history.instead is not None:
            self._disk.replace(history, found.history.instead)
        elif found.history.more:
            self._disk.append(history, found.history.more)
        if found.state is not None:
            self._disk.replace(f"{path}/state.json", found.state)
        if found.files:
            files = found.record.thread.area.files
            sound = {name: ref for name, ref in files.items() if name not in found.files}
            self._say(info.run_id, self._files.update(path, sound, files))
        folder = _Folder(path, found.record, found.size, found.unknown)
        self._remember(info.run_id, folder)
        return [] if is_new else problems

    def _keep_corrupt(self, path: str) -> str:
        names = set(self._disk.listdir(path))
        number = 1
        while f"history.jsonl.corrupt-{number}" in names:
            number += 1
        kept = f"{path}/history.jsonl.corrupt-{number}"
        self._disk.write_new(kept, self._disk.read(f"{path}/history.jsonl") or b"")
        return kept

    # ── folders of other stores ──────────────────────────────────────────────────────────────

    def foreign(
        self, known: Callable[[str], bool], *, default_agent: str = ""
    ) -> list[Adopted | Broken]:
        """The folders of runs that are not ``known``, as events; changes nothing, raises nothing.

        ``default_agent`` is what an agent without a state is taken for.
        """
        found: list[Adopted | Broken] = []
        try:
            names = self._disk.listdir(self._root)
        except OSError as error:
            return [_unreadable(self._root, error)]
        run_ids = {name: run_id_of(name) for name in names}
        here = set(run_ids.values())
        for name in names:
            path, run_id = f"{self._root}/{name}", run_ids[name]
            if name.startswith(".") or not self._disk.is_folder(path):
                continue
            if run_id is None:
                what, remedy = "its name is that of no run", "rename or remove it"
                found.append(Broken(folder=path, file=path, line=0, what=what, remedy=remedy))
            elif not known(run_id):
                found.append(
                    read_folder(
                        self._disk, self._files, path, run_id, default_agent=default_agent,
                        is_there=lambda x: x in here or known(x),
                    )
                )  # fmt: skip
        return found

    # ── words ────────────────────────────────────────────────────────────────────────────────

    def _path(self, run_id: str) -> str:
        return f"{self._root}/{folder_name(run_id)}"

    def _failed(self, run_id: str, error: Exception) -> None:
        self.failures += 1
        self._open.pop(run_id, None)
        if run_id in self._failing:
            return
        if len(self._failing) >= self._keep:
            self._failing.pop(next(iter(self._failing)))
        self._failing[run_id] = None
        if isinstance(error, OSError | BadValue):
            log.warning("agent_folder.not_written", run_id=run_id, error=str(error), remedy=REMEDY)
        else:
            log.error("agent_folder.not_written", run_id=run_id, exc_info=error)

    def _say(self, run_id: str, problems: Sequence[str]) -> None:
        """Files that could not be shown: the folder is sound all the same."""
        self.failures += len(problems)
        for problem in problems:
            log.warning("agent_file.not_shown", run_id=run_id, problem=problem)

    def _report(self, run_id: str, problems: Sequence[str]) -> None:
        for problem in problems:
            log.warning("agent_folder.healed", run_id=run_id, problem=problem)


def _is_first(events: Sequence[Event]) -> bool:
    """Whether these are the first events of their run."""
    return _follows_at(0, 0, events)


def _unseen(record: Record, events: Sequence[Event]) -> Sequence[Event]:
    """Without what the record knows: reading the store may have been ahead of its commits."""
    if events[0].seq > (record.seq if events[0].lane == "own" else record.in_seq):
        return events
    return [x for x in events if x.seq > (record.seq if x.lane == "own" else record.in_seq)]


def _follows(record: Record, events: Sequence[Event]) -> bool:
    return _follows_at(record.seq, record.in_seq, events)


def _follows_at(seq: int, in_seq: int, events: Sequence[Event]) -> bool:
    for event in events:
        if event.lane == "own":
            seq += 1
            if event.seq != seq:
                return False
        elif event.lane == "in":
            in_seq += 1
            if event.seq != in_seq:
                return False
    return True


def _problem(path: str, file: str, line: int, what: str) -> str:
    return f"{path}/{file}:{line}: {what}" if line else f"{path}/{file}: {what}"


def _unreadable(path: str, error: OSError) -> Broken:
    what = error.strerror or str(error)
    return Broken(folder=path, file=path, line=0, what=what, remedy="make it readable")
