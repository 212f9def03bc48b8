"""A long code agent comes back from its snapshot, and is given what it did before page by page."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import AgentDefinition, Event, RunContext, Runtime
from hubbub.agents.code.lifecycle import CodeThread, fold_code_all
from hubbub.agents.snapshots.thread_text import decode_thread, fold_version
from hubbub.hub import events as e
from hubbub.hub.errors import StoreFailed
from hubbub.hub.ports import Ports
from hubbub.hub.snapshots.draft import RECORDS
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store, snapshots_of
from hubbub.runtime.runs import earlier
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sql.reader import SqlReader

pytestmark = pytest.mark.anyio

RUN = "worker-1"
Body = Callable[[RunContext], Awaitable[Any]]


class Lives:
    """One process after another on a store, each of which says something to one agent."""

    def __init__(self, kind: str, folder: Path, ports: Ports) -> None:
        self.folder, self.ports = folder, ports
        self._memory = MemoryJournal(ids=ports.ids) if kind == "memory" else None
        self.said = 0

    def store(self) -> Store:
        return self._memory or sqlite_store(self.folder, ports=self.ports)

    async def live(self, body: Body, messages: int, *, on_restart: Any = "resume") -> list[Event]:
        """So many messages more; the own lane afterwards."""

        async def execute(input: None, ctx: RunContext) -> Any:
            return await body(ctx)

        async def helps(input: None, ctx: RunContext) -> str:
            return "helped"

        agents = (
            AgentDefinition(name="worker", execute=execute, on_restart=on_restart),
            AgentDefinition(name="helper", execute=helps),
        )
        async with Runtime(agents, store=self.store(), ports=self.ports, grace=0) as rt:
            if not self.said:
                await rt.hub.open("worker", run_id=RUN)
            for _ in range(messages):
                await rt.hub.send_to_run(RUN, f"{self.said}")
                self.said += 1
            await anyio.sleep(100)
            return [x for x in await rt.hub.read(RUN) if x.lane == "own"]

    def change(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.folder / "hubbub.db")) as db:
            db.execute(statement, values)
            db.commit()


@pytest.fixture(params=["memory", "sqlite"])
def lives(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Lives:
    return Lives(request.param, tmp_path, ports)


class Worker:
    """Does a step for each message, and starts a child with each hundredth."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool]] = []
        self.ran: list[str] = []
        self.results: list[Any] = []

    async def body(self, ctx: RunContext) -> None:
        self.heard, self.results = [], []
        async for message in ctx.messages():
            self.heard.append((message.content, message.redelivered))
            self.results.append(await ctx.step("note", self._note, message.content))
            if not int(message.content) % 100:
                child = await ctx.spawn("helper", name=message.content).result()
                assert child.output == "helped"

    def _note(self, content: str) -> str:
        self.ran.append(content)
        return content


async def test_what_it_did_is_found_again_and_goes_on(lives: Lives) -> None:
    worker, before = Worker(), 0
    for count in (RECORDS, 5, RECORDS):
        lane = await lives.live(worker.body, count)
        assert worker.heard == [(f"{x}", x < before) for x in range(lives.said)]
        assert worker.ran == worker.results == [content for content, _ in worker.heard]
        assert sum(isinstance(x, e.AgentChild) for x in lane) == 1 + (lives.said - 1) // 100
        before = lives.said
    store = lives.store()
    await store.open()
    try:
        found = snapshots_of(store)
        assert found is not None
        kept = await found.load_kept(RUN, fold_version())
    finally:
        await store.aclose()
    assert kept is not None and kept.kept is not None
    assert len(lane) - 2 * RECORDS <= kept.after
    assert decode_thread(kept.kept) == fold_code_all(CodeThread(), lane[: kept.after])


async def test_no_more_is_read_than_it_asks_for(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Lives("sqlite", tmp_path, ports)
    await lives.live(Worker().body, 2 * RECORDS)
    monkeypatch.setattr(earlier, "PAGE", 10)
    loaded: list[int] = []
    read: list[int] = []
    own_lane, taken = SqlReader._own_lane, earlier.Earlier._keep

    def loads(self: SqlReader, run_id: str, number: int, after: int) -> list[Event]:
        if run_id == RUN:
            loaded.append(after)
        return own_lane(self, run_id, number, after)

    def keep(self: earlier.Earlier, events: Any) -> None:
        read.append(len(events))
        taken(self, events)

    monkeypatch.setattr(SqlReader, "_own_lane", loads)
    monkeypatch.setattr(earlier.Earlier, "_keep", keep)
    heard: list[str] = []

    async def hears_three(ctx: RunContext) -> None:
        async for message in ctx.messages():
            heard.append(message.content)
            if len(heard) == 3:
                await anyio.sleep_forever()

    await lives.live(hears_three, 1)
    assert heard == ["0", "1", "2"]
    assert loaded and all(after >= RECORDS for after in loaded)
    assert read == [10]
    read.clear()

    async def hears_new(ctx: RunContext) -> None:
        async for message in ctx.messages(redelivered=False):
            heard.append(message.content)
            await anyio.sleep(1)

    await lives.live(hears_new, 1)
    assert heard[3:] == [f"{2 * RECORDS}", f"{2 * RECORDS + 1}"]
    assert not read


async def test_a_short_run_that_passes_over_what_it_has_read_hears_only_new_ones(
    lives: Lives,
) -> None:
    worker = Worker()
    await lives.live(worker.body, 5)
    heard: list[tuple[str, bool]] = []

    async def hears_new(ctx: RunContext) -> None:
        async for message in ctx.messages(redelivered=False):
            heard.append((message.content, message.redelivered))
            await anyio.sleep(1)

    await lives.live(hears_new, 1)
    assert heard == [("5", False)]


async def test_a_handler_hears_all_of_it_in_order_before_what_is_new(lives: Lives) -> None:
    await lives.live(Worker().body, RECORDS)
    heard: list[tuple[str, bool]] = []

    async def listens(ctx: RunContext) -> None:
        async def hear(message: e.SessionMessage) -> None:
            heard.append((message.content, message.redelivered))

        ctx.hub.subscribe("session:message", hear)
        await anyio.sleep_forever()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(earlier, "PAGE", 7)
        lane = await lives.live(listens, 3)
    assert heard == [(f"{x}", x < RECORDS) for x in range(lives.said)]
    taken = [x.content for y in lane if isinstance(y, e.SessionTaken) for x in y.items
             if isinstance(x, e.SessionMessage)]  # fmt: skip
    assert taken == [f"{x}" for x in range(lives.said)]


async def test_a_run_that_is_not_executed_again_reads_nothing(lives: Lives) -> None:
    worker = Worker()
    await lives.live(worker.body, RECORDS)
    lane = await lives.live(worker.body, 0, on_restart="fail")
    assert lane[-1].type == "agent:complete"
    assert worker.ran == [f"{x}" for x in range(RECORDS)]


async def test_a_step_that_was_never_made_is_new(lives: Lives) -> None:
    await lives.live(Worker().body, RECORDS)
    found: list[Any] = []

    async def body(ctx: RunContext) -> None:
        async with anyio.create_task_group() as group:  # Both read on at once.
            group.start_soon(self_made, ctx, "other")
            group.start_soon(self_made, ctx, "note")

    async def self_made(ctx: RunContext, name: str) -> None:
        found.append(await ctx.step(name, lambda: "new"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(earlier, "PAGE", 7)
        await lives.live(body, 0)
    assert sorted(found) == ["0", "new"]


@pytest.mark.parametrize("by", ["stream", "handler"])
async def test_what_cannot_be_read_leaves_the_run_as_it_is(
    by: str, tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    async def listens(ctx: RunContext) -> None:
        ctx.hub.subscribe("session:message", lambda message: None)
        await anyio.sleep_forever()

    lives, worker = Lives("sqlite", tmp_path, ports), Worker()
    await lives.live(worker.body, RECORDS)
    some = "WHERE type = 'session:taken' AND seq BETWEEN 9 AND 20"
    lives.change(f"UPDATE event SET body = body || ' ' {some}")
    with caplog.at_level(logging.ERROR, "hubbub"), pytest.raises(StoreFailed):
        # Which reads its record in the end.
        await lives.live(worker.body if by == "stream" else listens, 0)
    assert any("run.unreadable" in x.getMessage() for x in caplog.records)
    lives.change(f"UPDATE event SET body = rtrim(body) {some}")
    lane = await lives.live(worker.body, 1)
    assert not any(x.type in ("agent:failed", "agent:complete") for x in lane)
    assert [content for content, _ in worker.heard] == [f"{x}" for x in range(RECORDS + 1)]


async def test_one_whose_agent_is_gone_is_ended_all_the_same(lives: Lives) -> None:
    await lives.live(Worker().body, RECORDS)
    async with Runtime([], store=lives.store(), ports=lives.ports, grace=0) as rt:
        await rt.hub.terminate(RUN)
        assert (await rt.finished(RUN)).outcome == "terminated"
