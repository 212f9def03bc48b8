"""A summary takes the place of the older messages of one side's view."""

from msgspec.structs import replace

from hubbub.agents.model import UserMessage
from hubbub.agents.state.compactions import compactions_after, wanted
from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE

__all__ = ["summary_message", "with_summary", "with_wish"]

SUMMARY = "Summary of the conversation so far, in place of its older messages:\n\n{}"


def summary_message(summary: str) -> UserMessage:
    """A summary as the model is shown it."""
    return UserMessage(content=SUMMARY.format(summary), role="system")


def with_wish(thread: Thread, item: e.SessionCompact) -> Thread:
    """The thread after somebody asked for a summary."""
    return replace(thread, compactions=wanted(thread.compactions, thread.two_sided))


def with_summary(thread: Thread, event: e.SessionCompaction) -> Thread:
    """The thread after a summary, or after one that has failed and changes nothing."""
    is_b = event.side == "side_b"
    view = thread.transcript_b if is_b else thread.transcript
    compactions = compactions_after(thread.compactions, event)
    if event.usage != NO_USAGE:
        thread = replace(
            thread, usage=thread.usage + event.usage, total_usage=thread.total_usage + event.usage
        )
    if event.error or not event.summary:
        return replace(thread, compactions=compactions)
    view = (summary_message(event.summary), *view[event.covers :])
    if is_b:
        return replace(thread, transcript_b=view, seen_b=NO_USAGE, compactions=compactions)
    return replace(thread, transcript=view, seen=NO_USAGE, compactions=compactions)
