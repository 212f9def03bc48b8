"""Pictures and documents over HTTP, and through OpenAI's API (L-02)."""

import base64

import anyio
import pytest
from http_apps import served
from support.agents import model_agent
from support.openai_face import with_client

from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.runtime.models.scripted import FunctionModel

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-02")]

PNG = b"\x89PNG\r\n\x1a\n picture"
PDF = b"%PDF-1.7 paper"
DATA = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{DATA}"
PAPER = f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}"


class Seeing:
    """A model that keeps what it was shown."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.agent = model_agent(FunctionModel(self._see), name="support")

    def _see(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return "I see."

    @property
    def shown(self) -> list[list[tuple[str, bytes | None]]]:
        """Of each message of the user's, its parts."""
        request = self.requests[-1]
        return [
            [(part.name or part.url, request.contents.get(part.digest)) for part in each.parts]
            for each in request.messages
            if isinstance(each, UserMessage)
        ]


async def test_messages_have_parts(ports):
    seeing = Seeing()
    async with served(ports, seeing.agent) as (_, _, client):
        picture = {"kind": "image", "data": DATA, "name": "a.png"}
        far = {"kind": "image", "url": "https://example.com/b.png"}
        said = {"content": "Look.", "parts": [picture]}
        opened = await client.post("/api/runs", json={"agent": "support", "message": said})
        assert opened.status_code == 202, opened.text
        run_id = opened.json()["run_id"]
        await anyio.sleep(1)
        assert seeing.shown == [[("a.png", PNG)]]
        sent = await client.post(
            f"/api/runs/{run_id}/messages", json={"content": "", "parts": [picture, far]}
        )
        assert sent.json()["status"] == "accepted"
        await anyio.sleep(1)
        assert seeing.shown[1] == [("a.png", PNG), ("https://example.com/b.png", None)]
        report = (await client.get(f"/api/runs/{run_id}")).json()
        assert report["run"]["tree"] == report["tree"] and report["tree"]["model_calls"] == 2
        assert "image a.png (image/png, 16 bytes)" in str(report)


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "image"},
        {"kind": "image", "data": DATA, "url": "https://a/b"},
        {"kind": "image", "data": "not base64!"},
        {"kind": "image", "data": base64.b64encode(b"text").decode()},
        {"kind": "image", "data": DATA, "media_type": "image/jpeg"},
        {"kind": "document", "data": DATA},
        {"kind": "video", "data": DATA},
        {"kind": "image", "url": "file:///etc/passwd"},
        {"kind": "image", "url": "https://a/b", "path": "/etc/passwd"},
        "a.png",
    ],
)
async def test_what_is_no_part_is_refused_and_nothing_is_sent(ports, part):
    seeing = Seeing()
    async with served(ports, seeing.agent) as (rt, _, client):
        body = {"agent": "support", "message": {"content": "Look.", "parts": [part]}}
        answer = await client.post("/api/runs", json=body)
        assert answer.status_code in (400, 422), answer.text
        assert "parts" in answer.text and "from_file" not in answer.text
        assert await rt.hub.ask("runtime", "runs") == []


async def test_chat_clients_show_pictures_files_and_recordings(ports):
    seeing = Seeing()
    async with with_client(ports, seeing.agent) as (_, _, client):
        before = {"type": "image_url", "image_url": {"url": "https://example.com/b.png"}}
        paper = {"type": "file", "file": {"filename": "p.pdf", "file_data": PAPER}}
        await client.chat.completions.create(
            model="support",
            messages=[
                {"role": "user", "content": [before]},
                {"role": "assistant", "content": "A picture."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "And these?"},
                        {"type": "image_url", "image_url": {"url": URL}},
                        paper,
                    ],
                },
            ],
        )
    assert seeing.shown == [
        [("https://example.com/b.png", None)],
        [("", PNG), ("p.pdf", PDF)],
    ]


async def test_clients_of_responses_show_pictures_and_files(ports):
    seeing = Seeing()
    async with with_client(ports, seeing.agent) as (_, _, client):
        shown = [
            {"type": "input_text", "text": "Look."},
            {"type": "input_image", "image_url": URL, "detail": "auto"},
            {"type": "input_file", "filename": "p.pdf", "file_data": PAPER},
        ]
        first = await client.responses.create(
            model="support", input=[{"role": "user", "content": shown}]
        )
        assert seeing.shown == [[("", PNG), ("p.pdf", PDF)]]
        again = [{"role": "user", "content": shown[1:2]}]
        await client.responses.create(model="support", input=again, previous_response_id=first.id)
        assert seeing.shown == [[("", PNG), ("p.pdf", PDF)], [("", PNG)]]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + DATA}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {"url": 7}},
        {"type": "image_url"},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
        {"type": "video_url", "video_url": {"url": URL}},
    ],
)
async def test_what_no_model_could_be_shown_is_refused_with_its_place(ports, part):
    async with served(ports, Seeing().agent) as (_, _, client):
        body = {"model": "support", "messages": [{"role": "user", "content": [part]}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"].startswith("messages[0].content[0]")
