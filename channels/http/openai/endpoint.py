"""``OpenAiEndpoint``: one endpoint as an ASGI app, with errors in the form of OpenAI's API."""

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from hubbub.channels.http.openai.answers.refusals import JsonAnswer, Refused, refused_of
from hubbub.channels.http.openai.leaving import Leaving
from hubbub.channels.http.openai.requests.body import RequestBody
from hubbub.channels.http.openai.requests.recent_requests import RecentRequests
from hubbub.channels.http.wire.bodies import read_body
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import HttpAnswer, header_of
from hubbub.hub.hub import Hub

__all__ = ["OpenAiEndpoint", "OpenAiRequest", "is_openai_path", "named", "openai_answer"]

SESSION_HEADERS: Final = (b"x-session-id", b"x-openwebui-chat-id")
"""The headers by which clients name a conversation; the first that is there counts."""

MAX_KEY: Final = 512


class OpenAiRequest:
    """One request to an endpoint."""

    __slots__ = ("_scope", "host", "leaving", "receive", "recent")

    def __init__(
        self,
        host: Host,
        leaving: Leaving,
        recent: RecentRequests,
        scope: Scope,
        receive: Receive,
    ) -> None:
        self.host = host
        self.leaving = leaving
        self.recent = recent
        self._scope = scope
        self.receive = receive

    @property
    def hub(self) -> Hub:
        """The hub that it is about."""
        return self.host.hub

    def path(self, name: str) -> str:
        """A variable part of the path."""
        found: str = self._scope["path_params"][name]
        return found

    @property
    def session_key(self) -> str:
        """The conversation that its headers name; empty for none."""
        return next((x for x in map(self._label, SESSION_HEADERS) if x), "")

    @property
    def key(self) -> str:
        """Under which it counts once; empty for none."""
        return self._label(b"idempotency-key")

    @property
    def is_retry(self) -> bool:
        """Whether an official client says that it has sent the request before."""
        return self._label(b"x-stainless-retry-count").lstrip("0").isdecimal()

    @property
    def last_event_id(self) -> str | None:
        """The last event that a browser has seen of the stream it takes up again."""
        return self._label(b"last-event-id") or None

    def query(self) -> dict[str, str]:
        """The values of its query, by name."""
        try:
            pairs = parse_qsl(
                self._scope.get("query_string", b"").decode("ascii"), errors="strict",
                keep_blank_values=True, max_num_fields=100,
            )  # fmt: skip
        except (UnicodeError, ValueError):
            raise Refused(400, "the query cannot be read") from None
        return dict(pairs)

    async def body(self) -> RequestBody:
        """Its body, a JSON object.  Raises ``Refused``, ``Refusal`` and ``ClientGone``."""
        content = await read_body(self._scope, self.receive, self.host)
        media_type = header_of(self._scope, b"content-type").partition(";")[0].strip().lower()
        if media_type not in ("", "application/json") and not media_type.endswith("+json"):
            raise Refused(415, "Unsupported content type: send application/json.")
        return RequestBody(content)

    def _label(self, name: bytes) -> str:
        found = header_of(self._scope, name).strip()
        if len(found) > MAX_KEY:
            raise Refused(400, f"the header {name.decode()} is longer than {MAX_KEY} characters")
        return found


OpenAiHandler: TypeAlias = Callable[[OpenAiRequest], Awaitable[ASGIApp]]


class OpenAiEndpoint:
    """Answers by what ``handler`` returns, an ASGI app, or by the error that it raises."""

    __slots__ = ("_handler", "_host", "_leaving", "_recent")

    def __init__(
        self, host: Host, leaving: Leaving, recent: RecentRequests, handler: OpenAiHandler
    ) -> None:
        self._host = host
        self._leaving = leaving
        self._recent = recent
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = OpenAiRequest(self._host, self._leaving, self._recent, scope, receive)
        try:
            answer = await self._handler(request)
        except Exception as error:
            refused = refused_of(error)
            if refused is None:
                raise
            answer = JsonAnswer.of(refused)
        await answer(scope, receive, send)


def is_openai_path(scope: Scope) -> bool:
    """Whether a request is for OpenAI's API."""
    path: str = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
    return path == "/v1" or path.startswith("/v1/")


def openai_answer(refusal: Refusal) -> HttpAnswer:
    """What the app refuses, before any endpoint or for one, as such a client reads it."""
    code = "invalid_api_key" if refusal.status == 401 else None
    answer = JsonAnswer.of(Refused(refusal.status, refusal.detail, code=code))
    headers = {**refusal.headers, **answer.headers}
    return HttpAnswer(status=answer.status, content=answer.body, headers=headers)


def named(ignored: Iterable[str]) -> dict[str, str]:
    """The header that names what a request asks for and does not get."""
    names = [name for name in ignored if _NAME.fullmatch(name)][:32]
    return {"x-hubbub-ignored": ", ".join(names)} if names else {}


_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
