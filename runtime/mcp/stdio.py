"""A server that is a command: its process, spoken to over its standard input and output.

The SDK's own transport of this kind keeps a line until it ends, however long it becomes, and logs
what is no message, with a traceback, while the request that it was meant to answer waits for its
timeout.  This one reads by ``Lines``, which bounds both, and ends as the protocol says: the input
is closed, and what does not go then is killed with all that it has started.
"""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TextIO

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream, Process
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from hubbub.hub.tasks.outermost import start_in
from hubbub.runtime.mcp.lines import Lines
from hubbub.runtime.mcp.told import Told

__all__ = ["command_streams"]

FLUSH_SECONDS: Final = 0.5
"""For what has been said already, before the input is closed."""

EXIT_SECONDS: Final = 2.0
"""For the process to go once its input is closed, and again once it is asked to by a signal."""

_POLL_SECONDS: Final = 0.01
_GONE: Final = (
    anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError,
)  # fmt: skip


@asynccontextmanager
async def command_streams(
    words: Sequence[str], env: Mapping[str, str], cwd: str | None, errlog: TextIO, told: Told
) -> AsyncIterator[tuple[Any, Any]]:
    """Start the command; what it says and what it is told, until the context is left.

    It finds ``env`` in its environment, and the few variables of ours that hold no secrets.
    Raises ``OSError`` for a command that cannot be started.
    """
    # A session of its own, so that it can be killed with all that it starts.
    process = await anyio.open_process(
        list(words),
        env=get_default_environment() | dict(env),
        stderr=errlog,
        cwd=cwd,
        start_new_session=True,
    )
    # Nothing is awaited up to the shield below: a process that is started is ended, too.
    say, said = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    tell, telling = anyio.create_memory_object_stream[SessionMessage](0)
    is_written = anyio.Event()
    async with anyio.create_task_group() as group:
        start_in(group, _read(process, say, told))
        start_in(group, _write(process, telling, say, is_written))
        try:
            yield said, tell
        finally:
            with anyio.CancelScope(shield=True):
                said.close()
                tell.close()
                with anyio.move_on_after(FLUSH_SECONDS):
                    await is_written.wait()
                await _end(process)
                group.cancel_scope.cancel()


async def _read(process: Process, say: ObjectSendStream[Any], told: Told) -> None:
    assert process.stdout is not None
    lines = Lines()
    with suppress(*_GONE):
        async with say:
            async for chunk in process.stdout:
                for message in lines.read(chunk):
                    await say.send(SessionMessage(message))
                told.fault, told.noise = lines.fault, lines.noise
                if lines.fault:
                    break
    # What it still prints goes nowhere, so that it can go on, hear of the end, and go.
    with suppress(*_GONE):
        async for _ in process.stdout:
            pass


async def _write(
    process: Process,
    telling: ObjectReceiveStream[SessionMessage],
    say: ObjectSendStream[Any],
    is_written: anyio.Event,
) -> None:
    assert process.stdin is not None
    try:
        async with telling:
            async for item in telling:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(line.encode() + b"\n")
    except _GONE:
        await say.aclose()  # It may live on, but hears nothing more: the connection has ended.
    finally:
        is_written.set()


async def _end(process: Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(*_GONE):
        await process.stdin.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        if await _has_exited(process):
            break
    with suppress(*_GONE):
        await process.stdout.aclose()
    # A process of another session may hold the other ends of the pipes: on asyncio they are closed
    # with the transport, which nothing public leads to.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _has_exited(process: Process) -> bool:
    """Whether it goes in time.  On asyncio ``wait`` would wait for the ends of its pipes, too."""
    with anyio.move_on_after(EXIT_SECONDS):
        while process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None
