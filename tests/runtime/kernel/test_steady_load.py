"""What is asked while somebody writes without a pause is answered as if nobody did."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import echo_model, model_agent

from hubbub import CustomEvent, Event, Runtime, agent
from hubbub.hub.conformance.steps import A_RUN, open_run, write
from hubbub.hub.events import AgentStatus
from hubbub.hub.events.descriptors import UserDescriptor
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.virtual import InlineWorker
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sqlite import store as sqlite
from hubbub.runtime.stores.sqlite.writer import SqliteWriter

pytestmark = pytest.mark.anyio

MANY = 300
"""Commits that follow each other without a pause; each of the calls below needs far fewer."""


@agent("job")
async def job(input: Any, ctx: Any) -> Any:
    return input


@pytest.fixture(params=["late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return LateJournal(MemoryJournal())


@contextmanager
def writing_on(rt: Runtime) -> Iterator[Callable[[], bool]]:
    """Inside, each durable event leads to the next; gives whether they still do."""
    count = 0

    def again(_event: Event) -> None:
        nonlocal count
        count += 1
        if count < MANY:
            rt.hub.emit(CustomEvent.of("load:one"))

    with rt.hub.subscribe("load:one", again):
        rt.hub.emit(CustomEvent.of("load:one"))
        yield lambda: count < MANY
        count = MANY


async def start_and_wait(rt: Runtime) -> Any:
    return await (await rt.start("job", "x")).result()


CALLS: list[Callable[[Runtime], Awaitable[Any]]] = [
    lambda rt: rt.find("k"),
    lambda rt: rt.conversations(),
    lambda rt: rt.run("job", "x"),
    lambda rt: rt.hub.ask("runtime", "statistics"),
    lambda rt: rt.hub.read(limit=5),
    lambda rt: rt.schedules(),
    start_and_wait,
]


@pytest.mark.spec("H-05", "R-14", "U-06")
async def test_every_question_is_answered_while_others_write_without_a_pause(
    store: Store, ports: Ports
) -> None:
    agents = [model_agent(echo_model()), job]
    async with Runtime(agents, store=store, ports=ports, default_agent="assistant") as rt:
        run = await rt.start("assistant", "Hello.", session_key="k")
        await run.result()
        for number, call in enumerate([*CALLS, lambda _: run.result()]):
            with writing_on(rt) as is_writing:
                assert await call(rt) is not None
                assert is_writing(), f"call {number} has waited for a pause"


class SlowWorker(InlineWorker):
    """Does its work while others do a little of theirs."""

    async def run(self, fn: Callable[[], Any]) -> Any:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return fn()


async def test_folders_are_waited_for_up_to_what_was_committed_before(
    tmp_path: Path, ports: Ports
) -> None:
    workers = [InlineWorker(), InlineWorker(), SlowWorker()]  # The last is the folders'.
    ports.make_worker = lambda: workers.pop(0)
    store = sqlite_store(tmp_path / "store", ports=ports)
    await store.open()
    descriptor = UserDescriptor(connector="web", user_id="u", channel_id="c")
    await open_run(store, A_RUN, descriptor=descriptor)
    written = 0
    async with anyio.create_task_group() as group:

        async def write_on() -> None:
            nonlocal written
            while written < MANY:
                await write(store, A_RUN, written, AgentStatus())
                written += 1

        group.start_soon(write_on)
        await store.projected()
        assert written < MANY
        group.cancel_scope.cancel()
    await store.aclose()


async def test_the_log_is_moved_into_the_file_though_there_is_always_more_to_write(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    monkeypatch.setattr(sqlite, "MAX_LOG", MANY // 10)
    monkeypatch.setattr(SqliteWriter, "checkpoint", lambda self: moved.append(self.tip))
    store = sqlite_store(tmp_path / "store", ports=ports)
    async with Runtime([job], store=store, ports=ports) as rt:
        with writing_on(rt) as is_writing:
            while is_writing():
                await rt.hub.journal.flush()
    assert 5 < len(moved) <= 10
