"""``FileArea`` and ``KeyArea``: what a run keeps beside its conversation; and what the parts of
that hold, which is kept as contents of files are.

Both areas are part of the run's journal: a write is on record when it returns, and comes back with
the run.  Which names may be used is decided in ``hubbub.agents.state.area``.
"""

import hashlib
from collections.abc import Callable
from typing import Final, TypeVar, overload

import msgspec
from msgspec import Struct, structs

from hubbub.agents.definitions.tools import ToolResult
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.agents.state.area import (
    MAX_FILES,
    MAX_KEYS,
    MAX_VALUE_BYTES,
    Area,
    key_problem,
    named,
    place_problem,
    without_root,
)
from hubbub.hub.errors import BadPath, BadValue, LimitExceeded, NoSuchFile, StoreFailed
from hubbub.hub.events import AgentFile, AgentKey, ContentPart, FileRef
from hubbub.hub.events.files import MAX_FILE_BYTES, path_problem
from hubbub.hub.events.media_types import type_of_content
from hubbub.hub.events.parts import contents_of, part_problem, read_parts
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.near_misses import kind_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.ports import Ports
from hubbub.hub.texts import check_label
from hubbub.hub.values import JsonValue, decode_value, encode_given
from hubbub.runtime.activities.recorder import Recorder

__all__ = ["FileArea", "FileStat", "KeyArea", "kept_parts", "part_content", "with_contents"]

T = TypeVar("T")
D = TypeVar("D")

BIG: int = 1 << 20
"""Contents from this size on are digested off the event loop."""


class FileStat(Struct, frozen=True):
    """A file: its name, its size in bytes, and the SHA-256 digest of its content."""

    path: str
    size: int
    digest: str


class FileArea:
    """The files of one run.  Names are relative paths with ``/``; nothing leads out of them.  A
    leading ``/`` or ``/attachments/``, as models write it, means the area's root, and so does
    ``attachments/`` where files are looked for and no folder of that name has them.

    Every call raises ``BadPath`` for a name that is none; what other runs were given of a file
    are copies, which later writes do not change.
    """

    __slots__ = ("_area", "_ports", "_record", "_root")

    def __init__(
        self, ports: Ports, root_run_id: str, area: Callable[[], Area], record: Recorder
    ) -> None:
        self._ports = ports
        self._root = root_run_id
        self._area = area
        self._record = record

    async def write(self, path: str, content: str | bytes) -> FileStat:
        """Write a file, or replace it; on record when this returns.

        Raises ``LimitExceeded`` (64 MiB a file, 10,000 files a run), ``BadValue``, and ``BadPath``,
        too, for ``a/b`` where ``a`` is a file, and for ``a`` where ``a/b`` is one.
        """
        self._record.check_here("files.write")
        path = _name(path)
        self._check_place(path)
        if isinstance(content, str):
            content = _encoded(content)
        if not isinstance(content, bytes | bytearray):
            raise BadValue("content", f"expected a str or bytes, not {type(content).__name__}")
        content = bytes(content)
        if len(content) > MAX_FILE_BYTES:
            raise LimitExceeded("bytes of a file", MAX_FILE_BYTES, "write several files")
        files = self._area().files
        if path not in files and len(files) >= MAX_FILES:
            raise LimitExceeded("files of a run", MAX_FILES, "delete some first")
        digest = await self._digest(content)
        await self._ports.blobs.put(self._root, digest, content)
        ref = FileRef(path=path, digest=digest, size=len(content))
        self._check_place(path)  # Another call may have written meanwhile.
        await self._record(AgentFile(files=(ref,)))
        return FileStat(path, len(content), digest)

    def _check_place(self, path: str) -> None:
        if problem := place_problem(self._area().files, path):
            raise BadPath(path, f"{problem}; choose another name, or delete that first")

    async def _digest(self, content: bytes) -> str:
        if len(content) < BIG:
            return hashlib.sha256(content).hexdigest()
        return await self._ports.own_offload.run(lambda: hashlib.sha256(content).hexdigest())

    async def read(self, path: str) -> bytes:
        """The content of a file.  Raises ``NoSuchFile``."""
        self._record.check_here("files.read")
        ref = self._find(path)
        content = await self._ports.blobs.get(self._root, ref.digest)
        if content is None:
            raise NoSuchFile(path, "its content is no longer kept")
        return content

    async def read_text(self, path: str) -> str:
        """The content of a file as text (UTF-8; what is not is replaced)."""
        return (await self.read(path)).decode(errors="replace")

    def list(self, folder: str = "") -> tuple[str, ...]:
        """The names of all files, or of those under ``folder``, sorted."""
        if folder in _ALL:
            return self._under("")
        folder = f"{_name(folder.rstrip('/') if isinstance(folder, str) else folder)}/"
        return self._under(folder) or self._under(folder.removeprefix("attachments/"))

    def _under(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(path for path in self._area().files if path.startswith(folder)))

    def stat(self, path: str) -> FileStat:
        """Size and digest of a file.  Raises ``NoSuchFile``."""
        ref = self._find(path)
        return FileStat(ref.path, ref.size, ref.digest)

    async def delete(self, path: str) -> None:
        """Delete a file.  Raises ``NoSuchFile``."""
        self._record.check_here("files.delete")
        await self._record(AgentFile(deleted=(self._find(path).path,)))

    def _find(self, path: str) -> FileRef:
        _name(path)
        area = self._area()
        ref = area.files.get(named(area, path))
        if ref is None:
            raise NoSuchFile(path, "list() shows the files there are")
        return ref


class KeyArea:
    """Values of one run by key: anything JSON can hold, a fresh copy each time."""

    __slots__ = ("_area", "_record")

    def __init__(self, area: Callable[[], Area], record: Recorder) -> None:
        self._area = area
        self._record = record

    @overload
    def get(self, key: str, default: None = None) -> JsonValue: ...
    @overload
    def get(self, key: str, default: D) -> JsonValue | D: ...
    @overload
    def get(self, key: str, default: None = None, *, type: type[T]) -> T | None: ...
    @overload
    def get(self, key: str, default: D, *, type: type[T]) -> T | D: ...
    def get(self, key: str, default: object = None, *, type: type[object] | None = None) -> object:
        """The value of a key, or ``default``; of the class ``type``, where that is given.

        Raises ``BadValue`` for a value that is no ``type``.
        """
        check_label("key", key)
        found = self._area().keys.get(key)
        if found is None:
            return default
        if type is None:
            return decode_value(found)
        try:
            return msgspec.json.decode(found, type=type)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadValue(key, str(error)) from None

    async def set(self, key: str, value: object) -> None:
        """Set a key; on record when this returns.

        Raises ``BadValue``, for a ``Secret`` in it too, and ``LimitExceeded`` (1,000 keys a run,
        1 MiB a value).
        """
        self._record.check_here("kv.set")
        if problem := key_problem(key):
            raise BadValue("key", problem)
        encoded = encode_given(key, value)
        if len(bytes(encoded)) > MAX_VALUE_BYTES:
            raise LimitExceeded("bytes of a value", MAX_VALUE_BYTES, "write a file")
        keys = self._area().keys
        if key not in keys and len(keys) >= MAX_KEYS:
            raise LimitExceeded("keys of a run", MAX_KEYS, "delete some first")
        await self._record(AgentKey(key=key, value_json=encoded))

    async def delete(self, key: str) -> None:
        """Delete a key; no-op if it is not there."""
        self._record.check_here("kv.delete")
        check_label("key", key)
        if key in self._area().keys:
            await self._record(AgentKey(key=key, deleted=True))

    def keys(self) -> tuple[str, ...]:
        """The keys, sorted."""
        return tuple(sorted(self._area().keys))


_ALL: Final = ("", "/", "/attachments", "/attachments/")
"""How all files are meant."""


def _name(path: object) -> str:
    """The name that is meant by ``path``."""
    name = without_root(path) if isinstance(path, str) else path
    if problem := path_problem(name):
        raise BadPath(path, problem)
    assert isinstance(name, str)
    return name


def _encoded(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise BadValue("content", f"{error.reason}; write bytes instead") from error


# ── what parts hold ──────────────────────────────────────────────────────────────────────────


async def kept_parts(hub: Hub, lane: OwnLane, result: ToolResult) -> ToolResult:
    """A result whose parts events can name: what they hold is kept, durably."""
    contents = contents_of(result.parts)
    try:
        await hub.pipeline.contents.put(lane.root_run_id, contents)
    except Exception as error:  # A full disk, or a place of a user's own.
        log.error("contents.not_kept", run_id=lane.run_id, exc_info=error)
        text = f"The tool ran, but what it returned could not be kept: {words_of(error)}"
        return ToolResult(text, is_error=True)
    return structs.replace(result, parts=read_parts("parts", result.parts))


async def part_content(hub: Hub, lane: OwnLane, part: ContentPart) -> bytes:
    """The content of a part that the run was sent, or that its tools have shown.

    Raises ``BadValue`` for one with a ``url``, which hubbub does not read, and ``NoSuchFile``.
    """
    if not isinstance(part, ContentPart):
        raise BadValue("part", f"expected a part, such as message.parts has, not {kind_of(part)}")
    if problem := part_problem(part):
        raise BadValue("part", problem)
    if part.url:
        raise BadValue("part", "it is an address, which hubbub does not read; part.url has it")
    content = await hub.pipeline.contents.get(lane.root_run_id, part.digest)
    if content is None:
        raise NoSuchFile(part.name or part.words, "its content is no longer kept")
    return content


async def with_contents(hub: Hub, lane: OwnLane, request: ModelRequest) -> ModelRequest:
    """A request with what its parts hold; what is gone, or is not what it claims, is left out."""
    contents: dict[str, bytes] = {}
    seen: set[str] = set()
    for message in request.messages:
        shown = message.calls if isinstance(message, AssistantMessage) else (message,)
        for part in [part for each in shown for part in each.parts]:
            if not part.digest or part.digest in seen:
                continue
            seen.add(part.digest)
            content = await _content(hub, lane, part.digest)
            # Of files nobody has looked into: what they are, only their names have said.
            if content is not None and type_of_content(content) == part.media_type:
                contents[part.digest] = content
    return structs.replace(request, contents=contents) if contents else request


async def _content(hub: Hub, lane: OwnLane, digest: str) -> bytes | None:
    try:
        return await hub.pipeline.contents.get(lane.root_run_id, digest)
    except StoreFailed as error:
        log.error("contents.unreadable", run_id=lane.run_id, exc_info=error)
        return None
