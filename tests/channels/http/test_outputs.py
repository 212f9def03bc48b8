"""Values of agents with ``output=``, over HTTP, from the hub, and through OpenAI's API."""

import json
from dataclasses import dataclass

import anyio
import pytest
from http_apps import served
from support.openai_face import with_client

from hubbub import Agent, AgentDefinition, ScriptedModel, tool
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-03")]

ROME = {"city": "Rome", "degrees": 21.5}
FIT = json.dumps(ROME)


@dataclass
class Weather:
    city: str
    degrees: float


@tool
def look(city: str) -> str:
    """Look at a thermometer."""
    return f"21.5 degrees in {city}"


def reporter(*script: object) -> AgentDefinition[Weather]:
    model = ScriptedModel(script)  # type: ignore[arg-type]
    return Agent("support", "x", model=model, tools=[look], output=Weather)


async def test_a_report_has_the_value_and_the_conversation_the_correction(ports):
    async with served(ports, reporter('{"city": "Rome"}', FIT)) as (rt, _, client):
        opened = await client.post("/api/runs", json={"agent": "support", "input": "Rome?"})
        run_id = opened.json()["run_id"]
        await anyio.sleep(1)
        report = (await client.get(f"/api/runs/{run_id}?full")).json()
        assert report["output"] == ROME
        said = [(x["kind"], x["text"]) for x in report["conversation"]]
        assert [kind for kind, _ in said] == ["user", "assistant", "system", "assistant"]
        assert "missing field `degrees`" in said[2][1]
        asked = await rt.hub.ask("runtime", f"report {run_id}")
        assert asked["output"] == ROME


async def test_a_report_of_what_did_not_complete_has_none(ports):
    async with served(ports, reporter(*["warm"] * 3)) as (_, _, client):
        opened = await client.post("/api/runs", json={"agent": "support", "input": "Rome?"})
        await anyio.sleep(1)
        report = (await client.get(f"/api/runs/{opened.json()['run_id']}")).json()
        assert report["output"] is None and "did not fit" in report["failure"]


async def test_a_completion_of_openais_api_is_the_value_alone(ports):
    script = [reply("Let me look.", call("look", city="Rome")), '{"city": "Rome"}', FIT]
    async with with_client(ports, reporter(*script)) as (_, _, client):
        made = await client.chat.completions.create(
            model="support", messages=[{"role": "user", "content": "Rome?"}]
        )
        assert json.loads(made.choices[0].message.content or "") == ROME
    async with with_client(ports, reporter(call("final_answer", **ROME))) as (_, _, client):
        response = await client.responses.create(model="support", input="Rome?")
        assert json.loads(response.output_text) == ROME
