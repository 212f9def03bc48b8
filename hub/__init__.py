"""The hub: the one place where things meet.

Reading order: ``events`` (what can happen), ``store`` (the port of a journal, and the rules of
inboxes), ``patterns``, ``hub`` (the order of things), ``dispatch``, ``stream``, ``receipt``,
``prompts``, ``own_lane``, ``run_hub``, ``ports``.  ``conformance`` proves a store of your own.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "START",
    "EventStream",
    "Handler",
    "Hub",
    "HubStatistics",
    "Message",
    "Receipt",
    "Secret",
    "Subscription",
]

_EXPORTS: Final = {
    "hubbub.hub.cursor": ("START",),
    "hubbub.hub.hub": (
        "Handler",
        "Hub",
        "HubStatistics",
    ),
    "hubbub.hub.message": ("Message",),
    "hubbub.hub.receipt": ("Receipt",),
    "hubbub.hub.stream": (
        "EventStream",
        "Subscription",
    ),
    "hubbub.hub.values": ("Secret",),
}

if TYPE_CHECKING:
    from hubbub.hub.cursor import START
    from hubbub.hub.hub import Handler, Hub, HubStatistics
    from hubbub.hub.message import Message
    from hubbub.hub.receipt import Receipt
    from hubbub.hub.stream import EventStream, Subscription
    from hubbub.hub.values import Secret
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
