"""The guide to testing: a user's own desk, three properties, a planted bug found and shrunk."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import seed

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
(GUIDE,) = [each for each in EXAMPLES if "def test_the_desk(" in each]


def test_the_guide_takes_less_than_sixty_lines() -> None:
    assert len(GUIDE.splitlines()) < 60


@pytest.mark.long
@pytest.mark.parametrize("number", range(5))
def test_the_planted_bug_is_found_and_shrunk_to_one_refund_and_one_crash(number: int) -> None:
    """By the program as it stands there, but for the one word that it speaks of."""
    call = "play(story, faults, seed)"
    assert GUIDE.count(f"    {call} ") == 1
    names: dict[str, Any] = {}
    planted = GUIDE.replace(call, "play(story, faults, seed, idempotent=True)")
    planted = planted.replace("@settings(", "@settings(database=None, ")
    exec(planted.replace("\ntest_the_desk()\n", "\n"), names)
    test = seed(number)(names["test_the_desk"])
    with pytest.raises(AssertionError, match="paid twice") as raised:
        test()
    notes = "\n".join(raised.value.__notes__)
    (story,) = re.findall(r"story=\[(.*?)\]", notes)
    (faults,) = re.findall(r"^ *faults=\[(.*?)\],$", notes, re.MULTILINE)
    assert story.count("refund") == 1
    assert re.fullmatch(r"Crash\(commit=\d+\)|ToolFault\(kind='crash'\)", faults)
    (line,) = re.findall(r"^To see it again: (.*)$", notes, re.MULTILINE)
    assert line.endswith(f"faults=[{faults}])")
    names["setup"] = names["desk"](bank := [], idempotent=True)
    exec(line, names)
    assert bank.count(bank[0]) == 2
