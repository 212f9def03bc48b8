"""``ctx.messages(redelivered=False)``: what was done for a message that is done with is never taken
for what another one needs."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.crash_journal import CrashJournal
from support.profiles import portion

from hubbub import AgentDefinition, RunContext, Runtime
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.snapshots.draft import RECORDS
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.runs import earlier
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

RUN = "worker-1"


class Worker:
    """What it does for each message does not name the message: a step, a child, a question."""

    def __init__(self, *, redelivered: bool = False, asks: bool = True) -> None:
        self.redelivered, self.asks = redelivered, asks
        self.charged: list[str] = []
        self.begun = 0
        self.done: list[tuple[str, ...]] = []
        self.stops_at = ""
        """The message at which it hangs once all is done for it."""

    async def body(self, input: None, ctx: RunContext) -> None:
        await ctx.step("begin", self._begin)
        await ctx.step("charge", lambda: "before")
        async for message in ctx.messages(redelivered=self.redelivered):
            charge = await ctx.step("charge", lambda said=message.content: self._charge(said))
            child = await ctx.spawn("helper").result()
            answer = await ctx.ask("Shall I?") if self.asks else ""
            self.done.append((message.content, charge, str(child.output), answer))
            if message.content == self.stops_at:
                await anyio.sleep_forever()

    def _begin(self) -> int:
        self.begun += 1
        return self.begun

    def _charge(self, said: str) -> str:
        self.charged.append(said)
        return said


class Lives:
    """One process after another on a store; each says so much to one agent, and answers what it
    asks with a number that no other answer has."""

    def __init__(self, kind: str, folder: Path, ports: Ports) -> None:
        self.folder, self.ports = folder, ports
        self._memory = MemoryJournal(ids=ports.ids) if kind == "memory" else None
        self.said = self.answers = self.helped = 0

    def agents(self, worker: Worker) -> list[AgentDefinition]:
        async def helps(input: None, ctx: RunContext) -> int:
            self.helped += 1
            return self.helped

        return [
            AgentDefinition(name="worker", execute=worker.body, on_restart="resume"),
            AgentDefinition(name="helper", execute=helps),
        ]

    async def live(self, worker: Worker, messages: int) -> list[tuple[str, ...]]:
        """What the agent has done in this life."""
        worker.done = []
        store = self._memory or sqlite_store(self.folder, ports=self.ports)
        async with Runtime(self.agents(worker), store=store, ports=self.ports, grace=0) as rt:

            def reply(event: Any) -> None:
                self.answers += 1
                rt.hub.reply(event.prompt_id, f"{self.answers}")

            rt.hub.subscribe("session:prompt", reply)
            if not self.said:
                await rt.hub.open("worker", run_id=RUN)
            for _ in range(messages):
                await rt.hub.send_to_run(RUN, f"{self.said}")
                self.said += 1
            await anyio.sleep(100)
        return worker.done


@pytest.fixture(params=["memory", "sqlite"])
def lives(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Lives:
    return Lives(request.param, tmp_path, ports)


def own(first: int, last: int) -> list[tuple[str, ...]]:
    """What it has done for messages, each with a charge, a child and an answer of its own."""
    return [(f"{x}", f"{x}", f"{x + 1}", f"{x + 1}") for x in range(first, last)]


@pytest.mark.parametrize("count", [3, RECORDS // 4])
async def test_each_message_has_what_was_done_for_it(
    count: int, lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "PAGE", 10)
    worker = Worker()
    assert await lives.live(worker, count) == own(0, count)
    assert await lives.live(worker, 3) == own(count, count + 3)
    assert await lives.live(worker, 2) == own(count + 3, count + 5)
    assert worker.charged == [f"{x}" for x in range(count + 5)] and worker.begun == 1


async def test_the_one_at_hand_finds_what_was_done_for_it(lives: Lives) -> None:
    worker = Worker()
    worker.stops_at = "3"
    assert await lives.live(worker, 4) == own(0, 4)
    for _ in range(2):
        assert await lives.live(worker, 0) == own(3, 4)
    worker.stops_at = ""
    assert await lives.live(worker, 2) == own(3, 6)
    assert worker.charged == [f"{x}" for x in range(6)]


async def test_who_wants_all_of_them_finds_for_each_what_is_its_own(lives: Lives) -> None:
    worker = Worker()
    await lives.live(worker, 3)
    await lives.live(worker, 3)
    everything = Worker(redelivered=True)
    assert await lives.live(everything, 1) == own(0, 7)
    assert everything.charged == ["6"]


async def test_wherever_the_process_dies_each_has_its_own(ports: Ports) -> None:
    async def live(journal: Any, crash: anyio.Event, worker: Worker, messages: range) -> None:
        story = Lives("memory", Path(), ports)
        async with (
            anyio.create_task_group() as tasks,
            Runtime(story.agents(worker), store=journal, ports=ports, grace=0) as rt,
        ):

            async def die() -> None:
                await crash.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(die)
            if await journal.info(RUN) is None:
                await rt.hub.open("worker", run_id=RUN)
            for number in messages:
                await rt.hub.send_to_run(RUN, f"{number}")
            await anyio.sleep(50)
            tasks.cancel_scope.cancel()

    whole = CrashJournal(MemoryJournal(ids=ports.ids))
    await live(whole, anyio.Event(), Worker(asks=False), range(3))
    for commits in portion(range(3, whole.commits)):
        inner = MemoryJournal(ids=ports.ids)
        dying, worker = CrashJournal(inner, after=commits), Worker(asks=False)
        await live(dying, dying.crashed, worker, range(3))
        await live(CrashJournal(inner), anyio.Event(), worker, range(10, 13))
        for said, charge, *_ in worker.done:
            assert said == charge, (commits, worker.done)
        children = [x for x in await read(inner) if isinstance(x, e.AgentChild)]
        heard = {said for said, *_ in worker.done}
        assert len(children) == len({x.child_run_id for x in children}) >= len(heard), commits


async def read(journal: MemoryJournal) -> list[Any]:
    loaded = await journal.load(RUN)
    assert loaded is not None
    return list(loaded.events)
