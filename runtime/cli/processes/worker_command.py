"""``hubbub worker``: a process that runs agents, without a port and without a page.

joined ─► at work ─► SIGTERM, SIGINT ─► what rests is handed over, steps end ─► left: 0
                                        ├── a second one, within the grace ──► left at once: 130
                                        └── the store has failed meanwhile ──► left: 1
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskStatus

from hubbub.hub.errors import OperatorError
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.tasks.outermost import start_in
from hubbub.runtime.cli.printing import FAILED, INTERRUPTED, Backend, CommandScreen
from hubbub.runtime.cli.processes.join_options import JoinOptions
from hubbub.runtime.cli.processes.named_runtime import (
    NamedRuntime,
    ProcessSettings,
    named_runtime,
)
from hubbub.runtime.cli.processes.store_watch import store_failure
from hubbub.runtime.cli.processes.worker_log import WorkerLog

__all__ = ["worker_command"]

GRACE: Final = 8.0
"""Less than the ten seconds that containers have by default between SIGTERM and SIGKILL."""

AT_ONCE: Final = 0.5
"""Seconds after a second signal until nothing is waited for any more."""

UNWRITTEN: Final = (
    "what was not written by then is lost with this process: others go on from what is on record"
)

ONE: Final = (
    "this store is one process's: no other worker can join it (several share postgresql://…)"
)


def worker_command(screen: CommandScreen) -> Callable[..., int]:
    from cyclopts import Parameter

    def worker(
        module: Annotated[str | None, Parameter(name="MODULE:NAME")] = None,
        /,
        *,
        store: str | None = None,
        capacity: int | None = None,
        grace: float | None = None,
        options: Annotated[JoinOptions, Parameter(name="*")] = JoinOptions(),  # noqa: B008
        json: bool = False,
        until_input_ends: Annotated[bool, Parameter(show=False)] = False,
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
            Without a name: its Runtime, or else all its agents. Without a module: the demo's
            agents, offline.
        store
            What keeps the runs: postgresql://… for several workers, or sqlite:FOLDER for this one
            alone (default: sqlite:.hubbub).
        capacity
            How many trees it takes, at most. Default: its share of all.
        grace
            Seconds that steps under way have to end when it is left. Default: 8.
        json
            Print JSON lines instead: time, event, level, and what belongs to the event.
        until_input_ends
            Leave, too, when standard input ends: for a program that starts workers.
        backend
            The event loop.
        """
        settings = options.settings(store, capacity=capacity, grace=grace)
        made = _made(module, settings)
        worker_log = WorkerLog(screen, made.runtime.ports.clock, as_json=json)
        work = _Work(made, screen, worker_log, until_input_ends=until_input_ends)
        with worker_log.listening():
            return screen.loop(work.run, backend)

    return worker


def _made(module: str | None, settings: ProcessSettings) -> NamedRuntime:
    made = named_runtime(module, settings, role="worker", grace=GRACE)
    if made.place == "memory":
        raise OperatorError("nobody could send a worker anything in memory; give --store")
    return made


class _Work:
    """A worker from when it joins until it has left."""

    def __init__(
        self, made: NamedRuntime, screen: CommandScreen, log: WorkerLog, *, until_input_ends: bool
    ) -> None:
        self._made = made
        self._runtime = made.runtime
        self._name = made.name
        self._place = made.place
        self._screen = screen
        self._log = log
        self._until_input_ends = until_input_ends
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
                    if self._until_input_ends:
                        start_in(group, self._watch_input(), name="worker input", steady=True)
                    await self._made.begin(self._runtime)
                    await self._is_to_leave.wait()
                    self._log.say("worker.leaving", "leaving", worker=self._name)
                    if self._failure:
                        scope.cancel()  # Nothing can be handed over.
                        await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        self._log.say("worker.left", "left", worker=self._name)
        if not self._is_joined:
            self._failure = f"{self._place}: told to leave before it had joined; nothing was done"
        elif (failure := self._runtime.hub.journal.failure) and not self._failure:
            self._failure = f"{failure}; {UNWRITTEN}"
        if self._failure:
            self._screen.notice(self._failure)
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
        self._failure = await store_failure(self._runtime)
        self._is_to_leave.set()

    async def _watch_input(self) -> None:
        number = sys.stdin.fileno()
        while True:
            await anyio.wait_readable(number)
            if not os.read(number, 4096):
                self._is_to_leave.set()
                return

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
            if self._is_joined:
                await self._end_at_once()

    async def _end_at_once(self) -> None:
        """End the process, should it not have left by then: what is left of it waits for a server
        that is away, or for a thread."""
        await anyio.sleep(AT_ONCE)
        self._log.say("worker.left", "left, and waited for nothing more", worker=self._name)
        os._exit(INTERRUPTED)
