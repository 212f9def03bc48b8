"""Code that works on asyncio alone is told of, where a model would only read of an error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hubbub import AgentDefinition, PromptDefinition, SideConfig, tool
from hubbub.agents.definitions.hooks import Hook
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation import Open, Setup, SimulationFailed, simulate
from hubbub.runtime.simulation.loop.asyncio_only import AsyncioOnly

STEPS = [Open(agent="ada", input="hi")]


async def sleeps() -> object:
    await asyncio.sleep(1)
    return None


async def yields() -> object:
    await asyncio.sleep(0)
    return None


async def waits_for_a_lock() -> object:
    lock = asyncio.Lock()
    await lock.acquire()
    return await lock.acquire()


async def waits_in_a_queue() -> object:
    return await asyncio.Queue[int]().get()


async def asks_for_the_loop() -> object:
    # What ``asyncio.get_event_loop()`` does from Python 3.14 on; before, it makes a loop.
    raise RuntimeError("There is no current event loop in thread 'MainThread'.")


async def uses_a_thread() -> object:
    return await asyncio.to_thread(int)


def with_tool(work: Callable[[], Awaitable[object]]) -> Setup:
    @tool
    async def look() -> str:
        """Look."""
        return str(await work())

    model = FunctionModel(lambda r: "yes" if len(r.messages) > 1 else reply("", call("look")))
    prompt = PromptDefinition(name="p", prompt="You help.", model=model, tools=[look])
    return Setup.of(AgentDefinition(name="ada", side_a=SideConfig(prompt=prompt)))


@pytest.mark.parametrize(
    "work", [sleeps, yields, waits_for_a_lock, waits_in_a_queue, asks_for_the_loop, uses_a_thread]
)
def test_a_tool_that_awaits_asyncio_is_named_in_one_line(
    work: Callable[[], Awaitable[object]],
) -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(STEPS, with_tool(work))
    assert isinstance(failed.value.__cause__, AsyncioOnly)
    (problem,) = failed.value.problems
    assert "the tool 'look' of 'ada' is for asyncio only, and simulations run on Trio" in problem
    assert "anyio" in problem and "\n" not in problem
    assert "asyncio.asked_for" in [each.event for each in failed.value.history.logged]


def test_what_else_goes_wrong_is_told_first_and_the_log_tells_of_asyncio() -> None:
    async def scenario(world: Any) -> None:
        run = await world.open("ada", "hi")
        outcome = await world.result(run)
        assert outcome.output == "no"

    with pytest.raises(SimulationFailed, match="AssertionError") as failed:
        simulate(scenario, with_tool(sleeps))
    (logged,) = (x for x in failed.value.history.logged if x.event == "asyncio.asked_for")
    assert logged.facts["who"] == "the tool 'look' of 'ada'"


def test_agents_and_hooks_are_named_too() -> None:
    async def execute(input: Any, ctx: Any) -> None:
        await sleeps()

    async def hook(state: Any, value: Any) -> None:
        await sleeps()

    prompt = PromptDefinition(
        name="p", prompt="You help.", model=FunctionModel(lambda _: "yes"), hooks=["mine"]
    )
    hooked = AgentDefinition(name="ada", side_a=SideConfig(prompt=prompt))
    with pytest.raises(SimulationFailed, match="the agent 'ada' is for asyncio only"):
        simulate(STEPS, Setup.of(AgentDefinition(name="ada", execute=execute)))
    with pytest.raises(SimulationFailed, match=r"'mine'.*is for asyncio only"):
        simulate(STEPS, Setup.of(hooked, hooks=[Hook("mine", "filter_messages", hook)]))


def test_a_tool_that_says_such_words_or_raises_something_else_is_none_of_it() -> None:
    async def says() -> str:
        return "RuntimeError: no running event loop"

    async def raises() -> None:
        raise RuntimeError("no running water")

    for work in (says, raises):
        simulate(STEPS, with_tool(work))
