"""JSON that one caller could write, everybody can read."""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.hub.errors import BadValue
from hubbub.hub.values import MAX_NESTING, decode_value, encode_value, encoded_value


def nested(depth: int, inside: Any, *, in_objects: bool) -> Any:
    for _ in range(depth):
        inside = {"[": inside} if in_objects else [inside, "]}"]
    return inside


@pytest.mark.spec("G-07")
@given(over=st.integers(-3, 3), in_objects=st.booleans(), text=st.text('[]{}"\\ab', max_size=40))
def test_values_are_nested_up_to_one_limit_wherever_they_are_written(
    over: int, in_objects: bool, text: str
) -> None:
    value = nested(MAX_NESTING + over, text, in_objects=in_objects)
    if over > 0:
        with pytest.raises(BadValue, match=f"{MAX_NESTING} at most"):
            encode_value("input", value)
    else:
        assert decode_value(encode_value("input", value)) == value


@given(st.lists(st.text('[]{}"\\ab'), max_size=MAX_NESTING))
def test_what_is_written_in_texts_and_side_by_side_is_not_nested(texts: list[str]) -> None:
    value = [{"a": [text * 9]} for text in texts]
    assert decode_value(encode_value("input", value)) == value


@given(st.integers(MAX_NESTING - 3, MAX_NESTING + 3), st.integers(0, 400), st.booleans())
def test_values_side_by_side_count_once_however_deep_they_are(
    depth: int, before: int, in_objects: bool
) -> None:
    """``depth`` counts the list that holds them, and themselves."""
    inside: Any = [*([[]] * before), {}, [], 3]
    value = [[], {}, nested(depth - 3, inside, in_objects=in_objects), []]
    if depth > MAX_NESTING:
        with pytest.raises(BadValue, match=f"nested {depth} deep; {MAX_NESTING} at most"):
            encode_value("input", value)
    else:
        assert decode_value(encode_value("input", value)) == value


@pytest.mark.parametrize("one", [{}, [], ["a"], {"a": 'b"[]'}])
def test_a_value_of_very_many_parts_is_written_in_about_the_time_of_reading_it(one: Any) -> None:
    """Going through its brackets one by one took several times as long, and others waited."""
    value = [one] * 400_000
    text = msgspec.json.encode(value)
    started = time.process_time()
    msgspec.json.decode(text)
    to_read = time.process_time() - started
    started = time.process_time()
    encode_value("input", value)
    assert time.process_time() - started < 4 * max(to_read, 0.02)


@pytest.mark.parametrize("value", ["a\ud800", {"a": ["a\ud800"]}, {"a\ud800": 1}])
def test_half_of_a_surrogate_pair_is_refused_as_in_any_text(value: Any) -> None:
    with pytest.raises(BadValue, match="at 1 is half of a surrogate pair, no text; decode it"):
        encode_value("input", value)


@pytest.mark.spec("G-01")
@pytest.mark.parametrize(
    "raw",
    [
        b"nul",
        b'{"a":',
        b"[1",
        b'"\\ud800"',
        b'"\xff"',
        b'"\0"',
        b"01",
        b"-",
        b"1e999",
        b"1\n2",
    ],
)
@pytest.mark.parametrize("within", [lambda x: x, lambda x: [x], lambda x: {"a": (x,)}])
def test_json_that_nobody_can_read_is_refused_also_inside_of_a_value(
    raw: bytes, within: Callable[[Any], Any]
) -> None:
    value = within(msgspec.Raw(raw))
    with pytest.raises(BadValue, match="output"):
        encode_value("output", value)
    with pytest.raises((ValueError, msgspec.DecodeError)):
        encoded_value(value)


@pytest.mark.parametrize("raw", [b"null", b'"null"', b' {"a": [1, 2.5, "x"]} ', b'"\\u00e9"'])
def test_json_that_can_be_read_is_a_value_as_any(raw: bytes) -> None:
    assert decode_value(encode_value("output", [msgspec.Raw(raw)])) == [msgspec.json.decode(raw)]
