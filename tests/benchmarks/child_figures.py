"""The figures of children: one delegation, and a thousand parents that wait."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
from figures import Aim, Figure, Loop, cost, stopwatch, versus

from hubbub import (
    AgentDefinition,
    ModelRequest,
    PromptDefinition,
    Runtime,
    ScriptedModel,
    SessionToolBinding,
    SideConfig,
    tool,
)
from hubbub.agents.model import AnsweredCall, AssistantMessage, UserMessage
from hubbub.runtime.models.scripted import call

__all__ = ["delegation", "waiting_parents"]

TASK = "Draw a tree."


@tool
async def hand_in(summary: str) -> str:
    """Hand in the result."""
    return "ok"


def _models(latency: float = 0.0) -> dict[str, ScriptedModel]:
    return {
        "parent": ScriptedModel([call("artist", message=TASK), "Here is your tree."]),
        "artist": ScriptedModel([call("hand_in", summary="A tree.")], latency=latency),
    }


@contextlib.asynccontextmanager
async def delegating(latency: float = 0.0, **options: Any) -> AsyncIterator[Runtime]:
    """A parent that has a child do the work: three model calls, one tool."""
    prompts = [
        PromptDefinition(name="parent", prompt="You delegate.", model="parent", tools=["artist"]),
        PromptDefinition(name="artist", prompt="You draw.", model="artist", tools=[hand_in]),
    ]
    artist = AgentDefinition(
        name="artist", type="dual_ai", expose_as_tool=True, max_session_turns=4,
        side_a=SideConfig(prompt="artist", session_stop=SessionToolBinding("hand_in", "summary")),
        side_b=SideConfig(prompt="artist"),
    )  # fmt: skip
    parent = AgentDefinition(name="parent", side_a=SideConfig(prompt="parent"))
    models = _models(latency)
    async with Runtime(
        [parent, artist], prompts, models=models, **{"store": "memory", **options}
    ) as runtime:
        yield runtime


async def _bare(models: dict[str, ScriptedModel]) -> None:
    """The same model calls and the same tool, without hubbub around them."""
    asked = UserMessage(content=TASK)
    reply = await models["parent"].call(ModelRequest(messages=(asked,)))
    inner = await models["artist"].call(ModelRequest(messages=(asked,)))
    (wanted,) = inner.calls
    output = await hand_in.fn(**hand_in.parse(wanted.arguments))
    (outer,) = reply.calls
    done = AnsweredCall(id="1", name=outer.name, arguments=outer.arguments, output=output)
    request = ModelRequest(messages=(asked, AssistantMessage(calls=(done,))))
    await models["parent"].call(request)


def delegation(loop: Loop, rounds: int, scale: float) -> Figure:
    async def ours(count: int) -> float:
        async with delegating(max_spawns=10**9) as runtime:
            runtime.hub.subscribe("*", lambda event: None)
            for _ in range(count // 10):
                await runtime.run("parent", TASK)
            with stopwatch() as watch:
                for _ in range(count):
                    await runtime.run("parent", TASK)
        return watch.seconds

    async def floor(count: int) -> float:
        models = _models()
        with stopwatch() as watch:
            for _ in range(count):
                await _bare(models)
        return watch.seconds

    mine, bare = versus(loop, ours, floor, int(2_000 * scale), rounds)
    return Figure(
        what="delegation to a child: 3 model calls, 1 tool, all events", loop=loop, unit="µs",
        value=1e6 / mine, floor=1e6 / bare, aim=cost(loop, 50),
        note="floor: the same calls without hubbub",
    )  # fmt: skip


def waiting_parents(loop: Loop, rounds: int, scale: float) -> Figure:
    latency = 0.05

    async def ours(count: int) -> float:
        async with delegating(latency) as runtime:
            with stopwatch(passing=True) as watch:
                async with anyio.create_task_group() as group:
                    for _ in range(count):
                        group.start_soon(runtime.run, "parent", TASK)
        return watch.seconds

    async def floor(count: int) -> float:
        models = _models(latency)
        with stopwatch(passing=True) as watch:
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(_bare, models)
        return watch.seconds

    count = int(1_000 * scale)
    mine, bare = versus(loop, ours, floor, count, min(rounds, 3))
    return Figure(
        what=f"{count:,} parents wait for {count:,} children of 50 ms", loop=loop, unit="s",
        value=count / mine, floor=count / bare, aim=Aim("<=", 0.5),
        note="floor: a bare loop of the same calls",
    )  # fmt: skip
