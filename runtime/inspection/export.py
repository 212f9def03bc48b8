"""Exports: a run with everything below it, as JSON lines that another store can take in.

    hubbub-export   what this is, of which format, from which store
    run             a run's row, those above come first
    event           a durable event of one of them, both lanes, in the store's order
    accepted        a key under which an item was accepted, by the item's number
    content         a file that an event names, by digest, base64
    end             how many lines there were: an export that was cut off is noticed

* The same store gives the same bytes; no time of day, no position of the store stands in them.
* Events are written as they stand in the store, byte for byte.  The hub's own lane is no fact
  about a run and is left out; values of secrets stand in no event, and nowhere here.
* What is damaged is not exported: that raises.
"""

import hashlib
import zlib
from base64 import b64encode
from collections.abc import Generator, Iterator
from heapq import merge
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.events.descriptors import read_descriptor
from hubbub.hub.store.journal import RunStatus
from hubbub.hub.values import NULL, Json
from hubbub.runtime.stores.sqlite.file import BY_ID, IMPORTED, StoreFile, decoded, files_of
from hubbub.runtime.stores.sqlite.regular_files import read_regular

__all__ = [
    "FORMAT", "AcceptedLine", "ContentLine", "EndLine", "EventLine", "ExportLine", "HeaderLine",
    "RunLine", "export_run",
]  # fmt: skip

FORMAT: Final = 1

PAGE: Final = 5_000
"""Events that are read at a time, of all runs together."""

_Row: TypeAlias = tuple[int, int, int, bytes]
"""Run, position, checksum, body."""


class _Line(Struct, frozen=True, kw_only=True, tag_field="line", forbid_unknown_fields=True):
    pass


class HeaderLine(_Line, frozen=True, kw_only=True, tag="hubbub-export"):
    format: int
    run_id: str
    store: str
    """The store where the run began."""
    has_contents: bool


class RunLine(_Line, frozen=True, kw_only=True, tag="run"):
    """A row of ``run``, without what is counted; ``recent`` is when a user spoke to it last (µs),
    ``waiting`` are numbers of the in lane."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    agent: str
    name: str
    session_key: str
    descriptor: Json
    """``null`` for none; a text that is kept as it is."""
    status: RunStatus
    inbox: str
    created_at: int
    wake_at: int | None
    recent: int
    waiting: tuple[int, ...]


class EventLine(_Line, frozen=True, kw_only=True, tag="event"):
    event: Json


class AcceptedLine(_Line, frozen=True, kw_only=True, tag="accepted"):
    run_id: str
    source: str
    key: str
    seq: int


class ContentLine(_Line, frozen=True, kw_only=True, tag="content"):
    digest: str
    content: str


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    lines: int


ExportLine: TypeAlias = HeaderLine | RunLine | EventLine | AcceptedLine | ContentLine | EndLine

_encoder: Final = msgspec.json.Encoder()


def export_run(
    store: StoreFile, run_id: str, *, contents: bool = True
) -> Generator[bytes, None, None]:
    """The lines of an export of a run and its descendants, each with its line end.

    As of one moment, also beside a runtime at work.  Raises ``StoreFailed`` for an event that has
    changed since it was written and ``OperatorError`` for a content that is missing.
    """
    count = 0
    with store.one_moment():
        for line in _lines(store, run_id, contents):
            count += 1
            yield _encoder.encode(line) + b"\n"
    yield _encoder.encode(EndLine(lines=count)) + b"\n"


def _lines(store: StoreFile, run_id: str, contents: bool) -> Iterator[ExportLine]:
    key = f"{IMPORTED}{run_id}"
    origin = store.db.execute("SELECT value FROM note WHERE key = ?", (key,)).fetchone()
    name = store.name if origin is None else origin[0]
    yield HeaderLine(format=FORMAT, run_id=run_id, store=name, has_contents=contents)
    numbers = _family(store, run_id)
    for number in numbers:
        yield _run_line(store, number)
    digests: set[str] = set()
    for event in _events(store, numbers, digests):
        yield EventLine(event=event)
    for number in numbers:
        yield from _accepted(store, number)
    for digest in sorted(digests) if contents else ():
        yield ContentLine(digest=digest, content=_content(store, digest))


def _family(store: StoreFile, run_id: str) -> list[int]:
    """The numbers of a run and its descendants, in the order in which they began."""
    select = f"""
        WITH RECURSIVE
          tree AS MATERIALIZED (
            SELECT number, run_id, parent_run_id, born FROM run
            WHERE root_run_id = (SELECT root_run_id FROM run WHERE {BY_ID})
              AND parent_run_id IS NOT NULL
            UNION SELECT number, run_id, NULL, born FROM run WHERE {BY_ID}
          ),
          below (run_id) AS (
            VALUES (?)
            UNION
            SELECT tree.run_id FROM tree JOIN below ON tree.parent_run_id = below.run_id
          )
        SELECT DISTINCT number, born FROM tree WHERE run_id IN below ORDER BY born
    """
    return [number for number, _ in store.db.execute(select, (run_id, run_id, run_id))]


def _run_line(store: StoreFile, number: int) -> RunLine:
    (
        run_id, root, parent, agent, name, session_key, descriptor, status, inbox, created_at,
        wake_at, recent,
    ) = store.db.execute(
        "SELECT run_id, root_run_id, parent_run_id, agent, name, session_key, descriptor, status, "
        "inbox, created_at, wake_at, recent FROM run WHERE number = ?",
        (number,),
    ).fetchone()  # fmt: skip
    waiting = store.db.execute("SELECT seq FROM waiting WHERE run = ? ORDER BY seq", (number,))
    return RunLine(
        run_id=run_id, root_run_id=root, parent_run_id=parent, agent=agent, name=name,
        session_key=session_key, descriptor=NULL if descriptor is None else _raw(descriptor),
        status=status, inbox=inbox, created_at=created_at, wake_at=wake_at,
        recent=recent,
        waiting=tuple(seq for (seq,) in waiting),
    )  # fmt: skip


def _raw(text: str) -> Json:
    read_descriptor(text)  # What is damaged would make the whole line unreadable.
    return msgspec.Raw(text.encode())


def _events(store: StoreFile, numbers: list[int], digests: set[str]) -> Iterator[Json]:
    """The events of these runs in the store's order, each checked against its chain."""
    chains = dict.fromkeys(numbers, 0)
    for number, position, crc, body in _rows(store, numbers):
        chains[number] = zlib.crc32(body, chains[number])
        if chains[number] != crc:
            raise StoreFailed(
                str(store.folder.database),
                f"the event at position {position} has changed since it was written; hubbub fsck "
                "lists all damage, a backup undoes it",
            )
        digests.update(ref.digest for ref in files_of(decoded(store.folder, position, body)))
        yield msgspec.Raw(body)


def _rows(store: StoreFile, numbers: list[int]) -> Iterator[_Row]:
    """Events of both lanes of these runs, by position."""
    page = max(10, PAGE // len(numbers))
    lanes = [_rows_of(store, number, page) for number in numbers]
    return merge(*lanes, key=itemgetter(1))


def _rows_of(store: StoreFile, number: int, page: int) -> Iterator[_Row]:
    select = (
        "SELECT run, position, crc, CAST(body AS BLOB) FROM event "
        f"WHERE run = ? AND position > ? AND lane <> 'hub' ORDER BY position LIMIT {page}"
    )
    position = 0
    while rows := store.db.execute(select, (number, position)).fetchall():
        yield from rows
        position = rows[-1][1]


def _accepted(store: StoreFile, number: int) -> Iterator[AcceptedLine]:
    select = (
        "SELECT address.run_id, source, key, event.seq FROM accepted "
        "JOIN event USING (position) JOIN address ON address.number = accepted.run "
        "WHERE accepted.run = ? ORDER BY source, key"
    )
    for run_id, source, key, seq in store.db.execute(select, (number,)):
        yield AcceptedLine(run_id=run_id, source=source, key=key, seq=seq)


def _content(store: StoreFile, digest: str) -> str:
    place = store.folder.blobs / digest[:2] / digest
    try:
        content = read_regular(place)
    except OSError as error:
        raise OperatorError(
            f"{place}: {error.strerror}; put the content back from a backup, or export with "
            "--no-files"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise OperatorError(
            f"{place}: the content has changed; put it back from a backup, or export with "
            "--no-files"
        )
    return b64encode(content).decode()
