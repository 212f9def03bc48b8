"""The life of a code agent's run: exactly one start, exactly one end.

    CodeThread × event of the own lane → CodeThread          (``fold_code``)
    CodeThread × what the agent emits  → what is written     (``admit``)
    CodeThread × a restart             → whether it continues  (``refusal_of_restart``)

Rules
-----
* ``agent:start`` is written once: by the runtime, or, with ``emits_start_complete``, when the
  agent emits it or, at the latest, before its first other ``agent:*`` event.  A second is dropped.
* ``agent:complete`` is terminal at once, no matter who writes it; what follows is dropped.
* The session of a code agent begins with its start and ends with its end.
* A parent gets what the function returned: a text as it is, else JSON; in place of nothing, words.
* A run whose process died continues in a further attempt if its definition says so, and not if it
  has died too often in a row (agents/turn/crash_limit.py) without progress: a result on record, a
  model's step, a message consumed, a child; or having come as far as to wait, for a message or for
  others, of which an ``agent:park`` after a restart tells.
"""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.code.durable_steps import Spawned, with_call, with_spawned
from hubbub.agents.state.area import NO_AREA, Area, with_file, with_files, with_key
from hubbub.agents.state.family import NO_RESULT, OPENING, describe
from hubbub.agents.state.prompts import (
    LOST,
    Answered,
    OpenPrompt,
    ends_of,
    find_prompt,
    with_answer,
    with_prompt,
    without_prompt,
)
from hubbub.agents.state.spending import NOTHING_SPENT, Spent, with_event
from hubbub.agents.turn.crash_limit import CRASH_LOOP, MAX_CRASHES, crash_limit_failure
from hubbub.agents.turn.intake import PROMPT_ENDED
from hubbub.hub import events as e
from hubbub.hub.delivery.pending_prompt import EXPIRED, end_of
from hubbub.hub.events import NO_USAGE, Event, InLane, Limits, OutcomeName, Usage
from hubbub.hub.events.event import ending_words
from hubbub.hub.values import NULL, Json, encode_value

__all__ = [
    "NEW",
    "CodeThread",
    "Reply",
    "admit",
    "child_endings",
    "completion",
    "ends_question",
    "fold_code",
    "fold_code_all",
    "lost_questions",
    "opening",
    "refusal_of_restart",
    "report",
    "result_as_message",
    "start_if_missing",
    "unused",
]

NO_RESET: Final = "a code agent is not reset; send it a message"


class CodeThread(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a code run's life depends on, and what it finds at once when it is executed again."""

    phase: Literal["new", "live", "ended"] = "new"
    opened: e.SessionOpen | None = None
    attempt: int = 1
    usage: Usage = NO_USAGE
    """Of every model step in the run's lane."""
    spent: Spent = NOTHING_SPENT
    """What these steps have used."""
    limits: Limits | None = None
    """What the run and all below it may use, if that is on record."""
    ending: e.AgentComplete | None = None
    area: Area = NO_AREA
    children: tuple[str, ...] = ()
    closing: bool = False
    """Whether no more messages will come."""
    step: int = 0
    """The highest number of a model's step so far, one that was cut short included."""
    causes: tuple[str, ...] = ()
    """Why it was executed again, each time since it last got anywhere."""
    has_progressed: bool = False
    """Whether the execution at work has got anywhere."""
    prompts: tuple[OpenPrompt, ...] = ()
    """What the code has asked and nobody has answered yet."""
    answers: tuple[Answered, ...] = ()
    """What the questions that it has asked came to, which it asks again after a crash."""
    calls: tuple[e.AgentToolComplete, ...] = ()
    """What the calls of its models come to that no result is on record of, after a crash."""
    spawned: tuple[Spawned, ...] = ()
    """The children that it finds again."""
    records: int = 0
    """How many results of steps there are in its lane."""
    consumed: int = 0
    """How many messages it has consumed."""
    handled: tuple[int, int] = (0, 0)
    """How many children that it finds again, and answers, were on record when it consumed the last
    one: they were for messages that are done with."""

    @property
    def depth(self) -> int:
        return self.opened.depth if self.opened is not None else 0

    @property
    def restarts(self) -> int:
        """Executions in a row that have not got anywhere."""
        return len(self.causes)

    @property
    def before(self) -> tuple[str, ...]:
        """Why it was executed again, as far as that counts if it is now once more."""
        return () if self.has_progressed else self.causes


NEW: Final = CodeThread()
"""The thread of a run that nothing is on record of."""


def fold_code(thread: CodeThread, event: Event) -> CodeThread:
    """The thread after ``event``."""
    match event:
        case e.SessionTaken():  # First, for it comes with each message.
            return _taken(thread, event)
        case e.AgentStart():
            return replace(thread, phase="live")
        case e.AgentRestore():
            causes = () if thread.has_progressed else (*thread.causes, event.reason)
            return replace(thread, attempt=event.attempt, causes=causes, has_progressed=False)
        case e.AgentStep():
            step = max(thread.step, event.step)
            usage = thread.usage + event.usage
            spent, calls = with_event(thread.spent, event), with_call(thread.calls, event)
            return replace(
                thread, usage=usage, spent=spent, step=step, calls=calls, causes=(),
                has_progressed=True,
            )  # fmt: skip
        case e.AgentToolStart() | e.AgentToolComplete() if thread.calls:
            return replace(thread, calls=with_call(thread.calls, event))
        case e.AgentText() | e.AgentThinking() | e.AgentRetry() if event.step > thread.step:
            return replace(thread, step=event.step)
        case e.AgentRecord():
            records = thread.records + 1
            return replace(thread, records=records, causes=(), has_progressed=True)
        case e.AgentPark():
            return (
                thread if thread.has_progressed else replace(thread, causes=(), has_progressed=True)
            )
        case e.AgentComplete():
            return replace(thread, phase="ended", ending=event)
        case e.AgentFile():
            return replace(thread, area=with_file(thread.area, event))
        case e.AgentKey():
            return replace(thread, area=with_key(thread.area, event))
        case e.AgentChild():
            children = (*thread.children, event.child_run_id)
            spawned = with_spawned(thread.spawned, event)
            return replace(
                thread, children=children, spawned=spawned, causes=(), has_progressed=True
            )
        case e.SessionPrompt():
            return replace(thread, prompts=with_prompt(thread.prompts, event))
        case e.SessionPromptEnd():
            return _answered(thread, event)
        case _:
            return thread


def fold_code_all(thread: CodeThread, events: Iterable[Event]) -> CodeThread:
    """The thread after ``events``."""
    for event in events:
        thread = fold_code(thread, event)
    return thread


def _taken(thread: CodeThread, event: e.SessionTaken) -> CodeThread:
    for item in event.items:
        match item:
            case e.SessionMessage():
                consumed, handled = thread.consumed + 1, thread.handled
                if thread.spawned or thread.answers:
                    handled = len(thread.spawned), len(thread.answers)
                thread = replace(
                    thread, consumed=consumed, handled=handled, causes=(), has_progressed=True
                )
            case e.SessionOpen() if thread.opened is None:
                area = with_files(thread.area, item.files) if item.files else thread.area
                thread = replace(thread, opened=item, area=area, limits=item.limits)
            case e.SessionLimits() if item.parent_run_id is None:
                thread = replace(thread, limits=item.limits)
            case e.SessionClose():
                thread = replace(thread, closing=True)
            case e.SessionReply() if thread.prompts:
                thread = _answered(thread, item)
    return thread


def _answered(thread: CodeThread, event: e.SessionPromptEnd | e.SessionReply) -> CodeThread:
    answers = with_answer(thread.answers, thread.prompts, event)
    if answers is not thread.answers and not thread.has_progressed:
        thread = replace(thread, causes=(), has_progressed=True)
    prompts = without_prompt(thread.prompts, event.prompt_id)
    return replace(thread, prompts=prompts, answers=answers)


Reply: TypeAlias = e.SessionReply | e.SessionTimer
"""The answer to a prompt, or that there was none in time."""


def ends_question(thread: CodeThread, item: Reply, *, is_running: bool) -> tuple[Event, ...]:
    """What is written when the reply to a prompt is taken, or its time is over."""
    key = item.prompt_id if isinstance(item, e.SessionReply) else item.timer
    prompt = find_prompt(thread.prompts, key)
    if prompt is None or not (is_running or prompt.ordinal):  # An earlier execution asked.
        if isinstance(item, e.SessionTimer):
            return (e.SessionTaken(items=(item,)),)
        return (e.SessionDropped(items=(item,), reason=PROMPT_ENDED),)
    if isinstance(item, e.SessionTimer):
        return (e.SessionTaken(items=(item,)), *ends_of((prompt,), EXPIRED))
    if prompt.is_too_late(item):
        dropped = e.SessionDropped(items=(item,), reason=EXPIRED)
        return (dropped, *ends_of((prompt,), EXPIRED))
    return (e.SessionTaken(items=(item,)), *ends_of((prompt,), end_of(item)))


def unused(item: InLane) -> Event:
    """What is written when an item is taken that means nothing to code: nothing begins anew, but
    whoever says something is told that it is not heard."""
    if isinstance(item, e.SessionReset) and item.message:
        return e.SessionDropped(items=(item,), reason=NO_RESET)
    return e.SessionTaken(items=(item,))


def lost_questions(thread: CodeThread) -> tuple[Event, ...]:
    """The ends of the prompts that are lost with the process; the code asks the others again."""
    return tuple(ends_of(tuple([x for x in thread.prompts if not x.ordinal]), LOST))


def opening(item: e.SessionOpen, *, emits_start: bool) -> tuple[Event, ...]:
    """What is written when the run begins."""
    taken = e.SessionTaken(items=(item,))
    return (taken,) if emits_start else (_start(item), e.SessionStart(session=1), taken)


def start_if_missing(thread: CodeThread) -> tuple[Event, ...]:
    """The start that the agent left out."""
    if thread.phase != "new" or thread.opened is None:
        return ()
    return (_start(thread.opened), e.SessionStart(session=1))


def refusal_of_restart(
    thread: CodeThread,
    on_restart: Literal["fail", "resume"],
    cause: str = "",
    max_crashes: int = MAX_CRASHES,
) -> e.AgentFailed | None:
    """Why the run does not continue, back for ``cause``; ``None`` when it does."""
    if on_restart == "fail":
        text = "the process stopped while this run was at work"
        return e.AgentFailed(error=text, error_type="Interrupted")
    failure = crash_limit_failure((*thread.before, cause), max_crashes)
    kind = "LoopDied" if cause else CRASH_LOOP
    return e.AgentFailed(error=failure, error_type=kind) if failure else None


def admit(thread: CodeThread, event: Event) -> tuple[Event, ...]:
    """What is written when the agent emits ``event``; empty when it is dropped."""
    if thread.phase == "ended":
        return ()
    if isinstance(event, e.AgentStart):
        if thread.phase == "live" or thread.opened is None:
            return ()
        opened = thread.opened
        return (
            replace(
                event,
                input_json=opened.input_json if event.input_json is NULL else event.input_json,
                correlation_id=opened.correlation_id,
                session_key=opened.session_key,
                name=event.name or opened.name,
            ),
            e.SessionStart(session=1),
        )
    before = start_if_missing(thread) if event.type.startswith("agent:") else ()
    if isinstance(event, e.AgentComplete):
        if event.usage == NO_USAGE:
            event = replace(event, usage=thread.usage)
        return (*before, *ends_of(thread.prompts, event.outcome), *_ending(event))
    return (*before, event)


def completion(
    thread: CodeThread,
    outcome: OutcomeName,
    *,
    reason: str = "",
    output: Json = NULL,
    failure: e.AgentFailed | None = None,
) -> tuple[Event, ...]:
    """What is written when the run ends; empty when it has ended already."""
    if thread.phase == "ended":
        return ()
    end = e.AgentComplete(
        success=outcome == "completed",
        outcome=outcome,
        reason=reason,
        output_json=output,
        usage=thread.usage,
    )
    failed = () if failure is None else (failure,)
    asked = ends_of(thread.prompts, ending_words(outcome, reason))
    return (*start_if_missing(thread), *asked, *failed, *_ending(end))


def child_endings(
    thread: CodeThread, outcome: OutcomeName, run_id: str, awaited: tuple[str, ...] = ()
) -> tuple[tuple[str, InLane], ...]:
    """What is terminated takes its children with it, and every other run below it, which is what
    mail to the run itself means.  What is cut off otherwise interrupts those that are awaited."""
    if outcome == "completed":
        return ()
    if outcome != "terminated":
        abort = e.SessionAbort(reason=f"its parent {outcome}")
        return tuple((to, abort) for to in dict.fromkeys(awaited))
    why = e.SessionTerminate(reason=f"run {run_id} was terminated")
    return tuple((to, why) for to in (*thread.children, run_id))


def report(thread: CodeThread, end: e.AgentComplete) -> tuple[tuple[str, InLane], ...]:
    """What the parent gets of the end, as mail, if it gets anything."""
    opened = thread.opened
    if opened is None or not opened.reports or opened.parent_run_id is None:
        return ()
    output = end.output
    result = e.SessionResult(
        child_run_id=opened.run_id, child_agent=opened.agent, name=opened.name,
        success=end.success, outcome=end.outcome, reason=end.reason,
        content=output if isinstance(output, str) else bytes(end.output_json).decode(),
        answers=(OPENING,), final=True,
    )  # fmt: skip
    if output is None:
        result = replace(result, content=NO_RESULT if end.success else "")
    return ((opened.parent_run_id, result),)


def result_as_message(item: e.SessionResult) -> e.SessionMessage:
    """A child's result as the code that has asked for it as a message reads it."""
    words = describe(item, tuple(ref.path for ref in item.files))
    return e.SessionMessage(
        content="\n\n".join((words.content, *words.notes)), source=item.child_run_id,
        silent=True, from_run=True, files=item.files, at=item.at, run_id=item.run_id,
        root_run_id=item.root_run_id, parent_run_id=item.parent_run_id, agent=item.agent,
        lane=item.lane, seq=item.seq, metadata_json=encode_value("metadata", item.metadata),
    )  # fmt: skip


def _start(item: e.SessionOpen) -> e.AgentStart:
    return e.AgentStart(
        input_json=item.input_json,
        correlation_id=item.correlation_id,
        session_key=item.session_key,
        name=item.name,
        tags=item.tags,
        once=True,
    )


def _ending(end: e.AgentComplete) -> tuple[Event, ...]:
    session = e.SessionEnd(
        session=1,
        success=end.success,
        outcome=end.outcome,
        reason=end.reason,
        output_json=end.output_json,
        usage=end.usage,
    )
    return (session, end)
