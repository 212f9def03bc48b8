"""``CtrlC``: what a press of Ctrl-C does to a conversation in a terminal.

    who has it          a press                     the next one, within two seconds
    main, at work       interrupts it               leaves
    main, at rest       drops what was typed        leaves
    a frame, at work    interrupts it               goes back to main
    a frame, waiting    goes back to main           leaves, if nobody takes the frames away

Rules
-----
* A press does what the hint of the one before has said, also if things have changed meanwhile.
* The press that has led back to main is not the first of the two that leave.
* After a typed line the count begins again.
"""

from typing import Final, Literal, TypeAlias

__all__ = ["TWICE", "CtrlC", "PressEffect", "hint"]

TWICE: Final = 2.0
"""Seconds within which a press is the second one."""

PressEffect: TypeAlias = Literal["interrupt", "interrupt frame", "go back", "rest", "leave"]

_HINTS: Final[dict[PressEffect, str]] = {
    "interrupt": "interrupting; press Ctrl-C again to leave",
    "interrupt frame": "interrupting; Ctrl-C again goes back to main",
    "go back": "",  # What comes of it has a line of its own.
    "rest": "press Ctrl-C again to leave",
    "leave": "",
}


class CtrlC:
    """The presses of one conversation; with ``once``, as from a pipe, the first one leaves."""

    __slots__ = ("_at", "_last", "_once")

    def __init__(self, *, once: bool = False) -> None:
        self._once = once
        self._at = float("-inf")
        self._last: PressEffect | None = None

    def press(self, now: float, *, has_frames: bool, is_working: bool) -> PressEffect:
        """What a press does at a time (seconds): with frames or without, at work or at rest."""
        if self._once:
            return "leave"
        last = self._last if now - self._at < TWICE else None
        self._at = now
        self._last = _next(last, has_frames=has_frames, is_working=is_working)
        return self._last

    def spoke(self) -> None:
        """The user has said something."""
        self._last = None

    def went_back(self) -> None:
        """A frame has ended: going back takes effect."""
        if self._last == "go back":
            self._last = None


def hint(effect: PressEffect) -> str:
    """What the next press does, if there is something to say about it."""
    return _HINTS[effect]


def _next(last: PressEffect | None, *, has_frames: bool, is_working: bool) -> PressEffect:
    if last in ("interrupt", "rest"):
        return "leave"
    if not has_frames:
        return "interrupt" if is_working else "rest"
    if last == "go back":
        return "leave"
    return "interrupt frame" if is_working and last is None else "go back"
