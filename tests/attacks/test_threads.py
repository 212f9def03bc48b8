"""Every class of exception out of a worker thread: it ends no more than the tool that raised it."""

from pathlib import Path

import anyio
import pytest
from support.agents import heard, model_agent

from attacks.test_exceptions import KINDS
from hubbub import CustomEvent, RunContext, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ModelRequest, OnDelta
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.runtime.models.scripted import ScriptedModel, call, reply


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: a thread takes real time.
@pytest.mark.parametrize("kind", sorted({*KINDS} - {"a stolen cancellation"}))  # Threads have none.
def test_what_a_plain_tool_raises_in_its_thread_is_its_result(
    kind: str, loop: str, tmp_path: Path
) -> None:
    @tool
    def trap() -> str:
        raise KINDS[kind]()

    async def main() -> None:
        model = ScriptedModel([call("trap"), "went on"])
        agents = [
            model_agent(model, trap, name="trapped"),
            model_agent(ScriptedModel(["x"]), name="other"),
        ]
        with anyio.fail_after(60):
            async with Runtime(agents, store=f"sqlite:{tmp_path}") as rt:
                assert (await rt.run("trapped", "x")).output == "went on"
                assert (await rt.run("other", "x")).output == "x"

    anyio.run(main, backend=loop)


def test_the_name_of_an_event_is_text() -> None:
    with pytest.raises(BadValue):
        CustomEvent(name=7)  # type: ignore[arg-type]


async def from_a_thread(kind: str) -> None:
    def trap() -> None:
        raise KINDS[kind]()

    await anyio.to_thread.run_sync(trap)


class FromThread:
    name = "from thread"

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        await from_a_thread(heard(request)[-1])
        return ModelReply(text="x")


@tool
async def trapped(kind: str) -> str:
    """Await a thread."""
    await from_a_thread(kind)
    return "x"


@agent("code")
async def code(kind: str, ctx: RunContext) -> None:
    await from_a_thread(kind)


@agent("step")
async def step(kind: str, ctx: RunContext) -> None:
    await ctx.step("s", from_a_thread, kind)


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("way", ["run", "start"])
@pytest.mark.parametrize("kind", ["ValueError", "GeneratorExit", "a BaseException"])
def test_what_a_thread_raises_that_async_code_awaits_ends_that_code_only(
    kind: str, way: str, loop: str, tmp_path: Path
) -> None:
    """In a task of the hub's, in that of who waits for a run or a service, and side by side."""
    calls = [call("trapped", kind=kind)] * 2
    models = [ScriptedModel([reply("", *calls[:n]), "went on"], repeat=True) for n in (1, 2)]
    agents = [
        model_agent(models[0], trapped, name="tool"),
        model_agent(models[1], trapped, name="tools", parallel_tool_calls=True),
        model_agent(FromThread(), name="model"), code, step,
    ]  # fmt: skip
    outcomes = dict.fromkeys(("model", "code", "step"), "failed") | dict.fromkeys(
        ("tool", "tools"), "completed"
    )

    async def main() -> None:
        failed = anyio.Event()

        async def listen(event: Event) -> None:
            await from_a_thread(kind)

        with anyio.fail_after(60):
            async with Runtime(agents, store=f"sqlite:{tmp_path}") as rt:
                rt.hub.subscribe("hub:error", lambda event: failed.set())
                rt.hub.subscribe("attack:said", listen)
                rt.hub.serve("service", from_a_thread)
                for name, outcome in outcomes.items():
                    if way == "run":
                        ended = await rt.run(name, kind)
                    else:
                        ended = await (await rt.start(name, kind, once=True)).finished()
                    assert ended.outcome == outcome, name
                await rt.hub.publish(CustomEvent.of("attack:said"))
                await failed.wait()
                with pytest.raises(Exception):  # noqa: B017, PT011
                    await rt.hub.ask("service", kind)

    anyio.run(main, backend=loop)
