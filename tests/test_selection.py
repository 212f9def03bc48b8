"""What ``uv run pytest`` runs, and what it says of what it leaves out."""

import tomllib
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import settings
from support.profiles import DEV, examples, portion

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
TESTS = """
import pytest

@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_that_takes_long(number): pass

def test_that_does_not(): pass
"""
BOARD = """
import pytest

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])

@pytest.mark.parametrize("row", ["a", "b", "c"])
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
@LOOPS
def test_all(loop, store, row): pass

@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
@LOOPS
def test_one_row(loop, store): pass

@LOOPS
@pytest.mark.parametrize("store", ["memory"])
def test_one_store(loop, store): pass

@LOOPS
@pytest.mark.parametrize(("row", "store"), [("a", "memory"), ("b", "sqlite")])
def test_a_store_for_each(loop, row, store): pass

@LOOPS
@pytest.mark.parametrize("row", range(5))
def test_many_rows(loop, row): pass

@LOOPS
@pytest.mark.parametrize("row", range(3))
def test_few_rows(loop, row): pass

@LOOPS
@pytest.mark.parametrize("store", ["memory", "late", "sqlite", "postgres"])
@pytest.mark.parametrize("row", range(4))
def test_many_stores(loop, store, row): pass

@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_no_loop(store): pass
"""
OUR_OWN = """
import sys
sys.path.append({support!r})
from support.selection import *
from support.selection import __all__
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with our options and our way to select."""
    pytester.makeconftest(OUR_OWN.format(support=str(ROOT / "tests")))
    markers = "\n    ".join(OPTIONS["markers"])
    pytester.makeini(f"[pytest]\naddopts = {OPTIONS['addopts']}\nmarkers =\n    {markers}\n")
    pytester.makepyfile(test_one=TESTS, test_two=TESTS)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("processes", ["0", "2"])
def test_long_tests_are_left_out_and_that_is_said(project: pytest.Pytester, processes: str) -> None:
    result = run(project, "-n", processes)
    assert result.parseoutcomes()["passed"] == 2
    assert (processes == "2") == ("2 workers" in result.stdout.str())
    result.stdout.fnmatch_lines(
        ['6 long tests were left out: -m long runs these, -m "" all (as CI does)']
    )


def test_all_run_where_they_are_asked_for_and_nothing_is_said(project: pytest.Pytester) -> None:
    result = run(project, "-n", "0", "-m", "")
    assert result.parseoutcomes()["passed"] == 8
    result.stdout.no_fnmatch_line("*left out*")


def test_few_rows_run_on_each_loop_and_each_store_is_tried_but_not_in_every_combination(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(test_board=BOARD)
    result = run(project, "test_board.py", "-v")
    lines = [x.split(" ")[0] for x in result.outlines if x.endswith("PASSED") or "PASSED " in x]
    ids = {x.partition("::")[2] for x in lines}
    found = {tuple(x.rstrip("]").partition("[")[2].split("-")) for x in ids if "test_all[" in x}
    loops, stores = ("asyncio", "trio"), ("memory", "late", "sqlite")
    assert {(loop, row) for loop, _, row in found} == {*product(loops, "abc")}
    assert {store for _, store, _ in found} == {*stores}
    assert len(found) == 6, "one store each"
    of_one_row = {x for x in ids if "test_one_row[" in x}
    assert len(of_one_row) == 3
    assert all(any(name in x for x in of_one_row) for name in (*loops, *stores))
    others = {x for x in ids if "test_all[" not in x and "test_many" not in x} - of_one_row
    assert others == {
        "test_one_store[memory-asyncio]", "test_one_store[memory-trio]",
        "test_a_store_for_each[a-memory-asyncio]", "test_a_store_for_each[a-memory-trio]",
        "test_a_store_for_each[b-sqlite-asyncio]", "test_a_store_for_each[b-sqlite-trio]",
        "test_no_loop[memory]", "test_no_loop[sqlite]",
        *(f"test_few_rows[{row}-{loop}]" for row in range(3) for loop in loops),
    }  # fmt: skip


def test_many_rows_run_on_one_loop_each_and_every_loop_and_store_is_tried(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(test_board=BOARD)
    result = run(project, "test_board.py", "-v", "-k", "many")
    found = [x.split("[")[1].partition("]")[0].split("-") for x in result.outlines if "%]" in x]
    rows = [(x[0], x[1]) for x in found if len(x) == 2]
    assert sorted(row for row, _ in rows) == [*"01234"]
    assert sorted(Counter(loop for _, loop in rows).values()) == [2, 3]
    placed = [x for x in found if len(x) == 3]
    assert {row for row, *_ in placed} == {*"0123"} and len(placed) <= 5
    assert {store for _, store, _ in placed} == {"memory", "late", "sqlite", "postgres"}
    assert {loop for *_, loop in placed} == {"asyncio", "trio"}


def test_what_is_left_out_is_said_and_can_be_run(project: pytest.Pytester) -> None:
    project.makepyfile(test_board=BOARD)
    result = run(project, "test_board.py")
    count = result.parseoutcomes()["passed"]
    words = f"{80 - count} tests were left out: other loops and stores of tests that were run"
    result.stdout.fnmatch_lines([f'{words}, -m "" all (as CI does)'])
    assert run(project, "test_board.py", "-m", "").parseoutcomes()["passed"] == 80


def test_no_claim_is_skipped_where_ci_runs(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        test_claims="""
            import pytest

            @pytest.mark.spec("H-01")
            def test_that_claims():
                pytest.skip("it is late")

            def test_that_claims_nothing():
                pytest.skip("it is early")
        """
    )
    monkeypatch.delenv("CI", raising=False)
    run(project, "test_claims.py").assert_outcomes(skipped=2)
    monkeypatch.setenv("CI", "true")
    run(project, "test_claims.py").assert_outcomes(failed=1, skipped=1)


def test_one_file_runs_in_one_process(project: pytest.Pytester) -> None:
    result = run(project, "test_one.py")
    result.assert_outcomes(passed=1, deselected=3)
    result.stdout.no_fnmatch_line("*workers*")


def test_people_draw_a_tenth_of_the_examples_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)
    before = settings.get_current_profile_name()
    try:
        settings.load_profile("ci")
        assert (examples(250), examples(5)) == (250, 5)
        assert list(portion(range(45))) == list(range(45))
        assert settings().max_examples == 100
        assert settings().derandomize
        settings.load_profile("dev")
        assert (examples(250), examples(5)) == (25, 1)
        tried = [portion(range(45)) for _ in range(500)]
        assert {len(each) for each in tried} == {4, 5}
        assert {number for each in tried for number in each} == set(range(45))
        assert (list(portion([7])), list(portion([]))) == ([7], [])
        assert settings().max_examples == 10
        assert not settings().derandomize
    finally:
        settings.load_profile(before)


def test_ci_runs_what_is_long_and_draws_all_examples() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "export CI=true" in script
    assert all('-m ""' in line for line in script.splitlines() if " pytest " in line)


def test_all_processes_of_a_run_take_the_same_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tests are collected by it, or pytest-xdist would run none."""
    if settings.get_current_profile_name() != DEV:
        assert portion(range(100)) == range(100)
        return
    first = set()
    for run in range(30):
        monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", f"run {run}")
        (taken,) = {tuple(portion(range(100))) for _ in range(10)}
        first.add(taken[0])
    assert len(first) > 1
