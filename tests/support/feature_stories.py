"""Stories that play every feature of a runtime, for the tests of what becomes of their stores."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types

from hubbub import (
    Agent,
    AgentDefinition,
    Compaction,
    CustomEvent,
    Document,
    FunctionModel,
    Image,
    Limits,
    Message,
    ModelReply,
    ModelRequest,
    Price,
    PromptDefinition,
    RunContext,
    RunState,
    Runtime,
    ScriptedModel,
    SideConfig,
    Usage,
    VariableDefinition,
    agent,
    external_tool,
    tool,
)
from hubbub.hub import HistoryMessage
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import Fault, call, reply
from hubbub.runtime.schedules.schedules import Cron
from support.agents import echo_model, model_agent
from support.families import Recorder, child, config, parent
from support.mcp_servers import listing_server, mcp_agent, mcp_in, tool_of

__all__ = ["FEATURES", "Story"]

Story = Callable[[Any, Ports], Awaitable[None]]
"""It is given a store, or the text that names one."""


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def wonder(state: RunState) -> str:
    """Ask the person."""
    return f"heard {await state.ask('Which?', options=['a', 'b'])}"


LOOKUP = external_tool("lookup", {"type": "object", "properties": {"what": {"type": "string"}}})


async def people(store: Any, ports: Ports) -> None:
    """Approvals, questions and calls carried out elsewhere: ended in every way, and left open."""
    calls = [
        call("pay", amount=1), call("pay", amount=2), call("pay", amount=3), call("wonder"),
        call("lookup", what="x"), call("pay", amount=4), call("wonder"),
    ]  # fmt: skip
    steps = [x for number, each in enumerate(calls) for x in (each, f"Done {number}.")]
    open_at_once = reply("", call("pay", amount=5), call("wonder"), call("lookup", what="y"))
    desk = model_agent(
        ScriptedModel([*steps, open_at_once]), pay, wonder, LOOKUP, name="desk",
        parallel_tool_calls=True,
    )  # fmt: skip

    @agent("asker")
    async def asker(input: Any, ctx: RunContext) -> str:
        return f"{await ctx.ask('Yes?')} {await ctx.ask('Sure?')}"

    async with Runtime([desk, asker], store=store, ports=ports, grace=0) as rt:
        asked: list[e.SessionPrompt] = []
        rt.hub.subscribe(e.SessionPrompt, asked.append)

        async def last() -> str:
            await anyio.sleep(5)
            return asked[-1].prompt_id

        run = await rt.start("desk", "go", session_key="web_ada")
        rt.hub.approve(await last())
        await run.send("again")
        rt.hub.approve(await last(), arguments={"amount": 20})
        await run.send("again")
        rt.hub.deny(await last(), "too much")
        await run.send("again")
        rt.hub.reply(await last(), "a")
        await run.send("again")
        rt.hub.reply(await last(), "found")
        await run.send("again")
        await last()
        await run.send("Never mind.")  # Denies what is open.
        await run.send("again")
        await last()
        rt.hub.interrupt(run.run_id, "enough")
        await run.send("again")
        await last()  # Three are left open.
        code = await rt.start("asker", None)
        rt.hub.reply(await last(), "yes")
        await last()
        await code.send("words")
        await anyio.sleep(5)


async def variables(store: Any, ports: Ports) -> None:
    """Requests for variables: provided, left open, and of a child that starts at once."""
    key = VariableDefinition(name="KEY", required=True, scoped=True)
    work = child(Recorder(*[call("finish", result="used it")] * 3), variables=(key,))
    boss = Recorder(*[call("helper", message="x"), "It wants a key.", "Thanks."] * 2)
    async with Runtime([parent(boss, config()), work], store=store, ports=ports) as rt:
        wanted: list[e.SessionVariables] = []
        rt.hub.subscribe(e.SessionVariables, wanted.append)
        run = await rt.start("main", "Please.", session_key="web_ada", env={"OTHER": "value 123"})
        await run.result()
        request = next(x for x in wanted if x.required)
        await rt.provide_variables(run.run_id, request.request_id, {"KEY": "a secret"})
        await anyio.sleep(30)
        await run.send("Another one.")
        await anyio.sleep(30)


async def code(store: Any, ports: Ports) -> None:
    """Steps, files, values, children, events of its own; results read, told and given up."""

    @agent("little")
    async def little(input: Any, ctx: RunContext) -> str:
        await ctx.files.write("found.txt", "x")
        return f"did {input}"

    @agent("broken")
    async def broken(input: Any, ctx: RunContext) -> str:
        raise ValueError("no way")

    @tool
    async def fetch(state: RunState) -> str:
        """Have children work."""
        read, kept = state.spawn("little", 1), state.spawn("little", 2, result="message")
        state.spawn("broken", 3, result="ignore")
        state.spawn("little", 4)
        state.hub.emit(CustomEvent.of("my:event", n=1))
        await kept
        return str((await read.result()).output)

    @agent("worker", on_restart="resume")
    async def worker(input: Any, ctx: RunContext) -> str:
        await ctx.step("once", lambda: {"n": 1})
        await ctx.kv.set("k", [1])
        await ctx.kv.delete("k")
        await ctx.files.write("a.txt", "a")
        await ctx.files.delete("a.txt")
        ctx.status("at it")
        ctx.hub.emit(CustomEvent.of("my:event", n=2))
        return (await ctx.spawn("little", 5).result()).output

    boss = model_agent(ScriptedModel([call("fetch"), "Done.", "I see."]), fetch, name="boss")
    async with Runtime([boss, worker, little, broken], store=store, ports=ports) as rt:
        run = await rt.start("boss", "go", session_key="web_ada")
        await anyio.sleep(30)
        await run.result()
        await rt.run("worker", "go")
        rt.hub.emit(CustomEvent.of("my:event", n=3))
        await rt.hub.publish(e.AgentStatus(status="not of a run"))


async def control(store: Any, ports: Ports) -> None:
    """Openings with a history and tools, schedules, resets, ends of every kind, dead letters."""
    echo = model_agent(echo_model(), name="echo")
    talk = [HistoryMessage(content="Hi."), HistoryMessage(role="assistant", content="Hello.")]
    beat = Cron("beat", "* * * * *", "echo", "Tick.")
    async with Runtime([echo], store=store, ports=ports, schedules=[beat]) as rt:
        opened = await rt.hub.open(
            "echo", "go", session_key="web_ada", history=talk, tools=[LOOKUP]
        )
        await rt.result(opened.run_id)
        rt.hub.reset(opened.run_id, "From the beginning.")
        await rt.result(opened.run_id)
        rt.hub.interrupt(opened.run_id, "nothing at work")
        await anyio.sleep(150)
        await rt.hub.close_run(opened.run_id, "done")
        other = await rt.start("echo", "go")
        rt.hub.send_to_run(other.run_id, "too late")
        await rt.terminate(other.run_id, "unwanted")
        await rt.hub.send_to_run(other.run_id, "gone")


async def parts(store: Any, ports: Ports) -> None:
    """Images and documents in messages, results, histories and files."""
    picture = Image(b"\x89PNG\r\n\x1a\n picture", name="a.png")
    paper, far = Document(b"%PDF-1.7 paper"), Image.from_url("https://example.com/a.png")

    @tool
    async def draw(state: RunState) -> Any:
        """Draw."""
        await state.files.write("b.png", picture.data)
        return ["Drawn.", Image(b"GIF89a drawn")]

    echo = model_agent(ScriptedModel([call("draw"), "Yes.", "No."]), draw, name="echo")
    talk = [
        {"role": "user", "content": "", "parts": [paper]},
        HistoryMessage(role="assistant", content="A paper."),
    ]
    async with Runtime([echo], store=store, ports=ports) as rt:
        run = await rt.start("echo", ["Look.", picture, far], history=talk, session_key="web_ada")
        await run.result()
        await run.ask(Message("And?", parts=[Image(b"GIF87a other")]))


async def summaries(store: Any, ports: Ports) -> None:
    """Summaries: by themselves, by hand, failed; with pictures, of a child, and after a reset."""
    made = iter([Fault("request"), *[f"Summary {n}." for n in range(20)]])

    def answer(request: ModelRequest) -> Any:
        if request.purpose == "summary":
            found = next(made)
            return found if isinstance(found, Fault) else ModelReply(text=found)
        size = sum(len(message.content) for message in request.messages)
        if request.messages[-1].content == "Delegate.":
            return call("helper", message="Work.")
        return ModelReply(text="a" * 50, usage=Usage(input_tokens=size))

    below = child(Recorder(call("finish", result="did it")), name="helper")
    model = FunctionModel(answer, latency=1)
    talker = model_agent(model, config(), name="talker", compaction=Compaction(window=400))
    async with Runtime([talker, below], store=store, ports=ports) as rt:
        run = await rt.start("talker", ["one " * 10, Image(b"GIF89a one")], session_key="web_ada")
        for text in ("two " * 10, "Delegate.", "three " * 40, "four " * 40):
            await run.ask(text)
        rt.hub.compact(run.run_id)
        await anyio.sleep(10)
        rt.hub.reset(run.run_id, "Afresh.")
        await run.ask("five " * 60)
        rt.hub.compact(run.run_id)
        await anyio.sleep(10)


async def limits(store: Any, ports: Ports) -> None:
    """Limits of turns, runs and trees: reached, raised, with prices and with children."""

    def answer(request: ModelRequest) -> Any:
        usage = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=40)
        if request.messages[-1].content == "Delegate.":
            return ModelReply(calls=(call("helper", message="Work."),), usage=usage)
        return ModelReply(text="Yes.", usage=usage)

    below = child(Recorder(call("finish", result="did it")), name="helper")
    model = FunctionModel(answer, latency=1)
    talker = model_agent(model, config(), name="talker", limits=Limits(model_calls=3, seconds=90))
    prices = dict.fromkeys(("function", "recorder"), Price(input=3, output=15))
    async with Runtime([talker, below], store=store, ports=ports, prices=prices) as rt:
        run = await rt.start("talker", "one", session_key="web_ada", limits=Limits(cost=0.0012))
        for text in ("Delegate.", "two", "three", "four"):
            await run.ask(text)
        (await rt.limit(run.run_id, Limits(cost=2.0, output_tokens=70))).raise_if_rejected()
        for text in ("Delegate.", "five"):
            await run.ask(text)
        (await rt.limit(run.run_id, None)).raise_if_rejected()
        await run.ask("six")


async def servers(store: Any, ports: Ports) -> None:
    """Tools of an MCP server: results, errors, pictures; what it asks, answered and left open."""
    picture = types.ImageContent(
        data=b64encode(b"GIF89a of a server").decode(), mime_type="image/gif"
    )

    async def answer(name: str, arguments: dict[str, Any], given: Any = None) -> Any:
        if name == "draw":
            return types.CallToolResult(content=[types.TextContent(text="Drawn."), picture])
        if name == "fail":
            return types.CallToolResult(content=[types.TextContent(text="No.")], is_error=True)
        if given is not None:
            return f"{given['q'].action} {given['q'].content}"
        schema = {"type": "object", "properties": {"size": {"type": "string"}}}
        params = types.ElicitRequestFormParams(message="Which size?", requested_schema=schema)
        return types.InputRequiredResult(
            input_requests={"q": types.ElicitRequest(params=params)}, request_state="x"
        )

    names = ("draw", "fail", "order")
    listed = listing_server(lambda: [tool_of(x) for x in names], answer, sees_answers=True)
    script = [call(f"it_{name}") for name in (*names, "missing", "order")]
    steps = [x for number, each in enumerate(script) for x in (each, f"Done {number}.")]
    desk = mcp_agent(ScriptedModel(steps), mcp_in("2026", listed), name="desk")
    async with Runtime([desk], store=store, ports=ports, grace=0) as rt:
        asked: list[e.SessionPrompt] = []
        rt.hub.subscribe(e.SessionPrompt, asked.append)
        run = await rt.start("desk", "go", session_key="web_ada")
        await run.result()
        for number in range(4):
            await run.send(f"again {number}")
            await anyio.sleep(60)
            if number == 1:
                rt.hub.reply(asked[-1].prompt_id, '{"size": "small"}')
                await anyio.sleep(60)


async def fallbacks(store: Any, ports: Ports) -> None:
    """Several models of one prompt: one fails for good, one refuses, all fail."""
    down, refused = Fault("auth", times=None), ModelReply(text="", stop_reason="refusal")

    def model(name: str, *script: Any) -> FunctionModel:
        left = [*script]
        return FunctionModel(lambda _: left.pop(0) if len(left) > 1 else left[0], name=name)

    prompt = PromptDefinition(
        name="p", prompt="You help.",
        model=[
            model("one", "I am one.", down),
            model("two", Fault("server", times=1), "I am two.", refused),
            model("three", "I am three.", Fault("request", times=None)),
        ],
    )  # fmt: skip
    desk = AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt))
    async with Runtime([desk], store=store, ports=ports) as rt:
        run = await rt.start("desk", "go", session_key="web_ada")
        for number in range(5):
            await anyio.sleep(60)
            await run.send(f"again {number}")
        await anyio.sleep(60)


async def values(store: Any, ports: Ports) -> None:
    """Answers that are values: given in words and by calls, corrected, given up, to a parent."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answers = ["words", call("final_answer", n="x"), '{"n": 1}', call("final_answer", n=2)]
    cut = reply('{"n"', stop_reason="length")
    script = [*answers, "a", "b", "c", cut, '{"n": 3}']
    valuer = Agent("valuer", "x", model=ScriptedModel(script), output=schema)
    boss = model_agent(
        ScriptedModel([call("valuer", message="x"), "So it is."]), valuer.as_tool(), name="boss"
    )
    async with Runtime([valuer, boss], store=store, ports=ports) as rt:
        run = await rt.start("valuer", "go", session_key="web_ada")
        for word in ("again", "once more", "and again", "the last"):
            await run.result()
            await run.send(word)
        assert (await run.result()).output == {"n": 3}
        assert (await rt.run("boss", "go")).output == "So it is."


FEATURES: Final[dict[str, Story]] = {
    x.__name__: x
    for x in (
        people, variables, code, control, parts, summaries, limits, servers, fallbacks, values,
    )
}  # fmt: skip
