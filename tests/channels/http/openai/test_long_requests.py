"""Requests of very many items: each costs what its items cost, and there is a most of them."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.openai_face import talker, with_client

from hubbub.channels.http.openai.requests.extending import (
    Exchange,
    Telling,
    extends,
    seen_by,
)
from hubbub.channels.http.openai.requests.responses_body import read_responses
from hubbub.channels.http.openai.requests.wanted import CalledFunction, Entry
from hubbub.channels.http.wire.request_keys import request_key

pytestmark = pytest.mark.spec("W-05")

USER = {"role": "user", "content": "x"}
SAID = {"role": "assistant", "content": "y"}


def call(name: int | str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{name}", "name": "f", "arguments": "{}"}


def output(name: int | str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{name}", "output": "x"}


def read(items: list[dict[str, Any]]) -> tuple[Entry, ...]:
    body = {"model": "talker", "input": items}
    return read_responses(body, session_key="", key="").entries


def seconds_for(fn: Callable[[Any], object], given: Any) -> float:
    started = time.process_time()
    fn(given)
    return time.process_time() - started


def assert_linear(fn: Callable[[Any], object], make: Callable[[int], Any], many: int) -> None:
    """Ten times as many take ten times as long, or little more; by the square, a hundred times."""
    small = seconds_for(fn, make(many // 10))
    assert seconds_for(fn, make(many)) < 30 * max(small, 0.05)


@pytest.mark.parametrize(
    "of",
    [
        lambda count: [USER, *(call(at) for at in range(count))],
        lambda count: [USER, *(call("same") for _ in range(count))],
        lambda count: [USER, *map(call, range(count // 2)), *map(output, range(count // 2))],
        lambda count: [
            USER,
            SAID,
            *(x for at in range(count // 2) for x in (call(at), output(at))),
        ],
        lambda count: [USER, *({**SAID, "content": "word " * 20} for _ in range(count))],
        lambda count: [USER, *(x for at in range(count // 2) for x in (call(at), SAID))],
    ],
    ids=("calls", "one call again and again", "calls, then outputs", "in turns", "words", "both"),
)
def test_reading_very_many_items_costs_what_they_cost(of: Callable[[int], Any]) -> None:
    """60,000 calls stopped the server for 16 s: each was added to a copy of those before it."""
    assert_linear(read, of, 50_000 - 2)


def test_words_in_a_row_are_merged_in_the_time_of_their_length() -> None:
    entry = Entry(role="assistant", text="word " * 20)
    assert_linear(seen_by, lambda count: [entry] * count, 100_000)


@pytest.mark.parametrize("kept", [1.0, 0.5, 0.0])
def test_a_transcript_of_very_many_calls_is_compared_in_the_time_of_its_length(kept: float) -> None:
    """Where the same was said beside each of them, and whatever of it the client has left out."""
    user, text = Entry(role="user", text="x"), "Let me look."

    def make(count: int) -> tuple[list[Entry], list[Exchange]]:
        tellings = [Telling(told=[text], has_calls=True) for _ in range(count)]
        said = [Entry(role="assistant", text=text)] * int(kept * count)
        return [user, *said, user], [Exchange("x", tellings=tellings)]

    def compare(given: tuple[list[Entry], list[Exchange]]) -> object:
        return extends(*given, is_cut=False)

    assert compare(make(1_000)) is (kept == 1)
    assert_linear(compare, make, 20_000)


def test_what_counts_once_is_told_in_the_time_of_its_length() -> None:
    """What its types have is found once, and not for each entry: this took longer than all else."""
    entry = Entry(role="assistant", calls=(CalledFunction(id="c", name="f"),))
    plain = {"role": "assistant", "calls": [{"id": "c", "name": "f"}]}

    def digest(given: list[object]) -> object:
        return request_key("k", ("v1",), given)

    of_plain = seconds_for(digest, [plain] * 20_000)
    assert seconds_for(digest, [entry] * 20_000) < 4 * max(of_plain, 0.03)


def test_items_are_put_together_to_what_each_answer_said_and_called() -> None:
    empty = {**SAID, "content": ""}
    entries = read([
        USER, empty, SAID, empty, SAID, call(1), call(2), output(1), output(2), call(3), SAID,
        {"type": "reasoning", "summary": []}, SAID, USER, call(4), empty,
    ])  # fmt: skip
    said = [(x.role, x.text, [each.id for each in x.calls] or x.call_id) for x in entries]
    assert said == [
        ("user", "x", ""), ("assistant", "y\n\n\n\ny", ["c1", "c2"]),
        ("output", "x", "c1"), ("output", "x", "c2"), ("assistant", "", ["c3"]),
        ("assistant", "y\n\ny", ""), ("user", "x", ""), ("assistant", "", ["c4"]),
        ("assistant", "", ""),
    ]  # fmt: skip


TOO_LONG: list[tuple[str, dict[str, Any], str, int]] = [
    ("responses", {"input": [USER] * 50_001}, "input", 50_000),
    ("responses", {"input": [{"type": "item_reference"}] * 50_001}, "input", 50_000),
    ("responses", {"input": "x", "tools": [{}] * 129}, "tools", 128),
    ("chat/completions", {"messages": [SAID] * 50_001}, "messages", 50_000),
    ("chat/completions", {"messages": [{**SAID, "tool_calls": [{}] * 50_001}]},
     "tool_calls", 50_000),
    ("chat/completions", {"messages": [{**USER, "content": [{}] * 50_001}]},
     "messages[0].content", 50_000),
    ("chat/completions", {"messages": [USER], "tools": [{}] * 129}, "tools", 128),
]  # fmt: skip


@pytest.mark.anyio
async def test_a_list_that_is_too_long_is_refused_before_it_is_read(ports: Any) -> None:
    async with with_client(ports) as (_, app, _):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for path, body, where, most in TOO_LONG:
                answer = await http.post(f"/v1/{path}", json={"model": "talker", **body})
                error = answer.json()["error"]
                assert answer.status_code == 400
                assert (error["param"], error["code"]) == (where, "array_above_max_length")
                assert f"maximum length {most}," in error["message"]


@pytest.mark.anyio
async def test_a_conversation_of_very_many_messages_is_answered(ports: Any) -> None:
    agent = talker()
    async with with_client(ports, agent) as (_, _, client):
        messages: list[Any] = [SAID if at % 2 else USER for at in range(9_999)]
        answer = await client.chat.completions.create(model=agent.name, messages=messages)
        assert answer.choices[0].message.content
