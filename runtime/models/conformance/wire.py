"""``ProviderWire``: what the checks must know of a provider's interface, given by its author.

It is the provider's side of the wire, written independently of the client under test: best from
the provider's own documentation and types, and proven by its official client.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeAlias

from hubbub.agents.model import Delta, Model, ModelReply, ModelRequest
from hubbub.runtime.models.conformance.samples import HELLO
from hubbub.runtime.models.conformance.server import LoopbackServer, ServerAnswer, serving
from hubbub.runtime.models.http.provider import Provider

__all__ = ["ClosableModel", "ProviderCheck", "ProviderWire", "answered", "model_at"]


class ClosableModel(Model, Protocol):
    """A model that owns connections."""

    async def aclose(self) -> None:
        """Close the connections that the running loop opened.  Idempotent."""
        ...


class ProviderWire(Protocol):
    """A provider's interface as a server has it.

    One whose ``provider`` has a URL with variables in it has ``environ`` as well, their values.
    """

    provider: Provider
    path: str
    """Where requests arrive."""
    key_header: str
    """The header that holds the key, in lower case."""
    stop_reasons: Mapping[str, str]
    """What a reply without calls may end with: the provider's word to ours."""
    final_events: int
    """How many of the last events of a stream it takes to say that it is complete."""
    unreadable: Sequence[bytes]
    """Events that are JSON and yet none of the interface, as a second event of a stream."""

    def make(
        self, server: str, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> ClosableModel:
        """A model named ``the-model`` behind ``server``, given as ``http://HOST:PORT``."""
        ...

    def body(self, request: ModelRequest) -> bytes:
        """The body that such a model sends for ``request``, without sending it."""
        ...

    def problems(self, body: Any) -> list[str]:
        """What the provider would refuse in a decoded body."""
        ...

    def said(self, body: Any) -> list[tuple[str, str]]:
        """The texts of a decoded body in order, each with whose it is: ``"assistant"``, or other.

        What was said in one message is one text.
        """
        ...

    def stream(self, reply: ModelReply) -> list[bytes]:
        """``reply`` as server-sent events; a stop reason that is not ours is sent as it is."""
        ...

    def whole(self, reply: ModelReply) -> bytes:
        """``reply`` as one JSON body, as from a server that does not stream."""
        ...

    def carried(self, reply: ModelReply) -> ModelReply:
        """What of ``reply`` the interface can carry."""
        ...


ProviderCheck: TypeAlias = Callable[[ProviderWire], Awaitable[None]]
"""A check: it raises ``AssertionError`` where the model is wrong."""


@asynccontextmanager
async def model_at(
    wire: ProviderWire, server: LoopbackServer, **options: Any
) -> AsyncIterator[ClosableModel]:
    """A model behind ``server``, closed at the end."""
    model = wire.make(server.url, **options)
    try:
        yield model
    finally:
        await model.aclose()


async def answered(wire: ProviderWire, answer: ServerAnswer) -> tuple[ModelReply, list[Delta]]:
    """What a model without a key makes of ``answer``, and its deltas."""
    deltas: list[Delta] = []
    async with serving(answer) as server, model_at(wire, server) as model:
        reply = await model.call(HELLO, deltas.append)
        (sent,) = server.requests
    assert sent.path == wire.path, sent.path
    assert wire.key_header not in sent.headers, "a server of one's own needs no key"
    assert wire.problems(sent.json()) == []
    return reply, deltas
