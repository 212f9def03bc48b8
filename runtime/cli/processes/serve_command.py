"""``hubbub serve``: agents over HTTP, with the inspector and the endpoints of OpenAI."""

import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, Protocol
from urllib.parse import quote

import anyio
from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.hub import Hub
from hubbub.hub.tasks.outermost import start_in
from hubbub.runtime.arguments import Role
from hubbub.runtime.cli.printing import FAILED, Backend, CommandScreen
from hubbub.runtime.cli.processes.join_options import JoinOptions
from hubbub.runtime.cli.processes.named_runtime import (
    NamedRuntime,
    ProcessSettings,
    named_runtime,
)
from hubbub.runtime.cli.processes.store_watch import store_failure
from hubbub.runtime.runtime import Runtime

__all__ = ["HubServer", "ServedAt", "serve_command"]

TOKEN: Final = "HUBBUB_TOKEN"

GRACE: Final = 2.0
"""Seconds that runs have to reach the end of a step when the command is left."""

FILES: Final = 65_536
"""How many files and connections are wanted; the system's own limit counts."""


class ServedAt(Struct, frozen=True):
    """Where a hub is to be served, and what is asked of its clients."""

    host: str
    port: int
    token: str | None


class HubServer(Protocol):
    """What serves a hub over HTTP; the command line has it from the channels."""

    def check(self, at: ServedAt) -> None:
        """Raise ``HubbubError`` for what can be known to be wrong before anything is opened."""

    async def serve(self, hub: Hub, at: ServedAt, started: Callable[[str], object]) -> None:
        """Serve until a signal; ``started`` is given the address."""


def serve_command(screen: CommandScreen, server: HubServer) -> Callable[..., int]:
    from cyclopts import Parameter

    def serve(
        module: Annotated[str | None, Parameter(name="MODULE:NAME")] = None,
        /,
        *,
        host: str = "127.0.0.1",
        port: int = 8700,
        token: Annotated[str | None, Parameter(show_default=False)] = None,
        store: str | None = None,
        role: Role | None = None,
        options: Annotated[JoinOptions, Parameter(name="*")] = JoinOptions(),  # noqa: B008
        backend: Backend = "asyncio",
    ) -> int:
        """Serve agents over HTTP: a page to watch and steer them, an API, OpenAI's endpoints.

        Ctrl-C ends it: runs stay in their store and go on with the next start, also after
        kill -9. It leaves by itself, with exit code 1, once its store has failed for good, so that
        a supervisor starts it again.

        With --store postgresql://… and no module it serves what workers run (hubbub worker), and
        runs nothing itself.

        Parameters
        ----------
        module
            A module, and in it a Runtime that is not entered yet, an agent, or a list of agents.
            Without a name: its Runtime, or else all its agents. Without a module: those of the
            workers that share a store in PostgreSQL; else the demo's agents, offline.
        host
            The address to listen on. Any but this machine's own needs a token.
        port
            0 chooses a free one.
        token
            What clients have to show (Authorization: Bearer TOKEN). Better kept in the
            environment: HUBBUB_TOKEN.
        store
            What keeps the runs: sqlite:FOLDER (default: sqlite:.hubbub), postgresql://…, or
            memory.
        role
            worker: it runs agents, too (with a module, and over a store that is its own).
            channel: other processes run them.
        backend
            The event loop: uvicorn serves on asyncio, anycorn on trio.
        """
        at = ServedAt(host, port, _token(token))
        server.check(at)
        settings = options.settings(store, role)
        made = _made(module, settings)
        _allow_files()
        return screen.loop(partial(_serve, screen, server, made, at), backend)

    return serve


def _made(module: str | None, settings: ProcessSettings) -> NamedRuntime:
    """Without a module, a store that workers share is served for them."""
    is_shared = (settings.store or "").startswith(("postgresql:", "postgres:"))
    if module is None and is_shared and settings.role == "worker":
        raise OperatorError(
            "--role worker: no agents are named, and the demo's would join those of this store; "
            "give MODULE:NAME, or leave the role out to serve what workers run"
        )
    role: Role = "channel" if module is None and is_shared else "worker"
    return named_runtime(module, settings, role=role, grace=GRACE)


async def _serve(screen: CommandScreen, server: HubServer, made: NamedRuntime, at: ServedAt) -> int:
    """Serve until a signal, or until the store has failed for good; the exit code."""
    runtime = made.runtime
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with runtime:
                start_in(group, _watch(runtime, scope), name="served store watch", steady=True)
                await made.begin(runtime)
                await server.serve(runtime.hub, at, partial(_say, screen, made, at))
        group.cancel_scope.cancel()
    if failure := runtime.hub.journal.failure:
        screen.notice(failure)
        return FAILED
    return 0


async def _watch(runtime: Runtime, scope: anyio.CancelScope) -> None:
    await store_failure(runtime)
    scope.cancel()  # Nothing can be answered, and nothing handed over.


def _token(given: str | None) -> str | None:
    token = os.environ.get(TOKEN) if given is None else given
    if given is not None and not given.strip():
        raise OperatorError("--token is empty; leave it out, or give the text that clients show")
    return token or None


def _say(screen: CommandScreen, made: NamedRuntime, at: ServedAt, url: str) -> None:
    names = ", ".join(made.runtime.definitions.names) or f"what workers run on {made.place}"
    screen.write(f"serving {names} at {url}")
    if at.token is not None and screen.can_draw():  # What is no terminal may be a log.
        screen.write(f"open {url}/#token={quote(at.token, safe='')}")
    elif at.token is not None:
        screen.write("the page asks for the token; programs send it: Authorization: Bearer …")
    screen.write("Ctrl-C ends it")


def _allow_files() -> None:
    """Use what the system allows: each client of a stream is an open file."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
