"""The programs of docs/mcp.md run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "mcp.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
SAID = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.spec("L-09")
def test_the_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    for program in PROGRAMS:
        exec(compile(program, str(PAGE), "exec"), {"__name__": "program"})
    printed = capsys.readouterr().out
    assert "Pack a hat.\n" in printed
    assert all(each in printed for each in SAID)
    assert SAID
