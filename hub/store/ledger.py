"""``Ledger``: what a commit comes to.  Rows in, writes out; no input or output of its own.

    commits ─► Ledger.apply ─► each commit's error, written, leftovers, outcomes
                 │    ▲          └► Ledger.writes: what the store must keep, in order
                 ▼    │
                 Rows: the store's rows and its address book

Every store decides by this ledger, so that there is one place for the rules: who may write a lane,
which items are taken, lent, moved, left over, what an address finds, what an inbox accepts
(``inbox_rules``), and how everything is numbered.

* A row is changed in place as soon as something is decided about it; ``Rows`` is told by
  ``readdress`` where that changes whom an address finds.
* ``writes`` grows over as many commits as the store likes to keep together.  The store keeps all
  of it, and puts a new one in its place, or nothing: then it continues with a new ledger and with
  rows read again.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, field, structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, Event, InLane, SessionMessage, SessionReply
from hubbub.hub.events.descriptors import is_identity
from hubbub.hub.store.inbox_rules import (
    can_be_left_over,
    counted,
    found_instead,
    is_overtaken,
    is_refused,
    judge,
    lenders,
    moved,
    moved_to,
    noted,
    numbered,
    placed,
    read_noted,
    successor_of,
    take_out,
    without_key,
)
from hubbub.hub.store.journal import (
    OVERTAKEN,
    Commit,
    Cut,
    Delivery,
    FoundTree,
    NewRun,
    RequestKey,
)
from hubbub.hub.store.ledger_row import LedgerRow, Rows, Settled

__all__ = ["Ledger", "Writes"]

R = TypeVar("R", bound=LedgerRow)


class Writes(Struct, Generic[R]):
    """What a store must keep; each part in order, the parts in any."""

    events: list[tuple[R | None, Sequence[Event]]] = field(default_factory=list)
    """By run; ``None`` for the hub lane.  Their order is that of positions.  What is in an in
    lane waits from now on if it is among the row's ``waiting``."""
    rows: dict[R, None] = field(default_factory=dict)
    """Created or changed."""
    taken: list[tuple[R, int]] = field(default_factory=list)
    """Numbers of items that wait no more."""
    accepted: dict[tuple[R, str, str], InLane | Settled] = field(default_factory=dict)
    """By run, source and key."""
    notes: dict[str, str] = field(default_factory=dict)
    gone: list[R] = field(default_factory=list)
    """Runs that are no more; a store forgets nothing else of them than what is theirs."""
    bases: list[tuple[R, AgentBase]] = field(default_factory=list)
    """Those among the events."""
    cuts: list[tuple[R, Cut]] = field(default_factory=list)
    """Beginnings of lanes that are no more, up to a base, if there is that base."""
    requests: dict[str, tuple[R, str]] = field(default_factory=dict)
    """By name: the run that has accepted it, and what is noted of it."""


class Ledger(Generic[R]):
    """Applies commits to the rows of a store, one after the other.

    ``hub_seq`` is the number of the last event in the hub lane, ``recent`` when a user spoke to
    anybody last.
    """

    def __init__(self, rows: Rows[R], *, hub_seq: int = 0, recent: int = 0) -> None:
        self.writes: Writes[R] = Writes()
        self.hub_seq = hub_seq
        self._rows = rows
        self._recent = recent
        """Grows even while the clock is set back (µs)."""

    def apply(self, commit: Commit) -> None:
        """Decide a commit, and add what it writes to ``writes``.

        Its ``error``, ``written`` and ``leftovers`` are filled in, and the outcome of each
        delivery.  With an ``error`` nothing of it is written.  Raises what comes of contents that
        no event can have; the store is then to forget what was decided since it kept something.
        """
        if commit.notes_expect is not None and not self._are_noted(commit.notes_expect):
            commit.error = "conflict"
            return
        if commit.run_id:
            try:
                row = self._rows.find(commit.run_id)
                lent = lenders(commit, row, self._rows.find) if row and commit.lent else ()
            except BadValue as error:  # A damaged row.
                commit.error = str(error)
                return
            if (
                row is None
                or row.seq != commit.expect
                or row.status == "ended"
                or lent is None
                or (commit.taken and not row.waiting.keys() >= set(commit.taken))
            ):
                commit.error = "conflict"
                return
            if commit.status == "ended" and row.inbox == "terminated" and is_overtaken(row, commit):
                commit.error = OVERTAKEN
                return
            self.writes.rows[row] = None
            if commit.events:
                if commit.events[0].__class__ is AgentBase:
                    commit.events = counted(row, commit.events)
                    self.writes.bases.append((row, commit.events[0]))  # type: ignore[arg-type]
                self.writes.events.append((row, commit.events))
                row.seq += len(commit.events)
                commit.written.extend(commit.events)
            if commit.taken or lent:
                self._take(commit, row, lent)
            if commit.agent:
                row.agent = commit.agent
                self._rows.readdress(row)
            if commit.status is not None:
                row.status = commit.status
                if commit.status == "ended":
                    self._end(commit, row)
        elif commit.events:
            self._write_hub(commit)
        elif commit.found is not None and not self._found(commit, commit.found):
            commit.error = "conflict"
            return
        elif commit.gone and not self._let_go(commit):
            return
        elif commit.cut is not None and (problem := self._cut(commit.cut)):
            commit.error = problem
            return
        for delivery in commit.deliveries:
            try:
                self._deliver(commit, delivery)
            except BadValue:  # What waits there is damaged: that is one run's trouble.
                delivery.outcome, delivery.reason = "rejected", "unreadable"
        if commit.again is not None:
            self._say_again(commit, commit.again)
        if commit.notes:
            self.writes.notes.update(commit.notes)

    def _are_noted(self, expected: Mapping[str, str]) -> bool:
        known = self.writes.notes
        return all(
            (known[key] if key in known else self._rows.noted(key)) == text
            for key, text in expected.items()
        )

    # ── lanes of their own ───────────────────────────────────────────────────────────────────

    def _take(self, commit: Commit, row: R, lent: Sequence[tuple[R, int]]) -> None:
        """Let the items wait no more that a commit takes, of its own inbox and of others."""
        for seq in commit.taken:
            if row.waiting.pop(seq).__class__ is SessionMessage:
                row.messages -= 1
            self.writes.taken.append((row, seq))
        if not row.waiting:
            row.waiting.clear()  # Of one that is empty the place is kept otherwise.
        for lender, seq in lent:
            take_out(lender, seq)
            self.writes.rows[lender] = None
            self.writes.taken.append((lender, seq))

    def _end(self, commit: Commit, row: R) -> None:
        """Close a run's inbox, and dispose of what it holds."""
        waiting = row.waiting
        if waiting:
            commit.leftovers = [item for item in waiting.values() if can_be_left_over(item)]
            self.writes.taken.extend((row, seq) for seq in waiting)
            waiting.clear()
            row.messages = 0
        if row.inbox != "terminated":
            row.inbox = "ended"
        self._rows.readdress(row)
        if not commit.leave_to:
            return
        try:
            heir = successor_of(commit, self._rows.find)
        except BadValue:  # What waits there is damaged: that must not keep this run from ending.
            return
        for message in moved(commit, heir):
            assert heir is not None
            self._put(commit, heir, message)

    def _say_again(self, commit: Commit, said: SessionMessage) -> None:
        """Let a message wait once more that was taken for an answer, if it has answered nothing."""
        replies = [x.outcome for x in commit.deliveries if x.event.__class__ is SessionReply]
        row = self._rows.find(said.run_id)
        if row is not None and row.status != "ended" and replies and "accepted" not in replies:
            self._put(commit, row, moved_to(row, said))

    def _write_hub(self, commit: Commit) -> None:
        first = self.hub_seq + 1
        self.hub_seq += len(commit.events)
        events = [
            structs.replace(event, lane="hub", seq=seq)
            for seq, event in enumerate(commit.events, first)
        ]
        self.writes.events.append((None, events))
        commit.written.extend(events)

    def _found(self, commit: Commit, tree: FoundTree) -> bool:
        """Let a whole tree come in, if all of it is new."""
        root = tree.root
        if root.session_key and self._rows.opened(root) is not None:
            return False
        if any(self._rows.find(run.new.run_id) is not None for run in tree.runs):
            return False
        rows = {run.new.run_id: self._rows.create(run.new, run.created_at) for run in tree.runs}
        found = {run.new.run_id: run for run in tree.runs}
        for run_id, some in groupby(tree.events, lambda event: event.run_id):
            row, run, events = rows[run_id], found[run_id], tuple(some)
            self.writes.events.append((row, events))
            keys = {seq: key for key, seq in run.accepted.items()}
            for event in events:
                if event.lane == "own":
                    row.seq = event.seq
                    if isinstance(event, AgentBase):
                        row.in_seq = event.inbox
                        self.writes.bases.append((row, event))
                    continue
                row.in_seq = event.seq
                if event.seq in run.waiting:
                    row.waiting[event.seq] = event  # type: ignore[assignment]
                    row.messages += event.__class__ is SessionMessage
                if event.seq in keys:
                    self.writes.accepted[row, *keys[event.seq]] = event  # type: ignore[assignment]
        self._recent = rows[root.run_id].recent = max(tree.at, self._recent + 1)
        for run in tree.runs:
            row = rows[run.new.run_id]
            row.status, row.inbox = run.status, run.inbox
            self.writes.rows[row] = None
            for (source, key), number in run.settled.items():
                self.writes.accepted[row, source, key] = Settled(number)
            self._rows.readdress(row)
        commit.written.extend(tree.events)
        return True

    def _let_go(self, commit: Commit) -> bool:
        """Let runs go that have ended, if all of them have."""
        try:
            found = [self._rows.find(run_id) for run_id in commit.gone]
        except BadValue as error:  # A damaged row.
            commit.error = str(error)
            return False
        rows = [row for row in found if row is not None]
        if any(row.status != "ended" or row.waiting for row in rows):
            commit.error = "conflict"
            return False
        for row in rows:
            self._rows.forget(row.run_id)
        self.writes.gone += rows
        return True

    def _cut(self, cut: Cut) -> str:
        """Let the beginning of a run's lanes go; why it cannot, empty if it does."""
        try:
            row = self._rows.find(cut.run_id)
        except BadValue as error:  # A damaged row.
            return str(error)
        if row is None or any(seq <= cut.inbox for seq in row.waiting):
            return "conflict"
        self.writes.cuts.append((row, cut))
        return ""

    # ── inboxes ──────────────────────────────────────────────────────────────────────────────

    def _deliver(self, commit: Commit, delivery: Delivery) -> None:
        if delivery.by in _TO_MANY:
            self._deliver_to_many(commit, delivery)
            return
        if delivery.request is not None and self._is_repeated(delivery, delivery.request):
            return
        new = delivery.new
        row = self._open(new, delivery) if new is not None else self._addressed(delivery)
        if row is None:
            return
        if row.in_seq:  # What opens a run is always taken.
            if delivery.expect is not None and delivery.expect != (row.seq, row.in_seq):
                delivery.outcome, delivery.reason = "rejected", "changed"
                return
            if found_instead(row, delivery):
                return
            if not judge(row, delivery, self._known(row, delivery) if delivery.key else None):
                return
            if delivery.refusal_of_files is not None and self._is_refused_for_files(row, delivery):
                return
            refuse = delivery.refusal_of_contents
            if refuse is not None and is_refused(delivery, refuse(row.root_run_id)):
                return
        row.in_seq += 1
        event = delivery.event = numbered(row, delivery.event)
        delivery.outcome = "accepted"
        self._put(commit, row, event)
        if delivery.key:
            self.writes.accepted[row, delivery.source, delivery.key] = event
        if (request := delivery.request) is not None:
            self.writes.requests[request.name] = row, noted(event, request)
        closes = delivery.closes if row.inbox != "terminated" else ""
        if closes:
            row.inbox = delivery.closes
            if closes == "terminated" and commit.receipt is not None:  # What ends with it.
                delivery.run_ids = (row.run_id, *self._rows.candidates(row.run_id, "below"))
        if delivery.touches:
            self._recent = row.recent = max(event.at, self._recent + 1)
        if closes or delivery.touches:
            self._rows.readdress(row)

    def _put(self, commit: Commit, row: R, item: InLane) -> None:
        """Let the next item of a run's in lane wait."""
        row.waiting[item.seq] = item
        if item.__class__ is SessionMessage:
            row.messages += 1
        self.writes.rows[row] = None
        self.writes.events.append((row, (item,)))
        commit.written.append(item)

    def _is_repeated(self, delivery: Delivery, request: RequestKey) -> bool:
        """Settle what was accepted before with the same request, as long as that run is kept."""
        noted = self.writes.requests.get(request.name)
        found = read_noted(self._rows.requested(request.name) if noted is None else noted[1])
        row = self._rows.find(found[0]) if found is not None else None
        if found is None or row is None:
            return False
        run_id, seq, digest = found
        delivery.run_ids = (run_id,)
        problem = "key reused" if digest != request.digest else ""
        refuse = delivery.new.refusal_of_found if delivery.new is not None else None
        if refuse is not None and not problem and row.status != "ended":
            problem = refuse(run_id)
        if problem:
            delivery.outcome, delivery.reason = "rejected", problem
        else:
            delivery.outcome, delivery.first = "duplicate", (run_id, "in", seq)
            delivery.repeats = True
        return True

    def _deliver_to_many(self, commit: Commit, delivery: Delivery) -> None:
        for run_id in self._rows.candidates(delivery.to, delivery.by):
            one = Delivery(delivery.event, run_id, closes=delivery.closes)
            self._deliver(commit, one)
            if one.outcome == "accepted":
                delivery.run_ids += (run_id,)
        delivery.outcome = "accepted"

    def _known(self, row: R, delivery: Delivery) -> InLane | Settled | None:
        known = self.writes.accepted.get((row, delivery.source, delivery.key))
        return known or self._rows.known(row, delivery.source, delivery.key)

    def _is_refused_for_files(self, row: R, delivery: Delivery) -> bool:
        """Refuse a message for the files that it names or brings."""
        said, refuse = delivery.event, delivery.refusal_of_files
        if refuse is None or not isinstance(said, SessionMessage):
            return False
        kept = self._rows.own_lane(row)
        new = (events for of, events in self.writes.events if of is row)
        lane = (each for each in chain(kept, *new) if each.lane == "own")
        return is_refused(delivery, refuse(row.agent, said.attachments, lane, row.waiting.values()))

    def _addressed(self, delivery: Delivery) -> R | None:
        if delivery.by == "run":
            found: Sequence[str] = (delivery.to,)
        else:
            found = self._rows.candidates(delivery.to, delivery.by)
        delivery.run_ids = tuple(found)
        row = self._rows.find(found[0]) if len(found) == 1 else None
        if row is None:
            delivery.outcome = "rejected"
            delivery.reason = "ambiguous" if len(found) > 1 else "unknown"
        return row

    def _open(self, new: NewRun, delivery: Delivery) -> R | None:
        """The run that an opening is for, created if there is none."""
        found = None
        if new.session_key or (new.descriptor is not None and is_identity(new.descriptor)):
            found = self._rows.opened(new)
        delivery.run_ids = (found or new.run_id,)
        row = self._rows.find(delivery.run_ids[0])
        if row is not None:
            return row
        if new.refusal:
            delivery.outcome, delivery.reason = "rejected", new.refusal
            return None
        if new.by_descriptor and not self._rows.is_key_free(new.session_key):
            new = without_key(new, delivery)
        made = new if new.root_run_id else placed(new, delivery, self._rows.find)
        if made is None:
            return None
        refuse = delivery.refusal_of_contents
        if refuse is not None and is_refused(delivery, refuse(made.root_run_id)):
            return None
        return self._rows.create(made, delivery.event.at)


_TO_MANY: Final[frozenset[Any]] = frozenset(("every", "below"))
