"""Agents that others hold (``as_tool``), in simulations and recordings, given and not given."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Agent, AgentDefinition, FunctionModel, Runtime
from hubbub.__main__ import main
from hubbub.runtime.loading.agents import load_agents, with_model
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import ModelFault, Open, Setup, simulate
from hubbub.runtime.simulation.playback.play import replay_recording
from hubbub.runtime.simulation.story.budgets import Budgets
from hubbub.runtime.simulation.strategies.scripts import scripted
from hubbub.runtime.simulation.strategies.worlds import opened_agents
from hubbub.runtime.stores.open import sqlite_store

MODULE = '''
from hubbub import Agent, FunctionModel, RunContext, agent, tool
from hubbub.runtime.models.scripted import call, reply

LIVE = True

@tool
async def look() -> str:
    """Look."""
    assert LIVE, "a tool was called"
    return "seen"

def works(request):
    assert LIVE, "a model was asked"
    return reply("", call("look")) if len(request.messages) == 1 else reply("worked")

def leads(request):
    assert LIVE, "a model was asked"
    done = len(request.messages) - 1
    return reply("", call("sub", message="go")) if not done else reply("led")

@agent("coder")
async def coder(input: str, ctx: RunContext) -> str:
    return f"coded {input}"

{sub} = Agent("sub", "x", model=FunctionModel(works), tools=[look])
lead = Agent("lead", "x", model=FunctionModel(leads), tools=[{sub}.as_tool(), coder.as_tool()])
'''


def works(request: Any) -> Any:
    return reply("worked")


def leads(request: Any) -> Any:
    said = len(request.messages)
    return reply("", call("sub", message="go")) if said == 1 else reply("led")


def sub() -> AgentDefinition:
    return Agent("sub", "x", model=WORKS, max_steps=7)


WORKS = FunctionModel(works)
SUB = sub()
LEAD = Agent("lead", "x", model=FunctionModel(leads), tools=[SUB.as_tool()])
TOP = Agent("top", "x", model=FunctionModel(leads), tools=[SUB.as_tool(), LEAD.as_tool()])
GIVEN = [(LEAD,), (LEAD, SUB), (SUB, LEAD), (LEAD, sub()), (TOP,), (TOP, LEAD, SUB), (SUB, TOP)]


@pytest.mark.spec("U-02")
@pytest.mark.parametrize("given", GIVEN)
def test_an_agent_that_is_held_may_be_given_too(given: tuple[AgentDefinition, ...]) -> None:
    opened = "top" if TOP in given else "lead"
    history = simulate([Open(agent=opened, input="x")], Setup.of(*given))
    assert sorted(x.agent for x in history.runs.values()) == sorted(("sub", opened))


@pytest.mark.parametrize("given", GIVEN[:4])
def test_faults_strike_the_models_of_held_agents(given: tuple[AgentDefinition, ...]) -> None:
    fault = ModelFault(agent="sub", kind="error")
    history = simulate([Open(agent="lead", input="x")], Setup.of(*given), faults=[fault])
    assert any(event.type == "agent:retry" for event in history.events)


@pytest.mark.parametrize("given", GIVEN[:4])
def test_scripts_and_limits_reach_held_agents(given: tuple[AgentDefinition, ...]) -> None:
    setup = scripted(Setup.of(*given), {"sub": [reply("of the script")]})
    history = simulate([Open(agent="lead", input="x")], setup)
    assert "of the script" in [getattr(event, "text", "") for event in history.events]
    assert Budgets.of(setup).max_steps == {"sub": 7}
    assert opened_agents(setup) == ("lead",)


def test_agents_that_hold_each_other_hundreds_deep_are_simulated() -> None:
    last = SUB
    for number in range(150):
        last = Agent(f"a{number}", "x", model=WORKS, tools=[last.as_tool()])
    simulate([Open(agent="a149", input="x")], Setup.of(last, SUB))


@pytest.fixture(params=["sub", "_held.sub"])
def loaded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A module that has the held agent, or does not."""
    text = MODULE.replace("{sub}", request.param)
    if request.param != "sub":
        text = text.replace("\n_held.sub =", "\nclass _held: pass\n_held.sub =")
    (tmp_path / "held_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import held_module  # type: ignore[import-not-found]

    yield held_module
    del sys.modules["held_module"]


@pytest.mark.parametrize("give", [True, False])
def test_a_recording_of_a_held_agent_is_a_test_that_asks_no_model(loaded: Any, give: bool) -> None:
    held = loaded.lead.side_a.prompt.tools[0].agent
    given = [loaded.lead, held] if give else [loaded.lead]

    async def record() -> str:
        store = sqlite_store(Path("store"), mirror=False)
        async with Runtime(given, store=store) as rt:
            run = await rt.start("lead", "go")
            await run.result()
            return run.run_id

    root = anyio.run(record)
    arguments = ["--store", "sqlite:store", "--agents", "held_module:lead", "--out", "test_it.py"]
    assert main(["export", root, "--as-test", *arguments]) == 0
    loaded.LIVE = False
    for agents in ("held_module:lead", ""):
        playback = replay_recording("test_it.jsonl", agents, folder=Path())
        playback.check()
        assert 'lead/sub, step 1: look() → "seen"' in playback.recorded


@pytest.mark.parametrize("meant", ["lead", "sub"])
def test_another_model_for_an_agent_is_that_of_the_held_one(loaded: Any, meant: str) -> None:
    if not hasattr(loaded, meant):
        return  # Not in the module, so not by this name.
    changed = with_model(load_agents(f"held_module:{meant}"), "other:model")
    known = Setup(agents=changed.agents, prompts=changed.prompts).definitions()
    assert {side.prompt.model for (name, _), side in known.sides.items() if name == meant} == {
        "other:model"
    }
