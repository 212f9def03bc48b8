"""``DurableSteps``: one execution of a code agent's function.

The function is ordinary code.  When its run continues after a crash, it is executed again from its
beginning; what it did through its context and is on record is not done again but looked up.
What can be found how is decided in ``hubbub.agents.code.durable_steps``; here it is counted and
done.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import anyio

from hubbub.agents.code.durable_steps import Recorded, step_value
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.state.area import key_problem
from hubbub.hub.errors import BadValue, ChildChanged, Closed, InsideStep, RunEnded
from hubbub.hub.events import AgentRecord, SessionMessage
from hubbub.hub.run_hub import RunHub
from hubbub.hub.values import Json, encode_value
from hubbub.runtime.activities.questions import Question, ask
from hubbub.runtime.activities.recorder import IN_ITS_LOOP
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.runs.code_scope import CodeScope

__all__ = ["DurableSteps"]

_AT_WORK: Final[ContextVar[tuple[str, str, int]]] = ContextVar("hubbub_step", default=("", "", 0))
"""The run, and the name and number of the step that this code is part of."""


class DurableSteps:
    """Counts what the function does, and finds what earlier executions have left of it."""

    __slots__ = ("_asked", "_consumed", "_run", "_spawned", "_steps", "recorded")

    def __init__(self, run: CodeScope, recorded: Recorded) -> None:
        self._run = run
        self.recorded = recorded
        self._steps: dict[str, int] = {}
        self._spawned = 0
        self._asked: dict[str, int] = {}
        self._consumed = frozenset(message.seq for message in recorded.messages)

    def was_consumed(self, message: SessionMessage) -> bool:
        """Whether the message is on record as consumed by an earlier execution."""
        return message.seq in self._consumed

    def check_here(self, call: str) -> None:
        """Raise ``WrongThread`` or ``WrongLoop`` for a ``call`` from elsewhere."""
        self._run.services.hub.pipeline.home.check(call, IN_ITS_LOOP)

    def refuse_inside_step(self, call: str) -> None:
        """Raise ``InsideStep`` in code that is part of a step of this run."""
        run_id, step, _ = _AT_WORK.get()
        if run_id == self._run.lane.run_id:
            raise InsideStep(call, step)

    def spawn(self, agent: str | AgentDefinition, input: Any, name: str | None, result: str) -> Run:
        """Start the code's next child, or find it on record."""
        run = self._run
        self.check_here("ctx.spawn")
        self.refuse_inside_step("ctx.spawn")
        self._spawned += 1
        child = self.recorded.children.get(self._spawned)
        if child is None:
            return run.shared.others.spawn(
                run.lane.run_id, agent, input, name=name, number=self._spawned, result=result
            )
        self._check_live()
        asked = agent.name if isinstance(agent, AgentDefinition) else agent
        if asked != child.child_agent:
            raise ChildChanged(run.lane.run_id, self._spawned, child.child_agent, asked)
        return Run(run.shared.outcomes, child.child_run_id, child.child_agent, is_root=False)

    async def step(self, name: str, function: Callable[[], Any], type_: Any) -> Any:
        """Run the next step of that name, or find its value on record."""
        self.check_here("ctx.step")
        self._check_live()
        self.refuse_inside_step(f"ctx.step({name!r})")
        if problem := key_problem(name):
            raise BadValue("name of a step", problem)
        number = self._steps[name] = self._steps.get(name, 0) + 1
        value = self.recorded.steps.get((name, number))
        if value is not None:
            return step_value(name, value, type_)
        value = await self._perform(name, number, function)
        result = step_value(name, value, type_)  # Before it is on record, where it would stay.
        await self._record(AgentRecord(name=name, index=number, value_json=value))
        return result

    async def ask(self, question: Question, hub: RunHub) -> Any:
        """Ask the code's next question, or find its answer on record.

        Those of a step are counted by themselves: a step that is on record asks no more.
        """
        self.check_here("ctx.ask")
        self._check_live()
        run_id, step, number = _AT_WORK.get()
        place = f"{step}_{number}_" if run_id == self._run.lane.run_id else ""
        ordinal = self._asked[place] = self._asked.get(place, 0) + 1
        prompt_id = f"{self._run.lane.run_id}.ask_{place}{ordinal}"
        return await ask(self._run, hub, prompt_id, ordinal, question)

    async def _perform(self, name: str, number: int, function: Callable[[], Any]) -> Json:
        token = _AT_WORK.set((self._run.lane.run_id, name, number))
        try:
            result = function()
            if inspect.isawaitable(result):
                result = await result
        finally:
            _AT_WORK.reset(token)
        return encode_value(f"result of step {name!r}", result)

    async def _record(self, event: AgentRecord) -> None:
        self._check_live()
        done = anyio.Event()
        self._run.record(event, done.set)
        await done.wait()

    def _check_live(self) -> None:
        run = self._run
        if run.services.phase.is_gone:
            raise Closed("the runtime", "the run goes on when a runtime is opened on its store")
        if not run.is_live:
            raise RunEnded(run.lane.run_id, "ended")
