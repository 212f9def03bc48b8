"""``Delivery``: an answer on its way to a client: streamed, or whole once it is there.

Following ──► StreamedAnswer: server-sent events, a comment in silence, [DONE]
         └──► whole_answer: one body
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel
from starlette.types import Message, Receive, Scope, Send

from hubbub.channels.http.openai.answers.following import Following, Teller
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.refusals import Refused, refused_of
from hubbub.channels.http.openai.leaving import Leaving
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.outgoing import Outgoing
from hubbub.channels.http.wire.problems import ClientGone, Refusal
from hubbub.hub.tasks.outermost import start_in

__all__ = ["Attendance", "StreamedAnswer", "wait_for_answer"]

MAX_SEND: Final = 65_536
"""Bytes that are handed to the server at once."""

DONE: Final = b"data: [DONE]\n\n"

CLOSING: Final = (
    "the service is shutting down; what was said is kept, and is answered when it is back: ask for "
    "the response then, or send the request again only with its Idempotency-Key"
)

Tell: TypeAlias = Callable[[list[bytes]], Awaitable[None]]


class Attendance:
    """One client that waits for an answer; when it leaves early, ``leaving`` sees to its run."""

    __slots__ = ("_is_keyed", "_leaving", "_question", "_teller", "host")

    def __init__(
        self,
        host: Host,
        leaving: Leaving,
        question: ClientQuestion,
        teller: Teller,
        *,
        is_keyed: bool = False,
    ) -> None:
        self.host = host
        self._is_keyed = is_keyed
        """Whether the same request counts once, however often it is sent."""
        self._leaving = leaving
        self._question = question
        self._teller = teller

    async def follow(self, receive: Receive, first: list[bytes], tell: Tell) -> bool:
        """Have ``tell`` what is ``first`` and what comes, until the answer is there; False if the
        client has left.

        Raises ``Refused`` when the app closes, and what the hub and ``tell`` raise.
        """
        host, teller = self.host, self._teller
        try:
            with self._leaving.attending(self._question.run_id):
                await tell(first)
                await self._follow(receive, tell)
        finally:
            is_closing = host.ending.is_set() or host.hub.is_closed
            if not teller.is_over and not is_closing:
                self._leaving.left(self._question)
        if is_closing and not teller.is_over:
            raise Refused(503, CLOSING, is_heard=not self._is_keyed)
        return teller.is_over

    async def _follow(self, receive: Receive, tell: Tell) -> None:
        failures: list[Exception] = []
        try:
            async with anyio.create_task_group() as group:
                scope = group.cancel_scope
                start_in(group, _watch(receive, scope), name="client of an answer")
                start_in(group, _wait_for(self.host.ending, scope), name="end of an app")
                try:
                    await self._tell(tell)
                except Exception as error:
                    failures.append(error)
                scope.cancel()
        except ExceptionGroup as raised:
            failures.append(_only(raised))
        # Raised neither through the task group nor where a group is handled: exceptions that
        # refer to each other would keep in memory what was to be told.
        if failures:
            raise failures.pop(0)

    async def _tell(self, tell: Tell) -> None:
        teller = self._teller
        async with Following(self.host.hub, self._question, teller) as following:
            while not teller.is_over and (told := await following.next()) is not None:
                await tell(told)


def _only(group: "ExceptionGroup[Exception]") -> Exception:
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


async def _wait_for(ending: anyio.Event, scope: anyio.CancelScope) -> None:
    await ending.wait()
    scope.cancel()


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            scope.cancel()
            return


async def wait_for_answer(attendance: Attendance, receive: Receive) -> None:
    """Return when the answer is there.  Raises ``ClientGone``, and ``Refused`` at the end."""
    if not await attendance.follow(receive, [], _tell_nobody):
        raise ClientGone


async def _tell_nobody(told: list[bytes]) -> None:
    """The answer is sent when it is whole."""
    await anyio.lowlevel.checkpoint()


class StreamedAnswer:
    """An answer as an ASGI app: server-sent events."""

    __slots__ = ("_attendance", "_first", "_headers", "_trouble")

    def __init__(
        self,
        attendance: Attendance,
        first: list[bytes],
        trouble: Callable[[Refused], bytes],
        headers: Mapping[str, str],
    ) -> None:
        self._attendance = attendance
        self._first = first
        self._trouble = trouble
        """How it is told that nothing more comes."""
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until it is whole, or its client has left."""
        outgoing = Outgoing(self._attendance.host, scope)
        with outgoing.watched(send) as sending:
            await self._stream(receive, sending, outgoing)

    async def _stream(self, receive: Receive, send: Send, outgoing: Outgoing) -> None:
        has_begun = False

        async def tell(told: list[bytes]) -> None:
            nonlocal has_begun
            try:
                outgoing.reserve(sum(map(len, told)))
            except Refusal as refusal:
                told.clear()  # Who catches this, and tells it, holds this call.
                if not has_begun:
                    raise
                raise Refused(429, refusal.detail) from None
            try:
                if not has_begun:
                    has_begun = True
                    await send(self._start())
                await _send_all(send, told)
            finally:
                outgoing.release()

        try:
            is_whole = await self._attendance.follow(receive, self._first, tell)
        except Exception as error:
            refused = refused_of(error)
            if refused is None:
                raise
            await tell([self._trouble(refused)])
            is_whole = True
        if is_whole:
            await send({"type": "http.response.body", "body": DONE})

    def _start(self) -> Message:
        headers = {
            "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store",
            "x-accel-buffering": "no", **self._headers,
        }  # fmt: skip
        pairs = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        return {"type": "http.response.start", "status": 200, "headers": pairs}


async def _send_all(send: Send, pieces: list[bytes]) -> None:
    """Send them, and use them up."""
    if not pieces:
        await anyio.lowlevel.checkpoint()
        return
    for body in _bodies(pieces):
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _bodies(pieces: list[bytes]) -> Iterator[bytes]:
    """The pieces in bodies of a size; what was sent is kept here no longer."""
    pieces.reverse()
    held = bytearray()
    while pieces:
        piece = pieces.pop()
        if len(held) + len(piece) > MAX_SEND and held:
            yield bytes(held)
            held.clear()
        if len(piece) <= MAX_SEND:
            held += piece
            continue
        for at in range(0, len(piece), MAX_SEND):
            yield piece[at : at + MAX_SEND]
    if held:
        yield bytes(held)
