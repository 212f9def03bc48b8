"""Clients of OpenAI's API, and of the AI SDK, unmodified, on each server."""

import json
from pathlib import Path
from typing import Final

import openai
import pytest
from support.node import Node
from support.served import ServedHub

pytestmark = [pytest.mark.long, pytest.mark.spec("W-05")]

HERE: Final = Path(__file__).parent
SURFACES: Final = {"models", "chat", "responses"}


@pytest.mark.parametrize("depth", ["--quick", "--full"])
def test_the_suite_of_open_responses_reports_no_failure(
    node: Node, hub: ServedHub, depth: str
) -> None:
    """What is not there (images, embeddings) is no failure; what is there has none."""
    options = ["-m", "prober", "--no-bench", "--no-save", "--json"]
    if depth == "--quick":
        options.append(depth)
    done = node.command("llmprobe", f"{hub.url}/v1", *options)
    assert done.stdout, done.stderr
    conformance = json.loads(done.stdout)["conformance"]
    failed = [x for x in conformance["results"] if x["outcome"] == "fail"]
    assert failed == []
    passed = {x["surface"]: x["passed"] == x["total"] > 0 for x in conformance["bySurface"]}
    assert passed == dict.fromkeys(SURFACES, True)


def test_the_official_client_for_javascript(node: Node, hub: ServedHub) -> None:
    assert node.run(HERE / "openai.mjs", hub.url) == {
        "models": True,
        "text": "I heard: hello there",
        "continued": "I heard: hello there, and again",
        "events": "response.created … response.completed",
        "streamed": "I heard: a b",
        "resumed": True,
        "call": ["weather", {"city": "Paris"}],
        "answered": "The result is sunny.",
        "background": ["queued", "I heard: later"],
        "cancelled": "completed",
        "chat": "I heard: one two",
        "chat_call": ["tool_calls", "weather"],
        "refused": ["NotFoundError", 404, "model_not_found"],
    }


def test_the_ai_sdk(node: Node, hub: ServedHub) -> None:
    found = node.run(HERE / "ai_sdk.mjs", hub.url)
    assert set(found) == {"responses", "chat"}
    for each in found.values():
        assert {"tool-call", "tool-result", "text-delta"} <= set(each.pop("types"))
        assert each == {
            "text": "I heard: hello there", "usage": 5, "finished": "stop",
            "streamed": "I heard: a b c", "ended": "stop",
            "tools": [2, "The result is sunny in Paris."],
            "streamed_tools": "The result is sunny in Paris.",
            "reasoning": "Which tool?",
        }  # fmt: skip


def test_the_official_client_for_python(hub: ServedHub) -> None:
    with openai.OpenAI(base_url=f"{hub.url}/v1", api_key="none", max_retries=0) as client:
        first = client.responses.create(model="prober", input="hello")
        assert first.output_text == "I heard: hello"
        with client.responses.create(model="prober", input="a b", stream=True) as stream:
            events = list(stream)
        assert events[-1].response.output_text == "I heard: a b"
        place = events[3].sequence_number
        with client.responses.retrieve(
            events[0].response.id, stream=True, starting_after=place
        ) as again:
            assert list(again)[-1] == events[-1]
        with client.chat.completions.stream(
            model="prober", messages=[{"role": "user", "content": "x"}]
        ) as chunks:
            assert chunks.get_final_completion().choices[0].message.content == "I heard: x"
        with pytest.raises(openai.BadRequestError):
            client.responses.create(model="prober", input=7)  # type: ignore[call-overload]
