"""Several workers on one store, of which one is killed, while the server cuts every connection.

    this process: a channel ── opens trees, sends, listens, serves the page ─┐
    worker-1 ── kill -9 when it has begun ───────────────────────────────────┼─► one store
    worker-2 ── takes its trees over ────────────────────────────────────────┤
    worker-3 ── is started in its place ─────────────────────────────────────┘

What has happened is told line by line, and to the agent ``story``, so that the page shows it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct

from hubbub.hub.events import AgentComplete, AgentToolComplete, Event, HubDeadLetter
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.documents import FoundDocument, document_facts, list_documents
from hubbub.runtime.demo.survey_model import many
from hubbub.runtime.demo.workers.agents import COUNTER, STORY, task_of_tree
from hubbub.runtime.demo.workers.crew import Crew
from hubbub.runtime.demo.workers.demo_store import DemoStore
from hubbub.runtime.demo.workers.tally import SentMessage, Tally, Verdict
from hubbub.runtime.inspection.at_work import StoreAtWork, list_processes
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.runtime import Runtime

__all__ = ["MAX_DOCUMENTS", "WorkersDemo", "run_workers_demo"]

MAX_DOCUMENTS: Final = 200
TREES: Final = 8

PATIENCE: Final = 120.0
"""Seconds within which each act of the demo must be over."""

LOOK: Final = 0.1

Say = Callable[[str], object]


class WorkersDemo(Struct, frozen=True, kw_only=True):
    """What is demonstrated: how many workers, on which documents."""

    workers: int
    folder: Path
    wanted: Callable[[str], bool] = lambda name: True


async def run_workers_demo(
    demo: WorkersDemo,
    store: DemoStore,
    say: Say,
    over: Callable[[Verdict], bool],
    page: Callable[[Hub], Awaitable[object]] | None = None,
) -> Verdict | None:
    """Run the demo to its end, and give the verdict to ``over``; ``None`` if it was left before.

    ``page`` serves a hub until it is left, by which the demo is; ``over`` says whether it is to
    stay.  Raises ``OperatorError`` for a store that cannot be used, and ``TimeoutError`` where
    nothing goes on for minutes.
    """
    ports = Ports()
    listing = await ports.offload.run(
        partial(list_documents, demo.folder, wanted=demo.wanted, max_documents=MAX_DOCUMENTS)
    )
    runtime = Runtime(role="channel", store=store.channel(ports), ports=ports)
    told = _Told(say)
    verdict: Verdict | None = None
    async with Crew(store.shown, store.environ, told.of_worker) as crew:
        for number in range(demo.workers):
            await crew.start(f"worker-{number + 1}")
        async with runtime, anyio.create_task_group() as group:

            async def show(serve: Callable[[Hub], Awaitable[object]]) -> None:
                await serve(runtime.hub)
                group.cancel_scope.cancel()

            if page is not None:
                group.start_soon(show, page)
            verdict = await _Play(demo, store, listing.documents, runtime, crew, told).run()
            if over(verdict) and page is not None:
                await anyio.sleep_forever()
            group.cancel_scope.cancel()
    return verdict


class _Told:
    """Says what happens, and has the agent ``story`` write it down as soon as there is one."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.hub: Hub | None = None

    def happened(self, text: str) -> None:
        self._say(text)
        if self.hub is not None:
            self.hub.send_to_run(STORY, Message(text), source="demo")

    def of_worker(self, name: str, line: Mapping[str, Any]) -> None:
        """What a worker has said of itself."""
        count = line.get("count", 0)
        match line.get("event"):
            case "worker.joined":
                self._say(f"{name} is at work")
            case "trees.claimed":
                self._say(f"{name} takes {many(count, 'tree')}")
            case "trees.handed_over":
                self._say(f"{name} hands over {many(count, 'tree')}")
            case "trees.lost":
                self._say(f"{name} has lost {many(count, 'tree')}: its lease was over")
            case "store.waits":
                self._say(f"{name} waits for the server")
            case "store.back":
                self._say(f"{name} has the server back")


class _Play:
    """The acts of the demo, one after another."""

    def __init__(
        self,
        demo: WorkersDemo,
        store: DemoStore,
        documents: Sequence[FoundDocument],
        runtime: Runtime,
        crew: Crew,
        told: _Told,
    ) -> None:
        self._demo = demo
        self._store = store
        self._documents = documents
        self._runtime = runtime
        self._crew = crew
        self._told = told
        self._tally = Tally(len(documents))
        self._names = {each.uri: each.path for each in documents}
        self._run_ids: list[str] = []
        self._sent: list[SentMessage] = []

    async def run(self) -> Verdict:
        clock = self._runtime.ports.clock
        with anyio.fail_after(PATIENCE):
            await self._wait_workers(self._demo.workers)
            await self._open()
            await self._tally.wait_counted(len(self._documents) // 3)
            victim = await self._busiest()
            self._told.happened(f"kill -9 of {victim}, in the middle of its work")
            self._crew.kill(victim)
            began = clock.monotonic()
            await self._send("while one worker is dead")
            await self._wait_taken_over(victim)
            taken_over = clock.monotonic() - began
            self._told.happened(f"all trees of {victim} are others' after {taken_over:.1f} s")
        with anyio.fail_after(PATIENCE):
            await self._crew.start(f"worker-{self._demo.workers + 1}")
            cut = await self._runtime.ports.offload.run(self._store.cut)
            self._told.happened(f"the server has cut {many(cut, 'connection')}: all there were")
            await self._send("while no worker has a connection")
            await self._tally.wait_over(self._run_ids)
        return await self._judge(taken_over, cut)

    # ── acts ─────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        hub = self._runtime.hub
        hub.subscribe([AgentToolComplete.type, AgentComplete.type, HubDeadLetter.type], self._hear)
        story = await self._runtime.start(STORY, "The demo begins.", run_id=STORY)
        self._told.hub = hub
        trees = min(TREES, len(self._documents))
        for number in range(trees):
            uris = [each.uri for each in self._documents[number::trees]]
            run = await self._runtime.start(
                COUNTER, task_of_tree(uris), once=True, name=f"tree {number + 1}"
            )
            self._run_ids.append(run.run_id)
        what = f"{many(len(self._documents), 'document')} in {many(trees, 'tree')}"
        self._told.happened(f"{what} of runs, opened by a process that drives none")
        assert story.run_id == STORY

    async def _send(self, when: str) -> None:
        """A message to each run that is not over, which is accepted, whoever drives it."""
        for number, run_id in enumerate(self._run_ids, 1):
            text = f"Hello, tree {number}, {when}."
            receipt = await self._runtime.hub.send_to_run(run_id, text, source="demo")
            if receipt.accepted:
                self._sent.append(SentMessage(run_id=run_id, text=text))

    def _hear(self, event: Event) -> None:
        counted = self._tally.take(event)
        if counted is not None:
            by = self._crew.name_of(counted.process)
            self._told._say(f"{by}: {self._names[counted.uri]}, {many(counted.words, 'word')}")

    # ── who is at work ───────────────────────────────────────────────────────────────────────

    async def _processes(self) -> StoreAtWork:
        now = self._runtime.ports.clock.now()
        return await self._runtime.hub.journal.inspect(lambda store: list_processes(store, now))

    async def _wait_workers(self, count: int) -> None:
        while sum(each.is_worker for each in (await self._processes()).processes) < count:
            await self._runtime.ports.clock.sleep(LOOK)

    async def _busiest(self) -> str:
        """The worker that has most trees."""
        found = [each for each in (await self._processes()).processes if each.is_worker]
        return max(found, key=lambda each: each.trees).name

    async def _wait_taken_over(self, victim: str) -> None:
        while True:
            found = await self._processes()
            if not found.free and all(each.name != victim for each in found.processes):
                return
            await self._runtime.ports.clock.sleep(LOOK)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    async def _judge(self, taken_over: float, cut: int) -> Verdict:
        offload = self._runtime.ports.offload
        words = sum(
            [(await offload.run(partial(document_facts, x))).words for x in self._documents]
        )
        problems = self._tally.problems(self._run_ids, words, self._sent)
        check = StoreCheck(self._store.text)
        problems += [each.text for each in await offload.run(lambda: list(check.problems()))]
        return Verdict(
            trees=len(self._run_ids), documents=len(self._documents), words=words,
            messages=len(self._sent), unhandled=len(self._tally.dead), taken_over=taken_over,
            cut=cut, problems=tuple(problems),
        )  # fmt: skip
