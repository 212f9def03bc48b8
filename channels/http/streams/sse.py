"""Server-sent events, as a plain ASGI app.

    retry: 1000, id: where it begins
    id / event / data           an event; durable ones have an id
    : ping                      after 15 s of silence at the latest (or event: hub:ping)
    event: hub:live             everything that was on record has been given, if asked for
    event: hub:gap              events are missing here: the position was not found
    event: hubbub:end           the regular end, with its reason; without it the stream was cut

What waits is written at once, as one piece of at most 64 KiB.  A client that is slower than the
events come is served from the journal: it gets every durable one, late, and holds up nobody.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from hubbub.channels.http.streams.connections import (
    STORE_FAILED,
    AsgiMessage,
    Connection,
    Connections,
)
from hubbub.channels.http.streams.frames import Frames, batches, sse_frame, sse_of
from hubbub.channels.http.streams.positions import cursor_of_position
from hubbub.channels.http.streams.wanted import RunWanted, Wanted, WantedEvents, patterns
from hubbub.channels.http.wire.bodies import read_query
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import header_of
from hubbub.hub.errors import OperatorError
from hubbub.hub.near_misses import shown

__all__ = ["END", "EventsQuery", "RunEventsQuery", "RunSse", "Sse"]

END: Final = "hubbub:end"
"""The type of the frame before every regular end."""

RETRY: Final = 1000
"""Milliseconds after which a browser reconnects."""

PINGS: Final[Mapping[str, AsgiMessage]] = {
    "comment": {"type": "http.response.body", "body": b": ping\n\n", "more_body": True},
    "event": {
        "type": "http.response.body", "body": b"event: hub:ping\ndata: {}\n\n", "more_body": True,
    },
}  # fmt: skip
"""Signs of life.  Programs see comments; a browser's ``EventSource`` shows its page events only."""

HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would wait for more.
    (b"x-content-type-options", b"nosniff"),
)


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: of any of these runs and trees, or of all; of these types (patterns, commas).

    ``after`` is a position, or ``start``; the header ``Last-Event-ID`` goes before it.  Without
    either the stream begins now.  ``ping``: what is sent in silences, a ``comment`` or an
    ``event`` (``hub:ping``).  With ``live`` a ``hub:live`` comes when everything on record has.
    """

    run_id: tuple[str, ...] = ()
    root_run_id: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    after: str = ""
    ping: Literal["comment", "event"] = "comment"
    live: bool = False


class RunEventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events of the run; with ``tree`` also those of all below it.

    ``ping``: what is sent in silences, a ``comment`` or an ``event`` (``hub:ping``).  With ``live``
    a ``hub:live`` comes when everything on record has.
    """

    types: tuple[str, ...] = ()
    after: str = ""
    tree: bool = False
    ping: Literal["comment", "event"] = "comment"
    live: bool = False


Asked: TypeAlias = EventsQuery | RunEventsQuery


class SseWriter:
    """Writes streams of one app's hub to its clients."""

    def __init__(self, host: Host, connections: Connections) -> None:
        self._host = host
        self._connections = connections
        self._frames = Frames(host.hub, sse_of)

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, listening: WantedEvents, query: Asked
    ) -> None:
        """Answer a request with a stream, until that ends or the client has left."""
        if query.live:
            listening.mark_live()
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *HEADERS]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        connection = Connection(send, listening.stream.close)

        async def work() -> None:
            await connection.write(start)
            await self._write(connection, listening)

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await self._connections.serve(scope, connection, work, listen, PINGS[query.ping])

    async def _write(self, connection: Connection, listening: WantedEvents) -> None:
        frames, reason = self._frames, ""
        await connection.write(_body(_opening(listening)))
        try:
            while (events := await listening.take()) is not None:
                for batch in batches(map(frames.of, events)):
                    await connection.write(_body(batch))
                await self._connections.rest()
        except OperatorError:  # The journal cannot be read or written any more.
            reason = STORE_FAILED
        reason = connection.reason or reason or self._reason()
        end = sse_frame(END, msgspec.json.encode({"reason": reason}))
        await connection.write(_body(end, more=False))

    def _reason(self) -> str:
        """Why a stream has ended by itself."""
        return "closed" if self._host.hub.is_closed else "run ended"


class Sse:
    """The stream of everything, or of several runs and trees."""

    def __init__(self, host: Host, writer: SseWriter) -> None:
        self._host = host
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.  Raises ``Refusal`` and what ``hub.subscribe`` raises."""
        query: EventsQuery = read_query(scope, EventsQuery)
        wanted = Wanted(
            types=patterns(query.types), run_ids=query.run_id, root_run_ids=query.root_run_id,
            after=after(scope, query.after),
        )  # fmt: skip
        async with wanted.listen(self._host.hub) as listening:
            await self._writer.answer(scope, receive, send, listening, query)


class RunSse:
    """The stream of one run, until that ends.

    From a position behind its end there is nothing: 204, by which a browser reconnects no more.
    """

    def __init__(self, host: Host, writer: SseWriter) -> None:
        self._host = host
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.  Raises ``Refusal`` and what ``hub.subscribe`` raises."""
        query: RunEventsQuery = read_query(scope, RunEventsQuery)
        hub, run_id = self._host.hub, scope["path_params"]["run_id"]
        known = await hub.read(run_id, limit=1)
        if not known:
            raise Refusal("unknown-run", f"no run {shown(run_id)} is known here")
        wanted = RunWanted(
            run_id=run_id, root_run_id=known[0].root_run_id, types=patterns(query.types),
            after=after(scope, query.after), tree=query.tree,
        )  # fmt: skip
        async with wanted.listen(hub) as listening:
            # Asked when the stream has begun: what ends the run meanwhile is in the stream.
            if await wanted.is_over(hub):
                await send({"type": "http.response.start", "status": 204, "headers": [*HEADERS]})
                await send({"type": "http.response.body", "body": b""})
                return
            listening.shows = await wanted.shown(hub)
            await self._writer.answer(scope, receive, send, listening, query)


def after(scope: Scope, asked: str) -> str | None:
    """The cursor to continue behind; what a browser kept goes before what its page asked for."""
    position = header_of(scope, b"last-event-id") or asked
    return cursor_of_position(position) if position else None


def _opening(listening: WantedEvents) -> bytes:
    """Where the stream begins, so that one that is cut before its first event can continue."""
    place = f"id: {listening.position}\n" if listening.is_new else ""
    return f"retry: {RETRY}\n{place}\n".encode()


def _body(body: bytes, *, more: bool = True) -> AsgiMessage:
    return {"type": "http.response.body", "body": body, "more_body": more}
