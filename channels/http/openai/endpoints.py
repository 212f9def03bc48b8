"""The routes below ``/v1``."""

from hubbub.channels.http.openai.chat import create_completion
from hubbub.channels.http.openai.endpoint import OpenAiEndpoint
from hubbub.channels.http.openai.leaving import Leaving
from hubbub.channels.http.openai.models import list_models, show_model
from hubbub.channels.http.openai.requests.recent_requests import RecentRequests
from hubbub.channels.http.openai.responses import (
    cancel_response,
    create_response,
    show_response,
)
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.route import Route

__all__ = ["openai_routes"]


def openai_routes(host: Host) -> tuple[Route, ...]:
    """The endpoints of OpenAI's API, for one app."""
    leaving, recent = Leaving(host.hub), RecentRequests(host.hub)
    rows = (
        ("GET", "/v1/models", "The agents, as models", list_models, False),
        ("GET", "/v1/models/{model:path}", "One agent, as a model", show_model, False),
        ("POST", "/v1/responses", "Have an agent respond", create_response, True),
        ("GET", "/v1/responses/{id}", "A response, or its stream", show_response, True),
        ("POST", "/v1/responses/{id}/cancel", "Cancel a response", cancel_response, False),
        ("POST", "/v1/chat/completions", "Have an agent answer", create_completion, True),
    )
    return tuple(
        Route(
            method=method, path=path, summary=summary, is_stream=is_stream, is_documented=False,
            asgi=OpenAiEndpoint(host, leaving, recent, handler),
        )
        for method, path, summary, handler, is_stream in rows
    )  # fmt: skip
