"""Snapshots taken far more often than they are worth it: whatever they change is seen at once.

What code agents find on record is read in pages as small.
"""

import pytest

from hubbub.hub.snapshots import draft as rules
from hubbub.hub.store import memory
from hubbub.runtime.remembered import snapshots as offered
from hubbub.runtime.runs import code_run, earlier, model_run
from hubbub.runtime.stores.sql import snapshots as kept
from hubbub.runtime.supervision import supervisor

__all__ = ["every"]


def every(patch: pytest.MonkeyPatch, records: int) -> None:
    """Have a snapshot be due after so many events, however large the last one is."""

    def is_due(written: int, grown: int, size: int) -> bool:
        return written >= records

    for module in (rules, offered, model_run, code_run, kept, supervisor):
        patch.setattr(module, "RECORDS", records)
    patch.setattr(earlier, "PAGE", records)
    for module in (rules, memory, kept):
        patch.setattr(module, "is_due", is_due)
