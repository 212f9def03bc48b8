"""``RESPONSES``: OpenAI's Responses interface, as a record.

It stands beside ``openai:NAME``, which stays Chat Completions: agents written with that name, and
the many servers behind ``OPENAI_BASE_URL``, go on as they are.
"""

from typing import Final

from hubbub.runtime.models.http.provider import Provider

__all__ = ["RESPONSES"]

RESPONSES: Final = Provider(
    name="openai-responses",
    title="OpenAI",
    url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    client="hubbub.runtime.models.responses.model:ResponsesModel",
)
