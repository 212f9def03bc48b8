"""What ``hubbub runs``, ``show`` and ``tail`` show of a store: plain structs, JSON as they are.

Nothing here reads more than it shows: a store of 1,000,000 runs is listed by its indexes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Never

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.folders.stack_view import stack_of
from hubbub.agents.model import Usage
from hubbub.hub import events as e
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.errors import BadValue, StoreFailed, UnknownRun
from hubbub.hub.events import Event, FileRef
from hubbub.hub.events.descriptors import Descriptor, read_descriptor
from hubbub.hub.ports import Clock
from hubbub.hub.store.cursor import cursor_at
from hubbub.hub.store.reader import (
    RunRow,
    Stored,
    StoreReader,
    damage_said,
    decoded,
    events_in,
    own_lane,
)
from hubbub.hub.values import NULL, Json
from hubbub.runtime.inspection.event_words import Said, conversation_of, talk_of
from hubbub.runtime.inspection.prompts import ShownPrompt, open_prompts
from hubbub.runtime.inspection.replay import replay
from hubbub.runtime.inspection.usage import Used, used_by
from hubbub.runtime.inspection.variable_requests import VariableRequest, open_requests
from hubbub.runtime.stores.exchange.run_check import ancestors
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader

__all__ = [
    "RunReport", "Runs", "ShownRun", "Waiting", "follow_events", "last_events", "list_runs",
    "report",
]  # fmt: skip

MAX_COUNTED: Final = 20_000
"""Records of all trees of a list in which is counted what they have used, the newest first."""

MAX_LINES: Final = 40
"""Lines of a conversation that are shown unless all are asked for."""


class ShownRun(Struct, frozen=True, kw_only=True):
    """A run as a line of a list; ``depth`` counts the shown runs above it.

    ``status`` is ``active``, ``waiting`` (for a child, an approval or an external result),
    ``parked`` or ``ended``; ``inbox`` is ``open``, ``closing``, ``terminated`` or ``ended``;
    ``outcome`` is empty until the run has ended.  ``created_at`` is µs since the Unix epoch.
    """

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    depth: int
    agent: str
    name: str
    status: str
    inbox: str
    outcome: str
    created_at: int
    waiting: int
    session_key: str
    tree: Used | None = None
    """What it and all below it have used: in a report, and in lists of the roots whose trees are
    not too long."""
    damage: str = ""
    """What of it, or of a run below it that is not shown, cannot be read."""


class Runs(Struct, frozen=True, kw_only=True):
    """Trees of runs, the newest first, each from its root down; ``more`` trees are left out,
    counted up to 1,000.

    ``prompts`` is what people are asked by these runs.
    """

    runs: Sequence[ShownRun]
    more: int
    prompts: Sequence[ShownPrompt]


class Waiting(Struct, frozen=True, kw_only=True):
    """An item in an inbox."""

    at: int
    seq: int
    type: str
    source: str
    text: str


class RunReport(Struct, frozen=True, kw_only=True):
    """Everything about one run but its secrets.

    ``ancestors`` begins with the root.  ``stack`` names the agents through whom a conversation is
    held, main first, while a takeover frame is open.  ``conversation`` leaves out ``earlier`` lines
    at its beginning.  ``failure`` is the last error that is on record.
    """

    run: ShownRun
    descriptor: Descriptor | None
    ancestors: Sequence[str]
    stack: Sequence[str]
    kind: str
    phase: str
    session: int
    step: int
    seq: int
    usage: Usage
    children: Sequence[ShownRun]
    files: Sequence[FileRef]
    keys: dict[str, Any]
    waiting: Sequence[Waiting]
    conversation: Sequence[Said]
    earlier: int
    failure: str
    prompts: Sequence[ShownPrompt]
    """What people are asked by it and by the runs below it."""
    position: str = ""
    """The cursor of the moment that all of it is of: what came since stands after it."""
    requests: Sequence[VariableRequest] = ()
    """The variables that subagents of theirs wait for."""
    tree: Used | None = None
    """What it and all below it have used."""
    output: Json = NULL
    """What its last session, or a code agent's run, came to, if it completed."""


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


def list_runs(store: StoreReader, *, ended: bool = False, limit: int = 50) -> Runs:
    """The ``limit`` newest trees with a live run in them, ended runs above it included.

    With ``ended`` all trees, with all their runs.  A damaged run is told by its line, and keeps no
    other from being listed.
    """
    damage: dict[str, str] = {}
    with store.one_moment():
        roots, count = store.newest_trees(live=not ended, limit=limit)
        shown: list[ShownRun] = []
        left = MAX_COUNTED
        for root in roots:
            tree = _tree(store, root, ended)
            rows = store.tree(root)
            if (length := sum(row.seq for row in rows)) <= left and tree:
                left -= length
                tree[0] = replace(tree[0], tree=_used(store, rows, tree, damage))
            shown += tree
        live = [each.run_id for each in shown if each.status != "ended"]
        prompts = open_prompts(store, live, damage)
    if damage:
        shown = [replace(x, damage=x.damage or damage.get(x.run_id, "")) for x in shown]
    return Runs(runs=shown, more=count - len(roots), prompts=prompts)


def _used(
    store: StoreReader, rows: Iterable[RunRow], shown: Sequence[ShownRun], damage: dict[str, str]
) -> Used | None:
    """What a tree has used; unknown where it is damaged, which is noted."""
    run_ids = [row.run_id for row in rows]
    try:
        return used_by(store, run_ids)
    except (BadValue, StoreFailed):
        places = {each.run_id for each in shown}
        for run_id in run_ids:
            try:
                used_by(store, (run_id,))
            except (BadValue, StoreFailed) as error:
                damage[run_id if run_id in places else shown[0].run_id] = damage_said(store, error)
        return None


def _tree(store: StoreReader, root: str, ended: bool) -> list[ShownRun]:
    """The runs of a tree that are asked for, and those above them, parents first."""
    rows = {row.run_id: row for row in store.tree(root) if ended or row.status != "ended"}
    above = [row.parent_run_id for row in rows.values()]
    while above:
        run_id = above.pop()
        if run_id is None or run_id in rows:
            continue
        row = store.row(run_id)
        if row is not None:
            rows[run_id] = row
            above.append(row.parent_run_id)
    below: dict[str | None, list[str]] = {}
    for run_id, row in rows.items():
        parent = row.parent_run_id
        below.setdefault(parent if parent in rows else None, []).append(run_id)
    found: list[ShownRun] = []
    todo = [(run_id, 0) for run_id in reversed(below.get(None, []))]
    while todo:
        run_id, depth = todo.pop()
        found.append(_shown(store, rows[run_id], depth))
        todo += [(child, depth + 1) for child in reversed(below.get(run_id, []))]
    # A run whose parents form a circle, which is damage, is below nobody.
    shown = {each.run_id for each in found}
    return found + [_shown(store, row) for run_id, row in rows.items() if run_id not in shown]


def _shown(store: StoreReader, row: RunRow, depth: int = 0) -> ShownRun:
    outcome = damage = ""
    if row.status == "ended":
        try:
            outcome = _outcome(store, row.run_id)
        except StoreFailed as error:
            damage = damage_said(store, error)
    return ShownRun(
        run_id=row.run_id, root_run_id=row.root_run_id, parent_run_id=row.parent_run_id,
        depth=depth, agent=row.agent, name=row.name, status=row.status, inbox=row.inbox,
        outcome=outcome, damage=damage,
        created_at=row.created_at, waiting=row.waiting, session_key=row.session_key,
    )  # fmt: skip


def _outcome(store: StoreReader, run_id: str) -> str:
    """How a run ended.  Its end is the last of its own events, so the search is short."""
    end = store.latest(run_id, (e.AgentComplete.type,))
    return end.outcome if isinstance(end, e.AgentComplete) else ""


# ── show ─────────────────────────────────────────────────────────────────────────────────────


def report(
    store: StoreReader, run_id: str, *, full: bool = False, frames: bool = False, now: int = 0
) -> RunReport:
    """Everything about a run; ``full`` gives the whole conversation, ``frames`` what was said in
    its takeover frames, too; requests that have expired ``now`` are left out.

    Raises ``StoreFailed`` for a record that cannot be read.
    """
    with store.one_moment():
        row = store.row(run_id)
        if row is None:
            raise UnknownRun(run_id)
        state = replay(store, run_id)
        talk = _talk(store, run_id)
        if frames and talk:
            watched = _Watched(talk, run_id)
            pieces = talk_of(watched)
        else:
            watched = _Watched(own_lane(store, run_id), run_id)
            pieces = conversation_of(watched)
        said, count = _last(pieces, None if full else MAX_LINES)
        parent, descriptor = row.parent_run_id, row.descriptor
        children = [x for x in store.tree(row.root_run_id) if x.parent_run_id == run_id]
        below = _below(store.tree(row.root_run_id, live=True), run_id)
        used = used_by(store, _below(store.tree(row.root_run_id), run_id))
        return RunReport(
            run=replace(_shown(store, row), tree=used), ancestors=ancestors(store, parent)[::-1],
            stack=[x.agent_name for x in stack_of(talk, run_id)] if parent is None else [],
            descriptor=None if descriptor is None else read_descriptor(descriptor),
            kind=state.kind, phase=state.phase, session=state.session, step=state.step,
            seq=state.seq, usage=state.usage,
            children=[_shown(store, child, 1) for child in children], files=state.files,
            keys=state.keys, waiting=list(_waiting(store, run_id)), conversation=said,
            earlier=count - len(said), failure=watched.failure,
            prompts=open_prompts(store, below), requests=open_requests(store, below, now=now),
            position=cursor_at(store.name, store.tip), tree=used, output=_output(store, run_id),
        )  # fmt: skip


def _output(store: StoreReader, run_id: str) -> Json:
    last = store.latest(run_id, (e.SessionEnd.type, e.AgentComplete.type))
    return last.output_json if isinstance(last, e.Ending) and last.success else NULL


def _below(tree: Sequence[RunRow], run_id: str) -> Sequence[str]:
    """A run and those below it; parents come first in a tree."""
    found = {run_id: None}
    for row in tree:
        if row.parent_run_id in found:
            found[row.run_id] = None
    return tuple(found)


def _talk(store: StoreReader, run_id: str) -> Sequence[Event]:
    """What a run and its takeover frames have written, in order; nothing if there was none."""
    took_over = store.latest(run_id, (e.SessionPush.type,)) is not None
    return ConversationReader(store).read((run_id,), 0)[0] if took_over else ()


class _Watched:
    """Events on their way, and the last error that they tell of one run."""

    def __init__(self, events: Iterable[Event], run_id: str) -> None:
        self._events = events
        self._run_id = run_id
        self.failure = ""

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            if event.run_id == self._run_id:
                self._note(event)
            yield event

    def _note(self, event: Event) -> None:
        if isinstance(event, e.AgentFailed):
            self.failure = event.error
        elif isinstance(event, e.Ending) and not event.success:
            before = self.failure if isinstance(event, e.AgentComplete) else ""
            self.failure = before or event.reason or event.outcome


def _last(pieces: Iterable[Said], limit: int | None) -> tuple[Sequence[Said], int]:
    """The last pieces of a conversation, and how many there are."""
    kept: deque[Said] = deque(maxlen=limit)
    count = 0
    for said in pieces:
        kept.append(said)
        count += 1
    return list(kept), count


def _waiting(store: StoreReader, run_id: str) -> Iterator[Waiting]:
    for row in store.waiting(run_id):
        item = decoded(store, row.position, row.body)
        yield Waiting(
            at=item.at, seq=item.seq, type=item.type, source=getattr(item, "source", ""),
            text=getattr(item, "content", "") or getattr(item, "reason", ""),
        )  # fmt: skip


# ── tail ─────────────────────────────────────────────────────────────────────────────────────


def last_events(
    store: StoreReader, count: int, *, run_id: str | None = None, types: Patterns
) -> list[Stored]:
    """The last ``count`` durable events of a run, or of the store, of types that match."""
    found: list[Stored] = []
    if count > 0:
        for stored in events_in(store, run_id, backwards=True):
            if types.match(stored.event.type):
                found.append(stored)
                if len(found) == count:
                    break
    return found[::-1]


async def follow_events(
    store: StoreReader,
    after: int,
    show: Callable[[Stored], object],
    clock: Clock,
    seconds: float,
    *,
    run_id: str | None = None,
    types: Patterns,
    check: Callable[[], object] = lambda: None,
) -> Never:
    """Give ``show`` what is committed after a position, looking every so many seconds.

    Ends when it is cancelled, or with what ``show`` raises, or ``check``, which is called before
    each look.
    """
    while True:
        check()
        for stored in events_in(store, run_id, after=after):
            after = stored.position
            if types.match(stored.event.type):
                show(stored)
        await clock.sleep(seconds)
