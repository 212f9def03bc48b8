"""``window_of``: how many tokens a model can be shown, by its name at the service that hosts it.

As of November 2026.  Where a service bounds what is shown apart from the answer, that bound counts.
A name that is not here is not known, and nothing is done by itself that depends on it; a prompt's
``Compaction(window=…)`` has the last word.
"""

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["WINDOWS", "window_of"]

WINDOWS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "anthropic": (
        (r"claude-(fable|mythos)-", 1_000_000),
        (r"claude-(opus|sonnet|haiku)-[5-9]", 1_000_000),
        (r"claude-opus-4-[678]", 1_000_000),
        (r"claude-sonnet-4-6", 1_000_000),
        (r"claude-(2|instant)", 100_000),
        (r"claude-", 200_000),
    ),
    "openai": (
        (r"gpt-5(\.\d+)?-chat", 128_000),
        (r"gpt-5", 272_000),
        (r"gpt-4\.1", 1_047_576),
        (r"(chatgpt-|gpt-)4o", 128_000),
        (r"gpt-4-(turbo|1106|0125|vision)", 128_000),
        (r"gpt-4-32k", 32_768),
        (r"gpt-4(-\d{4})?$", 8_192),
        (r"gpt-3\.5-turbo", 16_385),
        (r"o1-(mini|preview)", 128_000),
        (r"o[134]", 200_000),
    ),
    "gemini": ((r"gemini-(2|3)", 1_048_576),),
    "deepseek": ((r"deepseek-", 128_000),),
    "mistral": ((r"(mistral|magistral|ministral)-", 128_000),),
    "groq": ((r"(llama-3\.[13]|openai/gpt-oss)", 131_072),),
}
"""By service, the first form that a name begins with."""


def window_of(service: str, name: str) -> int:
    """The window of a service's model in tokens; 0 where it is not known."""
    rows = WINDOWS.get(service, ())
    return next((tokens for form, tokens in rows if re.match(form, name.lower())), 0)
