"""``Link``: the way from a process of a simulated world to the store that it shares."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel

from hubbub.hub.ports import Clock

__all__ = ["Link"]

T = TypeVar("T")


class Link:
    """Carries what a process asks of its store, and the answer.

    Each way takes ``seconds``, or a turn of the event loop.  While the link is cut nothing passes:
    what is asked waits, and is asked once more if its answer was on the way.
    """

    def __init__(self, clock: Clock, seconds: float = 0.0) -> None:
        self._clock = clock
        self._seconds = seconds
        self._mended: anyio.Event | None = None
        self._cuts = 0

    @property
    def is_cut(self) -> bool:
        """Whether nothing passes."""
        return self._mended is not None

    def cut(self) -> None:
        """Let nothing pass; answers on their way are lost.  Idempotent."""
        if self._mended is None:
            self._cuts += 1
            self._mended = anyio.Event()

    def mend(self) -> None:
        """Let everything pass again.  Idempotent."""
        if self._mended is not None:
            self._mended.set()
            self._mended = None

    async def ask(self, question: Callable[[], T]) -> T:
        """What the store answers; ``question`` may be called several times."""
        while True:
            while not await self._passes():
                pass
            answer = question()
            if await self._passes():
                return answer

    async def _passes(self) -> bool:
        """Go one way; False, once the link is mended, where it was cut meanwhile."""
        if self._mended is not None:
            await self._mended.wait()
        cuts = self._cuts
        if self._seconds:
            await self._clock.sleep(self._seconds)
        else:
            await anyio.lowlevel.checkpoint()
        if self._cuts == cuts:
            return True
        while self._mended is not None:
            await self._mended.wait()
        return False
