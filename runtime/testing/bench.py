"""``Bench``: a run made for one test, which answers what the code asks and collects what it does.

the test ──► state_for, ctx_for ──► a run in a memory store of its own, held at its call
                    │                     │
                    └──── the code ◄──────┘  its real state, or context
"""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import anyio

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.hub.delivery.ended_prompts import is_uuid
from hubbub.hub.errors import BadValue, CallerError, DefinitionError
from hubbub.hub.events import (
    AgentComplete,
    AgentPark,
    AgentStatus,
    AgentText,
    Event,
    SessionEnd,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
)
from hubbub.hub.near_misses import kind_of
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.tasks.callables import unawaited
from hubbub.hub.values import encode_value
from hubbub.runtime.runtime import Runtime

__all__ = ["Answers", "Bench", "Children", "StartedChild"]

Answers: TypeAlias = Sequence[Any] | Mapping[str, Any] | Callable[[SessionPrompt], Any]
"""What is answered: one after the other, by question, or as a function of the prompt says."""

Children: TypeAlias = Mapping[str, Any]
"""What children return, by agent: a value, or a function of the child's input."""


class StartedChild(NamedTuple):
    """A child that the code has started."""

    agent: str
    input: Any
    name: str


class Bench:
    """What the code under test did, in order.

    ``statuses`` it has set, ``texts`` it has said, ``messages`` it has sent (to its own run, its
    parent or any other), ``prompts`` it has opened, ``children`` it has started, and all
    ``events`` of its tree.
    """

    def __init__(self, answers: Answers) -> None:
        if isinstance(answers, str | bytes) or not (
            callable(answers) or isinstance(answers, Sequence | Mapping)
        ):
            raise BadValue("answers", "expected a list, a mapping by question, or a function")
        self._answers = answers
        self._left = list(answers) if isinstance(answers, Sequence) else []
        self.statuses: list[str] = []
        self.texts: list[str] = []
        self.messages: list[SessionMessage] = []
        self.prompts: list[SessionPrompt] = []
        self.children: list[StartedChild] = []
        self.events: list[Event] = []
        self.run_id = ""
        self._runs: set[str] = set()
        """All that there have been; what has the form of an id may be one that is gone."""
        self._runtime: Runtime
        self._scope = anyio.CancelScope()
        self._problem: Exception | None = None

    @asynccontextmanager
    async def open(
        self, agents: Iterable[AgentDefinition], children: Children, ports: Ports | None
    ) -> AsyncIterator[Runtime]:
        """A runtime with these agents, and a stand-in for each of ``children``.

        Raises ``CallerError`` where the run does not come as far as the code, where the code asked
        what nothing was supplied for, and where its answer is none.
        """
        known = tuple(agents)
        names = {each.name for each in known}
        if taken := sorted(names & {*children}):
            raise DefinitionError("testing", [f"children.{each}: is an agent" for each in taken])
        stand_ins = (_stand_in(name, what) for name, what in children.items())
        runtime = Runtime((*known, *stand_ins), store="memory", ports=ports, grace=0)
        async with runtime:
            self._runtime = runtime
            runtime.hub.subscribe("*", self._collect)
            with self._scope:
                yield runtime
        if self._problem is not None:
            raise self._problem

    def begin(self, run_id: str) -> None:
        """From now on, what the run does is the code's."""
        self.events.clear()
        self.run_id = run_id

    def _collect(self, event: Event) -> None:
        self.events.append(event)
        self._runs.add(event.run_id)
        if not self.run_id:
            self._check_way(event)
        match event:
            case SessionMessage() if event.source == self.run_id:
                self.messages.append(event)
            case SessionOpen() if event.parent_run_id == self.run_id:
                child = StartedChild(event.open_agent, event.input, event.name)
                self.children.append(child)
            case AgentStatus() if event.run_id == self.run_id:
                self.statuses.append(event.status)
            case AgentText() if event.run_id == self.run_id:
                self.texts.append(event.text)
            case SessionPrompt() if event.run_id == self.run_id and event.to == "user":
                self.prompts.append(event)
                self._answer(event)
            case SessionPrompt() if event.run_id in ("", self.run_id) and event.to != "user":
                if event.to not in self._runs and not is_uuid(event.to):
                    self._fail(CallerError(
                        f"the code asked {event.to!r}, which nothing serves; in the test: "
                        f"….hub.hub.serve({event.to!r}, answer)"
                    ))  # fmt: skip

    def _check_way(self, event: Event) -> None:
        """On its way to the code the run neither ends nor waits."""
        if isinstance(event, AgentComplete | SessionEnd) and event.outcome != "completed":
            self._fail(CallerError(f"the run did not come as far as the code: {event.reason}"))
        elif isinstance(event, AgentPark):
            self._fail(CallerError(
                "the run did not come as far as the code: it waits for a message; give an input"
            ))  # fmt: skip

    def _fail(self, problem: Exception) -> None:
        """End the test by ``problem``, unless an earlier one does."""
        if self._problem is None:
            self._problem = problem
            self._scope.cancel()

    def _answer(self, prompt: SessionPrompt) -> None:
        question = prompt.question
        if callable(self._answers):
            try:
                answer = self._answers(prompt)
                if problem := unawaited(answer):
                    raise CallerError(problem)
            except Exception as error:
                failed = CallerError(f"answers=… raised over {question!r}: {error!r}")
                failed.__cause__ = error
                self._fail(failed)
                return
        elif isinstance(self._answers, Mapping) and prompt.question in self._answers:
            answer = self._answers[prompt.question]
        elif self._left:
            answer = self._left.pop(0)
        else:
            problem = f"the code asked {question!r}, which nothing answers; give answers=…"
            self._fail(CallerError(problem))
            return
        try:
            text = answer
            if not isinstance(answer, str):
                text = bytes(encode_value("answers", answer)).decode()
            self._runtime.hub.reply(prompt.prompt_id, text).watch(partial(self._check, prompt))
        except BadValue as error:
            self._fail(error)

    def _check(self, prompt: SessionPrompt, receipt: Receipt) -> None:
        if receipt.rejected:
            self._fail(CallerError(
                f"the answer to {prompt.question!r} was not accepted: {receipt.explanation}"
            ))  # fmt: skip


def checked(what: str, values: Any, *kinds: type) -> tuple[Any, ...]:
    """The values, each of one of the kinds; raises ``BadValue``."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise BadValue(what, f"expected a sequence, not {kind_of(values)}")
    values = tuple(values)
    for each in values:
        if not isinstance(each, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise BadValue(what, f"expected {names} in it, not {kind_of(each)}")
    return tuple(values)


def checked_mapping(what: str, values: Any) -> Mapping[str, Any]:
    """What is given by name; nothing for none.  Raises ``BadValue``."""
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(each, str) for each in values):
        raise BadValue(what, "expected a mapping from names")
    return values


def _stand_in(name: str, result: Any) -> AgentDefinition:
    """A code agent that returns ``result``, or what that returns for its input."""

    async def execute(input: Any, ctx: Any) -> Any:
        came = result(input) if callable(result) else result
        return await came if inspect.isawaitable(came) else came

    return AgentDefinition(name=name, execute=execute)
