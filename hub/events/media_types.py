"""Media types of parts: which there are, and which one a content or a name has."""

from collections.abc import Mapping
from typing import Final

from hubbub.hub.events.event import PartKind

__all__ = [
    "ALL_TYPES", "MAX_BYTES", "TYPES", "kind_of_type", "plain_type", "type_of_content",
    "type_of_name",
]  # fmt: skip

TYPES: Final[Mapping[PartKind, frozenset[str]]] = {
    "image": frozenset(("image/png", "image/jpeg", "image/gif", "image/webp")),
    "document": frozenset(("application/pdf",)),
    "audio": frozenset(("audio/wav", "audio/mpeg", "audio/ogg", "audio/flac", "audio/mp4")),
}
ALL_TYPES: Final = frozenset().union(*TYPES.values())

MAX_BYTES: Final[Mapping[PartKind, int]] = {
    "image": 20 << 20, "document": 32 << 20, "audio": 25 << 20,
}  # fmt: skip
"""What the providers take at most."""

_SPELLINGS: Final = {
    "image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png",
    "application/x-pdf": "application/pdf", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav", "audio/mp3": "audio/mpeg", "audio/x-flac": "audio/flac",
    "audio/m4a": "audio/mp4", "audio/x-m4a": "audio/mp4", "application/ogg": "audio/ogg",
}  # fmt: skip
_ENDINGS: Final = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif",
    "webp": "image/webp", "pdf": "application/pdf", "wav": "audio/wav", "mp3": "audio/mpeg",
    "ogg": "audio/ogg", "oga": "audio/ogg", "flac": "audio/flac", "m4a": "audio/mp4",
}  # fmt: skip
_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"), (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"), (b"ID3", "audio/mpeg"),
)  # fmt: skip
_PDF_WITHIN: Final = 1024
"""Bytes in which a PDF may have something else in front; its readers allow that."""


def plain_type(media_type: str) -> str:
    """A media type as it is usually spelled, without parameters."""
    plain = media_type.partition(";")[0].strip().lower()
    return _SPELLINGS.get(plain, plain)


def kind_of_type(media_type: str) -> PartKind | None:
    """What a content of that type is for a model; ``None`` where it is no part's."""
    return next((kind for kind, types in TYPES.items() if media_type in types), None)


def type_of_name(name: str) -> str:
    """The type that a file's name claims; empty where it is none of a part's."""
    return _ENDINGS.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def type_of_content(content: bytes) -> str:
    """The type that a content has by its first bytes; empty where it is none of a part's."""
    for start, media_type in _STARTS:
        if content.startswith(start):
            return media_type
    if content[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(content[8:12], "")
    if content[4:8] == b"ftyp" and content[8:11] in (b"M4A", b"M4B", b"mp4", b"iso", b"MSN"):
        return "audio/mp4"
    if b"%PDF-" in content[:_PDF_WITHIN]:
        return "application/pdf"
    # MPEG audio, layer III: eleven bits of sync, then version and layer.
    if len(content) > 2 and content[0] == 0xFF and content[1] & 0xE6 == 0xE2:
        return "audio/mpeg"
    return ""
