"""``Phase``: how far a runtime has come in being left.

    open ──► leaving: nothing new begins, steps under way may reach their end ──► gone

The runtime turns it; everything that runs reads it.
"""

from collections.abc import Callable

import anyio

from hubbub.hub.errors import CallerError, Closed

__all__ = ["Phase"]


class Phase:
    """Whether a runtime is being left, or has been."""

    __slots__ = ("_progress", "is_gone", "is_leaving", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        """It has been entered."""
        self.is_leaving = False
        """Nothing new begins."""
        self.is_gone = False
        """Nothing is written any more."""
        self._progress: anyio.Event | None = None

    def check_open(self) -> None:
        """Raise ``Closed`` or ``CallerError`` where nothing may be asked of the runtime."""
        if self.is_leaving:
            raise Closed("the runtime")
        if not self.is_open:
            raise CallerError(
                "this runtime is not open; use it inside: async with Runtime(...) as rt"
            )

    def progressed(self) -> None:
        """Something has reached a boundary, or has left memory."""
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    async def wait_until(self, is_met: Callable[[], bool]) -> None:
        """Wait until ``is_met``; it is asked again after each progress."""
        while not is_met():
            self._progress = anyio.Event()
            await self._progress.wait()
