"""What would go on forever does not: loops, waits, hooks, children nobody waits for any more."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import Observer, model_agent
from support.families import Recorder, child, config, parent

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Hook,
    PromptDefinition,
    RunState,
    Runtime,
    SideConfig,
    VariableDefinition,
    agent,
    tool,
)
from hubbub.hub.errors import BadValue, DefinitionError, WaitCycle
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, ScriptedModel, call

pytestmark = pytest.mark.anyio


@pytest.mark.spec("S-06", "D-10")
@pytest.mark.parametrize("limit", [1, 3])
async def test_agents_that_hand_over_to_each_other_for_ever_reach_a_limit(
    limit: int, journal: Journal, ports: Ports
) -> None:
    asked: list[str] = []

    def one(name: str, other: str) -> tuple[AgentDefinition, PromptDefinition]:
        def answer(request: Any) -> Any:
            asked.append(name)
            return call(other)

        side = SideConfig(prompt=name, max_steps=limit)
        prompt = PromptDefinition(name=name, prompt="", model=FunctionModel(answer), tools=[other])
        return AgentDefinition(name=name, expose_as_tool=True, side_a=side), prompt

    (lead, p), (bill, q) = one("lead", "bill"), one("bill", "lead")
    async with Runtime([lead, bill], [p, q], store=journal, ports=ports) as rt:
        outcome = await rt.run("lead", "go")
    assert outcome.outcome == "limit"
    assert asked == ["lead", "bill", "lead"][:limit]


async def test_a_busy_run_lets_others_have_their_turn(journal: Journal, ports: Ports) -> None:
    """No latency anywhere: nothing in the run ever waits by itself."""
    turns = 0

    @tool
    async def nothing() -> str:
        return "done"

    busy = model_agent(FunctionModel(lambda request: call("nothing")), nothing)

    async def beat() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with (
        Runtime([busy], store=journal, ports=ports) as rt,
        anyio.create_task_group() as group,
    ):
        group.start_soon(beat)
        await anyio.lowlevel.checkpoint()
        outcome = await rt.run("assistant", "go")
        group.cancel_scope.cancel()
    assert outcome.outcome == "limit"
    assert turns >= 5


@pytest.mark.spec("T-06", "S-10")
async def test_a_parent_whose_time_is_over_stops_the_child_it_waits_for(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(call("helper", message="x"))
    agents = (parent(boss, config()), child(Recorder(Fault("hang"))))
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.", timeout=5)
        assert (await run.finished()).outcome == "timed_out"
        below = await rt.finished(seen.first("agent:child").child_run_id)
        assert (below.outcome, below.reason) == ("interrupted", "its parent timed_out")


@pytest.mark.spec("D-06", "T-05")
@pytest.mark.parametrize("point", ["after_session", "after_create_message", "after_thread_created"])
async def test_who_waits_for_an_end_does_not_wait_for_its_hooks(
    point: Any, journal: Journal, ports: Ports
) -> None:
    async def hang(state: RunState, value: Any) -> None:
        await anyio.sleep_forever()

    quick = model_agent(ScriptedModel([Fault("hang")]), hooks=("hang",))
    async with Runtime(
        [quick], hooks=[Hook("hang", point, hang)], store=journal, ports=ports
    ) as rt:
        run = await rt.start("assistant", "go")
        await anyio.sleep(1)
        begun = anyio.current_time()
        await run.terminate("enough")
        assert (await run.finished()).outcome == "terminated"
        assert anyio.current_time() - begun < 5


@pytest.mark.spec("C-15")
async def test_code_that_would_wait_for_its_own_run_is_refused(
    journal: Journal, ports: Ports
) -> None:
    refused: list[str] = []

    @tool
    async def wait(state: RunState) -> str:
        for run_id in (state.run_id, state.parent_run_id):
            for how in (rt.result, rt.finished):
                with pytest.raises(WaitCycle) as caught:
                    await how(str(run_id))
                refused.append(str(caught.value))
        return "ok"

    @agent("boss")
    async def boss(input: str, ctx: Any) -> Any:
        return (await ctx.spawn("helper", "x").finished()).output

    work = child(Recorder(call("wait"), call("finish", result="done")), wait)
    models = (parent(Recorder(call("helper", message="x"), "Fine."), config()), boss, work)
    async with Runtime(models, store=journal, ports=ports) as rt:
        with anyio.fail_after(60):
            assert (await rt.run("main", "Please.")).output == "Fine."
            assert (await rt.run("boss", "Please.")).output == "done"
    assert len(refused) == 8


@pytest.mark.spec("D-09", "V-03")
async def test_a_secret_that_an_exception_quotes_is_masked(journal: Journal, ports: Ports) -> None:
    @tool(variables=[VariableDefinition(name="TOKEN", required=True)])
    async def connect(state: RunState) -> str:
        raise RuntimeError(f"bad token {state.env['TOKEN']}")

    bot = model_agent(ScriptedModel([call("connect"), "Well."]), connect)
    async with Runtime([bot], store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "go", env={"TOKEN": "s3cr3t-value"})
        await run.result()
        (done,) = [x for x in await run.read() if x.type == "agent:tool:complete"]
    assert done.output == "RuntimeError: bad token ***"  # type: ignore[attr-defined]


@pytest.mark.spec("D-09")
async def test_a_prompt_whose_required_variable_is_not_set_asks_no_model(
    journal: Journal, ports: Ports
) -> None:
    model = Recorder("never")
    variables = [VariableDefinition(name="REGION", type="text", required=True)]
    bot = model_agent(model, variables=variables)
    async with Runtime([bot], store=journal, ports=ports) as rt:
        outcome = await rt.run("assistant", "go")
        assert outcome.outcome == "failed" and "REGION" in outcome.reason
        assert not model.requests


@pytest.mark.parametrize(
    "options",
    [{"max_live": 0}, {"max_depth": -1}, {"max_descendants": "x"}, {"grace": -1}, {"keep": True}],
)
def test_limits_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match=next(iter(options))):
        Runtime(**options, store="memory")


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"models\.m: give a Model"):
        Runtime(models={"m": "openai:gpt-5"}, store="memory")  # type: ignore[dict-item]
