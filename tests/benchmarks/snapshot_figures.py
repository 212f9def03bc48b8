"""How long a conversation of 100,000 records takes to wake, and what its snapshots cost."""

import atexit
import shutil
import sqlite3
import statistics
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from figures import Aim, Figure, Loop, on_loop
from msgspec import Struct

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
    tool,
)
from hubbub.agents.model import UserMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sql import snapshots

__all__ = ["long_wake", "snapshot_bytes"]

RECORDS = 100_000
KEY, SHORT = "long_desk_1", "short_desk_1"
WORDS = "It is sunny in the whole of the country, as it was yesterday and the day before. " * 4


@tool
async def weather(place: str) -> str:
    """Look up the weather of a place."""
    return f"In {place}: {WORDS}"


class Desk:
    """An agent that looks something up for each answer; and when it was asked."""

    def __init__(self) -> None:
        self.asked_at: list[float] = []
        prompt = PromptDefinition(
            name="desk", prompt="You help.", model=FunctionModel(self._answer), tools=[weather],
            compaction=Compaction(window=40_000),
        )  # fmt: skip
        self.agent = AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt))

    def _answer(self, request: ModelRequest) -> ModelReply:
        self.asked_at.append(perf_counter())
        usage = Usage(input_tokens=150 * len(request.messages), output_tokens=50)
        if request.purpose == "summary":
            return ModelReply(text=WORDS, usage=Usage(input_tokens=9_000))
        if isinstance(request.messages[-1], UserMessage):
            return reply("Let me see.", call("weather", place="Rome"), usage=usage)
        return reply(WORDS, usage=usage)


def _store(folder: Path) -> Any:
    return sqlite_store(folder, ports=Ports(), mirror=False)


async def _talk(folder: Path, key: str, records: int) -> int:
    """Have a conversation that has so many records; how many it has."""
    async with Runtime([Desk().agent], store=_store(folder)) as runtime:
        run = await runtime.start("desk", "Hello.", session_key=key)
        await run.result()
        while True:
            for _ in range(max(1, records // 1_000)):
                await run.ask("How is the weather?")
            loaded = await runtime.hub.journal.load(run.run_id, after=1)
            if loaded is None or loaded.seq >= records:
                return 0 if loaded is None else loaded.seq


async def _wake(folder: Path, key: str) -> float:
    """Seconds from a message to the model's being asked, in a process that has just begun."""
    desk = Desk()
    async with Runtime([desk.agent], store=_store(folder)) as runtime:
        await runtime.run("desk", "Warm up.")
        began = perf_counter()
        run = await runtime.start("desk", "And now?", session_key=key)
        await run.result()
    return next(at for at in desk.asked_at if at > began) - began


class LongStore(Struct, frozen=True):
    """A store with a long conversation and a short one, both parked, and what was written."""

    folder: Path
    records: int
    snapshots: tuple[int, ...]
    """The sizes of those that were written."""
    events: int
    """The bytes of all events."""


@cache
def _long_store(records: int) -> LongStore:
    """Made once: it takes minutes to be written."""
    folder = Path(tempfile.mkdtemp(prefix="hubbub-long-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    written: list[int] = []
    put = snapshots.checksum_of

    def counted(run_id: str, seq: int, chain: int, version: str, body: bytes) -> int:
        written.append(len(body))
        return put(run_id, seq, chain, version, body)

    store = folder / "store"
    snapshots.checksum_of = counted
    try:
        made = on_loop("asyncio", _talk, store, KEY, records)
    finally:
        snapshots.checksum_of = put
    on_loop("asyncio", _talk, store, SHORT, 50)
    with closing(sqlite3.connect(store / "hubbub.db")) as db:
        ((events,),) = db.execute("SELECT sum(length(body)) FROM event")
    return LongStore(store, made, tuple(written), events)


async def _waking(folder: Path, rounds: int) -> tuple[float, float, float]:
    long = [await _wake(folder, KEY) for _ in range(rounds)]
    short = [await _wake(folder, SHORT) for _ in range(rounds)]
    whole = []
    for number in range(max(1, rounds // 2)):
        copy = folder.with_name(f"{folder.name}-{number}")
        shutil.copytree(folder, copy)
        with closing(sqlite3.connect(copy / "hubbub.db")) as db:
            db.execute("DELETE FROM snapshot")
            db.commit()
        whole.append(await _wake(copy, KEY))
        shutil.rmtree(copy)
    return statistics.median(long), statistics.median(short), statistics.median(whole)


def long_wake(loop: Loop, rounds: int, scale: float) -> Figure:
    """From a message to the model's being asked, the conversation not being in memory."""
    made = _long_store(int(RECORDS * scale))
    long, short, whole = on_loop(loop, _waking, made.folder, max(3, rounds))
    return Figure(
        what=f"a conversation of {made.records:,} records wakes", loop=loop, unit="ms",
        value=1e3 * long, floor=1e3 * short, aim=Aim("<=", 20),
        note=f"floor: one of 50 records; without its snapshot: {1e3 * whole:,.0f} ms",
    )  # fmt: skip


def snapshot_bytes(loop: Loop, rounds: int, scale: float) -> Figure:
    """What is written of snapshots beside what is written of events: of one conversation."""
    made = _long_store(int(RECORDS * scale))
    return Figure(
        what=f"bytes of {len(made.snapshots)} snapshots of it, beside those of events",
        loop="asyncio", unit="MB", value=sum(made.snapshots) / 1e6, floor=made.events / 1e6,
        aim=Aim("<=", 1, of_floor=True), note="floor: the events",
    )  # fmt: skip
