"""``AgentFolders``: what the store knows of agents, as files that people can read.

    agents/<id>/descriptor.json   what the agent stands for; written once
                state.json        what it is now; replaced with each commit
                run.jsonl         the run as an export has it; only ever added to (run_files.py)
                history.jsonl     what was said; one line each, only ever added to
                context.jsonl     a conversation with its takeover frames (conversations.py)
                files/<path>      its files

Rules
-----
* The store is the truth.  What stands here is written after each commit, from the events of that
  commit, and needs no reading as long as nothing else writes here.
* A failure here fails no commit: it is logged once for a folder, counted, and written again with
  the folder's next commit or by ``repair``.
* What does not fit the store's events is brought in line with them: a torn last line is dropped,
  other damage is reported with file and line and kept beside as ``history.jsonl.corrupt-<n>``.
* What a takeover frame writes changes the folder of its root, too: the stack, and the context.
* Nothing is flushed to the device: after a power cut the files may be behind.

Ids of ``a-z0-9_-`` (64 at most) are folder names as they are; others are percent-encoded.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import write_line
from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.agents.folders.state_file import Record, begin, read_state, write_state
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.events.descriptors import encode_descriptor
from hubbub.hub.logs import log
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import RunRow, info_of
from hubbub.hub.values import Json
from hubbub.runtime.stores.folders.compare import Findings, look
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.conversations import ContextFiles
from hubbub.runtime.stores.folders.disk import MAX_JSON, Disk
from hubbub.runtime.stores.folders.files import FolderFiles
from hubbub.runtime.stores.folders.follows import follows, is_first, unseen
from hubbub.runtime.stores.folders.lines import reconcile
from hubbub.runtime.stores.folders.run_files import RunFiles

__all__ = ["AgentFolders", "Projected", "folder_name", "run_id_of"]

REMEDY: Final = "free space or make it writable; the folder will be rebuilt from the database"
_PLAIN: Final = re.compile(r"[a-z0-9_-]{1,64}")
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_MAX_NAME: Final = 255


class Projected(Struct, frozen=True):
    """What commits wrote for one run with a descriptor: events of both lanes, in order."""

    info: RunInfo
    events: Sequence[Event]


class _Folder:
    """What is known of a folder that is in line with the store."""

    __slots__ = ("info", "path", "record", "shown", "size", "stack", "unknown")

    def __init__(
        self,
        info: RunInfo,
        path: str,
        record: Record,
        size: int,
        unknown: Mapping[str, Json],
        stack: tuple[StackFrameMeta, ...] = (),
    ) -> None:
        self.info = info
        self.path = path
        self.record = record
        self.shown = record
        """The record as ``state.json`` shows it, with what the run's frames have done."""
        self.size = size
        self.unknown = unknown
        self.stack = stack


def _is_within(record: Record, row: RunRow) -> bool:
    return record.seq <= row.seq and record.in_seq <= row.in_seq


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
    ``keep`` bounds how many folders are remembered.  ``conversations`` reads those with takeover
    frames, and may be left out where there are none: in what is being adopted.  ``runs`` writes
    ``run.jsonl``.  ``count_new`` says how many own events and items of its inbox a run has got
    since the store was opened: a folder that lacks only some of these is in order.
    """

    def __init__(
        self,
        root: Path,
        disk: Disk,
        read_events: Callable[[str], Sequence[Event]],
        blobs: Path | None = None,
        *,
        keep: int = 1_000,
        conversations: ConversationReader | None = None,
        runs: RunFiles | None = None,
        count_new: Callable[[str], tuple[int, int]] | None = None,
    ) -> None:
        self._root = str(root)
        self._disk = disk
        self._read_events = read_events
        self._files = FolderFiles(disk, blobs)
        self._keep = keep
        self._runs = runs
        self._count_new = count_new
        self._contexts: ContextFiles | None = None
        if conversations is not None:
            self._contexts = ContextFiles(disk, conversations, keep)
        self._open: OrderedDict[str, _Folder] = OrderedDict()
        self._failing: dict[str, None] = {}
        self.failures = 0
        """How often something could not be written here."""

    # ── after each commit ────────────────────────────────────────────────────────────────────

    def project(self, batch: Sequence[Projected]) -> None:
        """Write down what the commits of a batch wrote.  Raises nothing."""
        roots: dict[str, None] = {}
        for one in batch:
            if one.info.descriptor is None or not one.events:
                continue
            self._try(one.info.run_id, partial(self._project, one.info, one.events))
            folder = self._open.get(one.info.run_id)
            if folder.record.thread.origin.frame if folder else one.info.parent_run_id:
                roots[one.info.root_run_id] = None
        for root in roots:
            self._try(root, partial(self._follow_root, root))

    def _try(self, run_id: str, write: Callable[[], None]) -> None:
        try:
            write()
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
            events = unseen(folder.record, events)
            if not events:
                return
        else:
            # One that stands there and is ahead of these events is looked into: it may be that of
            # a newer database.
            folder = self._find(info, events)
        if folder is None or not follows(folder.record, events):
            self._report(info.run_id, self._repair(info))
            return
        # Until all is written nothing is known of the folder.
        del self._open[info.run_id]
        before = folder.record.thread.area.files
        folder.record, lines = follow(folder.record, events)
        if lines:
            data = b"".join([write_line(line) for line in lines])
            self._disk.append(f"{folder.path}/history.jsonl", data)
            folder.size += len(data)
        self._follow_context(folder)
        self._write_state(folder)
        after = folder.record.thread.area.files
        if before is not after:
            self._say(info.run_id, self._files.update(folder.path, before, after))
        if self._runs is not None:
            self._report(info.run_id, self._runs.update(folder.path, info.run_id))
        self._remember(info.run_id, folder)

    def _follow_root(self, root_run_id: str) -> None:
        """A takeover frame has written something: its root shows the stack and what was said."""
        folder = self._open.pop(root_run_id, None)
        if folder is None:
            info = None if self._contexts is None else self._contexts.root(root_run_id)
            if info is None:
                return
            folder = self._read(info)
            if folder is None:
                self._report(root_run_id, self._repair(info))
                return
        before = folder.shown, folder.stack
        self._follow_context(folder)
        if before != (folder.shown, folder.stack):
            self._write_state(folder)
        self._remember(root_run_id, folder)

    def _follow_context(self, folder: _Folder) -> None:
        info = folder.info
        folder.shown = folder.record
        if self._contexts is None or not folder.record.took_over or info.parent_run_id is not None:
            return
        found, problems = self._contexts.update(folder.path, info)
        folder.shown, folder.stack = found.of(folder.record)
        self._report(info.run_id, problems)

    def _write_state(self, folder: _Folder) -> None:
        state = write_state(folder.shown, folder.size, folder.unknown, folder.stack)
        self._disk.replace(f"{folder.path}/state.json", state)

    def _find(self, info: RunInfo, events: Sequence[Event]) -> _Folder | None:
        """The folder as it stands, or a new one; ``None`` for one that must be looked into."""
        path = self._path(info.run_id)
        if self._make(path) and is_first(events):
            data = bytes(encode_descriptor(info.descriptor)) + b"\n"
            self._disk.write_new(f"{path}/descriptor.json", data)
            folder: _Folder | None = _Folder(info, path, begin(info), 0, {})
        else:
            folder = self._read(info)
        if folder is not None:
            self._remember(info.run_id, folder)
        return folder

    def _read(self, info: RunInfo) -> _Folder | None:
        """The folder as it stands, if it is one of which nothing is missing."""
        path = self._path(info.run_id)
        data = self._disk.read(f"{path}/state.json", MAX_JSON)
        if data is None:
            return None
        try:
            state = read_state(data)
        except BadValue:
            return None
        size = self._disk.size(f"{path}/history.jsonl") or 0
        has_descriptor = self._disk.size(f"{path}/descriptor.json")
        if size != state.history_bytes or not has_descriptor:
            return None
        if state.record.run_id != info.run_id:
            return None
        return _Folder(info, path, state.record, size, state.unknown, state.stack)

    def _remember(self, run_id: str, folder: _Folder) -> None:
        self._open[run_id] = folder
        while len(self._open) > self._keep:
            self._open.popitem(last=False)

    # ── looking into a folder ────────────────────────────────────────────────────────────────

    def repair(self, info: RunInfo) -> list[str]:
        """Bring a folder in line with the run's events, and a frame's root with the frame's.

        Returns what was wrong.  Raises nothing: what could not be done is logged and counted.
        """
        try:
            problems = self._repair(info)
        except Exception as error:
            self._failed(info.run_id, error)
            return [f"{self._root}/{info.run_id}: {error}"]
        self._report(info.run_id, problems)
        folder = self._open.get(info.run_id)
        if folder is not None and folder.record.thread.origin.frame:
            self._try(info.root_run_id, partial(self._follow_root, info.root_run_id))
        return problems

    def look_over(self, run_ids: Iterable[str], read_row: Callable[[str], RunRow | None]) -> None:
        """Bring in line the folders that have not come as far as the rows of their runs say, or
        further, and write ``run.jsonl`` where there is none, as with those of an older program.

        Raises nothing: what could not be written is logged, counted, and tried again when the
        store is next opened.
        """
        for run_id in run_ids:
            self._try(run_id, partial(self._look_over, run_id, read_row))

    def check(self, info: RunInfo) -> list[str]:
        """What is wrong with a folder, one line each; changes nothing."""
        return [problem for problem, _ in self.check_apart(info)]

    def check_apart(self, info: RunInfo) -> list[tuple[str, bool]]:
        """The same; and of each whether the folder is only behind."""
        if info.descriptor is None:
            return []
        try:
            found = self._look(info)
            problems = [(problem, problem in found.behind) for problem in found.problems]
            if self._runs is not None:
                problems += self._runs.look(self._path(info.run_id), info.run_id)
        except (OSError, BadValue) as error:
            return [(f"{self._root}/{info.run_id}: {error}; {REMEDY}", False)]
        return problems

    def _look(self, info: RunInfo) -> Findings:
        return look(
            self._disk, self._path(info.run_id), info, self._read_events(info.run_id),
            files=self._files, contexts=self._contexts,
        )  # fmt: skip

    def renew(self, info: RunInfo) -> None:
        """Write a folder again whose run was adopted: its events have other numbers now.

        Lines and keys of unknown kinds stay; no copy is kept.  Raises nothing.
        """
        try:
            self._repair(info, keeps=False)
        except Exception as error:
            self._failed(info.run_id, error)

    def _repair(self, info: RunInfo, *, keeps: bool = True) -> list[str]:
        if info.descriptor is None:
            return []
        self._open.pop(info.run_id, None)
        found = self._look(info)
        path = self._path(info.run_id)
        is_new = self._make(path)
        if found.descriptor is not None:
            self._disk.replace(f"{path}/descriptor.json", found.descriptor)
        kept = reconcile(self._disk, path, "history.jsonl", found.history, keeps=keeps)
        if found.context is not None and self._contexts is not None:
            kept += self._contexts.reconcile(path, info, found.context, keeps=keeps)
        if found.state is not None:
            self._disk.replace(f"{path}/state.json", found.state)
        if found.files:
            files = found.record.thread.area.files
            sound = {name: ref for name, ref in files.items() if name not in found.files}
            self._say(info.run_id, self._files.update(path, sound, files))
        if self._runs is not None:
            kept += self._runs.reconcile(path, info.run_id, keeps=keeps)
        folder = _Folder(info, path, found.record, found.size, found.unknown, found.stack)
        folder.shown = found.shown
        self._remember(info.run_id, folder)
        done = [problem for problem in kept if problem not in found.problems]
        return [] if is_new else list(dict.fromkeys([*self._told(info, found), *done]))

    def _told(self, info: RunInfo, found: Findings) -> Sequence[str]:
        """The problems, but for what is not there yet since it is new."""
        if self._count_new is None or not found.behind:
            return found.problems
        new = self._count_new(info.run_id)
        return found.besides(*new) if any(new) else found.problems

    # ── words ────────────────────────────────────────────────────────────────────────────────

    def _look_over(self, run_id: str, read_row: Callable[[str], RunRow | None]) -> None:
        folder = self._open.get(run_id)
        row = read_row(run_id)
        if row is None or (folder is not None and _is_within(folder.record, row)):
            return
        path = self._path(run_id)
        self._refuse_link(path)
        info = info_of(row)
        folder = None if folder is not None else self._read(info)
        if folder is None or (folder.record.seq, folder.record.in_seq) != (row.seq, row.in_seq):
            self._report(run_id, self._repair(info))
            if (root := self._root_of_frame(run_id)) is not None:
                self._report(root.run_id, self._repair(root))
        elif self._runs is not None:
            self._runs.write_missing(path, run_id)

    def _root_of_frame(self, run_id: str) -> RunInfo | None:
        folder = self._open.get(run_id)
        if folder is None or self._contexts is None or not folder.record.thread.origin.frame:
            return None
        return self._contexts.root(folder.info.root_run_id)

    def _make(self, path: str) -> bool:
        """Make an agent's folder; whether there was none."""
        self._refuse_link(path)
        return self._disk.mkdir(path)

    def _refuse_link(self, path: str) -> None:
        if self._disk.is_link(path):  # Somebody else's files are behind it.
            raise OSError(f"{path}: a link, which is not followed; put the folder itself there")

    def _path(self, run_id: str) -> str:
        return f"{self._root}/{folder_name(run_id)}"

    def _failed(self, run_id: str, error: Exception) -> None:
        self.failures += 1
        self._open.pop(run_id, None)
        if self._contexts is not None:
            self._contexts.forget(run_id)
        if self._runs is not None:
            self._runs.forget(run_id)
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
