"""``docs/contract.md`` has the lines that the tests prove, and says of which nothing is proven."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORIGIN = ROOT.parent / "shared" / "spec.md"
"""What this contract was written from; there where the project is worked on."""

LINE = re.compile(r"^- \*\*([A-Z]-\d+)\*\* (\*\(not proven\)\* )?\S.*\.$")
ID = re.compile(r"[A-Z]-\d{2}")


def lines() -> dict[str, bool]:
    """Each id of our contract, and whether it is proven."""
    found: dict[str, bool] = {}
    for line in (ROOT / "docs" / "contract.md").read_text().splitlines():
        if line.startswith("- **") and ID.match(line[4:]):
            match = LINE.match(line)
            assert match, f"not as the others are written: {line}"
            assert match[1] not in found, f"{match[1]} stands there twice"
            found[match[1]] = match[2] is None
    return found


def claims_in(tree: ast.Module) -> Iterator[str]:
    """What ``mark.spec`` is given: words, or a table of the same file."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.spec")):
            continue
        for argument in node.args:
            if isinstance(argument, ast.Constant):
                yield str(argument.value)
            else:
                yield from (
                    each.value
                    for each in ast.walk(tree)
                    if isinstance(each, ast.Constant)
                    and isinstance(each.value, str)
                    and ID.fullmatch(each.value)
                )


def claims() -> set[str]:
    files = (ROOT / "tests").rglob("*.py")
    return {claim for file in files for claim in claims_in(ast.parse(file.read_text()))}


def test_what_is_proven_is_what_tests_claim() -> None:
    proven = {name for name, is_proven in lines().items() if is_proven}
    claimed = claims()
    assert proven - claimed == set(), "no test claims these: they are not proven"
    assert claimed - set(lines()) == set(), "these do not exist"
    assert claimed - proven == set(), "tests claim these: take the mark away"


def test_lines_stand_in_sections_and_in_order() -> None:
    text = (ROOT / "docs" / "contract.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for section in sections:
        ids = re.findall(r"^- \*\*([A-Z]-\d+)", section, re.MULTILINE)
        assert ids == [f"{section[0]}-{number:02}" for number in range(1, len(ids) + 1)]


@pytest.mark.skipif(not ORIGIN.exists(), reason="is there only where the project is worked on")
def test_the_lines_are_those_of_the_contract_it_was_written_from() -> None:
    known = re.findall(r"^- ([A-Z]-\d+) ", ORIGIN.read_text(), re.MULTILINE)
    assert set(lines()) == set(known)


def test_the_readme_and_the_guide_for_agents_lead_here() -> None:
    for page in ("README.md", "AGENTS.md"):
        text = (ROOT / page).read_text()
        assert "docs/contract.md" in text and "docs/architecture.md" in text, page
