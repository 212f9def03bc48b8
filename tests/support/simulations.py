"""Small worlds to simulate: agents with tools and children, and what users do with them."""

from typing import Any

import anyio

from hubbub import AgentDefinition, Cron, Heartbeat, PromptDefinition, SideConfig, tool
from hubbub.agents.model import ModelReply, ModelRequest, UserMessage
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation import Setup, World
from support.families import child, config

__all__ = ["busy_day", "desk", "one_tool", "two_users", "week"]


@tool
async def look(what: str) -> str:
    """Look something up."""
    await anyio.sleep(0.25)
    return f"seen {what}"


def _last(request: ModelRequest) -> UserMessage | None:
    last = request.messages[-1] if request.messages else None
    return last if isinstance(last, UserMessage) else None


def _looks(request: ModelRequest) -> ModelReply:
    """One call for what was said last, then a word."""
    if (said := _last(request)) is not None:
        return reply("", call("look", what=said.content))
    return reply("that is all")


def _delegates(request: ModelRequest) -> ModelReply:
    if (said := _last(request)) is not None and said.role == "user":
        return reply("", call("helper", message=said.content), call("look", what=said.content))
    return reply("done")


def _helps(request: ModelRequest) -> ModelReply:
    if (said := _last(request)) is not None:
        return reply("", call("look", what=said.content))
    return reply("", call("finish", result="helped"))


def _model_agent(model: FunctionModel, *tools: Any, parallel: bool = False) -> AgentDefinition:
    prompt = PromptDefinition(
        name="desk", prompt="You help.", model=model, tools=tools, parallel_tool_calls=parallel
    )
    return AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt))


def one_tool(latency: float = 1.0) -> Setup:
    """One agent, one tool."""
    return Setup.of(_model_agent(FunctionModel(_looks, latency=latency), look))


def desk() -> Setup:
    """An agent that starts a child and uses a tool at the same time."""
    helper = child(FunctionModel(_helps, latency=0.5), look)
    model = FunctionModel(_delegates, latency=0.5)
    return Setup.of(_model_agent(model, look, config(), parallel=True), helper)


async def two_users(world: World) -> None:
    """Two conversations of one message each, and one more to the first."""
    ann = await world.open("desk", "the red one", user="ann")
    ben = await world.open("desk", "the blue one", user="ben", session_key="ben")
    await world.wait(0.4)
    await world.say(ann, "the green one", user="ann", key="1")
    await world.result(ann)
    await world.say("ben", "thanks", user="ben")
    await world.result(ben)


async def busy_day(world: World) -> None:
    """Many conversations that get in each other's way."""
    runs = [await world.open("desk", f"number {n}", user=f"user {n}") for n in range(4)]
    for n in range(12):
        await world.say(runs[n % 4], f"more {n}", user=f"user {n % 4}")
        if n % 3 == 2:
            await world.wait(0.5)
    await world.interrupt(runs[0], "never mind")
    await world.wait(30)
    await world.terminate(runs[1])
    await world.close(runs[2])


def week() -> Setup:
    """A heartbeat every half hour and a cron job every hour, each answered in a word."""
    agent = _model_agent(FunctionModel(lambda _: "all is well", latency=1.0))
    schedules = (
        Heartbeat(agent, ["Look at the mail."], interval=1800),
        Cron("digest", "0 * * * *", agent, "Sum up the news."),
    )
    return Setup(agents=(agent,), schedules=schedules)
