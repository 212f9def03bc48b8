"""``repaired``: a tree of runs as it continues in a store that lacks some of those around it.

    runs of a tree, as their files have them  →  the same, ready to be imported, with warnings

Rules
-----
* What is whole stays as it is, byte for byte.
* A run has the root and the parent that it has in this store.  One without its parent is a root
  of its own, which reports to nobody; a takeover frame without it is over.
* What waits in an inbox is what came and was not taken.  What a takeover frame has taken that is
  not here is dropped: it was heard, and is not heard again.
* A run whose child is nowhere, or has ended without its knowing, gets the child's last result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import merge
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.folders.history import follow
from hubbub.agents.folders.state_file import Record, begin
from hubbub.agents.state.bases import changed
from hubbub.agents.state.family import OPENING
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.events.codec import encode_event
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import EventRow, info_of
from hubbub.hub.values import NULL
from hubbub.runtime.stores.exchange.export import RunLine
from hubbub.runtime.stores.exchange.incoming_runs import row_of
from hubbub.runtime.stores.exchange.lanes import Lane, Lanes
from hubbub.runtime.stores.folders.foreign import ForeignRun
from hubbub.runtime.stores.folders.run_text import RunText, StoredEvent

__all__ = ["RepairedRun", "merged", "repaired"]

FRAME_GONE: Final = "the takeover frame that took it is not here"
CHILD_GONE: Final = "its folder is not here"
PARENT_GONE: Final = "the run whose conversation it had taken over is not here"

_E = TypeVar("_E", bound=Event)


class RepairedRun(Struct, frozen=True, kw_only=True):
    """A run to be imported; ``record`` is what its events come to."""

    text: RunText
    info: RunInfo
    record: Record


def repaired(tree: Sequence[ForeignRun], is_there: Callable[[str], bool]) -> list[RepairedRun]:
    """The runs of a tree, those above first.

    ``is_there`` says whether a run outside this tree exists in the store, or is imported with it.
    Raises ``ImportProblem`` or one of ``READ_ERRORS`` if the runs contradict each other.
    """
    ids = {one.text.run_id for one in tree}
    placed = {
        one.text.run_id: _placed(one, lambda run_id: run_id not in ids and is_there(run_id))
        for one in tree
    }
    lanes = Lanes("")
    for event in merged(placed.values()):
        for problem in lanes.take(_row(lanes.events + 1, event)):
            raise ValueError(problem.what)
    return [
        _Repair(text, lanes.runs[run_id], placed, is_there).repaired()
        for run_id, text in placed.items()
    ]


def merged(texts: Iterable[RunText]) -> Iterable[StoredEvent]:
    """The events of several runs, in the order of their store."""
    return merge(*(_rising(text.events) for text in texts), key=lambda each: each.position)


def _rising(events: Iterable[StoredEvent]) -> Iterable[StoredEvent]:
    """Each at a position that is no lower than the one before it, whatever the file says."""
    reached = 0
    for each in events:
        reached = max(reached, each.position)
        yield each if each.position == reached else replace(each, position=reached)


def _row(position: int, stored: StoredEvent) -> EventRow:
    event = stored.event
    return EventRow(
        position, event.run_id, event.root_run_id, event.lane, event.seq, event.type, None,
        stored.body,
    )  # fmt: skip


# ── its place ────────────────────────────────────────────────────────────────────────────────


def _placed(one: ForeignRun, is_elsewhere: Callable[[str], bool]) -> RunText:
    """The run with the root and the parent that it has in this store.

    What a takeover frame has taken of a conversation that is here, and no longer its own, is on
    record there.
    """
    text, place = one.text, one.place
    line = text.line
    if (line.root_run_id, line.parent_run_id) == (place.root, place.parent):
        return text
    events = []
    for stored in text.events:
        event = _moved(stored.event, line, place.root, place.parent)
        if place.lost:
            event = _detached(event, line)
        if isinstance(event, e.SessionTaken):
            items = tuple([item for item in event.items if not is_elsewhere(item.run_id)])
            event = replace(event, items=items)
        events.append(StoredEvent(stored.position, event, encode_event(event)))
    line = replace(line, root_run_id=place.root, parent_run_id=place.parent)
    return replace(text, line=line, events=tuple(events))


def _moved(event: _E, line: RunLine, root: str, parent: str | None) -> _E:
    if event.run_id == line.run_id:
        event = replace(event, root_run_id=root, parent_run_id=parent)
    elif event.root_run_id == line.root_run_id:  # An item of another run of the tree.
        event = replace(event, root_run_id=root)
    if isinstance(event, e.SessionTaken | e.SessionDropped):
        items = tuple([_moved(item, line, root, parent) for item in event.items])
        event = replace(event, items=items)
    if isinstance(event, e.AgentBase):
        return _with_origin(event, root_run_id=root, parent_run_id=parent)  # type: ignore[return-value]
    return event


def _with_origin(base: e.AgentBase, **changes: Any) -> e.AgentBase:
    """A base whose state says something else of how its run began."""
    return changed(base, lambda thread: replace(thread, origin=replace(thread.origin, **changes)))


def _detached(event: Event, line: RunLine) -> Event:
    """What says of a run how it was opened: it reports to nobody now."""
    if isinstance(event, e.SessionTaken):
        items = [
            _detached(item, line) if item.run_id == line.run_id else item for item in event.items
        ]
        return replace(event, items=tuple(items))
    if isinstance(event, e.SessionOpen) and event.seq == 1:
        given = event.descriptor_json
        given = line.descriptor if given is NULL else given
        return replace(event, descriptor_json=given, reports=False, depth=0)
    if isinstance(event, e.AgentBase):
        return _with_origin(event, reports=False, depth=0)
    return event


# ── what is missing ──────────────────────────────────────────────────────────────────────────


class _Repair:
    """One run of a tree, among the others."""

    def __init__(
        self,
        text: RunText,
        lane: Lane,
        tree: Mapping[str, RunText],
        is_there: Callable[[str], bool],
    ) -> None:
        self.text = text
        self.lane = lane
        self.tree = tree
        self.is_there = is_there
        self.events = list(text.events)
        self.warnings = list(text.warnings)
        self.info = info_of(row_of(replace(text.line, waiting=()), lane))
        self.record, _ = follow(begin(self.info), (x.event for x in self.events))
        self.seq, self.in_seq = lane.seq, lane.in_seq
        self.at = max((x.event.at for x in self.events), default=0)

    def repaired(self) -> RepairedRun:
        line = self.text.line
        if line.status != "ended":
            if _is_frame(self.text) and _is_frame(self.tree.get(line.root_run_id)):
                line = self._over()
            else:
                line = self._alive()
        text = replace(
            self.text, line=line, events=tuple(self.events), warnings=tuple(self.warnings)
        )
        return RepairedRun(text=text, info=self.info, record=self.record)

    def _over(self) -> RunLine:
        """A takeover frame that nobody waits for any longer."""
        thread = self.record.thread
        fields: dict[str, Any] = {
            "success": False, "outcome": "terminated", "reason": PARENT_GONE,
            "usage": thread.usage,
        }  # fmt: skip
        if thread.in_session:
            self._add(e.SessionEnd(session=thread.session, turn=thread.turn, **fields), "own")
        self._add(e.AgentComplete(**fields), "own")
        self.warnings.append(f"{self.text.folder}: {PARENT_GONE}; the takeover is over")
        return replace(self.text.line, status="ended", inbox="ended", waiting=(), wake_at=None)

    def _alive(self) -> RunLine:
        dropped = self._taken_by_others()
        if dropped:
            self._add(e.SessionDropped(items=tuple(dropped), reason=FRAME_GONE), "own")
            count = len(dropped)
            self.warnings.append(f"{self.text.folder}: {count} items dropped: {FRAME_GONE}")
        gone = {item.seq for item in dropped}
        waiting = [seq for seq in self.lane.untaken if seq not in gone]
        for child in self.record.thread.family.children:
            if not child.ended and (result := self._result_of(child.run_id)) is not None:
                self._add(result, "in")
                waiting.append(self.in_seq)
        return replace(self.text.line, waiting=tuple(waiting))

    def _taken_by_others(self) -> list[InLane]:
        """What was taken by takeover frames that are not here; one that is may have been
        behind with saying so, and takes it again."""
        line = self.text.line
        if not self.record.took_over or any(map(_is_live_frame, self.tree.values())):
            return []
        taken = self.lane.untaken.keys() - set(line.waiting)
        return [
            x.event for x in self.events
            if isinstance(x.event, InLane) and x.event.lane == "in" and x.event.seq in taken
        ]  # fmt: skip

    def _result_of(self, child: str) -> e.SessionResult | None:
        """The last result of a child that will send none; ``None`` where one is here, or comes."""
        results = [
            x.event for x in self.events
            if isinstance(x.event, e.SessionResult) and x.event.child_run_id == child
        ]  # fmt: skip
        if any(result.final for result in results):
            return None
        below = self.tree.get(child)
        if below is None and self.is_there(child):
            return None
        session = max((result.session for result in results), default=0) + 1
        found = self.record.thread.family.find(child)
        assert found is not None  # It is one of the run's.
        result = e.SessionResult(
            child_run_id=child, child_agent=found.agent, name=found.name, success=False,
            outcome="failed", reason=CHILD_GONE, final=True,
            session=0 if child in self.record.idle else session,
            answers=(OPENING,) if found.takeover else (),
        )  # fmt: skip
        if below is None:
            self.warnings.append(f"{self.text.folder}: its child {child} is not here; it failed")
            return result
        ended = next(
            (x.event for x in reversed(below.events) if isinstance(x.event, e.AgentComplete)), None
        )
        if below.line.status != "ended" or ended is None or not _reports(below):
            return None
        output = ended.output if isinstance(ended.output, str) else bytes(ended.output_json)
        content = output if isinstance(output, str) else output.decode()
        return replace(
            result, success=ended.success, outcome=ended.outcome, reason=ended.reason,
            content="" if ended.output_json is NULL else content,
        )  # fmt: skip

    def _add(self, event: Event, lane: str) -> None:
        line = self.text.line
        if lane == "in":
            self.in_seq += 1
        else:
            self.seq += 1
        event = replace(
            event, at=self.at, run_id=line.run_id, root_run_id=line.root_run_id,
            parent_run_id=line.parent_run_id, agent=line.agent, lane=lane,
            seq=self.in_seq if lane == "in" else self.seq,
        )  # fmt: skip
        position = max((x.position for x in self.events), default=0)
        if lane == "own":  # Behind what others of the tree have taken.
            position = max(x.position for text in self.tree.values() for x in text.events)
        self.events.append(StoredEvent(position, event, encode_event(event)))
        self.record, _ = follow(self.record, (event,))


def _opened(text: RunText) -> e.SessionOpen | None:
    first = next((x.event for x in text.events if x.event.lane == "in"), None)
    return first if isinstance(first, e.SessionOpen) else None


def _is_frame(text: RunText | None) -> bool:
    opened = _opened(text) if text is not None else None
    return opened is not None and bool(opened.frame)


def _is_live_frame(text: RunText) -> bool:
    return text.line.status != "ended" and _is_frame(text)


def _reports(text: RunText) -> bool:
    opened = _opened(text)
    return opened is not None and (opened.reports or bool(opened.frame))
