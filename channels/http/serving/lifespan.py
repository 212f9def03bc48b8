"""``AppLifespan``: the startup and shutdown of an app, once, whatever becomes of its server."""

from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from hubbub.channels.http.serving.asgi import AsgiApp, Message
from hubbub.hub.logs import log
from hubbub.hub.tasks.outermost import start_in

__all__ = ["AppLifespan"]

PATIENCE: Final = 30.0
"""Seconds that an app may take to start, and again to shut down."""


class AppLifespan:
    """An app's startup and shutdown; an app without a lifespan is served as it is."""

    def __init__(self, app: AsgiApp) -> None:
        self.state: dict[str, Any] = {}
        """What the app has put there for its requests."""
        self._app = app
        # An app is shut down in order also when the caller is being cancelled.
        self._scope = anyio.CancelScope(shield=True)
        self._leave = anyio.Event()
        self._answered = anyio.Event()
        self._ended = anyio.Event()
        self._has_begun = False
        self._is_up = False
        self._failure = ""

    async def begin(self, group: TaskGroup) -> str:
        """Start the app in a task of ``group``; returns what has kept it from starting, or ""."""
        start_in(group, self._live(), name="http lifespan")
        try:
            with anyio.move_on_after(PATIENCE) as limit:
                await self._answered.wait()
        except BaseException:
            self._scope.cancel()
            raise
        if limit.cancelled_caught:
            self._failure = f"not within {PATIENCE:g} s"
        if self._failure:
            self._scope.cancel()
        return self._failure

    async def end(self) -> None:
        """Shut the app down, for at most 30 seconds."""
        self._leave.set()
        with anyio.CancelScope(shield=True), anyio.move_on_after(PATIENCE):
            await self._ended.wait()
        self._scope.cancel()

    async def _live(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            with self._scope:
                await self._app(scope, self._receive, self._send)
        except Exception as error:
            # Before the answer it means: no lifespan here.
            if self._is_up:
                log.error("http.lifespan_failed", exc_info=error)
        finally:
            self._answered.set()
            self._ended.set()

    async def _receive(self) -> Message:
        if not self._has_begun:
            self._has_begun = True
            return {"type": "lifespan.startup"}
        await self._leave.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self._is_up = True
                self._answered.set()
            case "lifespan.startup.failed":
                lines = str(message.get("message", "")).strip().splitlines()
                self._failure = lines[-1] if lines else "it did not say why"
                self._answered.set()
            case _:
                self._ended.set()
