"""``PROVIDERS``: the table of model providers.

A service that speaks an interface that is known here is a record in ``services``.  For another
interface, write a room beside ``anthropic`` and ``openai`` that holds its record, its client and
what reads its answers, put the record here, and have the client pass
``hubbub.runtime.models.conformance``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hubbub.runtime.models.anthropic.provider import ANTHROPIC
from hubbub.runtime.models.http.provider import Provider
from hubbub.runtime.models.openai.provider import OPENAI
from hubbub.runtime.models.responses.provider import RESPONSES
from hubbub.runtime.models.services import SERVICES

__all__ = ["KEY_VARIABLES", "PROVIDERS"]

PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {each.name: each for each in (ANTHROPIC, OPENAI, RESPONSES, *SERVICES)}
)
"""Each provider by its name, in the order in which messages list them."""

KEY_VARIABLES: Final = tuple(dict.fromkeys(each.key_variable for each in PROVIDERS.values()))
"""The environment variables that hold providers' keys."""
