"""Every example of the README and of the guides in docs/ runs as it is written there."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import hubbub
from hubbub.hub import errors

ROOT = Path(__file__).parent.parent


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def examples_of(page: Path) -> list[str]:
    return PROGRAM.findall(page.read_text())


EXAMPLES = [(page, number) for page in PAGES for number in range(len(examples_of(page)))]


@pytest.mark.parametrize(
    ("page", "number"),
    [
        # A process for each takes its time: the first one of a page stands for it.
        pytest.param(page, number, id=f"{page.stem} {number}",
                     marks=pytest.mark.long if number and page.stem != "README" else ())
        for page, number in EXAMPLES
    ],
)  # fmt: skip
def test_example_runs_as_written(page: Path, number: int, tmp_path: Path) -> None:
    example = examples_of(page)[number]
    script = tmp_path / "test_example.py"
    script.write_text(example)
    runner = ["-m", "pytest", "-q"] if "import pytest" in example else []
    done = subprocess.run(
        [sys.executable, "-W", "error", *runner, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spec("L-02", "L-03", "L-09")
def test_the_readme_shows_a_picture_a_typed_answer_and_a_tool_of_an_mcp_server(
    tmp_path: Path,
) -> None:
    """All three are in the conversation, in the order of the page."""
    (example,) = [x for x in examples_of(ROOT / "README.md") if "Image(" in x]
    (tmp_path / "example.py").write_text(example)
    command = [sys.executable, "-m", "hubbub"]
    said = []
    for arguments in ([sys.executable, "example.py"], [*command, "runs", "--all", "--json"]):
        done = subprocess.run(
            arguments, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        said.append(done.stdout)
    (run,) = json.loads(said[1])["runs"]
    shown = subprocess.run(
        [*command, "show", run["run_id"]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    assert said[0] == "teapot: 4.50 euros\n"
    order = [
        "[image (image/png, 68 bytes)]", "→ shop_price", "shop_price: 4.5",
        "`euros`: expected `float`, got `str`", '"euros": 4.5}',
    ]  # fmt: skip
    places = [shown.index(each) for each in order]
    assert places == sorted(places)


def test_the_first_agent_has_eight_lines_and_the_readme_is_short() -> None:
    first = [line for line in examples_of(ROOT / "README.md")[0].splitlines() if line.strip()]
    assert len(first) <= 8
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250


def test_the_tests_begin_by_both_of_the_usual_commands() -> None:
    """From the root ``python -m pytest`` finds setuptools' list of our files, and no harm in it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "tests/hub/test_task_host.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(PROGRAM.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_of_the_pages_leads_somewhere() -> None:
    lost = []
    for page in PAGES:
        for link in LINK.findall(PROGRAM.sub("", page.read_text())):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if "://" in link or link.startswith("mailto:"):
                continue
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                lost.append(f"{page.name}: {link}")
    assert lost == []


NAMED = re.compile(r"(?<![\w./])hubbub(?:\.[A-Za-z_]\w*)+")
NO_MODULES = {"hubbub.db", "hubbub.v1", "hubbub.ending"}
"""A file, a protocol, an extension of ASGI."""


def test_every_module_that_a_page_names_is_there() -> None:
    lost = [
        f"{page.name}: {name}"
        for page in [*PAGES, ROOT / "AGENTS.md"]
        for name in sorted({*NAMED.findall(page.read_text())} - NO_MODULES)
        if not _is_there(name)
    ]
    assert lost == []


def _is_there(name: str) -> bool:
    """Whether it is a module, or something that a module has."""
    found = hubbub
    for place, part in enumerate(name.split(".")[1:], 2):
        with suppress(ImportError):
            import_module(".".join(name.split(".")[:place]))
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "AGENTS.md").read_text()
    paths = set(re.findall(r"\b(?:tests|docs|hub)/[\w/-]+(?:\.\w+)?", pages))
    assert "tests/test_rooms.py" in paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_page_of_errors_explains_every_exception() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    above = {"CallerError", "OperatorError", "ProviderError"}
    assert [name for name in errors.__all__ if f"`{name}`" not in page] == []
    rows = set(re.findall(r"^\| `([A-Z]\w+)`", page, re.MULTILINE))
    assert rows == set(errors.__all__) - above - {"HubbubError", "InternalError"}
