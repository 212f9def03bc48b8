"""``docs/scale-out.md`` and ``docs/postgresql.md``: the commands that they show exist.

The programs of the page run in ``test_readme.py``.
"""

import re
import shlex
from pathlib import Path

import pytest

from hubbub.__main__ import _app

DOCS = Path(__file__).parent.parent / "docs"

SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
INLINE = re.compile(r"`(hubbub [a-z]+ [^`…]*--[^`…]+)`")

NO_COMMANDS = {"hubbub", "export", "uv", "docker"}
"""What a line of a shell may begin with besides a command of hubbub."""


def commands() -> list[tuple[str, str]]:
    found = []
    for name in ("scale-out.md", "postgresql.md"):
        text = (DOCS / name).read_text()
        lines = [line for block in SHELL.findall(text) for line in block.splitlines()]
        for line in lines:
            first = line.partition(" ")[0].partition("=")[0]
            assert first in NO_COMMANDS, line
            if first == "hubbub":
                found.append((name, line))
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_that_is_shown_can_be_given(page: str, line: str) -> None:
    tokens = shlex.split(line, comments=True)[1:]
    command, bound, _ = _app().parse_args(tokens, exit_on_error=False, print_error=False)
    assert command.__name__ == tokens[0] and bound.arguments


def test_options_that_are_named_in_the_text_exist() -> None:
    text = (DOCS / "scale-out.md").read_text()
    named = set(re.findall(r"`(hubbub \w+)[^`]*? (--[\w-]+)", text))
    assert ("hubbub worker", "--capacity") in named
    app = _app()
    for command, option in named:
        (found,) = [app[command.split()[1]]]
        options = {name for each in found.assemble_argument_collection() for name in each.names}
        assert option in options, (command, option)
