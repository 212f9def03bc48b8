"""``CollectingThread``: in which thread Python collects garbage just now.

What Python calls before and after each collection are functions of C alone here.  What a signal
raises comes at the next bytecode: in a callback written in Python that would be its own, where
whatever is raised is printed and gone, a Ctrl-C with it.  So each callback only moves values:

    letters.intersection_update(phase, info)   nothing is in both: it empties the letters
    letters.update(phase, info)                the letters of "start", or of "stop"
    infos.__setitem__(phase, info)             what was said of the collection that began last
    setattr(local, phase, info)                the same of the one that began last in this thread
"""

import gc
from functools import partial
from threading import local
from typing import Final

__all__ = ["STARTED", "CollectingThread"]

STARTED: Final = "a"
"""Is among the letters while Python collects: it is one of "start", and none of "stop"."""


class CollectingThread:
    """Told of every collection from when it is made on, for as long as the process lives."""

    __slots__ = ("_infos", "_local", "letters")

    def __init__(self) -> None:
        self.letters: set[str] = set()
        """Holds ``STARTED`` while Python collects, in whichever thread."""
        self._infos: dict[str, object] = {}
        self._local = local()
        gc.callbacks.append(self.letters.intersection_update)
        gc.callbacks.append(self.letters.update)
        gc.callbacks.append(self._infos.__setitem__)
        gc.callbacks.append(partial(setattr, self._local))

    def is_this(self) -> bool:
        """Whether Python collects in the caller's thread: a finalizer has called it, then."""
        if STARTED not in self.letters:
            return False
        return getattr(self._local, "start", None) is self._infos["start"]
