"""``mark_cache``: up to where Anthropic keeps what it reads of a request.

A mark stands on a block: what comes before it, in the order tools, system prompt, messages, is
kept, and a later request with the same beginning does not pay for it again.  Four are allowed:

1. on the last tool, which conversations of other users and prompts share;
2. on the system prompt;
3. on the last block of the messages that the next request begins with, too;
4. on the block that bore mark 3 in the request before: a mark is compared with what was kept up
   to twenty blocks before it, and a single step with many calls adds more.

``(continue)`` and ``(begin)`` at the end stand behind mark 3, since the user's next message takes
their place.
"""

from collections.abc import Mapping
from typing import Any, Final

from hubbub.runtime.models.http.messages import FILLERS

__all__ = ["has_marks", "mark_cache"]

MARK: Final = "cache_control"


def mark_cache(body: dict[str, Any], cache: str) -> None:
    """Put the marks into a body whose blocks nobody else holds, before notes are added to it.

    ``cache`` is for how long; ``5m`` is Anthropic's default, which other servers know best.
    """
    mark = {"type": "ephemeral"} if cache == "5m" else {"type": "ephemeral", "ttl": cache}
    if tools := body.get("tools"):
        tools[-1][MARK] = mark
    if system := body.get("system"):
        body["system"] = [{"type": "text", "text": system, MARK: mark}]
    messages: list[dict[str, Any]] = body["messages"]
    _mark_end(messages, len(messages), mark)
    for place in reversed(range(len(messages))):
        if messages[place]["role"] == "assistant":
            _mark_end(messages, place, mark)
            return


def _mark_end(messages: list[dict[str, Any]], end: int, mark: dict[str, Any]) -> None:
    """Mark the last block of ``messages[:end]``, fillers left out."""
    for message in reversed(messages[:end]):
        for block in reversed(message["content"]):
            if message["role"] == "assistant" or block.get("text") not in FILLERS:
                block[MARK] = mark
                return


def has_marks(options: Mapping[str, Any]) -> bool:
    """Whether options bring marks of their own, which ours would be too many beside."""
    if MARK in options:
        return True
    for name in ("tools", "system", "messages"):
        value = options.get(name)
        if isinstance(value, list | tuple) and any(map(_is_marked, value)):
            return True
    return False


def _is_marked(part: object) -> bool:
    if not isinstance(part, Mapping):
        return False
    content = part.get("content")
    return MARK in part or (isinstance(content, list | tuple) and any(map(_is_marked, content)))
