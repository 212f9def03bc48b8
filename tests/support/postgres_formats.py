"""Later versions of the store in PostgreSQL, to try what will happen when there are some.

format NOW        that of this program
format NOW + 1    columns, each the first of its table as a new store has it, and a table of labels
format NOW + 2    an index on one of them: of the same version as the one before
format NOW + 3    what the version after that drops
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from hubbub.runtime.stores.postgres import migrations, schema
from hubbub.runtime.stores.postgres.migrations import Upgrade

__all__ = ["DROPPED", "LABELLED", "NEXT", "NOW", "SORTED", "run_as_format", "version"]

TESTS: Final = Path(__file__).parents[1]

NOW: Final = migrations.newest()

COLUMNS: Final = {
    "run": "label text NOT NULL DEFAULT 'none'",
    "event": "size bigint",
    "note": "since timestamptz NOT NULL DEFAULT now()",
    "worker": "place text NOT NULL DEFAULT ''",
}

LABELLED: Final = Upgrade(
    to=NOW + 1,
    beside=NOW,
    changes=(
        *(f"ALTER TABLE {table} ADD COLUMN {column}" for table, column in COLUMNS.items()),
        "CREATE TABLE label (run bigint PRIMARY KEY, text text NOT NULL)",
    ),
)
SORTED: Final = Upgrade(to=NOW + 2, beside=NOW, indexes={"run_label": "ON run (agent, status)"})
DROPPED: Final = Upgrade(
    to=NOW + 3, beside=NOW + 2, changes=("ALTER TABLE event DROP COLUMN size",)
)

NEXT: Final = (LABELLED, SORTED)
"""The steps to the next version."""


@contextmanager
def version(*steps: Upgrade) -> Iterator[None]:
    """Be a program of the version that has these steps more, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "STEPS", (*migrations.STEPS, *steps))
        patch.setattr(schema, "_TABLES", tables(steps))
        yield


def tables(steps: Sequence[Upgrade]) -> str:
    """The tables as a version makes them: what is new in each stands first."""
    text = schema._TABLES
    if LABELLED in steps:
        for table, column in COLUMNS.items():
            if DROPPED not in steps or table != "event":
                text = text.replace(f"CREATE TABLE {table} (", f"CREATE TABLE {table} ({column}, ")
        text += LABELLED.changes[-1] + ";"
    if SORTED in steps:
        text += f"CREATE INDEX run_label {SORTED.indexes['run_label']};"
    return text


def run_as_format(steps: str, script: str) -> list[str]:
    """A program of a version in a process of its own; what it is given is ``sys.argv[1:]``."""
    return [
        sys.executable, "-c",
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from support.postgres_formats import *\n"
        "from hubbub.runtime.stores.postgres import migrations\n"
        f"migrations.STEPS += {steps}\n{script}",
    ]  # fmt: skip
