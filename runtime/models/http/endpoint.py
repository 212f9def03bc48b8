"""``Endpoint``: one attempt at a provider's streaming HTTP interface.

    body ──POST──▶ provider ──bytes──▶ SseDecoder ──data──▶ Receiver (one per call)

What every call through it keeps:

* exactly one attempt, which ends in the receiver being complete or in one ``ProviderError``;
* bounded: 64 MiB a stream, 8 MiB an event, 16 MiB an answer that is one JSON body, 64 KiB of an
  error, 10 s to connect, 300 s without a byte (reasoning models are silent for minutes); the
  limit on the whole call is the caller's;
* cancellation at any await closes the response and its connection;
* redirects are not followed, and the answer is asked for uncompressed: bounded means bounded;
* the key is put in by the last step before the wire, so that it is in no header mapping,
  local variable or exception of ours, and errors of httpx, which hold it, are not chained.

There is one ``httpx.AsyncClient`` per event loop: a connection pool cannot change loops.  It is
made at the first call, so importing this module does not import httpx.  The proxy variables of
the environment are httpx's own business and are honoured, except for loopback addresses.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

import anyio
import msgspec
from anyio.lowlevel import checkpoint, current_token

from hubbub.hub.errors import ProviderError
from hubbub.hub.values import Secret
from hubbub.runtime.models.http.address import is_loopback
from hubbub.runtime.models.http.errors import MAX_ERROR_BYTES, ProviderOrigin, error_message
from hubbub.runtime.models.http.halves import UNREADABLE
from hubbub.runtime.models.http.inflate import CannotInflate, Inflater
from hubbub.runtime.models.http.sse import EventTooLarge, SseDecoder

if TYPE_CHECKING:
    import httpx

__all__ = ["IDLE_SECONDS", "Endpoint", "Receiver", "encode_body"]

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
"""The most that an answer may hold which is no stream: it is decoded at once."""
MAX_CONNECTIONS: Final = 256
CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 300.0
CLOSE_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 0.1
"""How long a finished answer may take to close its body, which frees the connection for reuse."""

_KEY_HEADERS: Final = frozenset({"authorization", "x-api-key"})


class Receiver(Protocol):
    """What makes a reply of one answer.

    ``event`` and ``body`` raise ``msgspec.DecodeError`` for what they cannot read, and a
    ``ProviderError`` for an error that the provider reports inside the answer.
    """

    def event(self, data: bytes) -> bool:
        """Take one event's data; true when the reply is complete."""
        ...

    def body(self, data: bytes) -> None:
        """Take a whole JSON body, from a server that does not stream."""
        ...

    def may_end(self) -> bool:
        """Whether the stream may end where it stands."""
        ...


class Endpoint:
    """A provider's URL with its keys and connections; used by one model object.

    ``secret_headers`` go out with every request and show nowhere.  Closing frees the
    connections of the running loop; a later call opens new ones.
    """

    def __init__(
        self,
        model: str,
        url: str,
        *,
        key_variable: str,
        headers: Mapping[str, str],
        secret_headers: Mapping[str, Secret],
        idle_timeout: float = IDLE_SECONDS,
    ) -> None:
        keyed = not _KEY_HEADERS.isdisjoint(secret_headers)
        self.origin = ProviderOrigin(model, url, key_variable, keyed, _quotable(secret_headers))
        self._headers = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "hubbub",
            **headers,
        }
        self._secret_headers = dict(secret_headers)
        self._idle_timeout = idle_timeout
        self._clients: WeakKeyDictionary[object, httpx.AsyncClient] = WeakKeyDictionary()

    async def post(self, body: bytes, receiver: Receiver) -> None:
        """Send ``body`` and feed ``receiver`` until it is complete; raises ``ProviderError``."""
        import httpx

        failure: Exception | None
        try:
            failure = await self._exchange(body, receiver)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            failure = self._translate(error)
        # Raised here, outside of any handler: nothing of httpx becomes its context.
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Close the connections that the running loop opened.  Idempotent."""
        client = self._clients.pop(current_token().native_token, None)
        if client is not None:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await client.aclose()

    async def _exchange(self, body: bytes, receiver: Receiver) -> Exception | None:
        client = self._client()
        async with client.stream(
            "POST", self.origin.url, content=body, headers=self._headers, auth=self._sign
        ) as response:
            if response.status_code != 200:
                excerpt = _Excerpt()
                await self._pump(response, excerpt.feed)
                message = error_message(bytes(excerpt.data))
                return self.origin.refusal(response.status_code, message, response.headers)
            if "text/html" in response.headers.get("content-type", ""):
                return self.origin.not_a_model()
            answer = _Answer(self.origin, receiver)
            failure = await self._pump(response, answer.feed)
            if failure is None and not answer.is_complete:
                failure = answer.end()
            return failure

    async def _pump(
        self, response: "httpx.Response", feed: Callable[[bytes], bool]
    ) -> Exception | None:
        """Feed the body's chunks until ``feed`` returns true; returns what went wrong.

        httpx reads through nested async generators, which must not be left half-way (Trio
        reports each one).  So whatever stops the reading, also an error of ``feed``, does so by
        cancelling the pending read, which unwinds them all from within.
        """
        import httpx

        failure: Exception | None = None
        done = False
        with anyio.CancelScope() as scope:
            try:
                inflater = Inflater(response.headers.get("content-encoding", ""))
                async for chunk in response.aiter_raw():
                    if done or failure is not None:
                        continue
                    try:
                        # Here too, as what is compressed may become nothing.
                        self._check_size(response.num_bytes_downloaded)
                        done = await _feed_all(inflater.feed(chunk), feed)
                    except CannotInflate as error:
                        failure = self.origin.garbled(str(error))
                        scope.cancel()
                    except Exception as error:
                        failure = error
                        scope.cancel()
                    if done:
                        scope.deadline = anyio.current_time() + DRAIN_SECONDS
            except CannotInflate as error:
                failure = self.origin.garbled(str(error))
            except httpx.TimeoutException:
                if not done:
                    failure = failure or self._silence()
            except httpx.TransportError:
                if not done:
                    failure = failure or self.origin.cut("the connection broke")
        return failure

    def _check_size(self, size: int) -> None:
        if size > MAX_ANSWER_BYTES:
            raise self.origin.too_large(MAX_ANSWER_BYTES)

    def _silence(self) -> ProviderError:
        return self.origin.unreachable("timeout", f"nothing came for {self._idle_timeout:g} s")

    def _translate(self, error: Exception) -> ProviderError:
        import httpx

        origin = self.origin
        match error:
            case httpx.ConnectTimeout():
                problem = f"no connection within {CONNECT_SECONDS:g} s; is the server running?"
                return origin.unreachable("timeout", problem)
            case httpx.TimeoutException():
                return self._silence()
            case httpx.LocalProtocolError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
                # The text of these may quote a header's value.
                return origin.unwritable(f"check the base URL {origin.url} and the key")
            case httpx.ConnectError() | httpx.ProxyError() | OSError():
                problem = f"no connection ({_detail(error)}); is the server running?"
                return origin.unreachable("connection", problem)
            case _:
                return origin.unreachable("connection", "the connection broke before an answer")

    def _sign(self, request: "httpx.Request") -> "httpx.Request":
        for name, value in self._secret_headers.items():
            request.headers[name] = value.reveal() or ""
        return request

    def _client(self) -> "httpx.AsyncClient":
        import httpx

        loop = current_token().native_token
        client = self._clients.get(loop)
        if client is None:
            plain = self.origin.url.startswith("http:")
            client = self._clients[loop] = httpx.AsyncClient(
                # Reading the certificates takes 20 ms and more; plain HTTP needs none of them.
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True,
                trust_env=not is_loopback(self.origin.url),
                timeout=httpx.Timeout(
                    self._idle_timeout, connect=CONNECT_SECONDS, write=60.0, pool=None
                ),
                limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=32),
            )
        return client


async def _feed_all(pieces: Iterator[bytes], feed: Callable[[bytes], bool]) -> bool:
    """Feed them, others being at work in between; whether the answer is complete.

    Cancelled, it stops; that is raised by the read that comes next, see ``_pump``.
    """
    for number, piece in enumerate(pieces):
        if number:
            with anyio.CancelScope(shield=True):
                await checkpoint()
            if anyio.current_effective_deadline() <= anyio.current_time():
                return False
        if feed(piece):
            return True
    return False


def _detail(error: BaseException) -> str:
    """What the operating system or TLS said; on Trio only the cause of the cause knows."""
    at: BaseException | None = error
    while at is not None:
        if text := str(at):
            return text[:200]
        at = at.__cause__ or at.__context__
    return type(error).__name__


def _quotable(secret_headers: Mapping[str, Secret]) -> tuple[Secret, ...]:
    """What to look for in a provider's messages: keys, also without the word ``Bearer``."""
    texts = (value.reveal() or "" for value in secret_headers.values())
    # Nothing as short as a version or a flag: every sentence would be full of stars.
    return tuple(Secret(part) for text in texts for part in text.split() if len(part) >= 8)


class _Answer:
    """Sorts the bytes of an answer into events or one JSON body, within the limits."""

    def __init__(self, origin: ProviderOrigin, receiver: Receiver) -> None:
        self._origin = origin
        self._receiver = receiver
        self._decoder = SseDecoder()
        self._size = 0
        self._events = 0
        self._head = b""
        self._body: bytearray | None = None
        self.is_complete = False

    def feed(self, chunk: bytes) -> bool:
        self._size += len(chunk)
        if self._size > MAX_ANSWER_BYTES:
            raise self._origin.too_large(MAX_ANSWER_BYTES)
        if self._body is not None:
            return self._keep(chunk)
        if self._events == 0 and not self._head:
            # No event stream begins with a brace: this server ignores ``stream``.
            self._head = chunk.lstrip()[:1]
            if self._head == b"{":
                self._body = bytearray()
                return self._keep(chunk)
        try:
            return any(map(self._take, self._decoder.feed(chunk)))
        except EventTooLarge as error:
            return self._fail(str(error))

    def _keep(self, chunk: bytes) -> bool:
        if self._size > MAX_BODY_BYTES:
            raise self._origin.too_large(MAX_BODY_BYTES)
        assert self._body is not None
        self._body += chunk
        return False

    def end(self) -> ProviderError | None:
        """The body has ended: the error, if that was too early."""
        if self._body is not None:
            try:
                self._receiver.body(bytes(self._body))
            except UNREADABLE as error:
                return self._origin.garbled(f"as a whole JSON body, {error}")
            except ProviderError as error:
                return error
            return None
        try:
            for data in self._decoder.flush():
                if self._receiver.event(data):
                    return None
        except ProviderError as error:
            return error
        except UNREADABLE:
            # The last event, unfinished: cut off rather than garbled.
            return self._origin.cut()
        return None if self._receiver.may_end() else self._origin.cut()

    def _take(self, data: bytes) -> bool:
        self._events += 1
        try:
            self.is_complete = self._receiver.event(data)
        except UNREADABLE as error:
            return self._fail(f"event {self._events}: {error}")
        return self.is_complete

    def _fail(self, detail: str) -> bool:
        raise self._origin.garbled(detail) from None


class _Excerpt:
    """The first bytes of an error's body."""

    def __init__(self) -> None:
        self.data = bytearray()

    def feed(self, chunk: bytes) -> bool:
        self.data += chunk[: MAX_ERROR_BYTES - len(self.data)]
        return len(self.data) >= MAX_ERROR_BYTES


def encode_body(body: Mapping[str, Any], origin: ProviderOrigin) -> bytes:
    """``body`` as JSON; raises ``ModelRefused`` if something in it is no JSON."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half a surrogate pair, from a tool's output: no UTF-8 holds it, so it becomes "?".
        return msgspec.json.encode(_without_surrogates(body))
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"its options or a tool's schema are not JSON: {error}"
    raise origin.unwritable(problem)


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case Mapping():
            return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
        case list() | tuple():
            return [_without_surrogates(each) for each in value]
        case _:
            return value
