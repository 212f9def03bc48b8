"""A fork of the record by which a run takes what its child came to: the call has its result."""

import pytest
from support.families import config

from hubbub import (
    AgentDefinition,
    FunctionModel,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    SideConfig,
)
from hubbub.agents.model import UserMessage
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import Setup, World, simulate
from hubbub.runtime.simulation.story.history import StoreName


def answer(request: ModelRequest) -> ModelReply:
    """It starts as many helpers as it is told to, and then writes to each."""
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return reply("They have answered.")
    what, _, count = str(last.content).partition(" ")
    if what == "begin":
        arguments = {"agent": "helper", "arguments": {"message": "Hello."}}
        names = [f"helper {number}" for number in range(int(count))]
        return reply("", *(call("subagent_create", name=name, **arguments) for name in names))
    lines = [x for note in request.system_notes for x in note.splitlines() if x.startswith("- ")]
    known = [line[2:].partition(":")[0] for line in lines]
    return reply(
        "", *(call("subagent_message", reference=each, message="Go on.") for each in known)
    )


def agent(name: str, model: FunctionModel, *tools: object) -> AgentDefinition:
    prompt = PromptDefinition(
        name=name, prompt="You work.", model=model, tools=tools, parallel_tool_calls=True
    )
    return AgentDefinition(
        name=name, expose_as_tool=True, tool_description=name, side_a=SideConfig(prompt=prompt)
    )


def setup() -> Setup:
    helper = agent("helper", FunctionModel(lambda _: reply("Here."), latency=1.0))
    desk = FunctionModel(answer, latency=0.5)
    return Setup.of(agent("desk", desk, config("helper", stays=True)), helper)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("helpers", [1, 2])
def test_a_fork_of_any_record_of_a_conversation_with_its_children_comes_to_an_end(
    store: StoreName, helpers: int
) -> None:
    forks: list[str] = []

    async def scenario(world: World) -> None:
        run_id = await world.open("desk", f"begin {helpers}")
        await world.wait(10)
        await world.say(run_id, "write to them")
        await world.wait(10)
        last = len((await world.read()).own[run_id])
        forks.extend([await world.fork(run_id, seq) for seq in range(2, last + 1)])

    history = simulate(scenario, setup, store=store)
    assert len(forks) > 15 and not [x for x in forks if history.threads[x].in_session]
