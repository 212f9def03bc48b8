"""What a press of Ctrl-C does, and that its hint tells the truth (I-08, K-03)."""

import pytest

from hubbub.channels.console.ctrl_c import TWICE, CtrlC, hint

pytestmark = [pytest.mark.spec("I-08"), pytest.mark.spec("K-03")]

AT_WORK, AT_REST = (False, True), (False, False)
FRAME_AT_WORK, FRAME_WAITS = (True, True), (True, False)
"""Whether there are frames, and whether whoever has the conversation is at work."""


def presses(*states, apart=0.5, **options):
    ctrl_c = CtrlC(**options)
    return [
        ctrl_c.press(at * apart, has_frames=has_frames, is_working=is_working)
        for at, (has_frames, is_working) in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("first", "second", "deeds"),
    [
        (AT_REST, AT_REST, ["rest", "leave"]),
        (AT_WORK, AT_WORK, ["interrupt", "leave"]),
        (AT_WORK, AT_REST, ["interrupt", "leave"]),
        (FRAME_AT_WORK, FRAME_WAITS, ["interrupt frame", "go back"]),
        (FRAME_AT_WORK, FRAME_AT_WORK, ["interrupt frame", "go back"]),
        (FRAME_WAITS, FRAME_WAITS, ["go back", "leave"]),
        (FRAME_WAITS, AT_REST, ["go back", "rest"]),
        (FRAME_WAITS, AT_WORK, ["go back", "interrupt"]),
        (FRAME_AT_WORK, AT_REST, ["interrupt frame", "rest"]),
        (AT_WORK, FRAME_AT_WORK, ["interrupt", "leave"]),
    ],
)
def test_the_second_press_does_what_the_first_has_said(first, second, deeds):
    assert presses(first, second) == deeds


def test_presses_that_are_far_apart_know_nothing_of_each_other():
    assert presses(AT_REST, AT_REST, AT_REST, apart=TWICE) == ["rest"] * 3
    assert presses(FRAME_AT_WORK, FRAME_AT_WORK, apart=TWICE) == ["interrupt frame"] * 2


def test_three_presses_leave_a_frame_that_heeds_none():
    assert presses(*[FRAME_AT_WORK] * 3) == ["interrupt frame", "go back", "leave"]


def test_whoever_has_typed_a_line_begins_anew():
    ctrl_c = CtrlC()
    assert ctrl_c.press(0, has_frames=False, is_working=False) == "rest"
    ctrl_c.spoke()
    assert ctrl_c.press(1, has_frames=False, is_working=True) == "interrupt"


def test_a_frame_that_goes_shows_that_going_back_is_heeded():
    ctrl_c = CtrlC()
    assert ctrl_c.press(0, has_frames=True, is_working=False) == "go back"
    ctrl_c.went_back()
    assert ctrl_c.press(1, has_frames=True, is_working=False) == "go back"


def test_from_a_pipe_the_first_one_leaves():
    assert presses(FRAME_AT_WORK, once=True) == presses(AT_REST, once=True) == ["leave"]


def test_a_hint_says_what_the_next_press_does():
    assert hint("interrupt frame").endswith("Ctrl-C again goes back to main")
    for deed in ("interrupt", "rest"):
        assert hint(deed).endswith("press Ctrl-C again to leave")
