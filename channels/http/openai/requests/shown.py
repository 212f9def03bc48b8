"""What a request shows beside its texts: images, files and recordings, in both spellings.

chat        image_url {url}, file {filename, file_data}, input_audio {data, format}
responses   input_image image_url, input_file filename file_data | file_url, input_audio
"""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Any, Final, Literal

from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.wire.parts import PartBody, parts_shown
from hubbub.hub.errors import BadValue
from hubbub.hub.events.parts import MAX_PARTS

__all__ = ["SHOWN", "shown_in"]

SHOWN: Final = frozenset((
    "image_url", "file", "input_audio", "input_image", "input_file",
))  # fmt: skip
"""The types of content that are no texts."""


def shown_in(where: str, content: object) -> tuple[PartBody, ...]:
    """The parts of a user's content, whose types are texts (``parts_of`` has checked them).
    Raises ``Refused`` for what no model could be shown."""
    found: list[PartBody] = []
    for at, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict) and part.get("type") in SHOWN:
            if len(found) == MAX_PARTS:
                raise _refused(where, f"at most {MAX_PARTS} of its parts are no texts")
            found.append(_part(f"{where}[{at}]", part))
    return tuple(found)


def _part(where: str, part: dict[str, Any]) -> PartBody:
    kind: str = part["type"]
    inner = part.get(kind)
    given = inner if isinstance(inner, dict) else part
    if kind == "input_audio":
        body = PartBody(kind="audio", data=_bytes(where, given.get("data")))
    elif kind in ("image_url", "input_image"):
        url = given.get("url") if kind == "image_url" else given.get("image_url")
        body = _image_or_file(where, "image", url, "")
    else:
        address = given.get("file_data") or given.get("file_url")
        body = _image_or_file(where, "document", address, given.get("filename") or "")
    try:
        parts_shown((body,))
    except BadValue as refused:
        raise _refused(where, str(refused)) from None
    return body


def _image_or_file(
    where: str, kind: Literal["image", "document"], address: object, name: object
) -> PartBody:
    if not isinstance(address, str) or not isinstance(name, str):
        raise _refused(where, "send its content, or an address; files are not kept here")
    if not address.startswith("data:"):
        return PartBody(kind=kind, url=address, name=name)
    head, comma, data = address.partition(",")
    if not comma or not head.endswith(";base64"):
        raise _refused(where, "expected data:TYPE;base64,CONTENT")
    media_type = head.removeprefix("data:").removesuffix(";base64")
    return PartBody(kind=kind, data=_bytes(where, data), media_type=media_type, name=name)


def _bytes(where: str, data: object) -> bytes:
    try:
        found = b64decode(data, validate=True) if isinstance(data, str) else b""
    except (NotBase64, ValueError):
        found = b""
    if not found:
        raise _refused(where, "its data is not base64, or empty")
    return found


def _refused(where: str, why: str) -> Refused:
    return Refused(400, f"Invalid '{where}': {why}.", param=where, code="invalid_value")
