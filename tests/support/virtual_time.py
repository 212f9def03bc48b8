"""An asyncio event loop in virtual time: when nothing can run, the clock jumps to the next timer.

(Trio brings its own: ``trio.testing.MockClock``.)
"""

import asyncio
import math
import selectors
from collections.abc import Mapping
from typing import Any, Final

_RESOLUTION: Final = 1e-9


class _JumpingSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # Nothing is due, ever: a thread or a socket must be at work.
            return self._real.select(None)
        ready = self._real.select(0)
        if not ready and timeout > 0:
            self.now += timeout
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    @property
    def _clock_resolution(self) -> float:
        """How early a timer may fire.  Of a fixed one nothing would be left when it is added to a
        late time, and a timer that is due right now would never fire."""
        return max(_RESOLUTION, math.ulp(self._jumping.now))

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """The real clock's, which a loop sets when it is made."""
