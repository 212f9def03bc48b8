"""``Crew``: workers as processes of their own, started and ended by the demo.

Each is ``hubbub worker``, and what it says is read as it says it.  Their input ends with this
process, however that ends, and they leave by that.
"""

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from hubbub.hub.errors import OperatorError

__all__ = ["Crew"]

MODULE: Final = "hubbub.runtime.demo.workers.agents:agents"

GRACE: Final = 5.0

Heard = Callable[[str, Mapping[str, Any]], object]
"""Takes the name of a worker, and what it has said."""


class Crew:
    """The workers of a store, whose address has no password: ``environ`` has it.

    Leaving it ends them: in order, or else at once.
    """

    def __init__(self, store: str, environ: Mapping[str, str], heard: Heard) -> None:
        self._store = store
        self._environ = environ
        self._heard = heard
        self._group = anyio.create_task_group()
        self._processes: dict[str, Process] = {}
        self.is_leaving = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self.is_leaving = True
        with anyio.CancelScope(shield=True):
            for process in self._processes.values():
                if process.returncode is None:
                    process.terminate()
            with anyio.move_on_after(2 * GRACE):
                for process in self._processes.values():
                    await process.wait()
            for process in self._processes.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(exc_type, exc, traceback)

    def __contains__(self, name: str) -> bool:
        """Whether a worker has been started here, and lives."""
        process = self._processes.get(name)
        return process is not None and process.returncode is None

    async def start(self, name: str) -> None:
        """Start a worker.  It has joined when it says so."""
        command = (
            sys.executable, "-m", "hubbub", "worker", MODULE, "--store", self._store,
            "--name", name, "--grace", f"{GRACE:g}", "--json", "--until-input-ends",
        )  # fmt: skip
        process = await anyio.open_process(
            command, env=self._environ, start_new_session=True, stderr=None
        )
        self._processes[name] = process
        self._group.start_soon(self._listen, name, process)

    def kill(self, name: str) -> None:
        """End a worker as ``kill -9`` does."""
        self._processes[name].kill()

    def number_of(self, name: str) -> int:
        """The number of a worker's process."""
        return self._processes[name].pid

    def name_of(self, number: int) -> str:
        """The name of the worker with that number of a process."""
        return next((x for x, each in self._processes.items() if each.pid == number), str(number))

    async def _listen(self, name: str, process: Process) -> None:
        assert process.stdout is not None
        rest = ""
        async for text in TextReceiveStream(process.stdout, errors="replace"):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self._heard(name, _decoded(line))
        code = await process.wait()
        if code > 0 and not self.is_leaving:
            raise OperatorError(f"{name} has ended with {code}: see what it says above")


def _decoded(line: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"event": "said", "text": line}
    return found
