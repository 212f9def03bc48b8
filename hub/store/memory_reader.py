"""``MemoryReader``: ``StoreReader`` of a memory store; nothing in it is ever damaged."""

import errno
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import merge, nlargest, nsmallest
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from hubbub.hub.errors import OperatorError
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.descriptors import encode_descriptor, kind_of_descriptor
from hubbub.hub.store.journal import Addressing, LoadedRun
from hubbub.hub.store.ledger_row import Settled
from hubbub.hub.store.memory_rows import MemoryRow, MemoryRows, own_lane_of
from hubbub.hub.store.reader import (
    MAX_TREES_COUNTED,
    SPOKEN_TO,
    AcceptedRow,
    Backup,
    EventRow,
    ProcessRow,
    Recency,
    RunRow,
    WaitingRow,
)

__all__ = ["MemoryReader"]

EventsAfter: TypeAlias = Callable[[int], Iterator[tuple[int, Event]]]
"""The events that are kept after a position, with theirs."""
EventsOf: TypeAlias = Callable[[str, int, bool], Iterator[tuple[int, Event]]]
"""Those of one run, the last one first where that is asked for."""


class MemoryReader:
    """Reads the store's own tables, which change while it is open.

    Call it where the store is used.  Ended runs and events of the hub's lane that the store has
    dropped are not there, and there are no checksums.  See ``StoreReader``.
    """

    def __init__(
        self,
        name: str,
        rows: MemoryRows,
        notes: Mapping[str, str],
        events: EventsAfter,
        events_of: EventsOf,
        tip: Callable[[], int],
        ended: Collection[str],
    ) -> None:
        self._name = name
        self._rows = rows
        self._notes = notes
        self._events = events
        self._events_of = events_of
        self._tip = tip
        self._ended = ended

    @property
    def name(self) -> str:
        return self._name

    @property
    def place(self) -> str:
        return "memory"

    @property
    def tip(self) -> int:
        return self._tip()

    def one_moment(self) -> AbstractContextManager[None]:
        """Of one moment as long as the reader does not wait inside."""
        return nullcontext()

    def close(self) -> None:
        """Nothing to release."""

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    def row(self, run_id: str) -> RunRow | None:
        row = self._rows.find(run_id)
        return None if row is None else _run_row(row)

    def rows(self) -> Iterator[RunRow]:
        yield from map(_run_row, [*self._rows.by_id.values()])

    def roots(self) -> Mapping[str, str]:
        return {row.run_id: row.root_run_id for row in self._rows.by_id.values()}

    def tree(self, root_run_id: str, *, live: bool = False) -> Sequence[RunRow]:
        found = map(self._rows.find, self._rows.tree(root_run_id))
        rows = (row for row in found if row is not None)
        return [_run_row(row) for row in rows if not live or row.status != "ended"]

    def spoken_to(
        self, limit: int, *, before: Recency | None = None, after: Recency | None = None
    ) -> Sequence[RunRow]:
        rows = (
            row
            for row in self._rows.by_id.values()
            if row.parent_run_id is None
            and kind_of_descriptor(row.descriptor) in SPOKEN_TO
            and (before is None or _recency(row) < before)
            and (after is None or _recency(row) > after)
        )
        if after is None:
            return [_run_row(row) for row in nlargest(limit, rows, key=_recency)]
        return [_run_row(row) for row in nsmallest(limit, rows, key=_recency)][::-1]

    def newest_trees(self, *, live: bool, limit: int) -> tuple[Sequence[str], int]:
        rows = self._rows.by_id.values()
        wanted = {row.root_run_id for row in rows if not live or row.status != "ended"}
        roots = [run_id for run_id in self._rows.by_id if run_id in wanted][::-1]
        return roots[:limit], min(len(roots), limit + MAX_TREES_COUNTED)

    def ends(self, limit: int, *, after: int = 0, before: int | None = None) -> Sequence[EventRow]:
        # They came here when their trees were over: not in the order of their own ends.
        found = map(self._end_of, [*self._ended])
        wanted = (x for x in found if x[0] > after and (before is None or x[0] < before))
        best = nsmallest if before is None else nlargest
        return [_event_row(*each) for each in best(limit, wanted, key=itemgetter(0))]

    def _end_of(self, run_id: str) -> tuple[int, Event]:
        row = self._rows.by_id[run_id]
        place = next(i for i in range(len(row.events) - 1, -1, -1) if row.events[i].lane == "own")
        return row.positions[place], row.events[place]

    def resting_roots(self, limit: int, *, after: int = 0) -> Sequence[RunRow]:
        rows = self._rows.at_work()
        first = bisect_right(rows, after, key=lambda row: row.positions[0] if row.positions else 0)
        rest = (row for row in islice(rows, first, None) if row.status != "active")
        roots = (row for row in rest if row.parent_run_id is None)
        return [_run_row(row) for row in islice(roots, limit)]

    def trees_of_resting_children(self, limit: int, *, after: str = "") -> Sequence[str]:
        rest = (row for row in self._rows.at_work() if row.status != "active")
        roots = {row.root_run_id for row in rest if row.parent_run_id is not None}
        return nsmallest(limit, (root for root in roots if root > after))

    def bases(
        self, run_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> Sequence[EventRow]:
        row = None if run_id is None else self._rows.find(run_id)
        bases = self._rows.bases if run_id is None else (row and row.bases) or []
        first = bisect_right(bases, after, key=itemgetter(0))
        return [_event_row(*each) for each in bases[first : first + limit]]

    def described(self, after: int | None = None) -> Sequence[str]:
        rows = (row for row in self._rows.by_id.values() if row.descriptor is not None)
        return [row.run_id for row in rows if after is None or row.positions[-1] > after]

    def matching(self, part: str, limit: int) -> Sequence[str]:
        found = (x for x in self._rows.by_id if x.startswith(part) or x.endswith(part))
        return sorted(found)[:limit]

    def find(self, to: str, by: Addressing) -> Sequence[str]:
        return self._rows.candidates(to, by)

    def load(self, run_id: str) -> LoadedRun | None:
        row = self._rows.find(run_id)
        if row is None:
            return None
        events, after = own_lane_of(row.events, 0)
        return LoadedRun(
            info=row.info(), events=events, waiting=tuple(row.waiting.values()), after=after
        )

    def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        row = self._rows.find(run_id)
        newest = reversed(row.events) if row is not None else ()
        return next((x for x in newest if x.lane == "own" and x.type in types), None)

    def lanes(self, run_id: str, limit: int, *, backwards: bool = False) -> Sequence[Event]:
        row = self._rows.find(run_id)
        events = row.events if row is not None else []
        return events[: -limit - 1 : -1] if backwards else events[:limit]

    # ── events and inboxes ───────────────────────────────────────────────────────────────────

    def event_rows(
        self,
        run_ids: Collection[str] | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        backwards: bool = False,
    ) -> Iterator[EventRow]:
        after = max(0, after)
        if run_ids is None:
            kept = self._events(after)
            found = reversed([*kept]) if backwards else kept
        else:
            lanes = (self._events_of(run_id, after, backwards) for run_id in {*run_ids})
            found = merge(*lanes, key=itemgetter(0), reverse=backwards)
        for position, event in found:
            if until is not None and position > until:
                if backwards:
                    continue
                return
            yield _event_row(position, event)

    def item(self, run_id: str, seq: int) -> Event | None:
        row = self._rows.find(run_id)
        events = row.events if row is not None else ()
        return next((x for x in events if x.lane == "in" and x.seq == seq), None)

    def waiting(self, run_id: str | None = None) -> Iterator[WaitingRow]:
        for row in self._some(run_id):
            places = _places(row)
            for seq, item in sorted(row.waiting.items()):
                yield WaitingRow(row.run_id, seq, places[seq], encode_event(item))

    def accepted(
        self, run_id: str | None = None, *, after: int | None = None
    ) -> Iterator[AcceptedRow]:
        for row in self._some(run_id):
            places = _places(row)
            for (source, key), item in sorted((row.keys or {}).items()):
                if isinstance(item, Settled):
                    if after is None:
                        yield AcceptedRow(row.run_id, source, key, 0, 0, None, item.number)
                    continue
                place, body = places[item.seq], encode_event(item)
                if after is None or place > after:
                    yield AcceptedRow(row.run_id, source, key, place, item.seq, body)

    def notes(self, prefix: str = "") -> Mapping[str, str]:
        return {key: note for key, note in self._notes.items() if key.startswith(prefix)}

    def _some(self, run_id: str | None) -> list[MemoryRow]:
        if run_id is None:
            return [*self._rows.by_id.values()]
        row = self._rows.find(run_id)
        return [] if row is None else [row]

    # ── beside the journal ───────────────────────────────────────────────────────────────────

    def content(self, digest: str) -> bytes:
        raise FileNotFoundError(errno.ENOENT, "kept elsewhere", self.place_of(digest))

    def place_of(self, digest: str) -> str:
        return f"memory: {digest}"

    def is_at_work(self) -> bool:
        return True

    def processes(self) -> Sequence[ProcessRow]:
        live = [row for row in self._some(None) if row.status != "ended"]
        trees = len({row.root_run_id for row in live})
        running = sum(row.status == "active" for row in live)
        return [
            ProcessRow(
                name="this process", is_worker=True, trees=trees, running=running, told=self.tip
            )
        ]

    def free_trees(self) -> Mapping[str, int]:
        return {}

    def snapshot_problems(self) -> Iterator[tuple[str, str]]:
        return iter(())

    def faults(self, *, thorough: bool = False) -> Iterator[str]:
        return iter(())

    def back_up(self, destination: Path, tell: Callable[[str], object] | None = None) -> Backup:
        raise OperatorError("a store in memory has no backup; give the runtime store='sqlite:PATH'")


def _recency(row: MemoryRow) -> Recency:
    return row.recent, row.positions[0]


def _places(row: MemoryRow) -> dict[int, int]:
    """The position of each item of a run's in lane."""
    events = zip(row.positions, row.events, strict=True)
    return {event.seq: position for position, event in events if event.lane == "in"}


def _run_row(row: MemoryRow) -> RunRow:
    descriptor = None
    if row.descriptor is not None:
        descriptor = bytes(encode_descriptor(row.descriptor)).decode()
    return RunRow(
        address=row.run_id, run_id=row.run_id, root_run_id=row.root_run_id,
        parent_run_id=row.parent_run_id, agent=row.agent, name=row.name,
        session_key=row.session_key, kind=kind_of_descriptor(row.descriptor),
        descriptor=descriptor, status=row.status, inbox=row.inbox,
        ready=row.status == "active" or (row.status != "ended" and bool(row.waiting)),
        seq=row.seq, in_seq=row.in_seq, chain=None, waiting=len(row.waiting),
        messages=row.messages, born=row.positions[0], created_at=row.created_at,
        wake_at=row.wake_at, recent=row.recent,
    )  # fmt: skip


def _event_row(position: int, event: Event) -> EventRow:
    return EventRow(
        position, event.run_id, event.root_run_id, event.lane, event.seq, event.type, None,
        encode_event(event),
    )  # fmt: skip
