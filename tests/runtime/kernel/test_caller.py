"""``rt.run`` lends its task to the run it waits for; nothing else of the run is different."""

from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hubbub import AgentDefinition, PromptDefinition, Runtime, ScriptedModel, SideConfig, tool
from hubbub.agents.model import ModelReply, ToolCall
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.tasks.stepped import in_turn
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


# ── in_turn ──────────────────────────────────────────────────────────────────────────────────


class Waits:
    """Pieces that wait so often, and what they tell of themselves."""

    def __init__(self, *waits: int) -> None:
        self._waits = list(waits)
        self.told: list[str] = []

    def go_on(self, value: int | None) -> Coroutine[Any, Any, int] | None:
        if value is not None:
            self.told.append(f"{value} for {who.get()}")
        return self._piece(self._waits.pop(0)) if self._waits else None

    async def _piece(self, waits: int) -> int:
        for _ in range(waits):
            await anyio.lowlevel.checkpoint()
        if waits == 9:
            raise ValueError("out")
        if waits == 8:
            try:
                await anyio.sleep_forever()
            finally:
                self.told.append(f"cleaned up for {who.get()}")
        return waits

    def waits(self) -> None:
        self.told.append("waits")

    def failed(self, error: BaseException) -> bool:
        self.told.append(type(error).__name__)
        return isinstance(error, ValueError) and bool(self._waits)


@pytest.fixture
def context() -> Context:
    made = Context()
    made.run(who.set, "them")
    return made


async def test_pieces_tell_of_their_first_wait_only(context: Context) -> None:
    pieces = Waits(0, 1, 3)
    await in_turn(pieces, context=context, is_lent=True)
    assert pieces.told == ["0 for them", "waits", "1 for them", "waits", "3 for them"]


async def test_after_a_piece_that_failed_others_may_come() -> None:
    pieces = Waits(9, 1)
    await in_turn(pieces)
    assert pieces.told == ["waits", "ValueError", "waits", "1 for nobody"]


async def test_what_a_piece_raises_may_be_raised() -> None:
    with pytest.raises(ValueError, match="out"):
        await in_turn(Waits(9))


@pytest.mark.parametrize("is_lent", [False, True])
async def test_cancelling_reaches_the_piece_in_its_context(context: Context, is_lent: bool) -> None:
    pieces = Waits(8, 1)
    with anyio.move_on_after(1) as scope:
        await in_turn(pieces, context=context, is_lent=is_lent)
    assert scope.cancelled_caught
    assert pieces.told[:2] == ["waits", "cleaned up for them"]
    assert len(pieces.told) == 3


async def test_who_is_closed_closes_the_piece_and_begins_no_other() -> None:
    pieces = Waits(8, 1)
    closed: Any = in_turn(pieces)
    closed.send(None)
    closed.close()
    assert pieces.told == ["waits", "GeneratorExit"]


async def test_nothing_begins_where_there_is_nothing_to_do() -> None:
    pieces = Waits()
    await in_turn(pieces)
    assert pieces.told == []
