"""The programs of docs/structured-output.md run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "structured-output.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.spec("L-03")
@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(program: str) -> None:
    exec(compile(program, str(PAGE), "exec"), {"__name__": "program"})
