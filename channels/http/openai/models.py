"""``/v1/models``: the agents, as models."""

from typing import Any

import msgspec
from starlette.types import ASGIApp

from hubbub.channels.http.openai.answers.refusals import JsonAnswer, unknown_model
from hubbub.channels.http.openai.endpoint import OpenAiRequest
from hubbub.channels.http.wire.runtime_answers import ask_runtime

__all__ = ["list_models", "show_model"]


async def list_models(request: OpenAiRequest) -> ASGIApp:
    """Every agent, by name."""
    names = await ask_runtime(request.hub, "agents")
    body = {"object": "list", "data": [_model(name) for name in names]}
    return JsonAnswer(msgspec.json.encode(body))


async def show_model(request: OpenAiRequest) -> ASGIApp:
    """One agent."""
    name = request.path("model")
    if name not in await ask_runtime(request.hub, "agents"):
        raise unknown_model(name)
    return JsonAnswer(msgspec.json.encode(_model(name)))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hubbub"}
