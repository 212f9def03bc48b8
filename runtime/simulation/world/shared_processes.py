"""``SharedProcesses``: several workers on one store, and the process that the world speaks through.

    worker 0 ─┐
    worker 1 ─┼─ links ─► SharedMemory ◄─ link ─ channel: users' messages; owns no tree of runs
    worker 2 ─┘

A worker that dies is begun again in its place.  ``die``, ``end`` and ``restart`` are of all of
them at once.
"""

import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

import anyio

from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.store.shared.journal import SharedMemoryJournal
from hubbub.hub.store.shared.link import Link
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.hub.store.store import Store
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.injection.plan import Plan
from hubbub.runtime.simulation.loop.stopped import StoppedTasks
from hubbub.runtime.simulation.story.faults import (
    CutWorker,
    KillWorker,
    PauseWorker,
    WorkerFault,
    WorldFault,
)
from hubbub.runtime.simulation.story.history import Heard, History, Life
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.world.process import Process
from hubbub.runtime.simulation.world.processes import Processes

__all__ = ["SharedProcesses"]

LATENCIES: Final = (0.0, 0.001, 0.05)
"""Seconds of the way to the store, one of which a world has by its seed."""

AGAIN: Final = 1.0
"""Seconds after which another worker begins in the place of one that a crash has killed."""


class WorkerSlot:
    """Holds one worker, and the next one when that has died."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.link: Link | None = None
        self.keeper = anyio.CancelScope()
        self.down = AGAIN
        """Seconds that it stays empty when its worker dies next."""

    @property
    def at_work(self) -> Process | None:
        """Its worker, unless that is over."""
        return None if self.process is None or self.process.is_over else self.process


class SharedProcesses(Processes):
    """``Processes`` whose ``process`` is the channel, beside ``count`` workers."""

    longest = 5_000.0  # Time costs something here: leases are renewed all the time.

    def __init__(
        self,
        setup: Setup,
        ports: Ports,
        plan: Plan,
        history: History,
        faults: Sequence[WorldFault] = (),
        listen: Callable[[Hub], object] = lambda hub: None,
        *,
        count: int,
    ) -> None:
        super().__init__(setup, ports, plan, history, faults, listen)
        self._faults = [x for x in faults if isinstance(x, WorkerFault)]
        self._shared = SharedMemory(ports.clock, ids=ports.ids)
        self._shared.writers = history.writers = []
        self._latency = LATENCIES[history.seed % len(LATENCIES)]
        self._slots = [WorkerSlot(number) for number in range(count)]
        self._stopped = StoppedTasks()
        plan.life_here = self._stopped.here
        self._by_life: dict[int, Process] = {}
        self._told: set[str] = set()
        """The durable events of which somebody has heard."""
        self._is_up = False

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._stopped.resume_all()
        return await super().__aexit__(exc_type, exc, traceback)

    def new_store(self) -> Store:
        """What holds everything, without a lease."""
        return self._shared.kept

    # ── beginnings ───────────────────────────────────────────────────────────────────────────

    async def _begin_one(self) -> Process | None:
        if not self._is_up:
            self._is_up = True
            for slot in self._slots:
                await self._fill(slot)
                if not self._wanted.is_set():
                    return None
                slot.keeper = anyio.CancelScope()
                self._group.start_soon(self._keep, slot, name="hubbub worker")
            faults, self._faults = self._faults, []
            for fault in faults:
                self._group.start_soon(self._strike, fault, name="hubbub worker fault")
        return await super()._begin_one()

    async def _fill(self, slot: WorkerSlot) -> None:
        """Begin a worker, and another one as long as faults kill it before it is at work."""
        while slot.at_work is None and self._wanted.is_set():
            life = self._new_life(slot.number)
            journal, slot.link = self._journal(is_worker=True)
            slot.process = process = self._make(life, journal)
            self._start(process)
            await process.wait_begun()
            if process.error is not None:
                raise process.error

    async def _keep(self, slot: WorkerSlot) -> None:
        """Begin another worker whenever the one in a place has died."""
        with slot.keeper:
            while (process := slot.process) is not None:
                await process.wait_ended()
                if process.error is not None:
                    raise process.error
                await self._plan.wait_over(slot.down)
                slot.down = AGAIN
                await self._fill(slot)

    def _start(self, process: Process) -> None:
        async def live() -> None:
            with self._stopped.life(process.life.number):
                await process.run()

        self._group.start_soon(live, name=f"life {process.life.number}")

    def _new_process(self) -> Process:
        return self._make(self._new_life(), self._journal(is_worker=False)[0])

    def _journal(self, *, is_worker: bool) -> tuple[SharedMemoryJournal, Link]:
        link = Link(self._ports.clock, self._latency)
        return SharedMemoryJournal(self._shared, is_worker=is_worker, link=link), link

    def _make(self, life: Life, store: Store) -> Process:
        process = super()._make(life, store)
        self._by_life[life.number] = process
        return process

    def _listen(self, hub: Hub, life: Life) -> None:
        heard, told = self._history.heard, self._told

        def hear(event: Event) -> None:
            if event.lane:
                life.told.append(event.id)
                if event.id in told:
                    return
                told.add(event.id)
            heard.append(Heard(event=event, life=life.number))

        self._subscribe(hub, hear)

    # ── endings ──────────────────────────────────────────────────────────────────────────────

    def _stand_down(self) -> None:
        """Begin no more workers either, and hold none up."""
        super()._stand_down()
        self._is_up = False
        self._stopped.resume_all()
        for slot in self._slots:
            slot.keeper.cancel()
            if slot.link is not None:
                slot.link.mend()

    def _workers(self) -> list[Process]:
        """The last one of each place."""
        return [slot.process for slot in self._slots if slot.process is not None]

    async def _end(self) -> None:
        self._stand_down()
        workers = self._workers()
        for process in workers:
            if not process.is_over:
                process.leave()
        await super()._end()
        for process in workers:
            await process.wait_ended()
            self._is_gone(process.life)
        for process in workers:
            if process.error is not None:
                raise process.error

    async def die(self) -> None:
        """Kill all processes, as by ``kill -9``."""
        self._stand_down()
        workers = self._workers()
        for process in workers:
            if not process.is_over:
                process.kill()
        await super().die()
        for process in workers:
            await process.wait_ended()

    def cancel_crashes(self) -> None:
        super().cancel_crashes()
        for slot in self._slots:
            if slot.process is not None:
                slot.process.cancel_crashes()

    # ── what goes wrong with workers ─────────────────────────────────────────────────────────

    async def _strike(self, fault: WorkerFault) -> None:
        await anyio.sleep(fault.at)
        slot = self._slots[fault.worker]
        process, link = slot.at_work, slot.link
        if self._plan.is_over or process is None or link is None:
            return
        number = process.life.number
        match fault:
            case KillWorker():
                self._plan.note("worker", "kill", fault.worker)
                self._stopped.resume(number)
                slot.down = fault.seconds
                process.kill()
            case PauseWorker() if not self._stopped.is_stopped(number):
                self._plan.note("worker", "pause", fault.worker, fault.seconds)
                self._stopped.stop(number)
                await self._plan.wait_over(fault.seconds)
                self._stopped.resume(number)
            case CutWorker() if not link.is_cut:
                self._plan.note("worker", "cut", fault.worker, fault.seconds)
                link.cut()
                await self._plan.wait_over(fault.seconds)
                link.mend()

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    def life_here(self) -> int:
        number = self._stopped.here()
        return super().life_here() if number is None else number

    def is_dead_here(self) -> bool:
        number = self._stopped.here()
        process = self.process if number is None else self._by_life[number]
        return process is None or process.is_dead

    def ownerless(self) -> Sequence[str]:
        return self._shared.unowned()

    @property
    def runtimes(self) -> Sequence[Runtime]:
        workers = [slot.at_work for slot in self._slots]
        return [*(x.runtime for x in workers if x is not None), *super().runtimes]

    async def is_busy(self, runtime: Runtime) -> bool:
        for slot in self._slots:
            process, link = slot.at_work, slot.link
            if process is None or not process.has_begun or link is None or link.is_cut:
                return True
            if self._stopped.is_stopped(process.life.number):
                return True
        if any(each.hub.statistics().uncommitted for each in self.runtimes):
            return True
        died = (x.ended for x in self._history.lives if x.end in ("killed", "crashed"))
        if max(died, default=-math.inf) + self._shared.ttl >= self._ports.clock.monotonic():
            return True  # What the dead have owned seems to be owned.
        if self._shared.unowned():
            return True
        for run_id in await self._shared.kept.ready():
            if not await self._only_waits(run_id):
                return True
        return False

    async def _only_waits(self, run_id: str) -> bool:
        """Whether a run that is at work is code that waits for others, with nothing in its inbox:
        no record says that."""
        info = await self._shared.kept.info(run_id)
        if info is None or info.waiting:
            return False
        for runtime in self.runtimes:
            run = runtime.runs.get(run_id)
            if run is not None and runtime.hub.share.owns(info.root_run_id):
                return run.is_at_rest(runtime.outcomes.waits(run_id))
        return False
