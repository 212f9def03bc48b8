"""What goes with a tree, and when, where a child goes on after its root, or somebody was asked."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.families import Recorder, child, config, parent
from support.pruned_stores import DAY

from hubbub import AgentDefinition, Retention, Runtime, agent, tool
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.models.scripted import ScriptedModel, call
from hubbub.runtime.stores.retention.pruning import find_trees

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"


def families() -> list[AgentDefinition]:
    """A parent that is over at once, its child that works on for ten days, and one alone."""

    @agent("worker")
    async def worker(input: Any, ctx: Any) -> str:
        await anyio.sleep(10 * DAY)
        return "done"

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> str:
        ctx.spawn("worker", "go", result="ignore")
        return "begun"

    @agent("alone")
    async def alone(input: Any, ctx: Any) -> str:
        return "done"

    return [worker, parent, alone]


async def roots_of(rt: Runtime) -> set[str]:
    return await rt.hub.journal.inspect(lambda reader: {*reader.roots().values()})


async def test_a_tree_in_which_a_child_lives_is_none_of_the_last_that_ended(
    store: str, ports: Ports
) -> None:
    retention = Retention(keep_last=1)
    async with Runtime(families(), store=store, ports=ports, retention=retention) as rt:
        over = (await rt.run("alone", "go")).run_id
        family = (await rt.run("parent", "go")).run_id
        await anyio.sleep(DAY)
        assert await roots_of(rt) == {over, family}


async def test_a_tree_is_as_young_as_the_end_of_its_last_run(store: str, ports: Ports) -> None:
    """So says ``hubbub prune`` of the same store, too."""
    retention = Retention(keep_last=1)
    kept: Any = MemoryJournal() if store == "memory" else store
    async with Runtime(families(), store=kept, ports=ports) as rt:
        family = (await rt.run("parent", "go")).run_id
        await anyio.sleep(5 * DAY)
        young = (await rt.run("alone", "go")).run_id
        await anyio.sleep(6 * DAY)

        def look(reader: StoreReader) -> list[str]:
            return [x.root_run_id for x in find_trees(reader, retention, ports.clock.now()).trees]

        assert await rt.hub.journal.inspect(look) == [young]
    async with Runtime(families(), store=kept, ports=ports, retention=retention) as rt:
        await anyio.sleep(DAY)
        assert await roots_of(rt) == {family}


async def test_what_was_noted_of_a_question_goes_with_who_asked(store: str, ports: Ports) -> None:
    @tool(approval=True)
    async def refund(order: int) -> str:
        """Pay an order back."""
        return "refunded"

    desk = model_agent(ScriptedModel([call("refund", order=7)]), refund, name="desk")
    agents, retention = [desk, *families()], Retention(ended="1d")
    async with Runtime(agents, store=store, ports=ports, retention=retention) as rt:
        asks = await rt.start("desk", "Refund it.")
        await anyio.sleep(1)

        def notes(reader: StoreReader) -> list[str]:
            return [key for key in reader.notes() if asks.run_id in key]

        assert await rt.hub.journal.inspect(notes)
        await rt.hub.terminate(asks.run_id)
        await rt.finished(asks.run_id)
        await rt.run("alone", "go")
        await anyio.sleep(2 * DAY)
        assert asks.run_id not in await roots_of(rt)
        assert await rt.hub.journal.inspect(notes) == []


async def test_what_lives_on_after_its_root_and_of_which_nothing_is_heard_is_ended_and_goes(
    store: str, ports: Ports
) -> None:
    boss = Recorder(
        call("subagent_create", agent="helper", name="Bob", arguments={"message": "Do it."}), "Bye."
    )
    helper = child(Recorder(call("finish", result="1"), latency=50))
    agents = [parent(boss, config(stays=True, blocking=False)), helper, *families()]
    retention = Retention(silent="10d", ended="5d")
    async with Runtime(agents, store=store, ports=ports, retention=retention) as rt:
        root = (await rt.run("main", "Please.")).run_id
        await anyio.sleep(9 * DAY)
        (info,) = await rt.hub.journal.runs()
        assert info.root_run_id == root != info.run_id and info.status == "parked"
        await anyio.sleep(2.5 * DAY)
        assert await rt.hub.journal.runs() == []
        assert (await rt.result(info.run_id)).outcome == "terminated"
        await rt.run("alone", "go")
        assert await roots_of(rt) >= {root}
        await anyio.sleep(5 * DAY)
        assert root not in await roots_of(rt)
