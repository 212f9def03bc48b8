"""What a provider's prompt cache can serve: the beginning that one request shares with the next.

A body's *text* is what the provider reads of it, in the order in which it is cached: tools, system
prompt, messages; marks and how a single text is written aside.  Its *stable part* ends before what
is made again at each step: notes of the system, and fillers that the next message replaces.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from hubbub.agents.model import ModelRequest
from hubbub.runtime.models.anthropic import model as anthropic_model
from hubbub.runtime.models.http.endpoint import encode_body
from hubbub.runtime.models.http.errors import ProviderOrigin
from hubbub.runtime.models.http.messages import CONTINUE, FILLERS
from hubbub.runtime.models.openai import model as openai_model
from hubbub.runtime.models.openai.dialect import OPENAI_DIALECT
from hubbub.runtime.models.responses import model as responses_model

__all__ = ["BODIES", "breaks", "common", "head_of", "stable_text", "text_of"]

MARK = "cache_control"
_ORIGIN = ProviderOrigin("m", "u", "K")


def _anthropic(request: ModelRequest) -> Any:
    return _sent(anthropic_model.request_body(request, model="m", max_tokens=100))


def _openai(request: ModelRequest) -> Any:
    return _sent(openai_model.request_body(request, model="m", dialect=OPENAI_DIALECT))


def _responses(request: ModelRequest) -> Any:
    """In the terms of the other two: instructions are a system prompt, items are messages."""
    body = _sent(responses_model.request_body(request, model="m", keeps_by_key=True))
    items = [{"role": "", "content": None, **item} for item in body.pop("input")]
    return {**body, "system": body.pop("instructions", None), "messages": items}


def _sent(body: dict[str, Any]) -> Any:
    return json.loads(encode_body(body, _ORIGIN))


BODIES = {"anthropic": _anthropic, "openai": _openai, "responses": _responses}
"""The body of a request, as it is sent."""


def text_of(body: Any) -> str:
    """What the provider reads, from the beginning."""
    return _text(body, [_plain(each) for each in body["messages"]])


def head_of(body: Any) -> str:
    """Tools and system prompt, which other conversations may begin with too."""
    messages = [each for each in body["messages"][:1] if each["role"] == "system"]
    return _text(body, [_plain(each) for each in messages]).rstrip(']}"')


def stable_text(provider: str, request: ModelRequest) -> str:
    """The stable part, up to where its last words can be added to."""
    body = BODIES[provider](replace(request, system_notes=()))
    messages = [_plain(each) for each in body["messages"]]
    while messages and _without_filler(messages[-1]):
        messages.pop()
    return _text(body, messages).rstrip(']}"')


def breaks(provider: str, requests: Iterable[ModelRequest]) -> Iterator[str]:
    """Where a request does not begin as the one before it did, its own notes and marks aside."""
    before = ""
    for number, request in enumerate(requests, 1):
        text = text_of(BODIES[provider](request))
        stable = stable_text(provider, request)
        if not text.startswith(stable):
            yield f"{provider} {number}: notes stand within: {text[common(text, stable) :][:200]}"
        if not text.startswith(before):
            at = common(text, before)
            yield f"{provider} {number}: {text[at:][:200]!r} where there was {before[at:][:200]!r}"
        before = stable


def common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(at for at in range(length) if one[at] != other[at])


def _text(body: Any, messages: list[Any]) -> str:
    return json.dumps([_unmarked(body.get("tools")), _texts(body.get("system", [])), *messages])


def _unmarked(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _unmarked(value) for name, value in part.items() if name != MARK}
    return [_unmarked(each) for each in part] if isinstance(part, list) else part


def _plain(message: Any) -> Any:
    """A content that is a text, and one that is a list of this text, say the same."""
    message = _unmarked(message)
    if message["role"] in ("user", "system"):
        message["content"] = _texts(message["content"])
    return message


def _texts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else _unmarked(content)


def _without_filler(message: Any) -> bool:
    """Whether nothing is left of a message without the filler that it may end with."""
    if message["role"] != "user":
        return False
    last = message["content"][-1]
    if last.get("text") in FILLERS:
        message["content"].pop()
    elif last["type"] == "text":  # OpenAI's are one text, where the model has said nothing at all.
        last["text"] = last["text"].removesuffix(f"\n\n{CONTINUE}")
    return not message["content"]
