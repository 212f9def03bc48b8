"""Whether there is room on Python's stack, whatever was called before and from how deep."""

import gc
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub.hub.tasks.collecting import CollectingThread
from hubbub.hub.tasks.stack_room import FRAMES, PATIENCE, REACH, SHORT, StackRoom

T = TypeVar("T")

COLLECTING = CollectingThread()

NEAR = (-2, 0, 1, REACH, REACH + 1)


def at_depth(depth: int, function: Callable[[], T]) -> T:
    """What ``function`` returns where it is called with so many frames further out."""
    here, frame = 0, sys._getframe()
    while (outer := frame.f_back) is not None:
        here, frame = here + 1, outer
    return _deeper(depth - here, function)


def _deeper(frames: int, function: Callable[[], T]) -> T:
    return function() if frames <= 1 else _deeper(frames - 1, function)


def fresh() -> StackRoom:
    return StackRoom(COLLECTING, _never)


def _never(call: str) -> None:
    raise AssertionError(call)


def has_room(room: StackRoom, call: str = "send") -> bool:
    try:
        room.check(call)
    except RecursionError:
        return False
    return True


def depths() -> st.SearchStrategy[int]:
    limit = sys.getrecursionlimit()
    near = [edge + x for edge in (SHORT, limit - FRAMES) for x in (*NEAR, -REACH, -REACH - 1, -1)]
    return st.integers(150, limit - 60) | st.sampled_from(near)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("send", "emit")), depths()), max_size=PATIENCE * 3))
def test_what_was_called_before_changes_nothing(calls: list[tuple[str, int]]) -> None:
    room = fresh()
    for call, depth in calls:
        alone = at_depth(depth, lambda call=call: has_room(fresh(), call))  # type: ignore[misc]
        assert at_depth(depth, lambda call=call: has_room(room, call)) is alone  # type: ignore[misc]


def test_a_call_that_had_room_does_not_make_room_for_one_from_deeper() -> None:
    room = fresh()
    last = sys.getrecursionlimit() - FRAMES
    while not at_depth(last, lambda: has_room(fresh())):
        last -= 1
    for depth in (150, last, last + 2, 150, last + 2):
        assert at_depth(depth, lambda: has_room(room)) is (depth <= last)


def test_a_lower_limit_holds_for_calls_that_had_room_before() -> None:
    room = fresh()
    limit = sys.getrecursionlimit()
    depth = SHORT - REACH - 3
    assert at_depth(depth, lambda: has_room(room))
    try:
        sys.setrecursionlimit(depth + FRAMES - 30)
        assert not at_depth(depth, lambda: has_room(room))
    finally:
        sys.setrecursionlimit(limit)
    assert at_depth(depth, lambda: has_room(room))


def test_what_a_finalizer_calls_is_refused_however_much_room_there_is() -> None:
    refused: list[str] = []
    room = StackRoom(COLLECTING, refused.append)

    class Calls:
        def __del__(self) -> None:
            room.check("from a finalizer")
            other = threading.Thread(target=room.check, args=["from another thread"])
            other.start()
            other.join()

    for _ in range(2):
        room.check("before")
        calls = Calls()
        calls.itself = calls  # type: ignore[attr-defined]
        del calls
        gc.collect()
        room.check("after")
    assert refused == ["from a finalizer"] * 2
