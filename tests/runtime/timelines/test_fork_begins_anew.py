"""A fork is a conversation that begins now, and its agent has its own say in what runs."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.stores import agents

from hubbub import (
    Agent,
    FunctionModel,
    ModelReply,
    ModelRequest,
    Retention,
    RunContext,
    RunState,
    Runtime,
    agent,
    tool,
)
from hubbub.agents.model import UserMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.timelines.cut import NoFork

pytestmark = pytest.mark.anyio

DAY = 86_400


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"


@pytest.mark.parametrize("told", [{}, {"message": "and now?"}], ids=["silent", "told"])
async def test_a_fork_of_an_old_conversation_is_the_one_spoken_to_last(
    store: str, ports: Ports, told: dict[str, Any]
) -> None:
    async with Runtime(agents(), store=store, ports=ports) as rt:
        old = await rt.start("bot", "long ago", session_key="old")
        await old.result()
        await anyio.sleep(DAY)
        await (await rt.start("bot", "yesterday", session_key="other")).result()
        await anyio.sleep(DAY)
        now = ports.clock.now()
        fork = await rt.fork(old.run_id, session_key="fork", **told)
        await fork.result()
        found = (await rt.conversations()).conversations
        assert [each.key for each in found] == ["fork", "other", "old"]
        assert found[0].last_activity >= now > found[1].last_activity
        assert await rt.agent_for("most-recent-foreground") == fork.run_id
        await (await rt.start("bot", "again", session_key="other")).result()
        assert (await rt.conversations()).conversations[0].key == "other"


async def test_a_fork_is_as_young_as_it_is_and_not_as_what_it_goes_on_from(
    store: str, ports: Ports
) -> None:
    keeping = Retention(silent="10d", ended="1d")
    async with Runtime(agents(), store=store, ports=ports, retention=keeping) as rt:
        old = await rt.start("bot", "long ago", session_key="old")
        await old.result()
        await anyio.sleep(9 * DAY)
        forks = [await rt.fork(old.run_id, session_key=key) for key in ("kept", "")]
        await anyio.sleep(8 * DAY)
        assert {info.run_id for info in await rt.hub.journal.runs()} == {x.run_id for x in forks}
        await anyio.sleep(4 * DAY)
        assert await rt.hub.journal.runs() == []


@pytest.mark.parametrize("approval", [True, lambda amount: amount > 1], ids=["always", "predicate"])
async def test_calls_of_an_old_agent_do_not_run_as_tools_of_a_new_one_that_ask_for_approval(
    store: str, ports: Ports, approval: Any
) -> None:
    paid: list[str] = []

    async def paying(amount: int, state: RunState) -> str:
        """Pay."""
        paid.append(state.run_id)
        return "paid"

    def says(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("I pay.", call("pay", amount=5), call("pay", amount=6))
        return reply(", ".join(each.output for each in last.calls))

    free, asking = tool(paying, name="pay"), tool(paying, name="pay", approval=approval)
    model = FunctionModel(says)
    hasty = Agent("hasty", "You pay.", model=model, tools=[free])
    careful = Agent("careful", "You ask.", model=model, tools=[asking])
    async with Runtime([hasty, careful], store=store, ports=ports) as rt:
        run = await rt.start("hasty", "pay", session_key="ann")
        assert (await run.result()).output == "paid, paid"
        last = (await rt.state_at(run.run_id)).seq
        for seq in range(last + 1):
            fork = await rt.fork(run.run_id, seq, agent="careful")
            await anyio.sleep(60)
            assert fork.run_id not in paid, f"from record {seq}"
        begun = await rt.fork(run.run_id, 5, agent="careful")
        with anyio.fail_after(60):
            outcome = await begun.result()
        assert "handed over to careful" in str(outcome.output)


async def test_a_code_agent_begins_anew_in_a_fork_of_before_its_first_record(
    store: str, ports: Ports
) -> None:
    heard: list[str] = []

    @agent("counter")
    async def counter(input: str, ctx: RunContext) -> str:
        heard.append(input)
        await ctx.step("counted", lambda: 1)
        return f"{input} counted"

    async with Runtime([counter], store=store, ports=ports) as rt:
        old = await rt.start("counter", "sheep")
        await old.result()
        fork = await rt.fork(old.run_id, 0)
        assert (await fork.result()).output == "sheep counted"
        assert heard == ["sheep", "sheep"]


async def test_a_code_agent_at_work_is_forked_at_its_beginning_alone(
    store: str, ports: Ports
) -> None:
    began = 0

    @agent("counter")
    async def counter(input: str, ctx: RunContext) -> str:
        nonlocal began
        began += 1
        await anyio.sleep(60)
        return f"{input} counted"

    async with Runtime([counter], store=store, ports=ports) as rt:
        old = await rt.start("counter", "sheep")
        await anyio.sleep(1)
        with pytest.raises(NoFork, match="fork record 0, or start it anew"):
            await rt.fork(old.run_id, 1)
        fork = await rt.fork(old.run_id, 0)
        assert (await fork.result()).output == "sheep counted" and began == 2
