"""Prompts that a run has opened and that nobody has answered yet, according to its lane.

session:prompt ─► open ─► its reply is taken: answered   ─► session:prompt:end
                     └──► the question is withdrawn     ─► session:prompt:end

who asks                                   waits
─────────────────────────────────────────  ──────────────────────────────────────────────────
a call of the model's: ``interrupt``, one  in the status of the call and in no task, over
that needs approval, an external tool      restarts (``is_held``)
``state.ask`` of a tool, ``ctx.ask``       in its own code; its answer is on record
                                           (``ordinal``), and the code finds it when it runs
                                           again
``hub.ask`` of a tool, hook or code,       in its own code; it is lost with its process
``state.ask`` of a hook
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from hubbub.hub import events as e
from hubbub.hub.delivery.pending_prompt import end_of
from hubbub.hub.events import InLane, PromptKind
from hubbub.hub.values import NULL, Json, decode_value

__all__ = [
    "LASTING", "LOST", "WITHDRAWN", "Answered", "OpenPrompt", "ends_of", "find_answer",
    "find_prompt", "for_code", "open_prompts_of", "with_answer", "with_prompt", "without_prompt",
]  # fmt: skip

LASTING = "pause/"
"""Begins the keys of a store's notes of the prompts that wait in no task; an id follows."""

WITHDRAWN = "closed"
"""Why a prompt ended whose asker waits no more, and goes on."""

LOST = "lost: the process stopped"
"""Why a prompt ended whose asker has gone with its process."""


class OpenPrompt(Struct, frozen=True, gc=False, omit_defaults=True):
    """A prompt that waits for its reply; ``call_id`` names the call that asks, or whose tool does.

    ``since`` and ``expires_at`` are µs since the epoch; it never expires where that is 0.
    """

    prompt_id: str
    call_id: str = ""
    kind: PromptKind = "question"
    question: str = ""
    options: tuple[str, ...] = ()
    to: str = "user"
    tool: str = ""
    arguments_json: Json = NULL
    schema_json: Json = NULL
    since: int = 0
    expires_at: int = 0
    is_held: bool = False
    """Whether a call waits for it in no task."""
    ordinal: int = 0
    """Which question of its asker's it is, where the answer is kept on record."""
    identity: str = ""

    @property
    def arguments(self) -> Any:
        """What the model wants ``tool`` to be run with; a fresh copy each time."""
        return decode_value(self.arguments_json)

    @property
    def is_lasting(self) -> bool:
        """Whether it can outlive its process."""
        return self.is_held or self.ordinal > 0

    def is_too_late(self, reply: e.SessionReply) -> bool:
        """Whether a reply came when its time was over.

        What is lost with its process needs no such rule: its timer goes with it, too.
        """
        return self.is_lasting and 0 < self.expires_at <= reply.at


Prompts = tuple[OpenPrompt, ...]


class Answered(Struct, frozen=True, gc=False):
    """A question that has ended, and is on record for code that asks it again."""

    prompt_id: str
    content: str | None = None
    """The answer; None where there is none."""
    reason: str = ""
    """Why it ended without one."""
    ordinal: int = 0
    identity: str = ""

    @property
    def is_withdrawn(self) -> bool:
        """Whether its asker has given it up, cancelled for instance: the person did not end it."""
        return self.content is None and self.reason == WITHDRAWN


class WithPrompts(Protocol):
    """The thread of a run."""

    @property
    def prompts(self) -> Prompts: ...


def open_prompts_of(thread: WithPrompts) -> Prompts:
    """What a run, by its thread, waits for people to answer: the oldest first."""
    return tuple([each for each in thread.prompts if each.to == "user"])


def with_prompt(prompts: Prompts, event: e.SessionPrompt) -> Prompts:
    """The open prompts after this one."""
    expires_at = 0 if event.timeout is None else event.at + int(event.timeout * 1_000_000)
    opened = OpenPrompt(
        event.prompt_id, event.call_id, event.kind, event.question, event.options, event.to,
        event.tool, event.arguments_json, event.schema_json, event.at, expires_at, event.pauses,
        event.ordinal, event.identity,
    )  # fmt: skip
    return (*prompts, opened)


def without_prompt(prompts: Prompts, prompt_id: str) -> Prompts:
    """The open prompts except for one."""
    return tuple([each for each in prompts if each.prompt_id != prompt_id])


def find_prompt(prompts: Prompts, prompt_id: str) -> OpenPrompt | None:
    """The open prompt of that id, if there is one."""
    return next((each for each in prompts if each.prompt_id == prompt_id), None)


def for_code(prompts: Prompts, items: Iterable[InLane]) -> tuple[InLane, ...]:
    """The items that end a question which code of the run under way has asked: a tool or a hook.

    What that code was called for cannot go on before.
    """
    asked = {each.prompt_id for each in prompts if not each.is_held}
    return tuple([item for item in items if asked and _prompt_of(item) in asked])


def _prompt_of(item: InLane) -> str:
    """The prompt that an item is for; empty where it is for none."""
    if isinstance(item, e.SessionReply):
        return item.prompt_id
    return item.timer if isinstance(item, e.SessionTimer) else ""


def with_answer(
    answers: tuple[Answered, ...], prompts: Prompts, event: e.SessionPromptEnd | e.SessionReply
) -> tuple[Answered, ...]:
    """What is on record of ended questions after one of the open ``prompts`` has ended."""
    prompt = find_prompt(prompts, event.prompt_id)
    if prompt is None or not prompt.ordinal:
        return answers
    content, reason = None, ""
    if isinstance(event, e.SessionPromptEnd):
        reason = event.reason
    elif event.decision == "deny":
        reason = end_of(event)
    else:
        content = event.content
    ended = Answered(event.prompt_id, content, reason, prompt.ordinal, prompt.identity)
    return (*answers, ended)


def find_answer(answers: tuple[Answered, ...], prompt_id: str) -> Answered | None:
    """What a question came to, if it has ended."""
    return next((each for each in answers if each.prompt_id == prompt_id), None)


def ends_of(prompts: Prompts, reason: str, turn: int = 0) -> Iterator[e.SessionPromptEnd]:
    """The records of their ends."""
    for each in prompts:
        yield e.SessionPromptEnd(
            prompt_id=each.prompt_id, reason=reason, call_id=each.call_id, turn=turn
        )
