"""Answers, read as the asker's type and as the schema on record says."""

import enum
import json
import time
from typing import Any, Literal

import pytest
from msgspec import Raw, Struct

from hubbub.agents.definitions.answers import AnswerReader, answer_problem
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.hub.events import SessionReply
from hubbub.hub.values import NULL, encode_value


class Class(enum.Enum):
    FIRST = "first"
    SECOND = "second"


class Seat(Struct):
    car: int
    kind: Class = Class.SECOND


class Trip(Struct):
    seats: list[Seat]
    back: Seat | None = None
    meal: Literal["fish", "none"] = "none"
    notes: dict[str, Seat] = {}


class Node(Struct):
    parent: "Node | None" = None


def problem(type_: Any, text: str, decision: Literal["", "deny"] = "") -> str:
    reply = SessionReply(prompt_id="run.p1", content=text, decision=decision)
    return answer_problem(AnswerReader(type_).schema, reply)


FITS: list[tuple[Any, str]] = [
    (Seat, '{"car": 3}'),
    (Seat, '{"car": 3, "kind": "first"}'),
    (Seat | None, "null"),
    (list[Seat], '[{"car": 1}, {"car": 2}]'),
    (list[Seat], "[]"),
    (Trip, '{"seats": [{"car": 1}], "back": {"car": 2, "kind": "first"}, "meal": "fish"}'),
    (Trip, '{"seats": [], "back": null, "notes": {"x": {"car": 1}}}'),
    (Class, "first"),
    (Class | None, '"first"'),
    (dict[str, Seat], '{"x": {"car": 1}}'),
    (str, "3"),
    (int | None, "3"),
]

FITS_NOT: list[tuple[Any, str, str]] = [
    (Seat, '{"car": "x"}', "`answer.car`: expected `int`, got `str`"),
    (Seat, '{"seat": 3}', "missing field `car`"),
    (Seat, '{"car": 3, "x": 1}', "unknown field `x`"),
    (Seat, "three", "expected `object`, got `str`"),
    (list[Seat], '[{"car": 1}, {}]', "`answer[1]`: missing field `car`"),
    (Trip, '{"seats": [], "back": {"car": 1, "kind": "third"}}', "'third' is not one of"),
    (Trip, '{"seats": [], "meal": "meat"}', "'meat' is not one of"),
    (Class, "third", "'third' is not one of"),
]


@pytest.mark.parametrize(("type_", "text"), FITS)
def test_what_the_asker_takes_fits_the_schema_on_record(type_: Any, text: str) -> None:
    AnswerReader(type_).read(text)
    assert problem(type_, text) == ""


@pytest.mark.parametrize(("type_", "text", "words"), FITS_NOT)
def test_what_the_asker_refuses_is_refused_by_the_schema_in_the_same_words(
    type_: Any, text: str, words: str
) -> None:
    reply = SessionReply(prompt_id="run.p1", content=text)
    assert words in problem(type_, text)
    assert words in AnswerReader(type_).problem(reply)


@pytest.mark.parametrize("type_", [Node, tuple[int, Seat], bytes])
def test_what_only_the_type_can_check_is_left_to_the_asker(type_: Any) -> None:
    assert problem(type_, "anything") == ""


def test_a_decision_needs_to_fit_nothing() -> None:
    assert problem(Seat, "no", "deny") == ""
    assert answer_problem(NULL, SessionReply(prompt_id="run.p1", content="no")) == ""


def references_without_end() -> Any:
    parts = {f"x{n}": {"anyOf": [{"$ref": f"#/$defs/x{n + 1}"}] * 2} for n in range(40)}
    return {"$ref": "#/$defs/x0", "$defs": {**parts, "x40": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"}, {"$ref": "#/$defs/x", "$defs": {"x": {"$ref": "#/$defs/x"}}},
        {"$ref": "#/$defs/x", "$defs": {"x": 3}}, {"$ref": "other.json#/x", "$defs": {}}, 3, [],
        {"$ref": "#/$defs/x", "$defs": 3}, references_without_end(),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_read_refuses_nothing(schema: Any) -> None:
    reply = SessionReply(prompt_id="run.p1", content="x")
    assert answer_problem(encode_value("schema", schema), reply) == ""


def test_a_deeply_nested_schema_refuses_nothing() -> None:
    schema = Raw(b'{"items":' * 5_000 + b"{}" + b"}" * 5_000)
    assert answer_problem(schema, SessionReply(prompt_id="run.p1", content="x")) == ""


def test_many_choices_are_looked_up_and_not_gone_through() -> None:
    """Each word of an answer was compared with each choice: a megabyte took seconds."""

    def seconds_for(count: int) -> float:
        words = [f"w{at:04}" for at in range(count)]
        reader = AnswerReader({"type": "array", "items": {"type": "string", "enum": words}})
        started = time.process_time()
        with pytest.raises(BadArguments, match="'no' is not one of 'w0000'"):
            reader.read(json.dumps([*[words[-1]] * 100_000, "no"]))
        return time.process_time() - started

    assert seconds_for(1_000) < 4 * max(seconds_for(10), 0.05)


def test_a_long_name_is_not_repeated_for_each_part_of_an_answer() -> None:
    def seconds_for(name: str) -> float:
        text = json.dumps({name: [{"car": 1}] * 50_000})
        started = time.process_time()
        AnswerReader(dict[str, list[Seat]]).read(text)
        return time.process_time() - started

    assert seconds_for("a" * 400_000) < 4 * max(seconds_for("a"), 0.05)
