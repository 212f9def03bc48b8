"""``HttpModel``: what the clients of all providers have in common: a name, and a way to ask.

A client adds how a request becomes a body and what reads its answer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hubbub.agents.model import ModelReply, OnDelta
from hubbub.hub.errors import MissingKey
from hubbub.hub.values import Secret
from hubbub.runtime.models.http.address import clean_headers, clean_key
from hubbub.runtime.models.http.endpoint import Endpoint, Receiver, encode_body
from hubbub.runtime.models.http.errors import ProviderOrigin
from hubbub.runtime.models.http.halves import WholeDeltas, whole_reply
from hubbub.runtime.models.http.windows import window_of

__all__ = ["HttpModel", "add_options", "opening_headers"]


class ReplyReader(Receiver, Protocol):
    """What takes an answer and has the reply in the end."""

    def reply(self, name: str) -> ModelReply:
        """The reply; ``name`` is the model's where the answer does not say it."""
        ...


class HttpModel:
    """A model that is reached over HTTP.

    Usable on any event loop, from any number of runs; ``aclose`` frees the connections of the
    running loop.
    """

    def __init__(self, name: str, endpoint: Endpoint, *, hosted_by: str) -> None:
        """``hosted_by``: the service whose own address it is reached at; ``""`` elsewhere."""
        self._name = name
        self._endpoint = endpoint
        self._hosted_by = hosted_by

    @property
    def name(self) -> str:
        """The model's name at the provider."""
        return self._name

    @property
    def window(self) -> int:
        """How many tokens it can be shown; 0 where nobody knows, as behind another address."""
        return window_of(self._hosted_by, self._name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {self._endpoint.origin.url!r})"

    async def _ask(
        self,
        body: dict[str, Any],
        reader: Callable[[ProviderOrigin, OnDelta | None], ReplyReader],
        on_delta: OnDelta | None,
    ) -> ModelReply:
        """One attempt; a cut, refused or unreadable answer raises ``ProviderError``."""
        origin = self._endpoint.origin
        deltas = None if on_delta is None else WholeDeltas(on_delta)
        answer = reader(origin, deltas)
        await self._endpoint.post(encode_body(body, origin), answer)
        reply = whole_reply(answer.reply(self._name))
        if deltas is not None:
            deltas.end()
        return reply

    async def aclose(self) -> None:
        """Free the connections of the running loop."""
        await self._endpoint.aclose()


def opening_headers(
    key: str | Secret | None,
    basic: Secret | None,
    headers: Mapping[str, str] | None,
    *,
    missing: MissingKey | None,
    header: str = "authorization",
) -> dict[str, Secret]:
    """What opens a provider: its key, userinfo of the URL, and headers of the caller's, which win.

    Raises ``missing`` where there is no key, and ``BadValue`` for what cannot be in a header.
    """
    opening = {} if basic is None else {"authorization": basic}
    if (clean := clean_key(key)) is not None:
        is_bearer = header == "authorization"
        opening[header] = Secret(f"Bearer {clean.reveal()}") if is_bearer else clean
    elif missing is not None:
        raise missing
    return opening | clean_headers(headers)


def add_options(body: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Put a request's own fields over the others; one that is ``None`` is taken out."""
    for name, value in options.items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value
