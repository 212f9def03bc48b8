"""Every way in which work with users' code in it is cancelled while that cleans up.

``CANCELLATIONS`` is the table: each has the code at its place wait, has it cancelled, and returns
when the clean-up, which raises, is over.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import anyio
from support.agents import model_agent

from hubbub import AgentDefinition, CustomEvent, RunContext, Runtime, agent
from hubbub.agents.definitions.tools import Tool, tool
from hubbub.agents.model import ModelReply, ModelRequest, OnDelta
from hubbub.channels import Channel, Channels
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

__all__ = ["CANCELLATIONS", "Cancellation", "CleanUp", "agents_that_clean_up"]


class CleanUp:
    """Waits until it is cancelled, and then raises what ``trap`` makes."""

    def __init__(self, trap: Callable[[], BaseException]) -> None:
        self._trap = trap
        self.begun = anyio.Event()
        self.over = anyio.Event()

    async def work(self, *_: Any) -> None:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.over.set()
            raise self._trap()

    def again(self) -> None:
        self.begun, self.over = anyio.Event(), anyio.Event()


Cancellation: TypeAlias = Callable[[Runtime, CleanUp], Awaitable[None]]


class WaitingModel:
    """Waits instead of answering."""

    name = "waiting"

    def __init__(self, clean_up: CleanUp) -> None:
        self._clean_up = clean_up

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        await self._clean_up.work()
        raise AssertionError


def agents_that_clean_up(clean_up: CleanUp) -> list[AgentDefinition]:
    """The agents of ``CANCELLATIONS``."""

    def using(one: Tool[..., Any], name: str) -> AgentDefinition:
        model = ScriptedModel([reply("", call(one.name)), "so it went"], repeat=True)
        return model_agent(model, one, name=name)

    @tool
    async def works() -> None:
        await clean_up.work()

    @tool(timeout=0.5)
    async def works_in_time() -> None:
        await clean_up.work()

    @tool
    async def works_in_a_group() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.start_soon(clean_up.work)

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> None:
        await clean_up.work()

    @agent("code_in_a_step")
    async def in_a_step(input: Any, ctx: RunContext) -> None:
        await ctx.step("s", clean_up.work)

    @agent("handles")
    async def handles(input: Any, ctx: RunContext) -> None:
        ctx.hub.subscribe("session:message", clean_up.work)
        await anyio.sleep_forever()

    @agent("keeper")
    async def keeper(input: Any, ctx: RunContext) -> str:
        async for message in ctx.messages():
            return str(message.content)
        return ""

    return [
        using(works, "uses"), using(works_in_time, "uses_in_time"),
        using(works_in_a_group, "uses_a_group"), code, in_a_step, handles, keeper,
        model_agent(WaitingModel(clean_up), name="asks_a_model"),
    ]  # fmt: skip


def terminated(name: str) -> Cancellation:
    async def cancellation(runtime: Runtime, clean_up: CleanUp) -> None:
        run = await runtime.start(name, "x")
        if name == "handles":
            await run.send("x")
        await clean_up.begun.wait()
        await runtime.hub.terminate(run.run_id)
        await clean_up.over.wait()
        assert (await run.finished()).outcome == "terminated"
        clean_up.again()

    return cancellation


def interrupted(name: str) -> Cancellation:
    async def cancellation(runtime: Runtime, clean_up: CleanUp) -> None:
        run = await runtime.start(name, "x")
        await clean_up.begun.wait()
        await runtime.hub.interrupt(run.run_id)
        await clean_up.over.wait()
        assert (await run.result()).outcome == "interrupted"
        clean_up.again()

    return cancellation


async def out_of_time(runtime: Runtime, clean_up: CleanUp) -> None:
    run = await runtime.start("uses_in_time", "x")
    assert (await run.result()).output == "so it went"
    assert clean_up.over.is_set()
    clean_up.again()


async def out_of_time_in_its_caller(runtime: Runtime, clean_up: CleanUp) -> None:
    assert (await runtime.run("uses_in_time", "x")).output == "so it went"
    assert clean_up.over.is_set()
    clean_up.again()


async def with_its_caller(runtime: Runtime, clean_up: CleanUp) -> None:
    with anyio.move_on_after(0.5) as scope:
        await runtime.run("uses", "x")
    assert scope.cancelled_caught
    assert clean_up.over.is_set()
    clean_up.again()


async def with_its_channel(runtime: Runtime, clean_up: CleanUp) -> None:
    channels = Channels(runtime.hub, Channel("c", {"attack:said": clean_up.work}), grace=0.1)
    async with channels:
        runtime.hub.emit(CustomEvent.of("attack:said"))
        await clean_up.begun.wait()
    await clean_up.over.wait()
    clean_up.again()


async def beside_its_channel(runtime: Runtime, clean_up: CleanUp) -> None:
    beside = Channel("c", on_start=lambda context: context.start(clean_up.work))
    async with Channels(runtime.hub, beside, grace=0.1):
        await clean_up.begun.wait()
    await clean_up.over.wait()
    clean_up.again()


async def at_the_end_of_its_channel(runtime: Runtime, clean_up: CleanUp) -> None:
    async with Channels(runtime.hub, Channel("c", on_complete=clean_up.work), grace=0.1):
        pass
    assert clean_up.over.is_set()
    clean_up.again()


CANCELLATIONS: Final[dict[str, Cancellation]] = {
    **{
        f"{name} is terminated": terminated(name)
        for name in ("uses", "uses_a_group", "code", "code_in_a_step", "handles", "asks_a_model")
    },
    **{
        f"{name} is interrupted": interrupted(name)
        for name in ("uses", "uses_a_group", "asks_a_model")
    },
    "a tool that takes too long": out_of_time,
    "a tool that takes too long, in its caller's task": out_of_time_in_its_caller,
    "a caller": with_its_caller,
    "a channel's handler": with_its_channel,
    "what a channel has started": beside_its_channel,
    "a channel's on_complete": at_the_end_of_its_channel,
}
