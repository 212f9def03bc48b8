"""Tools of a client's own, given to a run over HTTP and over a WebSocket: the same in both."""

import json
from typing import Any

import anyio
import pytest
from http_apps import served
from support.asgi_clients import socket

from hubbub import Agent, FunctionModel
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("U-13", "W-02", "W-03")]

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
LOOKUP = {"name": "lookup", "description": "Looks it up.", "schema": SCHEMA}
WIDE = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(30_000)}}


class Calling:
    """A model that calls the first of its tools, and keeps what it was shown."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.agent = Agent("desk", "You help.", model=FunctionModel(self._answer))

    def _answer(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return last.calls[0].output
        return call(request.tools[0].name, **({"id": "7"} if "id" in self.properties else {}))

    @property
    def properties(self) -> dict[str, Any]:
        found: dict[str, Any] = self.requests[-1].tools[0].schema["properties"]
        return found


async def opened(client: Any, app: Any, way: str, *tools: Any) -> tuple[int, str, str]:
    """Open a run with tools: the status, the run and what is wrong."""
    fields = {"agent": "desk", "input": "find 7", "tools": tools}
    if way == "http":
        answer = await client.post("/api/runs", json=fields)
        found = answer.json()
        return answer.status_code, found.get("run_id", ""), found.get("detail", "")
    async with socket(app) as other:
        said = other.say("open", **fields)
        await anyio.sleep(1)
        found = other.answer(said)
    problem = found.get("problem", {})
    return problem.get("status", 202), found.get("run_id", ""), problem.get("detail", "")


@pytest.mark.parametrize("way", ["http", "websocket"])
async def test_the_model_sees_a_given_tool_with_its_schema_and_gets_its_result(
    way: str, ports: Ports
) -> None:
    model = Calling()
    async with served(ports, model.agent) as (rt, app, client):
        status, run_id, _ = await opened(client, app, way, LOOKUP)
        assert status == 202
        await anyio.sleep(1)
        (shown,) = model.requests[-1].tools
        assert (shown.name, shown.description) == ("lookup", "Looks it up.")
        assert {**shown.schema, "additionalProperties": None} == {
            **SCHEMA, "additionalProperties": None,
        }  # fmt: skip
        (prompt,) = (await client.get("/api/prompts")).json()["prompts"]
        assert (prompt["tool"], prompt["arguments"]) == ("lookup", {"id": "7"})
        await client.post(f"/api/prompts/{prompt['prompt_id']}/reply", json={"content": "here"})
        assert (await rt.result(run_id)).output == "here"


@pytest.mark.parametrize("way", ["http", "websocket"])
@pytest.mark.parametrize("more", [{}, {"schema": None}], ids=["left out", "null"])
async def test_a_given_tool_without_a_schema_takes_no_arguments(
    more: dict[str, Any], way: str, ports: Ports
) -> None:
    model = Calling()
    async with served(ports, model.agent) as (_, app, client):
        status, _, problem = await opened(client, app, way, {"name": "ring", **more})
        assert (status, problem) == (202, "")
        await anyio.sleep(1)
        assert model.properties == {}
        (prompt,) = (await client.get("/api/prompts")).json()["prompts"]
        assert (prompt["tool"], prompt["arguments"]) == ("ring", {})


UNKNOWN = (
    "unknown field `{}` - at `$.tools[1]`; a tool has name, description, schema (of its "
    "parameters) and timeout"
)
TEXT = json.dumps(SCHEMA)


@pytest.mark.parametrize("way", ["http", "websocket"])
@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"name": "t", "parameters": SCHEMA}, UNKNOWN.format("parameters")),
        ({"name": "t", "schema_json": SCHEMA}, UNKNOWN.format("schema_json")),
        ({"type": "function", "function": {"name": "t"}}, UNKNOWN.format("type")),
        ({"name": "t", "schema": TEXT}, "tools[1].schema: expected an object, not str"),
        ({"name": "t", "schema": [SCHEMA]}, "tools[1].schema: expected an object, not list"),
        ({"name": "t", "schema": WIDE, "description": "x" * 300_000}, "more than 1,000,000 bytes"),
        ({"name": "t", "schema": {"x": [[]] * 400_000}}, "more than 1,000,000 bytes"),
        ({"name": "a b"}, "a name is 1 to 64 letters"),
    ],
)  # fmt: skip
async def test_what_is_no_given_tool_is_refused_with_the_place_and_the_remedy(
    tool: Any, problem: str, way: str, ports: Ports
) -> None:
    async with served(ports, Calling().agent) as (_, app, client):
        status, _, detail = await opened(client, app, way, LOOKUP, tool)
        assert status == 400 and problem in detail
        assert not (await client.get("/api/runs", params={"ended": True})).json()["runs"]


@pytest.mark.parametrize("way", ["http", "websocket"])
async def test_a_schema_is_as_long_as_it_is_kept_however_it_is_spelled(
    way: str, ports: Ports
) -> None:
    told = {"type": "object", "properties": {}, "description": "é\\" * 200_000}
    sent = {"name": "t", "schema": told}
    assert len(json.dumps(sent)) > 1_000_000  # Each letter is an escape of six.
    async with served(ports, Calling().agent) as (_, app, client):
        assert (await opened(client, app, way, sent))[0] == 202


async def test_the_document_describes_a_given_tool(ports: Ports) -> None:
    async with served(ports, Calling().agent) as (_, _, client):
        schemas = (await client.get("/api/openapi.json")).json()["components"]["schemas"]
    given = schemas["OpenBody"]["properties"]["tools"]["items"]["$ref"].rpartition("/")[2]
    described = schemas[given]
    assert set(described["properties"]) == {"name", "description", "schema", "timeout"}
    assert described["properties"]["schema"]["type"] == ["object", "null"]
    assert described["required"] == ["name"]
    assert described["additionalProperties"] is False


async def test_a_schema_that_is_no_unicode_is_refused(ports: Ports) -> None:
    head, tail = '{"agent": "desk", "tools": [{"name": "t", "schema": {"a": "', '"}}]}'
    async with served(ports, Calling().agent) as (_, _, client):
        for half in (b"\\ud800", b"\xff"):
            body = head.encode() + half + tail.encode()
            headers = {"content-type": "application/json"}
            answer = await client.post("/api/runs", content=body, headers=headers)
            assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request")
