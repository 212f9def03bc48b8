"""What a page draws at first, and where the stream after it begins."""

from typing import Any

import anyio
import pytest
from http_apps import parsed, served, support

from hubbub.channels.http.api.records import RecordPage
from hubbub.channels.http.api.views import ReportView
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02", "W-03")]

SCRIPT = (reply("One moment.", call("pick", what="x")), "Done.", *["Hello."] * 9)


async def talked(rt: Any, client: Any) -> str:
    body = {"agent": "support", "session_key": "web_ada", "input": "pick x"}
    run_id = (await client.post("/api/runs", json=body)).json()["run_id"]
    run = await rt.handle(run_id)
    await anyio.sleep(1)
    (prompt,) = (await client.get("/api/prompts")).json()["prompts"]
    await client.post(f"/api/prompts/{prompt['prompt_id']}/reply", json={"content": "it"})
    await run.result()
    return str(run_id)


async def test_a_conversation_can_be_drawn_from_its_entries(ports):
    async with served(ports, support(*SCRIPT)) as (rt, _, client):
        run_id = await talked(rt, client)
        report = parsed(await client.get(f"/api/runs/{run_id}?full"), ReportView)
        drawn = [(x.kind, x.agent, x.name, x.call_id) for x in report.conversation]
        assert drawn == [
            ("user", "support", "", ""), ("assistant", "support", "", ""),
            ("call", "support", "pick", "1.0"), ("question", "support", "pick", ""),
            ("reply", "support", "", ""), ("tool", "support", "pick", "1.0"),
            ("assistant", "support", "", ""),
        ]  # fmt: skip
        wanted, result = (x for x in report.conversation if x.call_id)
        assert (wanted.arguments, result.output) == ('{"what":"x"}', "it")
        question, answer = (x for x in report.conversation if x.prompt_id)
        assert question.prompt_id == answer.prompt_id
        # What people read is as it was.
        assert wanted.text == '→ pick({"what":"x"})' and report.conversation[0].who == "input"


async def test_what_came_since_a_report_stands_after_its_position(ports):
    async with served(ports, support(*SCRIPT)) as (rt, _, client):
        run_id = await talked(rt, client)
        report = (await client.get(f"/api/runs/{run_id}?full")).json()
        url = f"/api/runs/{run_id}/records"
        assert (await client.get(url, params={"after": report["position"]})).json()["records"] == []
        await client.post(f"/api/runs/{run_id}/messages", json={"content": "more"})
        await (await rt.handle(run_id)).result()
        since = (await client.get(url, params={"after": report["position"]})).json()["records"]
        before = (await client.get(url, params={"before": report["position"]})).json()["records"]
        whole = (await client.get(url)).json()["records"]
        assert [*before[::-1], *since] == whole and len(since) > 3
        assert since[0]["content"] == "more"


async def test_the_last_records_are_read_back_page_by_page(ports):
    async with served(ports, support(*SCRIPT)) as (rt, _, client):
        run_id = await talked(rt, client)
        url = f"/api/runs/{run_id}/records"
        whole = (await client.get(url)).json()["records"]
        for types, limit in (("*", 3), ("agent:*", 2), ("session:*", 1), ("*", 1000)):
            found: list[Any] = []
            place, pages = "end", 0
            while place:
                params = {"before": place, "types": types, "limit": limit}
                page = parsed(await client.get(url, params=params), RecordPage)
                assert len(page.records) <= limit
                found += page.records
                place, pages = page.next, pages + 1
            kept = [x for x in whole if types == "*" or x["type"].startswith(types[:-1])]
            assert found == kept[::-1]
            assert pages >= len(kept) // limit
        # What a record's position is of is among what is before it.
        page = await client.get(url, params={"before": whole[4]["position"], "limit": 2})
        assert page.json()["records"] == whole[4:2:-1]


async def test_places_that_are_none_are_refused(ports):
    async with served(ports, support("Hello.")) as (_, _, client):
        run_id = (await client.post("/api/runs", json={"agent": "support"})).json()["run_id"]
        for params in (
            {"before": "elsewhere|x/own/1"}, {"before": "x"}, {"before": ""},
            {"before": "end", "after": "start"}, {"before": "end", "types": "a*b"},
        ):  # fmt: skip
            answer = await client.get(f"/api/runs/{run_id}/records", params=params)
            assert answer.status_code == 400, params


@pytest.mark.spec("H-12")
async def test_numbers_of_events_are_ones_that_a_browser_has_exactly(ports):
    async with served(ports, support("Hello there.")) as (rt, _, client):
        seen: list[int] = []
        rt.hub.subscribe("*", lambda event: seen.append(event.seq))
        run_id = (await client.post("/api/runs", json={"agent": "support", "input": "x"})).json()
        await (await rt.handle(run_id["run_id"])).result()
        assert any(seq > 1 << 20 for seq in seen), "pieces are among them"
        assert max(seen) < 1 << 53
        assert rt.hub.dispatcher.number < 1 << 53
