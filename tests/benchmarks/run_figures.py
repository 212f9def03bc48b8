"""The figures of runs: model runs started, parked, driven, remembered; and the import."""

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tracemalloc
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from figures import Aim, Figure, Loop, cost, on_loop, rounds_of, stopwatch, timed, versus
from standard_run import (
    QUESTION,
    bytes_of_parked_run,
    calls_of_run,
    get_weather,
    imported_modules,
    standard_runtime,
)

from hubbub import Event, ModelRequest, Runtime, ScriptedModel
from hubbub.agents.model import AnsweredCall, AssistantMessage, UserMessage
from hubbub.runtime.models.scripted import call

__all__ = [
    "import_time",
    "live_memory",
    "parked",
    "parked_memory",
    "run_calls",
    "run_time",
    "together",
    "turned",
    "used_import_time",
]

HEAVY = ("httpx", "structlog", "rich", "cyclopts", "trio")


# ── one run ──────────────────────────────────────────────────────────────────────────────────


async def _bare(model: ScriptedModel) -> None:
    """The same model calls and the same tool, without hubbub around them."""
    asked = UserMessage(content=QUESTION)
    reply = await model.call(ModelRequest(messages=(asked,)))
    (wanted,) = reply.calls
    output = await get_weather.fn(**get_weather.parse(wanted.arguments))
    answered = AnsweredCall(id="1", name=wanted.name, arguments=wanted.arguments, output=output)
    await model.call(ModelRequest(messages=(asked, AssistantMessage(calls=(answered,)))))


def _bare_model(latency: float = 0.0) -> ScriptedModel:
    return ScriptedModel([call("get_weather", city="Paris"), "Sunny."], latency=latency)


def run_time(loop: Loop, rounds: int, scale: float) -> Figure:
    async def ours(count: int) -> float:
        async with standard_runtime() as runtime:
            runtime.hub.subscribe("*", lambda event: None)
            for _ in range(count // 10):
                await runtime.run("assistant", QUESTION)
            with stopwatch() as watch:
                for _ in range(count):
                    await runtime.run("assistant", QUESTION)
        return watch.seconds

    async def floor(count: int) -> float:
        model = _bare_model()
        with stopwatch() as watch:
            for _ in range(count):
                await _bare(model)
        return watch.seconds

    mine, bare = versus(loop, ours, floor, int(2_000 * scale), rounds)
    return Figure(
        what="agent run: 2 model calls, 1 tool, all events", loop=loop, unit="µs",
        value=1e6 / mine, floor=1e6 / bare, aim=cost(loop, 30),
        note="floor: the same calls without hubbub",
    )  # fmt: skip


def run_calls(loop: Loop, rounds: int, scale: float) -> Figure:
    return Figure(
        what="agent run: Python function calls", loop=loop, unit="calls",
        value=on_loop(loop, calls_of_run).total(), aim=Aim("<=", 200),
    )  # fmt: skip


def together(loop: Loop, rounds: int, scale: float) -> Figure:
    latency = 0.05

    async def ours(count: int) -> float:
        ended = 0

        def end(event: Event) -> None:
            nonlocal ended
            ended += 1

        async with standard_runtime(latency=latency) as runtime:
            runtime.hub.subscribe("agent:complete", end)
            with stopwatch(passing=True) as watch:
                async with anyio.create_task_group() as group:
                    for _ in range(count):
                        group.start_soon(runtime.run, "assistant", QUESTION)
            assert ended == count
        return watch.seconds

    async def floor(count: int) -> float:
        model = _bare_model(latency)
        with stopwatch(passing=True) as watch:
            await asyncio.gather(*(_bare(model) for _ in range(count)))
        return watch.seconds

    count = int(10_000 * scale)
    mine, bare = versus(loop, ours, floor, count, min(rounds, 3))
    return Figure(
        what=f"{count:,} runs at once, 2 model calls of 50 ms each", loop=loop, unit="s",
        value=count / mine, floor=count / bare, aim=cost(loop, 3.5),
        note="floor: a bare loop of the same calls",
    )  # fmt: skip


async def _live_bytes(count: int) -> float:
    """Bytes of a run while its model is asked, its caller's task and its journal included."""
    async with (
        standard_runtime(latency=3_600, grace=0) as runtime,
        anyio.create_task_group() as group,
    ):
        await _ask_for_ever(runtime, group, 100)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        await _ask_for_ever(runtime, group, count)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        group.cancel_scope.cancel()
    return (after - before) / count


async def _ask_for_ever(runtime: Runtime, group: TaskGroup, count: int) -> None:
    for _ in range(count):
        group.start_soon(runtime.run, "assistant", QUESTION)
    for _ in range(30):
        await anyio.lowlevel.checkpoint()
    gc.collect()


def live_memory(loop: Loop, rounds: int, scale: float) -> Figure:
    return Figure(
        what="memory of a live run", loop=loop, unit="bytes", aim=Aim("<=", 6_000),
        value=on_loop(loop, _live_bytes, max(100, int(5_000 * scale))),
        note="its model at work; its caller's task and its journal included",
    )  # fmt: skip


# ── many runs that wait ──────────────────────────────────────────────────────────────────────


def parked(loop: Loop, rounds: int, scale: float) -> Figure:
    async def ours(count: int) -> float:
        async with standard_runtime(tools=False) as runtime:
            with stopwatch() as watch:
                for _ in range(count):
                    receipt = await runtime.hub.open("assistant")
                    assert receipt.accepted
            while runtime.hub.statistics().parked < count:
                await anyio.lowlevel.checkpoint()
        return watch.seconds

    rate = rounds_of(lambda: timed(loop, ours, int(100_000 * scale)), min(rounds, 3))
    return Figure(
        what="start 100 k model runs that park at once", loop=loop, unit="runs/s", value=rate,
        aim=Aim(">=", 50_000),
    )  # fmt: skip


def turned(loop: Loop, rounds: int, scale: float) -> Figure:
    async def ours(count: int) -> float:
        parked = 0

        def park(event: Event) -> None:
            nonlocal parked
            parked += 1

        async with standard_runtime(tools=False) as runtime:
            runtime.hub.subscribe("agent:park", park)
            with stopwatch() as watch:
                for number in range(count):
                    runtime.hub.open("assistant", "Hello")
                    if not number % 1000:
                        await anyio.lowlevel.checkpoint()
                while parked < count:
                    await anyio.lowlevel.checkpoint()
        return watch.seconds

    rate = rounds_of(lambda: timed(loop, ours, int(100_000 * scale)), min(rounds, 3))
    return Figure(
        what="the same with a one-step turn each", loop=loop, unit="runs/s", value=rate,
        aim=Aim(">=", 8_000),
    )  # fmt: skip


def parked_memory(loop: Loop, rounds: int, scale: float) -> Figure:
    beside, inside = on_loop(loop, bytes_of_parked_run, int(10_000 * scale))
    return Figure(
        what="memory of a parked run beside its journal", loop=loop, unit="bytes", value=beside,
        floor=_slotted_object(), aim=Aim("<=", 500),
        note=f"floor: slotted object in a dict; {inside:,.0f} bytes in the journal",
    )  # fmt: skip


def _slotted_object() -> float:
    class Slotted:
        __slots__ = ("agent", "inbox", "run_id", "seq", "status")

        def __init__(self, number: int) -> None:
            self.run_id = f"01a20054-74c5-7434-{number:017d}"
            self.agent = "assistant"
            self.inbox: tuple[Any, ...] = ()
            self.seq = number
            self.status = "parked"

    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = {each.run_id: each for each in map(Slotted, range(10_000))}
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(kept)


# ── the import ───────────────────────────────────────────────────────────────────────────────


def import_time(loop: Loop, rounds: int, scale: float) -> Figure:
    heavy = sorted(imported_modules().intersection(HEAVY))
    assert not heavy, f"import hubbub also imports {', '.join(heavy)}"
    _cpu_ms("import hubbub")  # writes the bytecode
    with_it = statistics.median(_cpu_ms("import hubbub") for _ in range(max(3, 2 * rounds)))
    without = statistics.median(_cpu_ms("import asyncio") for _ in range(max(3, 2 * rounds)))
    return Figure(
        what="import hubbub", loop="none", unit="ms CPU", value=with_it, floor=without,
        aim=Aim("<=", 90), note="floor: import asyncio; the interpreter's own start not counted",
    )  # fmt: skip


USED = "from hubbub import Agent, Runtime, ScriptedModel, tool"


def used_import_time(loop: Loop, rounds: int, scale: float) -> Figure:
    """What a first program waits for: names of ``hubbub`` are loaded when they are used."""
    heavy = sorted(imported_modules(USED).intersection(HEAVY))
    assert not heavy, f"{USED} also imports {', '.join(heavy)}"
    _cpu_ms(USED)  # writes the bytecode
    with_it = statistics.median(_cpu_ms(USED) for _ in range(max(3, 2 * rounds)))
    without = statistics.median(_cpu_ms("import asyncio, msgspec") for _ in range(2 * rounds + 1))
    return Figure(
        what="import what a first program uses", loop="none", unit="ms CPU", value=with_it,
        floor=without, note=f"{USED}; floor: import asyncio, msgspec",
    )  # fmt: skip


def _cpu_ms(statement: str) -> float:
    code = (
        f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    )
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    return 1000 * float(done.stdout)
