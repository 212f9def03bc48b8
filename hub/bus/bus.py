"""``Bus``: how pieces of answers reach those who listen in another process.

    process A: pieces of answers ─► frames ─► the bus ─► process B, where somebody listens
    process B: what is listened to there ───► the bus ─► process A, which makes pieces only then

Nothing durable depends on it.  A frame may be lost, late, doubled or out of order, and what is too
much is dropped: who sends one makes it so that this can be seen, and who hears one looks.

A store that is one process's has none (``bus_of`` returns ``None``).
"""

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias

from hubbub.hub.task_host import TaskHost

__all__ = ["MAX_FRAME", "Bus", "Hear", "Topic", "bus_of"]

Topic: TypeAlias = Literal["deltas", "wants"]
"""What a frame is about: pieces of answers, or what a process wants to hear."""

Hear: TypeAlias = Callable[[Topic, bytes], object]
"""Called with each frame of another process, in the event loop of the one that hears."""

MAX_FRAME: Final = 7_900
"""Bytes of a frame, at most: what PostgreSQL takes as the payload of a notification."""


class Bus(Protocol):
    """One process's end of it, for its hub.  A frame is JSON of at most ``MAX_FRAME`` bytes.

    Everything acts at the call, waits for nothing and raises nothing; between ``open`` and
    ``close``, in the event loop that the hub belongs to.
    """

    def open(self, hear: Hear, tasks: TaskHost) -> None:
        """Hear of what others say from now on; its tasks live in ``tasks``."""
        ...

    def publish(self, topic: Topic, frame: bytes) -> None:
        """Send a frame to every other process, as far as there is room for it."""
        ...

    def listen(self, deltas: bool) -> None:
        """Whether frames about ``deltas`` are to be heard; at first they are not."""
        ...

    def close(self) -> None:
        """Hear and send nothing more; idempotent.  What was published before may still be sent."""
        ...


def bus_of(store: object) -> Bus | None:
    """The bus of a store that has the attribute ``bus``; ``None`` where it is one process's."""
    found: Bus | None = getattr(store, "bus", None)
    return found
