"""What a person says while it is not simply heard: words, and the answer to a question.

    cancel, stop, /stop   the main agent's turn ends, and with it the frames above it; a frame
                          passes the word on to the main agent
    /back                 the frame on top is popped
    anything else         where ``interrupt`` has paused the run: the result of that call;
                          a word is its error result, where there is no frame to leave

Every open call gets its result in the commit that takes the word, and the word is on record there.
"""

from msgspec.structs import replace

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.area import attachment_note
from hubbub.agents.state.commands import CANCELLED, SENT_BACK, command_of
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import OpenCall, Thread
from hubbub.agents.turn.calls import answer, given_up
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.endings import end_run, interrupted_children, interruption
from hubbub.agents.turn.signals import Decision
from hubbub.agents.turn.steps import go_on
from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["answer_pause", "apply_command"]


def apply_command(
    thread: Thread,
    items: tuple[e.SessionMessage, ...],
    definitions: Definitions,
    waiting: frozenset[Kind],
) -> Decision | None:
    """What is written when such messages are taken; ``None`` where they are simply heard."""
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
    pause = thread.pause
    if pause is None:
        return None
    said = items[0]
    events: list[Event] = [e.SessionTaken(items=items)]
    events += answer_pause(
        thread, pause, CANCELLED if word else said.content, is_error=bool(word),
        reason=CANCELLED if word else "answered", notes=attachment_note(said.attachments),
    )  # fmt: skip
    side = definitions.side(thread.agent, thread.acts_as)
    return go_on(fold_all(thread, events), events, side, waiting, definitions)


def answer_pause(
    thread: Thread,
    call: OpenCall,
    text: str,
    *,
    is_error: bool = False,
    reason: str = "",
    notes: tuple[str, ...] = (),
) -> list[Event]:
    """The result of a call that waited for an answer; channels take the question away."""
    step = thread.open
    assert step is not None
    closing = given_up(thread, step, call, reason) if reason else ()
    return [*closing, answer(thread, step, call, text, is_error=is_error, ran=True, notes=notes)]
