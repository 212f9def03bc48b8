"""What noise cannot touch: numbers of calls, bytes and modules, without a clock."""

import gc
from collections import Counter
from pathlib import Path

import pytest
from cache_figures import shares_of_conversation
from child_figures import TASK, delegating
from code_figures import calls_of_life, idle_bytes
from run import main
from standard_run import (
    QUESTION,
    RUN_EVENTS,
    bytes_of_parked_run,
    calls_of_run,
    events_of_run,
    imported_modules,
    standard_runtime,
)
from support.log_pages import pages_written

from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import sqlite_store

MOST_CALLS = {"asyncio": 275, "trio": 338}
"""What a standard run takes, the loop's own functions and 16 calls of the listener included, with
a little air.  Let it only go down."""

MOST_OF_DELEGATION = {"asyncio": 667, "trio": 835}
"""The same of a parent that has a child do the work: three model calls and a tool."""

MOST_OF_LIFE = {"asyncio": 228, "trio": 275}
"""The same of a code agent that is started, sent a message, and returns."""

MOST_PAGES = 19
"""Pages that a durable standard run writes into SQLite's log, on average."""

MOST_IDLE = {"asyncio": 5_200, "trio": 5_800}
"""Bytes of a code agent that waits, its journal in memory included; of few, which share less."""


@pytest.mark.anyio
async def test_standard_run_is_two_model_calls_and_a_tool() -> None:
    assert tuple(event.type for event in await events_of_run()) == RUN_EVENTS


@pytest.mark.anyio
async def test_standard_run_takes_few_function_calls(anyio_backend_name: str) -> None:
    counted = await calls_of_run()
    dearest = "\n".join(f"{count:4} {name}" for name, count in counted.most_common(25))
    total = counted.total()
    assert total <= MOST_CALLS[anyio_backend_name], f"{total} calls:\n{dearest}"


@pytest.mark.anyio
async def test_delegation_takes_few_function_calls(anyio_backend_name: str) -> None:
    counted = await calls_of_run(delegating(), "parent", TASK)
    dearest = "\n".join(f"{count:4} {name}" for name, count in counted.most_common(25))
    total = counted.total()
    assert total <= MOST_OF_DELEGATION[anyio_backend_name], f"{total} calls:\n{dearest}"


@pytest.mark.anyio
@pytest.mark.parametrize("agent", ["assistant", "parent"])
async def test_a_run_that_is_over_leaves_no_garbage(agent: str) -> None:
    opened = standard_runtime() if agent == "assistant" else delegating()
    async with opened as runtime:
        await runtime.run(agent, TASK)
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await runtime.run(agent, TASK)
            assert gc.collect() < 20
        finally:
            gc.enable()


@pytest.mark.anyio
async def test_a_code_agent_takes_few_function_calls(anyio_backend_name: str) -> None:
    assert await calls_of_life() <= MOST_OF_LIFE[anyio_backend_name]


@pytest.mark.anyio
async def test_a_durable_run_writes_few_pages(ports: Ports, tmp_path: Path) -> None:
    store = sqlite_store(tmp_path, ports=ports, mirror=False)
    async with standard_runtime(store=store, ports=ports) as runtime:
        for _ in range(100):
            await runtime.run("assistant", QUESTION)
        await store.flush()
        store._writer.checkpoint()  # The next transaction begins the log again.
        store._moved = store.tip
        for _ in range(100):
            await runtime.run("assistant", QUESTION)
        await store.flush()
        written = sum(pages_written(store.folder.database), Counter[str]())
    assert written["run_ready"] >= 200, "the log was begun again meanwhile"
    assert written.total() <= MOST_PAGES * 100, written.most_common()


@pytest.mark.anyio
async def test_a_code_agent_that_waits_takes_little(anyio_backend_name: str) -> None:
    assert await idle_bytes(1000) <= MOST_IDLE[anyio_backend_name]


@pytest.mark.anyio
@pytest.mark.parametrize("turn", [False, True])
async def test_parked_run_costs_little_beside_its_journal(turn: bool) -> None:
    beside, _ = await bytes_of_parked_run(1000, turn=turn)
    assert beside <= 500


def test_import_brings_in_nothing_heavy() -> None:
    heavy = {"httpx", "structlog", "rich", "cyclopts", "trio", "pytest", "hypothesis"}
    assert not heavy & imported_modules()


@pytest.mark.anyio
async def test_a_prefix_cache_serves_most_of_what_a_conversation_sends() -> None:
    for provider, share in (await shares_of_conversation(60)).items():
        assert share >= 0.95, provider


@pytest.mark.parametrize(
    "name",
    ["run", "cached", "long", *(pytest.param(x, marks=pytest.mark.long)
              for x in ("streams", "callbacks", "ask", "callers", "memory"))],
)  # fmt: skip
def test_benchmark_works(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--quick"]) == 0
    assert capsys.readouterr().out.count("\n") > 3
