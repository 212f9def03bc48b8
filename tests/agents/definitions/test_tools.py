"""Tools: what is made of a function, and what the model reads of its calls (D-04)."""

import doctest
import functools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.definitions import tools
from hubbub.agents.definitions.tools import (
    MAX_ERROR_CHARS,
    MAX_RESULT_CHARS,
    NO_RESULT,
    BadArguments,
    ToolError,
    ToolResult,
    error_text,
    render_failure,
    render_result,
    tool,
)
from hubbub.hub.errors import DefinitionError

pytestmark = pytest.mark.spec("D-04")
pytest_plugins = ["pytester"]


@dataclass
class Place:
    """Where it is."""

    city: str
    zip: str | None = None
    tags: list[str] = field(default_factory=list)


@tool
def weather(city: str, days: int = 3) -> str:
    """Weather for a city."""
    return f"{city} {days}"


def problems_of(fn: Any, **options: Any) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        tool(fn, **options)
    return caught.value.problems


# ── the tool ─────────────────────────────────────────────────────────────────────────────────


def test_decorated_function_is_still_called_directly() -> None:
    assert weather("Rome") == "Rome 3"
    assert weather(city="Rome", days=1) == "Rome 1"


def test_decorator_works_bare_and_with_arguments() -> None:
    @tool(name="look-up", description="Looks.", timeout=None, idempotent=True)
    async def lookup(key: str) -> str:
        return key

    assert (weather.name, weather.description) == ("weather", "Weather for a city.")
    assert (weather.timeout, weather.idempotent, weather.is_async) == (300.0, False, False)
    assert (lookup.name, lookup.description) == ("look-up", "Looks.")
    assert (lookup.timeout, lookup.idempotent, lookup.is_async) == (None, True, True)


def test_spec_is_what_the_model_is_shown() -> None:
    assert weather.spec.name == "weather"
    assert weather.spec.description == "Weather for a city."
    assert weather.spec.schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }


def test_tool_is_immutable_and_names_itself() -> None:
    with pytest.raises(AttributeError):
        weather.name = "other"  # type: ignore[misc]
    assert repr(weather) == "<Tool weather(city, days)>"


def test_methods_partials_callables_and_wrapped_functions_are_tools() -> None:
    class Store:
        def get(self, key: str) -> str:
            """Get it."""
            return key * 2

        async def __call__(self, key: str) -> str:
            """Ask the store."""
            return key

    def three(a: int, b: int, c: int = 0) -> int:
        return a + b + c

    @functools.wraps(three)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return -three(*args, **kwargs)

    get, ask = tool(Store().get), tool(Store())
    assert (get.name, get.description, get("x"), list(get.parse('{"key":"k"}'))) == (
        "get",
        "Get it.",
        "xx",
        ["key"],
    )
    assert (ask.name, ask.description, ask.is_async) == ("Store", "Ask the store.", True)
    assert tool(functools.partial(three, b=2)).parse('{"a": 1}') == {"a": 1}
    assert tool(wrapper).parse('{"a": 1, "b": 2}') == {"a": 1, "b": 2}
    assert tool(wrapper)(1, 2) == -3


def test_tool_of_a_tool_is_made_from_its_function() -> None:
    again = tool(weather, name="forecast")
    assert (again.name, again.fn, again.schema) == ("forecast", weather.fn, weather.schema)


def test_docstring_examples_run() -> None:
    assert doctest.testmod(tools) == (0, 2)


def test_names_are_those_that_providers_accept() -> None:
    assert tool(weather.fn, name="a-Z_9" + "x" * 59).name
    for name in ("", "x" * 65, "a b", "é", "name\n"):
        assert problems_of(weather.fn, name=name)
    assert problems_of(lambda: None)
    with pytest.raises(DefinitionError, match="name="):
        tool("weather")  # type: ignore[call-overload]


# ── what the model reads ─────────────────────────────────────────────────────────────────────


def test_a_str_is_sent_as_is_and_anything_else_as_json() -> None:
    assert render_result("as is") == ToolResult("as is")
    assert render_result("") == ToolResult("")
    assert render_result(None) == ToolResult(NO_RESULT)
    assert render_result({"a": [1, Place("x")]}).content == (
        '{"a":[1,{"city":"x","zip":null,"tags":[]}]}'
    )
    assert render_result(True) == ToolResult("true")


def test_a_tool_result_passes_with_its_content_rendered() -> None:
    given_ = ToolResult({"a": 1}, is_error=True, attachments=("file-1",))
    assert render_result(given_) == ToolResult('{"a":1}', True, ("file-1",))
    assert render_result(ToolResult("text")) == ToolResult("text")


def test_what_json_cannot_hold_is_an_error_that_names_the_type() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value, name in ((object(), "object"), ({"a": {1j}}, "complex"), (loop, "list")):
        result = render_result(value)
        assert result.is_error
        assert name in result.content
    assert render_result(ToolResult(object(), attachments=("f",))).attachments == ("f",)


def test_long_results_are_cut_with_a_note() -> None:
    content = render_result("x" * (MAX_RESULT_CHARS + 1)).content
    assert len(content) == MAX_RESULT_CHARS
    assert content.endswith("[cut: the result has 1,000,001 characters, the limit is 1,000,000]")
    assert render_result("x" * MAX_RESULT_CHARS).content == "x" * MAX_RESULT_CHARS


scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.just(0.5) | st.text(max_size=3)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(json_values | st.text(st.characters(exclude_categories=())), st.integers(0, 99))
def test_rendered_content_is_bounded_valid_text(value: Any, limit: int) -> None:
    content = render_result(value, max_chars=limit).content
    assert len(content) <= max(limit, len(NO_RESULT))
    assert content.encode().decode() == content


@pytest.mark.spec("G-01")
def test_lone_surrogates_do_not_reach_the_journal() -> None:
    for value in ("a\ud800b", {"a": ["\ud800"]}, ToolResult("\ud800"), {"\ud800": 1}):
        result = render_result(value)
        assert result.is_error, "it is no text"
        assert result.content.encode()
    assert render_result(ToolResult("ok", attachments=("\ud800",))).is_error
    assert error_text(OSError("\udcff")).encode()


def test_error_text_is_type_and_message_and_bounded() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(KeyError("x")) == "KeyError: 'x'"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(Mute()) == "Mute: (its message cannot be read)"
    assert len(error_text(ValueError("x" * 9999))) == MAX_ERROR_CHARS
    group = ExceptionGroup("many", [ValueError("a"), ExceptionGroup("one", [KeyError("b")])])
    assert error_text(ExceptionGroup("one", [ValueError("a")])) == "ValueError: a"
    assert error_text(group) == "ValueError: a; ExceptionGroup: one (1 sub-exception)"


def test_failures_are_error_results_in_their_own_words() -> None:
    assert render_failure(ToolError("no such city")) == ToolResult("no such city", True)
    assert render_failure(ToolError()) == ToolResult("The tool failed.", True)
    assert render_failure(ExceptionGroup("", [ToolError("x")])) == ToolResult("x", True)
    assert render_failure(ZeroDivisionError("by 0")).content == "ZeroDivisionError: by 0"
    assert render_failure(BadArguments("t", ["p"])).content.startswith("Bad arguments for t:\n- p")


def test_a_tool_whose_name_begins_with_test_is_no_test_to_pytest(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_it="from hubbub import tool\n\n"
        "@tool\ndef test_connection(host: str) -> str:\n"
        '    """Test it."""\n    return host\n\n'
        "@tool\nasync def test_all() -> str:\n"
        '    """Test all."""\n    return ""\n\n'
        "def test_that_is_one():\n    assert test_connection('h') == 'h'\n"
    )
    done = pytester.runpytest_inprocess(
        "-W", "error", "-p", "no:cacheprovider", "-p", "no:schemathesis"
    )
    done.assert_outcomes(passed=1)
    assert done.ret == pytest.ExitCode.OK
