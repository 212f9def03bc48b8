"""``Recorder``: what writes into a run's journal on behalf of one of its calls."""

from collections.abc import Callable
from typing import Final

import anyio

from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.home_loop import HomeLoop

__all__ = ["IN_ITS_LOOP", "ForeignRecorder", "Recorder"]

IN_ITS_LOOP: Final = (
    "call it in the run's own loop: by anyio.from_thread.run, or by anyio.from_thread.run_sync "
    "where it is not awaited"
)
"""What to do instead of calling from another thread."""


class Recorder:
    """Writes while the call lasts, in the loop of its hub."""

    __slots__ = ("_home", "_is_live", "_write")

    def __init__(
        self,
        write: Callable[[Event, Callable[[], None] | None], None],
        is_live: Callable[[], bool],
        home: HomeLoop,
    ) -> None:
        self._write = write
        self._is_live = is_live
        self._home = home

    def check_here(self, call: str) -> None:
        """Raise ``WrongThread`` or ``WrongLoop`` for a ``call`` from elsewhere."""
        self._home.check(call, IN_ITS_LOOP)

    def check(self, call: str) -> None:
        """As ``check_here``; and ``CallerError`` where nothing may be written (any more)."""
        self._home.check(call, IN_ITS_LOOP)
        if not self._is_live():
            raise CallerError("this call is over; what it still writes is not kept")

    def note(self, event: Event) -> None:
        """Write ``event``, if that still counts."""
        if self._is_live():
            self._write(event, None)

    async def __call__(self, event: Event) -> None:
        """Write ``event``; it is on record when this returns."""
        self.check("writing")
        done = anyio.Event()
        self._write(event, done.set)
        await done.wait()


class ForeignRecorder(Recorder):
    """Another run's: it writes nothing."""

    __slots__ = ("_run_id",)

    def __init__(self, run_id: str, home: HomeLoop) -> None:
        self._run_id = run_id
        self._home = home

    def check(self, call: str) -> None:
        self._home.check(call, IN_ITS_LOOP)
        raise CallerError(
            f"run {self._run_id} is another run: its files, keys, variables, children and words "
            "are its own; send it a message"
        )
