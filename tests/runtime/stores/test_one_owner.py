"""A run has one reader of its inbox and one execution, whoever tries for a second (T-08)."""

from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent

from hubbub import Hub, Runtime, agent
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, InboxInUse, OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("T-08")]


async def test_a_second_reader_of_an_inbox_is_refused(journal: Journal, ports: Ports) -> None:
    refused: list[str] = []

    @agent("readers")
    async def readers(input: str, ctx: Any) -> str:
        async def read() -> None:
            async for _ in ctx.messages():
                break

        async def second() -> None:
            await anyio.sleep(1)
            for how in (
                lambda: ctx.messages(),
                lambda: ctx.hub.subscribe("session:message", print),
            ):
                try:
                    how()
                except InboxInUse as error:
                    refused.append(str(error))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            group.start_soon(second)
        return "read"

    async with Runtime([readers], store=journal, ports=ports) as rt:
        run = await rt.start("readers", "x")
        await anyio.sleep(5)
        await rt.hub.send_to_run(run.run_id, "hello")
        assert (await run.result()).output == "read"
    assert len(refused) == 2 and all("already has a reader" in text for text in refused)


async def test_a_run_that_is_opened_twice_is_executed_once(journal: Journal, ports: Ports) -> None:
    started: list[str] = []

    @agent("counter")
    async def counter(input: str, ctx: Any) -> None:
        started.append(ctx.run_id)
        await anyio.sleep(10)

    async with Runtime([counter], store=journal, ports=ports) as rt:
        run_id = ports.ids.run_id(0)
        receipts = [rt.hub.open("counter", "x", run_id=run_id) for _ in range(5)]
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(lambda: rt.start("counter", "x", run_id=run_id))
        await rt.finished(run_id)
        assert started == [run_id]
        assert [(await receipt).status for receipt in receipts] == ["accepted"] + ["duplicate"] * 4


async def test_a_hub_has_one_runtime_at_a_time(ports: Ports) -> None:
    async with Hub(ports=ports) as hub, Runtime(hub=hub):
        with pytest.raises(BadValue, match="one Runtime per hub"):
            async with Runtime(hub=hub):
                pass


async def test_of_two_owners_of_a_run_only_one_can_write(ports: Ports) -> None:
    """Two processes on one store: the second to write loses the run, and says nothing in it."""
    journal = MemoryJournal()
    agents = [model_agent(echo_model(latency=5))]
    async with (
        Runtime(agents, store=journal, ports=ports) as first,
        Runtime(agents, store=journal, ports=ports) as second,
    ):
        run = await first.start("assistant", "hello")
        await anyio.sleep(1)
        second.runs.enqueue(run.run_id, None)  # It takes the run to be its own.
        with pytest.raises(OperatorError, match="another runtime runs it"):
            await run.result()
        await anyio.sleep(100)
        loaded = await journal.load(run.run_id)
        assert loaded is not None
        events = list(loaded.events)
        assert [x.seq for x in events] == list(range(1, len(events) + 1))
        assert sum(isinstance(x, e.AgentStart) for x in events) == 1
        said = [x.text for x in events if isinstance(x, e.AgentText)]
        assert said == ["echo: hello"], "answered once"
        assert (await second.result(run.run_id)).output == "echo: hello"
        assert (await run.send("more")).reason == "owned elsewhere"
        assert (await second.hub.send_to_run(run.run_id, "more")).accepted
