"""What attacks by texts share: the texts, and somebody else who is to notice nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hubbub import (
    AgentDefinition,
    CustomEvent,
    Runtime,
    agent,
)  # fmt: skip
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

__all__ = ["HALF", "NUL", "World", "opened"]

HALF = "web_\ud800"
"""Half of a surrogate pair, which no UTF-8 holds."""

NUL = "web_\0"


class World:
    """A runtime with somebody else in it, who is to notice nothing."""

    def __init__(self, rt: Runtime, other: str) -> None:
        self.rt = rt
        self.other = other

    async def is_well(self) -> None:
        """Whether the hub, the store and others go on as if nothing had happened."""
        rt = self.rt
        with anyio.fail_after(60):
            await rt.hub.publish(CustomEvent.of("test:well"))
            assert (await rt.hub.send_to_run(self.other, "still there?")).accepted
            assert (await rt.run("echo", "hello")).output == "hello"
            assert await rt.hub.read(self.other)
            assert await rt.hub.ask("runtime", "statistics")
        assert not rt.hub.journal.failure


@agent("echo")
async def echo(input: Any, ctx: Any) -> Any:
    return input


@agent("other")
async def other(input: Any, ctx: Any) -> int:
    return len([message async for message in ctx.messages()])


@asynccontextmanager
async def opened(
    store: Journal, ports: Ports, *agents: AgentDefinition, **options: Any
) -> AsyncIterator[World]:
    async with Runtime([echo, other, *agents], store=store, ports=ports, **options) as rt:
        run = await rt.start("other")
        yield World(rt, run.run_id)
        await run.terminate()
