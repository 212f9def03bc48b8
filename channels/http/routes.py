"""The table of all routes: what an app serves, in one place.

Each part brings its own: ``api`` a tuple a file, the others by a function of the ``Host``.  What a
part brings as a route of Starlette is turned into one of ours here.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as StarletteRoute

from hubbub.channels.http.access import Access
from hubbub.channels.http.api import (
    agents,
    conversations,
    files,
    health,
    limits,
    messages,
    prompts,
    records,
    runs,
    schedules,
    variables,
    workers,
)
from hubbub.channels.http.api.sessions import session_routes
from hubbub.channels.http.inspector.page import inspector_routes
from hubbub.channels.http.openai.endpoints import openai_routes
from hubbub.channels.http.openapi import document_routes
from hubbub.channels.http.streams.routes import stream_routes
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.route import Route

__all__ = ["adopted", "table"]


def table(host: Host, access: Access, *, inspector: bool, openai: bool) -> tuple[Route, ...]:
    """Every route of an app."""
    routes = [route for part in _API for route in part]
    routes += document_routes(lambda: routes, has_token=access.has_token)
    if access.has_token:
        routes += session_routes(access)
    if inspector:
        routes += inspector_routes()
    routes += stream_routes(host)
    if openai:
        routes += openai_routes(host)
    return tuple(routes)


_API: Final[tuple[tuple[Route, ...], ...]] = (
    health.ROUTES, agents.ROUTES, runs.ROUTES, records.ROUTES, messages.ROUTES, limits.ROUTES,
    files.ROUTES, conversations.ROUTES, prompts.ROUTES, schedules.ROUTES, variables.ROUTES,
    workers.ROUTES,
)  # fmt: skip


def adopted(routes: Iterable[BaseRoute], **how: Any) -> Iterator[Route]:
    """Routes of Starlette as ours; ``how`` are further fields of each."""
    for each in routes:
        if isinstance(each, WebSocketRoute):
            yield Route(method="WEBSOCKET", path=each.path, summary=each.name, asgi=each.app, **how)
        elif isinstance(each, StarletteRoute):
            for method in sorted((each.methods or {"GET"}) - {"HEAD"}):
                yield Route(method=method, path=each.path, summary=each.name, asgi=each.app, **how)
