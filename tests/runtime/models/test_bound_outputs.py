"""What providers are sent for ``output``: the schemas that their own clients make."""

import copy
from enum import Enum
from typing import Any, Literal

import openai.lib._pydantic as openai_schemas
import openai.types.chat
import openai.types.responses
import pydantic
import pytest
from anthropic.lib._parse._transform import transform_schema
from anthropic.types import OutputConfigParam
from msgspec.structs import replace
from pydantic import TypeAdapter
from support.anthropic_wire import anthropic_problems
from support.openai_wire import openai_problems
from support.provider_wires import read_strictly

from hubbub.agents.model import ModelRequest, OutputSpec, ToolSpec
from hubbub.agents.settings import ModelSettings
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.anthropic.model import request_body as anthropic_body
from hubbub.runtime.models.anthropic.output import format_of
from hubbub.runtime.models.conformance.samples import HELLO, WEATHER
from hubbub.runtime.models.openai.dialect import OPENAI_DIALECT
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.openai.model import request_body as openai_body
from hubbub.runtime.models.openai.output import STRICT
from hubbub.runtime.models.resolve import resolve_model
from hubbub.runtime.models.responses.model import ResponsesModel
from hubbub.runtime.models.responses.model import request_body as responses_body

pytestmark = pytest.mark.spec("L-03")

SONNET = "claude-sonnet-4-5"


class Kind(Enum):
    DAY = "day"
    NIGHT = "night"


class Place(pydantic.BaseModel):
    """Where it is."""

    city: str = pydantic.Field(description="Its name.")
    country: str | None


class Weather(pydantic.BaseModel):
    place: Place
    places: list[Place]
    kind: Kind
    word: Literal["mild", "hot"]
    degrees: float
    count: int
    windy: bool


class Limited(pydantic.BaseModel):
    count: int = pydantic.Field(ge=1, le=9, description="How many.")
    word: str = pydantic.Field(min_length=2)
    few: list[int] = pydantic.Field(min_length=1, max_length=3)
    when: str = pydantic.Field(json_schema_extra={"format": "date-time"})
    note: str = "none"


class Chain(pydantic.BaseModel):
    value: int
    rest: "Chain | None"


OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {"any": {}, "map": {"type": "object"}},
    "required": ["any", "map"],
    "additionalProperties": False,
}


def schema_of(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def asked(schema: dict[str, Any], **more: Any) -> ModelRequest:
    return replace(HELLO, output=OutputSpec(name="Weather", schema=schema), **more)


@pytest.mark.parametrize("model", [Place, Weather, Limited])
def test_anthropic_is_sent_what_its_own_client_sends(model: type[pydantic.BaseModel]) -> None:
    form = format_of(schema_of(model))
    assert form == {"type": "json_schema", "schema": transform_schema(schema_of(model))}
    request = asked(schema_of(model), settings=ModelSettings(thinking="low"))
    body = anthropic_body(request, model="claude-opus-5", max_tokens=99)
    assert body["output_config"] == {"effort": "low", "format": form}
    read_strictly(TypeAdapter(OutputConfigParam), body["output_config"])
    assert anthropic_problems(body) == []


@pytest.mark.parametrize("model", [Place, Weather, Chain])
def test_openai_is_sent_what_its_own_client_sends(model: type[pydantic.BaseModel]) -> None:
    expected = openai_schemas.to_strict_json_schema(model)
    if model is Chain:  # At the root stands what the client leaves a reference.
        expected = {**copy.deepcopy(expected["$defs"]["Chain"]), "$defs": expected["$defs"]}
        schema = {**schema_of(model)["$defs"]["Chain"], "$defs": schema_of(model)["$defs"]}
    else:
        schema = schema_of(model)
    body = openai_body(asked(schema), model="gpt-5", dialect=OPENAI_DIALECT)
    sent = body["response_format"]["json_schema"]
    assert sent == {"name": "Weather", "strict": True, "schema": expected}
    assert openai_problems(body) == []
    told = responses_body(asked(schema), model="gpt-5")["text"]["format"]
    assert told == {"type": "json_schema", **sent}
    param = openai.types.responses.ResponseFormatTextJSONSchemaConfigParam
    read_strictly(TypeAdapter(param), told)


def test_limits_that_a_provider_does_not_know_are_words() -> None:
    bound = STRICT.bound(schema_of(Limited))
    assert bound is not None
    parts = bound["properties"]
    assert parts["count"]["minimum"] == 1 and parts["few"]["maxItems"] == 3
    assert parts["word"]["description"] == "{minLength: 2}" and "minLength" not in parts["word"]
    assert parts["when"]["format"] == "date-time"
    # What may be left out need not be: the narrower schema fits.
    assert bound["required"] == ["count", "word", "few", "when", "note"]
    assert parts["note"]["description"] == "{default: none}"


def test_what_cannot_be_bound_is_not() -> None:
    assert format_of(OPEN) is None and STRICT.bound(OPEN) is None
    assert format_of(schema_of(Chain)) is None, "Anthropic knows no recursion"
    body = openai_body(asked(OPEN), model="gpt-5", dialect=OPENAI_DIALECT)
    assert body["response_format"]["json_schema"] == {
        "name": "Weather", "schema": OPEN, "strict": False,
    }  # fmt: skip
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        deep = {"type": "object", "properties": {"x": deep}, "required": ["x"]}
    assert STRICT.bound(deep) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "array", "prefixItems": [{}]}}},
        {"type": "object", "properties": {"a": {"allOf": [{"type": "null"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": {"enum": [[1]]}}},
        {"type": "object", "properties": {"a": {"type": "strange"}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
    ],
)
def test_what_no_provider_knows_is_never_sent_as_strict(schema: dict[str, Any]) -> None:
    assert STRICT.bound(schema) is None


def test_lists_of_types_become_branches() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["integer", "null"], "minimum": 3, "description": "x"}},
    }
    assert STRICT.bound(schema) == {
        "type": "object",
        "properties": {
            "a": {
                "anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}],
                "description": "x",
            }
        },
        "required": ["a"],
        "additionalProperties": False,
    }


GOOD = OutputSpec(name="Weather", schema=schema_of(Weather))


@pytest.mark.parametrize(
    ("name", "alone", "beside_tools"),
    [
        (f"anthropic:{SONNET}", True, True),
        ("anthropic:claude-opus-4-5-20251101", True, True),
        ("anthropic:claude-opus-5-5", True, True),
        ("anthropic:claude-opus-4-1-20250805", False, False),
        ("anthropic:claude-sonnet-4-20250514", False, False),
        ("anthropic:claude-3-7-sonnet-latest", False, False),
        (f"anthropic:{SONNET}@http://localhost:1", False, False),
        ("openai:gpt-5", True, True),
        ("openai:gpt-4o-mini", True, True),
        ("openai:gpt-4.1", True, True),
        ("openai:o3", True, True),
        ("openai:gpt-4", False, False),
        ("openai:gpt-4-turbo", False, False),
        ("openai:gpt-3.5-turbo", False, False),
        ("openai:gpt-5@http://localhost:1/v1", False, False),
        ("openai-responses:gpt-5", True, True),
        ("openai-responses:gpt-5@http://localhost:1/v1", False, False),
        ("ollama:qwen", True, False),
        ("groq:llama", False, False),
        ("mistral:large", True, False),
        ("deepseek:chat", False, False),
    ],
)
def test_a_model_says_whether_it_can_be_bound(name: str, alone: bool, beside_tools: bool) -> None:
    keys = {
        f"{each}_API_KEY": "k" for each in ("ANTHROPIC", "OPENAI", "GROQ", "MISTRAL", "DEEPSEEK")
    }
    model: Any = resolve_model(name, {}, keys)
    assert isinstance(model, AnthropicModel | OpenAIModel | ResponsesModel)
    assert model.takes_output(GOOD, False) is alone
    assert model.takes_output(GOOD, True) is beside_tools


def test_anthropic_is_not_bound_to_what_it_cannot_say() -> None:
    model = AnthropicModel(SONNET, key="k")
    assert not model.takes_output(OutputSpec(name="x", schema=OPEN), False)


def test_while_it_thinks_no_call_of_the_answer_is_demanded() -> None:
    tools = (WEATHER, ToolSpec(name="final_answer", description="x", schema=schema_of(Place)))
    asked = replace(HELLO, tools=tools, tool_choice="any")
    name = "claude-3-7-sonnet-latest"
    body = anthropic_body(asked, model=name, max_tokens=9000)
    assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    thinking = replace(asked, settings=ModelSettings(thinking=2000))
    body = anthropic_body(thinking, model=name, max_tokens=9000)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert anthropic_problems(body) == []


def test_requests_without_output_are_as_they_were() -> None:
    for body in (
        anthropic_body(HELLO, model=SONNET, max_tokens=9),
        openai_body(HELLO, model="gpt-5", dialect=OPENAI_DIALECT),
        responses_body(HELLO, model="gpt-5"),
    ):
        assert not {"output_config", "response_format", "text"} & body.keys()
