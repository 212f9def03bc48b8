"""``Delivery``: an answer on its way to a client: streamed, or whole once it is there.

Following ──► StreamedAnswer: server-sent events, a comment in silence, [DONE]
         └──► whole_answer: one body
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel
from starlette.types import Receive, Scope, Send

from hubbub.channels.http.openai.answers.following import Following, Teller
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.refusals import Refused, refused_of
from hubbub.channels.http.openai.leaving import Leaving
from hubbub.channels.http.wire.bodies import ClientGone
from hubbub.channels.http.wire.host import Host
from hubbub.hub.tasks.outermost import start_in

__all__ = ["Attendance", "StreamedAnswer", "wait_for_answer"]

MAX_SEND: Final = 65_536
"""Bytes that are handed to the server at once."""

DONE: Final = b"data: [DONE]\n\n"


Tell: TypeAlias = Callable[[list[bytes]], Awaitable[None]]


class Attendance:
    """One client that waits for an answer; when it leaves early, ``leaving`` sees to its run."""

    __slots__ = ("_host", "_leaving", "is_thrown_away", "question")

    def __init__(
        self,
        host: Host,
        leaving: Leaving,
        question: ClientQuestion,
        *,
        is_thrown_away: bool = False,
    ) -> None:
        self._host = host
        self._leaving = leaving
        self.question = question
        self.is_thrown_away = is_thrown_away

    async def follow(self, teller: Teller, receive: Receive, tell: Tell) -> bool:
        """Have ``tell`` what comes, until the answer is there; False if the client has left.

        Raises ``Refused`` when the app closes.
        """
        run_id, ending = self.question.run_id, self._host.ending
        try:
            with self._leaving.attending(run_id):
                async with anyio.create_task_group() as group:
                    scope = group.cancel_scope
                    start_in(group, _watch(receive, scope), name="client of an answer")
                    start_in(group, _wait_for(ending, scope), name="end of an app")
                    async with Following(self._host.hub, self.question, teller) as following:
                        while not teller.is_over and (told := await following.next()) is not None:
                            await tell(told)
                    scope.cancel()
        finally:
            is_closing = ending.is_set() or self._host.hub.is_closed
            if self.is_thrown_away and not teller.is_over and not is_closing:
                self._leaving.left(run_id)
        if is_closing and not teller.is_over:
            raise Refused(503, "the service is shutting down")
        return teller.is_over


async def _wait_for(ending: anyio.Event, scope: anyio.CancelScope) -> None:
    await ending.wait()
    scope.cancel()


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            scope.cancel()
            return


async def wait_for_answer(attendance: Attendance, teller: Teller, receive: Receive) -> None:
    """Return when the answer is there.  Raises ``ClientGone``, and ``Refused`` at the end."""
    try:
        if not await attendance.follow(teller, receive, _tell_nobody):
            raise ClientGone
    except* Exception as group:
        raise _only(group) from None


async def _tell_nobody(told: list[bytes]) -> None:
    """The answer is sent when it is whole."""
    await anyio.lowlevel.checkpoint()


def _only(group: BaseExceptionGroup[Exception]) -> Exception:
    found: Exception | BaseExceptionGroup[Exception] = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class StreamedAnswer:
    """An answer as an ASGI app: server-sent events."""

    __slots__ = ("_attendance", "_first", "_headers", "_teller", "_trouble")

    def __init__(
        self,
        attendance: Attendance,
        teller: Teller,
        first: list[bytes],
        trouble: Callable[[Refused], bytes],
        headers: Mapping[str, str],
    ) -> None:
        self._attendance = attendance
        self._teller = teller
        self._first = first
        self._trouble = trouble
        """How it is told that nothing more comes."""
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until it is whole, or its client has left."""
        headers = {
            "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store",
            "x-accel-buffering": "no", **self._headers,
        }  # fmt: skip
        await send({
            "type": "http.response.start", "status": 200,
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
        })  # fmt: skip
        await _send_all(send, self._first)
        try:
            is_whole = await self._attendance.follow(
                self._teller, receive, lambda told: _send_all(send, told)
            )
        except* Exception as group:
            refused = refused_of(_only(group))
            if refused is None:
                raise
            await _send_all(send, [self._trouble(refused)])
            is_whole = True
        if is_whole:
            await send({"type": "http.response.body", "body": DONE})


async def _send_all(send: Send, pieces: list[bytes]) -> None:
    if not pieces:
        await anyio.lowlevel.checkpoint()
        return
    body = b"".join(pieces)
    for at in range(0, len(body), MAX_SEND):
        await send({
            "type": "http.response.body", "body": body[at : at + MAX_SEND], "more_body": True,
        })  # fmt: skip
