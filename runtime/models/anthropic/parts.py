"""``part_blocks``: images and documents as blocks of Anthropic's Messages interface.

It has none for recordings: what a model is not shown, a text names.  A content is sent with every
request, in base64; what is behind an address Anthropic reads itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hubbub.agents.model import ContentPart
from hubbub.runtime.models.http.parts import base64_of, left_out

__all__ = ["part_blocks"]

TAKES: Final = frozenset(("image", "document"))


def part_blocks(
    parts: Iterable[ContentPart], contents: Mapping[str, bytes]
) -> list[dict[str, Any]]:
    """One block for each part."""
    return [_block(part, contents) for part in parts]


def _block(part: ContentPart, contents: Mapping[str, bytes]) -> dict[str, Any]:
    source = _source(part, contents) if part.kind in TAKES else None
    if source is None:
        return {"type": "text", "text": left_out(part, contents, TAKES)}
    block: dict[str, Any] = {"type": part.kind, "source": source}
    if part.kind == "document" and part.name:
        block["title"] = part.name
    return block


def _source(part: ContentPart, contents: Mapping[str, bytes]) -> dict[str, Any] | None:
    if part.url:
        return {"type": "url", "url": part.url}
    content = contents.get(part.digest)
    if content is None:
        return None
    return {"type": "base64", "media_type": part.media_type, "data": base64_of(content)}
