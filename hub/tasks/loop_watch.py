"""Who holds the event loop: a thread asks the loop for a sign of life and looks when none comes.

    the watch's thread    ask ──► wait ──► ask ──► wait ······► look: who is at work there?
    the event loop             └► answer        └► (held by a handler)

Nothing is counted or timed in the loop itself, so events, calls and steps cost nothing.  The loop
answers five times a second.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread, get_ident
from types import FrameType
from typing import Any, Final, TypeAlias

import anyio.lowlevel

__all__ = ["Held", "NoWatch", "ThreadWatch", "called_by_us", "called_in"]

Held: TypeAlias = Callable[[str, str], object]
"""Takes the name of the function that holds the loop, and the file and line it has got to."""

EVERY: Final = 0.2
PATIENCE: Final = 0.8
"""A callback that holds the loop for both together is always noticed; for less than this, never."""

_LIBRARIES: Final = sys.stdlib_module_names | {"anyio", "outcome", "sniffio", "trio", "uvloop"}
"""What stands between a call of ours and the function that it calls."""


class NoWatch:
    """Does not watch: where time is virtual, code takes none."""

    def begin(self, held: Held) -> Callable[[], None]:
        return _nothing


class ThreadWatch:
    """Watches from a thread of its own.

    Every ``every`` seconds it asks the loop for an answer; after ``patience`` seconds without one
    it calls ``held``, in its own thread and once for each time, with the function that hubbub has
    called.  What the program does in its own tasks, and hubbub by itself, is not told of.
    """

    __slots__ = ("_every", "_patience")

    def __init__(self, every: float = EVERY, patience: float = PATIENCE) -> None:
        self._every = every
        self._patience = patience

    def begin(self, held: Held) -> Callable[[], None]:
        token = anyio.lowlevel.current_token().native_token
        call_back = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe  # type: ignore[attr-defined]
        ended = Event()
        args = (call_back, get_ident(), held, ended, self._every, self._patience)
        # A daemon: a program that ends without closing its hub must not hang at its exit.
        Thread(target=_watch, args=args, name="hubbub watch", daemon=True).start()
        return ended.set


def _nothing() -> None:
    """There is nothing to end."""


def _watch(
    call_back: Callable[[Callable[[], None]], object], thread: int, held: Held, ended: Event,
    every: float, patience: float,
) -> None:  # fmt: skip
    while not ended.wait(every):
        answered = Event()
        try:
            call_back(answered.set)
        except RuntimeError:  # The loop has ended, and nobody has closed the hub.
            return
        if answered.wait(patience) or ended.is_set():
            continue
        if (found := called_in(thread)) is not None:
            held(*found)
        while not (answered.wait(patience) or ended.is_set()):
            pass


def called_in(thread: int) -> tuple[str, str] | None:
    """Name and place of the function that hubbub has called last in a thread, if it is at work."""
    innermost = sys._current_frames().get(thread)
    return called_by_us(reversed([*_outwards(innermost)]))


def called_by_us(frames: Iterable[FrameType]) -> tuple[str, str] | None:
    """Name and place of the function that hubbub has called last, of frames from the outermost."""
    found: FrameType | None = None
    is_ours = False
    for frame in frames:
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        if top == "hubbub":
            is_ours = True
        elif is_ours and top not in _LIBRARIES:
            found, is_ours = frame, False
    if found is None:
        return None
    code: Any = found.f_code
    return code.co_qualname, f"{code.co_filename}:{found.f_lineno}"


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
