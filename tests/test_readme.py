"""Every example of the README and of the guides in docs/ runs as it is written there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def examples_of(guide: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / guide).read_text(), re.DOTALL)


EXAMPLES = examples_of("README.md")
SIMULATION = examples_of("docs/simulation.md")


@pytest.mark.parametrize(
    "example",
    [*EXAMPLES, *SIMULATION],
    ids=[
        *(f"README {number}" for number in range(len(EXAMPLES))),
        *(f"simulation {number}" for number in range(len(SIMULATION))),
    ],
)
def test_example_runs_as_written(example: str, tmp_path: Path) -> None:
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


def test_readme_has_a_first_agent_of_about_twenty_lines() -> None:
    first = [line for line in EXAMPLES[0].splitlines() if line.strip()]
    assert len(first) <= 20


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


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "AGENTS.md").read_text()
    paths = set(re.findall(r"\b(?:tests|docs|hub)/[\w/]+(?:\.\w+)?", pages))
    assert "tests/test_rooms.py" in paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
