"""A run that ends by itself while it is terminated: the first of the two counts, as a whole.

Both orders are tried, a few turns of the loop apart: a store that commits later accepts the
termination when the end of the run is on its way, and the other way round.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import Observer, assert_one_life, model_agent

from hubbub import AgentDefinition, Event, Run, RunState, Runtime, agent, tool
from hubbub.agents.model import ModelRequest
from hubbub.hub.events import AgentComplete, AgentStart
from hubbub.hub.events.descriptors import SubagentDescriptor
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

GAPS = range(-8, 9)
"""Turns of the loop by which the run's own end is ahead; below nothing, behind."""

OWN = {
    "returns": "completed", "raises": "failed", "says": "completed", "answers": "completed",
    "calls": "completed", "overdue": "timed_out",
}  # fmt: skip
"""What ends by itself, and as what."""


@pytest.fixture(params=["memory", "late", "very late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Any:
    match request.param:
        case "memory":
            return MemoryJournal()
        case "sqlite":
            return sqlite_store(tmp_path / "store", ports=ports, mirror=False)
        case _:
            return LateJournal(MemoryJournal(), turns=1 if request.param == "late" else 5)


class Ending:
    """Agents that begin a child, and end when they are let."""

    def __init__(self) -> None:
        self.begin()

        @agent("works")
        async def works(input: Any, ctx: Any) -> None:
            await anyio.sleep(10)
            self.effects.append(ctx.run_id)

        @agent("returns")
        async def returns(input: Any, ctx: Any) -> str:
            ctx.spawn("works")
            await self.let.wait()
            return "returned"

        @agent("raises")
        async def raises(input: Any, ctx: Any) -> None:
            ctx.spawn("works")
            await self.let.wait()
            raise KeyError("raised")

        @agent("says", emits_start_complete=True)
        async def says(input: Any, ctx: Any) -> None:
            ctx.hub.emit(AgentStart())
            ctx.spawn("works")
            await self.let.wait()
            ctx.hub.emit(AgentComplete(success=True))
            await anyio.sleep(1)

        @agent("overdue")
        async def overdue(input: Any, ctx: Any) -> None:
            ctx.spawn("works")
            await anyio.sleep_forever()

        @tool
        async def begin(state: RunState) -> str:
            state.spawn("works", result="ignore")
            return "begun"

        @tool
        async def wait(state: RunState) -> str:
            state.spawn("works", result="ignore")
            await self.let.wait()
            return "waited"

        async def answer(request: ModelRequest) -> Any:
            if len(request.messages) == 1:
                return call("begin")
            await self.let.wait()
            return "answered"

        def wait_or_say(request: ModelRequest) -> Any:
            return call("wait") if len(request.messages) == 1 else "called"

        self.agents: list[AgentDefinition] = [
            works, returns, raises, says, overdue,
            model_agent(FunctionModel(answer), begin, name="answers"),
            model_agent(FunctionModel(wait_or_say), wait, name="calls"),
        ]  # fmt: skip

    def begin(self) -> None:
        """Let nothing end yet."""
        self.let = anyio.Event()
        self.effects: list[str] = []


async def turns(number: int) -> None:
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


async def race(ending: Ending, gap: int, terminate: Callable[[], Receipt]) -> Receipt:
    """Let a run end, and terminate one, in the order and the distance of ``gap``."""
    if gap <= 0:
        receipt = terminate()
        await turns(-gap)
        ending.let.set()
    else:
        ending.let.set()
        await turns(gap)
        receipt = terminate()
    return await receipt


def note_parent(found: list[str], event: Event) -> None:
    found.append(event.run_id)


async def at_work(rt: Runtime, name: str, **more: Any) -> tuple[Run, list[str]]:
    """A run with all below it at work, and what that is."""
    begun = anyio.Event()

    def see(event: Event) -> None:
        if event.agent == "works":
            begun.set()

    with rt.hub.subscribe("agent:start", see), anyio.fail_after(60):
        run = await rt.start(name, "go", once=True, **more)
        await begun.wait()
    return run, list(await rt.hub.journal.find(run.run_id, "below"))


@pytest.mark.spec("R-04", "T-05", "T-06")
@pytest.mark.parametrize("name", OWN)
async def test_of_a_termination_and_a_runs_own_end_the_first_counts_for_all_below(
    name: str, store: Journal, ports: Ports
) -> None:
    ending = Ending()
    more: Any = {"timeout": 5} if name == "overdue" else {}
    async with Runtime(ending.agents, store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        for gap in GAPS:
            ending.begin()
            run, (child,) = await at_work(rt, name, **more)
            if name == "overdue":
                await anyio.sleep(5)
            receipt = await race(ending, gap, run.terminate)
            outcome, below = await run.finished(), await rt.finished(child)
            await anyio.sleep(20)
            assert assert_one_life(seen.events, run.run_id).outcome == outcome.outcome
            if receipt.accepted:
                assert receipt.run_ids == (run.run_id, child), gap
                assert (outcome.outcome, outcome.output) == ("terminated", None), gap
                assert (below.outcome, ending.effects) == ("terminated", []), gap
            else:
                assert (receipt.status, receipt.reason) == ("rejected", "ended"), gap
                assert outcome.outcome == OWN[name], gap
                assert (below.outcome, ending.effects) == ("completed", [child]), gap
        assert not seen.all("agent:restore"), "nothing has crashed"
        assert not seen.all("hub:error")


@pytest.mark.spec("C-10", "R-04", "T-05")
@pytest.mark.parametrize("name", ["returns", "says", "answers"])
async def test_a_parent_gets_one_result_of_a_child_that_ends_while_it_is_terminated(
    name: str, store: Journal, ports: Ports
) -> None:
    ending = Ending()

    @agent("boss")
    async def boss(input: Any, ctx: Any) -> list[str]:
        child = ctx.spawn(name, "go", result="message")
        found = [(await child.finished()).outcome]
        with anyio.move_on_after(5):
            async for message in ctx.messages():
                found += [message.source]
        return found

    async with Runtime([boss, *ending.agents], store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        for gap in GAPS:
            ending.begin()
            run, (middle, _) = await at_work(rt, "boss")
            receipt = await race(ending, gap, partial(rt.terminate, middle))
            expected = "terminated" if receipt.accepted else OWN[name]
            assert (await run.finished()).output == [expected, middle], gap
            assert assert_one_life(seen.events, middle).outcome == expected, gap
            await anyio.sleep(20)
            assert bool(ending.effects) is not receipt.accepted, gap


@pytest.mark.spec("R-04", "T-05", "T-06")
@pytest.mark.parametrize("name", ["returns", "says", "answers"])
async def test_all_below_a_terminated_run_ends_though_one_between_ends_by_itself(
    name: str, store: Journal, ports: Ports
) -> None:
    ending = Ending()

    @agent("boss")
    async def boss(input: Any, ctx: Any) -> None:
        ctx.spawn(name, "go")
        await anyio.sleep_forever()

    async with Runtime([boss, *ending.agents], store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        for gap in GAPS:
            ending.begin()
            run, (middle, lowest) = await at_work(rt, "boss")
            receipt = await race(ending, gap, run.terminate)
            assert receipt.accepted and set(receipt.run_ids) >= {run.run_id, lowest}
            for run_id in receipt.run_ids:
                await rt.finished(run_id)
            await anyio.sleep(20)
            assert assert_one_life(seen.events, run.run_id).outcome == "terminated"
            assert assert_one_life(seen.events, lowest).outcome == "terminated"
            assert assert_one_life(seen.events, middle).outcome in ("terminated", OWN[name])
            assert ending.effects == [], gap


@pytest.mark.spec("R-04", "R-06")
async def test_a_caller_gets_no_output_of_a_run_that_was_terminated_before_it_returned(
    store: Journal, ports: Ports
) -> None:
    ending = Ending()
    async with Runtime(ending.agents, store=store, ports=ports) as rt:
        for gap in GAPS:
            ending.begin()
            found: list[Any] = []
            started: list[str] = []

            async def run_it(found: list[Any] = found) -> None:
                found.append(await rt.run("returns", "go"))

            async with anyio.create_task_group() as tasks:
                with rt.hub.subscribe("agent:child", partial(note_parent, started)):
                    tasks.start_soon(run_it)
                    await anyio.sleep(1)
                receipt = await race(ending, gap, partial(rt.terminate, started[0]))
            (outcome,) = found
            expected = ("terminated", None) if receipt.accepted else ("completed", "returned")
            assert (outcome.outcome, outcome.output) == expected, gap


@pytest.mark.spec("R-04", "T-05")
@pytest.mark.parametrize("name", ["returns", "answers"])
async def test_what_is_interrupted_and_then_terminated_ends_with_all_below_it(
    name: str, store: Journal, ports: Ports
) -> None:
    ending = Ending()
    async with Runtime(ending.agents, store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        for gap in range(6):
            ending.begin()
            run, (child,) = await at_work(rt, name)
            run.interrupt()
            await turns(gap)
            receipt = await run.terminate()
            outcome = await run.finished()
            await anyio.sleep(20)
            expected = "terminated" if receipt.accepted else "interrupted"
            assert outcome.outcome == expected, gap
            assert ending.effects == ([] if receipt.accepted else [child]), gap
            assert assert_one_life(seen.events, run.run_id).outcome == expected


@pytest.mark.spec("P-03", "R-04", "T-05")
@pytest.mark.parametrize("gap", range(6))
@pytest.mark.parametrize("name", ["returns", "says", "answers"])
async def test_a_runtime_that_is_left_in_between_leaves_the_termination_to_the_next(
    name: str, gap: int, tmp_path: Path, ports: Ports
) -> None:
    ending, receipt = Ending(), None
    path = tmp_path / "store"

    def store() -> Any:
        return LateJournal(sqlite_store(path, ports=ports, mirror=False), turns=3)

    async with Runtime(ending.agents, store=store(), ports=ports, grace=0) as rt:
        run, (child,) = await at_work(rt, name)
        receipt = rt.terminate(run.run_id)
        ending.let.set()
        await turns(gap)
    async with Runtime(ending.agents, store=store(), ports=ports) as rt:
        outcome, below = await rt.finished(run.run_id), await rt.finished(child)
        events = await rt.hub.read(run.run_id)
        await anyio.sleep(20)
    assert_one_life(events, run.run_id)
    assert receipt.accepted
    assert (outcome.outcome, below.outcome) == ("terminated", "terminated")
    assert ending.effects == []


@pytest.mark.spec("P-06", "T-05")
@pytest.mark.parametrize("name", ["waits", "helper"])
async def test_a_child_that_was_opened_from_outside_ends_with_its_parent(
    name: str, store: Journal, ports: Ports
) -> None:
    ending = Ending()

    @agent("waits")
    async def waits(input: Any, ctx: Any) -> None:
        await anyio.sleep_forever()

    helper = model_agent(FunctionModel(lambda _: "hello"), name="helper")
    async with Runtime([waits, helper, *ending.agents], store=store, ports=ports) as rt:
        run = await rt.start(name, "go")
        await anyio.sleep(1)
        given = SubagentDescriptor(id="below", parent_agent_id=run.run_id, name="Bob")
        child = await rt.hub.open("works", "go", descriptor=given)
        await anyio.sleep(1)
        receipt = await run.terminate()
        assert receipt.run_ids == (run.run_id, child.run_id)
        assert (await rt.finished(child.run_id)).outcome == "terminated"
        await anyio.sleep(20)
    assert ending.effects == []
