"""A later version of the store, to try what will happen when there is one.

Format 2 has a table of labels, which begin as the notes that there are; format 3 an index of it.
"""

import sqlite3
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hubbub.runtime.stores.sqlite import migrations
from hubbub.runtime.stores.sqlite.migrations import Migration

__all__ = ["ARCHIVES", "LABELLED", "SORTED", "VIEWS", "run_later", "take_out", "use_later"]

STORES = Path(__file__).parents[1] / "stores"

ARCHIVES = sorted(STORES.glob("format_*.tar.gz"))


def take_out(archive: Path, folder: Path) -> Path:
    """The stores of an archive, in a folder."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def add_labels(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE label (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    db.execute("INSERT INTO label SELECT key, value FROM note")


def sort_labels(db: sqlite3.Connection) -> None:
    db.execute("CREATE INDEX label_value ON label(value)")


LABELLED = Migration(to=2, run=add_labels)
SORTED = Migration(to=3, run=sort_labels)
VIEWS = {
    1: ("CREATE TEMP VIEW label AS SELECT key, value FROM main.note",),
    2: (),
}


def use_later(patch: pytest.MonkeyPatch, *steps: Migration, views: Any = VIEWS) -> None:
    """Be a later version, with these steps."""
    patch.setattr(migrations, "STEPS", steps)
    patch.setattr(migrations, "VIEWS", views)


def run_later(script: str) -> list[str]:
    """A program of that later version, in a process of its own: ``folder`` is its argument."""
    return [
        sys.executable, "-c",
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(STORES.parent)!r})\n"
        "from support.formats import *\n"
        "from hubbub.runtime.stores.sqlite import migrations\n"
        "folder = sys.argv[1]\n" + script,
    ]  # fmt: skip
