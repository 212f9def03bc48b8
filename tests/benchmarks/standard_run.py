"""The standard run: two model calls and one tool, scripted, in memory, everybody listening.

Nothing here is timed; the guards and the benchmarks share it.
"""

import contextlib
import gc
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

from hubbub import (
    AgentDefinition,
    Event,
    PromptDefinition,
    Runtime,
    ScriptedModel,
    SideConfig,
    tool,
)
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call

__all__ = ["bytes_of_parked_run", "calls_of_run", "imported_modules", "standard_runtime"]

RUN_EVENTS = (
    "session:open", "agent:start", "session:start", "session:taken", "agent:step",
    "agent:tool:start", "agent:tool:complete", "agent:text", "agent:step", "session:end",
    "agent:complete",
)  # fmt: skip
"""The durable events of one standard run."""

QUESTION = "What is the weather in Paris?"


@tool
async def get_weather(city: str) -> str:
    """Current weather for a city."""
    return f"Sunny in {city}."


@contextlib.asynccontextmanager
async def standard_runtime(
    *, latency: float = 0.0, tools: bool = True, **options: Any
) -> AsyncIterator[Runtime]:
    """A runtime with one agent, ``assistant``: a tool call and a text, or just a text."""
    script = [call("get_weather", city="Paris"), "It is sunny in Paris."]
    model = ScriptedModel(script if tools else ["Hello."], latency=latency)
    prompt = PromptDefinition(
        name="assistant", prompt="You help.", model=model, tools=[get_weather] if tools else []
    )
    agent = AgentDefinition(name="assistant", side_a=SideConfig(prompt="assistant"))
    async with Runtime(
        agents=[agent], prompts=[prompt], **{"store": "memory", **options}
    ) as runtime:
        yield runtime


async def events_of_run() -> list[Event]:
    """The durable events of one run, as a ``*`` subscriber sees them."""
    async with standard_runtime() as runtime:
        events: list[Event] = []
        runtime.hub.subscribe("*", events.append)
        await runtime.run("assistant", QUESTION)
    return [event for event in events if event.is_durable]


async def calls_of_run(
    opened: contextlib.AbstractAsyncContextManager[Runtime] | None = None,
    agent: str = "assistant",
    question: str = QUESTION,
) -> Counter[str]:
    """The Python function calls of one warm run, by name; ``total()`` is their number.

    It is the standard run, unless another runtime is given.  Counts what the event loop does for it
    as well, with asyncio's and Trio's own functions.
    """
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            counted[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    async with opened or standard_runtime() as runtime:
        runtime.hub.subscribe("*", _ignore)
        for _ in range(3):
            await runtime.run(agent, question)
        gc.disable()  # Hypothesis, where it is loaded, is told of each collection.
        sys.setprofile(count)
        try:
            await runtime.run(agent, question)
        finally:
            sys.setprofile(None)
            gc.enable()
    return counted


def _ignore(event: Event) -> None:
    """Listens."""


# ── memory ───────────────────────────────────────────────────────────────────────────────────


async def bytes_of_parked_run(count: int, *, turn: bool = False) -> tuple[float, float]:
    """Bytes of a parked run: beside what its journal holds, and in the journal.

    With ``turn`` each run has had a one-step turn before it parks.
    """
    journal = MemoryJournal()
    async with standard_runtime(tools=False, store=journal) as runtime:
        await _park(runtime, 100, turn)
        gc.collect()
        held = _size_of(journal)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await _park(runtime, count, turn)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        in_journal = (_size_of(journal) - held) / count
        assert journal.depths()[1] == count + 100
    return (after - before) / count - in_journal, in_journal


async def _park(runtime: Runtime, count: int, turn: bool) -> None:
    handles = [await runtime.start("assistant", "Hello" if turn else None) for _ in range(count)]
    for run in handles:
        await run.result()


def _size_of(root: object) -> int:
    """The bytes of everything only ``root`` leads to, each object once."""
    seen: set[int] = set()
    total = 0
    stack = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type) or callable(value):
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        stack.extend(gc.get_referents(value))
        if not gc.is_tracked(value) and hasattr(value, "__struct_fields__"):
            # msgspec leaves structs of plain values out of the collector's sight.
            stack.extend(getattr(value, name) for name in value.__struct_fields__)
    return total


# ── imports ──────────────────────────────────────────────────────────────────────────────────


def imported_modules(statement: str = "import hubbub") -> frozenset[str]:
    """The names in ``sys.modules`` after ``statement`` in a process of its own."""
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())
