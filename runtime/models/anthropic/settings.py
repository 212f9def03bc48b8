"""What ``ModelSettings`` are to the Messages interface, model family by family.  Pure.

    temperature, top_p      as they are; gone since Opus 4.7, and no temperature while it thinks
    max_tokens              as it is; required, so a family has a default (``default_tokens``)
    stop                    stop_sequences
    thinking "off"          {"type": "disabled"}
    thinking, a level       {"type": "adaptive"} with output_config.effort; before Opus 4.6 a budget
    thinking, a budget      {"type": "enabled", "budget_tokens": …}; gone since Opus 4.7
    service_tier            "auto" or "standard_only"
    seed                    none

A family is read from a model's name; one that is unknown here counts as the newest if it is a
Claude, and as of the oldest that thinks if it is another maker's behind this interface, where
budgets are the form that is understood.  As of November 2026.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from hubbub.agents.settings import ModelSettings

__all__ = ["default_tokens", "settings_fields", "settings_problems"]

MIN_BUDGET: Final = 1024
MIN_TOP_P: Final = 0.95
"""The least while it thinks."""

_TIERS: Final = ("auto", "standard_only")
_BUDGETS: Final = {
    "minimal": 1024, "low": 4096, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 28_672,
}  # fmt: skip
"""Tokens of a level where there are no levels; below each default, so that an answer has room."""


class _Family(Struct, frozen=True, kw_only=True):
    """What models of one generation have in common.

    ``tokens`` is the default of ``max_tokens``, not the most that they could write: what is
    reserved for the answer is not there for the conversation.
    """

    tokens: int = 32_000
    samples: bool = True
    has_budgets: bool = True
    efforts: Mapping[str, str] = {}
    """The provider's word for a level; none, where levels are budgets."""
    thinks: bool = True


_EFFORTS: Final = {"minimal": "low"} | {x: x for x in ("low", "medium", "high", "xhigh", "max")}

_FAMILIES: Final = (
    (r"claude-(2|instant|3-(opus|sonnet|haiku))", _Family(tokens=4096, thinks=False)),
    (r"claude-3-5", _Family(tokens=8192, thinks=False)),
    # Up to 4.5: neither a further digit nor another minor version follows, but a date may.
    (r"claude-(3-7|4-|(opus|sonnet|haiku)-4(-[015])?(?!\d|-\d{1,2}(?!\d)))", _Family()),
    (r"claude-(opus|sonnet)-4-6", _Family(efforts=_EFFORTS | {"xhigh": "high"})),
    (r"claude", _Family(efforts=_EFFORTS, samples=False, has_budgets=False)),
)
_OTHERS: Final = _Family(tokens=8192)
"""Another maker's model."""


def _family(model: str) -> _Family:
    found = (family for form, family in _FAMILIES if re.search(form, model.lower()))
    return next(found, _OTHERS)


def default_tokens(model: str) -> int:
    """``max_tokens`` where nobody has said it: 32,000 since Claude 3.7, of which each model can
    write at least that much; what older models can; 8,192 for models that are no Claude."""
    return _family(model).tokens


def settings_fields(settings: ModelSettings, model: str, max_tokens: int) -> dict[str, Any]:
    """The fields of the body for ``settings``; ``max_tokens`` where they do not say it."""
    family = _family(model)
    fields: dict[str, Any] = {
        name: value
        for name in ("temperature", "top_p", "max_tokens", "service_tier")
        if (value := getattr(settings, name)) is not None
    }
    if settings.stop:
        fields["stop_sequences"] = list(settings.stop)
    thinking = settings.thinking
    if thinking == "off":
        if family.thinks:
            fields["thinking"] = {"type": "disabled"}
    elif isinstance(thinking, str) and thinking in family.efforts:
        fields["thinking"] = {"type": "adaptive"}
        fields["output_config"] = {"effort": family.efforts[thinking]}
    elif thinking is not None:
        budget = _budget(settings, settings.max_tokens or max_tokens)
        fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
    return fields


def _budget(settings: ModelSettings, max_tokens: int) -> int:
    """The tokens for thinking; a level leaves at least half of them to the answer."""
    if isinstance(settings.thinking, int):
        return settings.thinking
    return max(MIN_BUDGET, min(_BUDGETS[settings.thinking or "medium"], max_tokens // 2))


def settings_problems(settings: ModelSettings, model: str, max_tokens: int) -> Iterable[str]:
    """What of ``settings`` the model does not have, each with the remedy."""
    family = _family(model)
    if settings.seed is not None:
        yield "seed: Anthropic has none; leave it out"
    tier = settings.service_tier
    if tier is not None and tier not in _TIERS:
        yield f"service_tier: Anthropic has 'auto' and 'standard_only', not {tier!r}"
    if settings.temperature is not None and settings.temperature > 1:
        yield "temperature: Anthropic's is from 0 to 1"
    for name in ("temperature", "top_p"):
        if getattr(settings, name) is not None and not family.samples:
            yield f"{name}: {model} has none any more; leave it out"
    if settings.thinks:
        yield from _thinking_problems(settings, family, model, settings.max_tokens or max_tokens)


def _thinking_problems(
    settings: ModelSettings, family: _Family, model: str, max_tokens: int
) -> Iterable[str]:
    budget = settings.thinking
    if not family.thinks:
        yield f"thinking: {model} cannot; leave it out, or name a newer model"
        return
    if isinstance(budget, int):
        if not family.has_budgets:
            yield f'thinking: {model} takes no number of tokens; give a level, such as "high"'
        elif budget < MIN_BUDGET:
            yield f"thinking: Anthropic's least budget is {MIN_BUDGET} tokens, not {budget}"
        elif budget >= max_tokens:
            yield (
                f"thinking: {budget} tokens are not below max_tokens, which is {max_tokens} and "
                f"holds the answer as well; set max_tokens above {budget}"
            )
    elif not family.efforts and max_tokens <= MIN_BUDGET:
        yield f"thinking: it takes at least {MIN_BUDGET} tokens; set max_tokens above that"
    if settings.temperature is not None and settings.temperature != 1 and family.samples:
        yield "temperature: none beside thinking at Anthropic; leave one of the two out"
    if settings.top_p is not None and settings.top_p < MIN_TOP_P and family.samples:
        yield f"top_p: beside thinking it is at least {MIN_TOP_P} at Anthropic"
