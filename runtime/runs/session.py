"""``ModelSession``: a code agent's own conversation with a model.

The same pure engine as a model run's, with two differences: messages come from ``send`` instead
of the run's inbox, and of what the engine writes only the ``agent:*`` events of its steps enter
the run's lane.

Steps are numbered through the run, whichever of its conversations takes them: each gets
its number when its model is first asked, and keeps it through every retry.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import anyio
from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model_choice import ModelSpec, named
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.settings import ModelSettings
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import Origin, Thread
from hubbub.agents.turn.decide import Activity, CallModel, Command, Do, Kind, decide
from hubbub.agents.turn.signals import (
    Decision,
    Delegated,
    LimitReached,
    Restored,
    Signal,
    ToolFinished,
)
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, Closed, RunFailed
from hubbub.hub.events import Event, InLane
from hubbub.hub.message import Sayable, contents_said, session_message
from hubbub.runtime.activities.at_work import AtWork
from hubbub.runtime.activities.recorder import IN_ITS_LOOP
from hubbub.runtime.runs.code_scope import CodeScope
from hubbub.runtime.runs.turn_loop import Rest, TurnLoop

__all__ = ["ModelSession"]

_SHOWN: Final = (
    e.AgentThinking, e.AgentText, e.AgentStep, e.AgentRetry, e.AgentToolStart,
    e.AgentToolComplete, e.AgentInterrupted,
)  # fmt: skip

RESOLUTION: Final = 0.001
"""Seconds by which a clock may be behind a timer."""

_NAME: Final = "session"
_NOTHING: Final[frozenset[Kind]] = frozenset()
_MESSAGE: Final[frozenset[Kind]] = frozenset(("message",))


class ModelSession:
    """Send and receive; ``async with`` closes it.  One ``receive`` at a time."""

    def __init__(
        self,
        run: CodeScope,
        *,
        model: ModelSpec,
        system: str,
        tools: tuple[Tool[..., Any], ...],
        parallel_tool_calls: bool,
        max_steps: int | None,
        settings: ModelSettings | None = None,
    ) -> None:
        if asking := [each.name for each in tools if isinstance(each, Tool) and each.asks]:
            remedy = "ask with ctx.ask, or give the tool to an agent and spawn that"
            raise BadValue(
                "tools", f"{', '.join(asking)}: a conversation in code waits for nobody; {remedy}"
            )
        if servers := [each.name for each in tools if isinstance(each, McpServer)]:
            remedy = "give them to an agent and spawn that"
            raise BadValue("tools", f"{', '.join(servers)}: a server is an agent's; {remedy}")
        prompt = PromptDefinition(
            name=_NAME, prompt=system, model=model, tools=tools,
            parallel_tool_calls=parallel_tool_calls, settings=settings,
        )  # fmt: skip
        if run.services.accounts.limits_cost(run.lane):
            for problem in run.services.prices.missing(prompt.choices):
                raise BadValue("model", problem)
        for each in prompt.choices if settings is not None else ():
            for problem in run.services.catalog.lacking(each):
                raise BadValue("settings", f"{named(each.model)}: {problem}")
        side = SideConfig(prompt=prompt, max_steps=max_steps)
        self.definitions = Definitions([AgentDefinition(name=_NAME, side_a=side)])
        self.side: ActiveSide = self.definitions.side(_NAME)
        self._run = run
        self.lane = run.lane
        self._thread = Thread(agent=_NAME, phase="live", origin=Origin(run_id=run.lane.run_id))
        self.hook_events: deque[tuple[str, Any]] = deque()
        self._queue: deque[e.SessionMessage] = deque()
        self._sent = 0
        self._step = 0
        """The number that the next step has been given."""
        self._since = 0
        """Up to when its time at work is counted (µs)."""
        self._worked = 0
        """How much of it (µs) no step has on record."""
        self._closed = False
        self._shown: list[Event] = []
        """The events of what is being done."""
        self._loop = TurnLoop(self)

    async def send(self, message: Sayable) -> None:
        """Say something to the model; it is read at the next step.  Raises ``Closed``."""
        self._check_here("session.send")
        if self._closed:
            raise Closed("the session", "open a new one with ctx.session(...)")
        said = session_message(message)
        if said.parts:
            contents = self._run.services.hub.pipeline.contents
            await contents.put(self._run.lane.root_run_id, contents_said(message))
        self._sent += 1
        self._queue.append(structs.replace(said, lane="in", seq=self._sent))

    def receive(self) -> "Received":
        """Drive the model until its reply ends, yielding each event of its steps in order.

        The events are those of the run's journal, text included once, as ``agent:text``.  Leaving
        early loses nothing: the next ``receive`` continues.  Raises ``RunFailed`` when the model
        fails permanently, ``Closed`` after ``close``.
        """
        self._check_here("session.receive")
        if self._closed:
            raise Closed("the session", "open a new one with ctx.session(...)")
        return Received(self)

    def _check_here(self, call: str) -> None:
        self._run.services.hub.pipeline.home.check(call, IN_ITS_LOOP)

    async def _go_on(self) -> list[Event] | None:
        """Do what is due; returns its events, or ``None`` when the reply has ended."""
        self._check_here("session.receive")
        shown: list[Event] = []
        self._shown = shown
        if await self._work() is None:
            return shown
        last = self._thread.outcome
        has_failed = last is not None and last.outcome == "failed"
        if last is not None and (has_failed or last.outcome == "limit" != last.reason):
            raise RunFailed(self._run.lane.run_id, last.outcome, last.reason)
        return None

    async def _work(self) -> Rest | None:
        """Do the next thing, and count its time; what is left of it, where that is limited, cuts it
        short."""
        run = self._run
        self._since = run.services.hub.ports.clock.now()
        left = run.services.accounts.time_left(run.lane)
        try:
            with anyio.move_on_after(None if left is None else left + RESOLUTION) as scope:
                return await self._loop.step()
        finally:
            self._count()
        if scope.cancelled_caught and (used_up := self._used_up()):
            self._loop.signal(LimitReached(used_up, self._thread.turn))
        return None

    def _count(self) -> None:
        """What it has worked since it was counted last."""
        run = self._run
        now = run.services.hub.ports.clock.now()
        worked, self._since = max(0, now - self._since), now
        self._worked += worked
        run.services.accounts.note_work(run.lane, worked)

    def _used_up(self) -> str:
        """The name of the limit that is reached."""
        run = self._run
        return run.services.accounts.reached(run.lane, run.thread.spent)

    def due(self) -> Command:
        """What is to be done; a step gets its number when its model is first asked."""
        waiting = _MESSAGE if self._queue else _NOTHING
        command = decide(self._thread, waiting, used_up=self._used_up())
        is_asking = isinstance(command, Do) and isinstance(command.activities[0], CallModel)
        if not is_asking or self._step > self._thread.step:
            return command
        self._step = self._run.number_step()
        self._thread = structs.replace(self._thread, step=self._step - 1)
        return decide(self._thread, waiting)

    def take(self, kind: Kind) -> tuple[InLane, ...]:
        """Everything that was said."""
        items = tuple(self._queue)
        self._queue.clear()
        return items

    def _resume(self) -> list[Event]:
        """Answer the calls that an earlier ``receive`` has left behind."""
        shown: list[Event] = []
        self._shown = shown
        if self._thread.open is not None:
            self._loop.signal(Restored())
        return shown

    @property
    def thread(self) -> Thread:
        """The conversation so far."""
        return self._thread

    def waiting_items(self, kind: Kind) -> tuple[InLane, ...]:
        """Nothing: its messages are its own."""
        return ()

    def receiving_side(self, side: ActiveSide) -> ActiveSide:
        """Its one side."""
        return side

    def listed_side(self) -> ActiveSide:
        """Its side, which has no servers."""
        return self.side

    def record(self, event: Event, done: Callable[[], None] | None) -> None:
        """Write an event of a tool's into the run's lane."""
        self._run.record(event, done)

    def close(self) -> None:
        """End the session; twice is a no-op, ``send`` after it an error."""
        self._check_here("session.close")
        self._closed = True

    @property
    def text(self) -> str:
        """The model's latest text."""
        return self._thread.last_text

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def at_work(self, activity: Activity) -> AtWork:
        """What an activity needs."""
        run = self._run
        return AtWork(run.services, run.shared.others, self, run)

    def without_runs(self, signal: Signal) -> Signal:
        """This conversation cannot be handed to a frame."""
        if not isinstance(signal, Delegated):
            return signal
        text = "ChildActivated: there is no conversation here that could be given away"
        return ToolFinished(signal.step, signal.index, text, True)

    def apply(self, decision: Decision) -> None:
        """Fold what was decided; the events of steps enter the run's lane."""
        self._thread = fold_all(self._thread, decision.events)
        for event in decision.events:
            if isinstance(event, e.AgentStep):
                self._count()
                event, self._worked = structs.replace(event, worked=self._worked), 0
            if isinstance(event, _SHOWN):
                self._shown.append(event)
                if self._run.is_live:
                    self._run.write(event, None)


class Received:
    """What a model says in one reply.  No generator: it may be left at any point, unclosed."""

    __slots__ = ("_events", "_has_begun", "_session")

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self._events: deque[Event] = deque()
        self._has_begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        session = self._session
        if not self._has_begun:
            self._has_begun = True
            self._events.extend(session._resume())
        while not self._events:
            events = None if session._closed else await session._go_on()
            if events is None:
                raise StopAsyncIteration
            self._events.extend(events)
        return self._events.popleft()
