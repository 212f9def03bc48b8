"""The event catalogue: everything that can happen, one frozen struct each.

Rules
-----
* A tag (``type``) and the meaning of a field are permanent; new fields have defaults.  A golden
  file pins tag, lane and fields.
* Fields hold ids and plain values, never live objects; tuples, never lists.
* ``home`` says where an event of this class is kept:

      own     the lane of the run it is about, written by the run's owner alone
      in      the lane of what others sent to a run; the hub turns it into a delivery.  What is
              in ``IN_BOTH_LANES`` a run's owner writes to its own lane as well
      hub     the hub's own lane: carried and journaled, never a fact about a run
      none    dispatched only
      scope   own inside a run's scope (``ctx.hub``), hub outside of one

* What every event carries is stamped by the hub, not by the emitter.
"""

from hubbub.hub.events.agents import (
    AgentBase,
    AgentChild,
    AgentClaim,
    AgentComplete,
    AgentFailed,
    AgentFile,
    AgentHandoff,
    AgentImmediate,
    AgentInterrupted,
    AgentKey,
    AgentMessage,
    AgentPark,
    AgentRecord,
    AgentRestore,
    AgentRetry,
    AgentStart,
    AgentStatus,
    AgentStep,
    AgentText,
    AgentTextDelta,
    AgentThinking,
    AgentThinkingDelta,
    AgentToolComplete,
    AgentToolStart,
)
from hubbub.hub.events.event import KNOWN_TYPES, Event
from hubbub.hub.events.sessions import (
    InLane,
    SessionAbort,
    SessionCancel,
    SessionClose,
    SessionCompact,
    SessionCompaction,
    SessionDropped,
    SessionEnd,
    SessionLimits,
    SessionMessage,
    SessionOpen,
    SessionPop,
    SessionPrompt,
    SessionPromptEnd,
    SessionPush,
    SessionReply,
    SessionReset,
    SessionResult,
    SessionStart,
    SessionTaken,
    SessionTerminate,
    SessionTimer,
    SessionTurn,
    SessionVariables,
)

__all__ = [
    "CATALOGUE",
    "AgentRead",
    "ChannelComplete",
    "ChannelError",
    "ChannelStart",
    "HubDeadLetter",
    "HubErrorEvent",
    "HubGap",
    "ScheduleFire",
    "ScheduleSkip",
]


class AgentRead(Event, tag="agent:read", home="own"):
    """The code that has started a child asks for its result by its handle; or (``left``) it has
    given up without having it."""

    child_run_id: str = ""
    left: bool = False


class ScheduleFire(Event, tag="schedule:fire", home="hub"):
    """A schedule's tick (µs) starts a session of the run ``run_id``: recorded before it does."""

    schedule: str = ""
    tick: int = 0


class ScheduleSkip(Event, tag="schedule:skip", home="hub"):
    """``count`` ticks of a schedule, the last one at ``tick`` (µs), are passed over.

    ``reason`` is ``busy`` (its run is at work) or ``missed`` (nothing ran at the time).
    """

    schedule: str = ""
    tick: int = 0
    reason: str = ""
    count: int = 1


class ChannelStart(Event, tag="channel:start", home="none"):
    """A channel is attached and ready."""

    channel: str = ""


class ChannelComplete(Event, tag="channel:complete", home="none"):
    """A channel is detached."""

    channel: str = ""


class ChannelError(Event, tag="channel:error", home="none"):
    """A channel's handler raised; not delivered back to that channel."""

    channel: str = ""
    error: str = ""
    error_type: str = ""
    during: str = ""


class HubErrorEvent(Event, tag="hub:error", home="none"):
    """A listener raised."""

    error: str = ""
    error_type: str = ""
    listener: str = ""
    during: str = ""


class HubDeadLetter(Event, tag="hub:dead_letter", home="none"):
    """A message that nobody will handle: rejected, or left over when its run ended.

    Dispatched once, together with the event it follows from, to those who listen then.  Not kept:
    if the process dies at that very commit, the journal alone says so, by an ended run whose inbox
    has a message that it never took.
    """

    to: str = ""
    reason: str = ""
    message: InLane | None = None


class HubGap(Event, tag="hub:gap", home="none"):
    """Put into a stream that fell behind or began at a cursor this store cannot place.

    Also into a stream that catches up, if a retention removed events that it had not read yet.

    ``dropped`` events are missing here (0 when the number is not known); ``cursor`` resumes at
    the place of the gap.
    """

    dropped: int = 0
    cursor: str = ""
    reason: str = "overflow"


CATALOGUE: tuple[type[Event], ...] = (
    AgentStart, AgentThinking, AgentText, AgentStep, AgentRetry, AgentToolStart,
    AgentToolComplete, AgentStatus, AgentMessage, AgentChild, AgentRead, AgentImmediate,
    AgentFile, AgentKey, AgentRecord, AgentHandoff, AgentPark, AgentBase,
    AgentRestore, AgentClaim, AgentInterrupted, AgentFailed, AgentComplete,
    SessionStart, SessionTurn, SessionEnd, SessionOpen, SessionMessage, SessionResult, SessionReply,
    SessionTimer, SessionVariables, SessionAbort, SessionCancel, SessionClose,
    SessionTerminate, SessionReset, SessionCompact, SessionCompaction, SessionLimits, SessionPrompt,
    SessionPromptEnd, SessionPush, SessionPop, SessionTaken, SessionDropped, AgentTextDelta,
    AgentThinkingDelta, ScheduleFire, ScheduleSkip, ChannelStart, ChannelComplete, ChannelError,
    HubErrorEvent, HubDeadLetter, HubGap,
)  # fmt: skip
"""Every event of ours; ``CustomEvent`` and ``UnknownEvent`` are none of it."""

KNOWN_TYPES.update(event.type for event in CATALOGUE)
