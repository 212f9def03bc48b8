"""What a server's tool has returned: texts that a model reads, and parts that it is shown.

What is no picture, document or recording of a kind that models take, by its first bytes, is named
in the text and left out; so is what is too large, or one too many.
"""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final

import mcp_types as types

from hubbub.agents.definitions.tools import ToolResult
from hubbub.hub.errors import BadValue
from hubbub.hub.events.parts import MAX_PARTS, Audio, Document, Image
from hubbub.hub.near_misses import shown
from hubbub.runtime.mcp.schema_check import misfit

__all__ = ["result_of"]

Shown = Image | Document | Audio

_KINDS: Final[dict[str, type[Shown]]] = {
    "image": Image, "audio": Audio, "application": Document,
}  # fmt: skip


def result_of(answer: types.CallToolResult, promise: Any = None) -> ToolResult:
    """The result of a call: its texts and parts; what is structured, where there are none.

    ``promise``: the schema that the server has given for what is structured.  A result that does
    not fit it is an error, which says so beside what there is.
    """
    texts: list[str] = []
    parts: list[Shown] = []
    for block in answer.content:
        for found in _found_in(block):
            if isinstance(found, str):
                texts.append(found)
            elif len(parts) < MAX_PARTS:
                parts.append(found)
            else:
                texts.append(f"[one part too many is left out: {found.part.words}]")
    structured, is_error = answer.structured_content, answer.is_error
    if structured is not None and not is_error and (problem := misfit(promise, structured)):
        texts.append(f"[Invalid structured content: {problem}]")
        is_error = True
    content: Any = "\n\n".join(texts)
    if not texts and not parts:
        content = structured
    return ToolResult(content, is_error=is_error, parts=parts)


def _found_in(block: types.ContentBlock) -> Iterator[str | Shown]:
    """What a piece of a result comes to."""
    match block:
        case types.TextContent():
            yield block.text
        case types.ImageContent() | types.AudioContent():
            yield _shown(block.data, block.mime_type, _KINDS[block.type])
        case types.ResourceLink():
            yield f"[{block.name}: {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            yield f"[{resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            yield f"[{resource.uri}]"
            yield _shown(resource.blob, resource.mime_type or "")
        case _:
            yield f"[a part of the type {block.type!r} was left out]"


def _shown(data: str, media_type: str, kind: type[Shown] = Document) -> str | Shown:
    """A part of the kind that the server says, by its media type or else by the part's own type, or
    what stands for it."""
    said = _KINDS.get(media_type.partition("/")[0].strip().lower(), kind)
    try:
        content = b64decode(data, validate=True)
        try:
            return said(content)
        except BadValue:
            if said is kind:
                raise
            return kind(content)
    except (BadValue, ValueError) as problem:
        size, what = len(data) * 3 // 4, shown(media_type)[1:-1] or "an unknown kind"
        return f"[{size:,} bytes of {what} that the tool has returned are left out: {problem}]"
