"""Runtimes that share a store on a real server: what is one for all of them, and whose trees are
whose when one is left, comes late, or is no longer heard of."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup, TaskStatus
from support.agents import echo_model, model_agent
from support.families import child, config, parent
from support.postgres import Server

from hubbub import AgentDefinition, Event, Heartbeat, Limits, Run, Runtime
from hubbub.agents.model import UserMessage
from hubbub.hub.events import ScheduleFire
from hubbub.hub.events.descriptors import UserDescriptor
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.stores.postgres import hearing
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.spec("X-05")]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


async def until(is_so: Callable[[], bool], seconds: float = 40.0) -> None:
    with anyio.fail_after(seconds):
        while not is_so():  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.005)


class WorkerAtWork:
    """One of them: left in order, or gone without a word."""

    def __init__(self, agents: Sequence[AgentDefinition], store: PostgresStore, **options: Any):
        self.store = store
        self.runtime = Runtime(agents, store=store, **options)
        self.heard: list[Event] = []
        self._leaves, self._has_left = anyio.Event(), anyio.Event()

    async def live(self, *, task_status: TaskStatus[None]) -> None:
        async with self.runtime:
            self.runtime.hub.subscribe("*", self.heard.append)
            task_status.started()
            await self._leaves.wait()
        self._has_left.set()

    @property
    def trees(self) -> set[str]:
        return set(self.store.sharing.trees())

    async def left(self) -> None:
        self._leaves.set()
        await self._has_left.wait()

    async def died(self) -> None:
        """Say nothing more to the store: the lease ends by itself."""

        async def nothing(*_: object) -> None:
            pass

        self.store._share._do_hand_over = self.store._share._do_drain = nothing
        self.store.forget_submitted()
        await self.left()


class Schema:
    """A new store, and who is at work on it."""

    def __init__(self, server: Server, group: TaskGroup, ttl: float) -> None:
        self.address = server.dsn()
        self._group, self._ttl = group, ttl
        self.all: list[WorkerAtWork] = []

    async def begin(
        self, agents: Sequence[AgentDefinition] | None = None, **options: Any
    ) -> WorkerAtWork:
        store = PostgresStore(self.address, ttl=self._ttl)
        worker = WorkerAtWork(agents or echoes(), store, **options)
        await self._group.start(worker.live)
        self.all.append(worker)
        return worker

    def channel(self) -> Runtime:
        store = PostgresStore(self.address, ttl=self._ttl, is_worker=False)
        return Runtime(store=store, role="channel")


@asynccontextmanager
async def schema(server: Server, ttl: float = 6.0) -> AsyncIterator[Schema]:
    async with anyio.create_task_group() as group:
        made = Schema(server, group, ttl)
        yield made
        for worker in made.all:
            await worker.left()


def echoes() -> list[AgentDefinition]:
    return [model_agent(echo_model(0.01), name="echo")]


def leaders() -> list[AgentDefinition]:
    def delegates(request: Any) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("", call("helper", message="go"))
        return str(last.calls[-1].output)

    helps = FunctionModel(lambda _: reply("", call("finish", result="helped")))
    return [parent(FunctionModel(delegates), config()), child(helps)]


async def started(worker: WorkerAtWork, count: int) -> list[Run]:
    """So many conversations that rest."""
    runs = [await worker.runtime.start("echo", "a") for _ in range(count)]
    for run in runs:
        assert (await run.result()).output == "echo: a"
    return runs


# ── what is one for all ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["keys", "descriptors", "run ids"])
async def test_an_address_that_two_race_for_is_one_run(server: Server, what: str) -> None:
    def address(number: int) -> dict[str, Any]:
        if what == "keys":
            return {"session_key": f"chat-{number}"}
        if what == "run ids":
            return {"run_id": f"run-{number}"}
        user = UserDescriptor(connector="chat", user_id=str(number), channel_id="1")
        return {"descriptor": user}

    found: list[tuple[int, str, bool]] = []

    async def opens(worker: WorkerAtWork, number: int) -> None:
        receipt = await worker.runtime.hub.open("echo", "a", **address(number))
        found.append((number, receipt.run_id, receipt.created))

    async with schema(server) as store:
        workers = [await store.begin() for _ in range(2)]
        async with anyio.create_task_group() as group:
            for number in range(10):
                for worker in workers:
                    group.start_soon(opens, worker, number)
        for number in range(10):
            both = [(run_id, created) for n, run_id, created in found if n == number]
            assert len({run_id for run_id, _ in both}) == 1
            assert sum(created for _, created in both) == 1
        one, other = workers
        assert len(one.trees) + len(other.trees) == 10
        assert not one.trees & other.trees


async def test_a_schedule_of_two_fires_once(server: Server) -> None:
    beats: dict[str, Any] = {"schedules": [Heartbeat("echo", ["beat"], interval=1.0)]}

    def ticks(worker: WorkerAtWork) -> list[int]:
        return [x.tick for x in worker.heard if isinstance(x, ScheduleFire)]

    async with schema(server) as store:
        one, other = [await store.begin(**beats) for _ in range(2)]
        await until(lambda: len(ticks(one)) >= 3)
        await one.left()
        seen = len(ticks(other))
        await until(lambda: len(ticks(other)) >= seen + 2)
        assert len(set(ticks(other))) == len(ticks(other))
        assert ticks(other)[: len(ticks(one))] == ticks(one)


# ── whose trees are whose ────────────────────────────────────────────────────────────────────


async def test_idle_trees_of_who_leaves_are_the_others_at_once(server: Server) -> None:
    """And not when the lease is over."""
    async with schema(server, ttl=60.0) as store:
        one = await store.begin()
        runs = await started(one, 20)
        other = await store.begin(capacity=1000)
        began = anyio.current_time()
        await one.left()
        await until(lambda: len(other.trees) == 20)
        took = anyio.current_time() - began
        assert took < 5, "a second on a machine that is not busy, and no lease is waited for"
        assert (await other.runtime.result(runs[0].run_id)).output == "echo: a"
        await other.runtime.hub.send_to_run(runs[7].run_id, "b")
        handle = await other.runtime.handle(runs[7].run_id)
        assert (await handle.result()).output == "echo: b"


async def test_a_late_worker_gets_its_share_of_what_rests(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "COMPARE", 0.1)
    async with schema(server) as store:
        one = await store.begin()
        await started(one, 8)
        late = await store.begin()
        await until(lambda: (len(one.trees), len(late.trees)) == (4, 4))
        small = await store.begin(capacity=1)
        await until(lambda: len(small.trees) == 1)
        assert not any(x.type == "agent:restore" for x in late.heard)


@pytest.mark.parametrize("how", ["left", "died"])
async def test_what_a_tree_has_used_counts_where_it_goes(server: Server, how: str) -> None:
    async with schema(server, ttl=1.5) as store, store.channel() as channel:
        agents = [*echoes(), *leaders()]
        one = await store.begin(agents, max_spawns=1)
        runs = [
            await channel.start("echo", "a", limits=Limits(model_calls=1)),
            await channel.start("main", "go"),
        ]
        said, helped = [await run.result() for run in runs]
        assert said.output == "echo: a"
        assert "helped" in str(helped.output)
        other = await store.begin(agents, max_spawns=1)
        await (one.left() if how == "left" else one.died())
        await until(lambda: other.trees == {run.run_id for run in runs})
        over, refused = [await run.ask("again") for run in runs]
        assert (over.outcome, over.reason) == ("limit", "tree.model_calls")
        assert "not started" in str(refused.output)


async def test_a_conversation_that_its_next_worker_had_not_heard_of_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notifications may come late: a tree is claimed ahead of the news of who opened it."""
    async with schema(server) as store:
        one, other = await store.begin(), await store.begin()
        hear, late = hearing.Hearing.hear, other.store._hearing

        async def hear_late(self: hearing.Hearing, *until: Any, found: Any = None) -> None:
            if self is not late or other.trees:
                await hear(self, *until, found=found)

        monkeypatch.setattr(hearing.Hearing, "hear", hear_late)
        run = await one.runtime.start("echo", "a", session_key="talk")
        await run.result()
        await one.left()
        await until(lambda: run.run_id in other.trees)
        talk = await other.runtime.handle(run.run_id)
        assert (await talk.ask("b")).output == "echo: b"
