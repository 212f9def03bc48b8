"""The guide of the README: a user's own desk, three properties, a planted bug found and shrunk."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
(GUIDE,) = [each for each in EXAMPLES if "simulate(" in each]


@pytest.fixture
def guide() -> dict[str, Any]:
    """What the guide defines; it is run as a whole by ``test_readme``."""
    names: dict[str, Any] = {}
    exec(GUIDE.replace("\ntest_the_desk()\n", "\n"), names)
    return names


def test_the_guide_takes_less_than_sixty_lines() -> None:
    assert len(GUIDE.splitlines()) < 60


def test_the_planted_bug_is_found_and_shrunk_to_one_refund_and_one_crash(
    guide: dict[str, Any],
) -> None:
    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    @given(guide["stories"], guide["faults"], st.integers(0, 99))
    def paid_once(story: list[str], faults: list[Any], seed: int) -> None:
        guide["play"](story, faults, seed, idempotent=True)

    with pytest.raises(AssertionError, match="paid twice") as raised:
        paid_once()
    (story,) = re.findall(r"story=\[(.*?)\]", "".join(raised.value.__notes__))
    (faults,) = re.findall(r"faults=\[(.*?)\]", "".join(raised.value.__notes__))
    assert story.count("refund") == 1
    assert re.fullmatch(r"Crash\(commit=\d+\)", faults)
