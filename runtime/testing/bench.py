"""``Bench``: a run made for one test, which answers what the code asks and collects what it does.

the test ──► state_for, ctx_for ──► a run in a memory store of its own, held at its call
                    │                     │
                    └──── the code ◄──────┘  its real state, or context
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import anyio
import msgspec

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.hub.errors import BadValue, CallerError, DefinitionError
from hubbub.hub.events import (
    AgentStatus,
    AgentText,
    Event,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
)
from hubbub.hub.ports import Ports
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
        if isinstance(answers, str) or not (
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
        self._runtime: Runtime
        self._scope = anyio.CancelScope()
        self._unanswered = ""

    @asynccontextmanager
    async def open(
        self, agents: Iterable[AgentDefinition], children: Children, ports: Ports | None
    ) -> AsyncIterator[Runtime]:
        """A runtime with these agents, and a stand-in for each of ``children``.

        Raises ``CallerError`` where the code asked what nothing was supplied for.
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
        if self._unanswered:
            raise CallerError(
                f"the code asked {self._unanswered!r}, which nothing answers; give answers=…"
            )

    def begin(self, run_id: str) -> None:
        """From now on, what the run does is the code's."""
        self.events.clear()
        self.run_id = run_id

    def _collect(self, event: Event) -> None:
        self.events.append(event)
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

    def _answer(self, prompt: SessionPrompt) -> None:
        if callable(self._answers):
            answer = self._answers(prompt)
        elif isinstance(self._answers, Mapping) and prompt.question in self._answers:
            answer = self._answers[prompt.question]
        elif self._left:
            answer = self._left.pop(0)
        else:
            self._unanswered = prompt.question
            self._scope.cancel()
            return
        text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
        self._runtime.hub.reply(prompt.prompt_id, text)


def _stand_in(name: str, result: Any) -> AgentDefinition:
    """A code agent that returns ``result``, or what that returns for its input."""

    async def execute(input: Any, ctx: Any) -> Any:
        return result(input) if callable(result) else result

    return AgentDefinition(name=name, execute=execute)
