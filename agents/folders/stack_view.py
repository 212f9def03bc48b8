"""``stack_of``: which frames of a conversation are open, from its events alone."""

from collections.abc import Iterable

from hubbub.agents.folders.conversation import begin_context, follow_context, stack_of_context
from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.hub.events import Event

__all__ = ["StackFrameMeta", "stack_of"]


def stack_of(events: Iterable[Event], root_run_id: str) -> tuple[StackFrameMeta, ...]:
    """The open frames of the conversation of a root, main first and the top last.

    ``events`` are those of the root and its frames, in the store's order; what else is among them
    (other lanes, other runs) changes nothing.  Empty while the main agent has the conversation.
    """
    context, _ = follow_context(begin_context(root_run_id), events)
    return stack_of_context(context)
