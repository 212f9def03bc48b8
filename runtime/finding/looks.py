"""What a store says of one run or of all, in full: what ``hubbub runs``, ``show``, ``reply``,
``replay`` and ``export --as-test`` show, as plain data for who asks at the address ``runtime``.

Nothing is changed, and nothing is said of the values of secrets.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.state.area import NO_AREA, named, with_files, with_waiting
from hubbub.hub.errors import BadValue, NoSuchFile, OperatorError
from hubbub.hub.events import FileRef
from hubbub.hub.store.reader import StoreReader, decoded
from hubbub.runtime.inspection.as_test import recorded_test
from hubbub.runtime.inspection.prompts import open_prompts, runs_below
from hubbub.runtime.inspection.replay import NoSuchRecord, replay
from hubbub.runtime.inspection.variable_requests import open_requests
from hubbub.runtime.inspection.views import list_runs, report

__all__ = ["LOOKS", "FoundFile", "find_file", "look"]

MAX_TREES: Final = 1_000
MAX_RECORDING: Final = 64 << 20
"""Bytes of a recording."""

LOOKS: Final = frozenset(
    ("trees", "report", "prompts", "requests", "state", "files", "file", "content", "test")
)
"""What ``look`` answers."""


class FoundFile(Struct, frozen=True, kw_only=True):
    """A file of a run; one that ``waits`` came to its inbox and is its own when it is taken."""

    path: str
    size: int
    digest: str
    waits: bool = False


class _Trees(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ended: bool = False
    limit: int = 50


class _Prompts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    roots: tuple[str, ...] | None = None


class _Report(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    full: bool = False


def look(store: StoreReader, verb: str, argument: str, now: int) -> Any:
    """The answer to one of ``LOOKS``, all of it of one moment; ``None`` for a run, a record or a
    file that is not there.

    Raises ``BadValue``.
    """
    with store.one_moment():  # A run may take what waits between two reads.
        return _look(store, verb, argument, now)


def _look(store: StoreReader, verb: str, argument: str, now: int) -> Any:
    if verb == "trees":
        which = _read(argument, _Trees)
        if not 0 < which.limit <= MAX_TREES:
            raise BadValue("limit", f"expected a number from 1 to {MAX_TREES:,}")
        return list_runs(store, ended=which.ended, limit=which.limit)
    if verb == "prompts":
        beginnings = _read(argument, _Prompts).roots
        if beginnings is None:
            return open_prompts(store)
        below = runs_below(store, beginnings)
        return open_prompts(store, below) if below else ()
    if verb == "requests":
        return open_requests(store, now=now)
    run_id, _, rest = argument.partition(" ")
    if store.row(run_id) is None:
        return None
    match verb:
        case "report":
            return report(store, run_id, full=_read(rest, _Report).full, frames=True, now=now)
        case "state":
            return _state(store, run_id, rest)
        case "files":
            return [found for _, found in _files(store, run_id)]
        case "file":
            return find_file(store, run_id, rest)
        case "content":
            found = find_file(store, run_id, rest)
            return None if found is None else _content(store, found)
        case _:
            return _test(store, run_id)


def find_file(store: StoreReader, run_id: str, path: str) -> FoundFile | None:
    """The file of a run that ``path`` means, as its agent would write it."""
    found = _files(store, run_id)
    area = with_files(NO_AREA, [ref for ref, _ in found])
    name = named(area, path)
    return next((each for ref, each in found if ref.path == name), None)


def _files(store: StoreReader, run_id: str) -> list[tuple[FileRef, FoundFile]]:
    """The files of a run, and those that wait in its inbox under the names they will get."""
    replayed = replay(store, run_id)
    area = with_files(NO_AREA, replayed.files)
    own = dict(area.files)
    waiting = (decoded(store, row.position, row.body) for row in store.waiting(run_id))
    area = with_waiting(area, waiting, is_code=replayed.kind == "code")
    return [
        (ref, FoundFile(path=path, size=ref.size, digest=ref.digest, waits=path not in own))
        for path, ref in sorted(area.files.items())
    ]


def _content(store: StoreReader, file: FoundFile) -> bytes:
    try:
        return store.content(file.digest)
    except OSError:
        raise NoSuchFile(file.path, "its content is no longer kept") from None


def _state(store: StoreReader, run_id: str, record: str) -> Any:
    if record and not (record.isascii() and record.isdecimal() and len(record) < 16):
        raise BadValue("state", "expected a run id and the number of a record")
    try:
        return replay(store, run_id, int(record) if record else None)
    except NoSuchRecord:
        return None


def _test(store: StoreReader, run_id: str) -> Any:
    try:
        made = recorded_test(store, run_id)
    except OperatorError as error:
        raise BadValue("test", str(error)) from None
    try:
        recording = _joined(made.lines)
    except OperatorError:  # A content is kept elsewhere, or no more: it is played as an empty file.
        recording = _joined(recorded_test(store, run_id, contents=False).lines)
    return {
        "name": made.path.name, "text": made.text, "recording_name": made.recording.name,
        "recording": recording,
    }  # fmt: skip


def _joined(lines: Iterable[bytes]) -> str:
    parts, size = [], 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size > MAX_RECORDING:
            raise BadValue("test", f"the recording has more than {MAX_RECORDING:,} bytes")
    return b"".join(parts).decode()


def _read(argument: str, type_: type[Any]) -> Any:
    try:
        return msgspec.json.decode(argument or "{}", type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadValue("runtime", f"expected a JSON object behind it ({error})") from None
