"""What a tree of runs has used, where people look: ``show``, ``runs``, the HTTP API's answers."""

from contextlib import closing
from typing import Any

import anyio
import msgspec
import pytest
from support.agents import model_agent
from support.families import Recorder, child, config

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Limits,
    ModelReply,
    ModelRequest,
    Price,
    RunContext,
    Runtime,
    Usage,
    agent,
)
from hubbub.agents.state.spending import NOTHING_SPENT
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.cli.text import report_lines, run_lines
from hubbub.runtime.inspection.usage import Used
from hubbub.runtime.inspection.views import list_runs, report
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-05")]

USAGE = Usage(input_tokens=1000, output_tokens=10, cache_read_tokens=400)


def answer(request: ModelRequest) -> ModelReply:
    if request.messages[-1].content == "Delegate.":
        return ModelReply(calls=(call("helper", message="Work."),), usage=USAGE)
    return ModelReply(text="Yes.", usage=USAGE)


def family() -> list[AgentDefinition]:
    below = child(Recorder(call("finish", result="did it")), name="helper")
    return [model_agent(FunctionModel(answer), config(), name="main"), below]


class CountedJournal(MemoryJournal):
    """How often it is read."""

    reads = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        self.reads += 1
        return await super().read(*args, **options)


async def reads_of(children: int, ports: Ports) -> int:
    store = CountedJournal()

    @agent("leaf")
    async def leaf(input: Any, ctx: RunContext) -> int:
        return 1

    @agent("fan")
    async def fan(input: Any, ctx: RunContext) -> int:
        outcomes = [await ctx.spawn("leaf", each).result() for each in range(children)]
        return len([each.tree for each in outcomes if each.tree == NOTHING_SPENT])

    async with Runtime([leaf, fan], store=store, ports=ports) as runtime:
        outcome = await (await runtime.start("fan", "x")).result()
        assert outcome.output == children
    return store.reads


async def test_a_tree_is_not_read_again_for_each_of_its_runs(ports: Ports) -> None:
    few = await reads_of(20, ports)
    assert await reads_of(100, ports) <= 5 * few


@agent("idler")
async def idler(input: Any, ctx: RunContext) -> None:
    await anyio.sleep_forever()


@agent("starter")
async def starter(input: Any, ctx: RunContext) -> None:
    if input == "One lives on.":
        ctx.spawn("idler")
    await ctx.spawn("main", "Delegate.").result()
    async with ctx.session(model=FunctionModel(answer)) as session:
        await session.send("What else?")
        async for _ in session.receive():
            pass


@pytest.mark.parametrize(
    ("name", "input", "calls"),
    [
        ("main", "Delegate.", 3),
        ("main", "Nothing.", 1),
        ("starter", "All end.", 4),
        ("starter", "One lives on.", 4),
    ],
)
async def test_who_waits_for_a_whole_tree_is_told_what_the_journal_says(
    name: str, input: str, calls: int, ports: Ports
) -> None:
    async with Runtime([*family(), idler, starter], store="memory", ports=ports) as runtime:
        outcome = await runtime.run(name, input)
        asked = await runtime.hub.ask("runtime", f"report {outcome.run_id}")
    assert asked["tree"]["model_calls"] == outcome.tree.model_calls == calls
    assert asked["tree"]["input_tokens"] == outcome.tree.input_tokens > 0


async def test_who_waits_for_a_tree_that_was_driven_here_has_nothing_read(ports: Ports) -> None:
    store = CountedJournal()
    async with Runtime(family(), store=store, ports=ports) as runtime:
        assert (await runtime.run("main", "Delegate.")).tree.model_calls == 3
    assert store.reads == 0


@pytest.mark.parametrize("priced", [True, False])
async def test_a_tree_is_summed_up_where_people_look(ports: Ports, priced: bool) -> None:
    store = MemoryJournal()
    # The recorder reports no usage; that it costs nothing is known all the same.
    prices = {
        "function": Price(input=2, output=10, cache_read=1), "recorder": Price(input=0, output=0),
    }  # fmt: skip
    async with Runtime(
        family(),
        store=store,
        ports=ports,
        prices=prices if priced else None,
    ) as runtime:
        run = await runtime.start("main", "Delegate.")
        outcome = await run.result()
        with closing(store.reader()) as reader:
            told, trees = report(reader, run.run_id), list_runs(reader)
        asked = await runtime.hub.ask("runtime", f"report {run.run_id}")
    cost = pytest.approx(2 * 0.0017) if priced else None
    expected = Used(model_calls=3, input_tokens=2000, output_tokens=20, cost=0.0)
    assert asked["tree"] == msgspec.to_builtins(told.tree)
    for used in (told.tree, trees.runs[0].tree):
        assert used is not None
        assert msgspec.structs.replace(used, cost=0.0) == expected
        assert used.cost == cost == outcome.tree.cost
    lines = "\n".join(report_lines(told, 0, full=False))
    assert "with all below it: 3 model calls, 2,000 tokens in (cached ones included)" in lines
    assert f"cost {'0.0034' if priced else 'not known'}" in lines
    table = "\n".join(run_lines(trees, 0, ended=False))
    assert "2,000 in, 20 out" + (", cost 0.0034" if priced else "") in table


async def test_what_limits_were_given_is_shown_among_what_was_said(ports: Ports) -> None:
    async with Runtime(family(), store="memory", ports=ports) as runtime:
        run = await runtime.start("main", "Hello.")
        await run.result()
        for limits in (Limits(model_calls=1000, seconds=2.5), Limits(), None):
            await runtime.limit(run.run_id, limits)
        await anyio.sleep(1)
        told = await runtime.hub.ask("runtime", f"report {run.run_id}")
    said = [x["text"] for x in told["conversation"] if x["who"] == "limits"]
    assert said == ["model_calls 1,000, seconds 2.5", "none", "those of the runtime"]
