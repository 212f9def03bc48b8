"""Channels: the outside world.  They import the hub and nothing else of hubbub.

Reading order: ``channel`` (what a channel is), ``attachment`` (one at work on a hub), ``console``
(a conversation in a terminal), ``http`` (the hub over HTTP, which needs an extra and is imported by
itself).
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "Attachment",
    "Channel",
    "ChannelContext",
    "Channels",
    "Console",
    "TerminalReader",
    "TerminalWriter",
    "run_console",
]

_EXPORTS: Final = {
    "hubbub.channels.attachment": ("Attachment", "Channels"),
    "hubbub.channels.channel": ("Channel", "ChannelContext"),
    "hubbub.channels.console.console": ("Console", "run_console"),
    "hubbub.channels.console.terminal": ("TerminalReader", "TerminalWriter"),
}

if TYPE_CHECKING:
    from hubbub.channels.attachment import Attachment, Channels
    from hubbub.channels.channel import Channel, ChannelContext
    from hubbub.channels.console.console import Console, run_console
    from hubbub.channels.console.terminal import TerminalReader, TerminalWriter
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
