"""``SERVICES``: services and local servers that speak Chat Completions, each under its own name.

    groq:NAME   ollama:NAME   azure:DEPLOYMENT   bedrock:MODEL-ID

Addresses, variables and fields are those of the services' own documentation, read in November
2026.  What a record lacks of a newer field, ``provider_options`` can say.  Vertex is not among
them: its compatible endpoint takes no key but tokens that last an hour, for which a program makes
a model object anew.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from hubbub.runtime.models.http.provider import Provider
from hubbub.runtime.models.openai.dialect import EFFORTS, OPENAI_DIALECT, Dialect
from hubbub.runtime.models.openai.provider import OPENAI

__all__ = ["SERVICES"]

_NO_TIER: Final = frozenset(["service_tier"])
_NOTHING: Final[frozenset[str]] = frozenset()
"""What models are shown beside texts, where they read texts alone."""


def _levels(*names: str, **others: str) -> Mapping[str, str]:
    """Its word for each level: OpenAI's, or another."""
    return MappingProxyType({name: EFFORTS[name] for name in names} | others)


def _service(
    name: str, title: str, url: str, key_variable: str, *, needs_key: bool = True, **dialect: Any
) -> Provider:
    return Provider(
        name=name,
        title=title,
        url=url,
        url_variable=_URL_VARIABLES.get(name, f"{name.upper()}_BASE_URL"),
        key_variable=key_variable,
        client=OPENAI.client,
        needs_key=needs_key,
        options={
            "dialect": Dialect(
                name=name, title=title, key_variable=key_variable,
                url=url if needs_key else "", **dialect,
            )
        },
    )  # fmt: skip


_URL_VARIABLES: Final = {"azure": "AZURE_OPENAI_BASE_URL", "bedrock": "AWS_BEDROCK_BASE_URL"}
"""Where their makers have named it otherwise."""

_HOSTED: Final = (
    _service(
        "gemini", "Gemini", "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY", lacks=_NO_TIER, signs_calls=True, takes=frozenset(("image", "audio")),
        schemas="alone", efforts=_levels("off", "minimal", "low", "medium", "high"),
    ),
    _service(
        "mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", lacks=_NO_TIER,
        schemas="alone",
        seed="random_seed", counts_unasked=True, short_ids=True, efforts=_levels("off", "high"),
    ),
    _service(
        "groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", max_stops=4,
        max_tokens="max_completion_tokens", efforts=_levels("off", "low", "medium", "high"),
        tiers=("auto", "on_demand", "flex", "performance"),
    ),
    _service(
        "xai", "xAI", "https://api.x.ai/v1", "XAI_API_KEY", lacks=_NO_TIER, schemas="alone",
        efforts=_levels("off", "low", "medium", "high", "xhigh"),
    ),
    _service(
        "deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY",
        lacks=_NO_TIER | {"seed"}, thinking="switch", returns_thinking=True, takes=_NOTHING,
        efforts=_levels("off", "low", "high", "max", minimal="low", medium="high", xhigh="high"),
    ),
    _service(
        "openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY",
        lacks=_NO_TIER, thinking="reasoning", takes=OPENAI_DIALECT.takes,
    ),
    _service(
        "together", "Together", "https://api.together.xyz/v1", "TOGETHER_API_KEY",
        lacks=_NO_TIER, efforts=_levels("low", "medium", "high"),
    ),
    _service(
        "fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY",
        schemas="alone", efforts=_levels("off", "low", "medium", "high", "xhigh", "max"),
    ),
    _service(
        "cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", schemas="alone",
        max_tokens="max_completion_tokens", efforts=_levels("off", "low", "medium", "high"),
        takes=_NOTHING,
    ),
    _service(
        "azure", "Azure OpenAI", "{AZURE_OPENAI_ENDPOINT}/openai/v1", "AZURE_OPENAI_API_KEY",
        max_tokens="max_completion_tokens", max_stops=4, schemas="always",
    ),
    _service(
        "bedrock", "Amazon Bedrock", "https://bedrock-runtime.{AWS_REGION}.amazonaws.com/openai/v1",
        "AWS_BEARER_TOKEN_BEDROCK", max_tokens="max_completion_tokens",
    ),
)  # fmt: skip

_LOCAL: Final = tuple(
    _service(
        name, title, f"http://localhost:{port}/v1", f"{name.upper()}_API_KEY", needs_key=False,
        lacks=_NO_TIER, schemas="alone",
    )
    for name, title, port in (
        ("ollama", "Ollama", 11434),
        ("lmstudio", "LM Studio", 1234),
        ("vllm", "vLLM", 8000),
        ("llamacpp", "llama.cpp", 8080),
    )
)  # fmt: skip

SERVICES: Final[tuple[Provider, ...]] = (*_HOSTED, *_LOCAL)
"""Services that ask for a key, then servers on this machine, which ask for none."""
