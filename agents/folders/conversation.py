"""``Context``: a conversation with its takeover frames, told as one (IA "Session Logging").

    Context × own events of the root and its frames → Context, entries      (``follow_context``)
    Context → the stack, from main to the top                               (``stack_of_context``)

    agent_session            a frame was pushed
    user_message             what was said to a speaker
    assistant_message        what it said
    tool_use, tool_result    its calls, and what came of each
    agent_session_complete   the frame was popped, and its call answered; then comes that result
    reset                    the speaker has forgotten what was before

Rules
-----
* The speakers are the root, every frame that a speaker pushes, and nobody else: an isolated child
  tells its caller, and nothing else of it is shown.
* Everything follows from the events in the store's one order; how they were read in parts changes
  nothing, and events of other runs and lanes change nothing.
* A frame that was popped while it was at work is followed until its run is over.
* Behind a base of the root before which its events have gone, it alone speaks: all frames of before
  were over by then.
* The texts are those of the histories (history.py), which are those that the models read.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.folders.conversation_lines import (
    AgentSessionCompleteEntry,
    AgentSessionEntry,
    AssistantEntry,
    Entry,
    ResetEntry,
    ToolResultEntry,
    ToolUseEntry,
    UserEntry,
    input_of,
    timestamp,
)
from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import (
    AssistantLine,
    Line,
    ResetLine,
    SystemLine,
    ToolResultLine,
    UserLine,
)
from hubbub.agents.folders.stack_frame_meta import HIDDEN, StackFrameMeta
from hubbub.agents.folders.state_file import Record
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.event import place_of_call

__all__ = ["Context", "begin_context", "follow_context", "seen_with", "stack_of_context"]

SKILL: Final = "skill:"
"""Begins the names of the agents that skills become."""


class Takeover(Struct, frozen=True):
    """A call of a speaker whose frame is open, or has just one half of its end on record."""

    push: e.SessionPush
    pop: e.SessionPop | None = None
    answer: e.AgentToolComplete | None = None


class Speaker(Struct, frozen=True):
    """The root, or a frame until it is popped and its run is over."""

    record: Record
    model: str = ""
    """That of its last call."""
    takeovers: tuple[Takeover, ...] = ()


class Context(Struct, frozen=True):
    """What must be known of a conversation to continue telling it."""

    root_run_id: str
    speakers: Mapping[str, Speaker]
    """By run id."""
    lent: frozenset[int] = frozenset()
    """Items of the root's inbox, by number, that frames have taken."""
    updated_at: int = 0


def begin_context(root_run_id: str) -> Context:
    """A conversation of which nothing was heard."""
    return Context(root_run_id, {root_run_id: _speaker(root_run_id, root_run_id, "")})


def follow_context(context: Context, events: Iterable[Event]) -> tuple[Context, tuple[Entry, ...]]:
    """The conversation after events in the store's order, and the entries that they add."""
    telling = _Telling(context)
    for event in events:
        speaker = telling.speakers.get(event.run_id)
        if speaker is not None and event.lane == "own":
            telling.hear(speaker, event)
    told = Context(
        context.root_run_id, telling.speakers, context.lent | telling.lent, telling.updated_at
    )
    return told, tuple(telling.entries)


def seen_with(record: Record, context: Context) -> Record:
    """The root's record as it is with what its frames have done: they take from its inbox."""
    pending = record.pending
    if context.lent:
        pending = tuple([item for item in pending if item.seq not in context.lent])
    return replace(record, pending=pending, updated_at=max(record.updated_at, context.updated_at))


# ── the stack ────────────────────────────────────────────────────────────────────────────────


def stack_of_context(context: Context) -> tuple[StackFrameMeta, ...]:
    """The open frames, main first and the top last; empty while main has the conversation."""
    main = at = context.speakers[context.root_run_id]
    frames: list[StackFrameMeta] = []
    while push := _open_push(at):
        above = context.speakers.get(push.frame_run_id)
        if above is None or len(frames) == len(context.speakers):
            break  # No store of ours says such a thing.
        frames.append(_frame_meta(push, above))
        at = above
    if not frames:
        return ()
    thread = main.record.thread
    return (
        StackFrameMeta(
            frame_id=context.root_run_id, agent_session_id=context.root_run_id,
            agent_name=thread.agent, agent_type="main", model=main.model or None,
            iteration=thread.turn_steps,
        ),
        *frames,
    )  # fmt: skip


def _open_push(speaker: Speaker) -> e.SessionPush | None:
    if speaker.record.thread.phase == "ended":
        return None
    open_ones = [x.push for x in speaker.takeovers if x.pop is None and x.answer is None]
    # Frames that lie beside each other have the conversation in the order of their calls.
    return min(open_ones, key=lambda push: place_of_call(push.call_id), default=None)


def _frame_meta(push: e.SessionPush, speaker: Speaker) -> StackFrameMeta:
    return StackFrameMeta(
        frame_id=push.frame_run_id,
        agent_session_id=push.frame_run_id,
        agent_name=push.frame_agent,
        agent_type="skill" if _is_skill(push) else "agent",
        model=push.model or speaker.model or None,
        iteration=speaker.record.thread.turn_steps,
        max_iterations=push.max_iterations,
        parent_tool_use_id=_tool_use_id(push),
        effective_tools=push.tools,
        is_skill_agent=_is_skill(push),
        environment=dict.fromkeys(push.variables, HIDDEN),
    )


def _is_skill(push: e.SessionPush) -> bool:
    return push.frame_agent.startswith(SKILL)


def _tool_use_id(push: e.SessionPush) -> str:
    step, _, index = push.call_id.partition(".")
    return f"call_{step}_{index}"


# ── telling ──────────────────────────────────────────────────────────────────────────────────


class _Telling:
    """A context at work: what has changed, and the entries so far."""

    def __init__(self, context: Context) -> None:
        self.root_run_id = context.root_run_id
        self.speakers = dict(context.speakers)
        self.lent: set[int] = set()
        self.updated_at = context.updated_at
        self.entries: list[Entry] = []

    def hear(self, speaker: Speaker, event: Event) -> None:
        run_id = event.run_id
        self.updated_at = max(self.updated_at, event.at)
        if isinstance(event, e.AgentBase) and event.seq > speaker.record.seq + 1:
            speaker = replace(speaker, takeovers=())
            self.speakers = {run_id: speaker}
        speaker = self._close(speaker, event)
        record, lines = follow(speaker.record, (event,))
        for line in lines:
            self._tell(run_id, line)
        speaker = replace(speaker, record=record)
        match event:
            case e.AgentStep() if event.model:
                speaker = replace(speaker, model=event.model)
            case e.SessionTaken() if run_id != self.root_run_id:
                self.lent.update(x.seq for x in event.items if x.run_id == self.root_run_id)
            case e.SessionPush():
                speaker = self._push(speaker, event)
        self.speakers[run_id] = speaker
        if isinstance(event, e.AgentComplete):
            self._leave(run_id)

    def _push(self, speaker: Speaker, push: e.SessionPush) -> Speaker:
        frame = _speaker(push.frame_run_id, self.root_run_id, push.frame_agent)
        self.speakers[push.frame_run_id] = frame
        self.entries.append(
            AgentSessionEntry(
                id=push.frame_run_id, agent_name=push.frame_agent,
                agent_type="skill" if _is_skill(push) else "agent",
                parent_tool_use_id=_tool_use_id(push), parent_agent_session_id=push.run_id,
                model=push.model or None, created_at=timestamp(push.at),
            )
        )  # fmt: skip
        return replace(speaker, takeovers=(*speaker.takeovers, Takeover(push)))

    def _close(self, speaker: Speaker, event: Event) -> Speaker:
        """A takeover is over once both its pop and its call's answer are on record."""
        if not speaker.takeovers or not isinstance(event, e.SessionPop | e.AgentToolComplete):
            return speaker
        left: list[Takeover] = []
        for each in speaker.takeovers:
            if each.push.call_id != event.call_id:
                left.append(each)
                continue
            if isinstance(event, e.SessionPop):
                each = replace(each, pop=event)
            else:
                each = replace(each, answer=event)
            if each.pop is None or each.answer is None:
                left.append(each)
                continue
            frame = each.push.frame_run_id
            self.entries.append(
                AgentSessionCompleteEntry(
                    agent_session_id=frame, result=each.answer.output,
                    is_error=each.pop.is_error or each.answer.is_error,
                    created_at=timestamp(event.at),
                )
            )  # fmt: skip
            if frame in self.speakers and self.speakers[frame].record.thread.phase == "ended":
                del self.speakers[frame]
        return replace(speaker, takeovers=tuple(left))

    def _leave(self, run_id: str) -> None:
        """A run is over: a frame that was popped is followed no longer."""
        waits = any(
            each.push.frame_run_id == run_id
            for speaker in self.speakers.values()
            for each in speaker.takeovers
        )
        if run_id != self.root_run_id and not waits:
            del self.speakers[run_id]

    def _tell(self, run_id: str, line: Line) -> None:
        created_at = timestamp(line.at)
        match line:
            case UserLine():
                self.entries.append(
                    UserEntry(content=line.text, agent_session_id=run_id, created_at=created_at)
                )
            case SystemLine():
                self.entries.append(
                    UserEntry(
                        content=line.text, agent_session_id=run_id, created_at=created_at,
                        origin=line.origin,
                    )
                )  # fmt: skip
            case AssistantLine():
                self._tell_step(run_id, line, created_at)
            case ToolResultLine():
                self.entries.append(
                    ToolResultEntry(
                        tool_use_id=line.tool_call_id, output=line.output, is_error=line.is_error,
                        agent_session_id=run_id, created_at=created_at,
                    )
                )  # fmt: skip
            case ResetLine():
                self.entries.append(
                    ResetEntry(message=line.message, agent_session_id=run_id, created_at=created_at)
                )

    def _tell_step(self, run_id: str, line: AssistantLine, created_at: str) -> None:
        if line.text:
            self.entries.append(
                AssistantEntry(content=line.text, agent_session_id=run_id, created_at=created_at)
            )
        for call in line.tool_calls:
            self.entries.append(
                ToolUseEntry(
                    id=call.id, name=call.name, input=input_of(call.arguments),
                    agent_session_id=run_id, created_at=created_at,
                )
            )  # fmt: skip


def _speaker(run_id: str, root_run_id: str, agent: str) -> Speaker:
    parent = None if run_id == root_run_id else ""
    return Speaker(
        Record(run_id=run_id, root_run_id=root_run_id, parent_run_id=parent, agent=agent)
    )
