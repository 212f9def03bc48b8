"""Which tests run when none are named, in how many processes, and what is said of the others."""

import gc
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from typing import Any, Final
from zlib import crc32

import pytest

__all__ = [
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_deselected",
    "pytest_runtest_makereport",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "pytest_xdist_auto_num_workers",
]

LEFT_OUT = pytest.StashKey[Counter[str]]()
OUTPUT = "tests left out"
SAID: Final = {
    "long": ("long ", "-m long runs these, "),
    "combination": ("", "other loops and stores of tests that were run, "),
}
LOOPS: Final = {"anyio_backend", "backend", "loop"}
STORES: Final = {
    "is_late", "is_later", "journal", "kept", "late", "life", "make_journal", "open_again",
    "open_runtime", "opened", "store",
}  # fmt: skip
"""Parameters that say which loop a test runs on, and which store it has or how late that is."""
MANY: Final = 4
"""Rows of which each runs on one of the loops only: the others meet the other loop."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process for one file: further ones would take longer to begin than it takes to run."""
    files = {argument.partition("::")[0] for argument in config.option.file_or_dir}
    return 0 if len(files) == 1 and all(map(os.path.isfile, files)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what differs from another test in the store or the loop alone, but for a part of it.

    What is left of a test runs on each loop and with each store, and each of its rows: on each loop
    where the rows are few, on one of them where they are many.
    """
    boards: dict[str, Board] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            names = item.callspec.params.keys()
            if names & LOOPS:
                test = item.nodeid.partition("[")[0]
                boards.setdefault(test, Board(crc32(test.encode()))).put(item)
    for board in boards.values():
        board.mark()


class Board:
    """A test with its parameters, of which one is a loop and others may be a store."""

    def __init__(self, corner: int) -> None:
        """A ``corner`` that is even is white."""
        self._corner = corner
        self._places: list[tuple[int, int, int, pytest.Function]] = []
        self._numbers: dict[Any, dict[Any, int]] = defaultdict(dict)

    def put(self, item: pytest.Function) -> None:
        # The same object for all that have it.  Not all can be compared or are hashable.
        values = {name: id(value) for name, value in item.callspec.params.items()}
        loop = tuple(values[name] for name in values.keys() & LOOPS)
        store = tuple(values[name] for name in sorted(values.keys() & STORES))
        row = tuple(values[name] for name in sorted(values.keys() - LOOPS - STORES))
        numbers = (
            self._number("row", row), self._number(row, store), self._number("loop", loop)
        )  # fmt: skip
        self._places.append((*numbers, item))

    def mark(self) -> None:
        stores, loops = (1 + max(x[k] for x in self._places) for k in (1, 2))
        rows = len({row for row, *_ in self._places})
        # A diagonal meets every store if there are enough rows; every second place always does.
        step = stores if stores < rows + loops else 2
        colours = [
            ((row, loop), (self._corner + row + store + loop) % step, item)
            for row, store, loop, item in self._places
        ]
        white = {place for place, colour, _ in colours if not colour}
        left: dict[int, list[tuple[tuple[str, int], tuple[str, int], pytest.Function]]]
        left = defaultdict(list)
        for (row, store, loop, item), (place, colour, _) in zip(self._places, colours, strict=True):
            if colour and place in white:  # A row of one store is tried with that on every loop.
                item.add_marker(pytest.mark.combination)
            else:
                left[row].append((("store", store), ("loop", loop), item))
        if rows >= MANY:
            self._thin([*left.values()])

    def _thin(self, rows: Sequence[Sequence[Any]]) -> None:
        """Leave one of each row, so that each store and each loop is met about as often."""
        times = Counter({("loop", self._corner % 2): 0.5})
        kept = []
        for row in rows:
            kept.append(min(row, key=lambda x: (times[x[0]], times[x[1]])))
            times.update(dict.fromkeys(kept[-1][:2], 1))
        met = {each for store, loop, _ in kept for each in (store, loop)}
        for each in (each for row in rows for each in row):
            if not met.issuperset(each[:2]):
                met.update(each[:2])
            elif not any(each is x for x in kept):
                each[2].add_marker(pytest.mark.combination)

    def _number(self, of: Any, value: Any) -> int:
        """Its place among the values of the same kind."""
        numbers = self._numbers[of]
        return numbers.setdefault(value, len(numbers))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        for name in SAID:
            if item.get_closest_marker(name):
                item.config.stash.setdefault(LEFT_OUT, Counter())[name] += 1
                break


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
        output[OUTPUT] = dict(session.config.stash.get(LEFT_OUT, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Each of them has left out the same.  One that died says nothing.
    output = Counter(getattr(node, "workeroutput", {}).get(OUTPUT, {}))
    node.config.stash[LEFT_OUT] = node.config.stash.get(LEFT_OUT, Counter()) | output


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    left_out = config.stash.get(LEFT_OUT, Counter())
    for name, (kind, how) in SAID.items():
        if count := left_out[name]:
            tests = f"1 {kind}test was" if count == 1 else f"{count} {kind}tests were"
            terminalreporter.write_line(f'{tests} left out: {how}-m "" all (as CI does)')


def pytest_collection_finish() -> None:
    """What has been collected stays to the end: no search for garbage goes through it again."""
    gc.collect()
    gc.freeze()
