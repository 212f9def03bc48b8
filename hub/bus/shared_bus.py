"""``SharedBus``: the bus between the processes of a simulated world, and each one's end of it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from hubbub.hub.bus.bus import MAX_FRAME, Hear, Topic
from hubbub.hub.ports import Clock
from hubbub.hub.task_host import TaskHost

__all__ = ["MemoryBus", "SharedBus"]

MAX_UNDER_WAY: Final = 256
"""Frames on their way to one process; further ones are dropped."""


class SharedBus:
    """Carries frames between its members.

    ``disturb`` is asked of each frame to each member when it arrives there, in seconds: never
    (``()``), once, or several times.  Without it, at once.
    """

    def __init__(self, clock: Clock, disturb: Callable[[], Sequence[float]] | None = None) -> None:
        self.clock = clock
        self.disturb = disturb
        self.carried = 0
        """Frames that were published."""
        self._members: dict[MemoryBus, None] = {}

    def join(self, member: "MemoryBus") -> None:
        """Let a process hear what others publish."""
        self._members[member] = None

    def leave(self, member: "MemoryBus") -> None:
        """Let it hear no more; idempotent."""
        self._members.pop(member, None)

    def carry(self, sender: "MemoryBus", topic: Topic, frame: bytes) -> None:
        """Bring a frame to everybody but its sender."""
        assert len(frame) <= MAX_FRAME, f"a frame of {len(frame)} bytes"
        self.carried += 1
        for member in tuple(self._members):
            if member is not sender:
                for seconds in (0.0,) if self.disturb is None else self.disturb():
                    member.bring(topic, frame, seconds)


class MemoryBus:
    """One process's ``Bus``; frames are lost while it ``is_cut`` off."""

    def __init__(self, shared: SharedBus, is_cut: Callable[[], bool]) -> None:
        self._shared = shared
        self._is_cut = is_cut
        self._arrived: deque[tuple[Topic, bytes]] = deque()
        self._late = 0
        self._listens = False
        self._news = anyio.Event()
        self._tasks: TaskHost | None = None

    def open(self, hear: Hear, tasks: TaskHost) -> None:
        self._tasks, self._news = tasks, anyio.Event()
        tasks.start(self._serve(hear), name="hubbub bus", steady=True)
        self._shared.join(self)

    def publish(self, topic: Topic, frame: bytes) -> None:
        if self._tasks is not None and not self._is_cut():
            self._shared.carry(self, topic, frame)

    def listen(self, deltas: bool) -> None:
        self._listens = deltas

    def close(self) -> None:
        self._shared.leave(self)
        self._tasks = None

    def bring(self, topic: Topic, frame: bytes, seconds: float) -> None:
        """A frame is there in so many seconds."""
        tasks = self._tasks
        if tasks is None or (topic == "deltas" and not self._listens):
            return
        if len(self._arrived) + self._late >= MAX_UNDER_WAY:
            return
        if seconds <= 0:
            self._arrive(topic, frame)
        elif tasks.is_open:
            self._late += 1
            tasks.start(
                self._bring_late(topic, frame, seconds), name="hubbub late frame", steady=True
            )

    async def _bring_late(self, topic: Topic, frame: bytes, seconds: float) -> None:
        try:
            await self._shared.clock.sleep(seconds)
        finally:
            self._late -= 1
        self._arrive(topic, frame)

    def _arrive(self, topic: Topic, frame: bytes) -> None:
        if not self._is_cut():
            self._arrived.append((topic, frame))
            self._news.set()

    async def _serve(self, hear: Hear) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._arrived:
                hear(*self._arrived.popleft())
