"""``ContextFiles``: ``context.jsonl`` of the conversations that were ever taken over.

Rules
-----
* A conversation is a root with a ``user`` descriptor.  Its file is made when its first frame is
  pushed, and then holds what came before, too: without a takeover it would say what the history
  says, and cost every step of every run another write.
* The store is the truth.  What a conversation's lanes say since the last time is read from it, so
  that the order is the store's; the first time, everything is, and compared with the file.
* Of turns that have gone from the store, behind the root's base, the file keeps what it has: all
  that stands before what is told from the base on (``_gone``).
* The rules for damage are those of ``history.jsonl`` (lines.py).
* Roots of other kinds have no file, but a stack all the same.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec import Struct

from hubbub.agents.folders.conversation import (
    Context,
    begin_context,
    follow_context,
    seen_with,
    stack_of_context,
)
from hubbub.agents.folders.conversation_lines import Entry, timestamp, write_entry
from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.agents.folders.state_file import Record
from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.events import AgentBase, Event
from hubbub.hub.events.descriptors import UserDescriptor
from hubbub.hub.store.journal import RunInfo
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.disk import Disk
from hubbub.runtime.stores.folders.lines import (
    CONTEXT,
    Compared,
    compare,
    read_lines,
    reconcile,
)

__all__ = ["NAME", "ContextFiles", "Looked", "is_conversation"]

NAME = "context.jsonl"


class Looked(Struct, frozen=True):
    """A conversation as the store has it up to ``position``; what its file needs, if it has one."""

    context: Context
    position: int
    file: Compared | None

    def of(self, record: Record) -> tuple[Record, tuple[StackFrameMeta, ...]]:
        """The root's record with what its frames have done, and the stack."""
        return seen_with(record, self.context), stack_of_context(self.context)


def is_conversation(info: RunInfo) -> bool:
    """Whether a run is the root of a conversation with a user."""
    return info.parent_run_id is None and isinstance(info.descriptor, UserDescriptor)


class ContextFiles:
    """Follows conversations; ``keep`` bounds how many are remembered."""

    def __init__(self, disk: Disk, conversations: ConversationReader, keep: int) -> None:
        self._disk = disk
        self._conversations = conversations
        self._keep = keep
        self._known: OrderedDict[str, Looked] = OrderedDict()

    def root(self, run_id: str) -> RunInfo | None:
        """What the store knows of a root, if it shows its runs in folders."""
        info = self._conversations.info(run_id)
        return None if info is None or info.descriptor is None else info

    def update(self, path: str, info: RunInfo) -> tuple[Looked, list[str]]:
        """Write down what was said since the last time; and what was wrong with the file."""
        known = self._known.pop(info.run_id, None)
        if known is None:
            known = self.look(path, info)
            # What is missing at the end is what was said since the file was last looked at.
            is_damaged = known.file is not None and known.file.instead is not None
            problems = self.reconcile(path, info, known) if known.file is not None else []
            return known, problems if is_damaged else []
        events, position = self._conversations.read(known.context.speakers, known.position)
        context, entries = follow_context(known.context, events)
        if entries and is_conversation(info):
            self._disk.append(f"{path}/{NAME}", b"".join([write_entry(x) for x in entries]))
        known = Looked(context, position, None)
        self._remember(info.run_id, known)
        return known, []

    def look(self, path: str, info: RunInfo) -> Looked:
        """The whole conversation beside its file; changes nothing."""
        begun = begin_context(info.run_id)
        events, position = self._conversations.read(begun.speakers, 0)
        base = _base_behind_gap(info.run_id, events)
        left = 0 if base is None else events.index(base)
        context, began = follow_context(begun, events[:left])
        context, told = follow_context(context, events[left:])
        if not is_conversation(info):
            return Looked(context, position, None)
        data = self._disk.read(f"{path}/{NAME}")
        if base is not None and data is not None:
            began = tuple(_gone(read_lines(data, CONTEXT).lines, told, base.at))
        return Looked(context, position, compare(data, (*began, *told), CONTEXT))

    def reconcile(
        self, path: str, info: RunInfo, found: Looked, *, keeps: bool = True
    ) -> list[str]:
        """Have the file say what was found; returns what was wrong with it."""
        problems = []
        if found.file is not None:
            problems = reconcile(self._disk, path, NAME, found.file, keeps=keeps)
        self._remember(info.run_id, Looked(found.context, found.position, None))
        return problems

    def forget(self, run_id: str) -> None:
        """Look at everything the next time."""
        self._known.pop(run_id, None)

    def _remember(self, run_id: str, known: Looked) -> None:
        self._known[run_id] = known
        while len(self._known) > self._keep:
            self._known.popitem(last=False)


def _base_behind_gap(root_run_id: str, events: Iterable[Event]) -> AgentBase | None:
    """The base of a conversation's root before which others of its records have gone."""
    own = [event for event in events if event.run_id == root_run_id]
    seq = base_behind_gap(own)
    return next((x for x in own if x.seq == seq and isinstance(x, AgentBase)), None)


def _gone(found: Sequence[Entry], told: Sequence[Entry], at: int) -> Sequence[Entry]:
    """Those of the entries found that stand before what is told from a base on.

    They end where that begins.  Where nothing of it is found as it is told, which is damage, or
    all of it missing, the time of the base (``at``) says which these are.
    """
    rows = [write_entry(entry) for entry in found]
    wanted = [write_entry(entry) for entry in told]
    for place in range(max(0, len(rows) - len(wanted)), len(rows)):
        if rows[place] == wanted[0] and rows[place:] == wanted[: len(rows) - place]:
            return found[:place]
    moment = timestamp(at)
    times = map(attrgetter("created_at"), found)
    return found[: next((place for place, time in enumerate(times) if time > moment), len(found))]
