"""A disk that loses power under the store's writer: what was acknowledged is there (P-10).

More of it: ``uv run python -m tests.torture.run --vfs 5000``.
"""

import sqlite3

import pytest
from support.crash_vfs import CrashDisk, Fault, connect
from torture.power import LIVES, Loss, Weakness, lose_power

from hubbub.runtime.stores.sqlite.schema import PRAGMAS

WORLDS = 60


@pytest.mark.spec("P-10")
def test_whenever_the_power_goes_every_acknowledged_batch_is_there_and_every_batch_whole() -> None:
    done = [lose_power(seed) for seed in range(WORLDS)]
    assert sum(count.crashes for count in done) == WORLDS * LIVES
    assert sum(count.acknowledged for count in done) > WORLDS * LIVES


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("fault", ["error", "full", "sync"])
def test_an_error_of_the_disk_loses_nothing_that_was_acknowledged(fault: Fault) -> None:
    for seed in range(WORLDS // 2):
        lose_power(seed, faults=(fault, "power"))


@pytest.mark.parametrize("weakness", ["synchronous=NORMAL", "synchronous=OFF", "told too early"])
def test_the_disk_finds_out_a_store_that_tells_before_it_has_flushed(weakness: Weakness) -> None:
    found = 0
    for seed in range(20):
        try:
            lose_power(seed, weakness)
        except Loss:
            found += 1
    assert found > 10


def test_the_disk_forgets_no_deletion_that_was_synced() -> None:
    """The tester tested: a rollback journal that came back would undo everything."""
    disk = CrashDisk(0)
    connect(disk).close()
    for _ in range(20):
        disk.restart()
        db = connect(disk)
        assert db.execute("SELECT count(*) FROM run").fetchall() == [(0,)]
        db.close()


def test_the_writer_is_set_to_flush_before_it_tells() -> None:
    disk = CrashDisk(0)
    db = connect(disk)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert "synchronous=FULL" in PRAGMAS
    disk.fail_at(1, "error")
    with pytest.raises(sqlite3.OperationalError):
        db.execute("INSERT INTO note VALUES ('a', 'b')")
    assert disk.is_marked
    db.abandon()
