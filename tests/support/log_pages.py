"""Which pages a store writes: beside the flush, what a transaction costs.

Read from SQLite's log.  No clock, and no more noise than there is in ids.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import unpack_from
from tempfile import TemporaryDirectory

__all__ = ["pages_written"]

HEADER, FRAME = 32, 24
"""Bytes before the first frame of a log, and before the page in each."""


def pages_written(database: Path) -> list[Counter[str]]:
    """By transaction in the log of a database, the pages that it wrote, by table or index."""
    log = database.with_name(f"{database.name}-wal").read_bytes()
    owners = _owners(database)
    transactions, pages = [], Counter[str]()
    for page, is_last in _frames(log):
        pages[owners.get(page, "")] += 1
        if is_last:
            transactions.append(pages)
            pages = Counter()
    return transactions


def _frames(log: bytes) -> Iterator[tuple[int, bool]]:
    """The pages in a log, in order, and whether a transaction ends there."""
    size, salt = unpack_from(">I", log, 8)[0], log[16:24]
    for at in range(HEADER, len(log) - FRAME - size + 1, FRAME + size):
        if log[at + 8 : at + 16] != salt:  # What an earlier use has left there.
            return
        page, pages = unpack_from(">II", log, at)
        yield page, pages > 0


def _owners(database: Path) -> dict[int, str]:
    """The tables and indexes, by page; pages of long values, and of the map, are not among them."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / database.name
        for end in ("", "-wal"):
            shutil.copyfile(f"{database}{end}", f"{copy}{end}")
        with closing(sqlite3.connect(copy)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            found = db.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage")
            roots = {"sqlite_schema": 1, **dict(found)}
        data = copy.read_bytes()
    return {page: name for name, root in roots.items() for page in _pages_below(data, root)}


def _pages_below(data: bytes, page: int) -> Iterator[int]:
    """The pages of a b-tree (sqlite.org/fileformat.html, "B-tree Pages")."""
    yield page
    (size,) = unpack_from(">H", data, 16)
    start = (page - 1) * size
    head = start + (100 if page == 1 else 0)
    if data[head] not in (2, 5):  # A leaf.
        return
    (cells,) = unpack_from(">H", data, head + 3)
    for cell in unpack_from(f">{cells}H", data, head + 12):
        yield from _pages_below(data, unpack_from(">I", data, start + cell)[0])
    yield from _pages_below(data, unpack_from(">I", data, head + 8)[0])
