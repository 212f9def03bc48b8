"""``OPENAI``: OpenAI's Chat Completions and every server that speaks it, as a record."""

from typing import Final

from hubbub.runtime.models.http.provider import Provider

__all__ = ["OPENAI"]

OPENAI: Final = Provider(
    name="openai",
    title="OpenAI",
    url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    client="hubbub.runtime.models.openai.model:OpenAIModel",
)
