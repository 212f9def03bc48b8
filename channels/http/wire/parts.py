"""``PartBody``: an image, a document or a recording in a body, beside the text of a message."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.events.parts import MAX_PARTS, Audio, Document, Image

__all__ = ["PartBody", "parts_shown"]


class PartBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a message: ``data`` in base64, or a ``url`` (http or https), which the provider of
    the model reads and the hub never does.

    What ``data`` holds its first bytes say; a ``media_type`` that they contradict is refused.
    """

    kind: Literal["image", "document", "audio"]
    data: bytes = b""
    url: str = ""
    media_type: str = ""
    name: str = ""


def parts_shown(
    bodies: Sequence[PartBody], where: str = "parts"
) -> tuple[Image | Document | Audio, ...]:
    """The parts of a message; raises ``BadValue``, with the place of what is none, and for
    more than a message has."""
    if len(bodies) > MAX_PARTS:
        raise BadValue(where, f"{len(bodies):,} parts; at most {MAX_PARTS} are taken")
    return tuple(_shown(each, f"{where}[{at}]") for at, each in enumerate(bodies))


def _shown(body: PartBody, where: str) -> Image | Document | Audio:
    kind: type[Image | Document | Audio] = _KINDS[body.kind]
    if bool(body.data) == bool(body.url):
        raise BadValue(where, "give one of data and url")
    if body.url and not body.url.lower().startswith(("http://", "https://")):
        remedy = "send what it holds as data, in base64"
        raise BadValue(f"{where}.url", f"expected an http or https address; {remedy}")
    try:
        if body.url:
            return kind.from_url(body.url, media_type=body.media_type, name=body.name)
        return kind(body.data, body.media_type, name=body.name)
    except BadValue as refused:
        raise BadValue(where, str(refused)) from None


_KINDS: Final[Mapping[str, type[Image | Document | Audio]]] = {
    "image": Image,
    "document": Document,
    "audio": Audio,
}
