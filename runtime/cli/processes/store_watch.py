"""``store_failure``: a process whose store has failed for good is of no use any more."""

from typing import Final

from hubbub.runtime.runtime import Runtime

__all__ = ["store_failure"]

LOOK: Final = 0.5
"""Seconds between two looks."""


async def store_failure(runtime: Runtime) -> str:
    """Return once the store of a runtime has failed for good: what it says of that.

    Nothing is acknowledged from then on; only a new process can go on, so this one is to leave and
    say so to whoever supervises it.
    """
    while not (failure := runtime.hub.journal.failure):
        await runtime.ports.clock.sleep(LOOK)
    return failure
