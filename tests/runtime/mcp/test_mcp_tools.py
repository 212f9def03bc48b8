"""Tools of MCP servers in this process, by both generations of the protocol."""

from typing import Any

import anyio
import mcp_types as types
import pytest
from msgspec import structs
from support.mcp_servers import (
    ERAS,
    Results,
    listing_server,
    mcp_agent,
    mcp_in,
    tool_of,
    weather_server,
)

from hubbub import (
    Agent,
    AgentExecutor,
    FunctionModel,
    ModelRequest,
    RunContext,
    Runtime,
    ScriptedModel,
    Secret,
    Skill,
    mcp,
    tool,
)
from hubbub import agent as code_agent
from hubbub.agents.packaging.pack import pack, unpack
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.errors import DefinitionError
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


class Watching(FunctionModel):
    """A model that plays a script and keeps what it was asked."""

    def __init__(self, *script: Any) -> None:
        self.requests: list[ModelRequest] = []
        played = ScriptedModel(script)

        async def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            return await played.call(request)

        super().__init__(answer)

    def names(self) -> list[list[str]]:
        return [[each.name for each in request.tools] for request in self.requests]


async def said_back(name: str, arguments: dict[str, Any]) -> str:
    return f"{name} got {arguments}"


async def test_a_prompt_calls_the_tools_of_a_server(era: str, ports: Ports) -> None:
    model = Watching(call("weather_forecast", city="Paris", days=2), "Sun.")
    server = mcp_in(era, weather_server(), name="weather")
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        outcome = await rt.run("helper", "How is Paris?")
        assert outcome.output == "Sun."
        assert results.outputs == ["2 days of sun in Paris"]
        (status,) = rt.mcp_servers
        assert (status.state, status.tools) == ("open", ("weather_forecast",))
        assert status.protocol.startswith(era)
    spec = model.requests[0].tools[0]
    assert (spec.name, spec.description) == ("weather_forecast", "The weather of the next days.")
    assert spec.schema["required"] == ["city"]


async def test_arguments_that_do_not_fit_the_schema_never_reach_the_server(
    era: str, ports: Ports
) -> None:
    model = Watching(call("it_forecast", days="many"), "Sorry.")
    asked: list[str] = []
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    }

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        asked.append(name)
        return ""

    server = mcp_in(era, listing_server(lambda: [tool_of("forecast", schema)], answer))
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.failures == [True]
        assert "'city' is a required property" in results.outputs[0]
        assert "`days`: 'many' is not of type 'integer'" in results.outputs[0]
    assert asked == []


async def test_a_changed_list_is_seen_at_the_next_step_and_not_before(
    era: str, ports: Ports
) -> None:
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("shelf")

    @server.tool()
    async def unlock(context: Context) -> str:
        """Show another tool."""
        server.add_tool(opened, name="opened")
        if era == "2026":
            await context.notify_tools_changed()
        else:
            await context.session.send_tool_list_changed()
        return "unlocked"

    async def opened() -> str:
        """It was hidden."""
        return "found"

    model = Watching(call("it_unlock"), call("it_opened"), "Done.")
    async with Runtime([mcp_agent(model, mcp_in(era, server))], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ["unlocked", "found"]
    assert model.names() == [["it_unlock"], ["it_opened", "it_unlock"], ["it_opened", "it_unlock"]]


async def test_the_same_tools_are_the_same_bytes_at_each_step(era: str, ports: Ports) -> None:
    """However the server sorts them."""
    tools = [tool_of(name) for name in ("c", "a", "b")]
    model = Watching(call("it_a"), call("it_b"), "Done.")

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        tools.reverse()
        if name == "b":  # Which makes the list be read again.
            raise RuntimeError
        return name

    server = mcp_in(era, listing_server(lambda: list(tools), answer))
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        await rt.run("helper", "Go.")
    assert model.names() == [["it_a", "it_b", "it_c"]] * 6
    assert len({tuple(map(id, request.tools)) for request in model.requests}) == 1


async def test_names_are_chosen_prefixed_and_made_fit_for_providers(era: str, ports: Ports) -> None:
    listed = ["read", "write", "wipe.disk", "wipe_disk", "x" * 100, "é"]
    model = Watching("Done.")
    server = mcp_in(
        era, listing_server(lambda: [tool_of(x) for x in listed], said_back),
        prefix="fs-", deny=["wr*"],
    )  # fmt: skip
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        (status,) = rt.mcp_servers
    assert model.names() == [["fs-_", "fs-read", "fs-wipe_disk", "fs-" + "x" * 61]]
    assert status.left_out == ("'wipe.disk': 'fs-wipe_disk' is another tool's name already",)
    chosen = mcp_in(era, listing_server(lambda: [tool_of(x) for x in listed], said_back),
                    allow=["r*"])  # fmt: skip
    model = Watching("Done.")
    async with Runtime([mcp_agent(model, chosen)], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
    assert model.names() == [["it_read"]]


async def test_an_agents_own_tools_keep_their_names(era: str, ports: Ports) -> None:
    @tool
    async def it_read() -> str:
        """The agent's own."""
        return "mine"

    model = Watching(call("it_read"), "Done.")
    server = mcp_in(era, listing_server(lambda: [tool_of("read"), tool_of("b")], said_back))
    async with Runtime([mcp_agent(model, it_read, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ["mine"]
    assert model.names()[0] == ["it_read", "it_b"]


async def test_prompts_name_a_server_of_the_runtime(ports: Ports) -> None:
    model = Watching(call("shared_a"), "Done.")
    server = mcp(listing_server(lambda: [tool_of("a")], said_back), name="shared")
    agents = [mcp_agent(model, "shared")]
    async with Runtime(agents, tools=[server], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ["a got {}"]


@pytest.mark.parametrize("by", ["name", "function"])
async def test_a_person_is_asked_before_calls_that_need_it(
    era: str, ports: Ports, eventually: Any, by: str
) -> None:
    model = Watching(reply("", call("it_read"), call("it_wipe", disk="c")), "Done.")
    made: list[str] = []

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        made.append(name)
        return "ok"

    def risky(name: str, arguments: Any) -> bool:
        return name == "wipe" and arguments["disk"] == "c"

    shape = {"type": "object", "properties": {"disk": {"type": "string"}}}
    tools = [tool_of("read"), tool_of("wipe", shape)]
    asking: Any = ["wi*"] if by == "name" else risky
    server = mcp_in(era, listing_server(lambda: tools, answer), approval=asking)
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(prompts))
        assert made == ["read"]
        assert (prompts[0].kind, prompts[0].tool) == ("approval", "it_wipe")
        await rt.hub.deny(prompts[0].prompt_id, "no")
        await eventually(lambda: len(results.all) == 2)
        assert results.failures == [False, True]
    assert made == ["read"]


async def test_a_person_may_approve_a_call_with_other_arguments(
    era: str, ports: Ports, eventually: Any
) -> None:
    model = Watching(call("it_pay", amount=500), "Done.")

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        return f"paid {arguments['amount']}"

    shape = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    server = mcp_in(era, listing_server(lambda: [tool_of("pay", shape)], answer), approval=True)
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(prompts))
        refused = await rt.hub.approve(prompts[0].prompt_id, {"amount": "much"})
        assert refused.rejected and "amount" in refused.reason
        assert (await rt.hub.approve(prompts[0].prompt_id, {"amount": 40})).accepted
        await eventually(lambda: bool(results.all))
        assert results.outputs == ["paid 40"]


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
"""A picture of one pixel, as PNG."""


async def test_pictures_in_results_are_parts_that_the_model_is_shown(
    era: str, ports: Ports
) -> None:
    model = Watching(call("it_draw"), call("it_count"), "Done.")
    picture = types.ImageContent(data=PIXEL, mime_type="image/png")
    broken = types.ImageContent(data="aGVsbG8gd29ybGQh", mime_type="image/png")
    link = types.ResourceLink(name="plan", uri="file:///plan.pdf")
    text = types.TextContent(text="Here:")
    file = types.EmbeddedResource(
        resource=types.BlobResourceContents(
            uri="file:///a.pdf", mime_type="application/pdf", blob="JVBERi0xLjQK"
        )
    )

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        if name == "count":
            return types.CallToolResult(content=[], structured_content={"many": 3})
        return types.CallToolResult(content=[text, picture, broken, link, file])

    tools = [tool_of("draw"), tool_of("count")]
    server = mcp_in(era, listing_server(lambda: tools, answer))
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
    drawn, counted = results.all
    assert [each.media_type for each in drawn.parts] == ["image/png", "application/pdf"]
    assert drawn.output.startswith("Here:\n\n[12 bytes of image/png that the tool has returned are")
    assert "[plan: file:///plan.pdf]" in drawn.output
    assert counted.output == '{"many":3}'
    shown = model.requests[1].messages[-1]
    assert [each.kind for each in shown.calls[0].parts] == ["image", "document"]


async def test_a_call_that_is_interrupted_is_cancelled_at_the_server(
    era: str, ports: Ports, eventually: Any
) -> None:
    model = Watching(call("it_wait"), "Done.")
    states: list[str] = []

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        states.append("began")
        try:
            await anyio.sleep_forever()
        except BaseException:
            states.append("cancelled")
            raise
        return "too late"

    server = mcp_in(era, listing_server(lambda: [tool_of("wait")], answer), timeout=None)
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        run = await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: states == ["began"])
        run.interrupt()
        await eventually(lambda: states == ["began", "cancelled"])


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(
    era: str, ports: Ports, eventually: Any
) -> None:
    model = Watching(call("it_wait"), "Done.")
    states: list[str] = []

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            states.append("over")
        return "too late"

    server = mcp_in(era, listing_server(lambda: [tool_of("wait")], answer), timeout=7)
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ["timed out: the tool did not finish within 7 s"]
        await eventually(lambda: bool(states))


async def test_two_servers_and_two_agents_share_connections(ports: Ports) -> None:
    lists: list[int] = []

    def tools() -> list[types.Tool]:
        lists.append(1)
        return [tool_of("a")]

    shared = mcp(listing_server(tools, said_back), name="one")
    other = mcp(listing_server(lambda: [tool_of("a")], said_back), name="two")
    first = mcp_agent(Watching(call("one_a"), call("two_a"), "Done."), shared, other)
    second = Watching(call("one_a"), "Done.")
    agents = [first, Agent("second", "You help.", model=second, tools=[shared])]
    async with Runtime(agents, store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        await rt.run("second", "Go.")
        assert results.failures == [False] * 3
        assert len(rt.mcp_servers) == 2
    assert len(lists) == 1


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: mcp(""), "not an empty text"),
        (lambda: mcp("ftp://a.b/mcp"), "neither http nor https"),
        (lambda: mcp("https://me:pw@a.b/mcp"), "holds a name or password"),
        (lambda: mcp("http://"), "no address"),
        (lambda: mcp("sh 'x"), "is no command"),
        (lambda: mcp([]), "words of a command"),
        (lambda: mcp(None), "not NoneType"),
        (lambda: mcp(int), "give an object of it"),
        (lambda: mcp("x", name="a b"), "use 1 to 32"),
        (lambda: mcp("x", headers={"a b": "c"}), "no name of a header"),
        (lambda: mcp("x", env={"A": "b\nc"}), "one line"),
        (lambda: mcp("x", approval_timeout=3), "nobody is asked"),
        (lambda: mcp("x", protocol="1999"), "'auto', '2025' or '2026'"),
        (lambda: mcp("x", max_tools=0), "at least 1"),
    ],
)
def test_what_can_be_no_server_is_refused_when_it_is_made(build: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as error:
        build()
    assert problem in str(error.value)
    assert "pw" not in str(error.value)


def test_what_does_not_fit_together_is_refused_when_a_runtime_is_built() -> None:
    model = ScriptedModel(["x"])
    for tools, problem in (
        ([mcp("a", name="x"), mcp("b", name="x")], "another MCP server is named 'x', too"),
        ([mcp("a", prefix=""), mcp("b", prefix="")], "have one prefix"),
        (["wether"], "no tool named 'wether'"),
    ):
        with pytest.raises(DefinitionError) as error:
            Runtime([mcp_agent(model, *tools)], tools=[mcp("x", name="weather")], store="memory")
        assert problem in str(error.value)


async def test_an_object_that_is_no_server_is_refused_when_a_runtime_is_entered(
    ports: Ports,
) -> None:
    rt = Runtime([mcp_agent(ScriptedModel(["x"]), mcp(object()))], store="memory", ports=ports)
    with pytest.raises(DefinitionError) as error:
        async with rt:
            pass
    assert "expected a server object of the SDK, not object" in str(error.value)


def test_names_are_made_of_what_a_server_is_reached_by() -> None:
    assert mcp("uvx mcp-server-time@1.2 --tz UTC").name == "mcp-server-time"
    assert mcp("npx -y @scope/some-server@latest").name == "some-server"
    assert mcp("python -m tools.weather").name == "tools_weather"
    assert mcp(["/usr/bin/node", "/srv/files.js"]).name == "files"
    assert mcp("https://docs.example.com/mcp").name == "docs_example_com"
    assert mcp(weather_server()).name == "weather"


def test_secrets_show_nowhere() -> None:
    server = mcp("https://a.b/mcp", headers={"Authorization": "Bearer abc"}, env={"K": Secret("s")})
    assert "Bearer" not in repr(server)
    assert "'s'" not in repr(server)


async def test_a_tool_sees_the_run_that_calls_it_only_by_its_call(ports: Ports) -> None:
    """The arguments of a server's tool may have any names."""
    shape = {"type": "object", "properties": {"state": {}, "arguments": {}, "self": {}}}
    model = Watching(call("it_odd", state=1, arguments=2, self=3), "Done.")
    server = mcp(listing_server(lambda: [tool_of("odd", shape)], said_back), name="it")
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
    assert results.outputs == ["odd got {'state': 1, 'arguments': 2, 'self': 3}"]


async def test_a_skill_uses_the_tools_of_a_server(ports: Ports) -> None:
    """Of those that it names, and without a list of all that the runtime knows."""
    for tools in (["it"], None):
        skill = Skill(name="look", description="Look.", instructions="Look.", tools=tools)
        model = Watching(call("use_skill", name="look", message="Go."), "Done.")
        work = Watching(call("it_a"), call("complete", result="seen"))
        server = mcp(listing_server(lambda: [tool_of("a")], said_back), name="it")
        agent = mcp_agent(model, skills=[structs.replace(skill, model=work)])
        async with Runtime([agent], tools=[server], store="memory", ports=ports) as rt:
            results = Results(rt.hub)
            await rt.run("helper", "Go.")
            assert "a got {}" in results.outputs
        assert model.names() == [["use_skill"]] * 2


def test_who_has_no_runtime_of_its_own_has_no_servers() -> None:
    agent = mcp_agent(ScriptedModel(["x"]), mcp("uvx x"))
    with pytest.raises(DefinitionError) as error:
        AgentExecutor([agent])
    assert "connected to by a Runtime only" in str(error.value)


async def test_a_conversation_in_code_refuses_a_server(ports: Ports) -> None:
    @code_agent("coder")
    async def coder(input: Any, ctx: RunContext) -> str:
        ctx.session(model=ScriptedModel(["x"]), system="x", tools=[mcp("uvx x")])  # type: ignore[list-item]
        return "made"

    async with Runtime([coder], store="memory", ports=ports) as rt:
        outcome = await rt.run("coder", "Go.")
    assert "give them to an agent and spawn that" in outcome.reason


async def test_a_package_names_the_servers_that_it_needs() -> None:
    server = mcp("uvx files", name="files")
    agent = Agent("helper", "You help.", model="openai:x", tools=[server])
    data = pack(Definitions([agent]), "helper")
    assert unpack(data, tools=[server]).tools == (server,)
    with pytest.raises(DefinitionError) as error:
        unpack(data, tools=[])
    assert "'files' is missing" in str(error.value)
