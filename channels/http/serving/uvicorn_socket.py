"""``UvicornSocket``: a WebSocket of uvicorn, by which no client fills the memory.

uvicorn answers pings at once, whether or not the answers are taken: here nothing is read while
output waits.
"""

from uvicorn._types import WebSocketEvent
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

__all__ = ["UvicornSocket"]


class UvicornSocket(WSProtocol):
    """Reads from its client only while that takes what it is sent."""

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    async def receive(self) -> WebSocketEvent:
        message = await super().receive()
        if not self.writable.is_set():
            self.transport.pause_reading()
        return message
