"""What a person says while it is not simply heard, and answers to what calls ask people for.

    cancel, stop, /stop   the main agent's turn ends, and with it the frames above it; a frame
                          passes the word on to the main agent
    /back                 the frame on top is popped
    anything else         while calls are open: the answer to what people were asked for when it
                          was said; a word gives that up, where there is no frame to leave, and
                          so does one that was said before

    a call of     its reply                denied             a person's message   nobody in time
    ────────────  ───────────────────────  ─────────────────  ───────────────────  ──────────────
    interrupt     the result               an error           the result           an error
    an approval   approved: the call       an error with the  denies               an error
                  begins in its turn       reason
    external      the result               an error           denies               an error

What a word or an answer does is in the commit that takes it, and it is on record there.  What a
tool or code has asked for itself gets its answer as a reply, also where a message is the answer:
which replies a message means is found outside (``Taken.replies``).
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.area import attachment_note, find_files, parts_of_files
from hubbub.agents.state.commands import CANCELLED, SENT_BACK, command_of
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.open_calls import waiting_for
from hubbub.agents.state.prompts import ends_of, find_prompt
from hubbub.agents.state.thread import OpenCall, Thread
from hubbub.agents.turn.calls import PAUSE_SECONDS, answer, given_up
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.endings import end_run, interrupted_children, interruption
from hubbub.agents.turn.signals import Decision
from hubbub.agents.turn.steps import go_on
from hubbub.hub import events as e
from hubbub.hub.delivery.pending_prompt import EXPIRED, end_of
from hubbub.hub.events import ContentPart, Event

__all__ = ["answers_by_closing", "answers_by_reply", "apply_command"]

CLOSED: Final = "the conversation was closed"
"""Why what is asked for ends when a run is closed."""

DENIED: Final = "not run: denied"
NO_RESULT: Final = "no result"


def apply_command(
    thread: Thread,
    items: tuple[e.SessionMessage, ...],
    definitions: Definitions,
    waiting: frozenset[Kind],
    unasked: frozenset[str] = frozenset(),
) -> Decision | None:
    """What is written when such messages are taken; ``None`` where they are simply heard.

    They do not answer the prompts ``unasked``.
    """
    word = command_of(items[0])
    is_frame = thread.origin.frame > 0 and thread.converses
    if word == "stop" and is_frame:
        cancel = e.SessionCancel(reason=CANCELLED)
        mail = ((thread.origin.root_run_id, cancel),)
        return Decision((e.SessionTaken(items=items),), status="active", mail=mail)
    if word == "stop" and thread.frame is not None:
        ends = interruption(thread, CANCELLED)
        return Decision(
            (e.SessionTaken(items=items), *ends), status="active",
            mail=interrupted_children(thread, CANCELLED),
        )  # fmt: skip
    if word == "back" and is_frame:
        taken = e.SessionTaken(items=items)
        end = end_run(fold_all(thread, (taken,)), "interrupted", SENT_BACK)
        return replace(end, events=(taken, *end.events))
    if thread.open is None or thread.frame is not None:
        return None
    answers = _answers_by_message(thread, items[0], unasked)
    events: list[Event] = [e.SessionTaken(items=items), *answers]
    if not answers:  # It answers what is asked elsewhere.
        return Decision(tuple(events), status="active", again=items[0])
    side = definitions.side(thread.agent, thread.acts_as)
    return go_on(fold_all(thread, events), events, side, waiting, definitions)


def answers_by_reply(thread: Thread, item: e.SessionReply | e.SessionTimer) -> list[Event]:
    """What the reply to an open prompt does, or that there was none in time."""
    key = item.prompt_id if isinstance(item, e.SessionReply) else item.timer
    prompt = find_prompt(thread.prompts, key)
    if prompt is None:
        return []
    call = waiting_for(thread, key)
    is_over = isinstance(item, e.SessionTimer) or prompt.is_too_late(item)
    if call is None:
        reason = EXPIRED if is_over else end_of(item)  # type: ignore[arg-type]
        return list(ends_of((prompt,), reason, thread.turn))
    if isinstance(item, e.SessionTimer) or is_over:
        return _answered(thread, call, _expired(call), reason=EXPIRED)
    if item.decision == "deny":
        return _answered(thread, call, _refused(call, item.content), reason="denied")
    if call.asks == "approval":  # What it is taken with says that it may begin.
        return list(ends_of((prompt,), "approved", thread.turn))
    return _answered(thread, call, item.content, is_error=item.is_error, reason="answered")


def _answers_by_message(
    thread: Thread, said: e.SessionMessage, unasked: frozenset[str]
) -> list[Event]:
    """What a person's words do to every call that waited for a person when they were said."""
    word = CANCELLED if command_of(said) else ""
    events: list[Event] = []
    for call in _waiting(thread):
        if call.key in unasked:
            continue
        if word:
            events += _answered(thread, call, word, reason=word)
        elif call.asks == "question":
            notes = attachment_note(said.attachments)
            events += _answered(
                thread, call, said.content, is_error=False, reason="answered", notes=notes,
                parts=(*said.parts, *parts_of_files(find_files(thread.area, said.attachments)[0])),
            )  # fmt: skip
        else:
            events += _answered(thread, call, _refused(call, said.content), reason="denied")
    return events


def answers_by_closing(thread: Thread) -> list[Event]:
    """What is given up because nobody is there any more who could be asked."""
    events: list[Event] = []
    for call in _waiting(thread):
        if call.asks != "question":
            events += _answered(thread, call, _refused(call, CLOSED), reason=CLOSED)
    asked = tuple([each for each in thread.prompts if each.ordinal])
    return [*events, *ends_of(asked, CLOSED, thread.turn)]


def _waiting(thread: Thread) -> Iterable[OpenCall]:
    calls = thread.open.calls if thread.open is not None else ()
    return [call for call in calls if call.status == "waiting" and not call.child]


def _expired(call: OpenCall) -> str:
    if call.asks == "question":
        return f"no answer came within {PAUSE_SECONDS:g} s; go on without it"
    if call.asks == "approval":
        return "not run: nobody approved it in time"
    return "no result came in time"


def _refused(call: OpenCall, reason: str) -> str:
    if call.asks == "approval":
        return _with(reason, DENIED)
    return _with(reason, NO_RESULT if call.asks == "external" else "denied")


def _with(reason: str, what: str) -> str:
    return f"{what}: {reason}" if reason.strip() else what


def _answered(
    thread: Thread,
    call: OpenCall,
    text: str,
    *,
    reason: str,
    is_error: bool = True,
    notes: tuple[str, ...] = (),
    parts: tuple[ContentPart, ...] = (),
) -> list[Event]:
    """The result of a call that waited for an answer; channels take the question away."""
    step = thread.open
    assert step is not None
    closing = given_up(thread, step, call, reason)
    ran = call.asks != "approval"
    result = answer(
        thread, step, call, text, is_error=is_error, ran=ran, notes=notes, parts=parts
    )  # fmt: skip
    return [*closing, result]
