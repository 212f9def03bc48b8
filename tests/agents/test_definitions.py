"""Definitions are checked when they are made: every problem at once, each with its path."""

from typing import Any

import pytest

from hubbub.agents.definitions import (
    AgentDefinition,
    PromptDefinition,
    SideConfig,
    agent,
)
from hubbub.agents.resolution import Definitions
from hubbub.agents.tools import tool
from hubbub.hub.errors import DefinitionError, UnknownAgent
from hubbub.runtime.scripted_model import ScriptedModel

MODEL = ScriptedModel([])


@tool
def look() -> None: ...


async def execute(input: Any, ctx: Any) -> None: ...


def prompt(**fields: Any) -> PromptDefinition:
    return PromptDefinition(**{"name": "p", "prompt": "Help.", "model": MODEL, **fields})


def problems(make: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        make()
    return "\n".join(caught.value.problems)


@pytest.mark.spec("R-01")
def test_an_agent_has_exactly_one_body() -> None:
    side = SideConfig(prompt="p")
    assert AgentDefinition(name="a", execute=execute).is_code
    assert not AgentDefinition(name="a", side_a=side).is_code
    assert "give one of them" in problems(lambda: AgentDefinition(name="a"))
    assert "not both" in problems(lambda: AgentDefinition(name="a", execute=execute, side_a=side))


@pytest.mark.spec("R-01")
def test_the_decorator_keeps_the_docstring_and_the_options() -> None:
    @agent("coder", emits_start_complete=True, on_restart="resume")
    async def coder(input: str, ctx: Any) -> None:
        """Writes code."""

    assert (coder.name, coder.description, coder.on_restart) == ("coder", "Writes code.", "resume")
    assert coder.emits_start_complete


def test_all_problems_are_told_at_once_with_their_paths() -> None:
    text = problems(
        lambda: AgentDefinition(
            name="bad name", side_a=SideConfig(prompt="", max_steps=0), emits_start_complete=True,
            on_restart="resume", type="trio",  # type: ignore[arg-type]
        )
    )  # fmt: skip
    for path in ("name:", "side_a.prompt:", "side_a.max_steps:", "emits_start_complete:",
                 "on_restart:", "type:"):  # fmt: skip
        assert path in text, text
    text = problems(lambda: prompt(name="", prompt=7, model="", tools=[print, "look"]))
    for path in ("name:", "prompt:", "model:", "tools[0]: print is no tool"):
        assert path in text, text
    assert "has no `call`" in problems(lambda: prompt(model=object()))
    assert "tools:" in problems(lambda: prompt(tools="look"))


def test_names_are_resolved_when_everything_is_known() -> None:
    side = SideConfig(prompt="p", max_steps=7)
    definitions = Definitions(
        [AgentDefinition(name="a", side_a=side)], [prompt(tools=["look"])], [look]
    )
    active = definitions.side("a")
    assert (active.prompt.name, dict(active.tools), active.max_steps) == ("p", {"look": look}, 7)
    assert definitions.names == ("a",)
    default = Definitions([AgentDefinition(name="a", side_a=SideConfig(prompt=prompt()))])
    assert default.side("a").max_steps == 250


def test_what_does_not_fit_together_is_told_with_what_is_known() -> None:
    a = AgentDefinition(name="a", side_a=SideConfig(prompt="q"))
    b = AgentDefinition(name="b", side_a=SideConfig(prompt="p"))
    wrong = prompt(tools=["look", "dig"], tool_choice="x")
    text = problems(
        lambda: Definitions([a, b, a, "c"], [wrong], [look])  # type: ignore[list-item]
    )
    assert "agents.a.side_a.prompt: no prompt named 'q'; known: p" in text
    assert "agents.b.side_a.prompt.tools: no tool named 'dig'; known: look" in text
    assert "agents.b.side_a.prompt.tool_choice: no tool named 'x'" in text
    assert "agents[2]: the name 'a' is taken" in text
    assert "agents[3]: AgentDefinition wanted, not str" in text
    twice = AgentDefinition(name="t", side_a=SideConfig(prompt=prompt(tools=[look, look])))
    assert "two tools are named 'look'" in problems(lambda: Definitions([twice]))


def test_an_unknown_agent_is_told_with_the_known_ones() -> None:
    definitions = Definitions([AgentDefinition(name="a", execute=execute)])
    with pytest.raises(UnknownAgent, match="no agent named 'b'; known agents: a"):
        definitions.agent("b")
    with pytest.raises(UnknownAgent):
        definitions.side("a")
