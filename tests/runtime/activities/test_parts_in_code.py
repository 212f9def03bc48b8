"""Code reads the images, documents and recordings that it is sent: agents, and tools (L-02)."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from msgspec import Struct
from support.agents import model_agent
from support.restarts import Lives

from hubbub import (
    ContentPart,
    Document,
    FunctionModel,
    Image,
    Message,
    ModelRequest,
    RunContext,
    RunState,
    Runtime,
    ScriptedModel,
    agent,
    tool,
)
from hubbub.hub.errors import BadValue, NoSuchFile
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply
from hubbub.testing import ctx_for, run_code

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-02")]

PNG = b"\x89PNG\r\n\x1a\n a screenshot"
PDF = b"%PDF-1.7 a report"
SHOT = Image(PNG, name="shot.png")
REPORT = Document(PDF, name="report.pdf")
FAR = Image.from_url("https://example.com/shot.png")


@agent("reader")
async def reader(input: str, ctx: RunContext) -> list[Any]:
    """Says what it was started with."""
    return [input, *[(await ctx.read_part(part)).decode("latin-1") for part in ctx.parts]]


SEEN = [PNG.decode("latin-1"), PDF.decode("latin-1")]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_code_reads_what_comes_with_its_input(store: str, tmp_path: Path) -> None:
    place = store if store == "memory" else f"sqlite:{tmp_path}"
    async with Runtime([reader], store=place) as rt:
        assert (await rt.run("reader", "look")).output == ["look"]
        assert (await rt.run("reader", ["look", SHOT, REPORT])).output == ["look", *SEEN]
        said = Message("look", parts=[SHOT, REPORT], key="1")
        run = await rt.start("reader", said)
        assert (await run.result()).output == ["look", *SEEN]
        assert (await rt.run("reader", SHOT)).output == ["", SEEN[0]]


async def test_the_child_of_code_reads_them_and_they_may_be_passed_on(ports: Ports) -> None:
    @agent("lead")
    async def lead(input: str, ctx: RunContext) -> Any:
        own = await ctx.spawn("reader", ["own", REPORT]).result()
        passed = await ctx.spawn("reader", ["passed on", *ctx.parts]).result()
        return [own.output, passed.output]

    async with Runtime([lead, reader], store="memory", ports=ports) as rt:
        outcome = await rt.run("lead", ["go", SHOT])
    assert outcome.output == [["own", SEEN[1]], ["passed on", SEEN[0]]]


class Order(Struct):
    what: str


async def test_a_typed_input_is_read_as_without_parts(ports: Ports) -> None:
    @agent("typed")
    async def typed(order: Order, ctx: RunContext) -> Any:
        return [order.what, len(ctx.parts)]

    async with Runtime([typed], store="memory", ports=ports) as rt:
        assert (await rt.run("typed", Order("tea"))).output == ["tea", 0]


async def test_code_reads_what_later_messages_show(ports: Ports) -> None:
    @agent("hears")
    async def hears(input: str, ctx: RunContext) -> Any:
        message = await anext(aiter(ctx.messages()))
        return [(await ctx.read_part(part)).decode("latin-1") for part in message.parts]

    async with Runtime([hears], store="memory", ports=ports) as rt:
        run = await rt.start("hears", "go")
        await run.send(["and this", SHOT])
        assert (await run.result()).output == SEEN[:1]


async def test_a_conversation_in_code_is_shown_the_parts_of_its_input(ports: Ports) -> None:
    def see(request: ModelRequest) -> str:
        (asked,) = request.messages
        assert request.contents == {SHOT.part.digest: PNG}
        return asked.parts[0].name  # type: ignore[union-attr]

    @agent("talks")
    async def talks(input: str, ctx: RunContext) -> str:
        async with ctx.session(model=FunctionModel(see)) as session:
            await session.send([input, *ctx.parts])  # type: ignore[list-item]
            return "".join([e.text async for e in session.receive() if e.type == "agent:text"])

    async with Runtime([talks], store="memory", ports=ports) as rt:
        assert (await rt.run("talks", ["look", SHOT])).output == "shot.png"


@pytest.mark.parametrize("killed", [False, True], ids=["left", "killed"])
async def test_a_later_execution_reads_the_same(killed: bool, tmp_path: Path, ports: Ports) -> None:
    found: list[Any] = []

    @agent("patient", on_restart="resume")
    async def patient(input: str, ctx: RunContext) -> None:
        found.append((ctx.attempt, [await ctx.read_part(part) for part in ctx.parts]))
        await anyio.sleep_forever()

    lives = Lives(tmp_path, ports, is_killed=killed)
    for _ in range(2):
        async with lives.life(patient) as rt:
            if not found:
                await rt.start("patient", ["look", SHOT, REPORT])
            await anyio.sleep(60)
    assert found == [(1, [PNG, PDF]), (2, [PNG, PDF])]


async def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path: Path, ports: Ports) -> None:
    said: list[str] = []

    @agent("tries")
    async def tries(input: str, ctx: RunContext) -> None:
        wrong: Any
        for wrong in (*ctx.parts, "shot.png", SHOT, ContentPart(kind="image", digest="../x")):
            try:
                await ctx.read_part(wrong)
            except (BadValue, NoSuchFile) as error:
                said.append(f"{type(error).__name__} {error}")

    async with Runtime([tries], store=f"sqlite:{tmp_path}", ports=ports) as rt:
        run = await rt.start("tries", ["go", FAR])
        await run.result()
    assert said == [
        "BadValue part: it is an address, which hubbub does not read; part.url has it",
        "BadValue part: expected a part, such as message.parts has, not str",
        "BadValue part: expected a part, such as message.parts has, not Image",
        "BadValue part: it names a content '../x', which is not a digest",
    ]


async def test_a_content_that_is_gone_is_said_to_be(tmp_path: Path, ports: Ports) -> None:
    @agent("late")
    async def late(input: str, ctx: RunContext) -> str:
        digest = SHOT.part.digest
        (tmp_path / "blobs" / digest[:2] / digest).unlink()
        try:
            await ctx.read_part(ctx.parts[0])
        except NoSuchFile as error:
            return str(error)
        return "read"

    async with Runtime([late], store=f"sqlite:{tmp_path}", ports=ports) as rt:
        outcome = await rt.run("late", ["go", SHOT])
    assert outcome.output == "there is no file 'shot.png'; its content is no longer kept"


async def test_code_is_tested_with_parts(ports: Ports) -> None:
    async with ctx_for(parts=[SHOT], messages=[["and", REPORT]], ports=ports) as ctx:
        assert await run_code(reader, "look", ctx) == ["look", SEEN[0]]
        async for message in ctx.messages():
            assert await ctx.read_part(message.parts[0]) == PDF


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def _shown(state: RunState) -> list[ContentPart]:
    return [part for each in state.messages for part in getattr(each, "parts", ())]


@tool
async def measure(state: RunState) -> list[str]:
    """What the user has shown."""
    return [(await state.read_part(part)).decode("latin-1") for part in _shown(state)]


@tool(timeout=None)
def measure_plainly(state: RunState) -> list[str]:
    """The same, in a thread."""
    read = partial(anyio.from_thread.run, state.read_part)
    return [read(part).decode("latin-1") for part in _shown(state)]


@pytest.mark.parametrize("measured", [measure, measure_plainly], ids=lambda x: x.name)
async def test_a_tool_reads_what_the_user_has_shown(measured: Any) -> None:
    def answer(request: ModelRequest) -> str:
        return request.messages[-1].calls[0].output  # type: ignore[union-attr]

    script = ScriptedModel([reply("", call(measured.name)), answer])
    async with Runtime([model_agent(script, measured)], store="memory") as rt:
        outcome = await rt.run("assistant", ["How large?", SHOT])
    assert "a screenshot" in str(outcome.output)
