"""What each provider makes of ``ModelSettings``, and what it refuses when a runtime is built."""

import json
from typing import Any

import anthropic.types.beta
import openai.types.chat
import pytest
from pydantic import TypeAdapter
from support.provider_wires import read_strictly

from hubbub import Agent, FunctionModel, ModelReply, ModelRequest, ModelSettings, Runtime
from hubbub.agents.model import AnsweredCall, AssistantMessage, Thinking, UserMessage
from hubbub.hub.errors import DefinitionError
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.anthropic.model import request_body as anthropic_body
from hubbub.runtime.models.anthropic.settings import BETA, default_tokens, settings_problems
from hubbub.runtime.models.conformance import HELLO
from hubbub.runtime.models.openai.dialect import OPENAI_DIALECT, PLAIN
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.openai.model import request_body as openai_body
from hubbub.runtime.models.scripted import Fault, ScriptedModel

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-07")]

OPUS = "claude-opus-5"
SONNET, MANUAL, NEWEST = "claude-sonnet-4-6", "claude-sonnet-4-5", "claude-opus-5-5"


def asked(settings: ModelSettings | None, **more: Any) -> ModelRequest:
    return ModelRequest(messages=HELLO.messages, settings=settings, **more)


def fields(model: str, **settings: Any) -> dict[str, Any]:
    """What the settings add to Anthropic's body, or change in it."""
    told = ModelSettings(**settings)
    assert list(settings_problems(told, model, default_tokens(model))) == []
    plain = anthropic_body(asked(None), model=model, max_tokens=default_tokens(model))
    body = anthropic_body(asked(told), model=model, max_tokens=default_tokens(model))
    found = {name: value for name, value in body.items() if plain.get(name) != value}
    for name, kind in (
        ("thinking", anthropic.types.beta.BetaThinkingConfigParam),
        ("output_config", anthropic.types.OutputConfigParam),
    ):
        if name in found:
            read_strictly(TypeAdapter(kind), found[name])
    return found


def chat(dialect: Any = PLAIN, **settings: Any) -> dict[str, Any]:
    """What they add to a body of Chat Completions."""
    told = ModelSettings(**settings)
    assert list(dialect.problems(told)) == []
    plain = openai_body(asked(None), model="m")
    body = openai_body(asked(told), model="m", dialect=dialect)
    known = openai.types.chat.completion_create_params.CompletionCreateParamsStreaming
    read_strictly(TypeAdapter(known), body)
    return {name: value for name, value in body.items() if plain.get(name) != value}


# ── Anthropic ────────────────────────────────────────────────────────────────────────────────


def test_anthropic_gets_its_own_names() -> None:
    assert fields(SONNET, temperature=0.5, max_tokens=9, stop=["END"], service_tier="auto") == {
        "temperature": 0.5, "max_tokens": 9, "stop_sequences": ["END"], "service_tier": "auto",
    }  # fmt: skip
    assert fields(SONNET, top_p=0.5, timeout=9) == {"top_p": 0.5}


@pytest.mark.parametrize(
    ("model", "thinking", "sent"),
    [
        (OPUS, "minimal", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        (OPUS, "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}),
        (NEWEST, "high", {"output_config": {"effort": "high"}}),
        (SONNET, "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (SONNET, 2048, {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        (MANUAL, "high", {"thinking": {"type": "enabled", "budget_tokens": 16_000}}),
        (MANUAL, "low", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("kimi-k2", "max", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (OPUS, "off", {"thinking": {"type": "disabled"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-4-8", "off", {}),
        (MANUAL, "off", {}),
        ("claude-3-5-haiku-latest", "off", {}),
    ],
)
def test_anthropic_thinks_as_the_models_family_can(
    model: str, thinking: Any, sent: dict[str, Any]
) -> None:
    assert fields(model, thinking=thinking) == sent


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-opus-20240229", 4096),
        ("claude-3-5-sonnet-latest", 8192),
        ("claude-3-7-sonnet-latest", 32_000),
        ("claude-sonnet-4-20250514", 32_000),
        ("claude-opus-4-10", 32_000),
        ("anthropic.claude-opus-4-5-20251101-v1:0", 32_000),
        ("kimi-k2", 8192),
    ],
)
def test_the_default_of_max_tokens_follows_the_family(model: str, tokens: int) -> None:
    assert default_tokens(model) == tokens
    ours = AnthropicModel(model, key="k")
    assert list(ours.settings_problems(ModelSettings())) == []
    assert anthropic_body(HELLO, model=model, max_tokens=default_tokens(model))["max_tokens"]


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        (model, each)
        for model in ("claude-opus-4-1-20250805", MANUAL, "claude-haiku-4-5-20251001", "kimi-k2")
        for each in ("minimal", "low", "medium", "high", "xhigh", "max")
    ],
)
def test_a_level_leaves_room_for_the_answer(model: str, thinking: Any) -> None:
    for tokens in (1025, 4096, None):
        sent = ModelSettings(thinking=thinking, max_tokens=tokens)
        body = anthropic_body(asked(sent), model=model, max_tokens=default_tokens(model))
        assert 1024 <= body["thinking"]["budget_tokens"] < body["max_tokens"]


@pytest.mark.parametrize(
    ("model", "settings", "problem"),
    [
        (SONNET, {"seed": 1}, "seed: Anthropic has none; leave it out"),
        (SONNET, {"temperature": 1.5}, "temperature: Anthropic's is from 0 to 1"),
        (SONNET, {"service_tier": "flex"},
         "service_tier: Anthropic has 'auto' and 'standard_only', not 'flex'"),
        (NEWEST, {"temperature": 0.5}, f"temperature: {NEWEST} has none any more; leave it out"),
        (NEWEST, {"thinking": 2048},
         f'thinking: {NEWEST} takes no number of tokens; give a level, such as "high"'),
        (NEWEST, {"thinking": "off"},
         f'thinking: {NEWEST} always thinks; give "low", its least'),
        ("claude-mythos-5", {"thinking": "off"},
         'thinking: claude-mythos-5 always thinks; give "low", its least'),
        (MANUAL, {"thinking": 1000},
         "thinking: Anthropic's least budget is 1024 tokens, not 1000"),
        (MANUAL, {"thinking": 4096, "max_tokens": 4096},
         "thinking: 4096 tokens are not below max_tokens, which is 4096 and holds the answer as "
         "well; set max_tokens above 4096"),
        (MANUAL, {"thinking": "low", "max_tokens": 1024},
         "thinking: it takes at least 1024 tokens; set max_tokens above that"),
        ("claude-3-5-haiku-latest", {"thinking": "low"},
         "thinking: claude-3-5-haiku-latest cannot; leave it out, or name a newer model"),
        (MANUAL, {"thinking": "low", "temperature": 0.5},
         "temperature: none beside thinking at Anthropic; leave one of the two out"),
        (MANUAL, {"thinking": "low", "top_p": 0.5},
         "top_p: beside thinking it is at least 0.95 at Anthropic"),
    ],
)  # fmt: skip
def test_anthropic_refuses_what_it_lacks(
    model: str, settings: dict[str, Any], problem: str
) -> None:
    told = ModelSettings(**settings)
    assert list(settings_problems(told, model, default_tokens(model))) == [problem]
    with pytest.raises(DefinitionError) as caught:
        Runtime([Agent("a", "x", model=f"anthropic:{model}", settings=told)], store="memory")
    assert caught.value.problems == (f"agents.a.side_a.prompt.settings.{problem}",)


def test_a_budget_pauses_while_calls_of_a_model_that_did_not_think_are_answered() -> None:
    """Anthropic refuses the request otherwise: after a switch from another provider's model."""
    call = AnsweredCall(id="c", name="now", arguments="{}", output="noon")

    def thinking(*thoughts: Thinking, then: str = "") -> Any:
        said = AssistantMessage(calls=(call,), thinking=thoughts)
        after = (UserMessage(content=then),) if then else ()
        history = (*HELLO.messages, said, *after)
        told = ModelSettings(thinking=2048)
        request = ModelRequest(messages=history, settings=told)
        return anthropic_body(request, model=MANUAL, max_tokens=9000).get("thinking")

    assert thinking() is None
    assert thinking(Thinking(text="as another put it")) is None
    assert thinking(Thinking(text="hm", signature="c2ln")) is not None


BOUND = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


@pytest.mark.parametrize(
    ("model", "is_bound"),
    [
        ("claude-opus-5-5", True), ("claude-sonnet-5-5", True), ("claude-haiku-5-5", True),
        ("claude-fable-5-1", True), ("claude-mythos-5-2", True), ("claude-opus-6", True),
        ("claude-opus-5", False), ("claude-sonnet-5", False), ("claude-fable-5", False),
        ("claude-opus-4-8", False), (MANUAL, False), ("kimi-k2", False),
    ],
)  # fmt: skip
def test_thoughts_that_are_bound_to_what_was_before_them_may_be_left_out(
    model: str, is_bound: bool
) -> None:
    """Else a list of children that changes, or a summary, makes each further request refused."""
    body = anthropic_body(asked(None), model=model, max_tokens=9000)
    assert body.get("thinking") == (BOUND if is_bound else None)
    ours = AnthropicModel(model, key="k")._endpoint._headers
    assert ours.get("anthropic-beta") == (BETA if is_bound else None)
    thought = Thinking(text="hm", signature="c2ln")
    call = AnsweredCall(id="c", name="now", arguments="{}", output="noon")
    history = (
        *HELLO.messages, AssistantMessage(text="Yes.", thinking=(thought,)), *HELLO.messages,
        AssistantMessage(calls=(call,), thinking=(thought,)),
    )  # fmt: skip

    def thoughts(settings: ModelSettings | None) -> list[bool]:
        request = ModelRequest(messages=history, settings=settings)
        sent = anthropic_body(request, model=model, max_tokens=9000)["messages"]
        return [x["content"][0]["type"] == "thinking" for x in sent if x["role"] == "assistant"]

    assert thoughts(None) == [is_bound, True]
    if "opus" not in model and "kimi" not in model:
        assert thoughts(ModelSettings(thinking="off")) == [False, not is_bound]


# ── Chat Completions ─────────────────────────────────────────────────────────────────────────


def test_chat_completions_get_their_names() -> None:
    told: dict[str, Any] = {
        "temperature": 1.5, "top_p": 0.5, "stop": ["END"], "seed": 7, "service_tier": "flex",
    }  # fmt: skip
    assert chat(**told) == told
    assert chat(OPENAI_DIALECT, **told) == told
    assert chat(max_tokens=9) == {"max_tokens": 9}
    assert chat(OPENAI_DIALECT, max_tokens=9) == {"max_completion_tokens": 9}
    assert chat(timeout=9) == {}


@pytest.mark.parametrize(
    ("level", "word"), [("off", "none"), ("minimal", "minimal"), ("high", "high"), ("max", "max")]
)
def test_openai_gets_a_level_as_effort(level: Any, word: str) -> None:
    assert chat(OPENAI_DIALECT, thinking=level) == {"reasoning_effort": word}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"thinking": 2048}, "thinking: OpenAI takes no number of tokens; give one of 'off', "),
        ({"stop": list("abcde")}, "stop: OpenAI takes at most 4, not 5"),
        ({"service_tier": "batch"}, "service_tier: OpenAI has 'auto', 'default', 'flex', "),
    ],
)
def test_openai_refuses_what_it_lacks(settings: dict[str, Any], problem: str) -> None:
    told = ModelSettings(**settings)
    with pytest.raises(DefinitionError, match=problem):
        Runtime([Agent("a", "x", model="openai:gpt-5", settings=told)], store="memory", environ={})
    elsewhere = Agent("a", "x", model="openai:m@http://localhost:1/v1", settings=told)
    if "thinking" not in settings:  # What that server lacks, it says itself.
        Runtime([elsewhere], store="memory", environ={})
        Runtime([Agent("a", "x", model="openai:m", settings=told)], store="memory",
                environ={"OPENAI_BASE_URL": "http://localhost:1/v1"})  # fmt: skip


# ── with all of them ─────────────────────────────────────────────────────────────────────────


def test_provider_options_win_over_settings() -> None:
    told = asked(
        ModelSettings(max_tokens=9, temperature=0.5), options={"max_tokens": 7, "temperature": None}
    )
    for body in (anthropic_body(told, model=SONNET, max_tokens=5), openai_body(told, model="m")):
        assert body["max_tokens"] == 7
        assert "temperature" not in body


def test_a_model_object_is_asked_what_it_lacks() -> None:
    told = ModelSettings(seed=1, thinking=5000)
    with pytest.raises(DefinitionError, match=r"prompt.settings.seed: Anthropic has none"):
        Runtime([Agent("a", "x", model=AnthropicModel(SONNET, key="k"), settings=told)],
                store="memory")  # fmt: skip
    with pytest.raises(DefinitionError, match=r"prompt.settings.thinking: OpenAI takes no number"):
        Runtime([Agent("a", "x", model="desk", settings=told)], store="memory",
                models={"desk": OpenAIModel("m", key="k")})  # fmt: skip
    Runtime([Agent("a", "x", model=ScriptedModel([]), settings=told)], store="memory")


def test_a_model_that_cannot_say_what_it_lacks_is_refused_with_what_it_raised() -> None:
    class Broken(ScriptedModel):
        def settings_problems(self, settings: ModelSettings) -> list[str]:
            raise ZeroDivisionError("not now")

    agent = Agent("a", "x", model=Broken([]), settings=ModelSettings(seed=1))
    with pytest.raises(DefinitionError, match=r"raised ZeroDivisionError: not now"):
        Runtime([agent], store="memory")


async def test_a_model_reads_the_settings_of_its_prompt() -> None:
    seen: list[ModelSettings | None] = []

    def answer(request: ModelRequest) -> ModelReply:
        seen.append(request.settings)
        return ModelReply(text="yes")

    told = ModelSettings(temperature=0.5)
    agents = [Agent("a", "x", model=FunctionModel(answer), settings=told),
              Agent("b", "x", model=FunctionModel(answer))]  # fmt: skip
    async with Runtime(agents, store="memory") as rt:
        await rt.run("a", "go")
        await rt.run("b", "go")
    assert seen == [told, None]


async def test_a_call_takes_no_longer_than_its_timeout() -> None:
    slow = ScriptedModel([Fault("hang", times=None)])
    agent = Agent("a", "x", model=slow, settings=ModelSettings(timeout=7.5))
    async with Runtime([agent], store="memory") as rt:
        outcome = await rt.run("a", "go")
    assert not outcome.success
    assert outcome.reason == "the model did not answer within 7.5 s"


def test_settings_are_json_as_they_are() -> None:
    body = openai_body(asked(ModelSettings(stop=["a"], thinking="low")), model="m")
    assert json.loads(json.dumps(body)) == body
