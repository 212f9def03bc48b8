"""``Thread``: a run's durable state, the fold of its own lane and of nothing else.

The transcripts hold finished exchanges only.  A step whose calls are not all answered stands
apart in ``open``, and its calls move into the transcript, results inside them, in one go: so a
tool call without its result cannot be shown to a model.

    Thread ── what the next command depends on
      ├── origin   whose child the run is, and how it began
      ├── family   the runs it has started            (agents/state/family.py)
      └── area     its files and its keys             (agents/state/area.py)
"""

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelMessage, Thinking, Usage
from hubbub.agents.rewritten import Rewritten
from hubbub.agents.state.area import NO_AREA, Area
from hubbub.agents.state.compactions import NO_COMPACTIONS, Compactions
from hubbub.agents.state.family import NO_FAMILY, Family
from hubbub.agents.state.models_in_use import FIRST, ModelsInUse
from hubbub.agents.state.prompts import Answered, OpenPrompt
from hubbub.agents.state.spending import NOTHING_SPENT, Spent
from hubbub.hub.events import (
    NO_USAGE,
    ContentPart,
    GivenTool,
    Limits,
    OutcomeName,
    PromptKind,
    SessionOpen,
)
from hubbub.hub.values import NULL, Json, decode_value

__all__ = [
    "FAILURES", "NOWHERE", "OpenCall", "OpenStep", "Origin", "Outcome", "Thread", "origin_of",
]  # fmt: skip

CallStatus: TypeAlias = Literal["todo", "started", "waiting", "done"]


class OpenCall(Struct, frozen=True, gc=False):
    """A tool call on its way to its one result.

    ``waiting``: the call's result is that of the session of ``child`` that takes ``key``, or, if
    there is no child, the answer to the prompt ``key``; of one that needs approval, the answer
    decides whether it begins.  ``ran``: its tool was called, with valid arguments.
    """

    index: int
    name: str
    arguments: str
    status: CallStatus = "todo"
    output: str = ""
    is_error: bool = False
    ran: bool = False
    notes: tuple[str, ...] = ()
    parts: tuple[ContentPart, ...] = ()
    child: str = ""
    key: str = ""
    takeover: bool = False
    """Whether the child has the conversation meanwhile."""
    expires_at: int = 0
    """When the prompt is given up (µs since the epoch); never, where it is 0."""
    asks: PromptKind = "question"
    """What the prompt asks for."""
    is_approved: bool = False
    given: str = ""
    """The arguments that it was approved with, where they are not the model's."""

    @property
    def runs_with(self) -> str:
        """The arguments that its tool is called with."""
        return self.given or self.arguments


class OpenStep(Struct, frozen=True, gc=False):
    """A model step whose calls are not all answered yet."""

    number: int
    text: str
    thinking: tuple[Thinking, ...]
    calls: tuple[OpenCall, ...]
    parallel: bool
    stopped_by: str = ""
    """``refusal`` or ``length``, where the model stopped for another reason than being done."""

    @property
    def is_refused(self) -> bool:
        """Whether it said what it said for that reason."""
        return self.stopped_by != ""

    @property
    def waits(self) -> bool:
        """Whether nothing is left to do here but to wait for children, or for people."""
        waits = False
        for call in self.calls:
            if call.status == "started":
                return False
            waits = waits or call.status == "waiting"
        return waits

    @property
    def frame(self) -> OpenCall | None:
        """The call whose child has the conversation, if one has: the first that waits for one."""
        for call in self.calls:
            if call.status == "waiting" and call.takeover:
                return call
        return None

    @property
    def frames(self) -> tuple[str, ...]:
        """The children that have the conversation, or have it next: calls of one step may begin
        several frames, which lie beside each other."""
        return tuple([x.child for x in self.calls if x.status == "waiting" and x.takeover])

    @property
    def pause(self) -> OpenCall | None:
        """The call of ``interrupt`` that waits for the user's answer, if one does."""
        for call in self.calls:
            if call.status == "waiting" and not call.child and call.asks == "question":
                return call
        return None

    def as_message(self) -> AssistantMessage:
        """The step as the model will see it; call ids are unique within the run."""
        calls = []
        for call in self.calls:
            calls += [
                AnsweredCall(
                    id=f"call_{self.number}_{call.index}",
                    name=call.name,
                    arguments=call.arguments,
                    output=call.output,
                    is_error=call.is_error,
                    notes=call.notes,
                    parts=call.parts,
                )
            ]
        return AssistantMessage(text=self.text, thinking=self.thinking, calls=tuple(calls))


FAILURES: Final = frozenset(("failed", "timed_out", "limit"))
"""Outcomes that nobody has asked for."""


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """How the latest session, or the run, ended."""

    session: int
    success: bool
    outcome: OutcomeName
    reason: str
    output_json: Json = NULL
    usage: Usage = NO_USAGE

    @property
    def output(self) -> Any:
        """What it came to; a fresh copy each time."""
        return decode_value(self.output_json)


class Origin(Struct, frozen=True, gc=False):
    """How the run began, and whose child it is."""

    run_id: str = ""
    root_run_id: str = ""
    parent_run_id: str | None = None
    depth: int = 0
    receives: str = "side_a"
    """The side that messages are for."""
    reports: bool = False
    """Whether each session's result goes to the parent's inbox."""
    name: str = ""
    frame: int = 0
    """The place of a takeover frame in its stack, 2 for the one above the main agent; else 0."""
    is_conversation: bool = False
    """Whether it is a root that a person talks with, as far as its opening says."""


NOWHERE = Origin()


def origin_of(opening: SessionOpen) -> Origin:
    """How the run that this opens began."""
    return Origin(
        opening.run_id, opening.root_run_id, opening.parent_run_id, opening.depth,
        opening.receives, opening.reports, opening.name, opening.frame,
        opening.parent_run_id is None and not opening.once
        and (opening.descriptor_json is NULL or _is_of_user(opening.descriptor)),
    )  # fmt: skip


def _is_of_user(descriptor: Any) -> bool:
    return descriptor is None or descriptor.get("type") == "user"


class Thread(Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything about a model run that its next command depends on."""

    agent: str = ""
    phase: Literal["new", "live", "ended"] = "new"
    two_sided: bool = False
    once: bool = False
    closing: bool = False
    session: int = 0
    in_session: bool = False
    side: str = "side_a"
    acts_as: str = "side_a"
    """The side at work as definitions know it: ``frame`` for side A of a takeover frame."""
    turn: int = 0
    session_turns: int = 0
    step: int = 0
    turn_steps: int = 0
    attempt: int = 1
    delay: float = 0.0
    models: ModelsInUse = FIRST
    """Which of its models are asked."""
    transcript: tuple[ModelMessage, ...] = ()
    """As side A sees it."""
    transcript_b: tuple[ModelMessage, ...] = ()
    """As side B sees it, in a two-sided agent."""
    draft_text: str = ""
    draft_thinking: tuple[Thinking, ...] = ()
    open: OpenStep | None = None
    closed: OpenStep | None = None
    """The last step, with its results; what it stops is asked of it (agents/turn/stop.py)."""
    has_spoken: bool = False
    """Whether the side at work has said something in this turn."""
    unseen: tuple[str, ...] = ()
    """Sides that got a child's result and have neither taken a step nor failed to since."""
    answering: tuple[str, ...] = ()
    """The parent's messages that this session has taken, by key."""
    last_text: str = ""
    status: str = "idle"
    """What the parent's registry says of this run."""
    usage: Usage = NO_USAGE
    total_usage: Usage = NO_USAGE
    spent: Spent = NOTHING_SPENT
    """What all its model calls have used."""
    spent_before: Spent = NOTHING_SPENT
    """The same as this turn began."""
    outcome: Outcome | None = None
    terminated: int | None = None
    parked: bool = False
    restarts: int = 0
    origin: Origin = NOWHERE
    family: Family = NO_FAMILY
    area: Area = NO_AREA
    tools: tuple[GivenTool, ...] = ()
    """Those that it was opened with."""
    rewritten: Rewritten | None = None
    """Of a fork: what is other than its agent's definition says."""
    prompts: tuple[OpenPrompt, ...] = ()
    """What its calls, tools and hooks have asked and nobody has answered yet."""
    has_parts: bool = False
    """Whether anything that its models see has parts."""
    seen: Usage = NO_USAGE
    """What side A's last step has used, if nothing has taken the place of what it was shown."""
    seen_b: Usage = NO_USAGE
    """The same of side B's."""
    compactions: Compactions = NO_COMPACTIONS
    misfits: tuple[int, int] = (0, 0)
    """The turn whose answers were not of the form they are to be, and how many of them."""
    limits: Limits | None = None
    """What the run and all below it may use, if that is on record."""
    answers: tuple[Answered, ...] = ()
    """What the questions of tools at work came to, which they may ask again after a crash."""
    based: tuple[int, int] = (0, 0)
    """The turn of the last base, and how much is said until a further one is worth it."""

    @property
    def view(self) -> tuple[ModelMessage, ...]:
        """The conversation as the side at work sees it."""
        return self.transcript if self.side == "side_a" else self.transcript_b

    @property
    def frame(self) -> OpenCall | None:
        """The call whose child has the conversation, if one has."""
        return self.open.frame if self.open is not None else None

    @property
    def frames(self) -> tuple[str, ...]:
        """The frames that its calls wait for, the one that has the conversation first."""
        return self.open.frames if self.open is not None else ()

    @property
    def pause(self) -> OpenCall | None:
        """The call of ``interrupt`` that waits for the user's answer, if one does."""
        return self.open.pause if self.open is not None else None

    @property
    def asks_user(self) -> bool:
        """Whether the run itself waits for a person, such that the next words are the answer."""
        for prompt in self.prompts:  # noqa: SIM110
            if prompt.is_lasting:
                return True
        return False

    @property
    def converses(self) -> bool:
        """Whether a person talks with the run: it is a conversation's root, or one of its frames;
        not one that was started for a single session."""
        origin = self.origin
        return not (self.once or self.two_sided) and (origin.is_conversation or origin.frame > 0)

    @property
    def has_one_session(self) -> bool:
        """Whether its first session is its last, whatever waits: that of two sides is the run, and
        a parent that gets the result of each session would get it twice."""
        return self.once and (self.two_sided or (self.origin.reports and not self.origin.frame))

    @property
    def waits(self) -> bool:
        """Whether a child must finish before anything else can be done."""
        if not self.in_session:
            return False
        return self.open.waits if self.open is not None else self.family.only_waits

    @property
    def is_at_work(self) -> bool:
        """Whether the run is in the middle of something of its own."""
        return self.phase == "live" and not self.parked and not self.waits


EMPTY = Thread()
