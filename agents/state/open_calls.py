"""The calls of a thread's open step: whose results they wait for, and how they get on."""

from typing import Any

from msgspec.structs import replace

from hubbub.agents.state.thread import Thread
from hubbub.hub.events import SessionResult

__all__ = ["awaited", "change_call"]


def awaited(thread: Thread, item: SessionResult) -> list[int]:
    """The open calls that wait for a result, by index."""
    step = thread.open
    return [
        call.index
        for call in (step.calls if step is not None else ())
        if call.status == "waiting"
        and call.child == item.child_run_id
        and (item.final or call.key in item.answers)
    ]


def change_call(thread: Thread, index: int, **changes: Any) -> Thread:
    """The thread after a call has got on; one that is done stays as it is."""
    step = thread.open
    if step is None or index >= len(step.calls) or step.calls[index].status == "done":
        return thread
    calls = list(step.calls)
    calls[index] = replace(calls[index], **changes)
    return replace(thread, open=replace(step, calls=tuple(calls)))
