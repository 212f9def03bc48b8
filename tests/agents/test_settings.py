"""``ModelSettings``: what is typed, and what is refused when it is written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import Agent, ModelSettings, PromptDefinition
from hubbub.agents.settings import LEVELS
from hubbub.hub.errors import DefinitionError

pytestmark = pytest.mark.spec("L-07")

ALL: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "stop": ["END"], "seed": -1,
    "thinking": "high", "timeout": 9, "service_tier": "flex",
}  # fmt: skip


def problem_of(**given: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        ModelSettings(**given)
    (problem,) = caught.value.problems
    return problem


def test_settings_say_what_was_given_and_nothing_else() -> None:
    assert ModelSettings().given == ()
    assert set(ModelSettings(**ALL).given) == set(ALL)
    assert ModelSettings(stop=iter(["a", "b"])).stop == ("a", "b")  # type: ignore[arg-type]
    assert ModelSettings(temperature=0, top_p=1, seed=0).given == ("temperature", "top_p", "seed")


@pytest.mark.parametrize("level", LEVELS)
def test_thinking_is_off_or_a_level_or_tokens(level: Any) -> None:
    assert ModelSettings(thinking=level).thinks == (level != "off")
    assert ModelSettings(thinking=1).thinks and not ModelSettings().thinks


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"temperature": 2.1}, "temperature: expected a number from 0 to 2, not 2.1"),
        ({"temperature": float("nan")}, "temperature: expected a number from 0 to 2, not nan"),
        ({"temperature": True}, "temperature: expected a number from 0 to 2, not True"),
        ({"temperature": "hot"}, "temperature: expected a number from 0 to 2, not 'hot'"),
        ({"top_p": 0}, "top_p: expected a number above 0, at most 1, not 0"),
        ({"max_tokens": 0}, "max_tokens: expected a whole number from 1, not 0"),
        ({"max_tokens": 1.0}, "max_tokens: expected a whole number from 1, not 1.0"),
        ({"max_tokens": 2**63}, f"max_tokens: expected a whole number from 1, not {2**63}"),
        ({"seed": 2**63}, f"seed: expected a whole number of 64 bits, not {2**63}"),
        ({"timeout": 0}, "timeout: expected seconds above 0 and below 315,360,000, not 0"),
        (
            {"timeout": float("inf")},
            "timeout: expected seconds above 0 and below 315,360,000, not inf",
        ),
        ({"stop": "END"}, "stop: expected a list of texts, not 'END'"),
        ({"stop": ["a", ""]}, "stop[1]: expected at least one character"),
        ({"stop": [7]}, "stop[0]: expected a str, not int"),
        ({"stop": iter(int, 1)}, "stop: at most 16 texts"),
        ({"stop": ["x"] * 17}, "stop: at most 16 texts"),
        ({"service_tier": ""}, "service_tier: expected the provider's word, not ''"),
    ],
)
def test_a_wrong_value_is_told_with_its_name(given: dict[str, Any], problem: str) -> None:
    assert problem_of(**given) == problem


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("hihg", "did you mean 'high'?"),
        (True, 'give a level such as "high"'),
        (False, 'did you mean "off"?'),
        (0, 'none is "off"'),
        (2.5, "or a number of tokens, not 2.5"),
    ],
)
def test_thinking_in_other_words_says_what_was_meant(given: Any, hint: str) -> None:
    assert hint in problem_of(thinking=given)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(DefinitionError) as caught:
        ModelSettings(temperature=9, top_p=9, max_tokens=0, thinking="much")  # type: ignore[arg-type]
    assert [each.partition(":")[0] for each in caught.value.problems] == [
        "temperature", "top_p", "max_tokens", "thinking",
    ]  # fmt: skip


@given(st.fixed_dictionaries({}, optional={name: st.none() | st.from_type(object) for name in ALL}))
def test_whatever_is_given_is_settings_or_refused(given: dict[str, Any]) -> None:
    try:
        settings = ModelSettings(**given)
    except DefinitionError as error:
        named = {each.partition(":")[0].partition("[")[0] for each in error.problems}
        assert named <= set(ALL)
    else:
        assert set(settings.given) <= set(given)


def test_a_prompt_and_the_short_form_take_them() -> None:
    told = ModelSettings(**ALL)
    assert PromptDefinition(name="p", prompt="x", model="m", settings=told).settings is told
    side = Agent("a", "x", model="m", settings=told).side_a
    assert side is not None and isinstance(side.prompt, PromptDefinition)
    assert side.prompt.settings is told
    with pytest.raises(DefinitionError, match=r"settings: expected ModelSettings"):
        Agent("a", "x", model="m", settings={"seed": 1})  # type: ignore[arg-type]
