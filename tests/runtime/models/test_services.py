"""What single services ask beyond the interface that they share."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from support.openai_wire import OpenAIWire, chunk

from hubbub import Agent, ModelSettings, Runtime
from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelRequest, Thinking, UserMessage
from hubbub.hub.errors import DefinitionError
from hubbub.runtime.models.conformance import HELLO, ServerAnswer, wire
from hubbub.runtime.models.http.provider import Provider
from hubbub.runtime.models.services import SERVICES

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-08")]

BY_NAME: dict[str, Provider] = {each.name: each for each in SERVICES}


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


def body(service: str, request: ModelRequest = HELLO, **settings: Any) -> Any:
    told = replace(request, settings=ModelSettings(**settings)) if settings else request
    return json.loads(OpenAIWire(BY_NAME[service]).body(told))


def fields(service: str, **settings: Any) -> dict[str, Any]:
    """What settings add to the body."""
    problems = list(BY_NAME[service].settings_problems("m", "", {}, ModelSettings(**settings)))
    assert problems == []
    plain = body(service)
    return {k: v for k, v in body(service, **settings).items() if k not in plain}


def calls_of(*thoughts: Thinking) -> ModelRequest:
    calls = tuple(
        AnsweredCall(id=f"call_1_{at}", name="now", arguments="{}", output="noon") for at in (0, 1)
    )
    turn = AssistantMessage(calls=calls, thinking=thoughts)
    last = AssistantMessage(calls=(replace(calls[0], id="call_2_0"),))
    return ModelRequest(messages=(*HELLO.messages, turn, UserMessage(content="More."), last))


@pytest.mark.parametrize(
    ("service", "settings", "sent"),
    [
        ("groq", {"max_tokens": 9, "thinking": "low", "service_tier": "on_demand"},
         {"max_completion_tokens": 9, "reasoning_effort": "low", "service_tier": "on_demand"}),
        ("mistral", {"seed": 7, "max_tokens": 9}, {"random_seed": 7, "max_tokens": 9}),
        ("gemini", {"thinking": "off"}, {"reasoning_effort": "none"}),
        ("openrouter", {"thinking": 2048}, {"reasoning": {"max_tokens": 2048}}),
        ("openrouter", {"thinking": "off"}, {"reasoning": {"effort": "none"}}),
        ("deepseek", {"thinking": "off"}, {"thinking": {"type": "disabled"}}),
        ("deepseek", {"thinking": "medium"},
         {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("ollama", {"seed": 7, "stop": ["a"]}, {"seed": 7, "stop": ["a"]}),
    ],
)  # fmt: skip
def test_settings_become_what_the_service_calls_them(
    service: str, settings: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert fields(service, **settings) == sent


@pytest.mark.parametrize(
    ("service", "settings", "problem"),
    [
        ("xai", {"service_tier": "flex"}, "service_tier: xAI has none; leave it out"),
        ("deepseek", {"seed": 7}, "seed: DeepSeek has none; leave it out"),
        ("mistral", {"thinking": "low"}, "thinking: Mistral has 'off', 'high', not 'low'"),
        ("together", {"thinking": 2048}, "thinking: Together takes no number of tokens"),
        ("groq", {"service_tier": "fast"}, "service_tier: Groq has 'auto', 'on_demand', 'flex',"),
        ("vllm", {"service_tier": "auto"}, "service_tier: vLLM has none; leave it out"),
    ],
)
def test_what_a_service_lacks_is_refused_when_a_runtime_is_built(
    service: str, settings: dict[str, Any], problem: str
) -> None:
    told = Agent("a", "x", model=f"{service}:m", settings=ModelSettings(**settings))
    with pytest.raises(DefinitionError) as caught:
        Runtime([told], store="memory", environ={})
    (found,) = caught.value.problems
    assert found.startswith(f"agents.a.side_a.prompt.settings.{problem}")


def test_deepseek_gets_what_it_thought_back_with_its_calls() -> None:
    said = body("deepseek", calls_of(Thinking(text="Which "), Thinking(text="zone?")))["messages"]
    assert [x.get("reasoning_content") for x in said if x["role"] == "assistant"] == [
        "Which zone?", "",
    ]  # fmt: skip
    assert "reasoning_content" not in str(body("groq", calls_of(Thinking(text="x"))))


def test_mistral_gets_ids_of_nine_letters_and_digits() -> None:
    said = body("mistral", calls_of())["messages"]
    made = [call["id"] for x in said for call in x.get("tool_calls", ())]
    answered = [x["tool_call_id"] for x in said if x["role"] == "tool"]
    assert made == answered == ["c00000000", "c00000001", "c00000002"]


async def test_gemini_gets_its_signatures_back_with_its_calls() -> None:
    def call(at: int, **more: Any) -> dict[str, Any]:
        function = {"name": "now", "arguments": "{}"}
        return {"index": at, "id": f"c{at}", "type": "function", "function": function, **more}

    extra = {"google": {"thought_signature": "c2ln"}}
    stream = [chunk(tool_calls=[call(0, extra_content=extra)]), chunk(tool_calls=[call(1)]),
              chunk(finish="tool_calls")]  # fmt: skip
    reply, _ = await wire.answered(OpenAIWire(BY_NAME["gemini"]), ServerAnswer(stream, end="whole"))
    assert reply.thinking == (Thinking(signature="gemini:0:c2ln"),)
    said = body("gemini", calls_of(*reply.thinking))["messages"]
    made = [call.get("extra_content") for x in said for call in x.get("tool_calls", ())]
    unsigned = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert made == [extra, None, unsigned]
    assert "extra_content" not in str(body("groq", calls_of(*reply.thinking)))
