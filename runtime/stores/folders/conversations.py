"""``ContextFiles``: ``context.jsonl`` of the conversations that were ever taken over.

Rules
-----
* A conversation is a root with a ``user`` descriptor.  Its file is made when its first frame is
  pushed, and then holds what came before, too: without a takeover it would say what the history
  says, and cost every step of every run another write.
* The store is the truth.  What a conversation's lanes say since the last time is read from it, so
  that the order is the store's; the first time, everything is, and compared with the file.
* The rules for damage are those of ``history.jsonl`` (lines.py).
* Roots of other kinds have no file, but a stack all the same.
"""

from collections import OrderedDict

from msgspec import Struct

from hubbub.agents.folders.conversation import (
    Context,
    begin_context,
    follow_context,
    seen_with,
    stack_of_context,
)
from hubbub.agents.folders.conversation_lines import write_entry
from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.agents.folders.state_file import Record
from hubbub.hub.events.descriptors import UserDescriptor
from hubbub.hub.store.journal import RunInfo
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.disk import Disk
from hubbub.runtime.stores.folders.lines import CONTEXT, Compared, compare, reconcile

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
        context, entries = follow_context(begun, events)
        if not is_conversation(info):
            return Looked(context, position, None)
        data = self._disk.read(f"{path}/{NAME}")
        return Looked(context, position, compare(data, entries, CONTEXT))

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
