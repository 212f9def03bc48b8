"""Attacks find what the other tests share, how long they are to last, and a store of each kind."""

import sys
from pathlib import Path

import pytest

from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.stores.open import sqlite_store

sys.path.append(str(Path(__file__).parent.parent))


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    match request.param:
        case "memory":
            return MemoryJournal()
        case "late":
            return LateJournal(MemoryJournal())
        case _:
            return sqlite_store(tmp_path / "store", ports=ports)
