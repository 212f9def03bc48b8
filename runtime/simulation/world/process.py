"""``Process``: one life of a simulated world, a runtime in a task of its own.

    run ─► hub and runtime are entered ─► begun ─► leave ─► left in order ─► ended
                         └───────── the store dies ─────────┴─► cancelled, unheard ─► ended

A real process dies as a whole, in the middle of whatever it does.  Here its tasks are cancelled,
and what they still do meanwhile reaches nobody: the store takes nothing more, the hub is closed,
and no model is called.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from hubbub.agents.model import Model, ModelReply, ModelRequest, OnDelta
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.story.faults import CrashMoment
from hubbub.runtime.simulation.story.history import EndOfLife, Life

__all__ = ["DyingModel", "Process"]


class Process:
    """A runtime, on a hub of its own, that can be left in order and killed at any time."""

    def __init__(
        self, life: Life, runtime: Runtime, journal: DyingJournal, on_open: Callable[[], object]
    ) -> None:
        self.life = life
        self.runtime = runtime
        self.hub = runtime.hub
        self.error: Exception | None = None
        """What hub or runtime raised while the process was alive."""
        self._on_open = on_open
        self._journal = journal
        self._begun = anyio.Event()
        self._leave = anyio.Event()
        self._ended = anyio.Event()
        self._scope = anyio.CancelScope()
        self._operations: dict[anyio.CancelScope, None] = {}

    @property
    def is_dead(self) -> bool:
        return self._journal.is_dead

    @property
    def is_over(self) -> bool:
        """Whether nothing can be asked of it any more: dead, left, or broken."""
        return self.is_dead or self._ended.is_set()

    @property
    def has_begun(self) -> bool:
        """Whether its hub and its runtime have been entered, or it is over."""
        return self._begun.is_set()

    async def run(self) -> None:
        """Live, until told to leave or killed."""
        try:
            with self._scope:
                async with self.hub:
                    self._on_open()
                    async with self.runtime:
                        self._begun.set()
                        await self._leave.wait()
        except Exception as error:
            if not self.is_dead:  # What a dead process stumbles over on its way out is nothing.
                self.error = error
        finally:
            self._close()

    def _close(self) -> None:
        life = self.life
        if not life.end:
            life.end, life.ended = "left", self.hub.ports.clock.monotonic()
        life.commits, life.tip = self._journal.commits, self._journal.tip
        self._begun.set()
        self._ended.set()
        for scope in self._operations:
            scope.cancel()

    async def wait_begun(self) -> None:
        """Return when the runtime is at work, or the process is over."""
        await self._begun.wait()

    async def wait_ended(self) -> None:
        await self._ended.wait()

    def leave(self) -> None:
        """Leave the runtime in order."""
        self._journal.is_leaving = True
        self._leave.set()

    def kill(self) -> None:
        """Die now; idempotent."""
        self.life.end = self.life.end or "killed"
        self._journal.die()

    def crash_after(self, commits: int, when: CrashMoment, sectors: int) -> None:
        """Let the commit with that number from now on be the last one, instead of another one."""
        self._journal.crash_after(commits, when, sectors)

    def cancel_crashes(self) -> None:
        """Let no commit be the last one any more."""
        self._journal.cancel_crashes()

    def died(self, end: EndOfLife = "crashed") -> None:
        """The store says that this is the end: nothing of this process happens any more."""
        self.life.end = self.life.end or end
        self.life.ended = self.hub.ports.clock.monotonic()
        # Tasks first: what wakes because the hub closes must find itself cancelled.
        self._scope.cancel()
        for scope in self._operations:
            scope.cancel()
        self.hub.close()
        self.hub.set_owner(None)

    @contextmanager
    def operation(self) -> Iterator[None]:
        """What a user does with this process: cut off, quietly, when it is over."""
        with anyio.CancelScope() as scope:
            self._operations[scope] = None
            try:
                yield
            finally:
                del self._operations[scope]


class DyingModel:
    """``inner``, which nobody calls any more once its caller's process is dead."""

    def __init__(self, inner: Model, is_dead: Callable[[], bool]) -> None:
        self._inner = inner
        self._is_dead = is_dead

    @property
    def name(self) -> str:
        return self._inner.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        if self._is_dead():  # Cancelled already, but not yet at a place where that is noticed.
            await anyio.sleep_forever()
        return await self._inner.call(request, on_delta)
