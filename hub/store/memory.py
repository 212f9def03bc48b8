"""The memory store: commits at once, keeps everything of live runs and of the last ended ones."""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final, TypeVar

from msgspec import structs

from hubbub.hub.events import Event
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.ports import Blobs, IdSource, Secrets, SystemIds
from hubbub.hub.snapshots.draft import SnapshotDraft, is_due
from hubbub.hub.store.journal import Addressing, Commit, LoadedRun, RunInfo, Selection
from hubbub.hub.store.ledger import Ledger, Writes
from hubbub.hub.store.memory_reader import MemoryReader
from hubbub.hub.store.memory_rows import MemoryRow, MemoryRows, own_lane_of
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.values import check_counts

__all__ = ["MemoryJournal"]

T = TypeVar("T")

_CHUNK_BITS: Final = 10
_CHUNK: Final = 1 << _CHUNK_BITS


class MemoryJournal:
    """Everything in this process's memory; nothing survives it.

    ``keep`` bounds how many ended runs stay readable; older ones are dropped whole, and
    messages to them are then rejected as ``unknown`` instead of ``ended``.  Beside these, runs
    that have ended stay while any run of their tree lives: it may ask for their results.  How many
    a tree may have is for its owner to bound (``Runtime``: ``max_spawns``).  The hub lane keeps
    its last ``keep_hub_events`` events.  ``ids`` makes the store's name repeatable.
    """

    def __init__(
        self,
        *,
        keep: int = 10_000,
        keep_hub_events: int = 100_000,
        ids: IdSource | None = None,
    ) -> None:
        check_counts(0, keep=keep, keep_hub_events=keep_hub_events)
        number = (ids or SystemIds()).number()
        # A cursor of another memory store, or of this program's last life, must not fit here.
        self.name = f"memory-{number:012x}"
        self._keep_runs = keep
        self._keep_hub = keep_hub_events
        self._rows = MemoryRows()
        # The hub lane begins anywhere, so that ids of events in two stores' never meet.
        self._ledger: Ledger[MemoryRow] = Ledger(self._rows, hub_seq=number)
        self._notes = self._rows.notes
        self._ended: OrderedDict[str, None] = OrderedDict()
        """Those of trees in which nothing lives, in the order in which they ended."""
        # The log is cut into chunks so that what is dropped in its middle frees memory too.
        self._chunks: list[list[Event | None] | None] = []
        self._left: list[int] = []
        self._tip = 0
        self._hub_positions: deque[int] = deque()
        self._hub_positions_of: dict[str, deque[int]] = {}
        """Where the hub lane speaks of a run."""

    failure = ""
    problems: Sequence[str] = ()
    secrets: Secrets | None = None
    blobs: Blobs | None = None

    @property
    def tip(self) -> int:
        return self._tip

    async def open(self) -> None:
        """Nothing to open."""

    async def aclose(self) -> None:
        """Nothing to close: a further runtime may continue with this journal."""

    async def flush(self) -> None:
        """Nothing waits: what was submitted is done."""

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        try:
            self._ledger.apply(commit)
        except Exception as error:  # Its own contents: only its sender gets the error.
            log.error("commit.unwritable", exc_info=error)
            commit.error = f"it cannot be written: {words_of(error)}"
        # Not in a function of its own: each step of each run comes this way.
        writes = self._ledger.writes
        for row, events in writes.events:
            for event in events:
                position = self._tip
                if not position & (_CHUNK - 1):
                    self._chunks.append([])
                    self._left.append(_CHUNK)
                self._chunks[-1].append(event)  # type: ignore[union-attr]
                self._tip = position = position + 1
                if row is not None:
                    row.events.append(event)
                    row.positions.append(position)
                else:
                    self._keep_in_hub_lane(event, position)
        if writes.accepted:
            for (row, source, key), item in writes.accepted.items():
                if row.keys is None:
                    row.keys = {}
                row.keys[source, key] = item
        if writes.requests:
            self._rows.note(writes.requests)
        for row in writes.rows:
            if row.status == "ended":
                if row.root_run_id in self._rows.living:
                    self._ended.update(dict.fromkeys(self._rows.ended(row)))
                else:
                    self._ended[row.run_id] = None
                while len(self._ended) > self._keep_runs:
                    self._forget_run(self._ended.popitem(last=False)[0])
        if writes.notes:
            self._notes.update(writes.notes)
        if writes.gone:
            self._let_go(writes.gone)
            self.forget_empty(commit.notes or ())
        if writes.bases:
            self._rows.note_bases(writes.bases)
        for row, cut in writes.cuts:
            for position in self._rows.cut(row, cut):
                self._forget(position)
        self._ledger.writes = Writes()
        if commit.done is not None:
            commit.done(commit)

    def forget_submitted(self) -> None:
        """Nothing is submitted that is not written."""

    def _keep_in_hub_lane(self, event: Event, position: int) -> None:
        self._hub_positions.append(position)
        if event.run_id:
            self._hub_positions_of.setdefault(event.run_id, deque()).append(position)
        if len(self._hub_positions) > self._keep_hub:
            self._forget_hub(self._hub_positions.popleft())

    def _forget_run(self, run_id: str) -> None:
        for position in self._rows.forget(run_id).positions:
            self._forget(position)

    def _let_go(self, rows: Iterable[MemoryRow]) -> None:
        for row in rows:
            self._ended.pop(row.run_id, None)
            for position in row.positions:
                self._forget(position)

    def _forget_hub(self, position: int) -> None:
        event = self._at(position)
        if event is not None and (of_run := self._hub_positions_of.get(event.run_id)):
            of_run.popleft()
            if not of_run:
                del self._hub_positions_of[event.run_id]
        self._forget(position)

    def _at(self, position: int) -> Event | None:
        chunk = self._chunks[(position - 1) >> _CHUNK_BITS]
        return chunk[(position - 1) & (_CHUNK - 1)] if chunk is not None else None

    def _forget(self, position: int) -> None:
        index, offset = divmod(position - 1, _CHUNK)
        self._left[index] -= 1
        if not self._left[index]:
            self._chunks[index] = None
        elif (chunk := self._chunks[index]) is not None:
            chunk[offset] = None

    def publish(self, notes: Mapping[str, str]) -> None:
        self._notes.update(notes)

    def forget_empty(self, keys: Iterable[str]) -> None:
        """Forget which of these notes are empty."""
        for key in keys:
            if not self._notes.get(key, "kept"):
                del self._notes[key]

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        """Keep it as it is: it is encoded when its run is read, as nothing is written here."""
        row = self._rows.find(draft.run_id)
        if row is not None and row.seq >= draft.seq:
            last = row.snapshot
            if last is None or is_due(draft.seq - last.seq, 0, 0) or last.version != draft.version:
                row.snapshot = draft

    keeps_all = False
    cuts_lanes = True

    async def prepare_removals(self) -> None:
        """Nothing to prepare."""

    async def put_by(self, run_ids: Sequence[str]) -> None:
        """Nothing is shown in files."""

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        return look(self.reader())

    def reader(self) -> MemoryReader:
        """A reader of what is kept; call it where the store is used."""
        return MemoryReader(
            self.name, self._rows, self._notes, self._stored_after, self._stored_of,
            lambda: self._tip, self._ended,
        )  # fmt: skip

    def _stored_after(self, position: int) -> Iterator[tuple[int, Event]]:
        while position < self._tip:
            position += 1
            event = self._at(position)
            if event is not None:
                yield position, event

    def stored_between(self, after: int, until: int) -> Iterator[tuple[int, Event]]:
        """What is kept behind a position, up to another one, each event with its own."""
        for position in range(after + 1, until + 1):
            if (event := self._at(position)) is not None:
                yield position, event

    def _stored_of(self, run_id: str, after: int, backwards: bool) -> Iterator[tuple[int, Event]]:
        """The events of one run, without a look at those of others."""
        row = self._rows.find(run_id)
        places = row.positions if row is not None else []
        of_hub = [*self._hub_positions_of.get(run_id, ())]
        order: Callable[[Sequence[int]], Iterable[int]] = reversed if backwards else iter
        for position in merge(order(places), order(of_hub), reverse=backwards):
            if position > after:
                event = self._at(position)
                if event is not None:
                    yield position, event
            elif backwards:
                return

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        row = self._rows.find(run_id)
        if row is None:
            return None
        events, after = own_lane_of(row.events, after)
        return LoadedRun(
            info=row.info(), events=events, waiting=tuple(row.waiting.values()), after=after
        )

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        row = self._rows.find(run_id)
        draft = row.snapshot if row is not None else None
        loaded = await self.load(run_id, after=0 if draft is None else draft.seq)
        if loaded is None or draft is None:
            return loaded
        try:
            # Of one from before a base, behind which records have gone, nothing follows.
            if draft.version == version and loaded.after == draft.seq:
                return structs.replace(loaded, kept=draft.encode())
        except Exception as error:  # Nobody else has been told.
            log.warning("snapshot.not_kept", run_id=run_id, problem=words_of(error))
        return await self.load(run_id)

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        row = self._rows.find(run_id)
        newest = reversed(row.events) if row is not None else ()
        return next((x for x in newest if x.lane == "own" and x.type in types), None)

    async def info(self, run_id: str) -> RunInfo | None:
        row = self._rows.find(run_id)
        return row.info() if row is not None else None

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        run_ids: Iterable[str] = self._rows.live if live else self._rows.by_id
        if root_run_id is not None:
            run_ids = self._rows.tree(root_run_id)
        rows = (self._rows.by_id[run_id] for run_id in run_ids if run_id in self._rows.by_id)
        return [row.info() for row in rows if not live or row.status != "ended"]

    def is_ending(self, run_ids: Iterable[str], now: int) -> bool:
        """Whether one of these runs is only to end: it is terminated, or its time is over."""
        rows = [row for row in map(self._rows.find, run_ids) if row and row.status != "ended"]
        return any(
            row.inbox == "terminated" or (row.wake_at is not None and row.wake_at <= now)
            for row in rows
        )

    async def ready(self) -> Sequence[str]:
        rows = self._rows.at_work()
        return [row.run_id for row in rows if row.status == "active" or row.waiting]

    async def timed(self) -> Sequence[tuple[str, int]]:
        rows = self._rows.at_work()
        return [(row.run_id, row.wake_at) for row in rows if row.wake_at is not None]

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        return self._rows.candidates(to, by)

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        return {key: note for key, note in self._notes.items() if key.startswith(prefix)}

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        end = self._tip if until is None else min(until, self._tip)
        if selection.run_id:
            return self._read_run(selection.run_id, selection, after, end, limit)
        found: list[Event] = []
        position = after
        while position < end and len(found) < limit:
            chunk = self._chunks[position >> _CHUNK_BITS]
            if chunk is None:
                position = min((position | (_CHUNK - 1)) + 1, end)
                continue
            event = chunk[position & (_CHUNK - 1)]
            position += 1
            if event is not None and selection.wants(event):
                found.append(event)
        return found, position

    def _read_run(
        self, run_id: str, selection: Selection, after: int, end: int, limit: int
    ) -> tuple[Sequence[Event], int]:
        row, match = self._rows.find(run_id), selection.match
        stored: Iterable[tuple[int, Event | None]] = ()
        if row is not None:
            first = bisect_right(row.positions, after)
            its = islice(row.positions, first, None), islice(row.events, first, None)
            stored = zip(*its, strict=True)
        if (of_hub := self._hub_positions_of.get(run_id)) is not None:
            others = ((place, self._at(place)) for place in of_hub if place > after)
            stored = merge(stored, others, key=itemgetter(0))
        found: list[Event] = []
        for position, event in stored:
            if position > end:
                break
            # The type first: of a long run few are wanted.
            if event is None or (match is not None and not match(event.type)):
                continue
            if selection.wants(event):
                found.append(event)
                if len(found) == limit:
                    return found, position
        return found, end

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        if lane == "hub":
            for position in self._hub_positions:
                event = self._at(position)
                if event is not None and event.seq == seq and event.run_id == run_id:
                    return position
            return None
        row = self._rows.find(run_id)
        if row is not None:
            for position, event in zip(row.positions, row.events, strict=True):
                if event.seq == seq and event.lane == lane:
                    return position
        return None

    def depths(self) -> tuple[int, int, int]:
        rows = self._rows.at_work()
        parked = sum(row.status in ("parked", "waiting") for row in rows)
        return len(rows), parked, sum(len(row.waiting) for row in rows)
