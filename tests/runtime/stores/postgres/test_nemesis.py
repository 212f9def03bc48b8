"""Real processes share a store on a real server, and everything happens to them, a little of it."""

from pathlib import Path

import pytest
from torture.nemesis import Pace, live_stories

pytestmark = pytest.mark.long

FOR_A_BUSY_MACHINE = 6.0
FAULTS = (
    "kill", "unanswered", "cut", "pause", "hang_up", "end", "leave", "upgrade", "restart",
    "failover",
)  # fmt: skip


@pytest.mark.spec("X-02", "X-03", "X-04", "X-06")
def test_whatever_happens_nothing_is_lost_nothing_is_doubled_and_nobody_writes_for_another(
    tmp_path: Path,
) -> None:
    """What the command does for as long as it is told: ``python -m tests.torture.nemesis``."""
    pace = Pace(cycles=len(FAULTS), spare=FOR_A_BUSY_MACHINE)
    count = live_stories(tmp_path, 1, FAULTS, pace)
    assert (count.lost, count.doubled, count.stale) == (0, 0, 0)
    assert count.acknowledged > 50 and count.seen > 500
    assert count.takeovers
