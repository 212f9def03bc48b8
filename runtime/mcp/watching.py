"""``Watched``: a transport whose server is listened to before the SDK is.

what the client asks    noted, by its id
what the server says    its end is told, and its notifications; its answers are made usable
"""

from collections import Counter
from contextlib import AbstractAsyncContextManager
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Final, Self, TextIO

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.methods import parse_server_notification
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from hubbub.runtime.mcp.answers import Unusable, usable_answer
from hubbub.runtime.mcp.told import Told

__all__ = ["LIST_CHANGED", "Streams", "Watched"]

Streams = Any
"""What the SDK calls ``TransportStreams``."""

MAX_ASKED: Final = 10_000
"""Requests without an answer that are remembered."""

MAX_QUESTIONS: Final = 1_000
"""Requests of a server that may wait for an answer: one that asks and does not listen is left."""

LIST_CHANGED: Final = "notifications/tools/list_changed"

_READ: Final = frozenset(
    (LIST_CHANGED, "notifications/cancelled", "notifications/subscriptions/acknowledged")
)
"""Notifications that somebody here reads; of others a server may send any number, of any form."""


_UNSAID: Final = frozenset(("Server returned an error response", "Not Found", "Session terminated"))
"""What the SDK says for an HTTP status, where the server has said nothing that it understands."""


_SDK_SAYS: Final = ("SSE stream ", "server answered a request with 202")
"""Begins what the SDK says itself of an answer over HTTP that never came, in its server's place."""


class Watched:
    """A transport that says when its server has ended."""

    def __init__(
        self,
        transport: AbstractAsyncContextManager[Streams],
        told: Told,
        errlog: TextIO | None = None,
    ) -> None:
        self._transport = transport
        self._told = told
        self._errlog = errlog

    async def __aenter__(self) -> Streams:
        read, write = await self._transport.__aenter__()
        if self._errlog is not None:
            self._errlog.close()  # The server has it now, and nobody else: its end is seen.
        asked = _Asked(self._told)
        return _Heard(read, self._told, asked), _Said(write, asked)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(exc_type, exc, traceback)


class _Asked:
    """What the client has asked and the server has not answered."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._requests: dict[str, JSONRPCRequest] = {}
        self._questions = 0
        """What the server has asked and neither had answered nor taken back."""
        self._open: Counter[str] = Counter()
        """The same by ids, but for those whose answers are being given."""

    def questioned(self, message: JSONRPCRequest) -> bool:
        """The server asks something; whether that is not too much at once."""
        self._questions += 1
        self._open[str(message.id)] += 1
        return self._questions <= MAX_QUESTIONS

    def taken_back(self, message: JSONRPCNotification) -> None:
        """The server wants no answer to a question any longer: it gets none."""
        if self._is_closed(str((message.params or {}).get("requestId"))):
            self._questions -= 1

    def answering(self, message: JSONRPCResponse | JSONRPCError) -> None:
        """The client gives an answer, which the server has yet to take."""
        self._is_closed(str(message.id))

    def _is_closed(self, question: str) -> bool:
        """Whether one of that id was open; now it is not."""
        count = self._open.pop(question, 0)
        if count > 1:
            self._open[question] = count - 1
        return count > 0

    def note(self, message: Any) -> None:
        """The client has sent this."""
        if isinstance(message, JSONRPCRequest):
            self._requests[str(message.id)] = message
            self._told.calls.sent(str(message.id))
            if len(self._requests) > MAX_ASKED:
                del self._requests[next(iter(self._requests))]
        elif isinstance(message, JSONRPCNotification) and message.method.endswith("/cancelled"):
            self._requests.pop(str((message.params or {}).get("requestId")), None)
        elif isinstance(message, JSONRPCResponse | JSONRPCError):
            self._questions -= 1

    def answered(self, message: JSONRPCResponse | JSONRPCError) -> JSONRPCResponse | JSONRPCError:
        """The server has sent this: what of it is usable, or what is wrong with it."""
        if isinstance(message, JSONRPCError) and message.id is None:
            message.id = self._only_request()
        request = self._requests.pop(str(message.id), None)
        refusal = self._told.refusals.pop(str(message.id), "")
        if isinstance(message, JSONRPCError):
            return self._refused(message, request, refusal)
        self._told.calls.answered(str(message.id))
        if request is None:
            return message
        is_modern = PROTOCOL_VERSION_META_KEY in ((request.params or {}).get("_meta") or {})
        try:
            message.result = usable_answer(
                request.method, message.result, is_modern=is_modern, admits=self._told.admits
            )
        except Unusable as problem:
            error = ErrorData(code=PARSE_ERROR, message=str(problem))
            return JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        return message

    def _only_request(self) -> int | str | None:
        """Which request the server cannot tell; None where it may be at work on more than one."""
        if len(self._requests) == 1 and self._told.calls.are_among(self._requests):
            return next(iter(self._requests.values())).id
        return None

    def _refused(
        self, message: JSONRPCError, request: JSONRPCRequest | None, refusal: str
    ) -> JSONRPCError:
        """An error, which the SDK may have said: that does not show that the server is done."""
        is_status = bool(refusal) and message.error.message in _UNSAID
        said_by_sdk = is_status or message.error.message.startswith(_SDK_SAYS)
        if not said_by_sdk:
            self._told.calls.answered(str(message.id))
        if request is None:
            return message
        if is_status:
            error = ErrorData(code=INVALID_REQUEST, message=refusal)
            return JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        if message.error.code == CONNECTION_CLOSED and not said_by_sdk:
            message.error.code = INTERNAL_ERROR  # By the other one the SDK says that it ended.
        return message


class _Stream:
    """One direction of a transport, closed as it is."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        found: bool | None = await self._stream.__aexit__(exc_type, exc, traceback)
        return found


class _Said(_Stream):
    """What the client says."""

    def __init__(self, stream: Any, asked: _Asked) -> None:
        super().__init__(stream)
        self._asked = asked

    async def send(self, item: Any) -> None:
        if isinstance(item.message, JSONRPCRequest | JSONRPCNotification):
            self._asked.note(item.message)
            await self._stream.send(item)
        else:  # An answer counts as given once the server has taken it.
            self._asked.answering(item.message)
            await self._stream.send(item)
            self._asked.note(item.message)


class _Heard(_Stream):
    """What a server says, up to its end."""

    def __init__(self, stream: Any, told: Told, asked: _Asked) -> None:
        super().__init__(stream)
        self._told = told
        self._asked = asked
        self.last_context: Context | None = None
        """In which what was received last is handled; None for any."""

    async def receive(self) -> Any:
        while True:
            try:
                item = await self._stream.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._told.ended()
                raise
            self.last_context = getattr(self._stream, "last_context", None)
            message = item.message if isinstance(item, SessionMessage) else None
            if isinstance(message, JSONRPCNotification):
                if message.method not in _READ:
                    continue
                if not _is_sound(message):
                    if message.method != LIST_CHANGED:
                        continue
                    message.params = None  # That it has changed is all that matters.
                if message.method == "notifications/cancelled":
                    self._asked.taken_back(message)
                # Here, in the order in which it was said: before the result that it came with.
                self._told.notified(message.method)
            elif isinstance(message, JSONRPCResponse | JSONRPCError):
                item.message = self._asked.answered(message)
            elif isinstance(message, JSONRPCRequest):
                if not self._asked.questioned(message):
                    self._told.fault = f"it asks more than {MAX_QUESTIONS:,} things at once"
                    self._told.ended()
                    raise anyio.EndOfStream
                if message.method == "elicitation/create":
                    # Here, in the order in which it was said: before the answer to its call.
                    given = self.last_context
                    self.last_context = copy_context() if given is None else given.copy()
                    self.last_context.run(self._told.calls.tell_asker)
            return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _is_sound(message: JSONRPCNotification) -> bool:
    """Whether a notification has what belongs to it: else the SDK would log its words, with a
    traceback, as often as it is sent."""
    for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION):
        try:
            parse_server_notification(message.method, version, message.params)
        except KeyError:
            continue  # This generation of the protocol does not know it.
        except ValueError:
            return False
    return True
