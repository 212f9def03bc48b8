"""Answers that are wrong, or made to do harm: each is read, or an error; none holds up the loop."""

import gzip
import re
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.anthropic_wire import AnthropicWire
from support.openai_wire import OpenAIWire
from support.profiles import examples
from support.provider_wires import event
from support.responses_wire import ResponsesWire

from hubbub.agents.model import ModelReply, OnDelta, parse_arguments, reply_problem
from hubbub.hub.errors import ModelGarbled, ModelUnavailable, ProviderError
from hubbub.runtime.models.anthropic.answer import AnthropicAnswer
from hubbub.runtime.models.conformance import HELLO, REPLY, ServerAnswer, serving
from hubbub.runtime.models.http.errors import ProviderOrigin, error_message, retry_after
from hubbub.runtime.models.http.inflate import PIECE_BYTES, CannotInflate, Inflater
from hubbub.runtime.models.openai.answer import OpenAIAnswer
from hubbub.runtime.models.openai.arguments import GrowingArguments
from hubbub.runtime.models.responses.answer import ResponsesAnswer

pytestmark = pytest.mark.spec("M-03")

WIRES = {"anthropic": AnthropicWire(), "openai": OpenAIWire(), "responses": ResponsesWire()}
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


async def asked(provider: str, answer: ServerAnswer, on_delta: OnDelta | None = None) -> ModelReply:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(answer))
        model = WIRES[provider].make(server.url)
        stack.push_async_callback(model.aclose)
        return await model.call(HELLO, on_delta)


# ── depth ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
async def test_json_that_is_nested_too_deeply_cannot_be_read_wherever_it_stands(
    provider: str,
) -> None:
    whole = b"".join(WIRES[provider].stream(REPLY))
    places = list(re.finditer(rb"(?<=: )(?:\"[^\"]*\"|\d+|null)", whole))
    assert len(places) > 20
    for place in places:
        body = whole[: place.start()] + DEEP + whole[place.end() :]
        with pytest.raises(ProviderError):
            await asked(provider, ServerAnswer([body]))


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
async def test_an_error_whose_body_is_nested_too_deeply_still_counts_by_its_status(
    provider: str,
) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        await asked(provider, ServerAnswer([DEEP[:5000]], status=500))
    assert caught.value.status == 500
    with pytest.raises(ModelGarbled):
        await asked(provider, ServerAnswer([b'{"error": ' + DEEP + b"}"]))


# ── counts ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize(
    "number",
    [b"-1", b"9223372036854775808", b"1" + b"0" * 18, b"1.5", b"1e300", b'"9"', b"[]", b"true"],
)  # fmt: skip
async def test_a_count_of_tokens_that_cannot_be_costs_no_answer(
    provider: str, number: bytes
) -> None:
    whole = b"".join(WIRES[provider].stream(REPLY))
    body = re.sub(rb'(_tokens": )\d+', rb"\g<1>" + number, whole)
    assert body != whole
    reply = await asked(provider, ServerAnswer([body]))
    assert reply.text == REPLY.text
    assert reply_problem(reply) == ""
    assert reply.usage.output_tokens in (0, 10**18)


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize("usage", [b"5", b'"many"', b"[1]"])
async def test_usage_that_is_none_costs_no_answer(provider: str, usage: bytes) -> None:
    whole = b"".join(WIRES[provider].stream(REPLY))
    body = re.sub(rb'"usage": \{(?:[^{}]|\{[^{}]*\})*\}', b'"usage": ' + usage, whole)
    assert body != whole
    reply = await asked(provider, ServerAnswer([body]))
    assert (reply.text, reply.usage.output_tokens) == (REPLY.text, 0)


# ── size ─────────────────────────────────────────────────────────────────────────────────────

MANY = 40_000


def chunk(**call: object) -> bytes:
    return msgspec.json.encode({"choices": [{"delta": {"tool_calls": [call]}}]})


def added(index: int) -> bytes:
    item = {"type": "function_call", "name": "f", "call_id": str(index)}
    return msgspec.json.encode(
        {"type": "response.output_item.added", "output_index": index, "item": item}
    )


def thought(text: str) -> bytes:
    delta = {"type": "signature_delta", "signature": text}
    return msgspec.json.encode({"type": "content_block_delta", "index": 0, "delta": delta})


BLOCK = b'{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}'
BEGUN = chunk(index=0, function={"name": "f", "arguments": '{"x": ["' + "x" * 1_000_000})
AGAIN = chunk(index=0, function={"name": "f", "arguments": '"}'})


@pytest.mark.parametrize(
    ("reads", "events"),
    [
        (OpenAIAnswer, (chunk(index=i, id=str(i)) for i in range(MANY))),
        (OpenAIAnswer, (chunk(id=str(i)) for i in range(MANY))),
        (OpenAIAnswer, (chunk(index=0, function={"arguments": "q" * 200}) for _ in range(MANY))),
        (OpenAIAnswer, (AGAIN if i else BEGUN for i in range(MANY))),
        (ResponsesAnswer, map(added, range(MANY))),
        (AnthropicAnswer, (thought("q" * 200) if i else BLOCK for i in range(MANY))),
    ],
    ids=["indexes", "ids", "arguments", "names", "items", "signatures"],
)
def test_work_grows_with_an_answer_and_not_with_its_square(
    reads: type[OpenAIAnswer] | type[ResponsesAnswer] | type[AnthropicAnswer],
    events: Iterable[bytes],
) -> None:
    answer = reads(ProviderOrigin("m", "u", ""), lambda _: None)
    began = time.process_time()
    for each in events:
        answer.event(each)
    answer.reply("m")
    assert time.process_time() - began < 3, "it takes less than a second"


@given(
    st.lists(st.sampled_from(['{"a":', '"x}"', '"\\"', "\\", "[1]", "{}", "}", "]", " ", '"', "7"]))
)
def test_arguments_are_whole_when_they_can_be_parsed(pieces: list[str]) -> None:
    growing = GrowingArguments()
    for piece in pieces:
        growing.add(piece)
        try:
            is_whole = bool(growing.text) and parse_arguments(growing.text) is not None
        except msgspec.DecodeError:
            is_whole = False
        assert growing.is_whole == is_whole


# ── blocks ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_blocks_of_one_index_are_blocks_of_their_own() -> None:
    """Some servers that speak Anthropic's interface number every block 0."""
    body = re.sub(rb'"index": \d+', b'"index": 0', b"".join(WIRES["anthropic"].stream(REPLY)))
    said: list[str] = []
    reply = await asked(
        "anthropic", ServerAnswer([body]),
        lambda delta: said.append(delta.text) if type(delta).__name__ == "TextDelta" else None,
    )  # fmt: skip
    assert (reply.text, "".join(said)) == (REPLY.text, REPLY.text)
    assert [(each.name, each.arguments) for each in reply.calls] == [
        (each.name, each.arguments) for each in REPLY.calls
    ]


# ── compression ──────────────────────────────────────────────────────────────────────────────


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip in two members": ("x-gzip", lambda x: gzip.compress(x[:50]) + gzip.compress(x[50:])),
    "zlib": ("deflate", zlib.compress),
    "bare deflate": ("Deflate", bare),
    "identity": ("identity", bytes),
}


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
@pytest.mark.parametrize("packer", PACKERS)
async def test_a_compressed_answer_is_read_though_none_was_asked_for(
    packer: str, provider: str
) -> None:
    name, pack = PACKERS[packer]
    body = pack(b"".join(WIRES[provider].stream(REPLY)))
    pieces = [body[:1], body[1:30], body[30:]]
    reply = await asked(provider, ServerAnswer(pieces, headers={"content-encoding": name}))
    assert reply.text == REPLY.text


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip", "\x7f" * 100])
async def test_what_nobody_asked_for_and_cannot_be_read_is_named(name: str) -> None:
    answer = ServerAnswer([b"x"], headers={"content-encoding": name})
    with pytest.raises(ModelGarbled, match="compressed"):
        await asked("openai", answer)
    damaged = ServerAnswer([b"no gzip"], headers={"content-encoding": "gzip"})
    with pytest.raises(ModelGarbled, match="damaged"):
        await asked("openai", damaged)


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
async def test_an_answer_that_inflates_without_bound_lets_others_work(provider: str) -> None:
    bomb = gzip.compress(b"data: x\n\n" * 1_000_000, 9)
    assert len(bomb) < PIECE_BYTES
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(others)
        with pytest.raises(ProviderError):
            await asked(provider, ServerAnswer([bomb], headers={"content-encoding": "gzip"}))
        group.cancel_scope.cancel()
    assert turns > 1  # The client gave up at the first piece, or let others work after each.


@pytest.mark.anyio
@pytest.mark.long
@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_that_becomes_nothing_ends_like_a_large_one(status: int) -> None:
    empty = gzip.compress(b"") * 50_000
    headers = {"content-encoding": "gzip"}
    answer = ServerAnswer([empty] * 80, status=status, headers=headers, end="hold")
    problem = "larger than 67108864 bytes" if status == 200 else "500"
    with anyio.fail_after(60), pytest.raises(ProviderError, match=problem):
        await asked("openai", answer)


@pytest.mark.anyio
async def test_whoever_cancels_a_call_waits_for_no_more_than_a_piece() -> None:
    bomb = gzip.compress(b"\n" * 60_000_000, 9)
    taken = 0

    async with anyio.create_task_group() as group:

        async def ask() -> None:
            await asked("openai", ServerAnswer([bomb], headers={"content-encoding": "gzip"}))

        group.start_soon(ask)
        while not taken:
            await anyio.sleep(0.01)
            taken += 1
        group.cancel_scope.cancel()


@given(st.binary(max_size=300), st.lists(st.integers(1, 60)), st.sampled_from(sorted(PACKERS)))
@settings(max_examples=examples(300))
def test_however_it_is_cut_what_was_compressed_comes_out_whole(
    data: bytes, sizes: list[int], packer: str
) -> None:
    name, pack = PACKERS[packer]
    packed, inflater, found = pack(data), Inflater(name), b""
    for size in [*sizes, len(packed) + 1]:
        found += b"".join(inflater.feed(packed[:size]))
        packed = packed[size:]
    assert found == data


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate"]))
@settings(max_examples=examples(300))
def test_noise_is_damaged_or_something_in_bounded_pieces(data: bytes, name: str) -> None:
    with suppress(CannotInflate):
        assert all(len(piece) <= PIECE_BYTES for piece in Inflater(name).feed(data))


def test_a_piece_is_never_larger_than_the_limit() -> None:
    sizes = [len(piece) for piece in Inflater("gzip").feed(gzip.compress(bytes(10_000_000)))]
    assert sum(sizes) == 10_000_000
    assert max(sizes) <= PIECE_BYTES


# ── words ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_what_a_terminal_would_obey_is_not_quoted() -> None:
    body = event({"error": {"message": "bad\x1b[31m \x00key"}})[6:]
    with pytest.raises(ProviderError) as caught:
        await asked("openai", ServerAnswer([body], status=400))
    assert str(caught.value).endswith("(400): bad [31m key")
    assert error_message(b"[" * 5000)[:2] == "[["


def test_digits_of_other_scripts_are_no_time_to_wait() -> None:
    assert retry_after({"retry-after": "٣"}) is None
