"""Checksums of records: each continues that of the event before it, of its run or the hub's lane.

A base continues nothing: a lane that begins with one is as sound as one that has all records.
"""

import zlib

from hubbub.hub.events.agents import AgentBase

__all__ = ["checksum_after"]


def checksum_after(before: int, type_: object, body: bytes) -> int:
    """The checksum of an event; ``before`` is that of the one before it, 0 where there is none."""
    return zlib.crc32(body, 0 if type_ == AgentBase.type else before)
