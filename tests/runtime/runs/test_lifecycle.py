"""Exactly one start, exactly one end, whatever agents, killers and clocks do (R-03, R-04)."""

from collections.abc import Callable
from itertools import product
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent

from hubbub import CustomEvent, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.agent import Execute
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ModelRequest, OnDelta, TextDelta
from hubbub.hub.events import (
    AgentComplete,
    AgentFailed,
    AgentStart,
    AgentStatus,
    AgentTextDelta,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call

pytestmark = pytest.mark.anyio


async def silent(input: Any, ctx: RunContext) -> str:
    return "returned"


async def both(input: Any, ctx: RunContext) -> str:
    ctx.hub.emit(AgentStart())
    ctx.say("working")
    ctx.hub.emit(AgentComplete())
    return "returned"


async def twice(input: Any, ctx: RunContext) -> str:
    for _ in range(2):
        ctx.hub.emit(AgentStart())
    ctx.say("working")
    await anyio.lowlevel.checkpoint()
    for _ in range(2):
        ctx.hub.emit(AgentComplete())
    ctx.hub.emit(AgentStart())
    ctx.say("too late")
    return "returned"


async def only_start(input: Any, ctx: RunContext) -> str:
    await anyio.sleep(1)
    await ctx.hub.publish(AgentStart())
    return "returned"


async def only_complete(input: Any, ctx: RunContext) -> str:
    ctx.hub.emit(AgentComplete())
    return "returned"


async def another_event_first(input: Any, ctx: RunContext) -> str:
    ctx.hub.emit(CustomEvent.of("agent:own", number=1))
    ctx.hub.emit(AgentStart())
    return "returned"


async def raises(input: Any, ctx: RunContext) -> str:
    raise ValueError("broken")


async def says_that_it_failed(input: Any, ctx: RunContext) -> str:
    ctx.hub.emit(AgentFailed(error="broken"))
    ctx.hub.emit(AgentComplete(success=False, outcome="failed", reason="broken"))
    return "returned"


@pytest.mark.spec("R-03")
@pytest.mark.parametrize("emits", [False, True], ids=["runtime", "agent"])
@pytest.mark.parametrize(
    "execute",
    [silent, both, twice, only_start, only_complete, another_event_first, raises,
     says_that_it_failed],
)  # fmt: skip
async def test_observers_see_one_start_and_one_end(
    execute: Execute, emits: bool, journal: Journal, ports: Ports
) -> None:
    definition = agent("it", emits_start_complete=emits)(execute)
    async with Runtime([definition], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("it", "input", correlation_id="c1")
        outcome = await run.finished()
        await anyio.sleep(10)
        recorded = await run.read()
    end = assert_one_life(observer.events, run.run_id)
    assert_one_life([x for x in recorded if x.lane == "own"], run.run_id)
    start = observer.first("agent:start")
    assert (start.input, start.correlation_id) == ("input", "c1")
    assert [x.text for x in observer.all("agent:text")] in ([], ["working"])
    failed = execute in (raises, says_that_it_failed)
    assert outcome.outcome == end.outcome == ("failed" if failed else "completed")
    if failed:
        assert "broken" in end.reason
        assert observer.types(run.run_id)[-3:] == ["agent:failed", "session:end", "agent:complete"]


@pytest.mark.spec("R-03")
async def test_the_agents_own_start_and_complete_are_what_is_seen(
    journal: Journal, ports: Ports
) -> None:
    @agent("adapter", emits_start_complete=True)
    async def adapter(input: str, ctx: RunContext) -> str:
        await anyio.sleep(2)
        ctx.hub.emit(AgentStart(name="from the agent"))
        ctx.hub.emit(AgentComplete(reason="from the agent"))
        return "returned"

    async with Runtime([adapter], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("adapter", "x")
        await run.finished()
    start, end = observer.first("agent:start"), observer.first("agent:complete")
    assert (start.name, end.reason) == ("from the agent", "from the agent")
    assert start.at - observer.first("session:open").at >= 2_000_000


@pytest.mark.spec("R-03")
async def test_an_error_after_the_agents_own_end_reaches_the_caller_only(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    @agent("adapter", emits_start_complete=True)
    async def adapter(input: str, ctx: RunContext) -> str:
        ctx.hub.emit(AgentComplete())
        ctx.say("nobody hears this")
        await anyio.sleep(1)
        raise ValueError("afterwards")

    caplog.set_level("INFO", logger="hubbub")
    async with Runtime([adapter], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        with pytest.raises(ValueError, match="afterwards"):
            await runtime.executable("adapter").execute("x")
    (run_id,) = observer.run_ids
    end = assert_one_life(observer.events, run_id)
    assert (end.success, end.reason) == (True, "")
    assert observer.types(run_id)[-1] == "agent:complete"
    assert "ValueError" in caplog.text


@pytest.mark.spec("R-03", "R-06")
async def test_what_an_agent_returns_after_its_own_end_is_what_its_caller_gets(
    journal: Journal, ports: Ports
) -> None:
    @agent("adapter", emits_start_complete=True)
    async def adapter(input: str, ctx: RunContext) -> str:
        ctx.hub.emit(AgentComplete())
        await anyio.sleep(1)
        return "returned"

    async with Runtime([adapter], store=journal, ports=ports) as runtime:
        assert await runtime.executable("adapter").execute("x") == "returned"


def _ways_to_end(runtime: Runtime, run: Run) -> dict[str, Callable[[], object]]:
    return {
        "terminated": lambda: runtime.hub.terminate(run.run_id, "killed"),
        "interrupted": lambda: run.interrupt("stopped"),
        "completed": lambda: run.send("finish"),
        "failed": lambda: run.send("fail"),
    }


@agent("obedient")
async def obedient(input: Any, ctx: RunContext) -> str:
    """Does what it is told, and a little more when it is stopped."""
    try:
        async for message in ctx.messages():
            if message.content == "fail":
                raise ValueError("told to")
            if message.content == "finish":
                break
    finally:
        ctx.say("last words")
        ctx.hub.emit(AgentTextDelta(text="last delta"))
        ctx.hub.emit(CustomEvent.of("agent:last"))
    return "done"


@pytest.mark.spec("R-04")
async def test_the_first_of_two_endings_wins(journal: Journal, ports: Ports) -> None:
    endings = ("terminated", "interrupted", "completed", "failed")
    async with Runtime([obedient], store=journal, ports=ports) as runtime:
        for first, second, pause in product(endings, endings, (0, 1, 3, 8)):
            try:
                await _end_twice(runtime, first, second, pause)
            except Exception as error:
                error.add_note(f"{first}, {pause} turns later {second}")
                raise


async def _end_twice(runtime: Runtime, first: str, second: str, pause: int) -> None:
    observer = Observer(runtime.hub)
    run = await runtime.start("obedient")
    await anyio.sleep(1)
    ways = _ways_to_end(runtime, run)
    ways[first]()
    for _ in range(pause):
        await anyio.lowlevel.checkpoint()
    ways[second]()
    outcome = await run.finished()
    await anyio.sleep(10)
    recorded = [x for x in await run.read() if x.lane == "own"]
    end = assert_one_life(observer.events, run.run_id)
    assert_one_life(recorded, run.run_id)
    # Control is taken before messages, and a termination that the store has accepted counts before
    # an end that it has yet to write.
    allowed = {first, second}
    if first == "terminated" or (first == "interrupted" and second != "terminated"):
        allowed = {first}
    assert end.outcome == outcome.outcome
    assert outcome.outcome in allowed
    if pause == 8:
        assert outcome.outcome == first
    assert outcome.success is (outcome.outcome == "completed")
    ends = [x for x in recorded if x.type == "session:end"]
    assert len(ends) == 1


@pytest.mark.spec("R-04")
async def test_nothing_of_a_run_is_dispatched_after_its_end(journal: Journal, ports: Ports) -> None:
    """Not by its function, its tools or its model, each of which refuses to stop."""

    @agent("stubborn")
    async def stubborn(input: Any, ctx: RunContext) -> None:
        with anyio.CancelScope(shield=True):
            for number in range(10):
                await anyio.sleep(1)
                ctx.hub.emit(AgentTextDelta(text=f"{number}"))
                ctx.say(f"{number}")
                await ctx.hub.publish(AgentStatus(status=f"{number}"))

    @tool
    async def dig(state: Any = None) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(10)
        return "gold"

    async def drone(request: ModelRequest) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(10)
        return "on and on"

    agents = [
        stubborn,
        model_agent(FunctionModel(drone), name="drone"),
        model_agent(ScriptedModel([call("dig"), "never"]), dig, name="digger"),
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        runs = [await runtime.start(definition, "go") for definition in agents]
        await anyio.sleep(3.5)
        for run in runs:
            await run.terminate("enough")
            assert (await run.finished()).outcome == "terminated"
        await anyio.sleep(20)
    for run in runs:
        assert assert_one_life(observer.events, run.run_id).outcome == "terminated"
        assert observer.types(run.run_id)[-1] == "agent:complete"
    assert [x.text for x in observer.all("agent:text")] == ["0", "1", "2"]


@pytest.mark.spec("R-04", "S-10")
@pytest.mark.parametrize("stop", ["terminate", "interrupt"])
@pytest.mark.parametrize("turns", [1, 3])
async def test_what_is_said_while_the_end_is_being_written_is_not_heard(
    stop: str, turns: int, ports: Ports
) -> None:
    @tool
    async def chatter(state: RunState) -> str:
        while True:
            state.hub.emit(AgentStatus(status="on"))
            state.hub.emit(AgentTextDelta(text="on"))
            await anyio.lowlevel.checkpoint()

    class Endless:
        name = "endless"

        async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
            while True:
                assert on_delta is not None
                on_delta(TextDelta("on"))
                await anyio.lowlevel.checkpoint()

    agents = [
        model_agent(Endless(), name="talker"),
        model_agent(ScriptedModel([call("chatter")]), chatter, name="chatterer"),
    ]
    store = LateJournal(MemoryJournal(), turns=turns)
    async with Runtime(agents, store=store, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        runs = [await runtime.start(definition, "go") for definition in agents]
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        for run in runs:
            getattr(runtime.hub, stop)(run.run_id, "enough")
        for run in runs:
            assert (await run.result()).reason == "enough"
        await anyio.sleep(1)
    for run in runs:
        types = observer.types(run.run_id)
        assert "agent:text:delta" in types
        end = types.index("agent:complete" if stop == "terminate" else "session:end")
        assert not {"agent:text:delta", "agent:status"} & set(types[end:]), types[end:]


@pytest.mark.spec("R-04")
async def test_the_outcomes_are_distinct(journal: Journal, ports: Ports) -> None:
    @tool
    async def again() -> str:
        return "again"

    limited = model_agent(
        ScriptedModel([call("again")], repeat=True), again, name="limited", max_steps=3
    )
    slow = model_agent(echo_model(latency=50), name="slow")
    broken = agent("broken")(raises)
    agents = [agent("fine")(silent), broken, obedient, slow, limited]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        outcomes = {
            "completed": await runtime.start("fine"),
            "failed": await runtime.start("broken"),
            "terminated": await runtime.start("obedient"),
            "interrupted": await runtime.start("slow", "go", once=True),
            "timed_out": await runtime.start("slow", "go", timeout=20),
            "limit": await runtime.start("limited", "go", once=True),
        }
        await anyio.sleep(5)
        await outcomes["terminated"].terminate("no more")
        outcomes["interrupted"].interrupt("no more")
        ended = {name: await run.finished() for name, run in outcomes.items()}
    for name, run in outcomes.items():
        assert ended[name].outcome == name
        assert assert_one_life(observer.events, run.run_id).outcome == name
        assert ended[name].reason or name == "completed"
