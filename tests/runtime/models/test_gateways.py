"""A server at an address that is not its provider's own: what it is sent, and how to say more."""

from typing import Any

import pytest
from msgspec.structs import replace

from hubbub.runtime.models.conformance.samples import ILLUSTRATED, OUTPUT
from hubbub.runtime.models.openai.dialect import OPENAI_DIALECT, PLAIN, Dialect
from hubbub.runtime.models.openai.model import OpenAIModel, request_body

pytestmark = pytest.mark.spec("M-03")

URL = "https://gateway.example.com/v1"


def body(dialect: Dialect) -> dict[str, Any]:
    asked = replace(ILLUSTRATED, cache="5m", cache_key="run:side_a")
    return request_body(asked, model="gpt-5", dialect=dialect)


def test_what_an_unknown_server_is_not_sent_is_put_down_to_its_address() -> None:
    said = str(body(PLAIN))
    assert "report.pdf" in said
    assert "not shown: whether the server at this address takes the kind document" in said
    assert "this model takes no part" not in said
    assert "prompt_cache_key" not in said


def test_a_gateway_to_openai_is_sent_what_openai_is_where_it_is_said_to_be_one() -> None:
    said = body(OPENAI_DIALECT)
    assert "'type': 'file'" in str(said)
    assert said["prompt_cache_key"] == "run:side_a"
    # Of a model that is known it is said that it does not hear.
    assert "this model takes no part of the kind audio" in str(said)
    for model, has_formats in (
        (OpenAIModel("gpt-5", base_url=URL, dialect=OPENAI_DIALECT), True),
        (OpenAIModel("gpt-5", base_url=URL), False),
        (OpenAIModel("x", base_url=URL, dialect=Dialect(name="x", schemas="always")), True),
    ):
        assert model.takes_output(OUTPUT, True) is has_formats
        assert model.window == 0


def test_of_a_server_that_is_told_about_its_kinds_are_known() -> None:
    said = str(body(Dialect(takes=frozenset(["image", "document"]))))
    assert "'type': 'file'" in said
    assert "this model takes no part of the kind audio" in said
