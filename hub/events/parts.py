"""``Image``, ``Document``, ``Audio``: what one shows to a model beside a text.

    Image(data)                 bytes, of a picture that the program has
    Image.from_file("a.png")    a file of the machine's, read here and now
    Image.from_url("https://…") an address, which the model's provider reads; nobody else does

What a part is, its first bytes say (``media_types``); a claim that they contradict is refused
here, where it enters, and so is what is larger than any provider takes.  In events and before a
model stands a ``ContentPart``, with the digest of the content.
"""

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events.event import ContentPart, PartKind
from hubbub.hub.events.media_types import (
    ALL_TYPES,
    MAX_BYTES,
    TYPES,
    plain_type,
    type_of_content,
    type_of_name,
)
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.texts import label_problem

__all__ = [
    "MAX_PARTS", "Audio", "Document", "GivenParts", "Image", "PartGiven", "ShownPart",
    "bytes_problem", "contents_of", "credentials_problem", "part_problem", "read_parts",
    "split_returned", "split_said",
]  # fmt: skip

MAX_PARTS: Final = 100
"""Parts of one message or result."""

MAX_URL: Final = 8_000
MAX_PART_NAME: Final = 255


class ShownPart:
    """A part with its content at hand; its ``part`` is what events say of it."""

    __slots__ = ("data", "part")

    kind: ClassVar[PartKind]
    what: ClassVar[str]

    def __init__(self, data: bytes, media_type: str = "", *, name: str = "") -> None:
        where = type(self).__name__
        if not isinstance(data, bytes | bytearray | memoryview):
            remedy = "; use from_file or from_url" if isinstance(data, str | PathLike) else ""
            raise BadValue(where, f"expected bytes, not {kind_of(data)}{remedy}")
        _check_name(where, name)
        content = bytes(data)
        found = self._found(content, where)
        claimed = _claimed(where, media_type)
        if claimed and claimed != found:
            raise BadValue(
                where,
                f"it holds {found}, not {claimed}; give media_type={found!r}, or leave it out",
            )
        _check_ending(where, name, found)
        self.data: bytes = content
        self.part = ContentPart(
            kind=self.kind, media_type=found, name=name, size=len(content),
            digest=hashlib.sha256(content).hexdigest(),
        )  # fmt: skip

    @classmethod
    def from_file(cls, path: str | PathLike[str], *, media_type: str = "") -> Self:
        """A file of this machine, read now; its name is the part's.

        For the embedding program: the path is any that the process can read, so never pass one
        that a model or a stranger has written.  Raises ``BadValue`` for what is no such file, is
        too large, or holds something else than its name says, and ``OSError``.
        """
        if not isinstance(path, str | PathLike):
            raise BadValue(cls.__name__, f"expected a path, not {kind_of(path)}")
        place = Path(fspath(path))
        if "\0" in str(place):
            raise BadValue(cls.__name__, "a path holds no NUL character")
        name = place.name.encode("utf-8", "replace").decode()[:MAX_PART_NAME]
        with open(place, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadValue(shown(str(path)), "it is no file, but a device, a pipe or the like")
            data = file.read(MAX_BYTES[cls.kind] + 1)
            if len(data) > MAX_BYTES[cls.kind]:
                raise BadValue(shown(str(path)), _too_large(cls.kind, place.stat().st_size))
        _check_ending(shown(str(path)), name, cls._found(data, shown(str(path))))
        return cls(data, media_type, name=name)

    @classmethod
    def from_url(cls, url: str, *, media_type: str = "", name: str = "") -> Self:
        """What is behind an address; the model's provider reads it, hubbub never does.

        Raises ``BadValue`` for anything but an ``http`` or ``https`` address, for one with a user
        name or a password in it, and, unless a ``media_type`` is given, for one that ends like
        something else (``….pdf``).
        """
        where = f"{cls.__name__}.from_url"
        if problem := url_problem(url) or credentials_problem(url):
            raise BadValue(where, problem)
        _check_name(where, name)
        claimed = _claimed(where, media_type)
        if claimed and claimed not in TYPES[cls.kind]:
            raise BadValue(where, f"{claimed} is no type of {cls.what}")
        _check_ending(where, name, claimed, TYPES[cls.kind])
        if not claimed:
            cls._check_address(where, url)
        made = cls.__new__(cls)
        made.data = b""
        made.part = ContentPart(kind=cls.kind, media_type=claimed, name=name, url=url)
        return made

    @classmethod
    def _check_address(cls, where: str, url: str) -> None:
        """Raise ``BadValue`` for an address that ends like what is no such part."""
        said = type_of_name(unquote(urlsplit(url).path).rpartition("/")[2])
        if said and said not in TYPES[cls.kind]:
            other = next(x.__name__ for x in _CLASSES.values() if said in TYPES[x.kind])
            raise BadValue(where, f"the address ends like {said}; use {other}, or say media_type=…")

    @classmethod
    def _found(cls, content: bytes, where: str) -> str:
        """The type that the content has; raises ``BadValue`` where it is no such part's."""
        if not content:
            raise BadValue(where, "it is empty")
        if len(content) > MAX_BYTES[cls.kind]:
            raise BadValue(where, _too_large(cls.kind, len(content)))
        found = type_of_content(content)
        if found in TYPES[cls.kind]:
            return found
        known = ", ".join(sorted(TYPES[cls.kind]))
        if found:
            other = next(x.__name__ for x in _CLASSES.values() if found in TYPES[x.kind])
            raise BadValue(where, f"it holds {found}, which is no {cls.what}; use {other}")
        remedy = "convert it, or send it as a file"
        raise BadValue(where, f"it holds no {cls.what} of a known type ({known}); {remedy}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownPart) and self.part == other.part

    def __hash__(self) -> int:
        return hash((self.part.digest, self.part.url))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.part.words}>"


class Image(ShownPart):
    """A picture: PNG, JPEG, GIF or WebP of at most 20 MiB.

    ``media_type`` need not be said; it is found in the ``data``, and refused where that is another.
    Raises ``BadValue``.
    """

    __slots__ = ()
    kind = "image"
    what = "picture"


class Document(ShownPart):
    """A document: PDF of at most 32 MiB.  Raises ``BadValue``; see ``Image``."""

    __slots__ = ()
    kind = "document"
    what = "document"


class Audio(ShownPart):
    """A recording: WAV, MP3, Ogg, FLAC or MP4 of at most 25 MiB.  Raises ``BadValue``; see
    ``Image``."""

    __slots__ = ()
    kind = "audio"
    what = "recording"


PartGiven: TypeAlias = Image | Document | Audio | ContentPart
"""A part as programs say it; a ``ContentPart`` is one that an event has had."""

if TYPE_CHECKING:
    GivenParts: TypeAlias = Sequence[PartGiven]
else:  # As they are read back; ``ShownPart`` is never written.
    GivenParts = tuple[ContentPart, ...]

_CLASSES: Final[Mapping[PartKind, type[ShownPart]]] = {
    "image": Image, "document": Document, "audio": Audio,
}  # fmt: skip


def read_parts(where: str, parts: object) -> tuple[ContentPart, ...]:
    """The parts of a message; raises ``BadValue`` for what is none."""
    if isinstance(parts, ShownPart | ContentPart):
        parts = (parts,)
    if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
        raise BadValue(where, f"expected parts such as Image(data), not {kind_of(parts)}")
    found: list[ContentPart] = []
    for each in parts:
        part = each.part if isinstance(each, ShownPart) else each
        if not isinstance(part, ContentPart):
            remedy = "; write Image(data)" if isinstance(each, bytes | bytearray) else ""
            expected = f"expected Image, Document or Audio, not {kind_of(each)}{remedy}"
            raise BadValue(where, expected)
        if part is each and (problem := part_problem(part) or credentials_problem(part.url)):
            raise BadValue(where, problem)
        found.append(part)
    if len(found) > MAX_PARTS:
        raise BadValue(where, f"{len(found)} parts; at most {MAX_PARTS} are taken")
    return tuple(found)


def contents_of(parts: object) -> dict[str, bytes]:
    """The contents that parts bring with them, by digest."""
    if isinstance(parts, ShownPart):
        parts = (parts,)
    return {
        each.part.digest: each.data
        for each in (parts if isinstance(parts, list | tuple) else ())
        if isinstance(each, ShownPart) and each.data
    }


def split_said(said: object) -> tuple[str, tuple[PartGiven, ...]] | None:
    """The text and the parts of a list of both, or of a part alone; ``None`` where it is neither.

    Texts have a blank line between them.
    """
    if isinstance(said, ShownPart | ContentPart):
        said = (said,)
    if not isinstance(said, list | tuple) or _is_json(said):
        return None
    parts = tuple([each for each in said if isinstance(each, ShownPart | ContentPart)])
    texts = [each for each in said if isinstance(each, str)]
    if not parts or len(parts) + len(texts) != len(said):
        return None
    return "\n\n".join(texts), parts  # type: ignore[return-value]


def split_returned(value: object) -> tuple[str, tuple[PartGiven, ...]] | None:
    """``split_said`` of what a tool has returned: bytes that are a picture or a PDF are shown as
    such, alone or beside texts and parts.  Raises ``BadValue`` for one that is too large."""
    if isinstance(value, bytes | bytearray | memoryview):
        value = (value,)
    if isinstance(value, list | tuple) and has_bytes(value):
        value = [_shown_bytes(each) for each in value]
    return split_said(value)


def has_bytes(values: Iterable[object]) -> bool:
    """Whether some of them are bytes, of which nobody has said what they are."""
    return bool([each for each in values if isinstance(each, bytes | bytearray | memoryview)])


def bytes_problem(said: object) -> str:
    """Why a list of texts, parts and bytes says nothing that could be shown; empty if it may."""
    if not isinstance(said, list | tuple) or _is_json(said) or not has_bytes(said):
        return ""
    if not any(isinstance(each, str | ShownPart | ContentPart) for each in said):
        return ""
    return "bytes beside a text are shown to nobody; give Image(…), Document(…) or Audio(…) of them"


def _is_json(values: Iterable[object]) -> bool:
    """Whether there are only values in them that JSON has: found in one step, of very many too."""
    return _OF_JSON.issuperset(map(type, values))


_OF_JSON: Final = frozenset((dict, list, str, int, float, bool, type(None)))


def _shown_bytes(each: object) -> object:
    """The picture or the PDF that bytes are by their first ones; anything else as it is."""
    if not isinstance(each, bytes | bytearray | memoryview):
        return each
    content = bytes(each)
    found = type_of_content(content)
    if found in TYPES["image"]:
        return Image(content)
    # A recording is not looked for, nor a PDF behind something else: other bytes begin so, too.
    return Document(content) if content.startswith(b"%PDF-") else each


def part_problem(part: ContentPart) -> str:
    """Why a part that somebody has built, or that comes from elsewhere, is none; else empty."""
    try:
        structs.asdict(part)
        if part.kind not in TYPES:
            return f"its kind is 'image', 'document' or 'audio', not {shown(part.kind)}"
        if part.url:
            if part.digest or part.size:
                return "it has a url or a content, not both"
            problem = url_problem(part.url)
        elif len(part.digest) != 64 or part.digest.strip("0123456789abcdef"):
            return f"it names a content {shown(part.digest)}, which is not a digest"
        elif part.size.__class__ is not int or not 0 < part.size <= MAX_BYTES[part.kind]:
            return f"its content has {shown(part.size)} bytes"
        else:
            problem = ""
        wanted = part.media_type or not part.url
        if wanted and part.media_type not in TYPES[part.kind]:
            return f"{shown(part.media_type)} is no type of its kind, {part.kind}"
        return problem or name_problem(part.name)
    except Exception as error:  # Structs hold whatever they are built with.
        return f"it is no part ({type(error).__name__})"


def url_problem(url: object) -> str:
    """Why an address is none that a provider could read; empty if it is one."""
    if problem := label_problem(url):
        return problem
    assert isinstance(url, str)
    if len(url) > MAX_URL:
        return f"an address has at most {MAX_URL:,} characters; pass bytes"
    if any(character.isspace() or not character.isprintable() for character in url):
        return "an address holds no blanks and no control characters; quote them"
    try:
        split = urlsplit(url)
        host = split.hostname
    except ValueError:  # Its words would quote the address, and a password in it.
        return "it is no address: its host cannot be read"
    if split.scheme not in ("http", "https"):
        scheme = f"not {split.scheme!r}" if split.scheme else "which has none"
        remedy = "use from_file" if split.scheme in ("", "file") else "pass bytes"
        return f"expected an http or https address, {scheme}; {remedy}"
    return "" if host else "the address names no host"


def credentials_problem(url: str) -> str:
    """Why an address is not taken, though a provider could read it; empty if it is.

    Asked where one enters only: what is on record stays as it is.
    """
    if "@" not in urlsplit(url).netloc:
        return ""
    return "an address holds no user name and no password, which would be on record; pass bytes"


def name_problem(name: object) -> str:
    """Why a part cannot be called so; empty if it can."""
    if problem := label_problem(name):
        return problem
    assert isinstance(name, str)
    if len(name) > MAX_PART_NAME:
        return f"a name has at most {MAX_PART_NAME} characters"
    return "" if name.isprintable() else "a name holds printable characters only"


def _open_at_once(path: str, flags: int) -> int:
    """Open a file, and wait for nobody: a pipe has no end until somebody writes."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _too_large(kind: PartKind, size: int) -> str:
    what, most = _CLASSES[kind].what, MAX_BYTES[kind]
    return (
        f"{size:,} bytes; a {what} has at most {most:,} ({most >> 20} MiB): make it smaller, or "
        "send it as a file"
    )


def _claimed(where: str, media_type: object) -> str:
    if not isinstance(media_type, str):
        raise BadValue(where, f"media_type is a text, not {kind_of(media_type)}")
    plain = plain_type(media_type)
    if plain and plain not in ALL_TYPES:
        known = ", ".join(sorted(ALL_TYPES))
        raise BadValue(where, f"no model takes {shown(media_type)}; known are {known}")
    return plain


def _check_ending(where: str, name: str, found: str, known: Collection[str] = ()) -> None:
    """Raise ``BadValue`` for a name that says another type than the content has, or, where that is
    read elsewhere, than it may have: who trusts the name, a person or a provider, is misled."""
    said = type_of_name(name)
    if not said or said == found or (not found and said in known):
        return
    holds = found or f"one of {', '.join(sorted(known))}"
    raise BadValue(where, f"its name says {said}, but it holds {holds}; rename {shown(name)}")


def _check_name(where: str, name: object) -> None:
    if problem := name_problem(name):
        raise BadValue(where, f"name: {problem}")
