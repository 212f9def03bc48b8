"""What users write passes mypy --strict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PROGRAM = """
from hubbub.runtime.simulation import (
    INVARIANTS, Crash, History, ModelFault, Open, Say, Setup, Step, Wait, WorldFault, scripted,
    simulate,
)
from hubbub.runtime.simulation.story.faults import AnyFault
from hubbub.runtime.simulation.strategies import steps as drawn_steps


def play(story: list[str], setup: Setup) -> History:
    steps = [Open(agent="desk"), *(Say(text=line) for line in story)]
    faults = [Crash(commit=1), ModelFault(kind="error")]
    return simulate(steps, setup, faults=faults)


def polite(history: History) -> None:
    assert history.events


def first(steps: list[Step], faults: list[WorldFault], setup: Setup) -> None:
    asked = {**INVARIANTS, "polite": polite}
    simulate([*steps, Wait()], lambda: scripted(setup, {}), faults=faults, invariants=asked)
    drawn_steps(lambda: setup)


def kind_of(fault: AnyFault) -> str:
    return fault.kind if isinstance(fault, ModelFault) else ""


simulate(["hello"], Setup())  # wrong
"""


@pytest.mark.long
def test_lists_of_steps_and_faults_are_lists_of_steps_and_faults(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n")
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--config-file", str(config), "--follow-imports=silent",
            "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(program),
        ],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / ".links")},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    wrong = PROGRAM.splitlines().index('simulate(["hello"], Setup())  # wrong') + 1
    assert [line.split(":")[1] for line in lines if ": error:" in line] == [str(wrong)], lines
