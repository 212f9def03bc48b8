"""Models: resolved by name, scripted, and over HTTP."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "KEY_VARIABLES",
    "PROVIDERS",
    "Fault",
    "FunctionModel",
    "Provider",
    "ScriptItem",
    "ScriptedModel",
    "call",
    "reply",
    "resolve_model",
]

_EXPORTS: Final = {
    "hubbub.runtime.models.scripted": (
        "Fault",
        "FunctionModel",
        "ScriptItem",
        "ScriptedModel",
        "call",
        "reply",
    ),
    "hubbub.runtime.models.http.provider": ("Provider",),
    "hubbub.runtime.models.providers": ("KEY_VARIABLES", "PROVIDERS"),
    "hubbub.runtime.models.resolve": ("resolve_model",),
}

if TYPE_CHECKING:
    from hubbub.runtime.models.http.provider import Provider
    from hubbub.runtime.models.providers import KEY_VARIABLES, PROVIDERS
    from hubbub.runtime.models.resolve import resolve_model
    from hubbub.runtime.models.scripted import (
        Fault,
        FunctionModel,
        ScriptedModel,
        ScriptItem,
        call,
        reply,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
