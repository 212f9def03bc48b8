"""The memory store: commits at once, keeps everything of live runs and of the last ended ones."""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Final, assert_never

from msgspec import structs

from hubbub.hub.events import Event, InLane, SessionMessage
from hubbub.hub.events.descriptors import (
    Descriptor,
    descriptor_of_key,
    is_addressed,
    is_identity,
    read_descriptor,
    recency_of,
)
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.ports import Blobs, IdSource, Secrets, SystemIds
from hubbub.hub.store.inbox_rules import (
    can_be_left_over,
    found_instead,
    heir_of,
    judge,
    lenders,
    moved,
    numbered,
    placed,
    take_out,
    without_key,
)
from hubbub.hub.store.journal import (
    Addressing,
    Commit,
    Delivery,
    LoadedRun,
    NewRun,
    RunInfo,
    RunStatus,
    Selection,
)

__all__ = ["MemoryJournal"]

_CHUNK_BITS: Final = 10
_CHUNK: Final = 1 << _CHUNK_BITS


class _Row:
    """One address: its events of both lanes, its waiting items, its labels."""

    __slots__ = (
        "agent", "created_at", "descriptor", "events", "in_seq", "inbox", "keys", "messages",
        "name", "parent_run_id", "positions", "recency", "root_run_id", "run_id", "seq",
        "session_key", "status", "waiting", "wake_at",
    )  # fmt: skip

    def __init__(self, run_id: str, root: str, parent: str | None, agent: str, at: int) -> None:
        self.run_id = run_id
        self.root_run_id = root
        self.parent_run_id = parent
        self.agent = agent
        self.name = ""
        self.session_key = ""
        self.created_at = at
        self.wake_at: int | None = None
        self.descriptor: Descriptor | None = None
        self.recency = ""
        self.status: RunStatus = "active"
        self.inbox = "open"
        self.seq = 0
        self.in_seq = 0
        self.events: list[Event] = []
        self.positions = array("Q")
        self.waiting: dict[int, InLane] = {}
        self.messages = 0
        """Messages among ``waiting``: what ``Delivery.limit`` counts."""
        self.keys: dict[tuple[str, str], InLane] | None = None


class MemoryJournal:
    """Everything in this process's memory; nothing survives it.

    ``keep`` bounds how many ended runs stay readable; older ones are dropped whole, and
    messages to them are then rejected as ``unknown`` instead of ``ended``.  The hub lane keeps
    its last ``keep_hub_events`` events.  ``ids`` makes the store's name repeatable.
    """

    def __init__(
        self,
        *,
        keep: int = 10_000,
        keep_hub_events: int = 100_000,
        ids: IdSource | None = None,
    ) -> None:
        number = (ids or SystemIds()).number()
        # A cursor of another memory store, or of this program's last life, must not fit here.
        self.name = f"memory-{number:012x}"
        self._keep = keep
        self._keep_hub = keep_hub_events
        self._rows: dict[str, _Row] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._by_key: dict[str, str] = {}
        self._by_descriptor: dict[Descriptor, str] = {}
        """Open runs by what they stand for; children are not asked for by it."""
        self._recent: dict[str, dict[str, None]] = {"user": {}, "heartbeat": {}}
        """Open runs by type of descriptor, the one a user spoke to last at the end."""
        self._notes: dict[str, str] = {}
        self._live: dict[str, None] = {}
        self._trees: dict[str, list[str]] = {}
        """The runs of each tree of more than one, by creation."""
        self._ended: deque[str] = deque()
        # The log is cut into chunks so that what is dropped in its middle frees memory too.
        self._chunks: list[list[Event | None] | None] = []
        self._left: list[int] = []
        self._tip = 0
        # Begins anywhere, so that ids of events in two stores' hub lanes never meet.
        self._hub_seq = number
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
        """Nothing to close: a further runtime may go on with this journal."""

    async def flush(self) -> None:
        """Nothing waits."""

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        try:
            if commit.run_id:
                self._write_own(commit)
            elif commit.events:
                for event in commit.events:
                    self._write_hub(commit, event)
            if not commit.error:
                for delivery in commit.deliveries:
                    self._deliver(commit, delivery)
                if commit.notes:
                    self._notes.update(commit.notes)
        except Exception as error:  # For its own contents: nobody else is to hear of it.
            log.error("commit.unwritable", exc_info=error)
            commit.error = f"it cannot be written: {words_of(error)}"
        if commit.done is not None:
            commit.done(commit)

    def forget_submitted(self) -> None:
        """Nothing is submitted that is not written."""

    def _write_own(self, commit: Commit) -> None:
        row = self._rows.get(commit.run_id)
        if row is None or row.seq != commit.expect or row.status == "ended":
            commit.error = "conflict"
            return
        lent = lenders(commit, row, self._rows.get) if commit.lent else ()
        if lent is None or not row.waiting.keys() >= set(commit.taken):
            commit.error = "conflict"
            return
        self._append(row, commit.events)
        row.seq += len(commit.events)
        commit.written.extend(commit.events)
        for seq in commit.taken:
            if row.waiting.pop(seq).__class__ is SessionMessage:
                row.messages -= 1
        for lender, seq in lent:
            take_out(lender, seq)
        if commit.agent:
            self._rename(row, commit.agent)
        if commit.status is None:
            return
        row.status = commit.status
        if commit.status == "ended":
            commit.leftovers = [x for x in row.waiting.values() if can_be_left_over(x)]
            if commit.leave_to:
                self._move(commit)
            self._end(row)

    def _move(self, commit: Commit) -> None:
        """Put the messages that are left where they are to go."""
        heir = heir_of(commit, self._rows.get)
        for message in moved(commit, heir):
            assert heir is not None
            heir.waiting[message.seq] = message
            heir.messages += 1
            self._append(heir, (message,))
            commit.written.append(message)

    def _write_hub(self, commit: Commit, event: Event) -> None:
        self._hub_seq += 1
        event = structs.replace(event, lane="hub", seq=self._hub_seq)
        self._append(None, (event,))
        commit.written.append(event)
        self._hub_positions.append(self._tip)
        if event.run_id:
            self._hub_positions_of.setdefault(event.run_id, deque()).append(self._tip)
        if len(self._hub_positions) > self._keep_hub:
            self._forget_hub(self._hub_positions.popleft())

    def _deliver(self, commit: Commit, delivery: Delivery) -> None:
        if delivery.by in ("every", "below"):
            self._deliver_to_many(commit, delivery)
            return
        row = self._address(delivery)
        if row is None:
            return
        if row.in_seq and not self._takes(row, delivery):  # What opens a run is always taken.
            return
        row.in_seq += 1
        event = delivery.event = numbered(row, delivery.event)
        delivery.outcome = "accepted"
        if delivery.key:
            if row.keys is None:
                row.keys = {}
            row.keys[delivery.source, delivery.key] = event
        if delivery.closes and row.inbox != "terminated":
            row.inbox = delivery.closes
            self._close_address(row)
        if delivery.touches and row.recency:
            self._recent[row.recency].pop(row.run_id, None)
            self._recent[row.recency][row.run_id] = None
        row.waiting[row.in_seq] = event
        if event.__class__ is SessionMessage:
            row.messages += 1
        self._append(row, (event,))
        commit.written.append(event)

    @staticmethod
    def _takes(row: _Row, delivery: Delivery) -> bool:
        if found_instead(row, delivery):
            return False
        known = None
        if delivery.key and row.keys is not None:
            known = row.keys.get((delivery.source, delivery.key))
        return judge(row, delivery, known)

    def _deliver_to_many(self, commit: Commit, delivery: Delivery) -> None:
        for run_id in self._candidates(delivery.to, delivery.by):
            one = Delivery(delivery.event, run_id, closes=delivery.closes)
            self._deliver(commit, one)
            if one.outcome == "accepted":
                delivery.run_ids += (run_id,)
        delivery.outcome = "accepted"

    def _address(self, delivery: Delivery) -> _Row | None:
        new = delivery.new
        if new is not None:
            run_id = new.run_id
            if new.session_key or new.descriptor is not None:
                run_id = self._found(new) or run_id
            delivery.run_ids = (run_id,)
            row = self._rows.get(run_id)
            if row is not None:
                return row
            if new.by_descriptor and new.session_key in self._by_key:
                new = without_key(new, delivery)
            if not new.root_run_id:
                new = placed(new, delivery, self._rows.get)
            return None if new is None else self._create(new, delivery.event.at)
        candidates = self._candidates(delivery.to, delivery.by)
        delivery.run_ids = tuple(candidates)
        row = self._rows.get(candidates[0]) if len(candidates) == 1 else None
        if row is None:
            delivery.outcome = "rejected"
            delivery.reason = "ambiguous" if len(candidates) > 1 else "unknown"
        return row

    def _found(self, new: NewRun) -> str | None:
        """The open run that an opening is for, by its key or by what it stands for."""
        found = None if new.by_descriptor else self._by_key.get(new.session_key)
        if found is None and new.descriptor is not None:
            found = self._by_descriptor.get(new.descriptor)
        return found

    def _candidates(self, to: str, by: Addressing) -> Sequence[str]:
        match by:
            case "run":
                return (to,)
            case "name":
                return tuple(self._by_name.get(to, ()))
            case "key":
                found = self._by_key.get(to) or self._by_descriptor.get(descriptor_of_key(to))
                return (found,) if found is not None else ()
            case "descriptor":
                found = self._by_descriptor.get(read_descriptor(to))
                return (found,) if found is not None else ()
            case "only":
                held = tuple(self._recent["user"])
                return held or [x for x in self._live if self._rows[x].parent_run_id is None]
            case "newest":
                recent = self._recent.get(to)
                return (next(reversed(recent)),) if recent else ()
            case "every":
                return tuple(self._live)
            case "below":
                return self._below(to)
            case _:
                assert_never(by)

    def _below(self, run_id: str) -> Sequence[str]:
        row = self._rows.get(run_id)
        reached = {run_id}
        found = []
        # By creation: a parent always stands before its children.
        for each in self._trees.get(row.root_run_id, ()) if row is not None else ():
            child = self._rows.get(each)
            if child is not None and child.parent_run_id in reached:
                reached.add(each)
                if child.status != "ended" and child.inbox != "terminated":
                    found.append(each)
        return found

    def _create(self, new: NewRun, at: int) -> _Row:
        row = _Row(new.run_id, new.root_run_id, new.parent_run_id, new.agent, at)
        row.name = new.name
        row.session_key = new.session_key
        row.wake_at = new.wake_at
        row.descriptor = new.descriptor
        if new.descriptor is not None:
            if is_identity(new.descriptor):
                self._by_descriptor[new.descriptor] = row.run_id
            row.recency = recency_of(row.run_id, new.descriptor)
        if row.recency:
            self._recent[row.recency][row.run_id] = None
        self._rows[new.run_id] = row
        if new.parent_run_id is not None:
            self._trees.setdefault(new.root_run_id, [new.root_run_id]).append(new.run_id)
        self._live[new.run_id] = None
        self._by_name.setdefault(new.agent, {})[new.run_id] = None
        if row.session_key and is_addressed(new.descriptor):
            self._by_key[row.session_key] = new.run_id
        return row

    def _rename(self, row: _Row, agent: str) -> None:
        self._drop_name(row)
        row.agent = agent
        self._by_name.setdefault(agent, {})[row.run_id] = None

    def _drop_name(self, row: _Row) -> None:
        if names := self._by_name.get(row.agent):
            names.pop(row.run_id, None)
            if not names:
                del self._by_name[row.agent]

    def _end(self, row: _Row) -> None:
        if row.inbox != "terminated":
            row.inbox = "ended"
        row.waiting.clear()
        row.keys = None
        del self._live[row.run_id]
        self._drop_name(row)
        self._close_address(row)
        self._ended.append(row.run_id)
        while len(self._ended) > self._keep:
            gone = self._rows.pop(self._ended.popleft())
            if gone.parent_run_id is None:
                self._trees.pop(gone.run_id, None)
            for position in gone.positions:
                self._forget(position)

    def _close_address(self, row: _Row) -> None:
        """Nothing more is meant for the run unless it names it: what it stood for is free again."""
        if row.session_key and self._by_key.get(row.session_key) == row.run_id:
            del self._by_key[row.session_key]
        if row.descriptor is None:
            return
        if self._by_descriptor.get(row.descriptor) == row.run_id:
            del self._by_descriptor[row.descriptor]
        if row.recency:
            self._recent[row.recency].pop(row.run_id, None)

    def _append(self, row: _Row | None, events: Sequence[Event]) -> None:
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

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        row = self._rows.get(run_id)
        if row is None:
            return None
        return LoadedRun(
            info=_info(row),
            events=_own_lane(row.events, after),
            waiting=tuple(row.waiting.values()),
            after=after,
        )

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        row = self._rows.get(run_id)
        newest = reversed(row.events) if row is not None else ()
        return next((x for x in newest if x.lane == "own" and x.type in types), None)

    async def info(self, run_id: str) -> RunInfo | None:
        row = self._rows.get(run_id)
        return _info(row) if row is not None else None

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        run_ids: Iterable[str] = self._live if live else self._rows
        if root_run_id is not None:
            run_ids = self._trees.get(root_run_id, (root_run_id,))
        rows = (self._rows[run_id] for run_id in run_ids if run_id in self._rows)
        return [_info(row) for row in rows if not live or row.status != "ended"]

    async def ready(self) -> Sequence[str]:
        rows = (self._rows[run_id] for run_id in self._live)
        return [row.run_id for row in rows if row.status == "active" or row.waiting]

    async def timed(self) -> Sequence[tuple[str, int]]:
        rows = (self._rows[run_id] for run_id in self._live)
        return [(row.run_id, row.wake_at) for row in rows if row.wake_at is not None]

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        return self._candidates(to, by)

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
        row = self._rows.get(run_id)
        places: Iterable[int] = ()
        if row is not None:
            places = islice(row.positions, bisect_right(row.positions, after), None)
        if (of_hub := self._hub_positions_of.get(run_id)) is not None:
            places = merge(places, (position for position in of_hub if position > after))
        found: list[Event] = []
        for position in places:
            if position > end:
                break
            event = self._at(position)
            if event is not None and selection.wants(event):
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
        row = self._rows.get(run_id)
        if row is not None:
            for position, event in zip(row.positions, row.events, strict=True):
                if event.seq == seq and event.lane == lane:
                    return position
        return None

    def depths(self) -> tuple[int, int, int]:
        rows = [self._rows[run_id] for run_id in self._live]
        parked = sum(row.status in ("parked", "waiting") for row in rows)
        return len(rows), parked, sum(len(row.waiting) for row in rows)


def _own_lane(events: Sequence[Event], after: int) -> list[Event]:
    """What stands in the own lane after number ``after``; looked for from the end."""
    found: list[Event] = []
    for event in reversed(events):
        if event.lane == "own":
            if event.seq <= after:
                break
            found.append(event)
    found.reverse()
    return found


def _info(row: _Row) -> RunInfo:
    return RunInfo(
        run_id=row.run_id,
        root_run_id=row.root_run_id,
        parent_run_id=row.parent_run_id,
        agent=row.agent,
        name=row.name,
        session_key=row.session_key,
        status=row.status,
        inbox=row.inbox,  # type: ignore[arg-type]
        waiting=len(row.waiting),
        created_at=row.created_at,
        wake_at=row.wake_at,
        descriptor=row.descriptor,
    )
