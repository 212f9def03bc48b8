"""``docs/architecture.md`` says what is so: its drawings are made again, its names are looked up.

``uv run python tests/test_architecture_page.py`` brings the drawings in line with the plan.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parent))

from support.house import drawing
from support.run_states import diagram
from test_rooms import ROOMS

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "architecture.md"
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
QUOTED: Final = re.compile(r"`([^`\n]+)`")
NAME: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)?")
FILE: Final = re.compile(
    r"(?<![\w/.~:-])(?:hub|agents|runtime|channels|tests|docs)/[\w/-]+\.(?:py|md)\b"
)
OF_A_READER: Final = {"tests/test_run.py"}
"""Files that a page has its reader write."""


def drawings() -> tuple[str, str]:
    return drawing(ROOMS), "\n".join(diagram())


@cache
def defined_in(file: str) -> frozenset[str]:
    """The classes, functions and values of a file, and the members of its classes."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        found |= {*named_by(node)}
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for each in node.body for name in named_by(each)}
    return frozenset(found)


def named_by(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def mentions(text: str) -> Iterator[tuple[str, str]]:
    """Each path of ``text`` with an empty name, and each name with the path before it."""
    for line in BLOCK.sub("", text).splitlines():
        file = ""
        for quoted in QUOTED.findall(line):
            if "/" in quoted or quoted.endswith((".py", ".toml")):
                file = quoted
                yield file, ""
            elif file.endswith(".py") and NAME.fullmatch(quoted):
                yield file, quoted


def test_the_drawings_are_those_of_the_plan_and_of_what_can_happen() -> None:
    shown = [found[2] for found in BLOCK.finditer(PAGE.read_text())]
    assert shown == list(drawings()), f"run python {Path(__file__).relative_to(ROOT)}"


def test_every_file_and_name_is_there() -> None:
    found = list(mentions(PAGE.read_text()))
    lost = [file for file, _ in found if not (ROOT / file).exists()]
    assert lost == [], "these are gone"
    unknown = [f"{file}: {name}" for file, name in found if name and name not in defined_in(file)]
    assert unknown == [], "these files define no such thing"
    assert len({file for file, _ in found}) > 60
    assert sum(bool(name) for _, name in found) > 50


def test_every_file_that_any_page_or_comment_names_is_there() -> None:
    rooms = (ROOT / room for room in ("hub", "agents", "runtime", "channels", "tests", "docs"))
    files = [*ROOT.glob("*.*"), *(file for room in rooms for file in room.rglob("*.*"))]
    lost = [
        f"{file.relative_to(ROOT)}: {path}"
        for file in files
        if file.suffix in (".py", ".md")
        for path in FILE.findall(file.read_text())
        if not (ROOT / path).exists() and path not in OF_A_READER
    ]
    assert lost == []


def test_names_of_one_file_are_not_looked_for_in_another() -> None:
    text = "`hub/hub.py` `Hub.emit`, and `hub/ports.py` `nothing`\n`Hub`\n```\n`x/y.py`\n```"
    assert list(mentions(text)) == [
        ("hub/hub.py", ""), ("hub/hub.py", "Hub.emit"), ("hub/ports.py", ""),
        ("hub/ports.py", "nothing"),
    ]  # fmt: skip


def test_a_drawing_leaves_out_what_follows() -> None:
    plan = {"hub": (), "agents": ("hub",), "runtime": ("hub", "agents")}
    arrows = [line.strip() for line in drawing(plan).splitlines() if "-->" in line]
    assert arrows == ["agents --> hub", "runtime --> agents"]


def main() -> None:
    made = iter(drawings())
    text = PAGE.read_text()
    PAGE.write_text(BLOCK.sub(lambda found: f"```{found[1]}\n{next(made)}\n```", text))


if __name__ == "__main__":
    main()
