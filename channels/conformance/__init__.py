"""Suites that prove a channel of your own: each check takes one and raises where it is wrong.

Reading order: ``driver`` (what a channel brings), ``partner_agent`` (whom its person speaks with),
``checks`` (how the suite is run), ``conversations``, ``questions``, ``faults``.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "ANN",
    "BOB",
    "CHANNEL_CHECKS",
    "CROWD_CHECKS",
    "PARTNER",
    "REDELIVERY_CHECKS",
    "AttachChannel",
    "ChannelCheck",
    "ChannelDriver",
    "ChannelKit",
    "OpenHub",
    "partner",
]

_EXPORTS: Final = {
    "hubbub.channels.conformance.checks": ("CHANNEL_CHECKS",),
    "hubbub.channels.conformance.conversations": ("CROWD_CHECKS", "REDELIVERY_CHECKS"),
    "hubbub.channels.conformance.driver": (
        "ANN",
        "BOB",
        "AttachChannel",
        "ChannelCheck",
        "ChannelDriver",
        "ChannelKit",
        "OpenHub",
    ),
    "hubbub.channels.conformance.partner_agent": ("PARTNER", "partner"),
}

if TYPE_CHECKING:
    from hubbub.channels.conformance.checks import CHANNEL_CHECKS
    from hubbub.channels.conformance.conversations import CROWD_CHECKS, REDELIVERY_CHECKS
    from hubbub.channels.conformance.driver import (
        ANN,
        BOB,
        AttachChannel,
        ChannelCheck,
        ChannelDriver,
        ChannelKit,
        OpenHub,
    )
    from hubbub.channels.conformance.partner_agent import PARTNER, partner
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
