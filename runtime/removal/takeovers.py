"""``were_over``: whether the frames of a conversation had said their last by one of its bases."""

from hubbub.agents.state.bases import family_of
from hubbub.hub.events import AgentBase, SessionPush
from hubbub.hub.store.reader import StoreReader, decoded

__all__ = ["were_over"]


def were_over(store: StoreReader, run_id: str, position: int, base: AgentBase) -> bool:
    """Whether all frames that a run, and each of these, has pushed before its base, which stands at
    a position, ended before that: what comes behind it is told without them.

    Raises ``StoreFailed`` for an event that cannot be read, and ``BadValue`` for such a base.
    """
    todo = [run_id] if family_of(base).has_lent else []
    while todo:
        for row in store.event_rows((todo.pop(),), until=position):
            if row.type != SessionPush.type:
                continue
            event = decoded(store, row.position, row.body)
            assert isinstance(event, SessionPush)
            if not _was_over(store, event.frame_run_id, position):
                return False
            todo.append(event.frame_run_id)
    return True


def _was_over(store: StoreReader, run_id: str, position: int) -> bool:
    row = store.row(run_id)
    if row is not None and row.status != "ended":
        return False
    later = store.event_rows((run_id,), after=position)
    return not any(each.lane == "own" for each in later)
