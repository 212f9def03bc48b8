"""What a turn of a very long conversation costs beside one of a short one, with summaries."""

import tempfile
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from figures import Aim, Figure, Loop, on_loop, stopwatch

from hubbub import (
    AgentDefinition,
    Compaction,
    FunctionModel,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    Runtime,
    SideConfig,
    Usage,
)
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import sqlite_store

__all__ = ["long_durable", "long_in_memory", "seconds_a_turn"]

SHORT = 100


def _answer(request: ModelRequest) -> ModelReply:
    if request.purpose == "summary":
        return ModelReply(text="They talked about the weather.", usage=Usage(input_tokens=9_000))
    return ModelReply(
        text="It is sunny, as it was.", usage=Usage(input_tokens=100 * len(request.messages))
    )


def _agent() -> AgentDefinition:
    prompt = PromptDefinition(
        name="desk", prompt="You help.", model=FunctionModel(_answer),
        compaction=Compaction(window=10_000),
    )  # fmt: skip
    return AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt))


async def seconds_a_turn(store: Any, turns: int) -> float:
    """CPU seconds of a turn, over a conversation of so many; a summary is made every 30 or so."""
    async with Runtime([_agent()], store=store) as runtime:
        run = await runtime.start("desk", "Hello.")
        await run.result()
        with stopwatch() as watch:
            for _ in range(turns):
                await run.ask("How is the weather?")
    return watch.seconds / turns


async def _both(kind: str, turns: int, rounds: int) -> tuple[float, float]:
    """Of a long conversation, and of short ones, of which there are as many as fit in a tenth."""
    with tempfile.TemporaryDirectory() as folder:
        stores = iter(range(1_000))

        def store() -> Any:
            if kind == "memory":
                return "memory"
            return sqlite_store(Path(folder) / str(next(stores)), ports=Ports())

        short = [await seconds_a_turn(store(), SHORT) for _ in range(max(3, rounds))]
        long = await seconds_a_turn(store(), turns)
        await anyio.lowlevel.checkpoint()
    return long, sorted(short)[len(short) // 2]


def _figure(kind: str, loop: Loop, rounds: int, scale: float) -> Figure:
    turns = max(SHORT, int(10_000 * scale))
    long, short = on_loop(loop, _both, kind, turns, rounds)
    return Figure(
        what=f"a turn of a conversation of {turns:,} with summaries, {kind} store", loop=loop,
        unit="µs", value=1e6 * long, floor=1e6 * short, aim=Aim("<=", 1.3, of_floor=True),
        note=f"floor: a turn of one of {SHORT}",
    )  # fmt: skip


def long_in_memory(loop: Loop, rounds: int, scale: float) -> Figure:
    return _figure("memory", loop, rounds, scale)


def long_durable(loop: Loop, rounds: int, scale: float) -> Figure:
    return _figure("SQLite", loop, rounds, scale)
