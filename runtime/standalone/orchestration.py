"""``handle_message``: IA's orchestration loop, one message of a user at a time.

    no frame    ─► the main agent's turn ─► text: sent │ a child: both frames on the stack, loop
    some frame  ─► the message is for the frame on top, loop

    a turn of the frame on top came to    then
    ────────────────────────────────────  ─────────────────────────────────────────────────────────
    SEND_TEXT                             sent; the main agent's answer empties the stack; return
    INTERRUPT                             the question is sent; return
    COMPLETE                              popped; its result goes to the caller's call; go on there
    MAX_ITERATIONS, ERROR                 the same, as an error
    CHILD_ACTIVATED                       pushed; go on with its first turn
    … and nobody is below                 its text is sent, the stack is cleared; return

Rules
-----
* Every round either returns, to wait for the user, or goes on one frame up or down: no recursion.
* ``cancel``, ``stop``, ``/stop`` unwind all frames, ``/back`` pops one: where a frame is.
* Who clears the stack meanwhile ends the loop: a warning is logged, and nothing is sent.
* An exception leaves no half stack: the frames are cancelled, every open call of the main agent has
  its error result, the stack is empty; then it is raised.
"""

from collections.abc import Mapping
from typing import Any, Final

from hubbub.agents.frames.activation import MAIN
from hubbub.agents.frames.frame import (
    AgentContext,
    SessionState,
    StackFrame,
    TurnAction,
    TurnResult,
)
from hubbub.agents.standalone.stack import AgentStack, AgentStackManager
from hubbub.agents.state.commands import CANCELLED, command_of
from hubbub.hub.events import SessionMessage
from hubbub.hub.logs import log
from hubbub.runtime.standalone.executor import AgentExecutor
from hubbub.runtime.standalone.turn import Say

__all__ = ["handle_message"]

_GONE: Final = "the stack was cleared"
_FAILED: Final = "the conversation was cut off by an error"


async def handle_message(
    executor: AgentExecutor,
    manager: AgentStackManager,
    session_key: str,
    text: str,
    send: Say,
    *,
    session: SessionState | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Handle what a user says in a conversation, until it is the user's turn again.

    ``session`` is the main agent's conversation: hand over the same one each time.  ``send`` gets
    every text for the user, in order; empty ones are not sent.  One message of a conversation is
    handled at a time: wait for one before the next.  Raises what ``send`` raises.
    """
    loop = _Loop(executor, manager, session_key, send)
    try:
        if manager.has_active(session_key):
            await loop.go_on(text)
        else:
            context = AgentContext(session_key, metadata=metadata or {})
            await loop.begin(text, session, context)
    except BaseException:
        loop.unwind(_FAILED)
        if session is not None and session.thread.in_session:
            executor.cancel(executor.main_frame(session), _FAILED)
        raise


class _Loop:
    """One message, and everything that follows from it."""

    def __init__(
        self, executor: AgentExecutor, manager: AgentStackManager, session_key: str, send: Say
    ) -> None:
        self._executor = executor
        self._manager = manager
        self._key = session_key
        self._send_text = send

    @property
    def _stack(self) -> AgentStack:
        return self._manager.get_or_create(self._key)

    async def begin(self, text: str, session: SessionState | None, context: AgentContext) -> None:
        """The main agent's turn, and those of the frames that it has begun."""
        executor = self._executor
        if session is not None and session.thread.frame is not None:
            executor.cancel(executor.main_frame(session), _GONE)
        response = await executor.process_message(text, session, context=context, send=self._say)
        if response.main_frame is None:
            await self._say(response.text)
            self._manager.clear(self._key)
            return
        self._push(response.main_frame)
        if response.child_frame is None:
            await self._say(response.text)
            return
        self._push(response.child_frame)
        await self._run()

    async def go_on(self, text: str) -> None:
        """The turn of the frame on top, and what follows from it."""
        if self._stack.depth > 1 and command_of(SessionMessage(content=text)) == "stop":
            self.unwind(CANCELLED)
            return
        await self._run(text)

    async def _run(self, text: str | None = None) -> None:
        given: tuple[str, str, bool] | None = None
        while True:
            top = self._stack.top
            if top is None:
                log.warning("stack.empty", session_key=self._key)
                return
            result = await self._executor.execute_turn(top, text, given, send=self._say)
            text = given = None
            if self._stack.top is not top:  # Cleared meanwhile, say by a tool.
                log.warning("stack.changed", session_key=self._key, agent=top.agent_name)
                return
            match result.action:
                case TurnAction.CHILD_ACTIVATED:
                    assert result.child_frame is not None
                    self._push(result.child_frame)
                case TurnAction.SEND_TEXT | TurnAction.INTERRUPT:
                    await self._say(result.text)
                    if result.action is TurnAction.SEND_TEXT and top.agent_type == MAIN:
                        self._clear()
                    return
                case TurnAction.COMPLETE | TurnAction.MAX_ITERATIONS | TurnAction.ERROR:
                    given = self._pop(result)
                    if given is None:
                        await self._say(result.text)
                        self._clear()
                        return

    def _push(self, frame: StackFrame) -> None:
        self._stack.push(frame)
        log.info("stack.pushed", **self._about(frame))

    def _pop(self, result: TurnResult) -> tuple[str, str, bool] | None:
        """Take the frame on top away; its result for the caller, if there is one below."""
        frame = self._stack.pop()
        log.info("stack.popped", action=result.action.name, **self._about(frame))
        if self._stack.is_empty:
            return None
        assert frame.parent_tool_use_id is not None, f"{frame.agent_name} has no caller's call"
        is_error = result.action is not TurnAction.COMPLETE
        return frame.parent_tool_use_id, result.text, is_error

    def _about(self, frame: StackFrame) -> dict[str, Any]:
        return {
            "session_key": self._key, "agent": frame.agent_name, "depth": self._stack.depth,
            "frame_id": frame.frame_id,
        }  # fmt: skip

    def _clear(self) -> None:
        self._manager.clear(self._key)

    def unwind(self, reason: str) -> None:
        """End every frame, the one on top first; the main agent can be spoken to afterwards."""
        while (frame := self._stack.top) is not None:
            self._executor.cancel(frame, reason)
            self._stack.pop()
        self._clear()

    async def _say(self, text: str) -> None:
        if text.strip():
            await self._send_text(text)
