"""The figures of code agents: started and messaged, idle, and long ones executed again."""

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
from durable_figures import folder_on_disk
from figures import Aim, Figure, Loop, on_loop, rate, rounds_of, stopwatch, turns, versus

from hubbub import AgentDefinition, Event, RunContext, Runtime, agent
from hubbub.hub.events import SessionMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import sqlite_store

__all__ = ["calls_of_life", "code_agents", "code_idle", "code_wake", "code_wake_new", "idle_bytes"]

RECORDS = 100_000


@agent("once")
async def once(input: None, ctx: RunContext) -> str:
    async for message in ctx.messages():
        return message.content
    return ""


# ── starting ─────────────────────────────────────────────────────────────────────────────────


def code_agents(loop: Loop, rounds: int, scale: float) -> Figure:
    async def ours(count: int) -> float:
        started = ended = 0

        def start(event: Event) -> None:
            nonlocal started
            started += 1

        def end(event: Event) -> None:
            nonlocal ended
            ended += 1

        async with Runtime([once], max_live=count, store="memory") as runtime:
            runtime.hub.subscribe("agent:start", start)
            runtime.hub.subscribe("agent:complete", end)
            with stopwatch() as watch:
                run_ids = [runtime.hub.open("once").run_id for _ in range(count)]
                while started < count:
                    await anyio.lowlevel.checkpoint()
                for run_id in run_ids:
                    runtime.hub.send_to_run(run_id, "Hello")
                while ended < count:
                    await anyio.lowlevel.checkpoint()
        return watch.seconds

    async def floor(count: int) -> float:
        async def actor(queue: asyncio.Queue[str]) -> str:
            return await queue.get()

        with stopwatch() as watch:
            queues: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in range(count)]
            tasks = [asyncio.create_task(actor(queue)) for queue in queues]
            await turns()
            for queue in queues:
                queue.put_nowait("Hello")
            await asyncio.gather(*tasks)
        return watch.seconds

    mine, floor_rate = versus(loop, ours, floor, int(100_000 * scale), min(rounds, 3))
    return Figure(
        what="start 100 k code agents, one message each", loop=loop, unit="runs/s", value=mine,
        floor=floor_rate, aim=rate(loop, 0.4),
        note="floor: asyncio task and Queue each",
    )  # fmt: skip


# ── waiting ──────────────────────────────────────────────────────────────────────────────────


async def idle_bytes(count: int) -> float:
    """Bytes of a code agent that waits for its first message, its journal included."""
    async with Runtime([once], max_live=count + 100, store="memory", grace=0) as runtime:
        await _begin(runtime, 100)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await _begin(runtime, count)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return (after - before) / count


async def _begin(runtime: Runtime, count: int) -> None:
    begun = 0

    def begin(event: Event) -> None:
        nonlocal begun
        begun += 1

    with runtime.hub.subscribe("agent:start", begin):
        for _ in range(count):
            runtime.hub.open("once")
        while begun < count:
            await anyio.lowlevel.checkpoint()
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def _idle_floor(count: int) -> float:
    async def actor(queue: asyncio.Queue[str]) -> str:
        return await queue.get()

    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tasks = [asyncio.create_task(actor(asyncio.Queue())) for _ in range(count)]
    await turns()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for task in tasks:
        task.cancel()
    return (after - before) / count


async def calls_of_life(count: int = 100) -> float:
    """The Python function calls of a code agent's life, from its start to its end by one message;
    with those of the loop."""
    calls = ended = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    def end(event: Event) -> None:
        nonlocal ended
        ended += 1

    async with Runtime([once], max_live=count, store="memory") as runtime:
        first = await runtime.start("once")
        await first.send("Hello")
        await first.result()
        runtime.hub.subscribe("agent:complete", end)
        gc.disable()  # Hypothesis, where it is loaded, is told of each collection.
        sys.setprofile(counted)
        try:
            run_ids = [runtime.hub.open("once").run_id for _ in range(count)]
            await anyio.lowlevel.checkpoint()
            for run_id in run_ids:
                runtime.hub.send_to_run(run_id, "Hello")
            while ended < count:
                await anyio.lowlevel.checkpoint()
        finally:
            sys.setprofile(None)
            gc.enable()
    return calls / count


def code_idle(loop: Loop, rounds: int, scale: float) -> Figure:
    count = max(100, int(10_000 * scale))
    return Figure(
        what="memory of an idle code agent", loop=loop, unit="bytes",
        value=on_loop(loop, idle_bytes, count), floor=on_loop("asyncio", _idle_floor, count),
        aim=Aim("<=", 5_000), note="its journal in memory included; floor: asyncio task and Queue",
    )  # fmt: skip


# ── executed again ───────────────────────────────────────────────────────────────────────────


@agent("listener", on_restart="resume")
async def listener(input: None, ctx: RunContext) -> None:
    async for message in ctx.messages():
        if not message.redelivered:
            ctx.hub.reply(message.prompt_id, "yes")


@agent("listener", on_restart="resume")
async def keeper(input: None, ctx: RunContext) -> None:
    """The same, for an agent that needs none of what it has read before."""
    async for message in ctx.messages(redelivered=False):
        ctx.hub.reply(message.prompt_id, "yes")


async def _fill(folder: Path, count: int) -> str:
    """Have a code agent read so many messages, each of which is a record."""
    async with Runtime([listener], store=_store(folder), grace=0) as runtime:
        run = await runtime.start("listener")
        for number in range(count):
            runtime.hub.send_to_run(run.run_id, "Hello")
            if not number % 1_000:
                await runtime.hub.ask(run.run_id, "Are you there?")
        await runtime.hub.ask(run.run_id, "Are you there?")
    return run.run_id


def _store(folder: Path) -> Any:
    return sqlite_store(folder, ports=Ports(), mirror=False)


async def _wake(folder: Path, run_id: str, definition: AgentDefinition) -> float:
    """Seconds from opening a runtime until the agent answers."""
    start = perf_counter()
    async with Runtime([definition], store=_store(folder), grace=0) as runtime:
        await runtime.hub.ask(run_id, "Are you there?")
        return perf_counter() - start


async def _executed(count: int) -> float:
    """Seconds that the function alone takes to be given so many messages, one after another."""

    async def messages() -> AsyncIterator[SessionMessage]:
        for _ in range(count):
            yield message

    message = SessionMessage(content="Hello")
    start = perf_counter()
    async for each in messages():
        assert each.content
    return perf_counter() - start


def code_wake(loop: Loop, rounds: int, scale: float) -> Figure:
    count = int(RECORDS * scale)
    return Figure(
        what=f"a code agent of {count:,} records wakes", loop=loop, unit="ms",
        value=1e3 * _woken(loop, rounds, count, listener),
        floor=1e3 * rounds_of(lambda: float(on_loop(loop, _executed, count)), rounds),
        aim=Aim("<=", 20),
        note="boot included, all is read again; floor: giving them to the function, alone",
    )  # fmt: skip


def code_wake_new(loop: Loop, rounds: int, scale: float) -> Figure:
    count = int(RECORDS * scale)
    return Figure(
        what=f"one of {count:,} records that reads only new messages", loop=loop, unit="ms",
        value=1e3 * _woken(loop, rounds, count, keeper),
        floor=1e3 * _woken(loop, rounds, 10, keeper), aim=Aim("<=", 20),
        note="boot included; floor: one of 10 records",
    )  # fmt: skip


def _woken(loop: Loop, rounds: int, count: int, definition: AgentDefinition) -> float:
    """Seconds that an agent which has read so many messages takes to wake."""
    with folder_on_disk() as folder:
        store = folder / "store"
        run_id = on_loop(loop, _fill, store, count)
        return rounds_of(lambda: float(on_loop(loop, _wake, store, run_id, definition)), rounds)
