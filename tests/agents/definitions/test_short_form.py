"""``Agent(…)``: one call makes what the long form makes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import (
    Agent,
    AgentDefinition,
    ModelSettings,
    PromptDefinition,
    Runtime,
    ScriptedModel,
    SessionToolBinding,
    SideConfig,
    Skill,
    VariableDefinition,
    tool,
)
from hubbub.agents.compaction import Compaction
from hubbub.agents.definitions.short_form import AgentOptions
from hubbub.agents.packaging.pack import pack, unpack
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import Limits

MODEL = ScriptedModel([])

OF_TWO_MODELS_OR_CODE = {
    "execute", "emits_start_complete", "on_restart", "side_a", "side_b", "type",
    "max_session_turns",
}  # fmt: skip
"""Fields of the long form that have no meaning for one model."""


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return where


@tool
def stop(why: str) -> str:
    """Stop."""
    return why


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,7}", fullmatch=True)
BOUND = st.sampled_from(["stop", SessionToolBinding("stop", "why")])
OPTIONS: Mapping[str, st.SearchStrategy[Any]] = {
    "tools": st.sampled_from([(), [look], [look, stop], ["named"]]),
    "agents": st.lists(NAMES, unique=True, max_size=2),
    "skills": st.lists(NAMES, unique=True, max_size=2),
    "variables": st.lists(st.builds(VariableDefinition, name=NAMES), max_size=1),
    "required_schema": st.sampled_from([None, {"type": "object", "properties": {}}]),
    "parallel_tool_calls": st.booleans(),
    "tool_choice": st.sampled_from(["auto", "any", "none"]),
    "provider_options": st.dictionaries(NAMES, st.integers(), max_size=2),
    "cache": st.sampled_from([True, False, "5m", "1h"]),
    "settings": st.none()
    | st.builds(
        ModelSettings,
        temperature=st.none() | st.floats(0, 2),
        stop=st.lists(NAMES, max_size=2),
        thinking=st.sampled_from([None, "off", "high", 2048]),
        seed=st.none() | st.integers(0, 9),
    ),
    "compaction": st.sampled_from([True, False, Compaction(at=0.5)]),
    "limits": st.sampled_from([None, Limits(model_calls=3)]),
    "run_limits": st.sampled_from([None, Limits(cost=1.5, seconds=9)]),
    "label": TEXTS,
    "stop_on_response": st.booleans(),
    "stop_tool": st.just("look"),
    "stop_tool_response_property": st.none(),
    "max_steps": st.none() | st.integers(1, 9),
    "session_stop": BOUND,
    "session_fail": st.just("fail"),
    "session_status": st.just("status"),
    "title": TEXTS,
    "description": TEXTS,
    "icon": TEXTS,
    "expose_as_tool": st.booleans(),
    "supports_checkpointing": st.booleans(),
    "tool_description": TEXTS,
    "env": st.dictionaries(NAMES, TEXTS, max_size=2),
    "hooks": st.lists(NAMES, unique=True, max_size=2),
    "package_name": TEXTS,
    "version": TEXTS,
    "author": TEXTS,
    "license": TEXTS,
}


def in_long_form(name: str, prompt: str, **options: Any) -> AgentDefinition:
    """What a user had to write before."""
    of_agent = {k: v for k, v in options.items() if k in AgentDefinition.__struct_fields__}
    of_side = {k: v for k, v in options.items() if k in SideConfig.__struct_fields__}
    rest = {k: v for k, v in options.items() if k not in of_agent and k not in of_side}
    definition = PromptDefinition(name=name, prompt=prompt, model=MODEL, **rest)
    return AgentDefinition(name=name, side_a=SideConfig(prompt=definition, **of_side), **of_agent)


@pytest.mark.spec("U-02")
@settings(max_examples=examples(200), deadline=None)
@given(st.fixed_dictionaries({}, optional=OPTIONS), TEXTS)
def test_one_call_makes_what_the_long_form_makes(options: Any, prompt: str) -> None:
    assert Agent("a", prompt, model=MODEL, **options) == in_long_form("a", prompt, **options)


@pytest.mark.spec("U-02")
def test_every_field_of_the_three_layers_is_an_option() -> None:
    layers = (PromptDefinition, SideConfig, AgentDefinition)
    fields = {field for layer in layers for field in layer.__struct_fields__}
    own = {"name", "prompt", "model", "tools", "output"}
    assert set(AgentOptions.__annotations__) == fields - OF_TWO_MODELS_OR_CODE - own
    assert set(OPTIONS) == {*AgentOptions.__annotations__, "tools"}, "draw the new option here"


@pytest.mark.spec("U-02", "D-01")
def test_all_problems_of_a_call_are_reported_at_once_by_the_options_names() -> None:
    with pytest.raises(DefinitionError) as caught:
        Agent("a b", 5, model="", tools=[len], max_step=3, max_steps=0, hooks="x")  # type: ignore[arg-type, list-item, call-arg]
    assert caught.value.subject == "agent 'a b'"
    assert caught.value.problems == (
        "max_step: Agent has no such option; did you mean 'max_steps'?",
        "name: expected 1 to 128 letters, digits, '_', '-', '.' or ':'",
        "prompt: expected a text",
        'model: give "provider:name", a registered name, or a Model',
        "tools[0]: len is not a tool; decorate the function with @tool",
        "max_steps: at least 1 and below 2**63",
        "hooks: expected a list of hook ids",
    )


@pytest.mark.spec("U-02")
def test_two_prompts_of_one_name_are_refused_wherever_they_meet() -> None:
    made = Agent("support", "You help.", model="m")
    other = PromptDefinition(name="support", prompt="You do not.", model="m")
    refused = "agents.support.side_a.prompt: another prompt is named 'support', too"
    with pytest.raises(DefinitionError, match=refused):
        Definitions([made], [other])
    with pytest.raises(DefinitionError, match=r"another prompt is named 'support'"):
        Definitions([made, AgentDefinition(name="b", side_a=SideConfig(prompt=other))])


@pytest.mark.spec("U-02", "D-08")
def test_it_packs_and_comes_back() -> None:
    made = Agent("support", "You help.", model="m", tools=["look"], max_steps=3, title="Support")
    data = pack(Definitions([made], tools=[look]), "support")
    again = unpack(data, tools=[look])
    assert pack(Definitions(again.agents, again.prompts, again.tools), "support") == data


@pytest.mark.anyio
@pytest.mark.spec("U-02")
async def test_a_runtime_runs_it_beside_agents_in_long_form() -> None:
    short = Agent("short", "You help.", model=ScriptedModel(["Hello."]))
    prompt = PromptDefinition(name="p", prompt="You help.", model=ScriptedModel(["Good day."]))
    long = AgentDefinition(name="long", side_a=SideConfig(prompt=prompt))
    async with Runtime([short, long], store="memory") as rt:
        assert (await rt.run(short, "Hi.")).output == "Hello."
        assert (await rt.run("long", "Hi.")).output == "Good day."


@pytest.mark.spec("U-02")
def test_skills_may_be_given_as_they_are() -> None:
    skill = Skill(name="writer", description="Writes.", instructions="Write.", model=MODEL)
    made = Agent("main", "You lead.", model=MODEL, skills=[skill])
    assert Definitions([made]).side("main").skills == {"writer": skill}


@pytest.mark.spec("U-02")
def test_the_first_program_of_the_readme_has_eight_lines_or_fewer() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    first = readme.partition("```python\n")[2].partition("```")[0]
    assert "Agent(" in first
    assert len([line for line in first.splitlines() if line.strip()]) <= 8
