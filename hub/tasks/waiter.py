"""``Waiter``: what one task waits for, once.

    waiter = home.make_waiter()    in the task that waits, which has seen that it must
    await waiter                  until …
    wake(waiter)                  … somebody wakes it, or it is cancelled

On asyncio it is a future of the loop, awaited as it is, and on Trio what Trio's own primitives are
made of: neither has an event around it, nor a frame for each layer of one.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias

from hubbub.hub.tasks.cancelling import is_on_asyncio

__all__ = ["MakeWaiter", "Waiter", "waiters", "wake"]


class Waiter(Protocol):
    """What one task awaits."""

    def done(self) -> bool:
        """Whether it was woken, or cancelled."""
        ...

    def set_result(self, result: None, /) -> None:
        """Wake who awaits it; for a waiter that is not done."""
        ...

    def __await__(self) -> Generator[Any, Any, None]: ...


MakeWaiter: TypeAlias = Callable[[], Waiter]


def waiters() -> MakeWaiter:
    """What makes the waiters of the loop at work."""
    if is_on_asyncio():
        return asyncio.get_running_loop().create_future
    from hubbub.hub.tasks.trio_waiter import TrioWaiter

    return TrioWaiter


def wake(waiter: Waiter) -> None:
    """Have who awaits it continue, unless it has been woken or cancelled."""
    if not waiter.done():
        waiter.set_result(None)
