"""``Dialect``: what a service that speaks Chat Completions makes of ``ModelSettings``.  Pure.

The interface is one, the fields beside the messages differ from service to service.  What a
service lacks is refused when a runtime is built; of a server whose kind nobody knows, nothing is,
and it gets the fields that most of them have.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from msgspec import Struct

from hubbub.agents.settings import ModelSettings

__all__ = ["EFFORTS", "OPENAI_DIALECT", "PLAIN", "Dialect"]

EFFORTS: Final[Mapping[str, str]] = MappingProxyType(
    {"off": "none"} | {x: x for x in ("minimal", "low", "medium", "high", "xhigh", "max")}
)
"""OpenAI's words for levels of thinking."""


class Dialect(Struct, frozen=True, kw_only=True):
    """The fields of one service."""

    name: str = "openai"
    """What stands before the colon of its models."""
    title: str = "the server"
    """The service in sentences."""
    url: str = ""
    """Where a key is required."""
    key_variable: str = "OPENAI_API_KEY"
    max_tokens: str = "max_tokens"
    """The field that bounds the answer."""
    seed: str = "seed"
    max_stops: int = 16
    tiers: tuple[str, ...] = ()
    """The words that ``service_tier`` may be; none: they are not known here."""
    lacks: frozenset[str] = frozenset()
    """Settings that it does not have."""
    thinking: Literal["effort", "reasoning", "switch"] = "effort"
    """``reasoning_effort``; ``reasoning`` with effort or tokens; ``thinking`` on or off beside
    ``reasoning_effort``."""
    efforts: Mapping[str, str] = EFFORTS
    """Its word for each level that it has."""

    counts_unasked: bool = False
    """Whether it says what was used without ``stream_options``, which it does not know."""
    returns_thinking: bool = False
    """Whether it refuses an assistant's calls without the ``reasoning_content`` they came with."""
    signs_calls: bool = False
    """Whether it refuses an assistant's calls without the signature they came with."""
    short_ids: bool = False
    """Whether ids of calls have nine letters and digits."""
    takes: frozenset[str] = frozenset(("image",))
    """The kinds of parts that its models are shown; others are named to them in words."""
    schemas: Literal["", "alone", "always"] = ""
    """Whether answers can be bound to a JSON Schema by ``response_format``: by all of its models,
    where there are no tools (``alone``), or beside them as well."""
    keeps_by_key: bool = False
    """Whether it takes ``prompt_cache_key``; most servers refuse fields that they do not know."""

    def fields(self, settings: ModelSettings) -> dict[str, Any]:
        """The fields of a body for ``settings``."""
        fields = {
            name: value
            for name, value in (
                ("temperature", settings.temperature),
                ("top_p", settings.top_p),
                (self.max_tokens, settings.max_tokens),
                ("stop", list(settings.stop) or None),
                (self.seed, settings.seed),
                ("service_tier", settings.service_tier),
            )
            if value is not None
        }
        if settings.thinking is not None:
            fields |= self._thinking_fields(settings.thinking)
        return fields

    def _thinking_fields(self, thinking: str | int) -> dict[str, Any]:
        if self.thinking == "switch":
            if thinking == "off":
                return {"thinking": {"type": "disabled"}}
            effort = self.efforts[str(thinking)]
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        if isinstance(thinking, int):
            return {"reasoning": {"max_tokens": thinking}}
        effort = self.efforts.get(thinking, thinking)
        if self.thinking == "reasoning":
            return {"reasoning": {"effort": effort}}
        return {"reasoning_effort": effort}

    def problems(self, settings: ModelSettings) -> Iterable[str]:
        """What of ``settings`` the service does not have, each with the remedy."""
        for name in settings.given:
            if name in self.lacks:
                yield f"{name}: {self.title} has none; leave it out"
        if "stop" not in self.lacks and len(settings.stop) > self.max_stops:
            yield f"stop: {self.title} takes at most {self.max_stops}, not {len(settings.stop)}"
        tier = settings.service_tier
        if tier is not None and self.tiers and tier not in self.tiers:
            known = ", ".join(map(repr, self.tiers))
            yield f"service_tier: {self.title} has {known}, not {tier!r}"
        if settings.thinking is not None and "thinking" not in self.lacks:
            yield from self._thinking_problems(settings.thinking)

    def _thinking_problems(self, thinking: str | int) -> Iterable[str]:
        levels = ", ".join(map(repr, self.efforts))
        if isinstance(thinking, int):
            if self.thinking != "reasoning":
                yield f"thinking: {self.title} takes no number of tokens; give one of {levels}"
        elif thinking not in self.efforts:
            yield f"thinking: {self.title} has {levels}, not {thinking!r}"


PLAIN: Final = Dialect()
"""That of a server whose kind is not known."""

OPENAI_DIALECT: Final = Dialect(
    title="OpenAI",
    url="https://api.openai.com/v1",
    takes=frozenset(("image", "document", "audio")),
    max_tokens="max_completion_tokens",
    max_stops=4,
    keeps_by_key=True,
    schemas="always",
    tiers=("auto", "default", "flex", "scale", "priority", "fast"),
)
"""OpenAI's own."""
