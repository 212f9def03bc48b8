"""Exports: a run with everything below it, as JSON lines that another store can take in.

    hubbub-export   what this is, of which format, from which store
    run             a run's row, those above come first
    event           a durable event of one of them, both lanes, in the store's order
    accepted        a key under which an item was accepted, by the item's number; of an item that
                    has gone, by a number that stands for what it said
    content         a file that an event names, by digest, base64
    end             how many lines there were: an export that was cut off is noticed

* The same store gives the same bytes; no time of day, no position of the store is in them.
* Events are written as they are in the store, byte for byte.  The hub's own lane is no fact
  about a run and is left out; values of secrets are in no event, and nowhere here.
* What is damaged is not exported: that raises.
"""

import hashlib
from base64 import b64encode
from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.events.checksums import checksum_after
from hubbub.hub.events.descriptors import read_descriptor
from hubbub.hub.events.files import kept_contents
from hubbub.hub.store.journal import RunStatus
from hubbub.hub.store.reader import IMPORTED, RunRow, StoreReader, decoded
from hubbub.hub.values import NULL, Json

__all__ = [
    "FORMAT", "AcceptedLine", "ContentLine", "EndLine", "EventLine", "ExportLine", "HeaderLine",
    "RunLine", "export_run", "family_of", "run_line", "write_line",
]  # fmt: skip

FORMAT: Final = 1


class _Line(Struct, frozen=True, kw_only=True, tag_field="line", forbid_unknown_fields=True):
    pass


class HeaderLine(_Line, frozen=True, kw_only=True, tag="hubbub-export", omit_defaults=True):
    format: int
    run_id: str
    store: str
    """The store where the run began."""
    has_contents: bool
    is_open: bool = False
    """Whether it continues: the last line of the run is the one that counts, and there is no end.
    It is whole up to that line."""


class RunLine(_Line, frozen=True, kw_only=True, tag="run"):
    """The row of a run, without what is counted; ``recent`` is when a user spoke to it last (µs),
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


class EventLine(_Line, frozen=True, kw_only=True, tag="event", omit_defaults=True):
    event: Json
    position: int = 0
    """Its position in its store, in an open export: several of these have one order."""


class AcceptedLine(_Line, frozen=True, kw_only=True, tag="accepted", omit_defaults=True):
    """A key under which item ``seq`` was accepted; or, of one that has gone, what is known of it
    (``AcceptedRow.number``)."""

    run_id: str
    source: str
    key: str
    seq: int = 0
    number: int = 0


class ContentLine(_Line, frozen=True, kw_only=True, tag="content"):
    digest: str
    content: str


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    lines: int


ExportLine: TypeAlias = HeaderLine | RunLine | EventLine | AcceptedLine | ContentLine | EndLine

_encoder: Final = msgspec.json.Encoder()


def export_run(
    store: StoreReader, run_id: str, *, contents: bool = True
) -> Generator[bytes, None, None]:
    """The lines of an export of a run and its descendants, each with its line end.

    As of one moment, also beside a runtime at work.  Raises ``StoreFailed`` for an event that has
    changed since it was written and ``OperatorError`` for a content that is missing.
    """
    count = 0
    with store.one_moment():
        for line in _lines(store, run_id, contents):
            count += 1
            yield write_line(line)
    yield write_line(EndLine(lines=count))


def write_line(line: ExportLine) -> bytes:
    """A line as it is in a file, its end included."""
    return _encoder.encode(line) + b"\n"


def _lines(store: StoreReader, run_id: str, contents: bool) -> Iterator[ExportLine]:
    key = f"{IMPORTED}{run_id}"
    name = store.notes(key).get(key, store.name)
    yield HeaderLine(format=FORMAT, run_id=run_id, store=name, has_contents=contents)
    family = family_of(store, run_id)
    for row in family:
        yield run_line(row, [item.seq for item in store.waiting(row.run_id)])
    run_ids = [row.run_id for row in family]
    digests: set[str] = set()
    for event in _events(store, run_ids, digests):
        yield EventLine(event=event)
    for each in run_ids:
        for known in store.accepted(each):
            yield AcceptedLine(
                run_id=each, source=known.source, key=known.key, seq=known.seq, number=known.number
            )
    for digest in sorted(digests) if contents else ():
        yield ContentLine(digest=digest, content=_content(store, digest))


def family_of(store: StoreReader, run_id: str) -> list[RunRow]:
    """A run and its descendants, in the order in which they began."""
    first = store.row(run_id)
    assert first is not None  # The caller has found it.
    tree = [first, *(row for row in store.tree(first.root_run_id) if row.run_id != run_id)]
    below = {run_id}
    while more := {x.run_id for x in tree if x.parent_run_id in below} - below:
        below |= more
    return sorted((row for row in tree if row.run_id in below), key=lambda row: row.born)


def run_line(row: RunRow, waiting: Sequence[int]) -> RunLine:
    """The line of a run in whose inbox items of these numbers wait."""
    return RunLine(
        run_id=row.run_id, root_run_id=row.root_run_id, parent_run_id=row.parent_run_id,
        agent=row.agent, name=row.name, session_key=row.session_key,
        descriptor=NULL if row.descriptor is None else _raw(row.descriptor),
        status=row.status, inbox=row.inbox,  # type: ignore[arg-type]
        created_at=row.created_at, wake_at=row.wake_at, recent=row.recent, waiting=tuple(waiting),
    )  # fmt: skip


def _raw(text: str) -> Json:
    read_descriptor(text)  # What is damaged would make the whole line unreadable.
    return msgspec.Raw(text.encode())


def _events(store: StoreReader, run_ids: list[str], digests: set[str]) -> Iterator[Json]:
    """The events of these runs in the store's order, each checked against its chain."""
    chains = dict.fromkeys(run_ids, 0)
    for row in store.event_rows(run_ids):
        if row.lane == "hub":
            continue
        if row.crc is not None:
            chains[row.run_id] = checksum_after(chains[row.run_id], row.type, row.body)
            if chains[row.run_id] != row.crc:
                raise StoreFailed(
                    store.place,
                    f"the event at position {row.position} has changed since it was written; "
                    "hubbub fsck lists all damage, a backup undoes it",
                )
        event = decoded(store, row.position, row.body)
        digests.update(ref.digest for ref in kept_contents(event))
        yield msgspec.Raw(row.body)


def _content(store: StoreReader, digest: str) -> str:
    place, remedy = store.place_of(digest), "or export with --no-files"
    try:
        content = store.content(digest)
    except OSError as error:
        raise OperatorError(
            f"{place}: {error.strerror}; put the content back from a backup, {remedy}"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise OperatorError(
            f"{place}: the content has changed; put it back from a backup, {remedy}"
        )
    return b64encode(content).decode()
