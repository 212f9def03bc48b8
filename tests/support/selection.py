"""Which tests run when none are named, in how many processes, and what is said of the others."""

import gc
import os
from collections.abc import Generator, Sequence
from typing import Any

import pytest

__all__ = [
    "pytest_collection_finish",
    "pytest_deselected",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "pytest_xdist_auto_num_workers",
]

LEFT_OUT = pytest.StashKey[int]()
OUTPUT = "long tests left out"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process for one file: further ones would take longer to begin than it takes to run."""
    files = {argument.partition("::")[0] for argument in config.option.file_or_dir}
    return 0 if len(files) == 1 and all(map(os.path.isfile, files)) else None


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long"):
            item.config.stash[LEFT_OUT] = item.config.stash.get(LEFT_OUT, 0) + 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Any]:
    """Where CI runs, a test that claims a line of the contract is not skipped."""
    report = yield
    if report.skipped and os.environ.get("CI") and item.get_closest_marker("spec"):
        report.outcome = "failed"
        report.longrepr = f"it claims a line of the contract, and was skipped: {report.longrepr}"
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # One of several processes: the one that prints has collected nothing.
        output[OUTPUT] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Each of them has left out the same.  One that died says nothing.
    count = getattr(node, "workeroutput", {}).get(OUTPUT, 0)
    node.config.stash[LEFT_OUT] = max(count, node.config.stash.get(LEFT_OUT, 0))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    count = config.stash.get(LEFT_OUT, 0)
    if count:
        tests = "1 long test was" if count == 1 else f"{count} long tests were"
        terminalreporter.write_line(f'{tests} left out: -m long runs these, -m "" all (as CI does)')


def pytest_collection_finish() -> None:
    """What has been collected stays to the end: no search for garbage goes through it again."""
    gc.collect()
    gc.freeze()
