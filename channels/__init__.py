"""Channels: the outside world.  They import the hub and nothing else of hubbub.

Reading order: ``channel`` (what a channel is), ``console`` (a conversation in a terminal).
"""

from hubbub.channels.channel import Attachment, Channel, ChannelContext, Channels
from hubbub.channels.console.console import Console, run_console
from hubbub.channels.console.terminal import TerminalReader, TerminalWriter

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
