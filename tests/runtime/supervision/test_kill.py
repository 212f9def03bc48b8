"""A real process under load is killed (kill -9) and started again: nothing is lost (P-10, P-17).

More of it: ``uv run python -m tests.torture.run --cycles 500``.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.profiles import examples
from support.pruned_stores import problems
from torture.audit import Audit
from torture.killing import Killing

CYCLES = max(examples(10), 4)
"""Kills in each of two folders, on asyncio and on Trio in turn."""


@pytest.mark.spec("P-10", "P-17", "H-07", "H-09")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_whenever_it_is_killed_what_was_acknowledged_is_there_and_nothing_twice(
    tmp_path: Path, seed: int
) -> None:
    killing = Killing(tmp_path, seed)
    for _ in range(CYCLES):
        killing.kill()
    killing.finish()
    count = killing.count
    assert (count.lost, count.doubled) == (0, 0)
    assert count.acknowledged > 10 * CYCLES
    assert count.restarts > CYCLES / 2


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.long)])
def test_whenever_it_is_killed_what_a_retention_had_go_was_over_and_all_else_is_there(
    tmp_path: Path, seed: int
) -> None:
    """More of it: ``uv run python -m tests.torture.run --cycles 500 --ended 2``."""
    killing = Killing(tmp_path, seed, ended=2.0)
    for _ in range(2 * CYCLES):
        killing.kill()
    killing.finish()
    count = killing.count
    assert (count.lost, count.doubled) == (0, 0)
    assert count.gone > 0 and count.acknowledged > 10 * CYCLES
    assert problems(f"sqlite:{tmp_path / 'store'}") == []


def _forget_message(db: sqlite3.Connection) -> None:
    # The first one: of the last one the process may have died before it could tell.
    db.execute("DELETE FROM event WHERE position = (SELECT min(position) FROM event WHERE type = "
               "'session:message' AND lane = 'in')")  # fmt: skip


def _change_event(db: sqlite3.Connection) -> None:
    db.execute("UPDATE event SET body = replace(body, '\"at\":', '\"at\":1') WHERE position = 5")


def _forget_secrets(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM secret")


def _take_back(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO waiting SELECT run, seq, position FROM event WHERE lane = 'in' LIMIT 1")


def _forget_record(db: sqlite3.Connection) -> None:
    db.execute("UPDATE event SET body = replace(body, '\"name\":\"l', '\"name\":\"x') "
               "WHERE type = 'agent:record'")  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_forget_message, "lost: message"), (_change_event, "not what was written"),
        (_forget_secrets, "lost: secret"), (_take_back, "doubled: item"),
        (_forget_record, "lost: step"),
    ],
)  # fmt: skip
def test_the_audit_finds_what_was_done_to_a_store(
    tmp_path_factory: pytest.TempPathFactory,
    spoil: Callable[[sqlite3.Connection], None],
    words: str,
    worked_on: tuple[Path, list[str]],
) -> None:
    folder, lines = worked_on
    copy = tmp_path_factory.mktemp("spoilt")
    (copy / "store").mkdir()
    (copy / "effects.log").write_text((folder / "effects.log").read_text())
    with sqlite3.connect(folder / "store" / "hubbub.db") as db:
        spoilt = sqlite3.connect(copy / "store" / "hubbub.db")
        db.backup(spoilt)
    db.close()
    assert Audit(copy).check(lines) == []
    spoil(spoilt)
    spoilt.commit()
    spoilt.close()
    assert words in "\n".join(Audit(copy).check(lines))


@pytest.fixture(scope="module")
def worked_on(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder in which a process has been killed, and what it had said."""
    folder = tmp_path_factory.mktemp("worked")
    lines = Killing(folder, seed=3).run_until_killed(seconds=3.0)
    return folder, [line for line in lines if not line.startswith("open ")]


@pytest.mark.long
@pytest.mark.spec("P-10")
def test_the_audit_finds_an_effect_that_was_had_twice(worked_on: tuple[Path, list[str]]) -> None:
    folder, lines = worked_on
    log = folder / "effects.log"
    before = log.read_text()
    risky = next(line for line in before.splitlines() if line.startswith("risky "))
    log.write_text(f"{before}{risky}\n")
    try:
        assert "2 times" in "\n".join(Audit(folder).check(lines))
    finally:
        log.write_text(before)
