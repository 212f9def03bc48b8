"""``HttpApp``: a hub as an ASGI app.

    request ──► place (Host, Origin) ──► rate ──► route ──► token ──► query, body ──► handler
                                                       └──► asgi (streams, files of the inspector)

Whatever goes wrong on this way is a ``Refusal`` and answered as problem details.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio
from starlette.types import Message, Receive, Scope, Send

from hubbub.channels.attachment import Channels
from hubbub.channels.channel import Channel, ChannelContext
from hubbub.channels.http.access import PREFLIGHT, Access, client_of
from hubbub.channels.http.counts import Counts
from hubbub.channels.http.dispatch import Paths
from hubbub.channels.http.openai.endpoint import is_openai_path, openai_answer
from hubbub.channels.http.routes import table
from hubbub.channels.http.wire.bodies import (
    check_framing,
    check_key,
    read_body,
    read_json,
    read_query,
)  # fmt: skip
from hubbub.channels.http.wire.host import SOURCE, Host
from hubbub.channels.http.wire.incoming import Incoming
from hubbub.channels.http.wire.limits import HttpLimits
from hubbub.channels.http.wire.outgoing import Outgoing
from hubbub.channels.http.wire.problems import MEDIA_TYPE, ClientGone, Refusal, refusal_of
from hubbub.channels.http.wire.route import Content, HttpAnswer, HttpCall, Route, mount_of
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of
from hubbub.hub.near_misses import kind_of

__all__ = ["HttpApp"]

GRACE: Final = 5.0
"""Seconds that streams are given to say that they end."""


LAST_WORDS: Final = 0.5
"""Seconds that the answer to a request takes at most which its server has cancelled."""

ENDING: Final = "hubbub.ending"
"""The extension by which a server of ours calls ``end_streams`` before it ends."""


class HttpApp:
    """A hub over HTTP: an ASGI app to be served or mounted.

        rt = Runtime([support])
        app = HttpApp(rt.hub)
        async with rt, app:
            await serve(app, port=8700)

    It is the hub's channel ``http`` from ``async with app`` on; requests before and after that are
    answered by 503.  It can be entered once.

    * ``token``: what a client has to show (``Authorization: Bearer``); a browser gets a session for
      it.  Without one only requests from this machine are served, to a name of this machine.
    * ``hosts``: further names by which the server may be asked; with a token and without hosts it
      may be asked by any.  ``origins``: other sites whose pages may ask (CORS); none by default.
    * ``inspector`` and ``openai``: whether the page and the endpoints of OpenAI are there.
    * ``limits``: see ``HttpLimits``.

    Raises ``BadValue``.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        token: str | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        inspector: bool = True,
        openai: bool = True,
        limits: HttpLimits | None = None,
    ) -> None:
        if not isinstance(hub, Hub):
            raise BadValue("HttpApp", f"expected a Hub (rt.hub), not {kind_of(hub)}")
        limits = limits or HttpLimits()
        self.hub = hub
        self.access = Access(hub, limits, token, hosts, origins)
        self._host = Host(hub, limits)
        self._counts = Counts(hub, limits)
        self._has_openai = openai
        self.routes = table(self._host, self.access, inspector=inspector, openai=openai)
        """What it serves."""
        self._paths = Paths(self.routes)
        self._channels: Channels | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._channels is not None:
            raise CallerError("this app has been entered already; make a new one")
        self._channels = Channels(self.hub, Channel(SOURCE, on_start=self._begin))
        await self._channels.start()
        return self

    def _begin(self, context: ChannelContext) -> None:
        self._host.context = context

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.end_streams()
            with anyio.move_on_after(GRACE):
                await self._counts.wait_without_streams()
        finally:
            self._host.context = None
            if self._channels is not None:
                await self._channels.stop()

    def end_streams(self) -> None:
        """Have every open stream say that it ends, and end; no new one begins.  Idempotent."""
        self._host.end()

    @property
    def is_protected(self) -> bool:
        """Whether a token is demanded, so that other machines may be served."""
        return self.access.has_token

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return self._counts.open_streams

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hold one connection, as ASGI has it."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if register := (scope.get("extensions") or {}).get(ENDING):
            register(self.end_streams)
        has_begun = False
        incoming = Incoming(self._host, scope, receive)

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if message["type"] == "http.response.start":
                cors = self.access.cors_headers(scope)
                message = {**message, "headers": [*message["headers"], *cors]}
            try:
                if _is_last(message) and incoming.is_unread:
                    await send({**message, "more_body": True})
                    await incoming.discard()
                    message = {"type": "http.response.body", "body": b""}
                await send(message)
            except OSError:
                raise ClientGone from None

        with suppress(ClientGone):
            try:
                refusal = await self._answer(scope, incoming.receive, sending)
            except anyio.get_cancelled_exc_class():  # By a server that does not wait any longer.
                if not has_begun:
                    with anyio.move_on_after(LAST_WORDS, shield=True):
                        await self._refuse(scope, sending, _closed())
                raise
            # What was begun cannot be taken back: the server cuts it.
            if refusal is not None and not has_begun:
                await self._refuse(scope, sending, refusal)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        try:
            if self.access.is_preflight(scope):
                await self._send(scope, send, HttpAnswer(status=204), PREFLIGHT)
                return None
            check_framing(scope)
            self.access.check_place(scope)
            client = client_of(scope)
            self._counts.check_rate(client)
            route, path = self._paths.find(scope)
            if not route.is_open:
                self.access.check_token(scope)
            if not route.is_open or route.body is not None:
                self._check_open(route)
            with self._counted(route, client):
                if route.asgi is not None:
                    await route.asgi({**scope, "path_params": path}, receive, send)
                else:
                    await self._handle(route, path, scope, receive, send)
        except ClientGone:
            raise
        except Exception as error:
            return refusal_of(error) or self._defect(error, scope)
        return None

    def _counted(self, route: Route, client: str) -> AbstractContextManager[None]:
        if route.is_stream:
            return self._counts.stream(client)
        if not route.is_counted:
            return nullcontext()
        return self._counts.request(client, is_open=route.is_open and self.access.has_token)

    def _check_open(self, route: Route) -> None:
        hub, host = self.hub, self._host
        if hub.is_closed or host.context is None or (route.is_stream and host.ending.is_set()):
            raise _closed()

    async def _handle(
        self, route: Route, path: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        assert route.handler is not None
        host = self._host
        query = read_query(scope, route.query)
        if route.is_keyed:
            check_key(scope)
        body: Any = None
        if isinstance(route.body, Content):
            body = await read_body(scope, receive, host, most=host.limits.file_bytes)
        elif route.body is not None:
            most = host.limits.open_bytes if route.is_open else None
            body = await read_json(scope, receive, route.body, host, form=route.form, most=most)
        outgoing = Outgoing(host, scope)
        try:
            answer = await route.handler(HttpCall(host, scope, path, query, body, outgoing))
            await self._send(scope, send, answer, outgoing=outgoing)
        finally:
            outgoing.release()

    async def _send(
        self,
        scope: Scope,
        send: Send,
        answer: HttpAnswer,
        more: tuple[tuple[bytes, bytes], ...] = (),
        *,
        outgoing: Outgoing | None = None,
    ) -> None:
        body = answer.body
        if outgoing is not None:
            outgoing.reserve(len(body))
        headers = [
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *((k.encode("latin-1"), v.encode("latin-1")) for k, v in answer.headers.items()),
            *more,
        ]
        if answer.status not in (204, 304):
            headers.insert(0, (b"content-type", answer.media_type.encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        shown = b"" if scope["method"] == "HEAD" else body
        if outgoing is None:
            await send({"type": "http.response.body", "body": shown})
        else:
            await outgoing.write(send, shown)

    def _defect(self, error: Exception, scope: Scope) -> Refusal:
        """What nobody has foreseen: the store's failure, or a defect."""
        if self.hub.journal.failure:
            return Refusal("store-failed", f"store {self.hub.journal.name} has failed")
        mask = self.hub.masker()
        log.error(
            "http.failed", path=scope.get("path", ""), error=mask(class_name_of(error)),
            exc_info=mask.error(error),
        )  # fmt: skip
        return Refusal("internal-error", "see the log of the program")

    async def _refuse(self, scope: Scope, send: Send, refusal: Refusal) -> None:
        if scope["type"] == "websocket":
            await _refuse_socket(scope, send, refusal)
            return
        answer = HttpAnswer(
            status=refusal.status, content=refusal.body(mount_of(scope)), media_type=MEDIA_TYPE,
            headers=refusal.headers,
        )  # fmt: skip
        if self._has_openai and is_openai_path(scope):
            answer = openai_answer(refusal)
        await self._send(scope, send, answer)


def _is_last(message: Message) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)


def _closed() -> Refusal:
    return Refusal("closed", "this app is not at work", headers={"retry-after": "1"})


async def _refuse_socket(scope: Scope, send: Send, refusal: Refusal) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        code = 1013 if refusal.status in (429, 503) else 1008  # "Try again later", or refused.
        await send({"type": "websocket.close", "code": code, "reason": refusal.detail[:100]})
        return
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        *((k.encode("latin-1"), v.encode("latin-1")) for k, v in refusal.headers.items()),
    ]
    await send(
        {"type": "websocket.http.response.start", "status": refusal.status, "headers": headers}
    )
    await send({"type": "websocket.http.response.body", "body": refusal.body(mount_of(scope))})


async def _live(receive: Receive, send: Send) -> None:
    """A server's lifespan: the app is entered by ``async with``, which the program does."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return
