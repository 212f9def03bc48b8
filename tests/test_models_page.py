"""The programs of docs/models.md run."""

import re
from pathlib import Path

import pytest

from hubbub.runtime.models.providers import PROVIDERS

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.spec("L-07")
@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(program: str) -> None:
    exec(compile(program, str(PAGE), "exec"), {"__name__": "program"})


@pytest.mark.spec("L-08")
def test_the_page_names_every_service_and_its_key() -> None:
    table = PAGE.read_text().partition("## Services")[2].partition("## Settings")[0]
    for each in PROVIDERS.values():
        assert f"`{each.name}`" in table
        assert f"`{each.key_variable}`" in table or not each.needs_key
