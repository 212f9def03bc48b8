"""``Route``: an endpoint as data, and ``HttpCall``, one request to it.

The table of all routes is what requests are dispatched by, what the OpenAPI document is generated
from, and what the tests go through.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Scope

from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.outgoing import Outgoing
from hubbub.channels.http.wire.request_keys import request_key
from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import RequestKey

__all__ = ["JSON", "Content", "Handler", "HttpAnswer", "HttpCall", "Route", "header_of", "mount_of"]

JSON: Final = "application/json"


def header_of(scope: Mapping[str, Any], name: bytes) -> str:
    """The value of a header, its name in lower case; empty where there is none."""
    for key, value in scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return ""


def mount_of(scope: Mapping[str, Any]) -> str:
    """Where the app is mounted, as in a URL; empty at the root."""
    return quote(scope.get("root_path", "").rstrip("/"), safe=_IN_PATHS)


_IN_PATHS: Final = "/-._~!$&'()*+,=:@"
"""What a path has as it is; ``;`` would end it in a cookie."""


class HttpCall:
    """One request: what its route has read of it."""

    __slots__ = ("body", "host", "outgoing", "path", "query", "scope")

    def __init__(
        self,
        host: Host,
        scope: Scope,
        path: Mapping[str, str],
        query: Any,
        body: Any,
        outgoing: Outgoing,
    ) -> None:
        self.host = host
        self.scope = scope
        self.outgoing = outgoing
        """What is answered: a handler that knows its size reserves it before it reads it."""
        self.path = path
        """The variable parts of the path, decoded."""
        self.query = query
        """An object of the route's ``query``."""
        self.body = body
        """An object of the route's ``body``."""

    @property
    def hub(self) -> Hub:
        """The hub that it is about."""
        return self.host.hub

    @property
    def key(self) -> str:
        """The header ``Idempotency-Key``; empty where there is none."""
        return self.header(b"idempotency-key")

    def request(self, *path: str) -> RequestKey | None:
        """Under which it counts once; ``path`` is where it was sent to."""
        return request_key(self.key, path, self.body)

    def header(self, name: bytes) -> str:
        """The value of a header, its name in lower case; empty where there is none."""
        return header_of(self.scope, name)


class HttpAnswer(Struct, frozen=True, kw_only=True):
    """What is answered: ``content`` as JSON, or as it is where it is bytes."""

    content: Any = None
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """The bytes of it."""
        if isinstance(self.content, bytes):
            return self.content
        return b"" if self.status == 204 else msgspec.json.encode(self.content)


Handler: TypeAlias = Callable[[HttpCall], Awaitable[HttpAnswer]]


class Content(Struct, frozen=True):
    """A body that is no JSON: its media type, and what it is in words."""

    media_type: str
    description: str


class Route(Struct, frozen=True, kw_only=True):
    """An endpoint.

    * ``method``, or ``WEBSOCKET``; ``path`` relative to the app, with ``{names}`` of variable
      parts (``{name:path}``, at the end, takes the rest of it).
    * One of ``handler``, which gets a call that has been read and returns its answer, and ``asgi``,
      which does everything itself and finds the variable parts in ``scope["path_params"]``.
      Access and limits have been checked before either.
    * ``query`` and ``body`` are structs (or ``Content``); ``answers`` says what each status of
      success has, ``problems`` which kinds of problem its own work may have.
    * ``is_open``: it needs no token.  ``is_stream``: it lasts, and is counted as a stream.
      ``is_counted``: it is refused where too many requests are at work.
    """

    method: str
    path: str
    summary: str
    handler: Handler | None = None
    asgi: ASGIApp | None = None
    query: Any = None
    body: Any = None
    form: Callable[[Mapping[str, str]], Any] | None = None
    """What makes the body of the fields of an HTML form, where one may send it."""
    answers: Mapping[int, Any] = {}
    problems: tuple[str, ...] = ()
    is_open: bool = False
    is_counted: bool = True
    is_stream: bool = False
    is_keyed: bool = False
    """Whether the header ``Idempotency-Key`` makes it safe to repeat."""
    is_documented: bool = True

    @property
    def name(self) -> str:
        """What it is called in reports: method and path."""
        return f"{self.method} {self.path}"
