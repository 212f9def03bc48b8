"""``StoreReader``: the port through which everything but a runtime reads a store.

    hub/store/journal.py   what a runtime at work needs: asynchronous, of runs at work
    hub/store/reader.py    what inspection needs: the whole record, damage included

* Only what is committed is read, and nothing is changed.  Values of secrets are not read, but by
  ``back_up``.
* Calls are plain and may block; they come from one thread at a time, which need not be the one
  that made the reader.
* Rows are given as they are: in a damaged store a field may be of any type.  What is made of
  rows (``decoded``, ``info_of``, ``load``) raises where they are not what was written.
* Every method raises ``StoreUnreadable`` where the store itself cannot be read.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from hubbub.hub.errors import BadValue, OperatorError, StoreFailed
from hubbub.hub.events import Event, SessionReply
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import read_descriptor
from hubbub.hub.store.journal import Addressing, LoadedRun, RunInfo

__all__ = [
    "IMPORTED", "MAX_TREES_COUNTED", "SPOKEN_TO", "AcceptedRow", "Backup", "EventRow",
    "ProcessRow", "Recency", "RunRow", "StoreReader", "StoreUnreadable", "Stored", "WaitingRow",
    "answered_prompts", "damage_said", "decoded", "events_in", "info_of", "own_lane",
]  # fmt: skip

SPOKEN_TO: Final = ("", "user")
"""The kinds of descriptor (``RunRow.kind``) of the roots that people and programs speak to."""

MAX_TREES_COUNTED: Final = 1_000
"""Trees that are counted beyond those that are listed."""

IMPORTED: Final = "imported/"
"""Begins the notes that name the store where an imported run has been: its own parents and root
may be missing here."""


class StoreUnreadable(OperatorError):
    """A store, or a part of it, cannot be read: where, what is wrong, and what to do."""

    def __init__(self, place: str, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{place}: {what}; {remedy}")


class Stored(Struct, frozen=True):
    """A durable event and its position in the store's one order."""

    position: int
    event: Event


class EventRow(NamedTuple):
    """A durable event as it is kept."""

    position: int
    run_id: str
    """Empty in the hub's lane where it is of no run."""
    root_run_id: str
    lane: str
    seq: int
    type: str
    crc: int | None
    """Continues the checksum of the event before it, of its run or of the hub's lane; ``None`` in
    a store that keeps none."""
    body: bytes


class RunRow(Struct, frozen=True, kw_only=True):
    """What a store keeps of a run beside its events."""

    address: str
    """The run whose events are found by this row: itself, unless the store is damaged."""
    run_id: str
    root_run_id: str
    parent_run_id: str | None
    agent: str
    name: str
    session_key: str
    kind: str
    """The type of its descriptor; empty for none."""
    descriptor: str | None
    status: str
    inbox: str
    ready: bool
    """Whether there is something for it to do."""
    seq: int
    in_seq: int
    chain: int | None
    """The checksum of its last event; ``None`` in a store that keeps none."""
    waiting: int
    messages: int
    """Messages among what waits."""
    born: int
    """The position of its first event."""
    created_at: int
    wake_at: int | None
    recent: int
    """When a user spoke to it last (µs); 0 for never."""


Recency: TypeAlias = tuple[int, int]
"""When a run was spoken to last, and where it began (``RunRow.recent``, ``born``): in this order
no two runs are alike."""


class WaitingRow(Struct, frozen=True):
    """An item that waits in an inbox; ``body`` is ``None`` where no such item stands."""

    run_id: str
    seq: int
    position: int
    body: bytes | None


class AcceptedRow(Struct, frozen=True):
    """A key under which an item was accepted; ``body`` is ``None`` where no item stands.

    Of one that has gone with the beginning of its lane there is a ``number`` (``number_of``), and
    neither a position nor a ``seq``.
    """

    run_id: str
    source: str
    key: str
    position: int
    seq: int
    body: bytes | None
    number: int = 0


class ProcessRow(Struct, frozen=True, kw_only=True):
    """A process at work on a store.  What a store does not keep of one is ``None``."""

    name: str
    is_worker: bool
    """Whether it drives trees; else it only carries channels."""
    since: int | None = None
    """When it joined (µs)."""
    left: float | None = None
    """Seconds until its lease is over, unless it is renewed; ``None`` for no lease."""
    trees: int
    """Trees that it owns."""
    running: int
    """Runs at work in them."""
    capacity: int | None = None
    """How many trees it takes, at most; ``None``: any number."""
    agents: tuple[str, ...] | None = None
    """Of which agents; ``None``: any."""
    definitions: Mapping[str, str] = {}
    """What it has declared of agents: by name a digest of the definition."""
    told: int | None = None
    """The position of the last event that it has heard of."""
    drains: bool = False
    """Whether it is leaving."""


class Backup(Struct, frozen=True, kw_only=True):
    """What was copied; sizes in bytes."""

    folder: str
    runs: int
    events: int
    contents: int
    size: int


class StoreReader(Protocol):
    """Reads a store.  See the module's docstring for what holds of every method."""

    @property
    def name(self) -> str:
        """What the store is called in cursors and exports."""
        ...

    @property
    def place(self) -> str:
        """What messages call the store: a path, or an address without its password."""
        ...

    @property
    def tip(self) -> int:
        """The position of the last committed event; 0 when there is none."""
        ...

    def one_moment(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment, whatever is written meanwhile."""
        ...

    def close(self) -> None:
        """Release the store; idempotent."""
        ...

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    def row(self, run_id: str) -> RunRow | None: ...

    def rows(self) -> Iterator[RunRow]:
        """Every run, in one fixed order."""
        ...

    def roots(self) -> Mapping[str, str]:
        """The root of every run."""
        ...

    def tree(self, root_run_id: str, *, live: bool = False) -> Sequence[RunRow]:
        """A root, if it is there, and the runs below it, by creation; those that are ``live``, or
        all."""
        ...

    def spoken_to(
        self, limit: int, *, before: Recency | None = None, after: Recency | None = None
    ) -> Sequence[RunRow]:
        """Up to ``limit`` roots of people and programs, schedules' apart, ended ones included: the
        one that somebody spoke to last first.

        With ``before`` those that were spoken to earlier than that; with ``after`` later, the
        nearest of them.  However many runs there are, no more are read than are returned, in a
        store that keeps them in this order.
        """
        ...

    def newest_trees(self, *, live: bool, limit: int) -> tuple[Sequence[str], int]:
        """The roots of the ``limit`` newest trees, with a live run in them or of all; and how
        many such trees there are, counted up to ``limit`` and ``MAX_TREES_COUNTED`` more.

        A tree is as old as its root.  However many there are, no more are read than are counted,
        in a store that keeps them in this order.
        """
        ...

    def ends(self, limit: int, *, after: int = 0, before: int | None = None) -> Sequence[EventRow]:
        """Up to ``limit`` ends of runs behind a position, in the store's order; or before one, the
        last of them first.  In a store from which trees go (``RemovesTrees``) no more are read than
        are returned, however many there are."""
        ...

    def resting_roots(self, limit: int, *, after: int = 0) -> Sequence[RunRow]:
        """Up to ``limit`` roots that are not at work, have not ended and began behind a position,
        the oldest first; however many there are, no more are read than are returned."""
        ...

    def trees_of_resting_children(self, limit: int, *, after: str = "") -> Sequence[str]:
        """Up to ``limit`` roots of trees with a child that is not at work and has not ended, by
        their ids; whether the root has or not."""
        ...

    def bases(
        self, run_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> Sequence[EventRow]:
        """Up to ``limit`` bases behind a position, of one run or of all, in the store's order.  In
        a store from which the beginnings of lanes go (``Commit.cut``) no other events are read."""
        ...

    def described(self, after: int | None = None) -> Sequence[str]:
        """The runs with a descriptor, by creation; those of which something was written after a
        position, if one is given."""
        ...

    def matching(self, part: str, limit: int) -> Sequence[str]:
        """Up to ``limit`` run ids that begin or end with a text, in order."""
        ...

    def find(self, to: str, by: Addressing) -> Sequence[str]:
        """The runs that a delivery addressed like this would be meant for."""
        ...

    def load(self, run_id: str) -> LoadedRun | None:
        """A run as its owner would get it.  Raises ``BadValue`` for one that is damaged."""
        ...

    def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        """The last event in a run's own lane that is of one of these types.

        Raises ``StoreFailed`` for an event that cannot be read.
        """
        ...

    def lanes(self, run_id: str, limit: int, *, backwards: bool = False) -> Sequence[Event]:
        """Up to ``limit`` events of a run's two lanes, in the store's order: the first ones, or
        the last one first.  Raises ``StoreFailed`` for an event that cannot be read."""
        ...

    # ── events and inboxes ───────────────────────────────────────────────────────────────────

    def event_rows(
        self,
        run_ids: Collection[str] | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        backwards: bool = False,
    ) -> Iterator[EventRow]:
        """Events after a position, up to another one, in the store's order, or the last one first.

        Of these runs, both lanes and what the hub's own lane says of them, or of the whole store.
        What is committed while one reads is seen too, unless one reads in ``one_moment``.
        """
        ...

    def item(self, run_id: str, seq: int) -> Event | None:
        """An item of a run's in lane.  Raises ``StoreFailed`` for one that cannot be read."""
        ...

    def waiting(self, run_id: str | None = None) -> Iterator[WaitingRow]:
        """What waits in the inbox of a run, or in all, by number."""
        ...

    def accepted(
        self, run_id: str | None = None, *, after: int | None = None
    ) -> Iterator[AcceptedRow]:
        """Every key under which a run, or any, has accepted something, by source and key; behind
        a position, if one is given."""
        ...

    def notes(self, prefix: str = "") -> Mapping[str, str]:
        """What commits have noted under keys that begin with ``prefix``."""
        ...

    # ── contents of files ────────────────────────────────────────────────────────────────────

    def content(self, digest: str) -> bytes:
        """A content as it is kept, changed or not.  Raises ``OSError`` (``FileNotFoundError``
        where there is none)."""
        ...

    def place_of(self, digest: str) -> str:
        """What messages call the place of a content."""
        ...

    # ── the store itself ─────────────────────────────────────────────────────────────────────

    def is_at_work(self) -> bool:
        """Whether a runtime is at work on the store."""
        ...

    def processes(self) -> Sequence[ProcessRow]:
        """The processes at work on the store, in the order in which they joined."""
        ...

    def free_trees(self) -> Mapping[str, int]:
        """How many trees with a live run nobody drives, by the agent of their roots."""
        ...

    def faults(self, *, thorough: bool = False) -> Iterator[str]:
        """What the store finds wrong with how it is kept, whatever that holds; ``thorough`` also
        compares its indexes."""
        ...

    def snapshot_problems(self) -> Iterator[tuple[str, str]]:
        """The runs whose snapshots cannot be used, by id, and why: they are read whole."""
        ...

    def back_up(self, destination: Path, tell: Callable[[str], object] | None = None) -> Backup:
        """Copy the store as of one moment, values of secrets included, into a folder that must be
        missing or empty.

        The copy is durable when this returns; before that it is no store.  ``tell`` is called with
        the progress.  Raises ``OperatorError`` where something cannot be read or written, and in a
        store that is copied by other means, which the message names.
        """
        ...


# ── what is made of rows ─────────────────────────────────────────────────────────────────────


def decoded(reader: StoreReader, position: int, body: bytes | None) -> Event:
    """The event at a position.  Raises ``StoreFailed`` for what is none."""
    try:
        return decode_event(body or b"")
    except (BadValue, TypeError, ValueError, RecursionError) as error:
        raise StoreFailed(
            reader.place,
            f"what stands at position {position} is no event ({error}); hubbub fsck lists all "
            "damage, a backup undoes it",
        ) from error


def damage_said(reader: StoreReader, error: Exception) -> str:
    """What cannot be read, as ``error`` says it, without the place of the store."""
    return str(error).removeprefix(f"store {reader.place}: ")


def answered_prompts(reader: StoreReader, run_id: str) -> frozenset[str]:
    """The prompts whose replies wait in the inbox of the run that asks: only these count, so
    nobody is asked any more.  Raises ``StoreFailed`` for damage."""
    items = (decoded(reader, row.position, row.body) for row in reader.waiting(run_id))
    return frozenset(item.prompt_id for item in items if isinstance(item, SessionReply))


def events_in(
    reader: StoreReader,
    run_id: str | None = None,
    *,
    after: int = 0,
    backwards: bool = False,
) -> Iterator[Stored]:
    """The events of a run, the hub's own about it included, or of the whole store.

    In the order, and with the meaning, of ``StoreReader.event_rows``.
    """
    run_ids = None if run_id is None else (run_id,)
    for row in reader.event_rows(run_ids, after=after, backwards=backwards):
        yield Stored(row.position, decoded(reader, row.position, row.body))


def own_lane(reader: StoreReader, run_id: str) -> Iterator[Event]:
    """What a run has written into its own lane, in order."""
    return (
        decoded(reader, row.position, row.body)
        for row in reader.event_rows((run_id,))
        if row.lane == "own"
    )


def info_of(row: RunRow) -> RunInfo:
    """A run as its store knows it.  Raises ``BadValue`` for a row that is damaged."""
    numbers = (row.waiting, row.created_at, row.wake_at or 0)
    is_sound = row.status in _STATUSES and row.inbox in _INBOXES and row.address == row.run_id
    if not is_sound or not all(isinstance(number, int) for number in numbers):
        raise BadValue(f"run {row.run_id}", "its row has changed; see fsck")
    return RunInfo(
        run_id=row.run_id, root_run_id=row.root_run_id, parent_run_id=row.parent_run_id,
        agent=row.agent, name=row.name, session_key=row.session_key,
        status=row.status, inbox=row.inbox,  # type: ignore[arg-type]
        waiting=row.waiting, created_at=row.created_at, wake_at=row.wake_at,
        descriptor=None if row.descriptor is None else read_descriptor(row.descriptor),
    )  # fmt: skip


_STATUSES: Final = frozenset(("active", "waiting", "parked", "ended"))
_INBOXES: Final = frozenset(("open", "closing", "terminated", "ended"))
