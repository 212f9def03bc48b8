"""A store in memory that several processes share, as tests make one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from hubbub import Hub
from hubbub.hub.ports import Clock, Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.shared.journal import SharedMemoryJournal
from hubbub.hub.store.shared.link import Link
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.hub.virtual import LoopClock

__all__ = ["SharedPlace", "owner_of"]


class SharedPlace:
    """A ``SharedMemory`` with the journals of its processes, each at the end of a link."""

    def __init__(
        self, clock: Clock | None = None, *, ttl: float = 6.0, seconds: float = 0.0,
        memory: type[SharedMemory] = SharedMemory,
    ) -> None:  # fmt: skip
        self.clock = clock or LoopClock()
        self.ttl = ttl
        self.memory = memory(self.clock, ttl=ttl)
        self.links: list[Link] = []
        self._seconds = seconds

    def journal(self, *, is_worker: bool = True) -> SharedMemoryJournal:
        self.links.append(Link(self.clock, self._seconds))
        return SharedMemoryJournal(self.memory, is_worker=is_worker, link=self.links[-1])


@asynccontextmanager
async def owner_of(journal: Journal, ports: Ports, *agents: str) -> AsyncIterator[Hub]:
    """A hub without a runtime whom the runs of these agents belong to, should others share the
    store: for tests that write the lanes of runs by themselves."""
    hub = Hub(journal=journal, ports=ports)
    hub.share.offer(agents, None)
    async with hub:
        await anyio.sleep(1)  # Meanwhile it claims what is there.
        yield hub
