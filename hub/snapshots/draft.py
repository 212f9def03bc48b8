"""Snapshots: what a long run has come to, kept beside its journal: it need not be read whole.

    a run at work ─► SnapshotDraft ─► ``keep_snapshot`` ─► encoded and kept, when it is worth it
    a run that wakes ─► ``load_kept`` ─► what it had come to, and the events since

Rules
-----
* A snapshot is a cache: without it, or with one that is damaged or of another version, the run is
  read whole, and comes to the same.  None is ever the only copy of anything.
* It is of the record that it was made of: its checksum covers its run, the number of its last
  event, and the checksum of the record up to there.
* One is kept of a run, the newest.  A further one is due when ``RECORDS`` events were written
  since and these are no smaller than the last snapshot: so no more is written of snapshots than of
  events.
* None is waited for, and none that cannot be written fails anything.
"""

import zlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

__all__ = ["RECORDS", "SnapshotDraft", "checksum_of", "is_due"]

RECORDS: Final = 200
"""Events of its own after which a further snapshot of a run is worth it; a shorter run has none."""


class SnapshotDraft(Struct, frozen=True, eq=False):
    """What a run has come to with its event number ``seq``, which is on record.

    ``encode`` makes the text of it, in whichever thread; of what never changes.  ``version`` says
    how: only who reads the same version can read it.
    """

    run_id: str
    seq: int
    version: str
    encode: Callable[[], bytes]


def is_due(written: int, grown: int, size: int) -> bool:
    """Whether a further snapshot is worth it, so many events and bytes after one of that size."""
    return written >= RECORDS and grown >= size


def checksum_of(run_id: str, seq: int, chain: int, version: str, body: bytes) -> int:
    """The checksum of a snapshot; ``chain`` is that of the run's record up to ``seq``."""
    return zlib.crc32(f"{run_id}\n{seq}\n{chain}\n{version}".encode(), zlib.crc32(body))
