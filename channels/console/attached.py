"""``attach``: files that a line typed at a terminal shows, by ``@path``.

    what is wrong here? @shot.png            @"my report.pdf" in three sentences

The line stays as it is typed; the files go beside it.  ``@name`` is a file where there is one, or
where it is spelled as one that could be shown (``@shot.png``); else it is a word like any other.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from hubbub.channels.console.terminal import LineReader
from hubbub.hub.errors import BadValue
from hubbub.hub.events.event import PartKind
from hubbub.hub.events.media_types import (
    MAX_BYTES,
    kind_of_type,
    type_of_content,
    type_of_name,
)
from hubbub.hub.events.parts import Audio, Document, Image, ShownPart
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message, Sayable

__all__ = ["attach", "with_attached", "words_of_attached"]

_NAMED: Final = re.compile(r'(?:^|(?<=\s))@(?:"([^"]+)"|(\S+))')
_ABSENT: Final = "there is no such file"
_BEGINNING: Final = 4096
"""As many bytes say what a file is."""
_KINDS: Final[Mapping[str, type[Image | Document | Audio]]] = {
    "image": Image,
    "document": Document,
    "audio": Audio,
}


async def with_attached(hub: Hub, reader: LineReader, line: str) -> Sayable:
    """``attach`` for a line that somebody has typed; what comes from elsewhere reads no file."""
    if not reader.is_terminal or "@" not in line:
        return line
    return await hub.ports.own_offload.run(partial(attach, line))


def attach(line: str) -> Sayable:
    """The line with the files that it names, read now; raises ``BadValue``, with what to do."""
    parts = []
    for quoted, plain in _NAMED.findall(line):
        name = quoted or plain
        if (found := _part(name)) is not None:
            parts.append(found)
    return Message(line, parts=parts) if parts else line


def words_of_attached(said: Sayable) -> str:
    """What is attached, in words; empty where nothing is."""
    parts = said.parts if isinstance(said, Message) else ()
    return ", ".join(each.part.words for each in parts if isinstance(each, ShownPart))


def _part(name: str) -> Image | Document | Audio | None:
    place = Path(name).expanduser()
    kind = kind_of_type(type_of_name(name))
    try:
        if not place.is_file():
            if kind is None:
                return None
            there = "it is no file but a folder, a pipe or a device" if place.exists() else _ABSENT
            raise BadValue(f"@{name}", f"{there}; correct it, or leave out the @")
        if kind is None:
            raise BadValue(f"@{name}", "only pictures, PDFs and recordings can be shown")
        if problem := _problem(place, kind):
            raise BadValue(f"@{name}", problem)
        return _KINDS[kind].from_file(place)
    except OSError as error:
        raise BadValue(f"@{name}", f"it cannot be read ({error.strerror})") from None


def _problem(place: Path, kind: PartKind) -> str:
    """Why a file cannot be shown, in words for a person at a terminal; empty if it can."""
    size, most = place.stat().st_size, MAX_BYTES[kind]
    if size > most:
        return f"it has {size:,} bytes; at most {most:,} ({most >> 20} MiB) can be shown"
    said = type_of_name(place.name)
    with place.open("rb") as file:
        held = type_of_content(file.read(_BEGINNING))
    if not size:
        return "it is empty"
    if not held:
        return f"its name says {said}, but it holds no such thing; convert it, or name another"
    return "" if held == said else f"its name says {said}, but it holds {held}; rename it"
