"""A suite that proves a model provider of your own: each check takes its ``ProviderWire``."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "CONTENTS",
    "CONVERSATION",
    "HELLO",
    "HISTORIES",
    "ILLUSTRATED",
    "NOTED",
    "PARTS",
    "PROVIDER_CHECKS",
    "REPLY",
    "REQUESTS",
    "SETTINGS",
    "WEATHER",
    "ClosableModel",
    "LoopbackServer",
    "ProviderCheck",
    "ProviderWire",
    "ServerAnswer",
    "ServerRequest",
    "serving",
    "with_notes",
]

_EXPORTS: Final = {
    "hubbub.runtime.models.conformance.checks": ("PROVIDER_CHECKS",),
    "hubbub.runtime.models.conformance.histories": ("HISTORIES", "REQUESTS"),
    "hubbub.runtime.models.conformance.samples": (
        "CONTENTS",
        "CONVERSATION",
        "HELLO",
        "ILLUSTRATED",
        "NOTED",
        "PARTS",
        "REPLY",
        "SETTINGS",
        "WEATHER",
        "with_notes",
    ),
    "hubbub.runtime.models.conformance.server": (
        "LoopbackServer",
        "ServerAnswer",
        "ServerRequest",
        "serving",
    ),
    "hubbub.runtime.models.conformance.wire": (
        "ClosableModel",
        "ProviderCheck",
        "ProviderWire",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.models.conformance.checks import PROVIDER_CHECKS
    from hubbub.runtime.models.conformance.histories import HISTORIES, REQUESTS
    from hubbub.runtime.models.conformance.samples import (
        CONTENTS,
        CONVERSATION,
        HELLO,
        ILLUSTRATED,
        NOTED,
        PARTS,
        REPLY,
        SETTINGS,
        WEATHER,
        with_notes,
    )
    from hubbub.runtime.models.conformance.server import (
        LoopbackServer,
        ServerAnswer,
        ServerRequest,
        serving,
    )
    from hubbub.runtime.models.conformance.wire import (
        ClosableModel,
        ProviderCheck,
        ProviderWire,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
