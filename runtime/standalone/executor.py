"""``AgentExecutor``: agents driven turn by turn, without a runtime.

    frame ── execute_turn(user_message | tool_result) ──► TurnResult
    text  ── process_message ──► AgentResponse           the main agent's turn

The same core as a runtime's decides what a turn is: stop rules, limits, refusals, ``complete``,
``interrupt``.  What is missing is everything a hub and a journal give: events, other runs,
durability.  A stack of frames lives in memory and is lost with the process (IA's v1).
"""

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import env_problems
from hubbub.agents.frames.activation import ChildActivated, make_frame
from hubbub.agents.frames.frame import (
    AgentContext,
    SessionState,
    StackFrame,
    TurnAction,
    TurnResult,
)
from hubbub.agents.model import Model
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.standalone.stack import AgentResponse
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import Taken
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, CallerError, DefinitionError
from hubbub.hub.near_misses import kind_of
from hubbub.hub.ports import Ports
from hubbub.runtime.kernel.budgets import TreeBudgets
from hubbub.runtime.kernel.catalog import Catalog
from hubbub.runtime.kernel.phase import Phase
from hubbub.runtime.kernel.services import NoToolServers, Services
from hubbub.runtime.kernel.timers import Timers
from hubbub.runtime.spending.accounts import TreeAccounts
from hubbub.runtime.standalone.no_hub import NoHub
from hubbub.runtime.standalone.turn import FrameTurn, Say, forget_ended

__all__ = ["AgentExecutor", "execute_turn"]

_NO_SERVERS: Final = "a server is connected to by a Runtime only"

_HERE: Final = AgentContext()


class AgentExecutor:
    """Executes turns of frames.  ``async with`` closes the models that it has made.

    * The definitions are those of ``Runtime``, but that there are no hooks, and that a call of a
      subagent is answered with an error: that takes runs of its own.
    * ``main`` is who has a conversation without frames; the first of ``agents`` if not given.
    * ``env``, ``models``, ``environ`` and ``ports`` are as in ``Runtime``.

    A frame has one turn at a time; turns of different frames may run side by side.

    Raises ``DefinitionError`` for definitions that do not fit together.
    """

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any]] = (),
        *,
        skills: Iterable[Skill] = (),
        models: Mapping[str, Model] | None = None,
        env: Mapping[str, str] | None = None,
        ports: Ports | None = None,
        main: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        agents = tuple(agents)
        definitions = Definitions(agents, prompts, tools, (), skills)
        problems = list(env_problems("env", env or {}))
        problems += (f"mcp {name!r}: {_NO_SERVERS}" for name in definitions.servers)
        if problems:
            raise DefinitionError("executor", problems)
        if not agents:
            raise DefinitionError("executor", ["agents: give at least one"])
        self.definitions = definitions
        hub = NoHub(ports=ports)
        self.ports = hub.ports
        self.main = definitions.side(main or agents[0].name).agent
        """The agent of conversations without frames."""
        catalog = Catalog(models or {}, os.environ if environ is None else environ)
        budgets = TreeBudgets(max_depth=16, max_live=1_000, max_spawns=10_000)
        self._services = Services(
            hub,
            definitions,
            catalog,
            dict(env or {}),
            budgets,
            TreeAccounts(definitions, {}, None),
            Timers(self.ports.clock),
            Phase(hub.tasks.home),
            NoToolServers(definitions),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._services.catalog.aclose()

    # ── turns ────────────────────────────────────────────────────────────────────────────────

    async def execute_turn(
        self,
        frame: StackFrame,
        user_message: str | None = None,
        tool_result: tuple[str, str, bool] | None = None,
        *,
        send: Say | None = None,
    ) -> TurnResult:
        """Run a frame until it says something to the user, ends, or waits (IA).

        ``tool_result`` is id, text and whether it is an error; each further call of that step is
        then executed, once and in order, before the model is asked again.  ``send`` gets what is
        said beside calls, at once; without it only the last text of a turn is returned.

        A failure of a model or a tool is a result.  Raises ``CallerError`` where the frame
        waits for another one, or no call has that id; ``UnknownAgent``.  Cancelled, or left by an
        exception of ``send``, the frame is as it was after its last finished activity.
        """
        _check_frame(frame)
        result = await FrameTurn(self._services, frame, send).run(user_message, tool_result)
        if result.child_frame is not None:
            result.child_frame.executor = self
        return result

    async def process_message(
        self,
        text: str,
        session: SessionState | None = None,
        *,
        context: AgentContext = _HERE,
        send: Say | None = None,
    ) -> AgentResponse:
        """Run the main agent's turn (IA).

        ``session`` is its conversation so far, which this continues: keep it from message to
        message.  Where a call has begun a frame, both frames are returned, for the stack.
        """
        frame = self.main_frame(session, context)
        result = await self.execute_turn(frame, text, send=send)
        if result.action is TurnAction.CHILD_ACTIVATED:
            return AgentResponse(
                result.text, child_activated=True, main_frame=frame, child_frame=result.child_frame
            )
        is_paused = result.action is TurnAction.INTERRUPT
        return AgentResponse(result.text, main_frame=frame if is_paused else None)

    def main_frame(
        self, session: SessionState | None = None, context: AgentContext = _HERE
    ) -> StackFrame:
        """The main agent as the frame at the bottom of a stack."""
        session = session or SessionState()
        side = self.definitions.side(session.thread.agent or self.main)
        frame_id = session.thread.origin.run_id or self._new_id()
        frame = make_frame(side, frame_id, context)
        frame.executor = self
        frame.session = session
        frame.iteration = session.thread.turn_steps
        return frame

    def cancel(self, frame: StackFrame, reason: str) -> None:
        """End what a frame is at: each of its open calls gets ``reason`` as its error result.

        The main agent can be spoken to afterwards; any other frame is over.
        """
        thread = frame.session.thread
        if thread.phase != "live":
            return
        is_main = not thread.origin.frame
        item = e.SessionAbort(reason=reason) if is_main else e.SessionCancel(reason=reason)
        decision = interpret(thread, Taken((item,)), self.definitions)
        frame.session.fold(*decision.events)
        frame.session.children.clear()
        if is_main:
            self._services.budgets.forget(thread.origin.root_run_id)
        else:
            forget_ended(frame.session.thread, self._services)

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    async def call(
        self, name: str, arguments: str, context: AgentContext = _HERE
    ) -> tuple[str, bool]:
        """Carry out one call for ``context.agent_name``, as if its model had made it.

        Returns the result and whether it is an error; raises ``ChildActivated`` where the call
        begins a frame.
        """
        agent = context.agent_name or self.main
        side = self.definitions.side(agent)
        frame = make_frame(side, self._new_id(), context)
        if agent != self.main:
            frame.agent_type = "skill" if side.is_skill else "agent"
        await FrameTurn(self._services, frame, None).call(name, arguments)
        thread, session = frame.session.thread, frame.session
        if thread.frame is not None:
            child = session.children[thread.frame.child]
            child.parent_tool_use_id = context.tool_use_id
            child.executor = self
            raise ChildActivated(child)
        assert thread.closed is not None
        done = thread.closed.calls[0]
        return done.output, done.is_error

    def _new_id(self) -> str:
        return self.ports.ids.run_id(self.ports.clock.now())


async def execute_turn(
    frame: StackFrame,
    user_message: str | None = None,
    tool_result: tuple[str, str, bool] | None = None,
    *,
    executor: AgentExecutor | None = None,
) -> TurnResult:
    """``executor.execute_turn``: run one turn of a frame (IA).

    Without ``executor`` it is the frame's own, of which every frame knows that an executor has
    returned.  Raises ``CallerError`` for one made by hand.
    """
    _check_frame(frame)
    if executor is not None and not hasattr(executor, "execute_turn"):
        raise BadValue("executor", f"expected an AgentExecutor, not {kind_of(executor)}")
    who = executor or frame.executor
    if who is None:
        raise CallerError(
            f"execute_turn: the frame {frame.frame_id!r} was made by hand; give executor=, or set "
            "its executor"
        )
    return await who.execute_turn(frame, user_message, tool_result)


def _check_frame(frame: object) -> None:
    """Raise ``BadValue`` for what is no frame."""
    if not isinstance(frame, StackFrame):
        raise BadValue("frame", f"expected a StackFrame, not {kind_of(frame)}")
