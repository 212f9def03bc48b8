"""Small agents and an observer, for the tests of runs."""

from collections.abc import Callable, Iterable
from typing import Any

from hubbub import AgentDefinition, Event, Hub, Model, PromptDefinition, SideConfig
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.hub.events import AgentComplete, AgentStart
from hubbub.runtime.models.scripted import FunctionModel

__all__ = ["Observer", "assert_one_life", "echo_model", "heard", "model_agent", "said"]


def model_agent(
    model: Model,
    *tools: Tool[..., Any],
    name: str = "assistant",
    max_steps: int | None = None,
    **prompt: Any,
) -> AgentDefinition:
    """A model agent with its prompt in place."""
    definition = PromptDefinition(
        name=f"prompt-of-{name}", prompt="You help.", model=model, tools=tools, **prompt
    )
    return AgentDefinition(name=name, side_a=SideConfig(prompt=definition, max_steps=max_steps))


def heard(request: ModelRequest) -> list[str]:
    """What the user has said so far."""
    return [m.content for m in request.messages if isinstance(m, UserMessage)]


def said(request: ModelRequest) -> list[str]:
    """What the model has said so far."""
    return [m.text for m in request.messages if isinstance(m, AssistantMessage)]


def echo_model(latency: float = 1.0) -> FunctionModel:
    """Answers with everything the user said since the model's last word."""

    def answer(request: ModelRequest) -> str:
        fresh: list[str] = []
        for message in request.messages:
            if isinstance(message, UserMessage):
                fresh.append(message.content)
            else:
                fresh.clear()
        return "echo: " + ", ".join(fresh)

    return FunctionModel(answer, latency=latency)


class Observer:
    """Everything a hub dispatches, in order, as a plain listener sees it."""

    def __init__(self, hub: Hub, pattern: str = "*") -> None:
        self.events: list[Event] = []
        hub.subscribe(pattern, self.events.append)

    def of(self, run_id: str) -> list[Event]:
        """What was dispatched of one run's own: neither its inbox nor hub events."""
        return [
            event
            for event in self.events
            if event.run_id == run_id and event.lane != "in" and not event.type.startswith("hub:")
        ]

    def types(self, run_id: str, *, but: Iterable[str] = ()) -> list[str]:
        return [event.type for event in self.of(run_id) if event.type not in but]

    def has(self, type_: str) -> Callable[[], bool]:
        """A condition to wait for."""
        return lambda: any(event.type == type_ for event in self.events)

    def first(self, type_: str) -> Any:
        return next(event for event in self.events if event.type == type_)

    def all(self, type_: str) -> list[Any]:
        return [event for event in self.events if event.type == type_]

    @property
    def run_ids(self) -> set[str]:
        return {event.run_id for event in self.events if event.run_id}


def assert_one_life(events: Iterable[Event], run_id: str) -> AgentComplete:
    """One start before every other ``agent:*`` event, one end after all; returns the end."""
    own = [x for x in events if x.run_id == run_id and x.type.startswith("agent:")]
    assert [x.type for x in own].count("agent:start") == 1, [x.type for x in own]
    assert [x.type for x in own].count("agent:complete") == 1, [x.type for x in own]
    assert isinstance(own[0], AgentStart), [x.type for x in own]
    end = own[-1]
    assert isinstance(end, AgentComplete), [x.type for x in own]
    return end
