"""``FrameTurn``: one turn of a frame, in memory, by the core that runs are driven by.

Driven by ``TurnLoop``, without a hub and a journal: nothing is kept but the frame's session,
nothing is said but the turn's result.  What a model, a tool or a lookup needs of a runtime,
``Services`` has; there are no other runs and there is no hub, which is said when they are asked
for.
"""

import dataclasses
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

from msgspec import structs

from hubbub.agents.definitions.tools import Tool
from hubbub.agents.frames.activation import MAIN, activated_in, make_frame
from hubbub.agents.frames.frame import StackFrame, TurnResult, tool_use_id
from hubbub.agents.model import ModelReply, ToolCall
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME, ActiveSide
from hubbub.agents.standalone.turns import turn_result, with_limit
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.decide import (
    Activity,
    Command,
    Kind,
    Lend,
    RunTool,
    decide,
)
from hubbub.agents.turn.signals import Decision, Delegated, ModelReplied, Signal, Taken
from hubbub.agents.turn.steps import go_on
from hubbub.hub import events as e
from hubbub.hub.delivery.pending_prompt import APPROVE
from hubbub.hub.errors import CallerError, UnknownAgent
from hubbub.hub.events import Event, InLane
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.run_hub import Closable
from hubbub.hub.values import NULL, encode_value
from hubbub.runtime.activities.at_work import AtWork
from hubbub.runtime.activities.recorder import Recorder
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.kernel.mailbox import ANSWER, KINDS, Mailbox
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.runs.turn_loop import TurnLoop
from hubbub.runtime.standalone.no_hub import ALONE, NO_OTHER_RUNS, FrameHub, refuse

__all__ = ["FrameTurn", "Say", "forget_ended"]

Say: TypeAlias = Callable[[str], Awaitable[object]]
"""Where it goes what a frame says beside its calls."""

_NOTHING: Final[frozenset[Kind]] = frozenset()
_OF_A_PROGRAM: Final = encode_value("descriptor", {"type": "subagent"})


class FrameTurn:
    """One turn of one frame; made again for each."""

    def __init__(self, services: Services, frame: StackFrame, say: Say | None) -> None:
        self._services = services
        self._frame = frame
        self._session = frame.session
        self._say = say
        self._mail = Mailbox()
        self._said: list[str] = []
        """What was said and has not been sent."""
        self._raised: dict[str, StackFrame] = {}
        """The frames that tools have raised, by call."""
        self._limited: dict[tuple[str, str], Definitions] = {}
        self.is_live = True
        self._loop = TurnLoop(self, is_lent=True)
        self.hook_events: deque[tuple[str, Any]] = deque()
        self._begin()
        for name, value in (frame.environment or {}).items():
            services.hub.addressing.put_value(frame.frame_id, name, value)
        origin = self.thread.origin
        self.lane = OwnLane(
            services.hub.pipeline,
            run_id=origin.run_id,
            root_run_id=origin.root_run_id,
            parent_run_id=origin.parent_run_id,
            agent=self.thread.agent,
            ancestors=self._session.ancestors,
        )

    def _begin(self) -> None:
        """A frame that was made by hand begins with its first turn."""
        frame = self._frame
        is_main, is_headless = frame.agent_type == MAIN, frame.context.is_headless
        opening = e.SessionOpen(
            run_id=frame.frame_id, root_run_id=frame.frame_id, open_agent=frame.agent_name,
            frame=0 if is_main else 2, parent_run_id=None if is_main else frame.frame_id,
            once=is_headless and not is_main,
            descriptor_json=_OF_A_PROGRAM if is_headless else NULL,
        )  # fmt: skip
        self._session.begin(opening)
        if self.side is None:
            raise UnknownAgent(self.thread.agent, self._services.definitions.names)

    # ── what it is at ────────────────────────────────────────────────────────────────────────

    @property
    def thread(self) -> Thread:
        return self._session.thread

    @property
    def side(self) -> ActiveSide | None:
        return self.definitions.find_side(self.thread.agent, self.thread.acts_as)

    @property
    def definitions(self) -> Definitions:
        """Those of the executor, but that the side at work is bounded by its frame."""
        thread = self.thread
        at = (thread.agent, thread.acts_as)
        found = self._limited.get(at)
        if found is None:
            found = self._limited[at] = with_limit(self._services.definitions, thread, self._frame)
        return found

    def waiting_items(self, kind: Kind) -> tuple[InLane, ...]:
        return self._mail.waiting(kind)

    def receiving_side(self, side: ActiveSide) -> ActiveSide:
        return side

    def listed_side(self) -> ActiveSide | None:
        return self.side

    def record(self, event: Event, done: Callable[[], None] | None) -> None:
        """Fold an event of a tool's."""
        self._session.fold(structs.replace(event, at=self._services.hub.ports.clock.now()))
        if done is not None:
            done()

    def write(self, event: Event, done: Callable[[], None] | None) -> None:
        """What a tool emits: its words and its status; nothing else is listened to."""
        if isinstance(event, e.AgentText):
            self._said.append(event.text)
        elif isinstance(event, e.AgentStatus):
            self.record(event, None)

    def open_prompt(self, event: e.SessionPrompt) -> NoReturn:
        refuse("hub")

    def end_prompt(self, event: e.SessionPromptEnd) -> NoReturn:
        refuse("hub")

    def read_inbox(self, *, for_handler: bool) -> NoReturn:
        refuse("inbox")

    def host(self, work: Coroutine[Any, Any, None], name: str = "") -> NoReturn:
        refuse("hub")

    def keep(self, subscription: Closable) -> NoReturn:
        refuse("hub")

    # ── the turn ─────────────────────────────────────────────────────────────────────────────

    async def run(
        self, user_message: str | None, tool_result: tuple[str, str, bool] | None
    ) -> TurnResult:
        """Do what is due until there is nothing to do but to wait; IA's ``execute_turn``."""
        if user_message is not None:
            if user_message != APPROVE or not self._approve():
                self._mail.put(e.SessionMessage(content=user_message, seq=1))
            self._expire()
        elif tool_result is not None:
            self._session.add_tool_result(*tool_result)
        self._resume(is_answered=tool_result is not None)
        try:
            await self._work()
        finally:
            self.is_live = False
            forget_ended(self.thread, self._services)
            self._frame.iteration = self.thread.turn_steps
            self._frame.agent_name = self.thread.agent
        return turn_result(self.thread, self._session, self._said)

    async def call(self, name: str, arguments: str) -> None:
        """Carry out one call as if its model had made it; its step says what came of it."""
        made = ModelReply(calls=(ToolCall(name=name, arguments=arguments),))
        self._session.add_assistant_message(made)
        self._resume(is_answered=False)
        while self.thread.open is not None and await self._next():
            pass

    async def _work(self) -> None:
        while await self._next():
            await self._send()
        await self._send()

    async def _next(self) -> bool:
        """Do the next thing; False when nothing is due."""
        rest = await self._loop.step()
        if isinstance(rest, Lend):
            agent = self._session.children[rest.frame_run_id].agent_name
            raise CallerError(
                f"{self._frame.agent_name} waits for {agent}: say it to the frame on top"
            )
        return rest is None

    def due(self) -> Command:
        """What the core says is to be done."""
        mail, asks = self._mail, self.thread.asks_user
        waiting = KINDS[4 | mail.said | ANSWER * asks] if mail.messages else _NOTHING
        return decide(self.thread, waiting)

    def take(self, kind: Kind) -> tuple[InLane, ...]:
        """What the user has said."""
        return self._mail.take("said" if kind == "answer" else kind)

    def _resume(self, *, is_answered: bool) -> None:
        """Go on with calls that have no result and are not under way."""
        thread, side = self.thread, self.side
        step = thread.open
        is_due = step is not None and any(call.status == "todo" for call in step.calls)
        if side is not None and thread.in_session and (is_due or is_answered):
            self.apply(go_on(thread, [], side, _NOTHING, self.definitions))

    def _approve(self) -> bool:
        """Approve every call that waits for that; whether any did."""
        replies = [
            e.SessionReply(prompt_id=each.prompt_id, decision="approve")
            for each in self.thread.prompts
            if each.kind == "approval"
        ]
        if replies:
            self._loop.signal(Taken(tuple(replies)))
        return bool(replies)

    def _expire(self) -> None:
        """Give up the answers that have not come in time."""
        late = [
            e.SessionTimer(timer=each.prompt_id)
            for each in self.thread.prompts
            if each.expires_at and self._now >= each.expires_at
        ]
        if late:
            self._loop.signal(Taken(tuple(late)))

    @property
    def _now(self) -> int:
        return self._services.hub.ports.clock.now()

    async def _send(self) -> None:
        """Send what was said; except for the last words of the turn, which are its result."""
        thread, last = self.thread, self.thread.outcome
        is_over = not thread.in_session and thread.phase != "ended"
        kept = int(is_over and last is not None and last.outcome == "completed")
        while self._say is not None and len(self._said) > kept:
            await self._say(self._said.pop(0))

    # ── what is done, and what comes of it ───────────────────────────────────────────────────

    def at_work(self, activity: Activity) -> AtWork:
        """What an activity needs."""
        return _ByHand(self, self._services, self._watched(activity))

    def without_runs(self, signal: Signal) -> Signal:
        """A call of a child that is no frame is refused: that takes a run of its own."""
        if isinstance(signal, Delegated):
            return _refused(signal)
        if isinstance(signal, ModelReplied) and signal.looked_up:
            found = tuple([_refused(each) for each in signal.looked_up])
            return structs.replace(signal, looked_up=found)
        return signal

    def _watched(self, activity: Activity) -> ActiveSide:
        """The side, its tool such that the very frame that it raises is kept."""
        side = self.side
        assert side is not None
        tool = side.tools.get(activity.name) if isinstance(activity, RunTool) else None
        if tool is None:
            return side
        assert isinstance(activity, RunTool)
        keep = partial(self._raised.__setitem__, f"{activity.step}.{activity.index}")
        return structs.replace(side, tools={**side.tools, tool.name: _watched(tool, keep)})

    def apply(self, decision: Decision) -> None:
        """Fold what was decided; begin the frames that it starts."""
        now = self._now
        self._session.fold(*(structs.replace(event, at=now) for event in decision.events))
        openings = {to: item for to, item in decision.mail if isinstance(item, e.SessionOpen)}
        for event in decision.events:
            if isinstance(event, e.AgentText):
                self._said.append(event.text)
            elif isinstance(event, e.SessionPush):
                self._push(event, openings[event.frame_run_id])
        for _, item in decision.mail:
            if isinstance(item, e.SessionCancel) and self.thread.origin.frame:
                # A runtime would send it round by the main agent.
                self._loop.signal(Taken((item,)))

    def _push(self, event: e.SessionPush, opening: e.SessionOpen) -> None:
        """Begin the frame that a call waits for, and keep it until the call has its result."""
        step, _, index = event.call_id.partition(".")
        caller = self._frame
        frame = self._raised.pop(event.call_id, None)
        if frame is None:
            side = self._services.definitions.side(event.frame_agent, FRAME)
            frame = make_frame(side, event.frame_run_id, caller.context, caller)
            frame.session.begin(structs.replace(opening, run_id=event.frame_run_id))
            frame.session.add_user_message(event.message)
        else:
            frame.session.begin(structs.replace(opening, run_id=frame.frame_id))
        context = dataclasses.replace(
            frame.context, session_key=caller.context.session_key,
            is_headless=caller.context.is_headless,
        )  # fmt: skip
        frame.context = context
        frame.parent_tool_use_id = frame.parent_tool_use_id or tool_use_id(int(step), int(index))
        frame.session.ancestors = ((self.lane.run_id, self.lane.agent), *self._session.ancestors)
        self._session.children[event.frame_run_id] = frame
        self._services.budgets.started(self.lane.root_run_id)


def _refused(signal: Delegated) -> Delegated:
    if signal.request.takeover:
        return signal
    return structs.replace(signal, problem=ALONE.format("subagents"))


class _ByHand(AtWork):
    """The scope of an activity where there is no hub."""

    __slots__ = ("_turn",)

    def __init__(self, turn: FrameTurn, services: Services, side: ActiveSide) -> None:
        self.services = services
        self.others = NO_OTHER_RUNS
        self.run = self._work = self._turn = turn
        self.side = side
        self.thread = turn.thread

    def state(self, call_id: str = "") -> ThreadState:
        """What a tool sees of its frame."""
        turn = self._turn
        return ThreadState(
            self.services, self.others, turn.lane, lambda: turn.thread,
            Recorder(turn.record, lambda: turn.is_live, self.services.hub.pipeline.home),
            hub=FrameHub(self.services.hub, turn), side=self.side, call_id=call_id,
        )  # fmt: skip


def _watched(tool: Tool[..., Any], keep: Callable[[StackFrame], None]) -> Tool[..., Any]:
    """A tool that tells which frame it gives the conversation to, and is the same otherwise."""

    def seen(error: BaseException) -> None:
        frame = activated_in(error)
        if frame is not None:
            keep(frame)

    async def awaited(value: Awaitable[Any]) -> Any:
        try:
            return await value
        except BaseException as error:
            seen(error)
            raise

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            value = tool.fn(*args, **kwargs)
        except BaseException as error:
            seen(error)
            raise
        return awaited(value) if inspect.isawaitable(value) else value

    return dataclasses.replace(tool, fn=called)


def forget_ended(thread: Thread, services: Services) -> None:
    """A turn is over: of a frame that is over with it nothing is kept."""
    if thread.phase != "ended":
        return
    origin = thread.origin
    for run_id in services.budgets.ended(origin.run_id, origin.root_run_id, thread.spent):
        services.hub.addressing.run_ended(run_id)
