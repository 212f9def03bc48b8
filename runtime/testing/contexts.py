"""``ctx_for``: a real ``RunContext``, for unit tests of code agents."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.hub.errors import BadValue
from hubbub.hub.events.parts import Audio, Document, Image
from hubbub.hub.message import Message, Sayable
from hubbub.hub.near_misses import kind_of
from hubbub.hub.ports import Ports
from hubbub.hub.values import encode_value
from hubbub.runtime.kernel.catalog import code_of
from hubbub.runtime.runs.context import RunContext, parts_of
from hubbub.runtime.testing.bench import Answers, Bench, Children, checked, checked_mapping

__all__ = ["BenchContext", "ctx_for", "run_code"]


class BenchContext(RunContext):
    """A code run's context; ``bench`` has collected what was done with it."""

    __slots__ = ("bench",)

    bench: Bench


@asynccontextmanager
async def ctx_for(
    agent: str = "code",
    *,
    messages: Iterable[Sayable] = (),
    parts: Iterable[Image | Document | Audio] = (),
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
                assert await run_code(tally, 1, ctx) == 16

    It is the real thing, as ``state_for`` gives a real state; its parameters are those.
    ``messages`` wait in the inbox, which is closed after them: ``ctx.messages()`` ends.  ``parts``
    are those that came with the input.
    """
    bench = Bench(answers)
    given_files, given_kv = checked_mapping("files", files), checked_mapping("kv", kv)
    given_children = checked_mapping("children", children)
    agents = checked("agents", agents, AgentDefinition)
    shown = checked("parts", parts, Image, Document, Audio)
    done, ready = anyio.Event(), anyio.Event()
    found: list[RunContext] = []

    async def hold(_: Any, ctx: RunContext) -> None:
        found.append(ctx)
        ready.set()
        await done.wait()

    definition = AgentDefinition(name=agent, execute=hold)
    async with bench.open((definition, *agents), given_children, ports) as runtime:
        run = await runtime.start(agent, shown or None, env=env)
        await ready.wait()
        ctx = BenchContext(*parts_of(found[0]))
        ctx.bench = bench
        for name, content in given_files.items():
            await ctx.files.write(name, content)
        for key, value in given_kv.items():
            await ctx.kv.set(key, value)
        for message in checked("messages", messages, str, Message, list, tuple):
            (await run.send(message)).raise_if_rejected()
        await run.close()
        bench.begin(run.run_id)
        try:
            yield ctx
        finally:
            done.set()


async def run_code(agent: AgentDefinition, input: object, ctx: RunContext) -> Any:
    """Call a code agent's function with ``ctx``, as a run of it does.

    It gets ``input`` as it comes out of the journal: encoded, and read as the type that the
    function names.  Returns what the function returns, and raises what it raises.  Raises
    ``BadValue`` for an agent of a model, and for an input or output that a run would refuse.
    """
    if not isinstance(agent, AgentDefinition):
        raise BadValue("agent", f"expected an agent, not {kind_of(agent)}")
    if agent.execute is None:
        raise BadValue("agent", f"{agent.name!r} is an agent of a model, which has no function")
    if not isinstance(ctx, RunContext):
        raise BadValue("ctx", "expected what ctx_for gives")
    output = await code_of(agent)(encode_value("input", input), ctx)
    encode_value("output", output)
    return output
