"""The API: everything that the hub offers a channel, asked for by a client."""

import anyio
import httpx
import msgspec
import pytest
from http_apps import PICK, parsed, served, support

from hubbub import Cron, Runtime
from hubbub.channels.http import HttpApp
from hubbub.channels.http.api.agents import AgentList
from hubbub.channels.http.api.files import FileList
from hubbub.channels.http.api.prompts import PromptList
from hubbub.channels.http.api.records import RecordPage
from hubbub.channels.http.api.schedules import ScheduleList
from hubbub.channels.http.api.views import ConversationPage, ReportView, StateView, TreesView
from hubbub.channels.http.wire.receipts import ReceiptView
from hubbub.hub.store.journal import RunInfo
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02")]


async def opened(client, **body):
    """A run that is at work, or waits."""
    answer = await client.post("/api/runs", json={"agent": "support", "input": "hi", **body})
    assert answer.status_code in (200, 202), answer.text
    await anyio.sleep(1)
    return answer.json()["run_id"]


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == answer.status_code and found["title"] and found["detail"]
    return answer.status_code, found["type"].removeprefix("/problems/")


async def test_agents_are_listed_and_shown(ports):
    async with served(ports) as (_, _, client):
        found = parsed(await client.get("/api/agents"), AgentList)
        assert [x.name for x in found.agents] == ["support"]
        assert (await client.get("/api/agents/support")).json()["name"] == "support"
        assert problem(await client.get("/api/agents/nobody")) == (404, "unknown-agent")


async def test_a_run_is_opened_once_by_its_key_or_its_idempotency_key(ports):
    async with served(ports) as (rt, _, client):
        for body, header in (
            ({"session_key": "k"}, {}),
            ({}, {"Idempotency-Key": "a"}),
            ({"message": {"content": "hi", "key": "b"}, "input": None, "session_key": "m"}, {}),
        ):
            body = {"agent": "support", "input": "hi", **body}
            first = await client.post("/api/runs", json=body, headers=header)
            again = await client.post("/api/runs", json=body, headers=header)
            assert first.status_code == 202
            assert parsed(first, ReceiptView).run_id == again.json()["run_id"]
        assert again.json()["status"] == "duplicate"
        assert (await rt.hub.ask("runtime", "runs")).__len__() == 3


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"agent": "suport"}, (404, "unknown-agent")),
        ({"agent": "support", "input": "a", "message": {"content": "b"}}, (400, "invalid-value")),
        ({"agent": "support", "timeout": -1}, (400, "invalid-value")),
        ({"agent": "support", "run_id": "a b"}, (400, "invalid-value")),
        ({"agent": "support", "history": [{"role": "nobody"}]}, (400, "invalid-value")),
        ({"agent": "support", "tools": [{"name": 3}]}, (400, "invalid-request")),
        ({"agent": "support", "descriptor": {"type": "tv"}}, (400, "invalid-value")),
        ({"agent": "support", "env": {"A": 3}}, (400, "invalid-request")),
        ({"agent": "support", "other": 3}, (400, "invalid-request")),
    ],
)
async def test_an_opening_that_cannot_be_meant_is_refused(ports, body, expected):
    async with served(ports) as (_, _, client):
        assert problem(await client.post("/api/runs", json=body)) == expected


async def test_runs_are_listed_and_shown_as_the_commands_do(ports):
    async with served(ports) as (_, _, client):
        run_id = await opened(client, session_key="k")
        trees = parsed(await client.get("/api/runs"), TreesView)
        assert [x.run_id for x in trees.runs] == [run_id] and trees.prompts[0].tool == "refund"
        shown = parsed(await client.get(f"/api/runs/{run_id}?full"), ReportView)
        assert shown.run.session_key == "k" and shown.conversation[0].text == "hi"
        await client.post(f"/api/runs/{run_id}/terminate")
        await anyio.sleep(1)
        assert parsed(await client.get("/api/runs"), TreesView).runs == ()
        ended = parsed(await client.get("/api/runs?ended=true&limit=5"), TreesView).runs
        assert [x.outcome for x in ended] == ["terminated"]
        assert problem(await client.get("/api/runs/nobody")) == (404, "unknown-run")
        assert problem(await client.get("/api/runs/no%20body")) == (404, "unknown-run")
        assert problem(await client.get("/api/runs?limit=0")) == (400, "invalid-request")


async def test_the_state_of_a_run_is_known_at_each_of_its_records(ports):
    async with served(ports) as (_, _, client):
        run_id = await opened(client)
        last = parsed(await client.get(f"/api/runs/{run_id}/state"), StateView)
        for number in range(last.seq + 1):
            at = await client.get(f"/api/runs/{run_id}/state", params={"record": number})
            assert parsed(at, StateView).seq == number
        beyond = await client.get(f"/api/runs/{run_id}/state", params={"record": last.seq + 1})
        assert problem(beyond) == (404, "unknown-record")
        assert [x["name"] for x in last.calls] == ["refund"]


async def test_records_are_read_page_by_page(ports):
    async with served(ports) as (rt, _, client):
        run_id = await opened(client)
        seen, after = [], "start"
        while True:
            params = {"after": after, "limit": 2}
            page = parsed(
                await client.get(f"/api/runs/{run_id}/records", params=params), RecordPage
            )
            if not page.records:
                break
            assert page.next == page.records[-1]["position"]
            seen += [x["type"] for x in page.records]
            after = page.next
        assert seen == [x.type for x in await rt.hub.read(run_id)]
        texts = await client.get(f"/api/runs/{run_id}/records?types=agent:step,session:start")
        assert {x["type"] for x in texts.json()["records"]} == {"agent:step", "session:start"}
        for wrong in ("after=elsewhere|x/own/1", "types=agent*", "limit=0", "limit=x", "other=1"):
            answer = await client.get(f"/api/runs/{run_id}/records?{wrong}")
            assert problem(answer)[0] == 400, wrong
        assert problem(await client.get("/api/runs/x/records")) == (404, "unknown-run")


async def test_a_run_is_exported_as_a_test(ports):
    async with served(ports) as (_, _, client):
        run_id = await opened(client)
        test = await client.get(f"/api/runs/{run_id}/test")
        recording = await client.get(f"/api/runs/{run_id}/test/recording")
        compile(test.text, "test.py", "exec")
        name = recording.headers["content-disposition"].partition('"')[2].rstrip('"')
        assert name in test.text
        first, *_ = recording.text.splitlines()
        assert msgspec.json.decode(first)["line"] == "hubbub-export"
        assert problem(await client.get("/api/runs/x/test")) == (404, "unknown-run")


async def test_prompts_are_listed_and_the_first_answer_counts(ports):
    async with served(ports) as (_, _, client):
        await opened(client)
        (prompt,) = parsed(await client.get("/api/prompts"), PromptList).prompts
        url = f"/api/prompts/{prompt.prompt_id}"
        assert (prompt.kind, prompt.arguments) == ("approval", {"order": 7})
        misfit = await client.post(f"{url}/approve", json={"arguments": {"order": "x"}})
        assert problem(misfit) == (409, "refused")
        header = {"Idempotency-Key": "x"}
        first = await client.post(f"{url}/approve", headers=header)
        again = await client.post(f"{url}/approve", headers=header)
        other = await client.post(f"{url}/deny", json={"reason": "no"}, headers=header)
        late = await client.post(f"{url}/approve")
        assert (first.status_code, again.json()["status"]) == (202, "duplicate")
        assert problem(other) == problem(late) == (409, "prompt-over")
        await anyio.sleep(1)
        assert problem(await client.post(f"{url}/approve")) == (409, "prompt-over")
        assert problem(await client.post("/api/prompts/x/deny")) == (404, "unknown-prompt")


async def test_the_result_of_an_external_tool_is_given_and_a_question_denied(ports):
    script = [reply("", call("pick", what="it"), call("pick", what="that")), "Done."]
    async with served(ports, support(*script)) as (rt, _, client):
        run_id = await opened(client)
        one, two = parsed(await client.get("/api/prompts"), PromptList).prompts
        assert one.tool == two.tool == PICK.name
        await client.post(f"/api/prompts/{one.prompt_id}/reply", json={"content": "this"})
        await client.post(f"/api/prompts/{two.prompt_id}/deny", json={"reason": "nobody there"})
        outcome = await (await rt.handle(run_id)).result()
        assert outcome.output == "Done."


async def test_conversations_are_found_and_spoken_to_by_key(ports):
    async with served(ports, support(*["Hello."] * 9)) as (rt, _, client):
        run_id = await opened(client, session_key="a/b c")
        page = parsed(await client.get("/api/conversations?limit=1"), ConversationPage)
        assert [x.key for x in page.conversations] == ["a/b c"]
        found = parsed(await client.get("/api/conversations/a%2Fb%20c"), RunInfo)
        assert found.run_id == run_id
        for url in (
            "/api/conversations/a%2Fb%20c/messages", "/api/messages",
            "/api/agents/support/messages", f"/api/runs/{run_id}/messages",
        ):  # fmt: skip
            sent = await client.post(url, json={"content": url})
            assert (sent.status_code, sent.json()["run_id"]) == (202, run_id)
        said = [x.content for x in await rt.hub.read(run_id, types="session:message")]
        assert len(said) == 4
        for url, kind in (
            ("/api/conversations/x", "conversation"), ("/api/agents/x", "agent"),
        ):  # fmt: skip
            sent = await client.post(f"{url}/messages", json={"content": "x"})
            assert problem(sent) == (404, f"unknown-{kind}")
        assert problem(await client.get("/api/conversations/x"))[1] == "unknown-conversation"
        assert problem(await client.get("/api/conversations?status=x"))[0] == 400
        await opened(client, session_key="other")
        ambiguous = await client.post("/api/messages", json={"content": "x"})
        assert problem(ambiguous) == (409, "ambiguous")
        assert len((await client.post("/api/agents/support/messages",
                    json={"content": "x"})).json()["run_ids"]) == 2  # fmt: skip


async def test_a_run_is_interrupted_reset_closed_and_terminated(ports):
    async with served(ports, support(*["Hello."] * 9)) as (rt, _, client):
        run_id = await opened(client)
        for verb, body in (("interrupt", {"reason": "x"}), ("reset", {"message": "anew"})):
            answer = await client.post(f"/api/runs/{run_id}/{verb}", json=body)
            assert answer.status_code == 202 and run_id in answer.json()["run_ids"]
        await anyio.sleep(1)
        state = parsed(await client.get(f"/api/runs/{run_id}/state"), StateView)
        assert state.conversation[0]["content"] == "anew"
        assert (await client.post(f"/api/runs/{run_id}/close")).status_code == 202
        await anyio.sleep(1)
        for verb in ("interrupt", "reset", "close", "terminate"):
            over = await client.post(f"/api/runs/{run_id}/{verb}")
            assert problem(over) == (409, "run-ended"), verb
            assert problem(await client.post(f"/api/runs/x/{verb}")) == (404, "unknown-run")
        other = await opened(client)
        ended = await client.post(f"/api/runs/{other}/terminate", json={"reason": "enough"})
        assert ended.json()["run_ids"] == [other]
        assert (await (await rt.handle(other)).finished()).outcome == "terminated"


async def test_files_go_up_and_down(ports):
    async with served(ports, support(*["Hello."] * 9)) as (_, _, client):
        run_id = await opened(client)
        url = f"/api/runs/{run_id}/files"
        content = bytes(range(256)) * 500
        assert (await client.put(f"{url}/in/a%20b.bin", content=content)).status_code == 202
        (waits,) = parsed(await client.get(url), FileList).files
        assert (waits.path, waits.size, waits.waits) == ("in/a b.bin", len(content), True)
        again = await client.put(f"{url}/in/a%20b.bin", content=content)
        assert again.json()["status"] == "duplicate"
        await client.post(
            f"/api/runs/{run_id}/messages", json={"content": "see", "attachments": ["in/a b.bin"]}
        )
        await anyio.sleep(1)
        (own,) = parsed(await client.get(url), FileList).files
        assert not own.waits
        got = await client.get(f"{url}/in/a%20b.bin")
        assert got.content == content
        assert got.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in got.headers["content-security-policy"]
        tag = got.headers["etag"]
        kept = await client.get(f"{url}/in/a%20b.bin", headers={"If-None-Match": tag})
        assert (kept.status_code, kept.content) == (304, b"")
        other = await client.put(f"{url}/in/a%20b.bin", content=b"other")
        assert problem(other) == (409, "refused")
        assert problem(await client.get(f"{url}/nothing")) == (404, "unknown-file")
        assert problem(await client.get("/api/runs/x/files/y")) == (404, "unknown-run")
        assert problem(await client.put("/api/runs/x/files/y", content=b"")) == (
            404, "unknown-run",
        )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["..%2Fx", "a/..%2F..%2Fx", "%2Fetc", "C:%5Cx", "a%00b", "a%0Ab", "a//b", "x" * 300]
)
@pytest.mark.spec("T-07")
async def test_a_name_does_not_lead_out_of_the_files_of_a_run(ports, name):
    async with served(ports, support("Hello.")) as (_, _, client):
        run_id = await opened(client)
        answer = await client.put(f"/api/runs/{run_id}/files/{name}", content=b"x")
        if answer.status_code == 202:  # One leading slash means the area itself.
            (file,) = (await client.get(f"/api/runs/{run_id}/files")).json()["files"]
            assert file["path"] == "etc"
        else:
            assert problem(answer)[0] in (400, 404)
            assert (await client.get(f"/api/runs/{run_id}/files")).json() == {"files": []}


async def test_schedules_are_listed(ports):
    cron = Cron("daily", "0 9 * * *", "support", "Report.")
    rt = Runtime([support()], store="memory", ports=ports, schedules=[cron])
    app = HttpApp(rt.hub)
    transport = httpx.ASGITransport(app)
    async with rt, app, httpx.AsyncClient(transport=transport, base_url="http://localhost") as c:
        await anyio.sleep(1)
        (found,) = parsed(await c.get("/api/schedules"), ScheduleList).schedules
        assert found.uid == "daily" and found.next_at


async def test_without_a_runtime_what_needs_one_says_so(ports):
    rt = Runtime([support()], store="memory", ports=ports)
    async with rt.hub, HttpApp(rt.hub) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in ("agents", "runs", "runs/x", "prompts", "conversations", "schedules"):
                assert problem(await client.get(f"/api/{path}")) == (503, "no-runtime")
            assert (await client.get("/health")).status_code == 200
