"""A task of an open runtime is cancelled by somebody who is none of its scopes: all goes on.

As a tool, or a shutdown handler, does it that cancels ``asyncio.all_tasks()``.  Trio's tasks cannot
be cancelled by others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import echo_model, model_agent

from hubbub import Agent, CustomEvent, Event, RunContext, Runtime, agent
from hubbub.channels import Channel, ChannelContext, Channels
from hubbub.hub.errors import StoreFailed
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.retention.retention import Retention

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("G-02"),
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]

MANY = 100
"""More messages than are handed to their runs at once."""


@agent("keeper")
async def keeper(input: Any, ctx: RunContext) -> None:
    async for message in ctx.messages():
        ctx.status(f"kept {message.content}")


@agent("slow")
async def slow(input: Any, ctx: RunContext) -> None:
    await anyio.sleep(3600)


class World:
    """A runtime with something of everything, and what its tasks still do."""

    def __init__(self, store: Store, ports: Ports) -> None:
        echo: Agent = model_agent(echo_model(), name="echo")
        self.heard: list[str] = []
        self.channel = Channel("channel", {"x:*": self.hear})
        self.runtime = Runtime(
            [echo, keeper, slow], store=store, ports=ports, grace=1,
            schedules=[Cron("tick", "* * * * *", "echo", "tick")],
            retention=Retention(ended="30d"),
        )  # fmt: skip

    @asynccontextmanager
    async def open(self) -> AsyncIterator["World"]:
        async with self.runtime as rt, Channels(rt.hub, self.channel):
            self.kept = await rt.start("keeper")
            self.idle = await rt.start("echo", "x", session_key="idle")
            await self.idle.result()
            rt.hub.subscribe("x:*", self.listen)
            await rt.hub.publish(CustomEvent.of("x:first"))
            await anyio.sleep(90)
            yield self

    def hear(self, event: Event, context: ChannelContext) -> None:
        self.heard.append(event.type)

    async def listen(self, event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard.append(event.type)

    def tasks(self) -> dict[str, list[asyncio.Task[Any]]]:
        """Those of the library that are alive, by what they are called."""
        known = {self.kept.run_id: "a code agent's", self.idle.run_id: "a model agent's"}
        found: dict[str, list[asyncio.Task[Any]]] = {}
        for task in asyncio.all_tasks():
            name = known.get(task.get_name(), task.get_name())
            if not name.startswith("Task-"):  # Those are the test's.
                found.setdefault(name, []).append(task)
        return found

    async def check(self) -> None:
        """Everything is done that there is to do, and soon."""
        rt = self.runtime
        with anyio.fail_after(200):
            assert (await rt.run("echo", "y")).output == "echo: y"
            assert (await rt.hub.send_to_run("unknown", "y")).reason == "unknown"
            assert (await self.idle.ask("again")).output == "echo: again"
            if rt.runs.get(self.kept.run_id) is None:  # Its function was told, and has let it be.
                reason = (await self.kept.finished()).reason
                assert reason == "CancelledError: it awaited something that was cancelled elsewhere"
                self.kept = await rt.start("keeper")
            async with rt.hub.subscribe("agent:status", run_id=self.kept.run_id) as said:
                assert (await self.kept.send("this")).accepted
                assert "kept this" in str(await anext(said))
            hurried = await rt.start("slow", timeout=0.5)
            assert (await hurried.finished()).outcome == "timed_out"
            runs = [await rt.start("echo", f"{n}") for n in range(MANY)]
            for run in runs:
                assert (await run.result()).outcome == "completed"
            before = len(await rt.hub.read(types="schedule:fire"))
            await anyio.sleep(61)
            assert len(await rt.hub.read(types="schedule:fire")) > before
            self.heard.clear()
            await rt.hub.publish(CustomEvent.of("x:y"))
            await anyio.sleep(0.1)
            assert self.heard == ["x:y", "x:y"]


STORES: dict[str, Callable[..., Store]] = {
    "memory": lambda path, ports: MemoryJournal(),
    "sqlite": lambda path, ports: sqlite_store(path / "store", ports=ports),
}


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Callable[[int], World]:
    return lambda number: World(STORES[request.param](tmp_path / str(number), ports), ports)


async def test_each_task_of_a_runtime_goes_on_when_it_is_cancelled(
    make: Callable[[int], World],
) -> None:
    async with make(0).open() as world:
        names = sorted(world.tasks())
    assert {"hubbub", "hubbub timers", "hubbub activation", "hubbub retention"} < set(names)
    for number, name in enumerate(names):
        async with make(number + 1).open() as world:
            for task in world.tasks()[name]:
                task.cancel()
            await anyio.sleep(0.1)
            await world.check()


async def test_a_runtime_goes_on_when_all_tasks_are_cancelled(make: Callable[[int], World]) -> None:
    async with make(0).open() as world:
        for tasks in world.tasks().values():
            for task in tasks:
                task.cancel()
        await anyio.sleep(0.1)
        await world.check()


async def test_a_listener_that_leaves_a_timeout_open_fails_the_store_and_nobody_waits(
    tmp_path: Path, ports: Ports
) -> None:
    kept = []

    def timed() -> Iterator[None]:
        with anyio.move_on_after(0.02):
            yield
            yield

    def listen(event: Event) -> None:
        if event.type == "x:leak":
            kept.append(timed())
            next(kept[-1])

    echo = model_agent(echo_model(), name="echo")

    async def work() -> None:
        async with Runtime([echo], store=sqlite_store(tmp_path / "s", ports=ports)) as rt:
            rt.hub.subscribe("*", listen)
            await rt.hub.publish(CustomEvent.of("x:leak"))
            await anyio.sleep(1)
            with anyio.fail_after(10), pytest.raises(StoreFailed, match="has left one open"):
                await rt.run("echo", "x")
            assert "has left one open" in rt.hub.send_to_run("any", "x").reason

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await work()
    for each in kept:
        with suppress(RuntimeError):
            each.close()
    async with Runtime([echo], store=sqlite_store(tmp_path / "s", ports=ports)) as rt:
        assert (await rt.run("echo", "x")).output == "echo: x"
