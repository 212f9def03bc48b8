"""``seconds`` of code: the time that its own conversations with models are at work."""

from typing import Any, Final

import anyio
import pytest
from support.agents import Observer

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Limits,
    ModelReply,
    ModelRequest,
    RunContext,
    Runtime,
    agent,
    tool,
)
from hubbub.hub.errors import RunFailed
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-05")]

LATENCY: Final = 0.5


@tool(timeout=None)
async def dig(seconds: float) -> str:
    """Dig."""
    await anyio.sleep(seconds)
    return "dug"


def model(*, digs: float = 0.0) -> FunctionModel:
    """Each answer takes half a second; with ``digs`` the first one is a call that takes longer."""

    def answer(request: ModelRequest) -> ModelReply:
        if digs and len(request.messages) == 1:
            return ModelReply(calls=(call("dig", seconds=digs),))
        return ModelReply(text="Here.")

    return FunctionModel(answer, latency=LATENCY)


async def talk(ctx: RunContext, words: str, *, digs: float = 0.0) -> str:
    """What a new conversation comes to: the answer, or why there is none."""
    session = ctx.session(model=model(digs=digs), tools=[dig])
    await session.send(words)
    try:
        async for _ in session.receive():
            pass
    except RunFailed as failure:
        return str(failure)
    return session.text


def talker(told: list[str], *, digs: float = 0.0, **options: Any) -> AgentDefinition:
    """Code that takes its time, and has a conversation of its own over each message."""

    @agent("code", **options)
    async def code(input: str, ctx: RunContext) -> None:
        async for message in ctx.messages():
            await anyio.sleep(60)
            told.append(await talk(ctx, message.content, digs=digs))

    return code


def settings(place: str, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the agent and of the runtime that limit it."""
    limits = Limits(seconds=seconds)
    return ({"run_limits": limits}, {}) if place == "run" else ({}, {"limits": limits})


@pytest.mark.parametrize("place", ["run", "tree"])
async def test_conversations_in_code_use_up_time_and_the_code_around_them_does_not(
    journal: Journal, ports: Ports, place: str
) -> None:
    told: list[str] = []
    own, options = settings(place, 1.2)
    agents = [talker(told, **own)]
    async with Runtime(agents, store=journal, ports=ports, **options) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("code")
        for words in ("One", "Two", "Three", "Four"):
            await runtime.hub.send_to_run(run.run_id, words)
            await anyio.sleep(200)
        assert told[:2] == ["Here.", "Here."]
        assert all(f"{place}.seconds" in each for each in told[2:]), told
        await runtime.terminate(run.run_id)
    worked = [step.worked for step in observer.all("agent:step")]
    assert worked == [LATENCY * 1e6] * 2, "the third call was cut short"


@pytest.mark.parametrize("place", ["run", "tree"])
async def test_a_tool_of_such_a_conversation_is_cut_short_and_its_call_has_a_result(
    journal: Journal, ports: Ports, place: str
) -> None:
    told: list[str] = []
    own, options = settings(place, 2)
    agents = [talker(told, digs=500, **own)]
    async with Runtime(agents, store=journal, ports=ports, **options) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("code")
        await runtime.hub.send_to_run(run.run_id, "One")
        await anyio.sleep(63)
        assert told
        await runtime.terminate(run.run_id)
    assert f"{place}.seconds" in told[0]
    (result,) = observer.all("agent:tool:complete")
    assert result.is_error and "limit" in result.output


async def test_the_time_of_tools_is_on_record_with_the_next_step(ports: Ports) -> None:
    told: list[str] = []
    async with Runtime([talker(told, digs=3)], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("code")
        await runtime.hub.send_to_run(run.run_id, "One")
        await anyio.sleep(100)
        await runtime.terminate(run.run_id)
    assert [step.worked for step in observer.all("agent:step")] == [500_000, 3_500_000]


@pytest.mark.parametrize("place", ["run", "tree", "raised"])
async def test_what_was_worked_counts_after_a_restart_and_when_limits_come_later(
    journal: Journal, ports: Ports, place: str
) -> None:
    told: list[str] = []
    own, options = settings(place, 0.9) if place != "raised" else ({}, {})
    agents = [talker(told, on_restart="resume", **own)]
    async with Runtime(agents, store=journal, ports=ports, **options) as runtime:
        run = await runtime.start("code")
        await runtime.hub.send_to_run(run.run_id, "One")
        await anyio.sleep(100)
    assert told == ["Here."]
    async with Runtime(agents, store=journal, ports=ports, **options) as runtime:
        if place == "raised":
            assert (await runtime.limit(run.run_id, Limits(seconds=0.9))).accepted
        await runtime.hub.send_to_run(run.run_id, "Two")
        await anyio.sleep(100)
        name = "tree" if place == "raised" else place
        assert len(told) == 2 and f"{name}.seconds" in told[1], told
        await runtime.terminate(run.run_id)
