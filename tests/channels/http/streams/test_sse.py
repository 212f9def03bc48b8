"""Server-sent events: positions, filters, pings, gaps, ends."""

import json
from functools import partial

import anyio
import pytest
from support.asgi_clients import EventSource, event_source, scope_of, turns

from hubbub import START, Agent, CustomEvent, agent
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-03")]


def tick(n, *, durable=True):
    return CustomEvent.of("test:tick", durable=durable, n=n)


def numbers(source):
    return [frame.json["data"]["n"] for frame in source.frames if frame.type == "test:tick"]


async def test_each_durable_event_has_its_position_and_is_as_it_is_on_record(served, support):
    async with served(support) as (rt, app), event_source(app, after=START) as source:
        await rt.run("support", "hi")
        await anyio.sleep(1)
        records = await rt.hub.read()
        assert source.durable == [(e.run_id, e.lane, e.seq) for e in records]
        for frame in source.frames:
            event = frame.json
            assert frame.type == event["type"]
            if event.get("lane"):
                place = f"|{event['run_id']}/{event['lane']}/{event['seq']}"
                assert frame.id == rt.hub.journal.name + place
        assert source.parser.retry == 1000
        assert source.status == 200
        assert source.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert source.headers["cache-control"] == "no-store"
        assert source.headers["x-accel-buffering"] == "no"


async def test_a_stream_without_a_position_begins_now_and_says_where_that_is(served):
    async with served() as (rt, app):
        rt.hub.emit(tick(0))
        async with event_source(app) as source:
            assert source.frames == []
            begin = source.parser.last_id
        rt.hub.emit(tick(1))
        async with event_source(app, headers={"Last-Event-ID": begin}) as source:
            rt.hub.emit(tick(2))
            await turns()
            assert numbers(source) == [1, 2]


async def test_what_the_browser_keeps_goes_before_what_its_page_asks_for(served):
    async with served() as (rt, app):
        for n in range(4):
            rt.hub.emit(tick(n))
        async with event_source(app, after=START) as source:
            second = source.frames[1].id
        kept = {"Last-Event-ID": second}
        async with event_source(app, after=START, headers=kept) as source:
            assert numbers(source) == [2, 3]
        async with event_source(app, after=second) as source:
            assert numbers(source) == [2, 3]


@pytest.mark.parametrize(
    "position",
    ["other-store|019b/own/1", "other-store@3", "{name}@999", "{name}|019b/own/77", "rubbish",
     "\0", "%00", "\n\nevent: hubbub:end", "{name}@-1", "{name}@" + "9" * 400, "ä"],
)  # fmt: skip
async def test_a_position_that_is_not_found_is_told_then_everything_kept_comes(served, position):
    async with served() as (rt, app):
        rt.hub.emit(tick(0))
        position = position.format(name=rt.hub.journal.name)
        async with event_source(app, after=position) as source:
            assert source.types == ["hub:gap", "test:tick"]
            gap = source.frames[0]
            assert gap.json["reason"] == "unknown cursor"
        # The gap has a position, too: it is told once.
        async with event_source(app, headers={"Last-Event-ID": gap.id}) as source:
            assert source.types == ["test:tick"]


async def test_a_position_that_was_pruned_is_told(served, support):
    async with served(support, store=MemoryJournal(keep=2)) as (rt, app):
        await rt.run("support", "one")
        async with event_source(app, after=START) as source:
            place = source.parser.last_id
        for text in ("two", "three", "four"):
            await rt.run("support", text)
        async with event_source(app, after=place) as source:
            kept = await rt.hub.read()
            assert source.types[0] == "hub:gap"
            assert source.durable == [(e.run_id, e.lane, e.seq) for e in kept]


async def test_events_are_selected_by_run_tree_and_type(served):
    @agent("leaf")
    async def leaf(input, ctx):
        ctx.say(f"leaf {input}")

    @agent("tree")
    async def tree(input, ctx):
        ctx.say(f"tree {input}")
        await ctx.spawn("leaf", input).result()

    async with served(tree, leaf) as (rt, app):
        first = (await rt.run("tree", "one")).run_id
        second = (await rt.run("tree", "two")).run_id
        (child,) = {e.run_id for e in await rt.hub.read(root_run_id=first)} - {first}

        async def texts(path="/api/events", **query):
            async with event_source(app, path, after=START, **query) as source:
                await turns(50)
                found = [frame.json for frame in source.frames]
                return [e["text"] for e in found if e.get("type") == "agent:text"], source

        assert (await texts())[0] == ["tree one", "leaf one", "tree two", "leaf two"]
        assert (await texts(run_id=first))[0] == ["tree one"]
        assert (await texts(root_run_id=first))[0] == ["tree one", "leaf one"]
        assert (await texts(run_id=[child, second]))[0] == ["leaf one", "tree two"]
        several = await texts(run_id=child, root_run_id=second)
        assert several[0] == ["leaf one", "tree two", "leaf two"]
        _, source = await texts(root_run_id=first, types="agent:text,agent:complete")
        assert source.types == ["agent:text", "agent:text", "agent:complete", "agent:complete"]
        _, source = await texts(types=["agent:text", "agent:tool:*"])
        assert set(source.types) == {"agent:text"}
        of_run = partial(texts, f"/api/runs/{first}/events")
        assert (await of_run())[0] == ["tree one"]
        assert (await of_run(tree=1))[0] == ["tree one", "leaf one"]
        said, source = await of_run(types="agent:text")
        assert (said, source.types) == (["tree one"], ["agent:text", "hubbub:end"])


async def test_of_a_child_the_tree_is_what_is_below_it(served):
    @agent("deep")
    async def deep(input, ctx):
        ctx.say(f"{ctx.agent} {input}")
        if input:
            children = [ctx.spawn("deep", input - 1) for _ in range(2)]
            for child in children:
                await child.result()
        ctx.say(f"end {input}")

    async with served(deep) as (rt, app):
        root = (await rt.run("deep", 3)).run_id
        events = await rt.hub.read(root_run_id=root)
        parents = {e.run_id: e.parent_run_id for e in events}

        def is_below(run_id, top):
            return run_id is not None and (run_id == top or is_below(parents[run_id], top))

        for top in parents:
            path = f"/api/runs/{top}/events"
            async with event_source(app, path, after=START, tree="true") as source:
                await turns(100)
                assert source.reason == "run ended"
            # It ends with its own end; nothing below it outlives that.
            assert source.durable == [
                (e.run_id, e.lane, e.seq) for e in events if is_below(e.run_id, top)
            ]
            middle = source.frames[len(source.frames) // 2].id
            rest = source.durable[len(source.frames) // 2 + 1 :]
            async with event_source(app, path, after=middle, tree="true") as source:
                await turns(100)
                assert source.durable == rest


async def test_a_run_that_ends_ends_its_stream_and_behind_its_end_there_is_nothing(served, support):
    async with served(support) as (rt, app):
        run = await rt.start("support", "hi", session_key="web_1")
        path = f"/api/runs/{run.run_id}/events"
        async with event_source(app, path, after=START) as source:
            await run.result()
            await anyio.sleep(1)
            assert not source.is_over
            run.close()
            await anyio.sleep(1)
            assert source.is_over and source.reason == "run ended"
            assert source.frames[-2].type == "agent:complete"
        for headers in ({"Last-Event-ID": source.frames[-2].id}, {}):
            async with event_source(app, path, headers=headers) as again:
                assert (again.status, again.body, again.is_over) == (204, b"", True)
        async with event_source(app, path, after=source.frames[-3].id) as again:
            assert again.types == ["agent:complete", "hubbub:end"]
        async with event_source(app, path, after="rubbish") as again:
            assert again.types[0] == "hub:gap"
            assert again.durable == source.durable and again.reason == "run ended"


async def test_an_unknown_run_is_a_problem_and_so_is_an_odd_query(served):
    async with served() as (_, app):
        for path, query, status in (
            ("/api/runs/019b/events", {}, 404),
            ("/api/runs/%00/events", {}, 400),
            ("/api/events", {"types": "*agent"}, 400),
            ("/api/events", {"types": "agent:txet"}, 400),
            ("/api/events", {"what": "1"}, 400),
            ("/api/events", {"run_id": "\0"}, 400),
            ("/api/events", {"after": ["1", "2"]}, 400),
        ):
            async with event_source(app, path, **query) as source:
                assert source.status == status, (path, query, source.body)
                assert source.headers["content-type"] == "application/problem+json"
                assert json.loads(source.body)["status"] == status


async def test_a_head_request_gets_the_headers_and_no_stream(served):
    async with served() as (rt, app):
        before = rt.hub.statistics()
        async with event_source(app, method="HEAD") as source:
            assert (source.status, source.body, source.is_over) == (200, b"", True)
            assert source.headers["content-type"].startswith("text/event-stream")
            assert rt.hub.statistics() == before


async def test_in_silence_there_is_a_sign_of_life_every_fifteen_seconds(served):
    async with served() as (rt, app), event_source(app) as source:
        await anyio.sleep(600)
        quiet = source.parser.comments
        assert 40 <= quiet <= 80
        assert source.frames == []
        for n in range(100):
            rt.hub.emit(tick(n))
            await anyio.sleep(5)
        assert source.parser.comments - quiet <= 1
        assert numbers(source) == [*range(100)]


async def test_the_end_of_the_app_is_told_and_that_of_the_hub_too(served):
    async with served() as (rt, app):
        async with event_source(app) as source:
            rt.hub.emit(tick(0))
            app.end_streams()
            await turns(50)
            assert source.is_over and source.reason == "shutdown"
            assert numbers(source) == [0]
        async with event_source(app) as late:
            assert (late.status, json.loads(late.body)["type"]) == (503, "/problems/closed")
    async with served() as (rt, app), event_source(app) as source:
        rt.hub.emit(tick(0))
        rt.hub.close()
        await turns(50)
        assert source.is_over and source.reason == "closed"
        assert numbers(source) == [0]


async def test_a_client_that_takes_nothing_holds_up_no_leaving(served):
    client = EventSource()
    client.gate = anyio.sleep_forever
    scope = {**scope_of("/api/events", {}, {}), "type": "http", "method": "GET"}
    async with anyio.create_task_group() as group, served() as (_, app):
        group.start_soon(app, scope, client.receive, client.send)
        await turns()
        assert app.open_streams == 1
    assert app.open_streams == 0


@pytest.mark.spec("W-04")
async def test_a_client_that_has_left_leaves_nothing_behind(served, caplog):
    async with served() as (rt, app):
        async with event_source(app):
            pass
        before, tasks = rt.hub.statistics(), len(anyio.get_running_tasks())
        for way in ("leaves", "vanishes", "is slow"):
            client = EventSource()
            async with event_source(app, client=client):
                assert rt.hub.statistics().subscribers == before.subscribers + 1
                if way == "vanishes":
                    client.vanishes_at = client.sends + 1
                elif way == "is slow":
                    client.gate = anyio.sleep_forever
                rt.hub.emit(tick(1))
                await turns(50)
                assert rt.hub.statistics().subscribers == before.subscribers + (way != "vanishes")
            assert rt.hub.statistics() == before, way
            assert app.open_streams == 0
            assert len(anyio.get_running_tasks()) == tasks
    assert caplog.records == []


async def test_what_waits_is_written_at_once_and_in_pieces_of_64_kib(served):
    opened = anyio.Event()
    client = EventSource()
    async with served() as (rt, app), event_source(app, client=client) as source:
        client.gate = opened.wait
        before = client.sends
        for n in range(1000):
            rt.hub.emit(CustomEvent.of("test:tick", durable=True, n=n, text="x" * 500))
            await turns(1)
        assert client.sends == before + 1
        opened.set()
        await turns(100)
        assert numbers(source) == [*range(1000)]
        assert client.sends - before == pytest.approx(1000 * 760 / 65_536, abs=3)


async def test_a_slow_client_reads_the_journal_and_a_stalled_one_is_cut(served):
    async with served(stall_seconds=60) as (rt, app):
        slow, quick = EventSource(), EventSource()
        slow.gate = partial(anyio.sleep, 40)
        async with (
            event_source(app, client=slow, after=START),
            event_source(app, client=quick, after=START),
        ):
            await anyio.sleep(100)
            for n in range(5000):
                rt.hub.emit(tick(n, durable=bool(n % 2)))
                if not n % 50:
                    await anyio.sleep(0.1)
            await anyio.sleep(1)
            assert numbers(quick) == [*range(5000)]
            await anyio.sleep(4000)
            assert set(range(1, 5000, 2)) <= set(numbers(slow))
            assert numbers(slow) == sorted(set(numbers(slow)))
            assert "hub:gap" not in slow.types
            slow.gate = anyio.sleep_forever
            rt.hub.emit(tick(5000))
            await anyio.sleep(200)
            assert app.open_streams == 1
            assert (slow.is_over, slow.reason) == (False, "")


async def test_the_text_so_far_of_an_answer_under_way_comes_first(served):
    words = [f"{word} " for word in ("zero", "öne", "two👋", "three", "four", "five", "six")]
    text = "".join(words)
    model = ScriptedModel([text], latency=7.0, chunk=None)
    async with served(Agent("speaker", "You speak.", model=model)) as (rt, app):
        run = await rt.start("speaker", "go")
        await anyio.sleep(3.5)
        async with event_source(app, f"/api/runs/{run.run_id}/events", tree=1) as source:
            (first,) = (frame.json for frame in source.frames)
            assert first["type"] == "agent:text:delta" and first.get("offset", 0) == 0
            assert text.startswith(first["text"]) and first["text"].startswith("zero öne")
            await run.result()
            await anyio.sleep(1)
            deltas = [frame.json for frame in source.frames if frame.type == "agent:text:delta"]
            assert "".join(delta["text"] for delta in deltas) == text


async def test_who_asks_for_it_is_told_when_everything_on_record_has_come(served, support):
    async with served(support) as (rt, app):
        async with event_source(app, live="1") as source:
            assert source.types == ["hub:live"]
        for n in range(1200):
            rt.hub.emit(tick(n))
        async with event_source(app, after=START, live="1") as source:
            await turns()
            assert numbers(source) == [*range(1200)]
            assert source.types.count("hub:live") == 1 and source.types[-1] == "hub:live"
            rt.hub.emit(tick(1200))
            await turns()
            assert source.types[-2:] == ["hub:live", "test:tick"]
            mark = source.frames[-2]
            assert mark.json["type"] == "hub:live" and mark.id == mark.json["cursor"]
        async with event_source(app, headers={"Last-Event-ID": mark.id}) as source:
            assert numbers(source) == [1200]
        # Selections by type and of a run get it, too.
        done = await rt.hub.open("support", "hi", session_key="k")
        await anyio.sleep(1)
        url = f"/api/runs/{done.run_id}/events"
        for more in ({"types": "agent:text"}, {"tree": "1"}, {}):
            async with event_source(app, url, after=START, live="1", **more) as source:
                await turns()
                assert source.types.count("hub:live") == 1 and source.types[-1] == "hub:live"


async def test_a_sign_of_life_may_be_an_event_that_a_page_can_notice(served):
    async with served() as (_, app), event_source(app, ping="event") as source:
        await anyio.sleep(40)
        assert len(source.types) >= 2 and set(source.types) == {"hub:ping"}
        assert source.parser.last_id
    async with served() as (_, app), event_source(app, ping="no") as source:
        assert source.status == 400
