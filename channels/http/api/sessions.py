"""Sessions of browsers, where a token is set."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route

__all__ = ["SessionBody", "session_routes"]


class SessionBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The token."""

    token: str

    def __repr__(self) -> str:
        return "<token>"


class Sessions(Protocol):
    """Who begins and ends them."""

    def check_login(self, scope: Mapping[str, Any], given: str) -> None: ...
    def begin_session(self, scope: Mapping[str, Any]) -> str: ...
    def end_session(self, scope: Mapping[str, Any]) -> str: ...


def session_routes(sessions: Sessions) -> tuple[Route, ...]:
    """The routes by which a browser gets its cookie, and gives it back."""

    async def begin(call: HttpCall) -> HttpAnswer:
        sessions.check_login(call.scope, call.body.token)
        return HttpAnswer(status=204, headers={"set-cookie": sessions.begin_session(call.scope)})

    async def end(call: HttpCall) -> HttpAnswer:
        return HttpAnswer(status=204, headers={"set-cookie": sessions.end_session(call.scope)})

    return (
        Route(
            method="POST", path="/api/session", summary="Begin a browser's session",
            handler=begin, body=SessionBody, answers={204: None}, is_open=True,
        ),
        Route(
            method="DELETE", path="/api/session", summary="End a browser's session",
            handler=end, answers={204: None}, is_open=True,
        ),
    )  # fmt: skip
