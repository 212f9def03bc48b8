"""``hubbub worker``: a process that runs agents, without a port and without a page.

joined ─► at work ─► SIGTERM, SIGINT ─► what rests is handed over, steps end ─► left: 0
                                        └── a second one, within the grace ──► left at once: 130
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.tasks.outermost import start_in
from hubbub.runtime.cli.printing import FAILED, INTERRUPTED, Backend, CommandScreen, at_least
from hubbub.runtime.cli.worker_log import WorkerLog
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.stores.open import DEFAULT_STORE, open_store, place_of_store

if TYPE_CHECKING:
    from hubbub.runtime.loading.agents import LoadedAgents

__all__ = ["worker_command"]

GRACE: Final = 8.0
"""Less than the ten seconds that containers have by default between SIGTERM and SIGKILL."""

LOOK: Final = 0.5
"""Seconds between two looks at whether the store has failed for good."""

ONE: Final = (
    "this store is one process's: no other worker can join it (several share postgresql://…)"
)


def worker_command(screen: CommandScreen) -> Callable[..., int]:
    from cyclopts import Parameter

    def worker(
        module: Annotated[str, Parameter(name="MODULE:NAME")],
        /,
        *,
        store: str | None = None,
        name: str = "",
        capacity: int | None = None,
        grace: float | None = None,
        json: bool = False,
        backend: Backend = "asyncio",
    ) -> int:
        """Run agents on a store that other processes share. No port is opened.

        Trees of runs are divided among the workers that know their agents; those of a worker that
        dies are taken over by the others. Web pages and APIs are a process of their own: hubbub
        serve --store postgresql://…

        SIGTERM or Ctrl-C: what rests is handed over at once, steps under way have the grace to end,
        exit code 0. A second one leaves at once (130): others go on from what is on record.

        Parameters
        ----------
        module
            A module, and in it a Runtime that is not entered yet, an agent, or a list of agents.
            Without a name: its Runtime, or else all its agents.
        store
            What keeps the runs: postgresql://… for several workers, or sqlite:FOLDER for this one
            alone (default: sqlite:.hubbub).
        name
            What hubbub workers calls it. Default: HOST:PROCESS. No two at work have the same.
        capacity
            How many trees it takes, at most. Default: its share of all.
        grace
            Seconds that steps under way have to end when it is left. Default: 8.
        json
            Print JSON lines instead: time, event, level, and what belongs to the event.
        backend
            The event loop.
        """
        from hubbub.runtime.loading.agents import load_named

        found = load_named(module, Runtime)
        if isinstance(found, Runtime):
            given = {"--store": store, "--name": name, "--capacity": capacity, "--grace": grace}
            _check_own(module, given)
            runtime, place, name = found, "the store of its module", module
        else:
            place = place_of_store(store := store or DEFAULT_STORE)
            name = name or f"{socket.gethostname()}:{os.getpid()}"
            runtime = _worker(found, store, name, capacity, GRACE if grace is None else grace)
        worker_log = WorkerLog(screen, runtime.ports.clock, as_json=json)
        with worker_log.listening():
            return screen.loop(_Work(runtime, name, place, screen, worker_log).run, backend)

    return worker


def _check_own(module: str, given: Mapping[str, object]) -> None:
    """Raise ``OperatorError`` for options that a ``Runtime`` of a module's own has decided."""
    if unfit := [option for option, value in given.items() if value not in (None, "")]:
        raise OperatorError(f"{module} is a Runtime with its own settings; leave {unfit[0]} out")


def _worker(
    found: "LoadedAgents", store: str, name: str, capacity: int | None, grace: float
) -> Runtime:
    """A runtime with the agents of a module."""
    if capacity is not None:
        at_least(1, "--capacity", capacity)
    ports = Ports()
    return Runtime(
        found.agents, found.prompts, found.tools, skills=found.skills, ports=ports,
        store=open_store(store, ports), default_agent=found.agent.name, grace=grace,
    )  # fmt: skip


class _Work:
    """A worker from when it joins until it has left."""

    def __init__(
        self, runtime: Runtime, name: str, place: str, screen: CommandScreen, log: WorkerLog
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._place = place
        self._screen = screen
        self._log = log
        self._is_to_leave = anyio.Event()
        self._is_joined = False
        self._failure = ""
        self._code = 0

    async def run(self) -> int:
        """Work until a signal, or until the store has failed; the exit code."""
        self._is_to_leave = anyio.Event()
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                await group.start(self._take_signals, scope)
                async with self._runtime:
                    self._joined()
                    start_in(group, self._watch_store(), name="worker store watch", steady=True)
                    await self._is_to_leave.wait()
                    self._log.say("worker.leaving", "leaving", worker=self._name)
                    if self._failure:
                        scope.cancel()  # Nothing can be handed over.
                        await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        self._log.say("worker.left", "left", worker=self._name)
        if self._failure:
            self._screen.notice(f"store {self._place}: {self._failure}")
        return FAILED if self._failure else self._code

    def _joined(self) -> None:
        self._is_joined = True
        agents = self._runtime.definitions.names
        self._log.say(
            "worker.joined",
            f"worker {self._name} is at work on {self._place}: {', '.join(agents)}",
            worker=self._name, store=self._place, agents=agents,
        )  # fmt: skip
        if sharing_of(self._runtime.hub.journal) is None:
            self._log.say("worker.alone", ONE, worker=self._name)

    async def _watch_store(self) -> None:
        clock = self._runtime.ports.clock
        while not (failure := self._runtime.hub.journal.failure):
            await clock.sleep(LOOK)
        self._failure = failure
        self._is_to_leave.set()

    async def _take_signals(
        self, scope: anyio.CancelScope, *, task_status: TaskStatus[None]
    ) -> None:
        with ExitStack() as stack:
            try:
                signals = stack.enter_context(
                    anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
                )
            except (RuntimeError, ValueError):  # Not the main thread, or Windows: Ctrl-C cancels.
                return
            finally:
                task_status.started()
            await anext(signals)
            self._is_to_leave.set()
            if self._is_joined:
                await anext(signals)
                self._code = INTERRUPTED
            scope.cancel()
