"""``ctx_for``: a real ``RunContext``, for unit tests of code agents."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.hub.message import Sayable
from hubbub.hub.ports import Ports
from hubbub.runtime.runs.context import RunContext, parts_of
from hubbub.runtime.testing.bench import Answers, Bench, Children

__all__ = ["BenchContext", "ctx_for"]


class BenchContext(RunContext):
    """A code run's context; ``bench`` has collected what was done with it."""

    __slots__ = ("bench",)

    bench: Bench


@asynccontextmanager
async def ctx_for(
    agent: str = "code",
    *,
    messages: Iterable[Sayable] = (),
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    kv: Mapping[str, Any] | None = None,
    agents: Iterable[AgentDefinition] = (),
    children: Children | None = None,
    answers: Answers = (),
    ports: Ports | None = None,
) -> AsyncIterator[BenchContext]:
    """The context of a code run, for calling a code agent's function with.

        @agent("tally")
        async def tally(input: int, ctx: RunContext) -> int:
            total = input
            async for message in ctx.messages():
                total += int(message.content)
            return total + (await ctx.spawn("judge", total).result()).value()

        async def test_tally_adds_what_it_is_sent() -> None:
            async with ctx_for(messages=["2", "3"], children={"judge": 10}) as ctx:
                assert await tally.execute(1, ctx) == 16

    It is the real thing, as ``state_for`` gives a real state; its parameters are those.
    ``messages`` wait in the inbox, which is closed after them: ``ctx.messages()`` ends.
    """
    bench = Bench(answers)
    done, ready = anyio.Event(), anyio.Event()
    found: list[RunContext] = []

    async def hold(_: Any, ctx: RunContext) -> None:
        found.append(ctx)
        ready.set()
        await done.wait()

    definition = AgentDefinition(name=agent, execute=hold)
    async with bench.open((definition, *agents), children or {}, ports) as runtime:
        run = await runtime.start(agent, env=env)
        await ready.wait()
        ctx = BenchContext(*parts_of(found[0]))
        ctx.bench = bench
        for name, content in (files or {}).items():
            await ctx.files.write(name, content)
        for key, value in (kv or {}).items():
            await ctx.kv.set(key, value)
        for message in messages:
            (await run.send(message)).raise_if_rejected()
        await run.close()
        bench.begin(run.run_id)
        try:
            yield ctx
        finally:
            done.set()
