"""The digest of a definition: the same wherever it is computed, another where anything is said
otherwise, and nothing secret in it."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed
from support.agents import model_agent

from hubbub import Agent, FunctionModel, agent, tool
from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.mcp_server import mcp
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.digest import definition_digest, definition_digests
from hubbub.agents.settings import ModelSettings
from hubbub.hub.events import Limits


@tool
def look(place: str, deep: bool = False) -> str:
    """Look somewhere."""
    return place


def look_at(thing: str) -> str:
    """Look somewhere."""
    return thing


HELPER = Agent("helper", "You help.", model="anthropic:a")
SIDE = SideConfig(prompt="main", session_stop="look")
PROMPT = PromptDefinition(
    name="main", prompt="You look.", model=["anthropic:a", ModelChoice("openai:b")],
    tools=[look, HELPER.as_tool()], variables=[VariableDefinition(name="TOKEN")],
    provider_options={"a": {"b": [1, 2.5, None]}}, env={"TOKEN": "hidden"},
)  # fmt: skip
DESK = AgentDefinition(name="desk", side_a=SIDE, env={"KEY": "hidden"})


def digest(agent: AgentDefinition = DESK, prompt: PromptDefinition = PROMPT, **known: Any) -> str:
    return definition_digest(Definitions([agent], [prompt], **known), agent.name)


def prompted(**fields: Any) -> str:
    return digest(prompt=changed(PROMPT, **fields))


DIFFERENT = {
    "its prompt's text": lambda: prompted(prompt="You look away."),
    "its prompt's name": lambda: digest(
        changed(DESK, side_a=changed(SIDE, prompt="other")), changed(PROMPT, name="other")
    ),
    "the order of its models": lambda: prompted(model=["openai:b", "anthropic:a"]),
    "the settings of a model": lambda: prompted(
        model=["anthropic:a", ModelChoice("openai:b", settings=ModelSettings(seed=1))]
    ),
    "its settings": lambda: prompted(settings=ModelSettings(temperature=0)),
    "its options": lambda: prompted(provider_options={"a": {"b": [1, 2.5]}}),
    "its limits": lambda: prompted(limits=Limits(model_calls=100)),
    "its compaction": lambda: prompted(compaction=False),
    "its variables": lambda: prompted(variables=[VariableDefinition(name="TOKEN", required=True)]),
    "which variables have values": lambda: prompted(env={}),
    "a tool less": lambda: prompted(tools=[look]),
    "a server": lambda: prompted(tools=[look, HELPER.as_tool(), mcp("uvx thing")]),
    "how a subagent is called": lambda: prompted(tools=[look, HELPER.as_tool(blocking=False)]),
    "a tool's description": lambda: prompted(
        tools=[replace(look, description="Else."), HELPER.as_tool()]
    ),
    "a tool's schema": lambda: prompted(
        tools=[tool(look_at, name="look"), HELPER.as_tool()]
    ),
    "a tool's approval": lambda: prompted(
        tools=[tool(look.fn, approval=True), HELPER.as_tool()]
    ),
    "its arguments": lambda: prompted(
        required_schema={"type": "object", "properties": {"a": {"type": "string"}}}
    ),
    "a skill": lambda: prompted(skills=[Skill(name="s", description="It.", instructions="Do.")]),
    "a hook": lambda: digest(
        changed(DESK, hooks=["h"]), hooks=[Hook("h", "after_session", lambda state, value: None)]
    ),
    "its steps": lambda: digest(changed(DESK, side_a=changed(SIDE, max_steps=3))),
    "what ends it": lambda: digest(changed(DESK, side_a=changed(SIDE, session_stop=None))),
    "what it may use": lambda: digest(changed(DESK, run_limits=Limits(model_calls=5))),
    "what it is called with": lambda: digest(changed(DESK, tool_description="For desks.")),
    "its name": lambda: digest(changed(DESK, name="other")),
}  # fmt: skip


def test_whatever_is_said_otherwise_makes_another_digest() -> None:
    found = {what: make() for what, make in DIFFERENT.items()}
    assert [what for what, each in found.items() if each == digest()] == []
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(
    "same",
    [
        lambda: prompted(),
        lambda: prompted(provider_options={"a": {"b": (1, 2.5, None)}}),
        lambda: prompted(model=("anthropic:a", "openai:b")),
        lambda: prompted(compaction=True, cache=True, settings=None),
        lambda: prompted(tools=[replace(look, fn=print), HELPER.as_tool()]),
        lambda: digest(changed(DESK, title="Desk", version="2", author="me", icon="x")),
        lambda: prompted(tools=[look, changed(HELPER, title="else").as_tool()]),
    ],
)
def test_what_is_not_said_and_what_is_for_people_does_not_count(same: Any) -> None:
    assert same() == digest()


def test_no_value_of_a_variable_or_a_header_and_no_password_is_in_it() -> None:
    def secretive(word: str) -> str:
        server = mcp(f"https://host/mcp?key={word}", name="s", headers={"Authorization": word})
        local = mcp(["/opt/thing", "-v"], name="l", env={"KEY": word}, cwd=f"/home/{word}")
        prompt = changed(
            PROMPT, tools=[look, HELPER.as_tool(), server, local],
            model=f"openai:m@https://me:{word}@host/v1", env={"TOKEN": word},
        )  # fmt: skip
        return digest(changed(DESK, env={"KEY": word}), prompt)

    assert secretive("one") == secretive("other")


def test_where_the_program_of_a_server_lies_is_the_machines_own() -> None:
    def started(*command: str) -> str:
        return prompted(tools=[look, HELPER.as_tool(), mcp(list(command), name="s")])

    assert started("/usr/bin/serve", "x") == started("/opt/serve", "x") != started("serve", "y")


def test_of_code_the_names_and_texts_count() -> None:
    def one(name: str, text: str) -> AgentDefinition:
        scope: dict[str, Any] = {}
        source = f"async def {name}(input, ctx):\n    'says it'\n    return [{text} for _ in 'a']"
        exec(source, scope)
        return agent("code")(scope[name])

    def of(name: str, text: str) -> str:
        return definition_digest(Definitions([one(name, text)]), "code")

    assert of("f", "'a'") == of("f", "'a'")
    assert len({of("f", "'a'"), of("f", "'b'"), of("g", "'a'"), of("f", "len")}) == 4


def test_model_objects_count_by_name() -> None:
    def of(name: str) -> str:
        return definition_digest(
            Definitions([model_agent(FunctionModel(lambda _: "hi", name=name), name="bot")]), "bot"
        )

    assert of("a") == of("a") != of("b")


def test_subagents_have_digests_of_their_own() -> None:
    def of(prompt: str) -> dict[str, str]:
        helper = Agent("helper", prompt, model="anthropic:a")
        lead = Agent("lead", "You lead.", model="anthropic:a", tools=[helper.as_tool()])
        return dict(definition_digests(Definitions([lead])))

    one, other = of("You help."), of("You do not.")
    assert one["lead"] == other["lead"]
    assert one["helper"] != other["helper"]


SCRIPT = "from test_digest import digest; print(digest())"


def test_each_process_computes_the_same() -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    for seed in ("0", "77"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.stdout.strip() == digest()
