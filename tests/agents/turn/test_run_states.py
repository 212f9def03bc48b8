"""The states of a run that the turn engine's docstring shows are those that can be reached."""

import pytest
from support.run_states import STATES, arrows, diagram

from hubbub.agents import turn


def shown(lines: object) -> str:
    return "\n".join(f"    {line}" for line in lines)  # type: ignore[attr-defined]


def test_the_docstring_shows_every_state_and_every_arrow_that_can_be_reached() -> None:
    doc = turn.__doc__ or ""
    assert shown(f"{name:9}  {meaning}" for name, meaning in STATES.items()) in doc
    assert shown(diagram()) in doc, "\n".join(diagram())


def test_every_state_is_reached() -> None:
    assert {after for _, _, after in arrows()} == set(STATES) - {"new"}


@pytest.mark.parametrize("state", [name for name in STATES if name not in ("new", "ended")])
def test_a_run_can_be_interrupted_and_ended_whatever_it_is_at(state: str) -> None:
    after = {label: there for here, label, there in arrows() if here == state}
    assert after["terminated"] == after["its deadline"] == "ended"
    assert after["interrupted"] == "idle"


def test_nothing_leaves_the_end_and_nothing_comes_back_to_the_beginning() -> None:
    assert not [each for each in arrows() if each[0] == "ended" or each[2] == "new"]


def test_a_crash_changes_no_state_but_that_of_a_call_that_cannot_be_run_again() -> None:
    moved = {(here, there) for here, label, there in arrows() if label == "a crash"}
    assert {each for each in moved if each[0] != each[1]} == {
        ("open call", "session"),
        ("open call", "pause"),
    }
