"""Variables for a subagent, asked for over HTTP: names are shown, values never come back."""

import html
import json
import logging

import anyio
import pytest
from http_apps import parsed, served
from support.agents import Observer, model_agent
from support.secrets import NASTY, leaks

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    Resumable,
    ScriptedModel,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    VariableDefinition,
    tool,
)
from hubbub.agents.model import AssistantMessage
from hubbub.channels.http.api.variables import VariableRequests
from hubbub.channels.http.api.views import ConversationPage, ReportView
from hubbub.hub.events.codec import encode_event
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = pytest.mark.anyio

PROMISED = pytest.mark.spec("W-01", "V-02", "V-03", "H-19")

HTML = {"Accept": "text/html,application/xhtml+xml"}


@tool(idempotent=True)
def finish(result: str) -> str:
    return result


def helper(*texts: str) -> AgentDefinition:
    needed = [
        VariableDefinition(name=name, scoped=True, required=True, description="Of <your> CRM.")
        for name in ("KEY", "SECRET_TOKEN")
    ]
    needed += [
        VariableDefinition(name=name, scoped=True, required=True, type="text") for name in texts
    ]
    side_a = PromptDefinition(
        name="helper-a", prompt="Work.", tools=(finish,), variables=needed,
        model=ScriptedModel([reply("", call("finish", result="helped"))] * 3),
    )  # fmt: skip
    side_b = PromptDefinition(name="helper-b", prompt="Check.", model=ScriptedModel(["go on"] * 9))
    ends = SessionToolBinding("finish", message_property="result")
    return AgentDefinition(
        name="helper", type="dual_ai", expose_as_tool=True, max_session_turns=6,
        side_a=SideConfig(prompt=side_a, session_stop=ends), side_b=SideConfig(prompt=side_b),
    )  # fmt: skip


def boss(times: int = 1, most: int | None = None) -> AgentDefinition:
    config = SubagentToolConfig(
        name="helper", resumable=Resumable(receives_messages="side_a", max_instances=most)
    )
    step = reply("", *[create(f"number {number}") for number in range(times)])

    def answer(request):
        return "done" if any(isinstance(x, AssistantMessage) for x in request.messages) else step

    return model_agent(FunctionModel(answer), config, name="boss")


def create(name):
    arguments = {"message": "do it"}
    return call("subagent_create", agent="helper", name=name, arguments=arguments)


async def asked(rt):
    """A run whose subagents wait, and the paths to fill in what they need."""
    run = await rt.start("boss", "hello")
    await run.result()
    wanted = [x for x in await run.read() if x.type == "session:variables"]
    return run, [f"/threads/{run.run_id}/variables/{x.request_id}" for x in wanted]


@PROMISED
async def test_what_is_wanted_is_shown_and_given_once(ports):
    async with served(ports, boss(), helper()) as (rt, _, client):
        run, (path,) = await asked(rt)
        shown = await client.get(path)
        assert shown.status_code == 200
        assert shown.json() == {
            "request_id": path.rpartition("/")[2], "required": ["KEY", "SECRET_TOKEN"],
            "missing": ["KEY", "SECRET_TOKEN"],
        }  # fmt: skip
        given = {"variables": {"KEY": "k-planted", "SECRET_TOKEN": NASTY}}
        done = await client.post(path, json=given)
        assert done.status_code == 200 and set(done.json()) == {"reference"}
        child = await rt.handle(done.json()["reference"])
        assert child.agent == "helper"
        for again in (await client.get(path), await client.post(path, json=given)):
            assert (again.status_code, again.json()["type"]) == (409, "/problems/already-started")
        await child.result()
        await run.result()


@PROMISED
async def test_bad_values_are_named_and_nothing_is_stored(ports):
    async with served(ports, boss(), helper()) as (rt, _, client):
        _, (path,) = await asked(rt)
        for body, status, names in (
            ({"KEY": "planted"}, 400, ["SECRET_TOKEN"]),
            ({"KEY": "planted", "SECRET_TOKEN": "x", "OTHER": "y"}, 400, ["OTHER"]),
            ({"KEY": "planted", "SECRET_TOKEN": "x" * (1 << 20) + "x"}, 400, ["SECRET_TOKEN"]),
            ({"KEY": "planted", "SECRET_TOKEN": 3}, 400, []),
            ({"KEY": "planted", "SECRET_TOKEN": None}, 400, []),
        ):
            answer = await client.post(path, json={"variables": body})
            assert (answer.status_code, answer.json().get("names", [])) == (status, names), body
            assert "planted" not in answer.text
        many = await client.post(
            path, json={"variables": dict.fromkeys(map(str, range(5_000)), "")}
        )
        assert many.json()["detail"].endswith("5,000 values; a run is given 1,000 at most")
        for wrong in ({}, [], "x", {"variables": []}, {"variables": {}, "more": 1}):
            assert (await client.post(path, json=wrong)).status_code == 400
        assert (await client.get(path)).json()["missing"] == ["KEY", "SECRET_TOKEN"]


@PROMISED
async def test_unknown_foreign_expired_and_ended_requests_are_told_apart(ports):
    async with served(ports, boss(), helper()) as (rt, _, client):
        run, (path,) = await asked(rt)
        other = await rt.start("boss", "hello")
        await other.result()
        given = {"variables": {"KEY": "k", "SECRET_TOKEN": "t"}}
        request_id = path.rpartition("/")[2]
        for unknown in (
            f"/threads/{run.run_id}/variables/x", f"/threads/{other.run_id}/variables/{request_id}",
            f"/threads/nobody/variables/{request_id}", f"/threads/a%20b/variables/{request_id}",
        ):  # fmt: skip
            for answer in (await client.get(unknown), await client.post(unknown, json=given)):
                assert (answer.status_code, answer.json()["type"]) == (
                    404, "/problems/unknown-request",
                )  # fmt: skip
        await anyio.sleep(3600)
        for answer in (await client.get(path), await client.post(path, json=given)):
            assert (answer.status_code, answer.json()["type"]) == (410, "/problems/expired")
        run, (path,) = await asked(rt)
        await run.terminate()
        await run.finished()
        answer = await client.post(path, json=given)
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/parent-ended")


@PROMISED
async def test_a_cap_that_is_reached_meanwhile_is_a_conflict(ports):
    async with served(ports, boss(2, most=1), helper()) as (rt, _, client):
        _, (one, two) = await asked(rt)
        given = {"variables": {"KEY": "k", "SECRET_TOKEN": "t"}}
        assert (await client.post(one, json=given)).status_code == 200
        answer = await client.post(two, json=given)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/limit-reached")


@PROMISED
async def test_a_person_fills_in_a_form_that_shows_no_value_and_runs_no_script(ports):
    async with served(ports, boss(), helper()) as (rt, _, client):
        _, (path,) = await asked(rt)
        form = await client.get(path, headers=HTML)
        assert form.headers["content-type"] == "text/html; charset=utf-8"
        policy = form.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert "<script" not in form.text and 'name="KEY"' in form.text
        assert 'type="password"' in form.text and "value=" not in form.text
        assert "Until " in form.text
        lacks = await client.post(path, data={"KEY": "planted"}, headers=HTML)
        assert lacks.status_code == 400 and "SECRET_TOKEN" in lacks.text
        assert 'name="KEY"' in lacks.text and "planted" not in lacks.text
        done = await client.post(
            path, data={"KEY": "planted", "SECRET_TOKEN": "t & x"}, headers=HTML
        )
        assert done.status_code == 200 and "Thank you" in done.text and "planted" not in done.text
        late = await client.get(path, headers=HTML)
        assert late.status_code == 409 and "<form" not in late.text


@PROMISED
async def test_a_text_is_filled_in_where_one_can_see_it_and_says_what_it_is_for(ports):
    async with served(ports, boss(), helper("CITY")) as (rt, _, client):
        _, (path,) = await asked(rt)
        form = (await client.get(path, headers=HTML)).text
        assert form.count('type="password"') == 2
        assert 'name="CITY" type="text"' in form and "Of &lt;your&gt; CRM." in form


@PROMISED
async def test_what_is_wanted_is_listed_until_it_is_given(ports):
    async with served(ports, boss(2), helper("CITY")) as (rt, _, client):
        run, (one, two) = await asked(rt)
        other = await rt.start("boss", "hello", session_key="web_ada")
        await other.result()
        listed = parsed(await client.get("/api/variables"), VariableRequests).requests
        assert [x.path for x in listed[:2]] == [one, two] and len(listed) == 4
        first = listed[0]
        assert (first.run_id, first.root_run_id, first.agent) == (run.run_id, run.run_id, "helper")
        assert first.expires_at - first.since == 3600 * 1_000_000
        assert [(x.name, x.type, x.description, x.is_missing) for x in first.variables] == [
            ("KEY", "secret", "Of <your> CRM.", True),
            ("SECRET_TOKEN", "secret", "Of <your> CRM.", True), ("CITY", "text", "", True),
        ]  # fmt: skip
        report = parsed(await client.get(f"/api/runs/{run.run_id}?full"), ReportView)
        assert report.requests == listed[:2]
        page = parsed(await client.get("/api/conversations?agent=boss"), ConversationPage)
        waits = next(x for x in page.conversations if x.key == "web_ada").waits_for
        assert [(x.kind, x.request) for x in waits] == [("variables", x) for x in listed[2:]]
        given = {"variables": {"KEY": "k", "SECRET_TOKEN": "t", "CITY": "Rome"}}
        assert (await client.post(one, json=given)).status_code == 200
        paths = [x["path"] for x in (await client.get("/api/variables")).json()["requests"]]
        assert paths == [two, *(x.path for x in listed[2:])]
        await run.terminate()
        await run.finished()
        assert len((await client.get("/api/variables")).json()["requests"]) == 2
        await anyio.sleep(3600)
        assert (await client.get("/api/variables")).json() == {"requests": []}
        report = await client.get(f"/api/runs/{other.run_id}?full")
        page = await client.get("/api/conversations?agent=boss")
        assert report.json()["requests"] == []
        assert not any(x["waits_for"] for x in page.json()["conversations"])


@PROMISED
async def test_a_form_of_another_site_is_refused(ports):
    async with served(ports, boss(), helper()) as (rt, _, client):
        _, (path,) = await asked(rt)
        data = {"KEY": "k", "SECRET_TOKEN": "t"}
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await client.post(path, data=data, headers=HTML | headers)
            assert answer.status_code == 403
        assert (await client.get(path)).status_code == 200


@PROMISED
async def test_values_are_in_no_answer_event_or_log(ports, caplog):
    caplog.set_level(logging.DEBUG)
    async with served(ports, boss(), helper()) as (rt, _, client):
        seen = Observer(rt.hub)
        run, (path,) = await asked(rt)
        given = {"KEY": NASTY + "1", "SECRET_TOKEN": NASTY + "2"}
        answers = [
            await client.post(path, json={"variables": {**given, "OTHER": NASTY}}),
            await client.post(path, json={"variables": given}),
            await client.post(path, json={"variables": given}),
            await client.post("/api/runs", json={"agent": "boss", "env": {"A": NASTY}, "x": 1}),
            await client.post(
                "/api/runs", json={"agent": "boss", "input": "x", "env": {"A": NASTY}}
            ),
        ]
        await anyio.sleep(10)
        urls = ["/api/runs?ended=1", "/api/statistics", "/api/conversations", "/api/prompts"]
        parts = ("?full=1", "/records?limit=1000", "/state", "/files", "/test/recording")
        for row in (await client.get(urls[0])).json()["runs"]:
            urls += [f"/api/runs/{row['run_id']}{part}" for part in parts]
        answers += [await client.get(url) for url in urls]
        said = "\n".join(each.text for each in answers)
        said += "\n".join(encode_event(event).decode() for event in seen.events)
        said += caplog.text + repr(seen.events)
        assert not list(leaks(said, NASTY))
        assert run.run_id in said


def test_the_search_finds_what_is_there() -> None:
    assert list(leaks(json.dumps({"a": NASTY}), NASTY))
    assert list(leaks(html.escape(NASTY), NASTY))
