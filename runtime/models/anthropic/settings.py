"""What ``ModelSettings`` are to the Messages interface, model family by family.  Pure.

    temperature, top_p      as they are; gone since Opus 4.7, and no temperature while it thinks
    max_tokens              as it is; required, so a family has a default (``default_tokens``)
    stop                    stop_sequences
    thinking "off"          nothing where it is off anyway; {"type": "disabled"}; Sonnet 5.5 has
                            "between_tools"; Opus 5.5, Fable and Mythos always think
    thinking, a level       {"type": "adaptive"} with output_config.effort; before Opus 4.6 a budget
    thinking, a budget      {"type": "enabled", "budget_tokens": …}; gone since Opus 4.7
    service_tier            "auto" or "standard_only"
    seed                    none

A family is read from a model's name; one that is unknown here counts as the newest if it is a
Claude, and as of the oldest that thinks if it is another maker's behind this interface, where
budgets are the form that is understood.  As of November 2026.

Since Fable 5.1 a thought is bound to what was said before it, all thoughts included: Anthropic
refuses a request in which that has changed, as it does by a list of children, by a summary, by
another model.  These families are asked to leave such thoughts out instead (``BINDING``), and get
every thought back, not only those of turns with calls.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.settings import ModelSettings

__all__ = ["BETA", "binds", "default_tokens", "settings_fields", "settings_problems"]

BETA: Final = "thinking-binding-controls-2026-08-01"
"""The value of ``anthropic-beta`` that ``BINDING`` needs."""
BINDING: Final = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
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
    off: str | None = ""
    """The type of ``thinking`` that turns it off; empty: it is off, ``None``: it cannot be."""
    binds: bool = False
    """Whether its thoughts are bound to what was before them."""


_EFFORTS: Final = {"minimal": "low"} | {x: x for x in ("low", "medium", "high", "xhigh", "max")}

_NEW: Final = _Family(efforts=_EFFORTS, samples=False, has_budgets=False)

_FAMILIES: Final = (
    (r"claude-(2|instant|3-(opus|sonnet|haiku))", _Family(tokens=4096, thinks=False)),
    (r"claude-3-5", _Family(tokens=8192, thinks=False)),
    # Up to 4.5: neither a further digit nor another minor version follows, but a date may.
    (r"claude-(3-7|4-|(opus|sonnet|haiku)-4(-[015])?(?!\d|-\d{1,2}(?!\d)))", _Family()),
    (r"claude-(opus|sonnet)-4-6", _Family(efforts=_EFFORTS | {"xhigh": "high"})),
    (r"claude-opus-4-[78]", _NEW),
    (r"claude-(opus|sonnet)-5(?!\d|-\d{1,2}(?!\d))", replace(_NEW, off="disabled")),
    (r"claude-haiku-5", replace(_NEW, off="disabled", binds=True)),
    (r"claude-sonnet-5", replace(_NEW, off="between_tools", binds=True)),
    (r"claude-(fable|mythos)-(preview|5(?!\d|-\d{1,2}(?!\d)))", replace(_NEW, off=None)),
    (r"claude", replace(_NEW, off=None, binds=True)),
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


def binds(model: str) -> bool:
    """Whether a model's thoughts are bound to what was before them."""
    return _family(model).binds


def settings_fields(settings: ModelSettings | None, model: str, max_tokens: int) -> dict[str, Any]:
    """The fields of the body for ``settings``; ``max_tokens`` where they do not say it."""
    family = _family(model)
    if settings is None or settings.thinking is None:
        always = {"thinking": {"type": "adaptive"} | BINDING} if family.binds else {}
        return always if settings is None else always | _fields(settings, family, max_tokens)
    return _fields(settings, family, max_tokens)


def _fields(settings: ModelSettings, family: _Family, max_tokens: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: value
        for name in ("temperature", "top_p", "max_tokens", "service_tier")
        if (value := getattr(settings, name)) is not None
    }
    if settings.stop:
        fields["stop_sequences"] = list(settings.stop)
    thinking = settings.thinking
    if thinking == "off":
        if family.off:
            fields["thinking"] = {"type": family.off}
    elif isinstance(thinking, str) and thinking in family.efforts:
        fields["thinking"] = {"type": "adaptive"} | (BINDING if family.binds else {})
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
    if settings.thinking == "off" and family.off is None:
        yield f'thinking: {model} always thinks; give "low", its least'
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
