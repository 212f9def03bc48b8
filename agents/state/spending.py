"""``Spent``: what model calls have used, and which limit that reaches."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE, Event, Limits, Usage
from hubbub.hub.near_misses import shown

__all__ = ["NOTHING_SPENT", "Spent", "limits_problems", "used_up", "with_call", "with_event"]

NANOS: Final = 1_000_000_000


class Spent(Struct, frozen=True, gc=False):
    """What model calls have used.

    ``input_tokens`` are all that the models were shown, cached ones included, whichever way the
    provider counts; ``cost`` is known only where that of every call is.
    """

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nanos: int = 0
    """The known part of the cost, in billionths."""
    unpriced: int = 0
    """Calls whose cost is not known."""

    @property
    def cost(self) -> float | None:
        """In the currency of the prices; ``None`` where it is not known of every call."""
        return None if self.unpriced else self.nanos / NANOS

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.model_calls + other.model_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.nanos + other.nanos,
            self.unpriced + other.unpriced,
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(
            self.model_calls - other.model_calls,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.nanos - other.nanos,
            self.unpriced - other.unpriced,
        )


NOTHING_SPENT: Final = Spent()


def with_call(spent: Spent, usage: Usage, cached_apart: bool, nanos: int | None) -> Spent:
    """After one more call.

    ``cached_apart``: the provider counts what it cached beside the input, not in it.
    """
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    apart = cached_apart or cached > usage.input_tokens
    return Spent(
        spent.model_calls + 1,
        spent.input_tokens + usage.input_tokens + (cached if apart else 0),
        spent.output_tokens + usage.output_tokens,
        spent.nanos + (nanos or 0),
        spent.unpriced + (nanos is None),
    )


def with_event(spent: Spent, event: Event) -> Spent:
    """After an event of a run's own lane."""
    match event:
        case e.AgentStep():
            return with_call(spent, event.usage, event.cached_apart, event.cost_nanos)
        case e.SessionCompaction() if event.summary or event.usage != NO_USAGE:
            return with_call(spent, event.usage, event.cached_apart, event.cost_nanos)
        case _:
            return spent


# ── limits ───────────────────────────────────────────────────────────────────────────────────


def used_up(limits: Limits, spent: Spent, worked: int = 0) -> str:
    """The name of what is used up, the first one of several; empty where nothing is.

    ``worked`` are the microseconds at work.
    """
    for name in ("model_calls", "input_tokens", "output_tokens"):
        most = getattr(limits, name)
        if most is not None and getattr(spent, name) >= most:
            return name
    if limits.cost is not None and spent.nanos >= limits.cost * NANOS:
        return "cost"
    if limits.seconds is not None and worked >= limits.seconds * 1_000_000:
        return "seconds"
    return ""


def limits_problems(path: str, value: object) -> Iterable[str]:
    """What is wrong with the limits of a definition."""
    if value is not None and not isinstance(value, Limits):
        yield f"{path}: expected Limits(…), not {shown(value)}"
