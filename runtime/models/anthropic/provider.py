"""``ANTHROPIC``: Anthropic Messages, as a record."""

from typing import Final

from hubbub.runtime.models.http.provider import Provider

__all__ = ["ANTHROPIC"]

ANTHROPIC: Final = Provider(
    name="anthropic",
    title="Anthropic",
    url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    client="hubbub.runtime.models.anthropic.model:AnthropicModel",
)
