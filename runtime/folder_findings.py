"""``look``: what an agent's folder should be, and where it is not.  Changes nothing.

the run's events  →  record, lines, stack   ─┐
the folder's files                          ─┴►  Findings
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hubbub.agents.agent_record import Record, begin, read_state, write_state
from hubbub.agents.history import follow
from hubbub.agents.stack_frame_meta import StackFrameMeta
from hubbub.hub.descriptors import encode_descriptor, read_descriptor
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.journal import RunInfo
from hubbub.hub.values import Json
from hubbub.runtime.context_files import NAME, ContextFiles, Looked
from hubbub.runtime.disk import Disk
from hubbub.runtime.folder_files import FolderFiles
from hubbub.runtime.folder_history import HISTORY, Compared, compare, problem_in

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
    history = compare(data, lines, HISTORY)
    size = len(history.instead) if history.instead is not None else len(data or b"")
    size += len(history.more)
    problems = [problem_in(path, "history.jsonl", *each) for each in history.problems]
    descriptor, wrong = _look_at_descriptor(disk, path, info)
    problems += wrong
    shown, context = record, None
    stack: Stack = ()
    if contexts is not None and record.took_over and info.parent_run_id is None:
        context = contexts.look(path, info)
        shown, stack = context.of(record)
        found = context.file.problems if context.file is not None else ()
        problems += [problem_in(path, NAME, *each) for each in found]
    unknown, state, wrong = _look_at_state(disk, path, shown, size, stack)
    problems += wrong
    missing = files.differences(path, record.thread.area.files)
    problems += [problem_in(path, f"files/{name}", 0, why) for name, why in missing.items()]
    return Findings(
        record=record, shown=shown, stack=stack, history=history, size=size, context=context,
        state=state, descriptor=descriptor, unknown=unknown, files=missing,
        problems=tuple(problems),
    )  # fmt: skip


def _look_at_descriptor(disk: Disk, path: str, info: RunInfo) -> tuple[bytes | None, list[str]]:
    wanted = bytes(encode_descriptor(info.descriptor)) + b"\n"
    data = disk.read(f"{path}/descriptor.json")
    if data is None:
        return wanted, [problem_in(path, "descriptor.json", 0, "missing")]
    try:
        if read_descriptor(data) == info.descriptor:
            return None, []
        problem = "says something else than the database"
    except (BadValue, UnicodeDecodeError) as error:
        problem = f"cannot be read: {error}"
    return wanted, [problem_in(path, "descriptor.json", 1, problem)]


def _look_at_state(
    disk: Disk, path: str, record: Record, size: int, stack: Stack
) -> tuple[Mapping[str, Json], bytes | None, list[str]]:
    """Unknown keys to keep, what should stand there if something else does, and why."""
    data = disk.read(f"{path}/state.json")
    if data is None:
        wanted = write_state(record, size, {}, stack)
        return {}, wanted, [problem_in(path, "state.json", 0, "missing")]
    try:
        state = read_state(data)
    except BadValue as error:
        wanted = write_state(record, size, {}, stack)
        return {}, wanted, [problem_in(path, "state.json", 1, f"cannot be read: {error}")]
    wanted = write_state(record, size, state.unknown, stack)
    # Read again, as what stands there was: a default is left out by identity, not by value.
    again = read_state(wanted)
    if again == state:
        return state.unknown, None, []
    if (state.record.seq, state.record.in_seq) != (record.seq, record.in_seq):
        problem = f"stands at event {state.record.seq} of {record.seq}"
    else:
        problem = "says something else than the database"
    return state.unknown, wanted, [problem_in(path, "state.json", 1, problem)]
