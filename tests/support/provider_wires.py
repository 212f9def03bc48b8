"""What the wires of all providers are made of: events, texts, and the official clients' types."""

import json
import re
from typing import Any

from pydantic import TypeAdapter

is_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def event(data: dict[str, Any] | str, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def read_strictly(adapter: TypeAdapter[Any], value: Any) -> None:
    """Validate with the official client's own types; raises if they do not fit."""
    todo = [adapter.validate_python(value)]
    while todo:
        # pydantic validates an Iterable only while somebody iterates over it.
        each = todo.pop()
        if isinstance(each, dict):
            todo.extend(each.values())
        elif not isinstance(each, str | bytes) and hasattr(each, "__iter__"):
            todo.extend(each)


def texts_of(content: Any) -> list[str]:
    """The texts of a content, be it a string, a list of blocks, or nothing."""
    if isinstance(content, list):
        return [block["text"] for block in content if "text" in block]
    return [content or ""]
