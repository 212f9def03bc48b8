"""What an MCP server asks is a question to the user of the conversation that made the call."""

from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field
from support.mcp_servers import ERAS, Results, listing_server, mcp_agent, mcp_in, tool_of

from hubbub import Runtime, ScriptedModel
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp.elicitation import MAX_CHOICES
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


class Size(BaseModel):
    size: Literal["small", "large"] = Field(description="Which size?")


class Sure(BaseModel):
    sure: bool


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


class Nothing(BaseModel):
    pass


class Endless(BaseModel):
    word: Literal[tuple(f"w{number}" for number in range(MAX_CHOICES))]  # type: ignore[valid-type]


FORMS = {
    "size": Size, "sure": Sure, "address": Address, "nothing": Nothing, "endless": Endless,
}  # fmt: skip


def asking_server(era: str) -> Any:
    """A server whose tool asks for what it is told to: within the call, or by ending it."""
    if era == "2025":
        return blocking_server()

    async def answer(name: str, arguments: dict[str, Any], given: Any = None) -> Any:
        form = arguments["form"]
        if given is None:
            params = types.ElicitRequestFormParams(
                message=f"About your order: {form}",
                requested_schema=FORMS[form].model_json_schema(),
            )
            asked = types.ElicitRequest(params=params)
            return types.InputRequiredResult(input_requests={"q": asked}, request_state=form)
        if given["q"].action != "accept":
            return str(given["q"].action)
        return f"accept {FORMS[form](**given['q'].content).model_dump()}"

    return listing_server(lambda: [tool_of("order")], answer, sees_answers=True)


def blocking_server() -> MCPServer:
    """The same by the older protocol."""
    server = MCPServer("shop")

    @server.tool()
    async def order(form: str, context: Context) -> str:
        """Order something."""
        found = await context.elicit(f"About your order: {form}", FORMS[form])
        if found.action != "accept":
            return found.action
        return f"accept {found.data.model_dump()}"

    return server


@pytest.mark.parametrize(
    ("form", "options", "answers", "result"),
    [
        ("size", ("small", "large"), ["tiny", "large"], "accept {'size': 'large'}"),
        ("sure", ("true", "false"), ["maybe", "true"], "accept {'sure': True}"),
        ("address", (), ['{"street": "Elm"}', '{"street": "Elm", "number": 3}'],
         "accept {'street': 'Elm', 'number': 3}"),
        ("nothing", ("accept", "decline"), ["accept"], "accept {}"),
        ("nothing", ("accept", "decline"), ["decline"], "decline"),
    ],
)  # fmt: skip
async def test_a_form_is_a_question_with_its_schema(
    era: str, ports: Ports, eventually: Any, form: str, options: Any, answers: Any, result: str
) -> None:
    model = ScriptedModel([call("it_order", form=form), "Done."])
    server = mcp_in(era, asking_server(era), timeout=5)
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(prompts))
        assert prompts[0].question.startswith(f"it asks: About your order: {form}")
        assert prompts[0].options == options
        await ports.clock.sleep(3_000)  # It does not count as the tool's time.
        *wrong, right = answers
        for each in wrong:
            assert (await rt.hub.reply(prompts[0].prompt_id, each)).rejected, each
        await rt.hub.reply(prompts[0].prompt_id, right)
        await eventually(lambda: bool(results.all))
        assert results.outputs == [result]


async def test_a_form_with_too_many_choices_is_refused_and_nobody_is_asked(
    era: str, ports: Ports, eventually: Any
) -> None:
    model = ScriptedModel([call("it_order", form="endless"), "Done."])
    server = mcp_in(era, asking_server(era), timeout=5)
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        outcome = await rt.run("helper", "Go.")
        assert outcome.output == "Done."
        assert results.failures == [True]
        assert "nobody is asked for more than 1000 fields and choices" in results.outputs[0]
        assert not prompts


async def test_a_question_that_is_denied_is_declined(
    era: str, ports: Ports, eventually: Any
) -> None:
    model = ScriptedModel([call("it_order", form="size"), "Done."])
    async with Runtime(
        [mcp_agent(model, mcp_in(era, asking_server(era)))], store="memory", ports=ports
    ) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(prompts))
        await rt.hub.deny(prompts[0].prompt_id, "none of your business")
        await eventually(lambda: bool(results.all))
        assert results.outputs == ["decline"]


async def test_an_address_that_is_to_be_visited_is_shown_and_never_fetched(
    ports: Ports, eventually: Any
) -> None:
    asked = types.ElicitRequest(
        params=types.ElicitRequestURLParams(message="Pay here", url="https://pay.example/1")
    )
    rounds: list[Any] = []

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        rounds.append(name)
        if len(rounds) == 1:
            return types.InputRequiredResult(input_requests={"pay": asked})
        return "paid"

    model = ScriptedModel([call("it_pay"), "Done."])
    server = mcp_in("2026", listing_server(lambda: [tool_of("pay")], answer))
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(prompts))
        assert "https://pay.example/1" in prompts[0].question
        await rt.hub.reply(prompts[0].prompt_id, "accept")
        await eventually(lambda: bool(results.all))
        assert results.outputs == ["paid"]


async def test_of_two_conversations_each_is_asked_for_its_own_call(
    era: str, ports: Ports, eventually: Any
) -> None:
    """By the older protocol nobody knows whose call a server asks for: it is told so, and from then
    on it has one call at a time."""
    model = ScriptedModel([call("it_order", form="size"), call("it_order", form="size"), "Done."])
    server = mcp_in(era, asking_server(era))
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", prompts.append)
        results = Results(rt.hub)
        runs = [await rt.start("helper", "Go.", session_key=key) for key in ("one", "two")]
        answered = 0
        while len(results.all) < 4:
            if answered == len(prompts):
                await anyio.sleep(1)
            for each in prompts[answered:]:
                answered += 1
                size = "small" if each.run_id == runs[0].run_id else "large"
                await rt.hub.reply(each.prompt_id, size)
        for run, size in zip(runs, ("small", "large"), strict=True):
            mine = [x.output for x in results.all if x.run_id == run.run_id]
            assert mine[-1] == f"accept {{'size': '{size}'}}"
            assert not any(("large" if size == "small" else "small") in x for x in mine)


async def test_a_question_ends_with_the_call_it_belongs_to(ports: Ports, eventually: Any) -> None:
    model = ScriptedModel([call("it_order", form="size"), "Done."])
    server = mcp_in("2026", asking_server("2026"))
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        seen: list[Any] = []
        rt.hub.subscribe(("session:prompt", "session:prompt:end"), seen.append)
        run = await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(seen))
        run.interrupt()
        await eventually(lambda: len(seen) == 2)
        assert seen[1].prompt_id == seen[0].prompt_id
