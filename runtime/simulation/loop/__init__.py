"""The event loop of a world: seeded, in virtual time, with threads in lockstep."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "HORIZON",
    "MAX_ROUNDS",
    "NeverRests",
    "NothingHappens",
    "StuckThread",
    "run_seeded",
]

_EXPORTS: Final = {
    "hubbub.runtime.simulation.loop.seeded": (
        "HORIZON",
        "MAX_ROUNDS",
        "NeverRests",
        "NothingHappens",
        "StuckThread",
        "run_seeded",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.simulation.loop.seeded import (
        HORIZON,
        MAX_ROUNDS,
        NeverRests,
        NothingHappens,
        StuckThread,
        run_seeded,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
