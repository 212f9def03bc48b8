"""What a server's tool has returned, in the words that a model reads."""

from collections.abc import Iterator
from typing import Any, Final

import mcp_types as types

from hubbub.agents.definitions.tools import ToolResult

__all__ = ["result_of"]

_BYTES: Final = "{:,} bytes of {} that the tool has returned are left out"


def result_of(answer: types.CallToolResult) -> ToolResult:
    """The result of a call: its texts; what is structured, where there are none."""
    texts = [text for block in answer.content for text in _texts_of(block)]
    content: Any = "\n\n".join(texts)
    if not texts and answer.structured_content is not None:
        content = answer.structured_content
    elif not texts:
        content = None
    return ToolResult(content, is_error=answer.is_error)


def _texts_of(block: types.ContentBlock) -> Iterator[str]:
    match block:
        case types.TextContent():
            yield block.text
        case types.ImageContent() | types.AudioContent():
            yield _left_out(block.data, block.mime_type)
        case types.ResourceLink():
            yield f"[{block.name}: {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            yield f"[{resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            yield f"{_left_out(resource.blob, resource.mime_type or '')} ({resource.uri})"
        case _:
            yield f"[a part of the kind {block.type!r} is left out]"


def _left_out(data: str, media_type: str) -> str:
    """What stands for a content that a model cannot be given as text."""
    return f"[{_BYTES.format(len(data) * 3 // 4, media_type or 'an unknown kind')}]"
