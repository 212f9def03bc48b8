"""Small conversations with frames, for the tests of takeover."""

from collections.abc import Iterable
from typing import Any

from hubbub import AgentDefinition, Event, Hub, Model, PromptDefinition, Runtime, SideConfig
from hubbub.hub import events as e
from hubbub.hub.events import InLane
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

__all__ = ["KEY", "Talk", "complete", "frame", "open_runtime", "skill", "use"]

KEY = "telegram_1_2"


def frame(
    model: Model,
    *tools: Any,
    name: str = "main",
    max_steps: int | None = None,
    supports_checkpointing: bool = False,
    env: dict[str, str] | None = None,
    **prompt: Any,
) -> AgentDefinition:
    """An exposed agent that talks with the user."""
    definition = PromptDefinition(
        name=f"prompt-of-{name}", prompt=f"You are {name}.", model=model, tools=tools, **prompt
    )
    return AgentDefinition(
        name=name, expose_as_tool=True, tool_description=f"Does {name}.", env=env or {},
        supports_checkpointing=supports_checkpointing,
        side_a=SideConfig(prompt=definition, max_steps=max_steps),
    )  # fmt: skip


def use(name: str, message: str = "Go.") -> Any:
    """A call that gives the conversation to an agent."""
    return call("use_agent", name=name, message=message)


def skill(name: str, message: str = "Go.") -> Any:
    """A call that gives the conversation to a skill."""
    return call("use_skill", name=name, message=message)


def complete(result: str = "done") -> Any:
    """A call that gives the conversation back."""
    return call("complete", result=result)


def open_runtime(
    *agents: AgentDefinition, journal: Journal, ports: Ports, **options: Any
) -> Runtime:
    return Runtime(agents, store=journal, ports=ports, **options)


class Talk:
    """A channel in one line: says something, and returns what was said until it is quiet."""

    def __init__(self, runtime: Runtime, agent: str = "main") -> None:
        self.runtime = runtime
        self.hub: Hub = runtime.hub
        self.agent = agent
        self.root = ""
        self.events: list[Event] = []
        self.hub.subscribe("*", self.events.append)

    async def say(self, line: str) -> list[tuple[str, str]]:
        """Say ``line`` and wait until the conversation rests; who said what meanwhile."""
        before = len(self.events)
        receipt = await self.hub.open(self.agent, line, session_key=KEY)
        assert receipt.accepted, receipt.reason
        self.root = receipt.run_id
        await self.runtime.result(self.root)
        return self.said(before)

    async def rest(self) -> list[tuple[str, str]]:
        """Wait until the conversation rests; who said what meanwhile."""
        before = len(self.events)
        await self.runtime.result(self.root)
        return self.said(before)

    def said(self, since: int = 0) -> list[tuple[str, str]]:
        return [(x.agent, x.text) for x in self.events[since:] if isinstance(x, e.AgentText)]

    @property
    def stack(self) -> list[str]:
        """The agents of the open frames, the main agent's first; none when there is no frame."""
        stack: list[tuple[str, str]] = []
        for event in self.events:
            if isinstance(event, e.SessionPush):
                if not stack:
                    stack.append((self.root or event.run_id, event.agent))
                stack.append((event.frame_run_id, event.frame_agent))
            elif isinstance(event, e.SessionPop):
                ids = [run_id for run_id, _ in stack]
                if event.frame_run_id in ids:
                    del stack[ids.index(event.frame_run_id) :]
        return [agent for _, agent in stack] if len(stack) > 1 else []

    def frames(self, agent: str) -> list[str]:
        """The run ids of the frames of an agent, by when they were pushed."""
        return [
            x.frame_run_id
            for x in self.events
            if isinstance(x, e.SessionPush) and x.frame_agent == agent
        ]

    def of(self, kind: type[Event], agent: str = "") -> list[Any]:
        """The events of a class, of an agent's runs or of all."""
        return [x for x in self.events if isinstance(x, kind) and agent in ("", x.agent)]

    def results(self, name: str) -> list[tuple[str, bool]]:
        """What the calls of a tool came to."""
        found = self.of(e.AgentToolComplete)
        return [(x.output, x.is_error) for x in found if x.name == name]

    def taken(self, agent: str) -> list[str]:
        """What people said and an agent's runs have taken."""
        items: Iterable[InLane] = (i for x in self.of(e.SessionTaken, agent) for i in x.items)
        return [i.content for i in items if isinstance(i, e.SessionMessage)]
