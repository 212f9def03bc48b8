"""``Phase``: how far a runtime has come in being left.

    open ──► leaving: nothing new begins, steps under way may reach their end ──► gone

The runtime turns it; everything that runs reads it.
"""

from collections.abc import Callable
from threading import get_ident
from typing import Final

import anyio

from hubbub.hub.errors import CallerError, Closed
from hubbub.hub.home_loop import HomeLoop, running_loop

__all__ = ["Phase"]


_CALL: Final = "a function of the runtime"
_REMEDY: Final = "use anyio.from_thread.run(rt.run, ...), or of another one, or a BlockingPortal"


class Phase:
    """Whether a runtime is being left, or has been."""

    __slots__ = ("_home", "_progress", "is_entered", "is_gone", "is_leaving", "is_open")

    def __init__(self, home: HomeLoop) -> None:
        self._home = home
        self.is_entered = False
        """Somebody enters it, or has."""
        self.is_open = False
        """It has been entered."""
        self.is_leaving = False
        """Nothing new begins."""
        self.is_gone = False
        """Nothing is written any more."""
        self._progress: anyio.Event | None = None

    def check_open(self) -> None:
        """Raise ``Closed``, ``CallerError``, ``WrongThread`` or ``WrongLoop`` where nothing may be
        asked of the runtime."""
        if self.is_leaving:
            raise Closed("the runtime")
        if not self.is_open:
            raise CallerError(
                "this runtime is not open; use it inside: async with Runtime(...) as rt"
            )
        home = self._home  # ``check_home`` in place: this lies on the path of every run.
        if get_ident() != home.thread or running_loop() is not home.loop:
            home.refuse(_CALL, _REMEDY)

    def check_home(self) -> None:
        """Raise ``WrongThread`` or ``WrongLoop`` outside of the loop that opened the runtime."""
        self._home.check(_CALL, _REMEDY)

    def check_entered(self) -> None:
        """Raise ``CallerError`` where the runtime has not been entered yet."""
        if not self.is_leaving:
            self.check_open()

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
