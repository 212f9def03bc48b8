"""``StackRoom``: whether enough of Python's stack is left for what is called.

    sys._getframe(short)       is there a frame so far out?   none: it raises, and there is room
    sys._getframe(remembered)  … the outermost one, nearly?   yes: as deep as when there was room

How deep a frame is cannot be asked for, and to see an exception raised takes longer than most of
what a call does besides.  A program makes each call from about one depth again and again, so that
depth is remembered, and found to be the same without any.
"""

from collections.abc import Callable
from functools import partial
from sys import _getframe, getrecursionlimit
from types import FrameType
from typing import Final

from hubbub.hub.tasks.collecting import STARTED, CollectingThread

__all__ = ["FRAMES", "SHORT", "StackRoom"]

FRAMES: Final = 200
"""What a call may need of Python's stack: on a store in memory a run goes on within it."""

SHORT: Final = 250
"""A stack of fewer frames has room enough, whatever called these."""

REACH: Final = 12
"""How much deeper than remembered a call may be and is still known to have room."""

PATIENCE: Final = 16
"""After so many calls from elsewhere it is remembered anew from where they come."""


class StackRoom:
    """Whether calls have room, and how deep each was made that had.

    What is called in the ``collecting`` thread comes from a finalizer, in the midst of another
    call, and goes to ``refuse``, which raises.
    """

    __slots__ = ("_collecting", "_depths", "_letters", "_limit", "_missed", "_refuse")

    def __init__(self, collecting: CollectingThread, refuse: Callable[[str], None]) -> None:
        self._collecting = collecting
        self._letters = collecting.letters
        self._refuse = refuse
        self._depths: dict[str, int] = {}
        self._limit = 0
        """The limit under which these depths, and a little more, leave room."""
        self._missed = 0

    def check(self, call: str) -> None:
        """Raise ``RecursionError`` where ``call`` could be broken off half-way, for lack of stack.

        What is called with little of it left would raise that somewhere between a record and those
        who are to hear of it, and others would wait for ever.  How much is left is tried where the
        stack is long: calls by C code count too, for as much as a frame or apart from these, and
        are none.
        """
        if STARTED in self._letters and self._collecting.is_this():
            self._refuse(call)
        depth = self._depths.get(call) if getrecursionlimit() == self._limit else None
        if depth is None:
            self._look(call, _getframe())
            return
        try:
            outer = _getframe(depth).f_back
        except ValueError:  # It is less deep.
            self._depths[call] = _depth_of(_getframe())
            return
        if outer is None:
            return
        for _ in range(REACH):
            outer = outer.f_back
            if outer is None:
                return
        self._missed += 1
        self._look(call, _getframe() if self._missed % PATIENCE == 0 else None)

    def _look(self, call: str, frame: FrameType | None) -> None:
        """Find out whether there is room; ``frame``: remember how deep that is."""
        limit = getrecursionlimit()
        short = SHORT if limit > 4 * SHORT else limit // 4
        try:
            _getframe(short)
        except ValueError:  # As nearly always.
            depth = short if frame is None else _depth_of(frame)
            if depth + REACH + 1 < short:  # That one more is this function's own.
                if limit != self._limit:
                    self._limit = limit
                    self._depths.clear()
                self._depths[call] = depth
            return
        try:
            _descend(FRAMES if limit > 2 * FRAMES else limit // 2)
        except RecursionError:
            raise RecursionError(
                f"{call}: too little of Python's stack is left; call it from less deep, or raise "
                "sys.setrecursionlimit()"
            ) from None


def _descend(frames: int) -> None:
    """Use as much of the stack; every other frame is entered from C code."""
    if frames > 0:
        (_descend if frames % 2 else _descend_by_c)(frames - 1)


_descend_by_c: Final = partial(_descend)


def _depth_of(frame: FrameType) -> int:
    """How many frames are further out."""
    depth = 0
    while (outer := frame.f_back) is not None:
        depth, frame = depth + 1, outer
    return depth
