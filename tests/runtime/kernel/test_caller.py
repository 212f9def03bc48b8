"""``rt.run`` lends its task to the run it waits for; nothing else of the run is different."""

from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hubbub import AgentDefinition, PromptDefinition, Runtime, ScriptedModel, SideConfig, tool
from hubbub.agents.model import ModelReply, ToolCall
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.tasks.stepped import stepped
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio

who: ContextVar[str] = ContextVar("who", default="nobody")


def made(
    script: list[Any], *tools: Any, latency: float = 0.0, parallel: bool = False
) -> tuple[list[AgentDefinition], list[PromptDefinition]]:
    model = ScriptedModel(script, latency=latency)
    prompt = PromptDefinition(
        name="p", prompt="You help.", model=model, tools=list(tools), parallel_tool_calls=parallel
    )
    return [AgentDefinition(name="a", side_a=SideConfig(prompt="p"))], [prompt]


@pytest.mark.spec("H-12")
async def test_a_run_sees_nothing_of_its_callers_context(journal: Journal, ports: Ports) -> None:
    seen: list[str] = []

    @tool
    async def look() -> None:
        """Look around."""
        seen.append(who.get())
        who.set("the tool")
        await anyio.sleep(1)
        seen.append(who.get())

    agents, prompts = made([call("look"), "done"], look)
    async with Runtime(agents, prompts, store=journal, ports=ports) as runtime:
        who.set("the caller")
        assert (await runtime.run("a", "go")).output == "done"
        assert who.get() == "the caller"
    assert seen == ["nobody", "the tool"]


@pytest.mark.parametrize("latency", [0.0, 1.0])
async def test_what_is_interrupted_is_the_activity_and_not_the_caller(
    journal: Journal, ports: Ports, latency: float
) -> None:
    cancelled: list[bool] = []

    @tool
    async def wait() -> None:
        """Wait forever."""
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    agents, prompts = made([call("wait"), "never said"], wait, latency=latency)
    async with Runtime(agents, prompts, store=journal, ports=ports) as runtime:

        async def interrupt() -> None:
            await anyio.sleep(5)
            runtime.hub.interrupt(None, "enough")

        async with anyio.create_task_group() as group:
            group.start_soon(interrupt)
            outcome = await runtime.run("a", "go")
        assert (outcome.outcome, outcome.reason) == ("interrupted", "enough")
        assert cancelled == [True]
        await anyio.lowlevel.checkpoint()  # The caller itself can go on waiting.


@pytest.mark.spec("S-10")
async def test_a_tool_that_takes_too_long_is_cancelled_and_the_run_goes_on(
    journal: Journal, ports: Ports
) -> None:
    @tool(timeout=10)
    async def wait() -> None:
        """Wait forever."""
        await anyio.sleep_forever()

    agents, prompts = made([call("wait"), "so be it"], wait)
    async with Runtime(agents, prompts, store=journal, ports=ports) as runtime:
        start = anyio.current_time()
        outcome = await runtime.run("a", "go")
        assert outcome.output == "so be it"
        assert anyio.current_time() - start == pytest.approx(10, abs=0.1)
        (done,) = await runtime.hub.read(types="agent:tool:complete")
        assert "timed out" in done.output  # type: ignore[attr-defined]


async def test_parallel_calls_run_at_once_beside_the_caller(journal: Journal, ports: Ports) -> None:
    @tool
    async def nap(name: str) -> str:
        """Sleep a second."""
        await anyio.sleep(1)
        return name

    calls = tuple(ToolCall(name="nap", arguments=f'{{"name":"{n}"}}') for n in "abc")
    agents, prompts = made([ModelReply(calls=calls), "done"], nap, parallel=True)
    async with Runtime(agents, prompts, store=journal, ports=ports) as runtime:
        start = anyio.current_time()
        assert (await runtime.run("a", "go")).output == "done"
        assert anyio.current_time() - start == pytest.approx(1, abs=0.1)


@pytest.mark.spec("R-05", "R-18")
@pytest.mark.parametrize("after", [0.0, 0.5])
async def test_a_cancelled_caller_terminates_its_run(
    journal: Journal, ports: Ports, eventually: Callable[[Callable[[], bool]], Any], after: float
) -> None:
    ends: list[str] = []
    starts: list[str] = []
    agents, prompts = made(["too late"], latency=1)
    async with Runtime(agents, prompts, store=journal, ports=ports) as runtime:
        runtime.hub.subscribe("agent:start", lambda event: starts.append(event.run_id))
        runtime.hub.subscribe("agent:complete", lambda event: ends.append(event.outcome))
        with anyio.move_on_after(after) as scope:
            await runtime.run("a", "go")
        assert scope.cancelled_caught
        await eventually(lambda: bool(ends))
        assert ends == ["terminated"]
        assert len(starts) == 1


async def test_a_model_that_never_waits_lets_others_run(journal: Journal, ports: Ports) -> None:
    agents, prompts = made(["at once"])
    turns = 0
    async with Runtime(agents, prompts, store=journal, ports=ports) as runtime:

        async def other() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            for _ in range(10):
                await runtime.run("a", "go")
            group.cancel_scope.cancel()
    assert turns >= 5


async def test_runs_beyond_the_limit_wait_for_their_turn_in_their_callers_tasks(
    journal: Journal, ports: Ports
) -> None:
    agents, prompts = made(["done"], latency=1)
    outcomes: list[str] = []
    async with Runtime(agents, prompts, store=journal, ports=ports, max_live=2) as runtime:

        async def run() -> None:
            outcomes.append((await runtime.run("a", "go")).outcome)

        start = anyio.current_time()
        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(run)
        assert outcomes == ["completed"] * 6
        assert anyio.current_time() - start == pytest.approx(3, abs=0.2)


# ── stepped ──────────────────────────────────────────────────────────────────────────────────


async def test_stepped_tells_of_the_first_wait_only() -> None:
    told: list[int] = []

    async def work(waits: int) -> int:
        for _ in range(waits):
            await anyio.lowlevel.checkpoint()
        return waits

    for waits in (0, 1, 3):
        assert await stepped(work(waits), on_wait=lambda: told.append(1)) == waits
    assert told == [1, 1]


async def test_stepped_passes_what_is_raised_in_and_out() -> None:
    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("out")

    with pytest.raises(ValueError, match="out"):
        await stepped(fail(), context=Context())

    async def cleaned() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(who.get())

    seen: list[str] = []
    context = Context()
    context.run(who.set, "inside")
    with anyio.move_on_after(1) as scope:
        await stepped(cleaned(), context=context)
    assert scope.cancelled_caught
    assert seen == ["inside"]
