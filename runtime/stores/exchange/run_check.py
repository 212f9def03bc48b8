"""``RunCheck``: whether the row of a run, its inbox and its family agree with its events.

Both ``hubbub fsck`` and imports use it, so that they accept the same runs.

Left out is what events do not decide alone: whether a run that has not ended is at work, waits or
is parked, which of its agents it is, its name, and when a user spoke to it last.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from hubbub.agents.code.run_states import RunStates
from hubbub.hub.addressing import is_run_id
from hubbub.hub.errors import BadValue, HubbubError
from hubbub.hub.events import AgentBase, Event, SessionOpen
from hubbub.hub.events.descriptors import (
    Descriptor,
    SubagentDescriptor,
    UserDescriptor,
    descriptor_of_key,
    encode_descriptor,
    kind_of_descriptor,
    read_descriptor,
    recency_of,
)
from hubbub.hub.events.moments import is_moment
from hubbub.hub.store.reader import IMPORTED, RunRow, StoreReader
from hubbub.hub.values import NULL
from hubbub.runtime.stores.exchange.base_check import contradiction
from hubbub.runtime.stores.exchange.lanes import Lane

__all__ = ["READ_ERRORS", "RunCheck", "ancestors", "fold_problem", "holds_key", "own_problems"]

READ_ERRORS: Final = (
    HubbubError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError,
    AttributeError, RecursionError,
)  # fmt: skip
"""What reading inconsistent values raises."""

_STATUSES: Final = ("active", "waiting", "parked", "ended")
_INBOXES: Final = ("open", "closing", "terminated", "ended")
_TEXTS: Final = ("run_id", "root_run_id", "agent", "name", "session_key", "kind")


def holds_key(row: RunRow) -> bool:
    """Whether a run is found by its session key (``is_addressed``)."""
    is_schedule = row.kind in ("cron", "heartbeat")
    return bool(row.session_key) and row.inbox == "open" and not is_schedule


def ancestors(reader: StoreReader, run_id: str | None) -> Sequence[str]:
    """A run and its ancestors, up to one that is missing or repeated."""
    found: dict[str, None] = {}
    while run_id is not None and run_id not in found:
        found[run_id] = None
        row = reader.row(run_id)
        run_id = row.parent_run_id if row is not None else None
    return [*found]


class RunCheck:
    """Checks rows of runs, by means of a reader of their store.

    ``lanes`` are the states of the events of all runs that are looked at.
    """

    def __init__(self, reader: StoreReader, lanes: Mapping[str, Lane]) -> None:
        self._reader = reader
        self._lanes = lanes
        self._gone = _known_gone(reader)

    def problems(self, row: RunRow, lane: Lane) -> Sequence[str]:
        """What is wrong with a row; ``lane`` is the state of its events."""
        found = [
            *own_problems(row, lane), *_counter_problems(row, lane),
            *_inbox_problems(self._reader, row, lane), *self._family_problems(row, lane),
        ]  # fmt: skip
        if not found and lane.is_sound and (what := self._unreadable(row.run_id)):
            found.append(what)
        return found

    def problems_below(self, run_ids: Collection[str]) -> Iterator[tuple[str, str]]:
        """Runs whose parent or root is one of these, and why they cannot be its descendants."""
        for row in self._reader.rows():
            is_below = row.parent_run_id in run_ids or row.root_run_id in run_ids
            if is_below and row.run_id not in run_ids:
                for what in self._family_problems(row, Lane(row.run_id)):
                    yield row.run_id, what

    def _family_problems(self, row: RunRow, lane: Lane) -> Iterator[str]:
        run_id, root, parent = row.run_id, row.root_run_id, row.parent_run_id
        if lane.born and lane.is_clear and lane.parent != parent:
            yield f"its parent is {parent!r}, its events say {lane.parent!r}"
        if parent is None:
            if root != run_id:
                yield f"it has no parent, but {root} as its root"
            return
        if root == run_id:
            yield f"it is its own root, but has {parent} as its parent"
        above = self._reader.row(parent)
        if above is None and parent not in self._gone:
            yield f"its parent {parent} is missing"
        elif above is not None and above.root_run_id != root:
            yield f"its root is {root}, its parent's {above.root_run_id}"
        if root not in self._gone and self._reader.row(root) is None:
            yield f"its root {root} is missing"
        elif above is not None and not self._is_known(run_id, lane, parent):
            yield f"its parent {parent} knows of no such child"
        if run_id in ancestors(self._reader, parent):
            yield f"its parents form a circle: it is below itself, by {parent}"

    def _is_known(self, run_id: str, lane: Lane, parent: str) -> bool:
        """Whether a parent has its child on record, as far as its events are known."""
        opened, above = lane.opened, self._lanes.get(parent)
        if opened is None or opened.descriptor_json is not NULL:  # Not opened by its parent.
            return True
        return above is None or not above.is_clear or above.may_have_started(run_id)

    def _unreadable(self, run_id: str) -> str:
        """Why a runtime could not continue with a run; empty if it could."""
        try:
            loaded = self._reader.load(run_id)
        except READ_ERRORS as error:
            return _not_resumable(error)
        return fold_problem(loaded.events) if loaded is not None else ""


def fold_problem(events: Iterable[Event]) -> str:
    """Why a run could not continue from its own lane; empty if it could, also when the records
    before a base have gone."""
    what, states = "", RunStates()
    try:
        for event in events:
            if isinstance(event, AgentBase) and event.seq == states.seq + 1:
                what = what or contradiction(event, states.thread)
            states.take(event)
    except READ_ERRORS as error:
        return _not_resumable(error)
    return what


def _not_resumable(error: Exception) -> str:
    return f"it cannot be resumed from its events ({type(error).__name__}: {error})"


def own_problems(row: RunRow, lane: Lane) -> Iterator[str]:
    """What is wrong with a row by itself."""
    if row.address != row.run_id:
        yield f"its events are stored under {row.address}"
    for column in _TEXTS:
        if not isinstance(value := getattr(row, column), str) or "\0" in value:
            yield f"{column} is {value!r}, expected a text without NUL"
    for column in ("run_id", "root_run_id", "parent_run_id"):
        if isinstance(value := getattr(row, column), str) and not is_run_id(value):
            yield f"{column} is {value!r}, which is not a run id"
    if row.status not in _STATUSES:
        yield f"its status is {row.status!r}, not one of {', '.join(_STATUSES)}"
    elif lane.is_clear and lane.born and (row.status == "ended") != lane.has_ended:
        yield f"its status is {row.status}, its events say otherwise"
    yield from _time_problems(row, lane)
    if row.inbox not in _INBOXES:
        yield f"its inbox is {row.inbox!r}, not one of {', '.join(_INBOXES)}"
    elif (row.status == "ended") != (row.inbox == "ended") and row.inbox != "terminated":
        yield f"its inbox is {row.inbox}, its status {row.status}"
    if lane.born and lane.is_clear and row.agent not in lane.agents:
        yield f"its agent is {row.agent!r}, but none of its events names it"
    opened = lane.opened
    if opened is not None and opened.session_key != row.session_key:
        yield f"its session key is {row.session_key!r}, its opening's {opened.session_key!r}"
    try:
        text = row.descriptor
        kind = kind_of_descriptor(None if text is None else read_descriptor(text))
    except (BadValue, TypeError, UnicodeError) as error:
        yield f"its descriptor cannot be read ({error})"
        return
    if kind != row.kind:
        yield f"its kind is {row.kind!r}, its descriptor's {kind!r}"
    if opened is not None and (what := _descriptor_problem(text, opened, lane)):
        yield what


def _descriptor_problem(text: str | None, opened: SessionOpen, lane: Lane) -> str:
    """Why the run's descriptor does not follow from its opening; empty if it does.

    A child has its own descriptor, whatever opened it; a run of an older version may have none.
    """
    if text is None:
        return ""
    found = read_descriptor(text)
    if isinstance(found, SubagentDescriptor) and found.id != lane.name:
        return f"its descriptor is that of run {found.id}"
    if (given := bytes(opened.descriptor_json)) != b"null":
        try:
            is_given = read_descriptor(given) == found
        except (BadValue, UnicodeError):
            is_given = False
        return "" if is_given else f"its descriptor is {text}, but its opening has another"
    if isinstance(found, UserDescriptor) and not recency_of(lane.name, found):
        return "" if lane.parent is None and not opened.session_key else "its descriptor is none"
    if lane.parent is not None:
        wanted: Descriptor | None = SubagentDescriptor(
            id=lane.name, parent_agent_id=lane.parent, name=opened.name or opened.open_agent
        )
    else:
        wanted = descriptor_of_key(opened.session_key) if opened.session_key else None
    if found != wanted:
        said = bytes(encode_descriptor(wanted)).decode()
        return f"its descriptor is {text}, but its opening implies {said}"
    return ""


def _time_problems(row: RunRow, lane: Lane) -> Iterator[str]:
    created = row.created_at
    if not is_moment(created):
        yield f"created_at is {created!r}, not a valid time"
        return
    # Either may be before it was created: the clock can have been set back between the two.
    recent = row.recent  # 0 where no user is meant, as with a schedule's agent.
    if not is_moment(recent) or recent < 0:
        yield f"recent is {recent!r}, not a valid time"
    wake = row.wake_at
    if wake is not None and not is_moment(wake):
        yield f"wake_at is {wake!r}, not a valid time"
    if (opened := lane.opened) is None:
        return
    if created != opened.at:
        yield f"created_at is {created}, its opening's time {opened.at}"
    due = None if opened.timeout is None else opened.at + int(opened.timeout * 1_000_000)
    if wake != due and (wake is not None or row.status != "ended"):
        yield f"wake_at is {wake!r}, by its opening {due}"


def _counter_problems(row: RunRow, lane: Lane) -> Iterator[str]:
    for column, counted in (("seq", lane.seq), ("in_seq", lane.in_seq), ("born", lane.born)):
        if (value := getattr(row, column)) != counted:
            yield f"{column} is {value!r}, but its events say {counted}"
    if row.chain is not None and row.chain not in lane.chains:
        yield "its checksum differs from that of its last event"


def _inbox_problems(reader: StoreReader, row: RunRow, lane: Lane) -> Iterator[str]:
    untaken = {} if row.status == "ended" else lane.untaken
    waiting = [item.seq for item in reader.waiting(row.address)]
    if lane.is_clear:
        present = frozenset(waiting)
        if lost := [seq for seq in untaken if seq not in present]:
            yield f"in {lost[0]!r} was not taken, but does not wait ({len(lost)} such)"
        if extra := [seq for seq in waiting if seq not in untaken]:
            yield f"in {extra[0]!r} waits, but was taken or never came ({len(extra)} such)"
    if row.waiting != len(waiting):
        yield f"waiting is {row.waiting!r}, but {len(waiting)} items wait"
    messages = sum(untaken.get(seq, False) for seq in waiting)
    if lane.is_clear and row.messages != messages:
        yield f"messages is {row.messages!r}, but {messages} messages wait"
    is_ready = row.status == "active" or (row.status != "ended" and bool(waiting))
    if row.ready != is_ready:
        yield f"ready is {row.ready!r}, but it has {'' if is_ready else 'no '}work"


def _known_gone(reader: StoreReader) -> frozenset[str]:
    """Runs that are missing because only their descendants were exported."""
    imported = (reader.row(key.removeprefix(IMPORTED)) for key in reader.notes(IMPORTED))
    below = [row for row in imported if row is not None and row.parent_run_id is not None]
    return frozenset(
        run_id for row in below for run_id in (row.root_run_id, row.parent_run_id or "")
    )
