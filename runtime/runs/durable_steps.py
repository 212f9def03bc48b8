"""``DurableSteps``: one execution of a code agent's function.

The function is ordinary code.  When its run continues after a crash, it is executed again from its
beginning; what it did through its context and is on record is not done again but looked up.
What can be found how is decided in ``hubbub.agents.code.durable_steps``; here it is counted and
done.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final

import anyio

from hubbub.agents.code.durable_steps import Spawned, step_value
from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.state.area import key_problem
from hubbub.agents.state.call_order import CallOrder, RecordedCall, identity_of, keyed
from hubbub.hub.errors import BadValue, ChildChanged, Closed, HubbubError, RunEnded
from hubbub.hub.events import AgentRecord
from hubbub.hub.logs import log
from hubbub.hub.message import opening_message
from hubbub.hub.run_hub import RunHub
from hubbub.hub.tasks.cancelling import current_task_id
from hubbub.hub.texts import check_labels
from hubbub.hub.values import Json, encode_value
from hubbub.runtime.activities.questions import Question, RecordedQuestions
from hubbub.runtime.activities.recorder import IN_ITS_LOOP
from hubbub.runtime.kernel.current_run import CURRENT_READER
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.services import no_agent
from hubbub.runtime.runs.code_scope import CodeScope
from hubbub.runtime.runs.earlier import Earlier, PassedOver
from hubbub.runtime.runs.inside_step import AT_WORK, refuse_inside_step
from hubbub.runtime.runs.step_tasks import SoleTask, StepTasks

__all__ = ["DurableSteps"]

_AT_ONCE: Final = (
    "a task that runs at the same time makes steps of this name, too, and which comes first may "
    'differ when the code is executed again; give each a name of its own: f"fetch {city}"'
)


class DurableSteps:
    """Counts what the function does, and finds what earlier executions have left of it."""

    __slots__ = ("_function", "_handled", "_made", "_resumes", "_run", "_spawned", "earlier")

    def __init__(self, run: CodeScope, thread: CodeThread, *, resumes: bool) -> None:
        self._run = run
        self._resumes = resumes
        """Whether the function is executed again after a crash."""
        self.earlier: Earlier | None = None
        """What earlier executions have left on record."""
        self._spawned = thread.spawned
        self._handled = thread.handled
        """How many of these, and of answers, were for messages that are done with."""
        self._function = 0
        """The task that the function is called in."""
        self._made: _Made | None = None

    def begin(self) -> None:
        """The function is called, by this task."""
        self._function = current_task_id()

    def _so_far(self) -> "_Made":
        """What the function has done.  An agent that only reads its messages has none of it."""
        if self._made is None:
            self._made = _Made(self._function, self._spawned, self._handled[0])
        return self._made

    def _is_passed_over(self) -> bool:
        """Whether the current code handles a message behind consumed ones that it did not want."""
        if self.earlier is None:
            return False
        token = CURRENT_READER.get()
        return isinstance(token, PassedOver) and token.earlier is self.earlier

    def finish(self) -> None:
        """The function has returned: say which of its children it has not asked for again."""
        if not self._spawned:
            return
        made = self._so_far()
        is_passed = self.earlier is not None and self.earlier.is_passed_over
        passed = made.passed if is_passed else ()
        if left := [number for number in made.children.left if number not in passed]:
            found = [made.recorded[number].run_id for number in left]
            log.warning(
                "children.not_found", run_id=self._run.lane.run_id, children=found,
                remedy="started by an earlier execution and not by this one: give ctx.spawn key=",
            )  # fmt: skip

    def check_here(self, call: str) -> None:
        """Raise ``WrongThread`` or ``WrongLoop`` for a ``call`` from elsewhere."""
        self._run.services.hub.pipeline.home.check(call, IN_ITS_LOOP)

    def spawn(
        self,
        agent: str | AgentDefinition,
        input: Any,
        name: str | None,
        result: str,
        key: str | None,
    ) -> Run:
        """Start the code's next child, or find it on record."""
        run = self._run
        self.check_here("ctx.spawn")
        refuse_inside_step(run.lane.run_id, "ctx.spawn")
        if not isinstance(agent, str | AgentDefinition):
            raise no_agent(agent)
        asked = agent.name if isinstance(agent, AgentDefinition) else agent
        identity = _child_identity(asked, name, input) if key is None else keyed(key)
        made = self._so_far()
        in_order = made.task.is_alone()
        passed = made.passed if self._is_passed_over() else ()
        place = made.children.place(identity, in_order=in_order, passed=passed)
        if place.is_new:
            try:
                found = run.shared.others.spawn(
                    run.lane.run_id, agent, input, name=name, number=place.number, result=result,
                    identity=identity, in_order=in_order,
                )  # fmt: skip
            except HubbubError:
                made.children.give_up(identity)
                raise
        else:
            found = self._found(made.recorded[place.number], asked, place.is_other)
        # What is awaited elsewhere comes to the code in any order.
        found.on_read = made.task.is_alone
        return found

    def _found(self, child: Spawned, asked: str, is_other: bool) -> Run:
        self.check_live()
        run = self._run
        if is_other or asked != child.agent:
            raise ChildChanged(run.lane.run_id, child.number, child.agent, asked)
        return Run(run.shared.outcomes, child.run_id, child.agent, is_root=False)

    async def step(self, name: str, function: Callable[[], Any], type_: Any) -> Any:
        """Run the next step of that name, or find its value on record."""
        self.check_here("ctx.step")
        self.check_live()
        if problem := key_problem(name):
            raise BadValue("name of a step", problem)
        refuse_inside_step(self._run.lane.run_id, f"ctx.step({name!r})")
        made = self._so_far()
        made.task.notice()
        if self._resumes and not made.step_tasks.may_make(name):
            raise BadValue(f"step {name!r}", _AT_ONCE)
        made.step_tasks.under_way(name)
        try:
            number = made.steps.get(name, 0) + 1
            if self.earlier is not None and self._is_passed_over():
                number = max(number, 1 + await self.earlier.handled_steps(name))
            made.steps[name] = number
            value = None if self.earlier is None else await self.earlier.find_step(name, number)
            if value is not None:
                return step_value(name, value, type_)
            value = await self._perform(name, number, function)
            result = step_value(name, value, type_)  # Before it is on record, where it would stay.
            await self._record(AgentRecord(name=name, index=number, value_json=value))
        finally:
            made.step_tasks.ended(name)
        return result

    async def ask(self, question: Question, hub: RunHub) -> Any:
        """Ask the code's next question, or find its answer on record.

        Those of a step are counted by themselves: a step that is on record asks no more.
        """
        self.check_here("ctx.ask")
        self.check_live()
        run_id, step, number = AT_WORK.get()
        place = f"{step}_{number}_" if run_id == self._run.lane.run_id else ""
        made = self._so_far()
        made.task.notice()
        questions = made.questions.get(place)
        if questions is None:
            prompt_ids = f"{self._run.lane.run_id}.ask_{place}"
            questions = made.questions[place] = RecordedQuestions(
                self._run, hub, prompt_ids, self._handled[1]
            )
        return await questions.ask(question, passes=self._is_passed_over())

    async def _perform(self, name: str, number: int, function: Callable[[], Any]) -> Json:
        token = AT_WORK.set((self._run.lane.run_id, name, number))
        try:
            result = function()
            if inspect.isawaitable(result):
                result = await result
        finally:
            AT_WORK.reset(token)
        return encode_value(f"result of step {name!r}", result)

    async def _record(self, event: AgentRecord) -> None:
        self.check_live()
        done = anyio.Event()
        self._run.record(event, done.set)
        await done.wait()

    def check_live(self) -> None:
        """Raise ``Closed`` or ``RunEnded`` where the run can do nothing (any more)."""
        run = self._run
        if run.services.phase.is_gone:
            raise Closed("the runtime", "the run goes on when a runtime is opened on its store")
        if not run.is_live:
            raise RunEnded(run.lane.run_id, "ended")


class _Made:
    """What an execution has done so far, and which children it may find."""

    __slots__ = ("children", "passed", "questions", "recorded", "step_tasks", "steps", "task")

    def __init__(self, function: int, spawned: tuple[Spawned, ...], handled: int) -> None:
        self.passed = frozenset([child.number for child in spawned[:handled]])
        """Those that were for messages that are done with."""
        self.recorded = {child.number: child for child in spawned}
        self.children = CallOrder(
            RecordedCall(number, child.identity, child.in_order)
            for number, child in self.recorded.items()
        )
        self.task = SoleTask(function)
        self.steps: dict[str, int] = {}
        self.step_tasks = StepTasks(function)
        self.questions: dict[str, RecordedQuestions] = {}


def _child_identity(agent: str, name: str | None, input: Any) -> str:
    check_labels(name=name)
    _, message = opening_message(input)  # Raises what starting it would.
    # What is no agent's name is said of it later.
    return identity_of("input", ascii(agent), name, input if message is None else message)
