"""Every place where users' code runs, each with what must become of it when that code raises.

A place is an async function of a ``Site``: it has the code at its place raise, and asserts the
outcome of what raised.  ``PLACES`` is the table.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

import anyio
import pytest
from support.agents import Observer, model_agent

from hubbub import AgentDefinition, CustomEvent, Hook, RunContext, Runtime, agent
from hubbub.agents.definitions.agent import SideConfig
from hubbub.agents.definitions.hooks import HookPoint
from hubbub.agents.definitions.prompt import PromptDefinition, SubagentToolConfig
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import Tool, tool
from hubbub.agents.model import ModelReply, ModelRequest, OnDelta, TextDelta
from hubbub.channels import Channel, Channels
from hubbub.hub.events import Event
from hubbub.hub.ports import MemoryBlobs
from hubbub.hub.tasks.cancelling import is_cancellation, is_on_asyncio
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

__all__ = ["PLACES", "Place", "RaisingBlobs", "Site", "Trap", "agents_of", "by_future", "by_timer"]

Trap: TypeAlias = Callable[[], BaseException]
"""Makes what is raised."""


def by_future(trap: Trap) -> Trap:
    """What is raised comes, where the code waits on asyncio, out of a future."""

    def made() -> BaseException:
        return trap()

    made.is_by_future = True  # type: ignore[attr-defined]
    return made


def by_timer(trap: Trap) -> Trap:
    """Code that waits on asyncio has its own task cancelled, as timeouts made by hand do."""

    def made() -> BaseException:
        return trap()

    made.is_by_timer = True  # type: ignore[attr-defined]
    return made


async def later(trap: Trap) -> None:
    """Wait, and raise."""
    await anyio.lowlevel.checkpoint()
    if getattr(trap, "is_by_timer", False) and is_on_asyncio():
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        await anyio.sleep_forever()
    if getattr(trap, "is_by_future", False) and is_on_asyncio():
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, trap())
        await future
    raise trap()


@dataclass
class Site:
    """A runtime with the agents of ``agents_of``, and what its hub has told."""

    runtime: Runtime
    trap: Trap
    seen: Observer
    eventually: Callable[[Callable[[], bool]], Awaitable[None]]

    def told(self, type_: str, about: str) -> Callable[[], bool]:
        """Whether there was an error event over something."""
        return lambda: any(
            about in (getattr(x, "during", ""), getattr(x, "channel", ""))
            for x in self.seen.all(type_)
        )


Place: TypeAlias = Callable[[Site], Awaitable[None]]


# ── listeners ────────────────────────────────────────────────────────────────────────────────


def listening(pattern: str, *, is_async: bool, **options: Any) -> Place:
    async def place(site: Site) -> None:
        hub = site.runtime.hub
        name = f"attack:{is_async}:{len(pattern)}:{len(options)}"

        def plain(event: Event) -> None:
            if event.type == name:
                raise site.trap()

        async def waits(event: Event) -> None:
            if event.type == name:
                await later(site.trap)

        heard: list[str] = []
        with (
            hub.subscribe(pattern, waits if is_async else plain, **options),
            hub.subscribe(name, lambda event: heard.append(event.type)),
        ):
            await hub.publish(CustomEvent.of(name, durable=True))
            await site.eventually(site.told("hub:error", name))
            assert heard == [name]

    return place


async def run_listener(site: Site) -> None:
    def careless(event: Event) -> None:
        raise site.trap()

    run = await site.runtime.start("keeper", "x")
    with site.runtime.hub.subscribe("session:message", careless, run_id=run.run_id):
        await run.send("hello")
        assert (await run.result()).output == "hello"
    await site.eventually(site.told("hub:error", "session:message"))


# ── tools, models, hooks ─────────────────────────────────────────────────────────────────────


def using(name: str) -> Place:
    """The tool's call ends as an error, and the run goes on."""

    async def place(site: Site) -> None:
        outcome = await site.runtime.run(f"uses_{name}", "x")
        assert (outcome.outcome, outcome.output) == ("completed", "so it went")
        (result,) = await completed(site.runtime, outcome.run_id)
        # A task group of the tool's own takes a cancellation for its own, and swallows it.
        assert result.is_error or (name == "grouped" and is_cancellation(site.trap()))

    return place


async def completed(runtime: Runtime, run_id: str) -> list[Any]:
    return [x for x in await runtime.hub.read(run_id) if x.type == "agent:tool:complete"]


def tools_of(trap: Trap) -> dict[str, Tool[..., Any]]:
    @dataclass
    class Checked:
        text: str

        def __post_init__(self) -> None:
            raise trap()

    @tool
    def plain() -> None:
        raise trap()

    @tool
    async def waiting() -> None:
        await later(trap)

    @tool
    async def grouped() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.lowlevel.checkpoint)
            raise trap()

    @tool
    def hands_back() -> Any:
        return later(trap)

    @tool
    async def validated(value: Checked) -> None:
        return None

    @tool
    async def writes(state: RunState) -> None:
        await state.files.write("x.txt", "x")

    return {each.name: each for each in (plain, waiting, grouped, hands_back, validated, writes)}


def approving(name: str) -> Place:
    """The call waits for approval."""

    async def place(site: Site) -> None:
        run = await site.runtime.start(name, "x")
        await site.eventually(
            lambda: any(x.run_id == run.run_id for x in site.seen.all("session:prompt"))
        )
        asked = [x for x in site.seen.all("session:prompt") if x.run_id == run.run_id]
        await site.runtime.hub.approve(asked[0].prompt_id)
        assert (await run.result()).output == "so it went"

    return place


def hooking(point: str) -> Place:
    """The hook is left out, and the run goes on."""

    async def place(site: Site) -> None:
        outcome = await site.runtime.run(f"hooked_{point}", "x")
        assert (outcome.outcome, outcome.output) == ("completed", "so it went")

    return place


class RaisingModel:
    """Raises when it is asked, or in the middle of its answer."""

    def __init__(self, trap: Trap, *, streams: bool) -> None:
        self._trap = trap
        self._streams = streams

    @property
    def name(self) -> str:
        return "raising"

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        if self._streams and on_delta is not None:
            on_delta(TextDelta("half"))
        await later(self._trap)
        raise AssertionError


def failing(name: str) -> Place:
    """The run fails."""

    async def place(site: Site) -> None:
        run = await site.runtime.start(name, "x", once=True)
        if name.endswith("messages"):
            await run.send("hello")
        ended = await run.finished()
        is_swallowed = name == "code_in_a_group" and is_cancellation(site.trap())
        assert ended.outcome == "failed" or is_swallowed

    return place


# ── code agents ──────────────────────────────────────────────────────────────────────────────


def code_agents(trap: Trap) -> Iterator[AgentDefinition]:
    def raising(*_: Any) -> None:
        raise trap()

    async def waiting(*_: Any) -> None:
        await later(trap)

    @agent("code_at_once")
    async def at_once(input: Any, ctx: RunContext) -> None:
        raise trap()

    @agent("code_later")
    async def after_a_while(input: Any, ctx: RunContext) -> None:
        await ctx.hub.publish(CustomEvent.of("attack:later", durable=True))
        await later(trap)

    @agent("code_in_messages")
    async def in_messages(input: Any, ctx: RunContext) -> None:
        async for _ in ctx.messages():
            await later(trap)

    @agent("code_in_a_group")
    async def in_group(input: Any, ctx: RunContext) -> None:
        async with anyio.create_task_group():
            await waiting()

    @agent("code_in_a_plain_step")
    async def plain_step(input: Any, ctx: RunContext) -> None:
        await ctx.step("s", raising)

    @agent("code_in_a_step")
    async def async_step(input: Any, ctx: RunContext) -> None:
        await ctx.step("s", waiting)

    @agent("keeper")
    async def keeper(input: Any, ctx: RunContext) -> str:
        async for message in ctx.messages():
            return str(message.content)
        return ""

    @agent("handler")
    async def handler(input: Any, ctx: RunContext) -> str:
        over = anyio.Event()

        async def take(message: Any) -> None:
            if message.content == "over":
                over.set()
            else:
                await waiting()

        ctx.hub.subscribe("session:message", take)
        await over.wait()
        return "handled"

    @agent("parent")
    async def parent(input: Any, ctx: RunContext) -> str:
        return (await ctx.spawn("code_later", "x").result()).outcome

    yield from (
        at_once, after_a_while, in_messages, in_group, plain_step, async_step, keeper, handler,
        parent,
    )  # fmt: skip


async def inbox_handler(site: Site) -> None:
    run = await site.runtime.start("handler", "x")
    await run.send("raise")
    await run.send("over")
    assert (await run.finished()).output == "handled"


async def child(site: Site) -> None:
    assert (await site.runtime.run("parent", "x")).output == "failed"


async def executed(site: Site) -> None:
    """Whoever calls an agent as a function gets an ``Exception``, its own or one that tells."""
    with pytest.raises(Exception):  # noqa: B017, PT011
        await site.runtime.executable("code_later").execute("x")


# ── services and channels ────────────────────────────────────────────────────────────────────


def answering(*, is_async: bool) -> Place:
    async def place(site: Site) -> None:
        def plain(question: str) -> None:
            raise site.trap()

        async def waits(question: str) -> None:
            await later(site.trap)

        stop = site.runtime.hub.serve(f"attack {is_async}", waits if is_async else plain)
        try:
            with pytest.raises(Exception):  # noqa: B017, PT011
                await site.runtime.hub.ask(f"attack {is_async}", "?")
        finally:
            stop()

    return place


def attaching(where: str, *, is_async: bool) -> Place:
    async def place(site: Site) -> None:
        name = f"channel {where} {is_async}"

        def plain(*_: Any) -> None:
            raise site.trap()

        async def waits(*_: Any) -> None:
            await later(site.trap)

        function: Any = waits if is_async else plain
        options: dict[str, Any] = {where: function}
        if where == "handler":
            options = {"handlers": {"attack:said": function}}
        elif where == "beside":
            options = {"on_start": lambda context: context.start(waits)}
        async with Channels(site.runtime.hub, Channel(name, **options)) as channels:
            site.runtime.hub.emit(CustomEvent.of("attack:said"))
            is_failed = where in ("state", "on_start")
            if where != "on_complete":
                await site.eventually(site.told("channel:error", name))
            status = channels.attached[name].status
            assert status == ("failed" if is_failed else "running")
        await site.eventually(site.told("channel:error", name))

    return place


# ── the table ────────────────────────────────────────────────────────────────────────────────

POINTS: Final = get_args(HookPoint)
TOOLS: Final = ("plain", "waiting", "grouped", "hands_back", "validated", "writes")
CODE: Final = (
    "code_at_once", "code_later", "code_in_messages", "code_in_a_group", "code_in_a_plain_step",
    "code_in_a_step",
)  # fmt: skip

PLACES: Final[dict[str, Place]] = {
    "a plain listener": listening("*", is_async=False),
    "an async listener": listening("*", is_async=True),
    "a plain listener of one type": listening("attack:*", is_async=False),
    "a plain listener with after=": listening("attack:*", is_async=False, after="start"),
    "an async listener with after=": listening("attack:*", is_async=True, after="start"),
    "a plain listener to one run": run_listener,
    **{f"the tool {name}": using(name) for name in TOOLS},
    **{f"a hook {point}": hooking(point) for point in POINTS},
    "a plain predicate of an approval": approving("approves_plain"),
    "an async predicate of an approval": approving("approves_waiting"),
    "a model": failing("raising_model"),
    "a model in the middle of its answer": failing("streaming_model"),
    **{name: failing(name) for name in CODE},
    "a child": child,
    "an agent called as a function": executed,
    "a handler of an inbox": inbox_handler,
    "a plain service": answering(is_async=False),
    "an async service": answering(is_async=True),
    **{
        f"a channel's {where}, {'async' if is_async else 'plain'}": attaching(
            where, is_async=is_async
        )
        for where in ("on_start", "handler", "on_complete")
        for is_async in (False, True)
    },
    "a channel's state": attaching("state", is_async=False),
    "what a channel has started": attaching("beside", is_async=True),
}


def agents_of(trap: Trap) -> tuple[list[AgentDefinition], list[Hook]]:
    """The agents of ``PLACES``, whose code raises what ``trap`` makes, and their hooks."""

    def raising(state: Any, value: Any) -> None:
        raise trap()

    def script(*calls: Any) -> ScriptedModel:
        return ScriptedModel([reply("", *calls), "so it went"], repeat=True)

    def raising_predicate() -> bool:
        raise trap()

    async def waiting_predicate() -> bool:
        await later(trap)
        return True

    made = list(code_agents(trap))
    for name, each in tools_of(trap).items():
        arguments = {"value": {"text": "x"}} if name == "validated" else {}
        made.append(model_agent(script(call(name, **arguments)), each, name=f"uses_{name}"))
    made += [
        model_agent(RaisingModel(trap, streams=False), name="raising_model"),
        model_agent(RaisingModel(trap, streams=True), name="streaming_model"),
    ]

    @tool
    async def look(fails: bool) -> str:
        if fails:
            raise ValueError("unseen")
        return "seen"

    hooks = [Hook(f"raises_at_{point}", point, raising) for point in POINTS]
    for hook in hooks:
        first = call("look", fails="failure" in hook.point)
        if hook.point == "after_subagent_created":
            first = call("below", message="go")
        name, below = f"hooked_{hook.point}", SubagentToolConfig(name="below")
        made.append(model_agent(script(first), look, below, name=name, hooks=(hook.id,)))
    for name, predicate in (("plain", raising_predicate), ("waiting", waiting_predicate)):

        @tool(name=f"asked_{name}", approval=predicate)
        async def asked() -> str:
            return "done"

        made.append(model_agent(script(call(asked.name)), asked, name=f"approves_{name}"))
    prompt = PromptDefinition(name="below", prompt="", model=ScriptedModel(["x"], repeat=True))
    side = SideConfig(prompt=prompt)
    made.append(
        AgentDefinition(
            name="below", type="dual_ai", expose_as_tool=True, max_session_turns=2, side_a=side,
            side_b=side,
        )
    )  # fmt: skip
    return made, hooks


class RaisingBlobs(MemoryBlobs):
    """Contents of files that cannot be kept."""

    def __init__(self, trap: Trap) -> None:
        super().__init__()
        self._trap = trap

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        raise self._trap()
