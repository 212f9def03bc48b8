"""Skills are checked when they are made: every problem at once, each with its path."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import hubbub
from hubbub.agents.definitions.skills import Skill, passthrough_problems
from hubbub.agents.definitions.tools import Tool, tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.hub.errors import DefinitionError
from hubbub.runtime.models.scripted import ScriptedModel


@tool
def look() -> None: ...


@tool
def answer(message: str, loud: bool = False) -> str:
    """Answer."""
    return message


def skill(**fields: Any) -> Skill:
    given = {"name": "s", "description": "Finds facts.", "instructions": "Find.", **fields}
    return Skill(**given)


def problems(**fields: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        skill(**fields)
    return list(caught.value.problems)


def test_a_skill_has_its_fields_with_their_defaults() -> None:
    made = Skill(name="research", description="Finds facts.", instructions="Find.")
    assert msgspec.structs.asdict(made) == {
        "name": "research",
        "description": "Finds facts.",
        "instructions": "Find.",
        "tools": None,
        "agents": None,
        "model": "",
        "max_iterations": 25,
        "variables": (),
        "env": {},
        "passthrough": "",
    }
    assert made.agent_name == "skill:research"
    assert not made.is_passthrough


def test_the_front_door_has_skills() -> None:
    assert hubbub.Skill is Skill


def test_a_skill_may_have_everything() -> None:
    token = VariableDefinition(name="TOKEN", required=True)
    made = skill(
        name="Re-search_2.0",
        instructions="In {{ LANGUAGE }}, find.",
        tools=[look, "search", "use_agent", "complete"],
        agents=["critic"],
        model=ScriptedModel([]),
        max_iterations=1,
        variables=[token, VariableDefinition(name="LANGUAGE", type="text")],
        env={"LANGUAGE": "Latin"},
    )
    assert made.tools == (look, "search", "use_agent", "complete")
    assert made.agents == ("critic",)
    assert made.variables[0] == token


def test_lists_and_iterators_become_tuples_and_no_list_is_not_an_empty_one() -> None:
    def names() -> Iterator[str]:
        yield from ("a", "b")

    assert skill(tools=names()).tools == ("a", "b")
    assert skill(tools=[]).tools == ()
    assert skill(agents=[]).agents == ()
    assert skill().tools is None
    assert skill().agents is None


@pytest.mark.parametrize("name", ["", "a b", "skill:a", "x" * 101, "ä", "a/b", None, 3])
def test_a_name_is_one_word(name: object) -> None:
    assert problems(name=name) == ["name: expected 1 to 100 letters, digits, '_', '-' or '.'"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"description": " "}, "description: required; say when to use the skill"),
        ({"description": None}, "description: required"),
        ({"instructions": "\n"}, "instructions: required; say what is to be done"),
        ({"instructions": 3}, "instructions: expected a text"),
        ({"tools": "look"}, "tools: expected a list, each a tool"),
        ({"tools": 3}, "tools: expected a list"),
        ({"tools": [print]}, "tools[0]: expected a tool, made with @tool, or the name of one"),
        ({"tools": ["look", look]}, "tools[1]: 'look' is listed twice"),
        ({"tools": [""]}, "tools[0]: expected a tool"),
        ({"agents": "critic"}, "agents: expected a list, each the name of an agent"),
        ({"agents": 3}, "agents: expected a list"),
        ({"agents": [3]}, "agents[0]: expected the name of an agent, not int"),
        ({"agents": ["a", "a"]}, "agents[1]: 'a' is listed twice"),
        ({"agents": ["a"], "tools": ["look"]}, "agents: its tools lack 'use_agent'"),
        ({"agents": ["a"], "tools": []}, "agents: its tools lack 'use_agent'"),
        ({"model": 3}, "model: int has no `call`; give a Model"),
        ({"model": None}, "model: NoneType has no `call`"),
        ({"max_iterations": 0}, "max_iterations: at least 1"),
        ({"max_iterations": True}, "max_iterations: at least 1"),
        ({"max_iterations": 2**63}, "max_iterations: at least 1 and below 2**63"),
        ({"max_iterations": None}, "max_iterations: at least 1"),
        ({"variables": ["A"]}, "variables[0]: expected VariableDefinition, not str"),
        ({"env": {"A": 3}}, "env.A: expected a text, not int"),
        ({"passthrough": None}, "passthrough: NoneType is not a tool; decorate the function"),
        ({"passthrough": print}, "passthrough: print is not a tool; decorate the function"),
        ({"passthrough": " "}, "passthrough: ' ' is no tool of your own"),
        (
            {"instructions": "{{A}}", "variables": [VariableDefinition(name="A")]},
            "instructions: {{A}} is secret; only a text variable enters a prompt",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(fields: dict[str, Any], problem: str) -> None:
    found = problems(**fields)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_all_problems_are_told_at_once() -> None:
    found = problems(name="", description="", tools=[3], max_iterations=0, env=None)
    assert [each.partition(":")[0] for each in found] == [
        "name", "description", "tools[0]", "max_iterations", "env",
    ]  # fmt: skip


@pytest.mark.spec("I-07")
def test_a_skill_that_may_call_skills_is_refused_when_it_is_made() -> None:
    @tool(name="use_skill")
    def sly() -> None: ...

    refused = "a skill may not call skills"
    assert problems(tools=["look", "use_skill"]) == [f"tools[1]: {refused}; leave it out"]
    assert problems(tools=[sly]) == [f"tools[0]: {refused}; leave it out"]
    assert problems(agents=["skill:s"]) == [f"agents[0]: 'skill:s' is a skill; {refused}"]


# ── passthrough ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("passthrough", [answer, "answer"])
def test_a_passthrough_skill_is_a_tool_and_needs_no_instructions(passthrough: Any) -> None:
    made = skill(instructions="", passthrough=passthrough, env={"A": "b"})
    assert made.is_passthrough
    assert made.passthrough is passthrough
    assert skill(instructions="For people.", passthrough=passthrough).is_passthrough


def test_a_passthrough_skill_has_no_model_that_could_use_tools() -> None:
    found = problems(passthrough="answer", tools=(), agents=(), model="anthropic:x")
    assert [each.partition(":")[0] for each in found] == ["tools", "agents", "model"]
    assert found[0] == "tools: a passthrough skill has no model that could use it; leave it out"


@pytest.mark.parametrize("name", ["use_skill", "use_agent", "complete", "interrupt"])
def test_a_passthrough_tool_is_none_that_comes_with_the_runtime(name: str) -> None:
    @tool(name=name)
    def own(message: str) -> None: ...

    assert problems(passthrough=name)[0].startswith(f"passthrough: {name!r} is no tool of your own")
    assert problems(passthrough=own)[0].startswith(f"passthrough: {name!r} belongs to the")


def test_a_passthrough_tool_takes_a_message_alone() -> None:
    @tool
    def number(message: int) -> None: ...

    @tool
    def two(message: str, other: str, third: int) -> None: ...

    @tool
    def optional(message: str | None = None) -> None: ...

    def found(passthrough: Tool[..., Any]) -> list[str]:
        assert list(passthrough_problems(passthrough)) == problems(passthrough=passthrough)
        return problems(passthrough=passthrough)

    assert found(look) == ["passthrough: 'look' has no parameter `message`; add `message: str`"]
    assert found(number) == ["passthrough: `message` of 'number' takes no text; make it a str"]
    assert found(two) == ["passthrough: 'two' also requires `other`, `third`; give them defaults"]
    assert list(passthrough_problems(answer)) == []
    assert list(passthrough_problems(optional)) == []
