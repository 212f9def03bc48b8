"""The hub: the one place where things meet.

Reading order: ``events`` (what can happen), ``store`` (the port of a journal, and the rules of
inboxes), ``delivery`` (who listens, and in which order), ``pipeline`` (the way from an event to
those who listen), ``hub`` (the face of it all), ``receipt``, ``prompts``, ``own_lane``,
``run_hub``, ``ports``.  ``conformance`` proves a store of your own; ``tasks`` is below all.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "START",
    "EventStream",
    "GivenTool",
    "Handler",
    "HistoryCall",
    "HistoryMessage",
    "Hub",
    "HubStatistics",
    "Message",
    "Receipt",
    "RequestKey",
    "Secret",
    "Subscription",
]

_EXPORTS: Final = {
    "hubbub.hub.store.cursor": ("START",),
    "hubbub.hub.store.journal": ("RequestKey",),
    "hubbub.hub.delivery.audience": ("Subscription",),
    "hubbub.hub.delivery.listening": ("Handler",),
    "hubbub.hub.delivery.stream": ("EventStream",),
    "hubbub.hub.events": ("GivenTool", "HistoryCall", "HistoryMessage"),
    "hubbub.hub.hub": (
        "Hub",
        "HubStatistics",
    ),
    "hubbub.hub.message": ("Message",),
    "hubbub.hub.receipt": ("Receipt",),
    "hubbub.hub.values": ("Secret",),
}

if TYPE_CHECKING:
    from hubbub.hub.delivery.audience import Subscription
    from hubbub.hub.delivery.listening import Handler
    from hubbub.hub.delivery.stream import EventStream
    from hubbub.hub.events import GivenTool, HistoryCall, HistoryMessage
    from hubbub.hub.hub import Hub, HubStatistics
    from hubbub.hub.message import Message
    from hubbub.hub.receipt import Receipt
    from hubbub.hub.store.cursor import START
    from hubbub.hub.store.journal import RequestKey
    from hubbub.hub.values import Secret
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
