"""The hub: the one place where things meet.

Reading order: ``events`` (what can happen), ``patterns``, ``journal`` (the port of a store),
``inbox_rules``, ``hub`` (the order of things), ``stream``, ``receipt``,
``prompts``, ``own_lane``, ``ports``.
"""

from hubbub.hub.cursor import START
from hubbub.hub.hub import Handler, Hub, HubStatistics
from hubbub.hub.message import Message
from hubbub.hub.receipt import Receipt
from hubbub.hub.stream import EventStream, Subscription
from hubbub.hub.values import Secret

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
