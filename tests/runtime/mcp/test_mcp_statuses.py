"""Addresses at which there is no MCP server, or one that refuses, stalls or answers without end."""

import io
import json
import logging
import time
from typing import Any

import anyio
import pytest
from support.mcp_addresses import answering, at_calls, plain
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, Secret, mcp
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.long,
    pytest.mark.anyio,
    pytest.mark.spec("L-09"),
    # Trio says so of generators of httpx2, which the SDK's client leaves to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SECRET = "tok-6f1d-secret"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Other threads live in the machine's own time."""
    found: str = request.param
    return found


HTML = b"<html>Welcome</html>"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (plain(401, b"", "text/plain"), "HTTP status 401 (Unauthorized); give the credentials"),
        (plain(401, b'{"error":"x"}', "application/json"), "HTTP status 401 (Unauthorized)"),
        (plain(403, HTML, "text/html"), "HTTP status 403 (Forbidden); give the credentials"),
        (plain(404, HTML, "text/html"), "HTTP status 404 (Not Found)"),
        (plain(500, HTML, "text/html"), "HTTP status 500 (Internal Server Error)"),
        (plain(503, b"", "text/plain"), "HTTP status 503 (Service Unavailable)"),
        (plain(200, HTML, "text/html"), "Unexpected content type: text/html"),
        (plain(200, b"", "application/json"), "its answer is not valid ("),
        (plain(200, b"{", "application/json"), "its answer is not valid ("),
        (plain(200, b"[]", "application/json"), "its answer is not valid ("),
        (plain(200, b"{}", "application/json"), "its answer is not valid ("),
        (plain(200, b"data: x\n\n", "text/event-stream"), "its answer is not valid ("),
        (plain(200, b"", "text/event-stream"), "SSE stream ended without a response"),
        (plain(307, b"", "text/plain", location="http://evil.example/mcp"), "not followed"),
        (plain(302, b"", "text/plain", location="/login"), "not followed"),
        (plain(202, b"", "text/plain"), "answered a request with 202 Accepted"),
    ],
)
async def test_what_is_at_an_address_instead_of_a_server_is_said(answer: Any, said: str) -> None:
    with answering(answer) as (url, _):
        headers = {"Authorization": Secret(f"Bearer {SECRET}")}
        server = mcp(url, name="it", headers=headers)
        async with Runtime([mcp_agent(ScriptedModel(["Done."]), server)], store="memory") as rt:
            with anyio.fail_after(15):
                assert (await rt.run("helper", "Go.")).output == "Done."
            problem = rt.mcp_servers[0].problem
        assert said in problem
        assert "pydantic" not in problem
        assert SECRET not in problem
        assert "\n" not in problem


def stalls(handler: Any, asked: Any) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(b": wait\n\n")
    handler.wfile.flush()
    time.sleep(2)


def cuts(handler: Any, asked: Any) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(b'data: {"jsonrpc": "2.0", "id"')
    handler.close_connection = True


def pours(handler: Any, asked: Any) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 1_000_000)
    except OSError:
        handler.close_connection = True


def shows(handler: Any, asked: Any) -> None:
    text = "x" * 5_000_000
    said = {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [{"type": "text"}]}}
    said["result"]["content"][0]["text"] = text
    body = b"event: message\ndata: " + json.dumps(said).encode() + b"\n\n"
    handler.put(200, body, "text/event-stream")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            plain(401, b"", "text/plain"),
            "it' refused the call: the server answered with the HTTP",
        ),
        (plain(500, HTML, "text/html"), "HTTP status 500 (Internal Server Error)"),
        (plain(200, HTML, "text/html"), "Unexpected content type: text/html"),
        (plain(200, b"{", "application/json"), "the answer of the MCP server 'it' is not valid ("),
        (stalls, "timed out"),
        (cuts, "(SSE stream ended without a response)"),
        (pours, "it is longer than 64 MB"),
    ],
)
async def test_a_call_that_is_answered_badly_says_so(answer: Any, said: str) -> None:
    with answering(at_calls(answer)) as (url, _):
        timeout = 1.0 if answer is stalls else 300.0
        server = mcp(url, name="it", timeout=timeout)
        model = ScriptedModel([call("it_act"), "Done."])
        async with Runtime([mcp_agent(model, server)], store="memory") as rt:
            results = Results(rt.hub)
            with anyio.fail_after(20):
                await rt.run("helper", "Go.")
            (output,) = results.outputs
            assert said in output
            assert "\n" not in output
            assert results.failures == [True]


def streams(*events: str) -> Any:
    def answer(handler: Any, asked: Any) -> None:
        said = {"content": [{"type": "text", "text": "fine\ud800"}]}
        last = json.dumps({"jsonrpc": "2.0", "id": 77, "result": said})
        body = "".join((*events, f"event: message\r\ndata: {last}\r\n\r\n"))
        handler.put(200, body.encode(), "text/event-stream")

    return answer


LOG = 'data: {"jsonrpc": "2.0",\ndata: "method": "notifications/message", "params": {"level": 3}}'


@pytest.mark.parametrize(
    ("events", "output"),
    [
        ((), "fine\ufffd"),
        ((": comment\n\n", "event: other\ndata: x\n\n", "id: 3\ndata:\n\n"), "fine\ufffd"),
        ((LOG + "\nretry: 5\n\n",) * 50, "fine\ufffd"),
        (("data: garbage\n\n",), "is not valid (it is no message: 'garbage')"),
    ],
)
async def test_events_are_read_like_lines(events: tuple[str, ...], output: str) -> None:
    with answering(at_calls(streams(*events))) as (url, _):
        model = ScriptedModel([call("it_act"), "Done."])
        async with Runtime([mcp_agent(model, mcp(url, name="it"))], store="memory") as rt:
            results = Results(rt.hub)
            with anyio.fail_after(20):
                await rt.run("helper", "Go.")
            assert output in results.outputs[0]


async def test_a_large_event_is_read_like_a_large_answer() -> None:
    with answering(at_calls(shows)) as (url, _):
        model = ScriptedModel([call("it_act"), "Done."])
        async with Runtime([mcp_agent(model, mcp(url, name="it"))], store="memory") as rt:
            results = Results(rt.hub)
            with anyio.fail_after(20):
                await rt.run("helper", "Go.")
            assert results.failures == [False]
            assert results.outputs[0].startswith("xxxx")


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("kind", ["text/html", "application/json", "text/event-stream"])
async def test_a_header_that_is_said_back_shows_nowhere(
    kind: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    def says_back(handler: Any, asked: Any) -> None:
        body = f"data: {handler.headers['authorization']}\n\n".encode()
        handler.put(status, body, kind)

    logged = io.StringIO()
    logging.getLogger().addHandler(listener := logging.StreamHandler(logged))
    said: list[str] = []

    def heard(event: object) -> None:
        said.append(repr(event))

    try:
        for answer in (says_back, at_calls(says_back)):
            with answering(answer) as (url, _):
                headers = {"Authorization": Secret(SECRET)}
                server = mcp(url, name="it", headers=headers)
                model = ScriptedModel([call("it_act"), "Done."])
                async with Runtime([mcp_agent(model, server)], store="memory") as rt:
                    rt.hub.subscribe("*", heard)
                    with anyio.fail_after(20):
                        await rt.run("helper", "Go.")
                    said += [repr(rt.mcp_servers), repr(rt)]
    finally:
        logging.getLogger().removeHandler(listener)
    out = capfd.readouterr()
    assert len(said) > 10
    assert not [text for text in (*said, out.out, out.err, logged.getvalue()) if SECRET in text]


async def test_headers_are_not_sent_to_where_a_server_points() -> None:
    with answering(plain(200, HTML, "text/html")) as (elsewhere, seen):
        moved = plain(307, b"", "text/plain", location=elsewhere)
        with answering(moved) as (url, _):
            server = mcp(url, name="it", headers={"Authorization": Secret(SECRET)})
            agent = mcp_agent(ScriptedModel(["Done."]), server)
            async with Runtime([agent], store="memory") as rt:
                await rt.run("helper", "Go.")
        assert seen == []
