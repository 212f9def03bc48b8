"""A run's file area and key-value area: what they hold, and which names may be used.

Rules
-----
* A name is a relative path of plain parts with ``/`` between them: no ``..``, no leading ``/``, no
  drive letter, no NUL or other control character.  It is a key, not a place on any disk, so a
  link cannot lead out of it.
* Models like to write paths from a root: one ``/``, or ``/attachments/``, in front of a name means
  the area itself (``without_root``), wherever a file is named.  ``attachments/`` without the
  slash is a folder of that name; where that has no such file, it means the area, too (``named``).
* A file is a name and the digest of its content; contents never change, so a copy for another run
  is another name for the same content, and what is written later does not show there.
* A name is that of a file or of a folder, as on a disk: where ``a`` is a file, none is written as
  ``a/b``, nor the other way round (``place_problem``), and none whose parts are too long in bytes
  for a file system.  Areas of an older version may have both.
* A file that comes from another run gets its own name, or the next free ``name-2.ext``, or
  ``folder-2/name.ext``: nothing is overwritten.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, structs

from hubbub.hub.events import AgentFile, AgentKey, ContentPart, FileRef
from hubbub.hub.events.files import MAX_PART
from hubbub.hub.events.media_types import MAX_BYTES, kind_of_type, type_of_name
from hubbub.hub.texts import label_problem
from hubbub.hub.values import Json

__all__ = [
    "MAX_FILES",
    "MAX_KEYS",
    "MAX_VALUE_BYTES",
    "NO_AREA",
    "Area",
    "attachment_note",
    "find_files",
    "key_problem",
    "marked",
    "named",
    "new_file_problem",
    "parts_of_files",
    "place_files",
    "place_files_again",
    "place_problem",
    "unshowable",
    "with_file",
    "with_files",
    "with_key",
    "with_waiting",
    "without_root",
]

MAX_FILES: Final = 10_000
MAX_KEYS: Final = 1_000
MAX_VALUE_BYTES: Final = 1024 * 1024
_ROOTS: Final = ("/attachments/", "/")
_FOLDER: Final = "attachments/"


class Area(Struct, frozen=True):
    """What a run keeps beside its conversation."""

    files: Mapping[str, FileRef] = {}
    keys: Mapping[str, Json] = {}


NO_AREA = Area()


def place_problem(files: Collection[str], path: str) -> str:
    """Why no file of that name can be written beside ``files``; empty where one can."""
    if path in files:
        return ""
    if any(len(part.encode()) > MAX_PART for part in path.split("/")):
        return f"a part of a path has at most {MAX_PART} bytes (UTF-8)"
    if file := next((folder for folder in _folders(path) if folder in files), ""):
        return f"{file!r} is a file, not a folder"
    inside = f"{path}/"
    if any(name.startswith(inside) for name in files):
        return "it is a folder, which has files"
    return ""


def new_file_problem(files: Collection[str], path: str) -> str:
    """Why no file of that name can be sent to who has ``files``, or will have them; empty where
    one can."""
    if path in files:
        return f"there is another file {path!r}; choose another name"
    if problem := place_problem(files, path):
        return f"no file can be named {path!r}: {problem}; choose another name"
    if len(files) >= MAX_FILES:
        return f"the run has {MAX_FILES:,} files, as many as it may; have its agent delete some"
    return ""


def unshowable(files: Iterable[str]) -> frozenset[str]:
    """The names of which a disk can only show some: of a file, and of what is in a folder of that
    name."""
    names = frozenset(files)
    both = {folder for name in names for folder in _folders(name) if folder in names}
    if not both:
        return frozenset()
    return frozenset([x for x in names if x in both or not both.isdisjoint(_folders(x))])


def without_root(path: str) -> str:
    """A name as it is, for one that is written from the area's root."""
    return path.removeprefix(next((root for root in _ROOTS if path.startswith(root)), ""))


def named(area: Area, path: str) -> str:
    """The name of the file that ``path`` means; that of the path itself where there is none."""
    name = without_root(path)
    if name not in area.files and path.startswith(_FOLDER):
        inside = path.removeprefix(_FOLDER)
        return inside if inside in area.files else name
    return name


def key_problem(key: object) -> str:
    """Why ``key`` is no key; empty when it is one."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_PART:
        return f"a key is a text of 1 to {MAX_PART} characters"
    return label_problem(key)


def with_file(area: Area, event: AgentFile) -> Area:
    """The area after files were written or deleted."""
    files = dict(area.files)
    for ref in event.files:
        files[ref.path] = ref
    for path in event.deleted:
        files.pop(path, None)
    return structs.replace(area, files=files)


def with_key(area: Area, event: AgentKey) -> Area:
    """The area after a key was set or deleted."""
    keys = dict(area.keys)
    if event.deleted:
        keys.pop(event.key, None)
    else:
        keys[event.key] = event.value_json
    return structs.replace(area, keys=keys)


def find_files(area: Area, paths: Iterable[str]) -> tuple[tuple[FileRef, ...], tuple[str, ...]]:
    """The files of these names, and the names that there are none of."""
    wanted: dict[str, str] = {}
    for path in paths:
        wanted.setdefault(named(area, path), path)
    missing = tuple(path for name, path in wanted.items() if name not in area.files)
    return tuple(area.files[name] for name in wanted if name in area.files), missing


def place_files(area: Area, files: Iterable[FileRef]) -> tuple[FileRef, ...]:
    """Files of another run, under the names they get here."""
    taken = _Names(area.files)
    placed = []
    for ref in files:
        path = taken.free(ref.path)
        taken.add(path)
        placed.append(structs.replace(ref, path=path) if path != ref.path else ref)
    return tuple(placed)


def place_files_again(area: Area, files: Iterable[FileRef]) -> tuple[FileRef, ...]:
    """As ``place_files``, for files that may have come before: such a one keeps its name."""
    placed: list[FileRef] = []
    for ref in files:
        others = (each for each in (*area.files.values(), *placed) if each.digest != ref.digest)
        path = _Names(each.path for each in others).free(ref.path)
        placed.append(structs.replace(ref, path=path) if path != ref.path else ref)
    return tuple(placed)


def with_files(area: Area, placed: Iterable[FileRef]) -> Area:
    """The area with such files in it."""
    files = dict(area.files)
    files.update((ref.path, ref) for ref in placed)
    return structs.replace(area, files=files)


def with_waiting(area: Area, waiting: Iterable[object], *, is_code: bool) -> Area:
    """The area as it is when its run has taken what waits.

    Code has the files of a message that it reads, which waits on until it is done with it.
    """
    place = place_files_again if is_code else place_files
    for item in waiting:
        if files := getattr(item, "files", ()):
            area = with_files(area, place(area, files))
    return area


def marked(area: Area, paths: Iterable[str]) -> tuple[str, ...]:
    """The paths of a message as its model reads them: one where there is no file says so."""
    return tuple(
        [path if named(area, path) in area.files else f"{path} (missing)" for path in paths]
    )


def attachment_note(paths: Iterable[str]) -> tuple[str, ...]:
    """What a model reads of files that came with a text; nothing when none did."""
    lines = "\n".join(f"- {path}" for path in paths)
    return (f"Attachments:\n{lines}",) if lines else ()


def parts_of_files(files: Iterable[FileRef]) -> tuple[ContentPart, ...]:
    """The files that a model may be able to read, by what their names say they are."""
    found = []
    for ref in files:
        media_type = type_of_name(ref.path)
        kind = kind_of_type(media_type)
        if kind is not None and 0 < ref.size <= MAX_BYTES[kind]:
            part = ContentPart(
                kind=kind, media_type=media_type, name=ref.path, digest=ref.digest, size=ref.size
            )
            found.append(part)
    return tuple(found)


class _Names:
    """Names that are taken: of files, and of the folders that they are in."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = set(files)
        self._folders = {folder for path in self._files for folder in _folders(path)}

    def add(self, path: str) -> None:
        self._files.add(path)
        self._folders.update(_folders(path))

    def free(self, path: str) -> str:
        """The path, or the next one that is free: with another folder where that is a file."""
        *parts, name = path.split("/")
        folder = ""
        for part in parts:
            folder = f"{_next_free(folder, part, self._files)}/"
        return _next_free(folder, name, self._files, self._folders)


def _folders(path: str) -> Iterator[str]:
    """The folders that a file is in, from the area's root on."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def _next_free(folder: str, name: str, *taken: Container[str]) -> str:
    """A name in a folder as it is, or numbered where it is taken."""
    path = f"{folder}{name}"
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    number = 2
    while any(path in each for each in taken):
        path = f"{folder}{_numbered(stem, number, dot + ending)}"
        number += 1
    return path


def _numbered(stem: str, number: int, ending: str) -> str:
    """``stem-2.ext``, cut where the name would be too long to be one."""
    room = MAX_PART - len(f"-{number}")
    ending = ending[: room - 1]
    return f"{stem[: room - len(ending)]}-{number}{ending}"
