"""``Thread``: a run's durable state, the fold of its own lane and of nothing else.

The transcript holds finished exchanges only.  A step whose calls are not all answered stands
apart in ``open``, and its calls move into the transcript, results inside them, in one go: so a
tool call without its result cannot be shown to a model (S-07).
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelMessage, Thinking, Usage
from hubbub.hub.events import NO_USAGE, OutcomeName
from hubbub.hub.values import Json

__all__ = ["OpenCall", "OpenStep", "Outcome", "Thread"]

CallStatus: TypeAlias = Literal["todo", "started", "done"]


class OpenCall(Struct, frozen=True, gc=False):
    """A tool call on its way to its one result."""

    index: int
    name: str
    arguments: str
    status: CallStatus = "todo"
    output: str = ""
    is_error: bool = False


class OpenStep(Struct, frozen=True, gc=False):
    """A model step whose calls are not all answered yet."""

    number: int
    text: str
    thinking: tuple[Thinking, ...]
    calls: tuple[OpenCall, ...]
    parallel: bool

    @property
    def is_answered(self) -> bool:
        return all(call.status == "done" for call in self.calls)

    def as_message(self) -> AssistantMessage:
        """The step as the model will see it; call ids are unique within the run."""
        return AssistantMessage(
            text=self.text,
            thinking=self.thinking,
            calls=tuple(
                AnsweredCall(
                    id=f"call_{self.number}_{call.index}",
                    name=call.name,
                    arguments=call.arguments,
                    output=call.output,
                    is_error=call.is_error,
                )
                for call in self.calls
            ),
        )


class Outcome(Struct, frozen=True, gc=False):
    """How the latest session, or the run, ended."""

    session: int
    success: bool
    outcome: OutcomeName
    reason: str
    output_json: Json
    usage: Usage


class Thread(Struct, frozen=True, gc=False):
    """Everything about a model run that its next command depends on."""

    agent: str = ""
    phase: Literal["new", "live", "ended"] = "new"
    once: bool = False
    closing: bool = False
    deadline: int | None = None
    session: int = 0
    in_session: bool = False
    turn: int = 0
    step: int = 0
    turn_steps: int = 0
    attempt: int = 1
    delay: float = 0.0
    transcript: tuple[ModelMessage, ...] = ()
    draft_text: str = ""
    draft_thinking: tuple[Thinking, ...] = ()
    open: OpenStep | None = None
    last_text: str = ""
    usage: Usage = NO_USAGE
    total_usage: Usage = NO_USAGE
    outcome: Outcome | None = None
    parked: bool = False
    restarts: int = 0


EMPTY = Thread()
