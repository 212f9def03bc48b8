"""Bugs to plant where several workers are at work on one store (``planted``, ``shared``)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from hubbub.hub.store.ledger import Ledger
from hubbub.hub.store.sharing import Sharing
from hubbub.runtime.removal.turn import TURN, PassTurn

__all__ = ["SHARED", "WORKERS"]

WORKERS: Final = 3
"""How many work on the store."""


@contextmanager
def turn_of_the_dead() -> Iterator[None]:
    """Nobody takes the turn of a process that has died."""
    take = PassTurn._take

    async def take_nobodys(turn: PassTurn, sharing: Sharing) -> bool:
        holder = (await turn._journal.notes(TURN)).get(TURN, "")
        return holder in ("", str(sharing.number)) and await take(turn, sharing)

    with patch.object(PassTurn, "_take", take_nobodys):
        yield


@contextmanager
def too_late_is_lost() -> Iterator[None]:
    """Words that were taken for an answer do not wait again where another process was first."""
    with patch.object(Ledger, "_say_again", lambda *_: None):
        yield


SHARED: Final[Mapping[str, tuple[Callable[[], AbstractContextManager[Any]], int]]] = {
    "turn_of_the_dead": (turn_of_the_dead, 60),
    "too_late_is_lost": (too_late_is_lost, 40),
}
"""Each with the number of worlds that it may take to find it, from seed 0 on."""
