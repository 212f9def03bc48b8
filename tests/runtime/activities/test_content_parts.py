"""Images, documents and recordings on their way: in messages, results, histories, files (L-02)."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from support.agents import Observer, echo_model, model_agent
from support.frames import KEY, frame, use
from support.restarts import Lives

from hubbub import (
    AgentDefinition,
    Document,
    Hook,
    Hub,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    RunContext,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    ToolResult,
    agent,
    tool,
)
from hubbub.agents.model import AssistantMessage, ContentPart, UserMessage
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events import AgentToolComplete, HistoryMessage
from hubbub.hub.events.codec import encode_event
from hubbub.hub.ports import MemoryBlobs, Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-02")]

PNG = b"\x89PNG\r\n\x1a\n a screenshot"
PDF = b"%PDF-1.7 a report"
SHOT = Image(PNG, name="shot.png")
REPORT = Document(PDF, name="report.pdf")


class Watched:
    """A model with a script, and what it was shown."""

    def __init__(self, *script: Any) -> None:
        self._script = ScriptedModel([*script])
        self.requests: list[ModelRequest] = []
        self.model = FunctionModel(self._answer)

    async def _answer(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        return await self._script.call(request)

    @property
    def shown(self) -> list[tuple[ContentPart, bytes | None]]:
        """Each part of the last request, with its content."""
        request = self.requests[-1]
        found = []
        for message in request.messages:
            for each in message.calls if isinstance(message, AssistantMessage) else (message,):
                found += [(part, request.contents.get(part.digest)) for part in each.parts]
        return found


def kept(store: Path, part: Any) -> Path:
    """The file that holds a part's content."""
    digest = part.part.digest
    return store / "blobs" / digest[:2] / digest


@tool
def screenshot() -> Image:
    """Take a picture."""
    return SHOT


@tool
def look(how: str) -> Any:
    """Look at something."""
    match how:
        case "both":
            return ["A page.", SHOT, "And its report.", REPORT]
        case "exactly":
            return ToolResult({"pages": 1}, parts=[REPORT])
        case "error":
            return ToolResult("It failed; see the picture.", is_error=True, parts=(SHOT,))
        case "bytes":
            return PNG
        case "bytes in a list":
            return ("A page.", PNG, REPORT, bytearray(PDF))
        case "other bytes":
            return ["A sound.", b"OggS"]
        case "large":
            return PNG + bytes(20 << 20)
        case "wrong":
            return ToolResult("a", parts=[b"png"])  # type: ignore[list-item]
        case _:
            return [1, 2]


# ── messages ─────────────────────────────────────────────────────────────────────────────────


async def test_a_model_is_shown_what_comes_with_a_question(journal: Journal, ports: Ports) -> None:
    watched = Watched("A cat.")
    hub = Hub(journal=journal, ports=ports)  # type: ignore[arg-type]
    async with hub, Runtime([model_agent(watched.model)], hub=hub) as rt:
        outcome = await rt.run("assistant", ["What is on it?", SHOT])
        assert outcome.output == "A cat."
        (asked,) = watched.requests[-1].messages
        assert asked == UserMessage(content="What is on it?", parts=(SHOT.part,))
        assert watched.shown == [(SHOT.part, PNG)]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_every_way_of_saying_something_takes_parts(store: str, tmp_path: Path) -> None:
    watched = Watched(*(["Seen."] * 6))
    place = store if store == "memory" else f"sqlite:{tmp_path}"
    async with Runtime([model_agent(watched.model)], store=place, ports=virtual_ports()) as rt:
        run = await rt.start("assistant", Message("Look.", parts=[SHOT]))
        await run.result()
        assert watched.shown == [(SHOT.part, PNG)]
        await run.ask(["And this?", REPORT])
        assert watched.shown == [(SHOT.part, PNG), (REPORT.part, PDF)]
        await run.send(Message("Both.", parts=(SHOT, REPORT), key="1"))
        await run.result()
        assert await run.send(Message("Both.", parts=(SHOT, REPORT), key="1"))
        assert len(watched.shown) == 4
        await rt.hub.send_to("assistant", REPORT)  # type: ignore[arg-type]
        await run.result()
        assert watched.shown[-1] == (REPORT.part, PDF)
        said = watched.requests[-1].messages[-1]
        assert said == UserMessage(content="", parts=(REPORT.part,))
        opened = await rt.hub.open("assistant", [SHOT], session_key="web_ada")
        await rt.result(opened.run_id)
        await rt.hub.open("assistant", Message("Again.", parts=[REPORT]), session_key="web_ada")
        await rt.result(opened.run_id)
        assert watched.shown == [(SHOT.part, PNG), (REPORT.part, PDF)]
        assert rt.hub.pipeline.contents._held == {}


async def test_an_address_is_passed_on_and_read_by_nobody(ports: Ports) -> None:
    watched = Watched("A page.")
    far = Image.from_url("https://example.com/shot.png")
    async with Runtime([model_agent(watched.model)], store="memory", ports=ports) as rt:
        await rt.run("assistant", ["Look.", far])
    assert watched.shown == [(far.part, None)]
    assert watched.requests[-1].contents == {}


async def test_a_history_may_show_something(ports: Ports) -> None:
    watched = Watched("As before.")
    talk = [
        {"role": "user", "content": "What is it?", "parts": [SHOT]},
        HistoryMessage(role="assistant", content="A cat."),
    ]
    async with Runtime([model_agent(watched.model)], store="memory", ports=ports) as rt:
        run = await rt.start("assistant", "And now?", history=talk)  # type: ignore[arg-type]
        await run.result()
    assert watched.shown == [(SHOT.part, PNG)]


async def test_contents_stand_beside_the_journal(tmp_path: Path) -> None:
    big = Image(PNG + bytes(5_000_000))
    async with Runtime(
        [model_agent(Watched("Big.").model)], store=f"sqlite:{tmp_path}", ports=virtual_ports()
    ) as rt:
        run = await rt.start("assistant", ["Look.", big])
        await run.result()
        events = await rt.hub.read(run.run_id)
    assert sum(len(encode_event(event)) for event in events) < 10_000
    blob = kept(tmp_path, big)
    assert blob.stat().st_size == len(big.data)


async def test_what_has_no_parts_reads_no_contents(ports: Ports) -> None:
    class Counted(MemoryBlobs):
        asked = 0

        async def get(self, root_run_id: str, digest: str) -> bytes | None:
            self.asked += 1
            return await super().get(root_run_id, digest)

    blobs = Counted()
    ports = Ports(ports.clock, ports.ids, ports.offload, blobs=blobs)
    async with Runtime([model_agent(echo_model())], store="memory", ports=ports) as rt:
        await rt.run("assistant", "Hello.")
        assert blobs.asked == 0
        await rt.run("assistant", ["Hello.", SHOT, SHOT])
        assert blobs.asked == 1


# ── restarts, and what goes wrong ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("killed", [False, True], ids=["left", "killed"])
async def test_a_later_process_shows_the_same(killed: bool, tmp_path: Path, ports: Ports) -> None:
    lives = Lives(tmp_path, ports, is_killed=killed)
    watched = Watched(reply("", call("screenshot")), "A cat.", "Still a cat.")
    definition = model_agent(watched.model, screenshot)
    async with lives.life(definition) as rt:
        run = await rt.start("assistant", ["What is on it?", REPORT])
        await run.result()
        before = watched.shown
        assert before == [(REPORT.part, PDF), (SHOT.part, PNG)]
    async with lives.life(definition) as rt:
        await (await rt.handle(run.run_id)).ask("Sure?")
        assert watched.shown == before
        assert watched.requests[1].messages == watched.requests[2].messages[:2]


async def test_a_message_is_on_record_with_its_contents_or_not_at_all(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path, ports=virtual_ports())
    keep = store.blobs.take_in

    def full(digest: str, content: bytes) -> None:
        if digest == SHOT.part.digest:
            raise StoreFailed("blobs", "No space left on device; free some space")
        keep(digest, content)

    store.blobs.take_in = full  # type: ignore[method-assign]
    watched = Watched("One.", "Two.")
    hub = Hub(journal=store, ports=virtual_ports())
    async with hub, Runtime([model_agent(watched.model)], hub=hub) as rt:
        run = await rt.start("assistant", ["One?", REPORT])
        refused = run.send(["Look.", SHOT])
        other = run.send("Two?")
        await refused
        assert (refused.status, "No space left" in refused.reason) == ("rejected", True)
        await other
        assert other.status == "accepted"
        await run.result()
        assert watched.shown == [(REPORT.part, PDF)]
        assert hub.pipeline.contents._held == {}


async def test_a_place_of_ones_own_for_contents_may_be_slow(ports: Ports) -> None:
    class SlowBlobs:
        def __init__(self) -> None:
            self.inner = MemoryBlobs()

        async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
            await anyio.sleep(5)
            await self.inner.put(root_run_id, digest, content)

        async def get(self, root_run_id: str, digest: str) -> bytes | None:
            await anyio.sleep(1)
            return await self.inner.get(root_run_id, digest)

        def drop(self, root_run_id: str) -> None:
            self.inner.drop(root_run_id)

    ports = Ports(ports.clock, ports.ids, ports.offload, blobs=SlowBlobs())
    watched = Watched("One.", "Two.")
    async with Runtime([model_agent(watched.model)], store="memory", ports=ports) as rt:
        run = await rt.start("assistant", ["Look.", SHOT])
        await run.result()
        assert watched.shown == [(SHOT.part, PNG)]
        await anyio.sleep(60)
        assert rt.hub.pipeline.contents._held == {}
        await run.ask("And?")
        assert watched.shown == [(SHOT.part, PNG)]


async def test_a_content_that_is_gone_is_not_shown_and_the_run_goes_on(tmp_path: Path) -> None:
    watched = Watched("One.", "Two.", "Three.")
    async with Runtime(
        [model_agent(watched.model)], store=f"sqlite:{tmp_path}", ports=virtual_ports()
    ) as rt:
        run = await rt.start("assistant", ["Look.", SHOT, REPORT])
        await run.result()
        kept(tmp_path, SHOT).unlink()
        await run.ask("And?")
        assert watched.shown == [(SHOT.part, None), (REPORT.part, PDF)]
        changed = kept(tmp_path, REPORT)
        changed.chmod(0o600)
        changed.write_bytes(b"%PDF-1.7 something else")
        await run.ask("And now?")
        assert watched.shown == [(SHOT.part, None), (REPORT.part, None)]


# ── tools ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "output", "parts"),
    [
        ("both", "A page.\n\nAnd its report.", [SHOT, REPORT]),
        ("exactly", '{"pages":1}', [REPORT]),
        ("error", "It failed; see the picture.", [SHOT]),
        ("neither", "[1,2]", []),
        ("bytes", "image (image/png, 21 bytes)", [Image(PNG)]),
        ("bytes in a list", "A page.", [Image(PNG), REPORT, Document(PDF)]),
        ("other bytes", '["A sound.","T2dnUw=="]', []),
    ],
)
async def test_a_tool_shows_something(
    how: str, output: str, parts: list[Any], ports: Ports
) -> None:
    watched = Watched(reply("", call("look", how=how)), "I see.")
    async with Runtime([model_agent(watched.model, look)], store="memory", ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("assistant", "Look.")
    assert watched.shown == [(each.part, each.data) for each in parts]
    done: AgentToolComplete = seen.first("agent:tool:complete")
    assert (done.output, done.is_error) == (output, how == "error")
    assert done.parts == tuple(each.part for each in parts)


async def test_a_picture_alone_is_named_where_a_text_is_due(ports: Ports) -> None:
    watched = Watched(reply("", call("screenshot")), "I see.")
    async with Runtime([model_agent(watched.model, screenshot)], store="memory", ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("assistant", "Look.")
    assert seen.first("agent:tool:complete").output == "image shot.png (image/png, 21 bytes)"


async def test_what_is_nothing_to_show_is_an_error_that_says_so(ports: Ports) -> None:
    watched = Watched(reply("", call("look", how="wrong")), "I see.")
    async with Runtime([model_agent(watched.model, look)], store="memory", ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("assistant", "Look.")
    done = seen.first("agent:tool:complete")
    assert done.is_error
    assert "expected Image, Document or Audio, not bytes" in done.output


async def test_bytes_that_are_too_large_to_be_shown_are_an_error_that_says_so(
    ports: Ports,
) -> None:
    watched = Watched(reply("", call("look", how="large")), "I see.")
    async with Runtime([model_agent(watched.model, look)], store="memory", ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("assistant", "Look.")
    done = seen.first("agent:tool:complete")
    assert done.is_error and "nothing to show: Image: 20,971,541 bytes" in done.output


@pytest.mark.parametrize("said", [["x", PNG], (SHOT, bytearray(PNG)), [PDF, "x", 1]], ids=str)
async def test_bytes_beside_a_text_are_refused_with_what_to_write(said: Any, ports: Ports) -> None:
    @agent("code")
    async def code(input: Any, ctx: RunContext) -> Any:
        with pytest.raises(BadValue, match=r"input: .*; give Image\(…\)"):
            ctx.spawn("assistant", said)
        return input

    agents = [model_agent(echo_model()), code]
    async with Runtime(agents, store="memory", ports=ports) as rt:
        for start in (rt.run, rt.start, rt.hub.open):
            with pytest.raises(BadValue, match=r"input: .*; give Image\(…\)"):
                await start("assistant", said)
        run = await rt.start("assistant", "Hello.")
        with pytest.raises(BadValue, match=r"message: .*; give Image\(…\)"):
            run.send(said)
        assert (await rt.run("code", [b"x", b"y"])).output == ["eA==", "eQ=="]


async def test_hooks_see_what_a_result_shows(ports: Ports) -> None:
    found: list[Any] = []

    def after(state: RunState, result: ToolResult) -> ToolResult:
        found.append(result)
        return ToolResult(f"{result.content}!", parts=result.parts)

    watched = Watched(reply("", call("screenshot")), "I see.")
    hook = Hook("after", "after_tool_call_success", after)
    definition = model_agent(watched.model, screenshot, hooks=("after",))
    async with Runtime([definition], hooks=[hook], store="memory", ports=ports) as rt:
        await rt.run("assistant", "Look.")
    assert [each.parts for each in found] == [(SHOT.part,)]
    assert watched.shown == [(SHOT.part, PNG)]


# ── from run to run ──────────────────────────────────────────────────────────────────────────


@tool
async def save(path: str, state: RunState) -> str:
    await state.files.write(path, PNG)
    return "saved"


@tool
async def finish(message: str, paths: list[str]) -> str:
    return "finished"


def pair(parent: Watched, child: Watched, **config: Any) -> list[AgentDefinition]:
    draws = PromptDefinition(
        name="draws", prompt="You draw.", model=child.model, tools=(save, finish)
    )
    stop = SessionToolBinding("finish", "message", "paths")
    drawing = AgentDefinition(
        name="child", description="It draws.", expose_as_tool=True,
        side_a=SideConfig(prompt=draws, session_stop=stop),
    )  # fmt: skip
    to_child = SubagentToolConfig(
        name="child", init_attachments_property="papers", blocking=True, **config
    )
    leads = PromptDefinition(
        name="leads", prompt="You lead.", model=parent.model, tools=(save, to_child)
    )
    return [AgentDefinition(name="parent", side_a=SideConfig(prompt=leads)), drawing]


async def test_files_that_travel_are_shown_to_those_who_get_them(ports: Ports) -> None:
    child = Watched(
        reply("", call("save", path="tree.png")),
        reply("", call("finish", message="Drawn.", paths=["tree.png"])),
    )
    parent = Watched(
        reply("", call("save", path="model.png")),
        reply("", call("child", message="Draw it.", papers=["model.png"])),
        "A fine tree.",
    )
    async with Runtime(pair(parent, child), store="memory", ports=ports) as rt:
        outcome = await rt.run("parent", "A tree, please.")
    assert outcome.output == "A fine tree."
    (asked, *_) = child.requests[-1].messages
    assert isinstance(asked, UserMessage)
    assert asked.notes == ("Attachments:\n- model.png",)
    assert [(part.name, content) for part, content in child.shown] == [("model.png", PNG)]
    assert [(part.name, content) for part, content in parent.shown] == [("tree.png", PNG)]


async def test_a_file_that_is_not_what_its_name_says_is_shown_to_nobody(ports: Ports) -> None:
    @tool
    async def lie(state: RunState) -> ToolResult:
        """Write a file."""
        await state.files.write("shot.png", "no picture")
        await state.files.write("notes.txt", "a text")
        await state.files.write("real.png", PNG)
        return ToolResult("Written.", attachments=("shot.png", "notes.txt", "real.png"))

    watched = Watched(reply("", call("lie")), "I see.")
    async with Runtime([model_agent(watched.model, lie)], store="memory", ports=ports) as rt:
        await rt.run("assistant", "Look.")
    found = [(part.name, content) for part, content in watched.shown]
    assert found == [("shot.png", None), ("real.png", PNG)]


async def test_runs_send_each_other_parts(ports: Ports) -> None:
    watched = Watched("Seen.", "Seen.", "Seen.", "Seen.")
    model = model_agent(watched.model)

    @agent("worker")
    async def worker(task: str, ctx: RunContext) -> list[Any]:
        child = ctx.spawn("assistant", ["Look.", SHOT])
        await child.result()
        assert watched.shown == [(SHOT.part, PNG)]
        other = await ctx.hub.open("assistant", [REPORT])
        await ctx.hub.send_to_run(other.run_id, Message("And this.", parts=[SHOT]))
        said = await anext(aiter(ctx.messages()))
        return [said.content, [part.name for part in said.parts]]

    async with Runtime([model, worker], store="memory", ports=ports) as rt:
        run = await rt.start("worker", "go")
        await anyio.sleep(60)
        assert watched.shown == [(REPORT.part, PDF), (SHOT.part, PNG)]
        await run.send(["For you.", REPORT])
        assert (await run.result()).output == ["For you.", ["report.pdf"]]


async def test_a_frame_is_shown_what_the_user_shows(ports: Ports) -> None:
    main, expert = Watched(use("expert"), "Back."), Watched("What is it?", "A cat.")
    agents = (frame(main.model, agents=("expert",)), frame(expert.model, name="expert"))
    async with Runtime(agents, store="memory", ports=ports) as rt:
        await rt.hub.open("main", "Hello.", session_key=KEY)
        await anyio.sleep(60)
        await rt.hub.send(["What is this?", SHOT], session_key=KEY)
        await anyio.sleep(60)
    assert expert.shown == [(SHOT.part, PNG)]


async def test_an_answer_to_a_question_shows_something(ports: Ports) -> None:
    watched = Watched(reply("", call("interrupt", prompt="Which one?")), "That one.")
    definition = structs.replace(model_agent(watched.model), supports_checkpointing=True)
    async with Runtime([definition], store="memory", ports=ports) as rt:
        run = await rt.start("assistant", "Choose.")
        await anyio.sleep(60)
        await run.send(["This one.", SHOT])
        await run.result()
    assert watched.shown == [(SHOT.part, PNG)]


async def test_one_side_is_shown_what_it_is_told(ports: Ports) -> None:
    one, other = Watched("A cat."), Watched("Agreed.")
    sides = [
        SideConfig(prompt=PromptDefinition(name=name, prompt="You talk.", model=each.model))
        for name, each in (("one", one), ("other", other))
    ]
    both = AgentDefinition(
        name="both", type="dual_ai", max_session_turns=2, side_a=sides[0], side_b=sides[1]
    )
    async with Runtime([both], store="memory", ports=ports) as rt:
        await rt.run("both", ["What is it?", SHOT])
    assert one.shown == [(SHOT.part, PNG)]
    assert other.requests[-1].messages == (
        AssistantMessage(text="What is it?", is_given=True), UserMessage(content="A cat."),
    )  # fmt: skip


async def test_a_conversation_in_code_shows_something(ports: Ports) -> None:
    watched = Watched("A cat.")

    @agent("worker")
    async def worker(task: str, ctx: RunContext) -> str:
        async with ctx.session(model=watched.model) as session:
            await session.send(["What is it?", SHOT])
            async for _ in session.receive():
                pass
        return "done"

    async with Runtime([worker], store="memory", ports=ports) as rt:
        assert (await rt.run("worker", "go")).output == "done"
    assert watched.shown == [(SHOT.part, PNG)]
