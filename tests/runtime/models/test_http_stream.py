"""One attempt over HTTP, beyond the conformance suite: limits, connections, addresses, keys."""

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
from support.anthropic_wire import AnthropicWire
from support.openai_wire import OpenAIWire
from support.profiles import examples
from support.provider_wires import event

from hubbub.hub.errors import (
    BadValue,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    ProviderError,
)
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.conformance import (
    HELLO,
    REPLY,
    LoopbackServer,
    ServerAnswer,
    serving,
)
from hubbub.runtime.models.http import endpoint as http_stream
from hubbub.runtime.models.http.address import clean_key, clean_url, is_loopback
from hubbub.runtime.models.http.errors import error_message, retry_after
from hubbub.runtime.models.http.sse import EventTooLarge
from hubbub.runtime.models.openai.model import OpenAIModel

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-02")]

KEY = "sk-very-secret-0123456789"
WIRES = {"anthropic": AnthropicWire(), "openai": OpenAIWire()}
STREAMS = {name: wire.stream(REPLY) for name, wire in WIRES.items()}

Making = Callable[..., AnthropicModel | OpenAIModel]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


@asynccontextmanager
async def model_of(
    provider: str, server: LoopbackServer, **options: object
) -> AsyncIterator[AnthropicModel | OpenAIModel]:
    making: Making = {"anthropic": AnthropicModel, "openai": OpenAIModel}[provider]
    model = making("the-model", key=KEY, base_url=server.url, **options)
    try:
        yield model
    finally:
        await model.aclose()


async def failing(provider: str, *answers: ServerAnswer, **options: object) -> ProviderError:
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


async def test_a_long_complaint_is_quoted_in_part() -> None:
    body = b'{"error": {"message": "%s"}}' % (b"bad\\n" * 5000)
    found = await failing("openai", ServerAnswer([body], status=400))
    assert len(str(found)) < 700
    endless = ServerAnswer([b"x" * 60_000] * 3, status=500, end="hold")
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
        found = await failing("anthropic", ServerAnswer([STREAMS["anthropic"][0], bad], end="hold"))
        assert (type(found), found.status) == (error, status)


async def test_connections_are_used_again_and_never_followed_elsewhere() -> None:
    answers = [ServerAnswer(STREAMS["openai"]) for _ in range(3)]
    async with serving(*answers) as server, model_of("openai", server) as model:
        for _ in answers:
            await model.call(HELLO)
        assert (len(server.requests), server.connections) == (3, 1)


async def test_an_answer_is_complete_though_the_server_never_hangs_up() -> None:
    answer = ServerAnswer(STREAMS["anthropic"], end="hold")
    async with serving(answer) as server, model_of("anthropic", server) as model:
        with anyio.fail_after(5):
            assert (await model.call(HELLO)).text == REPLY.text
            await server.client_left.wait()


async def test_silence_is_a_timeout() -> None:
    # Long enough for a busy machine to send the request at all.
    before = await failing("openai", ServerAnswer([], end="hold"), idle_timeout=0.25)
    amid = await failing(
        "openai", ServerAnswer(STREAMS["openai"][:4], end="hold"), idle_timeout=0.25
    )
    for found in (before, amid):
        assert (type(found), found.kind) == (ModelUnavailable, "timeout")
        assert "nothing came for 0.25 s" in str(found)


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
    page = ServerAnswer([b"<html>Hello"], headers={"content-type": "text/html; charset=utf-8"})
    assert "web page; check the base URL" in str(await failing("openai", page))


async def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_stream, "MAX_ANSWER_BYTES", 1000)
    found = await failing("openai", ServerAnswer([b": nothing at all\n"] * 100, end="hold"))
    assert (type(found), "larger than 1000 bytes" in str(found)) == (ModelGarbled, True)


async def test_an_event_is_bounded() -> None:
    # 9 MiB in one line, of which the client must not hold more than 8.
    answer = ServerAnswer([b"data: ", *[b"x" * 1024 * 1024] * 9], end="hold")
    assert "larger than 8388608 bytes" in str(await failing("openai", answer))


def test_one_model_works_on_one_loop_after_the_other() -> None:
    made: list[OpenAIModel] = []

    async def once(port: int) -> int:
        async with serving(ServerAnswer(STREAMS["openai"]), port=port) as server:
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
    answers = [ServerAnswer(STREAMS["openai"]) for _ in range(2)]
    async with serving(*answers) as server, model_of("openai", server) as model:
        await model.aclose()
        await model.call(HELLO)
        await model.aclose()
        assert (await model.call(HELLO)).text == REPLY.text
        assert server.connections == 2


# ── secrets ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("M-04")
async def test_a_password_in_the_url_is_sent_as_basic_and_never_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(ServerAnswer([], status=401)) as server:
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


@settings(max_examples=examples(2000), deadline=None)
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
