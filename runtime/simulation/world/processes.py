"""``Processes``: the processes of a simulated world, one after the other on one store.

begin ─► at work ─► end (left in order) ─► begin …
            └── killed, or crashed by a fault ─► the next thing that is done begins anew
"""

import math
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, Closed
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.store.store import Store
from hubbub.runtime.arguments import Role
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.injection.plan import Plan
from hubbub.runtime.simulation.injection.power_loss import TornStore
from hubbub.runtime.simulation.injection.wrappers import listeners
from hubbub.runtime.simulation.story.faults import Crash, WorldFault
from hubbub.runtime.simulation.story.gone import gone_tree, gone_turns
from hubbub.runtime.simulation.story.history import Heard, History, Life
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.world.lived_threads import LivedThreads
from hubbub.runtime.simulation.world.process import Process

__all__ = ["Processes"]

T = TypeVar("T")

MOMENT: Final = 0.000_001
"""Seconds in which all is done that takes no time."""

EVERYTHING: Final = 1_000_000_000
"""How much the memory store keeps: a history must not lose its beginning."""

HEARD: Final = tuple(x.type for x in e.CATALOGUE if not x.type.endswith(":delta"))
"""What is listened to.  Who listens to deltas has models make them."""

_OF_HUB: Final = ("buffer", "max_inbox")
_SHARED_MEMORY: Final = Path("/dev/shm")
"""Disks are slow, and what a world writes lasts no longer than itself."""


class Processes:
    """Begins processes, ends them, and does things with the one at work."""

    longest = math.inf
    """Seconds after which a world at the latest is taken to rest."""

    def __init__(
        self,
        setup: Setup,
        ports: Ports,
        plan: Plan,
        history: History,
        faults: Sequence[WorldFault] = (),
        listen: Callable[[Hub], object] = lambda hub: None,
    ) -> None:
        """``listen`` is called with the hub of each process, before its runtime is entered."""
        self._also_listen = listen
        self._setup = setup
        self._ports = ports
        self._plan = plan
        self._history = history
        self._crashes = [fault for fault in faults if isinstance(fault, Crash)]
        self.process: Process | None = None
        """The one at work, or the one that has died last and nobody has begun again since."""
        self._resources = ExitStack()
        self._changing = anyio.Lock()
        """Held while a process begins or is left: messages that were held up may come then."""
        self._wanted = anyio.Event()
        """Set while there is to be a process.  After ``end`` and ``die`` the scenario decides when
        that is again: it may look at its store meanwhile."""
        if history.store != "sqlite":
            self._memory = MemoryJournal(keep=EVERYTHING, keep_hub_events=EVERYTHING, ids=ports.ids)

    async def __aenter__(self) -> Self:
        if self._history.store == "sqlite":
            place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
            folder = tempfile.TemporaryDirectory(prefix="hubbub-world-", dir=place)
            self._folder = Path(self._resources.enter_context(folder))
        self._group: TaskGroup = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Kill what is still at work, and forget the store."""
        try:
            self._group.cancel_scope.cancel()
            return await self._group.__aexit__(exc_type, exc, traceback)
        finally:
            self._resources.close()

    def new_store(self) -> Store:
        """The store, which survives its processes, as the next one opens it."""
        if self._history.store != "sqlite":
            return self._memory
        return TornStore(self._folder, ports=self._ports)

    def new_run_id(self) -> str:
        """An id that no run has."""
        return self._ports.ids.run_id(self._ports.clock.now())

    # ── beginnings ───────────────────────────────────────────────────────────────────────────

    async def begin(self) -> Process:
        """Begin a process, and another one as long as faults kill it before it is at work.

        Raises what the runtime raises, and ``CallerError`` when one is at work.
        """
        async with self._changing:
            if self.process is not None and not self.process.is_over:
                raise CallerError("a process is at work; use end(), die() or restart()")
            return await self._begin()

    async def living(self, *, held_up: bool = False) -> Process:
        """The process at work; a new one, if the last one has died or was left.

        For a message that was ``held_up`` none begins after ``end`` and ``die``: it waits until
        the scenario has begun one.  Raises what has broken its runtime.
        """
        while True:
            if held_up:
                await self._wanted.wait()
            async with self._changing:
                if held_up and not self._wanted.is_set():
                    continue
                self._wanted.set()
                process = self.process
                if process is None or process.is_dead:
                    process = await self._begin_one()
                elif process.error is not None:
                    raise process.error
                if process is not None:
                    return process

    async def _begin(self) -> Process:
        while True:
            self._wanted.set()
            if (process := await self._begin_one()) is not None:
                return process

    async def _begin_one(self) -> Process | None:
        """Begin a process; ``None`` if it dies before it is at work, or is not to be any more."""
        if self.process is not None:
            await self.process.wait_ended()
            if not self._wanted.is_set():
                return None
        self.process = process = self._new_process()
        self._start(process)
        await process.wait_begun()
        if process.error is not None:
            raise process.error
        return None if process.is_dead else process

    def _start(self, process: Process) -> None:
        self._group.start_soon(process.run, name=f"life {process.life.number}")

    def _new_process(self) -> Process:
        return self._make(self._new_life(), self.new_store())

    def _new_life(self, worker: int | None = None) -> Life:
        number = len(self._history.lives)
        life = Life(number=number, began=self._ports.clock.monotonic(), worker=worker)
        self._history.lives.append(life)
        return life

    def _make(self, life: Life, store: Store) -> Process:
        """The process of a life, on the store as that process has it."""
        crash = min(
            (x for x in self._crashes if x.life == life.number),
            key=lambda x: (x.commit, ("before", "torn", "after").index(x.when)),
            default=None,
        )

        def died() -> None:
            if isinstance(store, TornStore) and (tear := store.tear) is not None:
                self._plan.note("power", f"{tear.kept} of {tear.written} sectors")
            self._is_gone(life)
            process.died()

        def has_tree(commit: Commit) -> None:
            if commit.found is not None:
                self._history.forked.update(each.id for each in commit.found.events)
                return
            reader, now = store.reader(), self._ports.clock.now()
            try:
                if commit.cut is None:
                    gone = gone_tree(reader, commit.gone, life=life.number, at=now)
                else:
                    gone = gone_turns(reader, commit.cut, life=life.number, at=now)
            finally:
                reader.close()
            self._history.gone.append(gone)

        lived = LivedThreads(lambda: runtime.runs.in_memory, self._history.strayed)
        journal = DyingJournal(
            store,
            died,
            has_tree,
            on_commit=lived.written,
            on_load=lived.loaded,
            die_at=crash.commit if crash else 0,
            when=crash.when if crash else "after",
            sectors=crash.sectors if crash else 0,
        )
        outer: Store = LateJournal(journal) if self._history.store == "late" else journal
        arguments = self._setup.arguments()
        limits = {name: arguments.pop(name) for name in _OF_HUB if name in arguments}
        # A hub of its own: listeners are there before the runtime recovers.
        hub = Hub(journal=outer, ports=self._ports, **limits)
        role = self._role_of(store)
        if role == "channel":  # Its workers have trees go, and it does not.
            arguments.pop("retention", None)
        runtime = Runtime(**arguments, hub=hub, role=role)
        process = Process(life, runtime, journal, lambda: listeners(hub, self._plan))
        self._listen(hub, life)
        self._plan.begin_life(hub, journal.die, life.number)
        return process

    def _role_of(self, store: Store) -> Role:
        sharing = sharing_of(store)
        return "worker" if sharing is None or sharing.is_worker else "channel"

    def _listen(self, hub: Hub, life: Life) -> None:
        heard, number = self._history.heard, life.number

        def hear(event: Event) -> None:
            heard.append(Heard(event=event, life=number))

        self._subscribe(hub, hear)

    def _subscribe(self, hub: Hub, hear: Callable[[Event], None]) -> None:
        hub.subscribe(HEARD, hear)
        self._also_listen(hub)

    # ── endings ──────────────────────────────────────────────────────────────────────────────

    async def end(self) -> None:
        """Leave the runtime in order, if one is at work; raises what it raises."""
        async with self._changing:
            await self._end()

    async def restart(self) -> Process:
        """Leave in order what is at work, and begin again."""
        async with self._changing:
            await self._end()
            return await self._begin()

    async def _end(self) -> None:
        self._stand_down()
        process = self.process
        if process is None:
            return
        process.leave()
        await process.wait_ended()
        self.process = None
        self._is_gone(process.life)
        if process.error is not None:
            raise process.error

    def _stand_down(self) -> None:
        """Have nothing that happens by itself begin a process."""
        if self._wanted.is_set():
            self._wanted = anyio.Event()

    def _is_gone(self, life: Life) -> None:
        """A process is over: nobody waits for it."""
        life.place = life.place or len(self._history.heard)
        self._plan.end_life(life.number)

    async def die(self) -> None:
        """Kill the process at work, as by ``kill -9``."""
        self._stand_down()
        process = self.process
        if process is not None and not process.is_over:
            process.kill()
            await process.wait_ended()

    def cancel_crashes(self) -> None:
        """Let no fault kill this process, or a later one."""
        self._crashes.clear()
        if self.process is not None:
            self.process.cancel_crashes()

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    def life_here(self) -> int:
        """The number of the life that the caller's task belongs to."""
        return len(self._history.lives) - 1

    def is_dead_here(self) -> bool:
        """Whether the process that the caller's task belongs to is dead, or there is none."""
        return self.process is None or self.process.is_dead

    def ownerless(self) -> Sequence[str]:
        """The roots of the trees that no process drives, or will."""
        return ()

    @property
    def runtimes(self) -> Sequence[Runtime]:
        """Those at work."""
        process = self.process
        return () if process is None or process.is_over else (process.runtime,)

    async def is_busy(self, runtime: Runtime) -> bool:
        """Whether there is something to do, or on its way to the store."""
        return bool(runtime.hub.statistics().uncommitted or await runtime.hub.journal.ready())

    async def rest(self, runtime: Runtime, seconds: float, nap: float) -> bool:
        """Return when there is nothing to do, looked at from time to time; ``seconds`` later at
        the latest."""
        clock = self._ports.clock
        until = clock.monotonic() + min(seconds, self.longest)
        while (left := until - clock.monotonic()) > 0:
            await anyio.sleep(min(nap, left))
            if not await self.is_busy(runtime):
                await anyio.sleep(MOMENT)  # What is due just now may come behind this task.
                if not await self.is_busy(runtime):
                    break
            nap *= 2
        return True

    # ── doing things ─────────────────────────────────────────────────────────────────────────

    async def do(self, operate: Callable[[Runtime], Awaitable[T]], otherwise: T) -> T:
        """Do something with the process at work; ``otherwise`` if it dies meanwhile."""
        process = await self.living()
        with process.operation():
            try:
                return await operate(process.runtime)
            except Closed:
                if not process.is_dead:
                    raise
        if process.error is not None:
            raise process.error
        return otherwise
