"""A conversation and a run's state as their folder shows them, from the store alone.

Neither needs ``agents/``: a store that keeps no folders can be asked, too.  What is written says
what ``context.jsonl`` and ``state.json`` say, except for lines and keys that others have put there.
"""

from collections.abc import Iterator

from hubbub.agents.folders.conversation import (
    begin_context,
    follow_context,
    seen_with,
    stack_of_context,
)
from hubbub.agents.folders.conversation_lines import write_entry
from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import write_line
from hubbub.agents.folders.state_file import begin, write_state
from hubbub.hub.errors import OperatorError
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.conversations import is_conversation

__all__ = ["NoConversation", "export_context", "export_state"]


class NoConversation(OperatorError):
    """A conversation was asked for by the id of a run that is not its root."""

    def __init__(self, info: RunInfo) -> None:
        if info.parent_run_id is not None:
            why = f"it is a child; ask for its root, {info.root_run_id}"
        else:
            why = "no user talks with it; hubbub export without --context has all of it"
        super().__init__(f"run {info.run_id}: is no conversation: {why}")


def export_context(store: StoreReader, run_id: str) -> Iterator[bytes]:
    """The entries of a conversation and its takeover frames, a line each, as of one moment.

    Raises ``NoConversation`` at once for another run, ``StoreFailed`` for an event that cannot be
    read.
    """
    reader = ConversationReader(store)
    with store.one_moment():
        if not is_conversation(info := _info(reader, run_id)):
            raise NoConversation(info)
        events, _ = reader.read((run_id,), 0)
    _, entries = follow_context(begin_context(run_id), events)
    return map(write_entry, entries)


def export_state(store: StoreReader, run_id: str) -> bytes:
    """What ``state.json`` of a run says, as of one moment.

    Raises ``StoreFailed`` for an event that cannot be read.
    """
    reader = ConversationReader(store)
    with store.one_moment():
        info = _info(reader, run_id)
        events = [x.event for x in events_in(store, run_id) if x.event.lane != "hub"]
        record, lines = follow(begin(info), events)
        size = sum(len(write_line(line)) for line in lines)
        if not record.took_over or info.parent_run_id is not None:
            return write_state(record, size)
        told, _ = reader.read((run_id,), 0)
    context, _ = follow_context(begin_context(run_id), told)
    return write_state(seen_with(record, context), size, {}, stack_of_context(context))


def _info(reader: ConversationReader, run_id: str) -> RunInfo:
    info = reader.info(run_id)
    assert info is not None  # Found by ``find_run``.
    return info
