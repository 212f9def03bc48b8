"""Variables of a root agent over HTTP: told beforehand, brought by the opening, never dropped."""

from typing import Any

import pytest
from http_apps import parsed, served
from support.agents import model_agent

from hubbub import (
    Agent,
    FunctionModel,
    ModelRequest,
    RunState,
    VariableDefinition,
    tool,
)
from hubbub.agents.model import AssistantMessage
from hubbub.channels.http.api.agents import AgentList
from hubbub.channels.http.api.views import AgentView, VariableView
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio

KEY = VariableDefinition(name="CRM_KEY", required=True, description="From the CRM's settings.")
CITY = VariableDefinition(name="CITY", type="text", required=True)


@tool(variables=[VariableDefinition(name="LEVEL")])
def which(state: RunState) -> str:
    """Say which key it is."""
    return state.env["CRM_KEY"][-1]


def answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    return last.calls[0].output if isinstance(last, AssistantMessage) else call("which")


def crm() -> Any:
    return model_agent(FunctionModel(answer), which, variables=[KEY, CITY], name="crm")


async def said(rt: Any, run_id: str) -> str:
    """What a run came to, in words."""
    outcome = await (await rt.handle(run_id)).result()
    return f"{outcome.output} {outcome.reason}"


@pytest.mark.spec("W-02", "D-09")
async def test_an_agent_s_variables_are_told_before_a_run_is_opened(ports):
    plain = Agent("plain", "Say hello.", model=FunctionModel(lambda request: "hello"))
    async with served(ports, crm(), plain) as (_, _, client):
        shown = parsed(await client.get("/api/agents/crm"), AgentView)
        assert shown.variables == (
            VariableView(
                name="CRM_KEY", description="From the CRM's settings.", required=True, needed=True
            ),
            VariableView(name="CITY", type="text", required=True, needed=True),
            VariableView(name="LEVEL"),
        )
        listed = parsed(await client.get("/api/agents"), AgentList)
        assert [len(each.variables) for each in listed.agents] == [3, 0]


@pytest.mark.spec("D-07", "D-09")
async def test_what_has_a_value_already_need_not_be_brought(ports):
    own = VariableDefinition(name="OWN", required=True, scoped=True)
    below = Agent(
        "below", "Look.", model=FunctionModel(answer), variables=[KEY, CITY, own],
        env={"CITY": "Rome"},
    )  # fmt: skip
    boss = Agent("boss", "Lead.", model=FunctionModel(answer), tools=[below.as_tool()])
    async with served(ports, boss, below) as (_, _, client):
        needed = {}
        for name in ("boss", "below"):
            shown = (await client.get(f"/api/agents/{name}")).json()["variables"]
            needed[name] = {each["name"]: each.get("needed", False) for each in shown}
        # What a subagent inherits its root has to bring; what is scoped is asked for later.
        assert needed == {
            "boss": {"CRM_KEY": True, "CITY": False, "OWN": False},
            "below": {"CRM_KEY": True, "CITY": False, "OWN": True},
        }  # fmt: skip


@pytest.mark.spec("D-07", "R-09", "W-02")
async def test_a_run_that_lacks_a_variable_gets_it_by_the_next_opening(ports):
    async with served(ports, crm()) as (rt, _, client):
        body: dict[str, Any] = {"agent": "crm", "session_key": "web_ada", "input": "go"}
        first = (await client.post("/api/runs", json=body)).json()
        assert first["created"]
        assert "needs CRM_KEY, CITY; open the run with it" in await said(rt, first["run_id"])
        body["env"] = {"CRM_KEY": "planted-1", "CITY": "Rome"}
        for _ in range(2):
            again = await client.post("/api/runs", json=body)
            assert (again.status_code, again.json()["run_id"]) == (202, first["run_id"])
            assert not again.json()["created"]
            assert (await said(rt, first["run_id"])).startswith("1 ")
        body["env"] = {"CRM_KEY": "planted-2"}
        refused = await client.post("/api/runs", json=body)
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/refused")
        assert "another value of CRM_KEY" in refused.json()["detail"]
        assert "planted" not in refused.text


@pytest.mark.spec("R-09", "W-02")
async def test_a_key_of_another_agent_s_conversation_is_told_by_its_receipt(ports):
    plain = Agent("plain", "Say hello.", model=FunctionModel(lambda request: "hello"))
    async with served(ports, crm(), plain) as (_, _, client):
        body = {"agent": "plain", "session_key": "web_ada", "input": "go"}
        first = (await client.post("/api/runs", json=body)).json()
        again = (await client.post("/api/runs", json={**body, "agent": "crm"})).json()
        assert (first["created"], first["agent"]) == (True, "plain")
        assert (again["created"], again["agent"]) == (False, "plain")
        assert again["run_id"] == first["run_id"]


@pytest.mark.spec("H-09", "W-02")
async def test_a_duplicate_has_the_cursor_behind_which_its_answer_comes(ports):
    async with served(ports, crm()) as (rt, _, client):
        body = {
            "agent": "crm", "session_key": "web_ada", "env": {"CRM_KEY": "k-1", "CITY": "Rome"},
            "message": {"content": "go", "key": "m1"},
        }  # fmt: skip
        first = await client.post("/api/runs", json=body)
        assert "1" in await said(rt, first.json()["run_id"])
        again = await client.post("/api/runs", json=body)
        assert (first.status_code, again.status_code) == (202, 200)
        assert again.json()["status"] == "duplicate"
        assert again.json()["cursor"] == first.json()["cursor"] != ""
        records = await client.get(
            f"/api/runs/{first.json()['run_id']}/records",
            params={"after": again.json()["cursor"], "types": "agent:text"},
        )
        assert [x["text"] for x in records.json()["records"]] == ["1"]
