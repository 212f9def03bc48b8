"""A page that is served by one process shows the tokens of an answer that another one drives."""

import anyio
import pytest
from support.agents import model_agent
from support.asgi_clients import event_source, socket
from support.openai_face import StreamedRequest, frames_of
from support.workers import until, workers

from hubbub.channels.http import HttpApp
from hubbub.runtime.models.scripted import FunctionModel

pytestmark = pytest.mark.anyio

WORDS = [f"wörd{number} " for number in range(20)]
TEXT = "".join(WORDS)


def speaker():
    return [model_agent(FunctionModel(lambda request: TEXT, latency=4.0), name="speaker")]


class Page:
    """What the script of docs/streaming.md shows of one run."""

    def __init__(self):
        self.line = ""
        self.shown = []

    def see(self, event):
        match event["type"]:
            case "agent:text:delta":
                self.line = self.line[: event.get("offset", 0)] + event["text"]
                self.shown.append(self.line)
            case "agent:text":
                self.line = event["text"]


async def test_stream_of_a_run_shows_the_tokens_as_they_are_written():
    async with workers(speaker) as store, store.channel() as hub, HttpApp(hub) as app:
        receipt = await hub.open("speaker", "go")
        page = Page()
        async with event_source(app, f"/api/runs/{receipt.run_id}/events", after="start") as source:
            await until(lambda: "agent:step" in source.types)
            for frame in source.frames:
                page.see(frame.json)
        assert page.line == TEXT
        assert len(page.shown) > len(WORDS) // 2
        assert all(TEXT.startswith(line) for line in page.shown)


async def test_page_that_is_loaded_again_shows_what_was_written_before():
    async with workers(speaker) as store, store.channel() as hub, HttpApp(hub) as app:
        receipt = await hub.open("speaker", "go")
        path = f"/api/runs/{receipt.run_id}/events"
        async with event_source(app, path, after="start") as source:
            await until(lambda: source.types.count("agent:text:delta") > 5)
        page = Page()
        async with event_source(app, path, after="start") as source:
            await until(lambda: "agent:step" in source.types)
            for frame in source.frames:
                page.see(frame.json)
        assert len(page.shown[0]) > len("".join(WORDS[:4]))
        assert all(TEXT.startswith(line) for line in page.shown)


async def test_web_socket_brings_the_tokens_of_what_it_has_opened():
    async with workers(speaker) as store, store.channel() as hub, HttpApp(hub) as app:
        page = Page()
        async with socket(app, subprotocols=("hubbub.v1",)) as client:
            client.say("subscribe", selection="chat", types=["agent:*"])
            client.say("open", agent="speaker", input="go")
            await until(lambda: any(
                x["event"]["type"] == "agent:step" for x in client.events("chat")
            ))  # fmt: skip
            for item in client.events("chat"):
                page.see(item["event"])
        assert page.line == TEXT
        assert len(page.shown) > len(WORDS) // 2
        assert all(TEXT.startswith(line) for line in page.shown)


async def test_openai_s_stream_brings_the_tokens():
    async with workers(speaker) as store, store.channel_runtime(speaker()) as rt:
        body = {"model": "speaker", "input": "go", "stream": True}
        async with HttpApp(rt.hub) as app:
            request = StreamedRequest(app, "POST", "/v1/responses", body)
            with anyio.fail_after(60):
                await request.run()
        deltas = [x["delta"] for x in frames_of(request.body) if x["type"].endswith("text.delta")]
        assert "".join(deltas) == TEXT
        assert len(deltas) > len(WORDS) // 2
