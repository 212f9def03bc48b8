"""``OpenRequests``: an app as its servers call it, with what must be known of its requests.

    server ──► OpenRequests ──► app        counted while it is open
                    ▲            │
                    └────────────┘         scope["extensions"]["hubbub.ending"](function)

An app that streams hands a function to ``hubbub.ending``: it is called once, when the server is
about to end, and ends the app's streams with a last frame.  The function comes with a request, so
an app that is mounted in another one needs nothing more.
"""

from collections.abc import Callable
from typing import Any, Final

import anyio

from hubbub.channels.http.serving.asgi import AsgiApp, Receive, Scope, Send
from hubbub.hub.logs import log

__all__ = ["ENDING", "OpenRequests"]

ENDING: Final = "hubbub.ending"


class OpenRequests:
    """Calls ``app``, counts its requests under way and tells it when to end its streams."""

    def __init__(self, app: AsgiApp, state: dict[str, Any]) -> None:
        self._app = app
        self._state = state
        self._open = 0
        self._none = anyio.Event()
        self._is_ending = False
        self._endings: dict[Callable[[], object], None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**(scope.get("extensions") or {}), ENDING: self.at_end}
        self._open += 1
        try:
            await self._app(
                {**scope, "extensions": extensions, "state": self._state.copy()}, receive, send
            )
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    def at_end(self, end: Callable[[], object]) -> None:
        """Have ``end`` called, once, when the server is about to end; at once if it is ending."""
        if self._is_ending:
            _call(end)  # Also again: this request has come since.
        else:
            self._endings[end] = None

    def end(self) -> None:
        """Tell the app to end its streams; idempotent."""
        if not self._is_ending:
            self._is_ending = True
            for end in tuple(self._endings):
                _call(end)

    async def wait_none(self) -> None:
        """Return when no request is under way."""
        while self._open:
            self._none = anyio.Event()
            await self._none.wait()


def _call(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception as error:
        log.error("http.ending_failed", exc_info=error)
