"""Recordings, played again and compared."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "Playback",
    "WentOtherwise",
    "replay_recording",
]

_EXPORTS: Final = {
    "hubbub.runtime.simulation.playback.play": (
        "Playback",
        "WentOtherwise",
        "replay_recording",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.simulation.playback.play import (
        Playback,
        WentOtherwise,
        replay_recording,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
