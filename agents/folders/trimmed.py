"""``trimmed``: a thread without what the history holds, as ``state.json`` has it."""

from msgspec.structs import replace

from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.hub.events import NO_USAGE

__all__ = ["trimmed"]


def trimmed(thread: Thread) -> Thread:
    """The thread without what the history holds."""
    step = thread.open
    if step is not None:
        calls = tuple([_without_words(call) for call in step.calls])
        step = OpenStep(step.number, "", (), calls, step.parallel)
    return replace(
        thread, transcript=(), transcript_b=(), draft_text="", draft_thinking=(), closed=None,
        last_text="", open=step, seen=NO_USAGE, seen_b=NO_USAGE,
    )  # fmt: skip


def _without_words(call: OpenCall) -> OpenCall:
    return OpenCall(
        call.index, call.name, "", call.status, child=call.child, key=call.key,
        takeover=call.takeover, expires_at=call.expires_at,
    )  # fmt: skip
