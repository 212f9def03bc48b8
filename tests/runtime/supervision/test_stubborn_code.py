"""Code that does not end when it is cancelled: what goes on without it, and what says who is
waited for."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

import anyio
import pytest
from support.agents import Observer

from hubbub import Agent, FunctionModel, RunContext, Runtime, ScriptedModel, agent, tool
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.channels import Channel, Channels
from hubbub.hub.logs import log
from hubbub.hub.ports import Ports
from hubbub.hub.tasks.loop_watch import Held
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-02")]

Lines = list[tuple[str, dict[str, Any]]]


class Watch:
    """Watches, and has nothing to say of virtual time."""

    def begin(self, held: Held) -> Callable[[], None]:
        return lambda: None


@pytest.fixture
def ports(ports: Ports) -> Ports:
    return Ports(
        ports.clock, ports.ids, ports.offload, make_worker=ports.make_worker, watch=Watch()
    )


async def lookup(*_: Any) -> str:
    """Look it up, in a thread that nothing ends."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(20)
    return "late"


async def tools_lookup() -> str:
    """Look it up."""
    return await lookup()


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What is logged."""
    found: Lines = []
    end = log.divert(lambda level, event, fields: found.append((event, fields)))
    yield found
    end()


def waits(lines: Lines, event: str) -> list[tuple[float, str]]:
    """The seconds of each such line, and what it names."""
    found = []
    for name, fields in lines:
        if name == event:
            assert "abandon_on_cancel=True" in fields["remedy"] or "context.start" in str(fields)
            found.append((fields["seconds"], " ".join(fields["held_by"])))
    return found


def named(found: list[tuple[float, str]]) -> list[float]:
    """The seconds, of lines that all name the function and where it has got to."""
    for _, text in found:
        assert "lookup (" in text or "coding (" in text, text
        assert "test_stubborn_code.py:" in text
    return [seconds for seconds, _ in found]


# ── what waits while a runtime is left ───────────────────────────────────────────────────────


@agent("stepping")
async def stepping(input: str, ctx: RunContext) -> None:
    await ctx.step("one", lookup)


@agent("coding")
async def coding(input: str, ctx: RunContext) -> None:
    await lookup()


async def listening(rt: Runtime) -> None:
    rt.hub.subscribe("session:*", lookup)
    await rt.start("chatting", "hi")


async def serving(rt: Runtime) -> None:
    rt.hub.serve("svc", lookup)
    await rt.start("asking", "hi")


@agent("asking")
async def asking(input: str, ctx: RunContext) -> None:
    await ctx.hub.ask("svc", "?")


def agents() -> list[Any]:
    looks = tool(name="looks")(tools_lookup)
    chatting = Agent("chatting", "Help.", model=ScriptedModel(["Hello."]))
    return [
        chatting, stepping, coding, asking,
        Agent("tools", "Help.", model=ScriptedModel([call("looks")]), tools=[looks]),
        Agent("models", "Help.", model=FunctionModel(lookup)),
        Agent("hooked", "Help.", model=ScriptedModel(["Hello."]), hooks=["h"]),
    ]  # fmt: skip


PLACES: Final[dict[str, Callable[[Runtime], Any]]] = {
    "a listener": listening,
    "a service": serving,
    **{
        name: lambda rt, name=name: rt.start(name, "hi")  # type: ignore[misc]
        for name in ("tools", "models", "hooked", "stepping", "coding")
    },
}


@pytest.mark.parametrize("place", PLACES)
async def test_leaving_names_what_it_waits_for(place: str, ports: Ports, lines: Lines) -> None:
    hook = Hook("h", "before_create_message", lookup)
    async with Runtime(agents(), hooks=[hook], store="memory", ports=ports, grace=1) as rt:
        await PLACES[place](rt)
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
    assert 18 <= anyio.current_time() - began <= 21
    assert named(waits(lines, "leaving.waits")) == [5.0, 15.0]


async def test_leaving_says_nothing_where_all_ends(ports: Ports, lines: Lines) -> None:
    @agent("sleeping")
    async def sleeping(input: str, ctx: RunContext) -> None:
        await anyio.sleep(1_000)

    async with Runtime([sleeping], store="memory", ports=ports, grace=1) as rt:
        await rt.start("sleeping", "hi")
    await anyio.sleep(60)
    assert not waits(lines, "leaving.waits")


async def test_where_nobody_watches_nothing_stands_beside_a_wait(lines: Lines) -> None:
    beside: list[str | None] = []

    async def look(*_: Any) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)
            beside.extend(task.name for task in anyio.get_running_tasks())

    chatting = Agent("chatting", "Help.", model=ScriptedModel(["Hello."]))
    async with Runtime([chatting], store="memory", ports=virtual_ports(), grace=1) as rt:
        rt.hub.subscribe("session:*", look)
        await rt.start("chatting", "hi")
        await anyio.wait_all_tasks_blocked()
    assert beside
    assert not waits(lines, "leaving.waits")
    assert not [name for name in beside if name is not None and "telling" in name]


# ── what goes on without it ──────────────────────────────────────────────────────────────────


def slow(seconds: float | None) -> Agent:
    looks = tool(name="looks", timeout=seconds)(tools_lookup)

    def model(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return last.calls[-1].output if isinstance(last, AssistantMessage) else call("looks")

    return Agent("tools", "Help.", model=FunctionModel(model), tools=[looks])


async def test_a_run_goes_on_after_the_time_of_a_tool_that_does_not_end(
    ports: Ports, lines: Lines
) -> None:
    async with Runtime([slow(1)], store="memory", ports=ports, grace=1) as rt:
        seen = Observer(rt.hub)
        began = anyio.current_time()
        run = await rt.start("tools", "hi")
        assert "did not finish within 1 s" in str((await run.result()).output)
        assert anyio.current_time() - began == pytest.approx(1, abs=0.1)
        await anyio.sleep(30)
        assert len([x for x in seen.events if x.type == "agent:tool:complete"]) == 1
    assert not waits(lines, "leaving.waits")


@pytest.mark.parametrize("how", ["interrupt", "terminate"])
async def test_a_run_is_interrupted_or_ends_though_its_tool_does_not(
    how: str, ports: Ports
) -> None:
    async with Runtime([slow(None)], store="memory", ports=ports, grace=1) as rt:
        began = anyio.current_time()
        run = await rt.start("tools", "hi")
        await anyio.wait_all_tasks_blocked()
        await getattr(rt.hub, how)(run.run_id)
        await run.result()
        assert anyio.current_time() - began < 1


async def test_who_awaits_a_run_in_its_own_task_is_told_what_keeps_it(
    ports: Ports, lines: Lines
) -> None:
    async with Runtime([slow(1)], store="memory", ports=ports, grace=1) as rt:
        seen = Observer(rt.hub)
        outcome = await rt.run("tools", "hi")
        assert "did not finish within 1 s" in str(outcome.output)
        assert [x.type for x in seen.events].count("agent:complete") == 1
    assert named(waits(lines, "caller.waits")) == [5.0, 15.0]


# ── channels ─────────────────────────────────────────────────────────────────────────────────


async def kept() -> str | None:
    await lookup()
    return None


@pytest.mark.parametrize(
    ("during", "channel"),
    [
        ("on_start", Channel("slow", on_start=lookup)),
        ("after", Channel("slow", {"agent:*": lookup}, after=kept)),
    ],
)
async def test_a_channel_that_does_not_start_is_named(
    during: str, channel: Channel, ports: Ports, lines: Lines
) -> None:
    async with (
        Runtime([], store="memory", ports=ports) as rt,
        Channels(rt.hub, Channel("other"), channel),
    ):
        pass
    assert [seconds for seconds, _ in waits(lines, "channel.waits")] == [5.0, 15.0]
    about = [fields for name, fields in lines if name == "channel.waits"]
    assert {(x["channel"], x["during"]) for x in about} == {("slow", during)}


@pytest.mark.parametrize(
    ("during", "channel"),
    [
        ("handlers", Channel("slow", {"agent:park": lookup})),
        ("handlers", Channel("slow", on_start=lambda context: context.start(lookup))),
        ("on_complete", Channel("slow", on_complete=lookup)),
    ],
)
async def test_a_channel_that_does_not_end_is_named(
    during: str, channel: Channel, ports: Ports, lines: Lines
) -> None:
    chatting = Agent("chatting", "Help.", model=ScriptedModel(["Hello."]))
    async with (
        Runtime([chatting], store="memory", ports=ports) as rt,
        Channels(rt.hub, channel, grace=1),
    ):
        await rt.start("chatting", "hi")
        await anyio.wait_all_tasks_blocked()
    found = waits(lines, "channel.waits")
    assert named(found) == [5.0, 15.0]
    assert {x["during"] for name, x in lines if name == "channel.waits"} == {during}


@pytest.mark.parametrize("during", ["on_start", "after"])
async def test_a_channel_that_never_starts_keeps_saying_so_ever_more_rarely(
    during: str, ports: Ports, lines: Lines
) -> None:
    async def forever(*_: Any) -> None:
        await anyio.sleep_forever()

    channel = Channel("slow", **{during: forever})  # type: ignore[arg-type]
    async with Runtime([], store="memory", ports=ports) as rt:
        with anyio.move_on_after(3_600):
            async with Channels(rt.hub, channel):
                pytest.fail("it has started")
    said = [seconds for seconds, _ in waits(lines, "channel.waits")]
    assert said[:3] == [5.0, 15.0, 35.0]
    assert len(said) <= 20
    gaps = [after - before for before, after in pairwise(said)]
    assert max(gaps) <= 300
