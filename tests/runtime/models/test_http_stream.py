"""One attempt over HTTP: what ends it, what it costs, and what it never shows."""

import logging
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import httpx
import msgspec
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.provider_requests import REPLY
from support.provider_servers import (
    Answer,
    ProviderServer,
    anthropic_stream,
    event,
    openai_stream,
    serving,
)

from hubbub.agents.model import Delta, ModelRequest, UserMessage
from hubbub.hub.errors import (
    BadValue,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    ProviderError,
)
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.http import endpoint as http_stream
from hubbub.runtime.models.http.address import clean_key, clean_url, is_loopback
from hubbub.runtime.models.http.errors import error_message, retry_after
from hubbub.runtime.models.http.sse import EventTooLarge
from hubbub.runtime.models.openai.model import OpenAIModel

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-02")]

KEY = "sk-very-secret-0123456789"
HELLO = ModelRequest(messages=(UserMessage(content="hello"),))
STREAMS = {"anthropic": anthropic_stream(REPLY), "openai": openai_stream(REPLY)}

Making = Callable[..., AnthropicModel | OpenAIModel]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


@asynccontextmanager
async def model_of(
    provider: str, server: ProviderServer, **options: object
) -> AsyncIterator[AnthropicModel | OpenAIModel]:
    making: Making = {"anthropic": AnthropicModel, "openai": OpenAIModel}[provider]
    model = making("the-model", key=KEY, base_url=server.url, **options)
    try:
        yield model
    finally:
        await model.aclose()


async def failing(provider: str, *answers: Answer, **options: object) -> ProviderError:
    """The error that the first of ``answers`` comes to."""
    async with serving(*answers) as server, model_of(provider, server, **options) as model:
        with anyio.fail_after(5), pytest.raises(ProviderError) as caught:
            await model.call(HELLO)
        assert len(server.requests) == 1, "one attempt a call"
    assert_no_key_in(caught.value)
    return caught.value


def assert_no_key_in(error: BaseException) -> None:
    """Not in the error, nor in what a traceback with local variables would print of ours."""
    assert KEY not in f"{error} {error!r} {vars(error)}"
    assert error.__cause__ is None
    # No exception of httpx behind it either: those hold the request with its headers.
    assert isinstance(error.__context__, msgspec.DecodeError | UnicodeError | EventTooLarge | None)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [frame.f_locals for frame in frames if "test" not in frame.f_code.co_filename]
    assert ours
    assert KEY not in repr(ours)


@pytest.mark.spec("M-03", "M-04")
@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (301, ModelRefused, "request"),
        (400, ModelRefused, "request"),
        (401, ModelRefused, "auth"),
        (403, ModelRefused, "auth"),
        (404, ModelRefused, "request"),
        (408, ModelUnavailable, "timeout"),
        (409, ModelUnavailable, "server"),
        (413, ModelRefused, "request"),
        (422, ModelRefused, "request"),
        (425, ModelUnavailable, "server"),
        (429, ModelUnavailable, "rate_limit"),
        (500, ModelUnavailable, "server"),
        (503, ModelUnavailable, "server"),
        (504, ModelUnavailable, "timeout"),
        (529, ModelUnavailable, "server"),
    ],
)
async def test_each_status_has_one_meaning(
    status: int, error: type[ProviderError], kind: str
) -> None:
    body = b'{"type":"error","error":{"type":"x","message":"because of %s"}}' % KEY.encode()
    headers = {"content-type": "application/json", "retry-after": "7", "location": "/elsewhere"}
    found = await failing("anthropic", Answer([body], status=status, headers=headers))
    assert type(found) is error
    assert (found.kind, found.status) == (kind, status)
    assert found.retry_after == (7.0 if error is ModelUnavailable else None)
    if kind == "auth":
        assert "ANTHROPIC_API_KEY" in str(found)
    if status != 401:
        assert "because of ***" in str(found)
    if status == 404:
        assert "check the model's name and the base URL" in str(found)


async def test_a_long_complaint_is_quoted_in_part() -> None:
    body = b'{"error": {"message": "%s"}}' % (b"bad\\n" * 5000)
    found = await failing("openai", Answer([body], status=400))
    assert len(str(found)) < 700
    endless = Answer([b"x" * 60_000] * 3, status=500, end="hold")
    assert (await failing("openai", endless)).status == 500


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "m", "type": "t"}}', "m"),
        (b'{"error": "model not found"}', "model not found"),
        (b'{"detail": [{"loc": ["body"]}]}', '[{"loc":["body"]}]'),
        (b'{"message": "m"}', "m"),
        (b"<html>\xff", "<html>�"),
        (b"", ""),
        (b"null", "null"),
    ],
)
def test_the_words_of_an_error_are_found_in_any_shape(body: bytes, message: str) -> None:
    assert error_message(body) == message


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "2", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        (
            {
                "retry-after": "Wed, 21 Oct 2015 07:28:30 GMT",
                "date": "Wed, 21 Oct 2015 07:28:00 GMT",
            },
            30.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0.0),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_date_without_the_servers_own_is_taken_from_now() -> None:
    far = retry_after({"retry-after": "Fri, 31 Dec 2100 00:00:00 GMT"})
    assert far is not None
    assert far > 1e9


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("end", ["whole", "close", "cut"])
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_stream_cut_at_any_event_is_worth_another_try(provider: str, end: str) -> None:
    events = STREAMS[provider]
    # OpenAI's may end properly after the finish_reason, three events before the last.
    last = len(events) - (1 if provider == "anthropic" else 2)
    places = range(last) if end == "close" else (0, 1, last // 2, last - 1)
    answers = [Answer(events[:place], end=end) for place in places]
    answers.append(Answer([*events[:2], events[2][:20]], end=end))
    async with serving(*answers) as server, model_of(provider, server) as model:
        for place in [*places, -1]:
            if provider == "openai" and end != "cut" and place == last - 1:
                continue
            with pytest.raises(ModelUnavailable) as caught:
                await model.call(HELLO)
            assert caught.value.kind == "cut", place
            assert_no_key_in(caught.value)


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    "bad",
    [
        b"data: {not json}\n\n",
        b'data: {"type": 5, "choices": 5}\n\n',
        b"data: \xff\xfe\n\n",
        b'data: {"type": "content_block_delta", "index": 9, "choices": {}}\n\n',
    ],
)
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_what_cannot_be_read_is_garbled(provider: str, bad: bytes) -> None:
    # The server holds: the client must leave at once, not when somebody hangs up.
    found = await failing(provider, Answer([STREAMS[provider][0], bad], end="hold"))
    assert type(found) is ModelGarbled
    assert "event 2" in str(found)


@pytest.mark.spec("M-03")
async def test_an_error_inside_a_stream_counts_like_a_status() -> None:
    kinds = {
        "overloaded_error": (ModelUnavailable, 529),
        "rate_limit_error": (ModelUnavailable, 429),
        "invalid_request_error": (ModelRefused, 400),
        "authentication_error": (ModelRefused, 401),
        "something_new": (ModelUnavailable, 500),
    }
    for kind, (error, status) in kinds.items():
        bad = event({"type": "error", "error": {"type": kind, "message": "so"}}, "error")
        found = await failing("anthropic", Answer([STREAMS["anthropic"][0], bad], end="hold"))
        assert (type(found), found.status) == (error, status)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_stream_may_come_byte_by_byte_and_without_framing(provider: str) -> None:
    stream = b"".join(STREAMS[provider]).replace(b"\n", b"\r\n")
    single = [stream[at : at + 1] for at in range(len(stream))]
    answers = Answer(single), Answer([stream], end="close"), Answer([b":\n\n" + stream])
    async with serving(*answers) as server, model_of(provider, server) as model:
        texts = [(await model.call(HELLO)).text for _ in answers]
    assert texts == [REPLY.text] * 3


async def test_connections_are_used_again_and_never_followed_elsewhere() -> None:
    answers = [Answer(STREAMS["openai"]) for _ in range(3)]
    async with serving(*answers) as server, model_of("openai", server) as model:
        for _ in answers:
            await model.call(HELLO)
        assert (len(server.requests), server.connections) == (3, 1)


async def test_an_answer_is_complete_though_the_server_never_hangs_up() -> None:
    answer = Answer(STREAMS["anthropic"], end="hold")
    async with serving(answer) as server, model_of("anthropic", server) as model:
        with anyio.fail_after(5):
            assert (await model.call(HELLO)).text == REPLY.text
            await server.client_left.wait()


@pytest.mark.parametrize("sent", [0, 5])
async def test_cancellation_closes_the_connection(sent: int) -> None:
    answer = Answer(STREAMS["openai"][:sent], end="hold")
    async with serving(answer) as server, model_of("openai", server) as model:
        with anyio.fail_after(5):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def cancel_when_asked() -> None:
                        await server.asked.wait()
                        await anyio.wait_all_tasks_blocked()
                        scope.cancel()

                    group.start_soon(cancel_when_asked)
                    await model.call(HELLO)
            await server.client_left.wait()
        assert scope.cancelled_caught


async def test_a_listener_that_raises_ends_the_call() -> None:
    def broken(_: Delta) -> None:
        raise ZeroDivisionError

    answer = Answer(STREAMS["openai"], end="hold")
    async with serving(answer) as server, model_of("openai", server) as model:
        with pytest.raises(ZeroDivisionError):
            await model.call(HELLO, broken)


async def test_silence_is_a_timeout() -> None:
    before = await failing("openai", Answer([], end="hold"), idle_timeout=0.02)
    amid = await failing("openai", Answer(STREAMS["openai"][:4], end="hold"), idle_timeout=0.02)
    for found in (before, amid):
        assert (type(found), found.kind) == (ModelUnavailable, "timeout")
        assert "nothing came for 0.02 s" in str(found)


async def test_a_server_that_is_not_there_is_named() -> None:
    async with serving() as server:
        gone = server.url
    model = OpenAIModel("m", key=KEY, base_url=gone)
    with pytest.raises(ModelUnavailable, match="is the server running") as refused:
        await model.call(HELLO)
    await model.aclose()
    assert refused.value.kind == "connection"
    assert gone in str(refused.value)
    assert_no_key_in(refused.value)


async def test_a_server_without_tls_is_a_failed_connection() -> None:
    async def plain(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, plain)
        port = listener.listeners[0].extra(SocketAttribute.local_port)
        model = OpenAIModel("m", key=KEY, base_url=f"https://127.0.0.1:{port}")
        with pytest.raises(ModelUnavailable, match="SSL") as caught:
            await model.call(HELLO)
        await model.aclose()
        group.cancel_scope.cancel()
    assert caught.value.kind == "connection"
    assert_no_key_in(caught.value)


async def test_a_web_page_is_no_model() -> None:
    page = Answer([b"<html>Hello"], headers={"content-type": "text/html; charset=utf-8"})
    assert "web page; check the base URL" in str(await failing("openai", page))


async def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_stream, "MAX_ANSWER_BYTES", 1000)
    found = await failing("openai", Answer([b": nothing at all\n"] * 100, end="hold"))
    assert (type(found), "larger than 1000 bytes" in str(found)) == (ModelGarbled, True)


async def test_an_event_is_bounded() -> None:
    # 9 MiB in one line, of which the client must not hold more than 8.
    answer = Answer([b"data: ", *[b"x" * 1024 * 1024] * 9], end="hold")
    assert "larger than 8388608 bytes" in str(await failing("openai", answer))


def test_one_model_works_on_one_loop_after_the_other() -> None:
    made: list[OpenAIModel] = []

    async def once(port: int) -> int:
        async with serving(Answer(STREAMS["openai"]), port=port) as server:
            if not made:
                made.append(OpenAIModel("m", base_url=server.url))
            assert (await made[0].call(HELLO)).text == REPLY.text
            await made[0].aclose()
            await made[0].aclose()
            return int(server.url.rpartition(":")[2])

    port = 0
    for backend in ("asyncio", "trio", "asyncio"):
        port = anyio.run(once, port, backend=backend)


async def test_a_closed_model_opens_again() -> None:
    answers = [Answer(STREAMS["openai"]) for _ in range(2)]
    async with serving(*answers) as server, model_of("openai", server) as model:
        await model.aclose()
        await model.call(HELLO)
        await model.aclose()
        assert (await model.call(HELLO)).text == REPLY.text
        assert server.connections == 2


# ── secrets ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("M-04")
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_the_key_reaches_the_provider_and_nobody_else(
    provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = Answer(STREAMS[provider]), Answer([], status=500), Answer([], end="cut")
    async with serving(*answers) as server, model_of(provider, server) as model:
        await model.call(HELLO)
        for _ in range(2):
            with pytest.raises(ProviderError) as caught:
                await model.call(HELLO)
            assert_no_key_in(caught.value)
        shown = repr(model) + str(model) + repr(vars(model)) + repr(vars(model._endpoint))
        sent = server.requests[0].headers
    assert KEY not in shown
    assert KEY not in caplog.text
    assert KEY not in repr([record.__dict__ for record in caplog.records])
    assert sent["authorization" if provider == "openai" else "x-api-key"].endswith(KEY)
    assert KEY not in server.requests[0].body.decode()


@pytest.mark.spec("M-04")
async def test_a_password_in_the_url_is_sent_as_basic_and_never_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(Answer([], status=401)) as server:
        url = server.url.replace("//", "//user:s%2Fcret@")
        model = OpenAIModel("m", base_url=url)
        with pytest.raises(ModelRefused) as caught:
            await model.call(HELLO)
        await model.aclose()
        assert server.requests[0].headers["authorization"] == "Basic dXNlcjpzL2NyZXQ="
    shown = f"{caught.value!r} {model!r} {vars(model._endpoint)} {caplog.text}"
    assert "cret@" not in shown
    assert "dXNlcjpzL2NyZXQ=" not in shown


@pytest.mark.spec("M-04")
def test_a_key_that_cannot_be_one_is_refused_without_quoting_it() -> None:
    for key in (KEY + "\n" + KEY, KEY + "é", KEY + "\x00"):
        with pytest.raises(BadValue) as caught:
            clean_key(key)
        assert KEY not in repr(caught.value)
    with pytest.raises(BadValue):
        OpenAIModel(
            "m", base_url="http://localhost", headers={"x-other": KEY + "\r\n" * 2 + "x: y"}
        )
    assert clean_key(" ") is None
    assert clean_key(None) is None
    stripped = clean_key(f" {KEY}\n")
    assert stripped is not None
    assert stripped.reveal() == KEY


@pytest.mark.spec("M-04")
@pytest.mark.parametrize(
    "url",
    [
        "localhost:11434",
        "ftp://host",
        "http://",
        "http://u:sesame@host:port",
        "http://u:sesame@host:99999",
        "http://u:sesame@host?key=sesame",
        "http://u:sesame@ho st",
        "http://[u:sesame@",
        "http://u:sesame@a..b",
        "http://u:sesame@999.1.1.1",
        "http://u:sesame@xn--/",
        "http://u:sesame@[fe80::1%25eth0]",
        "http://u:sesame@host/" + 2_000 * "x",
        "",
    ],
)
def test_a_bad_url_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(BadValue, match="base URL") as caught:
        clean_url(url)
    shown = traceback.format_exception(caught.value)
    assert "sesame" not in str(caught.value)
    assert "During handling" not in "".join(shown)


hosts = st.one_of(
    st.text("ab-._:0129[]%é日ßx\xad", min_size=1, max_size=12),
    st.ip_addresses().map(str),
    st.text(min_size=1, max_size=8),
    st.from_regex(r"xn--[a-z0-9-]{0,9}", fullmatch=True),
)


@settings(max_examples=examples(2000))
@given(hosts, st.sampled_from(["", ":0", ":80", ":65536", ":x"]), st.text(max_size=8))
@example("999.1.1.1", "", "")
@example("a..b", "", "")
@example("xn--", "", "")
def test_whatever_url_is_accepted_the_client_can_use(host: str, port: str, path: str) -> None:
    try:
        url, _ = clean_url(f"http://{host}{port}/{path}")
    except BadValue:
        return
    httpx.Request("POST", url)


@pytest.mark.parametrize(
    "host", ["büro.example", "xn--bro-hoa.example", "my_host", "a-b.example.", "10.0.0.1", "[::1]"]
)
def test_hosts_of_every_kind_are_accepted(host: str) -> None:
    assert clean_url(f"http://{host}:1/v1")[0] == f"http://{host}:1/v1"


def test_urls_are_normalised() -> None:
    assert clean_url("http://localhost:1/v1/") == ("http://localhost:1/v1", None)
    assert clean_url("https://[::1]:80//")[0] == "https://[::1]:80"
    local = ["http://localhost", "http://127.0.0.2:1/x", "http://[::1]:80"]
    assert all(map(is_loopback, local))
    assert not any(map(is_loopback, ["http://127.evil.com", "http://10.0.0.1", "http://x"]))


def test_importing_the_clients_does_not_import_httpx() -> None:
    import subprocess
    import sys

    code = (
        "import sys, hubbub.runtime.models.anthropic.model;"
        "import hubbub.runtime.models.openai.model as o;"
        "o.OpenAIModel('m', base_url='http://x'); assert 'httpx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
