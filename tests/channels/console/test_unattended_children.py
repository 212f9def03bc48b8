"""The input ends while a run outside the stack asks: the console leaves, and what waits stays."""

from functools import partial

import anyio
import pytest
from support.agents import model_agent

from hubbub import AgentDefinition, RunContext, Runtime, agent, tool
from hubbub.channels import run_console
from hubbub.runtime.models.scripted import ScriptedModel, call

pytestmark = pytest.mark.anyio


@tool(approval=True)
async def refund(order: int) -> str:
    """Pay an order back."""
    return f"refunded {order}"


@tool
async def slow() -> str:
    """Take an hour."""
    await anyio.sleep(3600)
    return "slow"


def desk(name: str = "desk") -> AgentDefinition:
    return model_agent(ScriptedModel([call("refund", order=7), "Paid."]), refund, name=name)


def main(*, blocking=True, script=()):
    asked = desk()
    model = ScriptedModel([*script, call("desk", message="Refund it."), "It is done.", "Paid."])
    return [model_agent(model, asked.as_tool(blocking=blocking), slow, name="main"), asked]


def manager():
    """An agent whose child has a child that asks."""
    inner, asked = main()
    model = ScriptedModel([call("main", message="Have it refunded."), "It is done."])
    return [model_agent(model, inner.as_tool(), name="manager"), inner, asked]


def code(seconds):
    @agent("code")
    async def code(input, ctx: RunContext):
        child = ctx.spawn("desk", "Refund it.")
        await anyio.sleep(seconds)
        return (await child.result()).output

    return [code, desk()]


@pytest.mark.spec("K-03", "U-03")
@pytest.mark.parametrize(
    "agents",
    [
        main, manager, partial(code, 0), partial(code, 3600),
        partial(main, script=[call("slow")]), partial(main, blocking=False),
    ],
)  # fmt: skip
async def test_a_console_whose_input_ends_leaves_what_a_child_asks_to_a_later_one(
    journal, ports, pipe, later_pipe, agents
):
    agents = agents()
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        talk = partial(run_console, rt.hub, agents[0].name, session_key="web_ada")
        pipe.type("Go.")
        pipe.end()
        with anyio.fail_after(5_000):
            assert await talk(reader=pipe, writer=pipe) == 0
        (conversation,) = await rt.conversations()
        assert [x.kind for x in conversation.waits_for if x.prompt_id] == ["approval"]
        later_pipe.type("approve")
        later_pipe.end()
        with anyio.fail_after(5_000):
            assert await talk(reader=later_pipe, writer=later_pipe) == 0
        done = await rt.hub.read(types="agent:tool:complete")
        assert "refunded 7" in [x.output for x in done]


@pytest.mark.spec("K-03", "U-03")
@pytest.mark.parametrize("agents", [main, manager, partial(code, 0), partial(code, 3600)])
async def test_without_a_key_what_a_child_asks_is_given_up(journal, ports, pipe, agents):
    agents = agents()
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        pipe.type("Go.")
        pipe.end()
        with anyio.fail_after(5_000):
            await run_console(rt.hub, agents[0].name, reader=pipe, writer=pipe)
        assert "no more input to answer" in pipe.aside
        done = await rt.hub.read(types="agent:tool:complete")
        assert "refunded 7" not in [x.output for x in done]
