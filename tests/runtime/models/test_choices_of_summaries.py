"""The ``tool_choice`` of a summary at Anthropic: a changed one gives up the cache of messages."""

import pytest
from msgspec.structs import replace

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.model import ModelRequest
from hubbub.agents.settings import ModelSettings
from hubbub.agents.turn.request import summary_request
from hubbub.runtime.models.anthropic.model import request_body
from hubbub.runtime.models.conformance.samples import HELLO, WEATHER

pytestmark = pytest.mark.spec("L-04")

STEP = replace(
    HELLO, tools=(WEATHER, replace(WEATHER, name=FINAL_ANSWER)), tool_choice="any",
    settings=ModelSettings(thinking="high"),
)  # fmt: skip


def choice_of(request: ModelRequest) -> object:
    return request_body(request, model="claude-sonnet-5", max_tokens=32_000)["tool_choice"]


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("demanded", ["any", FINAL_ANSWER])
def test_a_model_that_thinks_is_given_the_choice_of_its_steps(
    parallel: bool, demanded: str
) -> None:
    step = replace(STEP, parallel_tool_calls=parallel, tool_choice=demanded)
    summary = summary_request(step, step.messages, "", 1)
    assert choice_of(summary) == choice_of(step)


def test_of_a_model_that_does_not_think_no_call_is_demanded() -> None:
    step = replace(STEP, settings=None)
    assert choice_of(step) == {"type": "any", "disable_parallel_tool_use": True}
    assert choice_of(summary_request(step, step.messages, "", 1)) == {"type": "none"}
