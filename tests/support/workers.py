"""Runtimes that share a store, each as a process of its own that can be left and killed."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hubbub import AgentDefinition, Event, Hub, Runtime
from hubbub.hub.ports import MemoryBlobs, MemorySecrets, Ports, SystemIds
from hubbub.hub.store.shared.link import Link
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.hub.virtual import InlineOffload, InlineWorker
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.story.history import Life
from hubbub.runtime.simulation.world.process import Process
from support.shared_stores import SharedPlace

__all__ = ["Worker", "Workers", "until", "workers"]


async def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return when something is so, and not before it is looked at."""
    for _ in range(int(seconds * 100)):
        if is_so():
            return
        await anyio.sleep(0.01)
    raise AssertionError("it never comes to be so")


class Worker(Process):
    """A runtime on a hub and a link of its own."""

    def __init__(self, number: int, runtime: Runtime, journal: DyingJournal, link: Link) -> None:
        super().__init__(Life(number=number), runtime, journal, lambda: None)
        self.link = link
        self.heard: list[Event] = []
        runtime.hub.subscribe("*", self.heard.append)
        journal._on_death = self.died

    @property
    def durable(self) -> list[tuple[str, str, int]]:
        """What it has heard of the store's events, in order."""
        return [(x.run_id, x.lane, x.seq) for x in self.heard if x.lane]

    def owns(self, root_run_id: str) -> bool:
        return self.hub.share.owns(root_run_id)

    def has(self, run_id: str) -> bool:
        """Whether the run is in its memory."""
        return self.runtime.runs.get(run_id) is not None

    async def die(self) -> None:
        self.kill()
        await self.wait_ended()

    async def left(self) -> None:
        self.leave()
        await self.wait_ended()
        if self.error is not None:
            raise self.error


class Workers:
    """A shared store, and who is at work on it."""

    def __init__(
        self, group: TaskGroup, agents: Callable[[], Sequence[AgentDefinition]], place: SharedPlace,
        **options: Any,
    ) -> None:  # fmt: skip
        self._group = group
        self._agents = agents
        self.place = place
        self._options = options
        self._ids = SystemIds(1)
        self._kept = MemorySecrets(), MemoryBlobs()
        self.all: list[Worker] = []

    def ports(self) -> Ports:
        return Ports(
            clock=self.place.clock, ids=self._ids, offload=InlineOffload(), secrets=self._kept[0],
            blobs=self._kept[1], make_worker=InlineWorker,
        )  # fmt: skip

    async def begin(self, **options: Any) -> Worker:
        """One more worker."""
        journal = DyingJournal(self.place.journal())
        hub = Hub(journal=journal, ports=self.ports())
        agents = options.pop("agents", None) or self._agents()
        runtime = Runtime(agents, hub=hub, **{**self._options, **options})
        worker = Worker(len(self.all), runtime, journal, self.place.links[-1])
        self.all.append(worker)
        self._group.start_soon(worker.run)
        await worker.wait_begun()
        if worker.error is not None:
            raise worker.error
        return worker

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Hub]:
        """A process that only carries channels."""
        hub = Hub(journal=self.place.journal(is_worker=False), ports=self.ports())
        async with hub:
            yield hub

    @asynccontextmanager
    async def channel_runtime(
        self, agents: Sequence[AgentDefinition] = (), **options: Any
    ) -> AsyncIterator[Runtime]:
        """The same, with a runtime."""
        async with (
            self.channel() as hub,
            Runtime(agents, hub=hub, role="channel", **options) as runtime,
        ):
            yield runtime

    def owner_of(self, root_run_id: str) -> Worker | None:
        """The worker that drives a tree."""
        found = [x for x in self.all if not x.is_over and x.owns(root_run_id)]
        assert len(found) <= 1, "two workers own one tree"
        return found[0] if found else None


@asynccontextmanager
async def workers(
    agents: Callable[[], Sequence[AgentDefinition]], count: int = 2, *, ttl: float = 6.0,
    seconds: float = 0.001, memory: type[SharedMemory] = SharedMemory, **options: Any,
) -> AsyncIterator[Workers]:  # fmt: skip
    """So many workers on one store; they are left in order at the end."""
    place = SharedPlace(ttl=ttl, seconds=seconds, memory=memory)
    async with anyio.create_task_group() as group:
        made = Workers(group, agents, place, **options)
        for _ in range(count):
            await made.begin()
        yield made
        for worker in made.all:
            worker.link.mend()
            if not worker.is_over:
                await worker.left()
        group.cancel_scope.cancel()
