"""The hub's figures: fan-out and asking."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
from figures import Aim, Figure, Loop, cost, rate, stopwatch, turns, versus

from hubbub import Event, Hub, RunContext, Runtime, agent

__all__ = ["ask_in_turn", "ask_together", "callbacks", "stream", "streams", "wakeups"]

LISTENERS = 100


class Tick(Event, tag="bench:tick", home="none"):
    """An ephemeral event, as a token delta is one."""

    number: int = 0


# ── fan-out ──────────────────────────────────────────────────────────────────────────────────


def _fan_out(
    burst: int, listeners: int = LISTENERS
) -> tuple[Callable[[int], Awaitable[float]], ...]:
    last = Tick(number=-1)

    async def ours(count: int) -> float:
        finished = 0

        async def consume(stream: Any) -> None:
            nonlocal finished
            async with stream:
                async for event in stream:
                    if event.number < 0:
                        break
            finished += 1

        async with Hub() as hub, anyio.create_task_group() as group:
            for _ in range(listeners):
                group.start_soon(consume, hub.subscribe(Tick.type))
            await anyio.lowlevel.checkpoint()
            with stopwatch() as watch:
                for number in range(1, count + 1):
                    hub.emit(Tick(number=number))
                    if not number % burst:
                        await anyio.lowlevel.checkpoint()
                hub.emit(last)
                while finished < listeners:
                    await anyio.lowlevel.checkpoint()
        return watch.seconds / listeners

    async def floor(count: int) -> float:
        queues: list[asyncio.Queue[Tick]] = [asyncio.Queue() for _ in range(listeners)]

        async def consume(queue: asyncio.Queue[Tick]) -> None:
            while (await queue.get()).number >= 0:
                pass

        tasks = [asyncio.create_task(consume(queue)) for queue in queues]
        await turns()
        with stopwatch() as watch:
            for number in range(1, count + 1):
                event = Tick(number=number)
                for queue in queues:
                    queue.put_nowait(event)
                if not number % burst:
                    await turns()
            for queue in queues:
                queue.put_nowait(last)
            await asyncio.gather(*tasks)
        return watch.seconds / listeners

    return ours, floor


def stream(loop: Loop, rounds: int, scale: float) -> Figure:
    ours, floor = versus(loop, *_fan_out(100, 1), int(100_000 * scale), rounds)
    return Figure(
        what="fan-out to 1 stream, bursts of 100", loop=loop, unit="µs", value=1e6 / ours,
        floor=1e6 / floor, aim=cost(loop, 1.5), note="floor: asyncio.Queue and a task",
    )  # fmt: skip


def streams(loop: Loop, rounds: int, scale: float) -> Figure:
    ours, floor = versus(loop, *_fan_out(100), int(2_000 * scale), rounds)
    return Figure(
        what="fan-out to 100 streams, bursts of 100", loop=loop, unit="deliveries/s",
        value=ours, floor=floor, aim=Aim(">=", 1.5, of_floor=True),
        note="floor: asyncio.Queue and a task per subscriber",
    )  # fmt: skip


def wakeups(loop: Loop, rounds: int, scale: float) -> Figure:
    ours, floor = versus(loop, *_fan_out(1), int(1_000 * scale), rounds)
    return Figure(
        what="fan-out to 100 streams, every delivery a wake-up", loop=loop, unit="deliveries/s",
        value=ours, floor=floor, aim=Aim(">=", 0.4, of_floor=True),
        note="floor: asyncio.Queue and a task per subscriber",
    )  # fmt: skip


def callbacks(loop: Loop, rounds: int, scale: float) -> Figure:
    def listener() -> Callable[[Any], None]:
        return lambda event: None

    async def ours(count: int) -> float:
        async with Hub() as hub:
            for _ in range(LISTENERS):
                hub.subscribe(Tick.type, listener())
            with stopwatch() as watch:
                for number in range(count):
                    hub.emit(Tick(number=number))
        return watch.seconds / LISTENERS

    async def floor(count: int) -> float:
        listeners = [listener() for _ in range(LISTENERS)]
        with stopwatch() as watch:
            for number in range(count):
                event = Tick(number=number)
                for each in listeners:
                    each(event)
        return watch.seconds / LISTENERS

    mine, floor_rate = versus(loop, ours, floor, int(20_000 * scale), rounds)
    return Figure(
        what="fan-out to 100 callbacks", loop=loop, unit="deliveries/s", value=mine,
        floor=floor_rate, aim=Aim(">=", 0.4, of_floor=True), note="floor: plain calls",
    )  # fmt: skip


# ── asking ───────────────────────────────────────────────────────────────────────────────────


@agent("oracle")
async def oracle(input: None, ctx: RunContext) -> None:
    async for message in ctx.messages():
        ctx.hub.reply(message.prompt_id, "yes")


def ask_in_turn(loop: Loop, rounds: int, scale: float) -> Figure:
    async def ours(count: int) -> float:
        async with Runtime([oracle], store="memory") as runtime:
            run = await runtime.start("oracle")
            with stopwatch() as watch:
                for _ in range(count):
                    await runtime.hub.ask(run.run_id, "Is it so?")
            await run.terminate()
        return watch.seconds

    async def floor(count: int) -> float:
        questions: asyncio.Queue[str] = asyncio.Queue()
        answers: asyncio.Queue[str] = asyncio.Queue()

        async def answer() -> None:
            while True:
                await questions.get()
                answers.put_nowait("yes")

        task = asyncio.create_task(answer())
        with stopwatch() as watch:
            for _ in range(count):
                questions.put_nowait("Is it so?")
                await answers.get()
        task.cancel()
        return watch.seconds

    mine, floor_rate = versus(loop, ours, floor, int(10_000 * scale), rounds)
    return Figure(
        what="send_to_run → handled → reply, one after the other", loop=loop, unit="µs",
        value=1e6 / mine, floor=1e6 / floor_rate, aim=cost(loop, 2.5),
        note="floor: asyncio.Queue ping-pong",
    )  # fmt: skip


def ask_together(loop: Loop, rounds: int, scale: float) -> Figure:
    callers = 100

    async def ours(count: int) -> float:
        async with Runtime([oracle], store="memory") as runtime:
            run = await runtime.start("oracle")

            async def ask() -> None:
                for _ in range(count // callers):
                    await runtime.hub.ask(run.run_id, "Is it so?")

            with stopwatch() as watch:
                async with anyio.create_task_group() as group:
                    for _ in range(callers):
                        group.start_soon(ask)
            await run.terminate()
        return watch.seconds

    async def floor(count: int) -> float:
        questions: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

        async def answer() -> None:
            while True:
                (await questions.get()).set_result("yes")

        async def ask() -> None:
            loop = asyncio.get_running_loop()
            for _ in range(count // callers):
                future: asyncio.Future[str] = loop.create_future()
                questions.put_nowait(future)
                await future

        task = asyncio.create_task(answer())
        with stopwatch() as watch:
            await asyncio.gather(*(ask() for _ in range(callers)))
        task.cancel()
        return watch.seconds

    mine, floor_rate = versus(loop, ours, floor, int(20_000 * scale), rounds)
    return Figure(
        what="100 callers in flight", loop=loop, unit="asks/s", value=mine, floor=floor_rate,
        aim=rate(loop, 0.25), note="floor: asyncio.Queue and a Future each",
    )  # fmt: skip
