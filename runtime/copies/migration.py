"""``migrate_store``: a whole store into another kind of store, as it is.

    the original, locked ──rows, secrets, contents──► the copy ──checked──► a store ──► folders

Positions, checksums, numbers and the store's name stay the same: what was noted of the original
(cursors, ids of responses) holds in the copy, and a runtime continues with it in the middle of a
run.  Nothing in the original changes.  Until the copy has passed the checks of ``hubbub fsck`` it
is no store; what is left of one when its process is killed is refused by whoever opens it, and made
anew when the same is done again.  Memory does not grow with the number of events.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.inspection.imports import renew_folders
from hubbub.runtime.inspection.record_check import RecordCheck
from hubbub.runtime.stores.open import folder_of_store, identity_of_store, open_copy, open_original
from hubbub.runtime.stores.sql.tables import EVENTS, TABLES

if TYPE_CHECKING:
    from hubbub.runtime.stores.sql.whole_copy import SqlCopy, SqlOriginal

__all__ = ["Migrated", "migrate_store"]

STEP: Final = 100_000
"""Rows after which progress is reported."""

Tell = Callable[[str], object]


class Migrated(Struct, frozen=True, kw_only=True):
    """What was copied."""

    source: str
    target: str
    name: str
    """What both are called in cursors."""
    runs: int
    events: int
    keys: int
    """Keys under which something was accepted."""
    notes: int
    secrets: int
    contents: int
    folders: int
    """Agents' folders that the copy has; 0 in a kind of store without them."""


def migrate_store(source: str, target: str, *, tell: Tell | None = None) -> Migrated:
    """Copy the store that ``source`` names to where ``target`` names one.

    No runtime may be at work on either, and there must be nothing yet where the copy goes, or a
    store with nothing in it, or what an earlier try to copy the same one has left.  Raises
    ``BadValue`` for a text that names no store, and ``OperatorError``, after which the source is as
    it was: where something else stands in the target, the source is damaged or of an older format,
    something cannot be read or written, or values of secrets are to be encrypted without a key.
    """
    tell = tell or (lambda _: None)
    with open_original(source) as original:
        if identity_of_store(source) == identity_of_store(target):
            words = "is the store itself; name another one to copy it to"
            raise OperatorError(f"{original.place}: {words}")
        with open_copy(target, original.name) as copy:
            counts = _copy(original, copy, tell)
            copy.settle()
            _check(original, copy, counts, tell)
            copy.complete()
            folders = _make_folders(target, copy.reader, counts, tell)
        return Migrated(
            source=original.place, target=copy.place, name=original.name, folders=folders,
            runs=counts["run"], events=counts["event"], keys=counts["accepted"],
            notes=counts["note"], secrets=counts["secret"], contents=counts["content"],
        )  # fmt: skip


def _make_folders(target: str, reader: StoreReader, counts: dict[str, int], tell: Tell) -> int:
    """Have agents' folders show what was copied, where a store has them; how many it has."""
    folder = folder_of_store(target)
    if folder is None:
        return 0
    if counts[EVENTS.name] >= STEP:
        tell("the copy is complete; now the agents' folders")
    return renew_folders(folder, reader, reader.described())


def _copy(original: "SqlOriginal", copy: "SqlCopy", tell: Tell) -> dict[str, int]:
    """Copy everything; returns how many there were, by table."""
    counts: dict[str, int] = dict.fromkeys(("secret", "content"), 0)
    # What needs a key that is missing fails before much was copied.
    for key, value in original.secrets():
        copy.put_secret(key, value)
        counts["secret"] += 1
    for table in TABLES:
        done, total = 0, original.count(table.name)
        for rows in original.pages(table):
            copy.put_rows(table, rows)
            done += len(rows)
            if done % STEP < len(rows) and done < total:
                tell(f"{done:,} of {total:,} {table.name}s copied")
        counts[table.name] = done
    for digest, content in original.contents():
        copy.put_content(digest, content)
        counts["content"] += 1
    return counts


def _check(original: "SqlOriginal", copy: "SqlCopy", counts: dict[str, int], tell: Tell) -> None:
    """Raise ``OperatorError`` unless the copy is whole and sound."""
    for table in (*(each.name for each in TABLES), "secret"):
        there, here = original.count(table), copy.reader.count(table)
        if not there == here == counts[table]:
            raise OperatorError(
                f"{copy.place}: the table {table} has {here:,} rows, that of {original.place} "
                f"{there:,}: somebody else writes there; stop that, and migrate again"
            )
    if counts[EVENTS.name] >= STEP:
        tell(f"all {counts[EVENTS.name]:,} events copied; now they are checked")
    for problem in RecordCheck(copy.reader, tell=tell).problems():
        if not problem.heals:
            raise OperatorError(
                f"{original.place}: is damaged ({problem.what}); hubbub fsck lists everything, and "
                "a backup undoes it; nothing was copied"
            )
