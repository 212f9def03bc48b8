"""``Price``: what a model costs, and what a call of it has cost."""

from msgspec import Struct

from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import NO_USAGE, Usage
from hubbub.hub.events.limits import MOST
from hubbub.hub.near_misses import shown, told_fields

__all__ = ["Price"]


class Price(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """What a model costs per million tokens, in a currency of your own choice.

    ``cache_read`` is for input that the provider finds in its cache, ``cache_write`` for input that
    it puts there; without them it costs what other input does.  Each is below 10**18.  Raises
    ``DefinitionError``.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        problems = [
            f"{name}: expected a number, at least 0 and below 10**18, not {shown(value)}"
            for name in Price.__struct_fields__
            if not _is_price(value := getattr(self, name), may_miss=name.startswith("cache"))
        ]
        if problems:
            raise DefinitionError("Price", problems)

    def nanos(self, usage: Usage, *, cached_apart: bool) -> int | None:
        """What a call costs, in billionths, rounded; ``None`` where that is not known: where no
        usage was reported, since every call uses tokens, unless they cost nothing.

        ``cached_apart``: the provider counts what it cached beside the input, not in it.
        """
        if usage == NO_USAGE and (self.input or self.output):
            return None
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        plain = usage.input_tokens
        if not (cached_apart or read + write > plain):
            plain -= read + write
        at_read = self.input if self.cache_read is None else self.cache_read
        at_write = self.input if self.cache_write is None else self.cache_write
        cost = plain * self.input + read * at_read + write * at_write
        # A price per million tokens is a thousand billionths per token.
        return round((cost + usage.output_tokens * self.output) * 1000)


def _is_price(value: object, *, may_miss: bool) -> bool:
    if value is None:
        return may_miss
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < MOST
