"""``look``: what an agent's folder should be, and where it is not.  Changes nothing.

the run's events  →  record, lines, stack   ─┐
the folder's files                          ─┴►  Findings

Rules
-----
* Of turns that have gone from the database, behind a base, the history keeps what it has.
* A folder that a process has left *behind* the database says what was once so: files that are not
  there yet, lines that are missing at the end, a state of fewer events.  Everything else that it
  should not say is damage, or somebody's doing.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import Line
from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.agents.folders.state_file import Record, StateText, begin, read_state, write_state
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, Event
from hubbub.hub.events.descriptors import encode_descriptor, read_descriptor
from hubbub.hub.events.files import files_of
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.values import Json
from hubbub.runtime.stores.folders.conversations import NAME, ContextFiles, Looked
from hubbub.runtime.stores.folders.disk import MAX_JSON, Disk
from hubbub.runtime.stores.folders.files import MISSING, FolderFiles
from hubbub.runtime.stores.folders.lines import HISTORY, Compared, compare, problem_in, read_history

__all__ = ["Findings", "look"]

Stack = tuple[StackFrameMeta, ...]


class Findings(Struct, frozen=True, kw_only=True):
    """What a folder should be; ``state`` and ``descriptor`` are what should stand there instead.

    ``shown`` is the record as ``state.json`` shows it, with what the run's frames have done.
    """

    record: Record
    shown: Record
    stack: Stack
    history: Compared
    size: int
    context: Looked | None
    state: bytes | None
    descriptor: bytes | None
    unknown: Mapping[str, Json]
    files: Mapping[str, str]
    problems: tuple[str, ...]
    behind: frozenset[str]
    """Those of the problems that only say how far the folder has come."""
    stands: Record | None
    """The record that its ``state.json`` has, if that fits its history as it is there."""

    def besides(self, own: int, inbox: int) -> tuple[str, ...]:
        """The problems without those by which the folder lacks no more than so many events and
        items of its inbox, the last ones."""
        at = self.stands
        if at is None or at.seq + own < self.record.seq or at.in_seq + inbox < self.record.in_seq:
            return self.problems
        return tuple([problem for problem in self.problems if problem not in self.behind])


def look(
    disk: Disk,
    path: str,
    info: RunInfo,
    events: Sequence[Event],
    *,
    files: FolderFiles,
    contexts: ContextFiles | None,
) -> Findings:
    """Compare the folder at ``path`` with all events of its run.

    Raises ``OSError`` where it cannot be read.
    """
    record, lines = follow(begin(info), events)
    data = disk.read(f"{path}/history.jsonl")
    if data is not None and (gone := _gaps(events)):
        lines = _with_gone(data, lines, gone)
        record = _with_idle(disk, path, record)
    history = compare(data, lines, HISTORY)
    size = len(history.instead) if history.instead is not None else len(data or b"")
    size += len(history.more)
    problems = [problem_in(path, "history.jsonl", *each) for each in history.problems]
    behind = set(problems if not history.keeps else ())
    descriptor, wrong = _look_at_descriptor(disk, path, info)
    behind.update(wrong if disk.read(f"{path}/descriptor.json", MAX_JSON) is None else ())
    problems += wrong
    shown, context = record, None
    stack: Stack = ()
    if contexts is not None and record.took_over and info.parent_run_id is None:
        context = contexts.look(path, info)
        shown, stack = context.of(record)
        found = context.file.problems if context.file is not None else ()
        wrong = [problem_in(path, NAME, *each) for each in found]
        behind.update(wrong if context.file is not None and not context.file.keeps else ())
        problems += wrong
    stands, unknown, state, wrong, is_behind = _look_at_state(disk, path, shown, size, stack)
    behind.update(wrong if is_behind else ())
    problems += wrong
    missing = files.differences(path, record.thread.area.files)
    for name, why in missing.items():
        text = problem_in(path, f"files/{name}", 0, why)
        problems.append(text)
        if why == MISSING or _was_so(files, path, name, events, stands):
            behind.add(text)
    return Findings(
        record=record, shown=shown, stack=stack, history=history, size=size, context=context,
        state=state, descriptor=descriptor, unknown=unknown, files=missing,
        problems=tuple(problems), behind=frozenset(behind),
        stands=stands.record if stands and stands.history_bytes == len(data or b"") else None,
    )  # fmt: skip


def _gaps(events: Sequence[Event]) -> list[range]:
    """The numbers of records that have gone, each time before a base."""
    own, found = 0, []
    for event in events:
        if event.lane == "own":
            if event.seq > own + 1 and isinstance(event, AgentBase):
                found.append(range(own + 1, event.seq))
            own = event.seq
    return found


def _with_gone(data: bytes, lines: Sequence[Line], gone: Sequence[range]) -> tuple[Line, ...]:
    """The lines of a run and, of its turns that have gone before a base, those that stand there."""
    there = read_history(data).lines
    of_gone = [line for line in there if any(line.seq in each for each in gone)]
    return tuple(merge(lines, of_gone, key=attrgetter("seq")))


def _with_idle(disk: Disk, path: str, record: Record) -> Record:
    """The record of a run of which turns have gone, with the children that have been idle since:
    only its state says which these are."""
    try:
        stands = read_state(disk.read(f"{path}/state.json", MAX_JSON) or b"").record
    except BadValue:
        return record
    if (stands.seq, stands.in_seq) == (record.seq, record.in_seq):
        return replace(record, idle=stands.idle)
    return replace(record, idle=tuple(dict.fromkeys((*stands.idle, *record.idle))))


def _was_so(
    files: FolderFiles, path: str, name: str, events: Sequence[Event], stands: StateText | None
) -> bool:
    """Whether a file holds what the run has had under that name before."""
    before = {ref.digest: ref for event in events for ref in files_of(event) if ref.path == name}
    # The events that named it may have gone; the state that stands there is as old as the file.
    if stands is not None and (ref := stands.record.thread.area.files.get(name)) is not None:
        before[ref.digest] = ref
    return any(not files.problem(path, ref) for ref in before.values())


def _look_at_descriptor(disk: Disk, path: str, info: RunInfo) -> tuple[bytes | None, list[str]]:
    wanted = bytes(encode_descriptor(info.descriptor)) + b"\n"
    data = disk.read(f"{path}/descriptor.json", MAX_JSON)
    if data is None:
        return wanted, [problem_in(path, "descriptor.json", 0, MISSING)]
    try:
        if read_descriptor(data) == info.descriptor:
            return None, []
        problem = "says something else than the database"
    except (BadValue, UnicodeDecodeError) as error:
        problem = f"cannot be read: {error}"
    return wanted, [problem_in(path, "descriptor.json", 1, problem)]


def _look_at_state(
    disk: Disk, path: str, record: Record, size: int, stack: Stack
) -> tuple[StateText | None, Mapping[str, Json], bytes | None, list[str], bool]:
    """The state that stands there, unknown keys to keep, what should stand there if something else
    does, why, and whether that is only that it is behind."""
    data = disk.read(f"{path}/state.json", MAX_JSON)
    if data is None:
        wanted = write_state(record, size, {}, stack)
        return None, {}, wanted, [problem_in(path, "state.json", 0, MISSING)], True
    try:
        state = read_state(data)
    except BadValue as error:
        wanted = write_state(record, size, {}, stack)
        problem = problem_in(path, "state.json", 1, f"cannot be read: {error}")
        return None, {}, wanted, [problem], False
    wanted = write_state(record, size, state.unknown, stack)
    # Read again, as what is there was: a default is left out by identity, not by value.
    again = read_state(wanted)
    if again == state:
        return state, state.unknown, None, [], False
    problem, is_behind = _difference(state, again)
    problem = problem_in(path, "state.json", 1, problem)
    return state, state.unknown, wanted, [problem], is_behind


def _difference(state: StateText, wanted: StateText) -> tuple[str, bool]:
    """What a state says otherwise than it should, and whether it is only behind."""
    stands, due = state.record, wanted.record
    if stands.run_id == due.run_id and (stands.seq, stands.in_seq) != (due.seq, due.in_seq):
        is_behind = stands.seq <= due.seq and stands.in_seq <= due.in_seq
        told = []
        if stands.seq != due.seq:
            told.append(f"event {stands.seq} of {due.seq}")
        if stands.in_seq != due.in_seq:
            told.append(f"item {stands.in_seq} of {due.in_seq} of its inbox")
        return f"stands at {', '.join(told)}", is_behind
    names = [*dict.fromkeys(_differing(stands, due))]
    if state.history_bytes != wanted.history_bytes:
        names.append("history_bytes")
    if state.stack != wanted.stack:
        names.append("active_stack")
    unsaid = (x for x in _ADDED if getattr(stands.thread, x) == getattr(EMPTY, x))
    is_behind = _LATE.union(unsaid).issuperset(names)
    return f"says something else than the database: {', '.join(names)}", is_behind


def _differing(stands: Record, due: Record) -> Iterator[str]:
    """The names of what two records say differently."""
    for name in Record.__struct_fields__:
        one, other = getattr(stands, name), getattr(due, name)
        if one == other:
            continue
        if name != "thread":
            yield name
            continue
        yield from (
            field
            for field in Thread.__struct_fields__
            if getattr(one, field) != getattr(other, field)
        )


_LATE: Final = frozenset(("pending", "updated_at", "history_bytes", "active_stack"))
"""What a run's frames do comes there a moment later, and so does what was said last."""

_ADDED: Final = ("spent", "spent_before")
"""What earlier versions did not write, though it follows from the events of their runs, too."""
