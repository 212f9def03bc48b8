"""``StackFrame``: an agent in the middle of a conversation, as a plain value (IA).

    StackFrame ─► SessionState ─► Thread, the core's own state
    a turn     ─► TurnResult: TurnAction, text, child_frame

For programs that drive a stack by hand (``hubbub.runtime.standalone.executor``), and for tools
that give the conversation away.  The runtime keeps no stack: there a frame is a run, and who is on
top follows from the open calls (agents/turn/takeover.py).

Rules
-----
* A session's state is changed by folding events, as a run's is.  What is shown of it are finished
  exchanges; calls without a result are kept apart (``unresolved_tool_uses``).
* Calls go by the ids that the model sees, ``call_1_0`` being the first of step 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import msgspec
from msgspec import structs

from hubbub.agents.model import ModelMessage, ModelReply, parse_arguments
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, OpenCall, Thread
from hubbub.agents.turn.calls import answer, given_up, popped
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.values import NULL

__all__ = [
    "AgentContext",
    "SessionState",
    "StackFrame",
    "ToolUse",
    "TurnAction",
    "TurnExecutor",
    "TurnResult",
    "tool_use_id",
]


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ToolUse:
    """A call of a model that has no result yet."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass
class SessionState:
    """The conversation of one frame.  Nothing of it is kept anywhere else.

    ``children`` are the frames that calls of it wait for, by frame id; ``ancestors`` the ids and
    agents of the frames below, the caller first.  Both are the executor's to keep.
    """

    thread: Thread = EMPTY
    children: dict[str, "StackFrame"] = field(default_factory=dict, repr=False, compare=False)
    ancestors: tuple[tuple[str, str], ...] = ()

    @property
    def messages(self) -> list[ModelMessage]:
        """The finished exchanges, as the model sees them; a new list each time."""
        return list(self.thread.view)

    @property
    def unresolved_tool_uses(self) -> list[ToolUse]:
        """The calls of the model's last step that have no result yet, in order."""
        step = self.thread.open
        if step is None:
            return []
        return [
            ToolUse(tool_use_id(step.number, call.index), call.name, _input(call))
            for call in step.calls
            if call.status != "done"
        ]

    def add_user_message(self, content: str) -> None:
        """Say something to the model; it is seen at the next step."""
        if not isinstance(content, str):
            raise BadValue("content", f"expected a text, not {type(content).__name__}")
        self._begin_turn()
        self.fold(e.SessionTaken(items=(e.SessionMessage(content=content),)))

    def add_assistant_message(self, content: str | ModelReply) -> None:
        """Add what the model has said; its calls are unresolved until each has its result."""
        reply = ModelReply(text=content) if isinstance(content, str) else content
        self._begin_turn()
        step, turn = self.thread.step + 1, self.thread.turn
        events: list[Event] = [
            e.AgentThinking(
                step=step, block=block, text=each.text, signature=each.signature,
                redacted=each.redacted, turn=turn,
            )
            for block, each in enumerate(reply.thinking)
        ]  # fmt: skip
        if reply.text.strip():
            events.append(e.AgentText(step=step, text=reply.text, turn=turn))
        events.append(
            e.AgentStep(
                step=step, calls=reply.calls, usage=reply.usage, stop_reason=reply.stop_reason,
                model=reply.model, turn=turn, choice=self.thread.models.of(self.thread.side),
            )
        )  # fmt: skip
        if not reply.calls:  # Its turn is over: what the user says next begins another one.
            events.append(e.SessionEnd(session=self.thread.session, turn=turn))
        self.fold(*events)

    def add_tool_result(self, tool_use_id: str, content: str, is_error: bool = False) -> None:
        """Give a call its one result.  Raises ``BadValue`` where no open call has that id."""
        call = self._find(tool_use_id)
        step = self.thread.open
        assert step is not None
        before: list[Event] = []
        if call.status == "waiting" and call.child:
            result = e.SessionResult(
                child_run_id=call.child, success=not is_error, content=content, final=True,
                outcome="failed" if is_error else "completed",
            )  # fmt: skip
            before.append(e.SessionTaken(items=(result,)))
            if call.takeover:
                before.append(popped(self.thread, step, call, is_error=is_error))
            self.children.pop(call.child, None)
        else:
            before += given_up(self.thread, step, call, "answered")
        given = answer(self.thread, step, call, content, is_error=is_error, ran=True)
        self.fold(*before, given)

    def begin(self, opening: e.SessionOpen) -> None:
        """Make it the conversation of the run that ``opening`` starts; no-op if it is one's.

        What has been said in it stays; the opening's own input is not said.
        """
        if self.thread.phase != "new":
            return
        opening = structs.replace(opening, input_json=NULL)
        start = e.AgentStart(agent=opening.open_agent, name=opening.name, once=opening.once)
        self.fold(start, e.SessionTaken(items=(opening,)))

    def fold(self, *events: Event) -> None:
        """Change the state by events, as a run's journal would."""
        self.thread = fold_all(self.thread, events)

    def _begin_turn(self) -> None:
        if not self.thread.in_session:
            self.fold(e.SessionStart(session=self.thread.session + 1))

    def _find(self, wanted: str) -> OpenCall:
        step = self.thread.open
        for call in step.calls if step is not None else ():
            assert step is not None
            names = (tool_use_id(step.number, call.index), f"{step.number}.{call.index}")
            if call.status != "done" and wanted in names:
                return call
        known = ", ".join(each.id for each in self.unresolved_tool_uses) or "none"
        raise BadValue("tool_use_id", f"no open call has the id {wanted!r}; open: {known}")


def tool_use_id(step: int, index: int) -> str:
    """The id of a call as its model sees it."""
    return f"call_{step}_{index}"


def _input(call: OpenCall) -> dict[str, Any]:
    try:
        return parse_arguments(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


# ── frames ───────────────────────────────────────────────────────────────────────────────────


@dataclass
class AgentContext:
    """Where a frame, or the call of a tool, belongs.

    * ``session_key`` names the conversation; ``metadata`` is its channel's own.
    * ``agent_name`` is who calls, ``tool_use_id`` the call, where there is one.
    * ``is_headless``: nobody listens, so that a frame's first text is its result.
    """

    session_key: str = ""
    agent_name: str = ""
    tool_use_id: str | None = None
    is_headless: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class StackFrame:
    """Everything needed to pause an agent and to resume it (IA).

    * ``agent_type`` is ``main``, ``skill`` or ``agent``; ``system_prompt`` and ``model`` show what
      it was begun with: both are derived again at each step.
    * ``environment`` are values of variables of its own; they show in no ``repr``.
    * ``iteration`` counts the model calls since the frame was begun or the user's last message,
      which is what ``max_iterations`` bounds; its definition may set a lower bound.
    * ``effective_tools`` are the names that its model is offered, shown only.
    * ``parent_tool_use_id`` is the caller's call that gets the result.
    * ``executor`` is who executes its turns, where the frame was made by one.
    """

    frame_id: str
    agent_name: str
    agent_type: str
    session: SessionState
    system_prompt: str
    context: AgentContext
    model: str | None = None
    environment: dict[str, str] | None = field(default=None, repr=False)
    iteration: int = 0
    max_iterations: int = 25
    effective_tools: list[str] = field(default_factory=list)
    is_skill_agent: bool = False
    voice: str | None = None
    parent_tool_use_id: str | None = None
    agent_session_id: str | None = None

    @property
    def executor(self) -> "TurnExecutor | None":
        """The executor that runs the frame, where there is one."""
        return self.__dict__.get("_executor")

    @executor.setter
    def executor(self, executor: "TurnExecutor | None") -> None:
        self.__dict__["_executor"] = executor


class TurnExecutor(Protocol):
    """Who executes the turns of a frame."""

    async def execute_turn(
        self,
        frame: StackFrame,
        user_message: str | None = None,
        tool_result: tuple[str, str, bool] | None = None,
    ) -> "TurnResult":
        """Run a frame until it says something to the user, ends, or waits."""
        ...


# ── turns ────────────────────────────────────────────────────────────────────────────────────


class TurnAction(Enum):
    """What a turn of a frame has come to."""

    SEND_TEXT = auto()
    """It has said something to the user, and waits for an answer."""
    COMPLETE = auto()
    """It has called ``complete``: the frame is over."""
    CHILD_ACTIVATED = auto()
    """One of its calls waits for another frame."""
    INTERRUPT = auto()
    """It asks the user, and continues with the answer as the result of that call."""
    MAX_ITERATIONS = auto()
    """It has made as many model calls as it may."""
    ERROR = auto()
    """It cannot continue."""


@dataclass
class TurnResult:
    """What a turn has come to.

    ``text`` is what was said, the result, the question, or what to tell the caller of the
    failure; ``child_frame`` continues the stack (``CHILD_ACTIVATED``).
    """

    action: TurnAction
    text: str = ""
    child_frame: StackFrame | None = None
