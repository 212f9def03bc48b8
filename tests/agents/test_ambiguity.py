"""Patterns that may take without end to be tried are refused where they are written."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct
from support.profiles import examples

from hubbub import PromptDefinition, ScriptedModel, external_tool, tool
from hubbub.agents.ambiguity import MAX_MATCHED_CHARS, Effort, ambiguity_of
from hubbub.agents.definitions.answers import AnswerReader
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.external import given_tool
from hubbub.hub.errors import BadValue, DefinitionError

CATASTROPHIC = (
    r"^(a+)+$", r"(a*)*b", r"^(a|a)*$", r"^(a|aa)+$", r"^(\w+\s?)*$", r"^(\d+|\w+)*$",
    r"^(.*,)*$", r"^((a+)b?)+$", r"(x+x+)+y", r"(?=(a+)+$)x", r"((ab)*)*c", r"(a|b|ab)*c",
    r"^([a-z])(([\-.]|[_]+)?([a-z0-9]+))*@$", r"^(?:(?:a|b)+,?)+$",
    r"^([a-z]+ ?){1,20}$", r"^(a?){60}a{60}$", r"^((a{0,3}){0,3}){9}$", r"^(a?|b?)(a?|b?)$",
)  # fmt: skip
HARMLESS = (
    r"^[a-z]+(-[a-z]+)*$", r"^\d{4}-\d{2}-\d{2}$", r"^[^@]+@[^@]+\.[a-z]+$", r"^(\d+,)*\d+$",
    r"^(https?)://[^\s/]+(/[^\s]*)?$", r"^#([0-9a-f]{3}|[0-9a-f]{6})$", r"^(\d{3})*$", r"^.*$",
    r"^\s*(.*?)\s*$", r"^[A-Za-z0-9+/]+={0,2}$", r"^([01]\d|2[0-3]):[0-5]\d$",
    r"^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,}$", r"^(foo|fob|bar)*$",
    r"^[a-z]{1,64}$", r"^(x{0,2},)*$", r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$", r"^(?!-)[a-z-]+$",
    r'^"([^"\\]|\\.)*"$', r"^v?\d+(\.\d+){0,2}(-[\w.]+)?$", r"^(\w+\s)*\w+$",
    r"^[a-z](_?[a-z0-9])*$", r"^.{1,5000}$", r"(?i)^(a|b)*$", r"", r"^(a)?(?(1)b|c)$",
)  # fmt: skip


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_pattern_whose_loops_read_a_text_in_several_ways_is_found(pattern: str) -> None:
    assert "several ways" in ambiguity_of(pattern)


@pytest.mark.parametrize("pattern", HARMLESS)
def test_a_usual_pattern_is_not(pattern: str) -> None:
    assert ambiguity_of(pattern) == ""


def test_a_pattern_that_is_too_large_to_be_looked_at_is_refused() -> None:
    assert "too large" in ambiguity_of("(" + "|".join(f"(a{{{n}}}b)+" for n in range(1, 50)) + ")+")


PIECES = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "."]),
    lambda inner: st.one_of(
        st.builds("({}{})".format, inner, inner), st.builds("({}|{})".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}"])),
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(PIECES, min_size=30, max_size=30))
def test_what_is_accepted_is_tried_in_no_time(pieces: list[str]) -> None:
    """In a process of its own, for what is tried can be stopped in no other way."""
    patterns = [f"^{piece}$" for piece in pieces if not ambiguity_of(f"^{piece}$")]
    assume(patterns)
    program = (
        "import json, re, sys\n"
        "for pattern in json.load(sys.stdin):\n"
        "    for text in ('a' * 60 + '!', 'ab' * 30 + '!', 'b' * 60 + '!', 'aab' * 20 + '!'):\n"
        "        print(pattern, flush=True)\n"
        "        re.search(pattern, text)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(patterns), text=True, timeout=60,
        capture_output=True, check=True,
    )  # fmt: skip


SLOW: tuple[tuple[str, str], ...] = (
    (r"^\s*\w+\s*\w*\s*\w*$", "a" * 2_000 + "!"), (r"^.*a.*a.*a$", "a" * 2_000 + "!"),
    (r"^\s*(.*?)\s*$", " " * 5_000 + "\n!"), (r"^(((ab|a.){4}){4}){3}$", "ab" * 48),
    (r"(?=.*a.*b)x*a*$", "a" * 9_000), (r"a*a*a*b", "a" * 900), (r"(a*)(a*)\1\2b", "a" * 600),
    (r"^a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a{28}$", "a" * 28),
)  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), SLOW)
def test_a_text_that_a_pattern_reads_in_too_many_ways_is_not_tried(pattern: str, text: str) -> None:
    assert ambiguity_of(pattern) == ""
    assert Effort(pattern).is_too_much(text)


@pytest.mark.parametrize("pattern", HARMLESS)
def test_usual_texts_are_tried_with_usual_patterns(pattern: str) -> None:
    effort = Effort(pattern)
    texts = ("ann@example.org", "https://example.org/a/b?c=d", "2026-11-23", "1,2,3", "a-b-c", "")
    long = ("word " * 400, "x" * 3_000, "12." * 900)
    assert not any(map(effort.is_too_much, (*texts, *long)))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(PIECES, st.sampled_from(["^{}$", "{}c", "^{0}{0}$", "^({}){{3}}c", "(?={}c)a"])),
        min_size=20, max_size=20,
    ),
    st.lists(st.text("ab", max_size=8), min_size=4, max_size=4),
)  # fmt: skip
def test_what_is_no_effort_is_tried_in_no_time(
    pieces: list[tuple[str, str]], words: list[str]
) -> None:
    texts = ["a" * 400 + "!", *((word or "a") * 200 + "!" for word in words)]
    tried = []
    for piece, form in pieces:
        pattern = form.format(piece)
        if not ambiguity_of(pattern):
            effort = Effort(pattern)
            tried += [(pattern, text) for text in texts if not effort.is_too_much(text)]
    program = (
        "import json, re, sys, time\n"
        "for pattern, text in json.load(sys.stdin):\n"
        "    before = time.process_time()\n"
        "    re.search(pattern, text)\n"
        "    assert time.process_time() - before < 5, (pattern, text)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(tried), text=True, timeout=100,
        capture_output=True, check=True,
    )  # fmt: skip


# ── where patterns are written ───────────────────────────────────────────────────────────────

Bad = Annotated[str, Meta(pattern=r"^(a+)+$")]


class Nested(Struct):
    names: list[Bad]


@dataclass
class Record:
    nested: dict[str, Nested]


def test_it_is_refused_wherever_a_program_writes_one() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}

    def of(kind: Any) -> Any:
        def act(word: str) -> str:
            return word

        act.__annotations__["word"] = kind
        return act

    for kind in (Bad, Bad | None, list[Bad], dict[Bad, int], Nested, Record):
        with pytest.raises(DefinitionError, match="several ways"):
            tool(of(kind))
    for schema_ in (schema, Nested):
        with pytest.raises(DefinitionError, match=r"several ways"):
            PromptDefinition(
                name="p", prompt="", model=ScriptedModel(["x"]), required_schema=schema_
            )
        with pytest.raises(DefinitionError, match=r"several ways"):
            external_tool("out", schema_)
        with pytest.raises(BadValue, match="several ways"):
            AnswerReader(schema_)
    shown = given_tool("out", schema, description="", timeout=None)  # A client's: never tried.
    assert shown.parse('{"x": "b"}') and shown.schema["properties"]["x"]["pattern"] == "^(a+)+$"


def test_a_text_that_is_too_long_is_not_tried() -> None:
    """Also ahead of what is no JSON, in lists, names and nested records."""
    Word = Annotated[str, Meta(pattern=r"x*x*x*y$")]  # noqa: N806

    class Inner(Struct):
        word: Word

    @tool
    def act(
        word: Word, words: list[Word], by_name: dict[Word, int], inner: Inner, free: str
    ) -> str:
        return free

    long, fine = "x" * (MAX_MATCHED_CHARS + 1), "y"
    given = {"word": fine, "words": [fine], "by_name": {fine: 1}, "inner": {"word": fine}}
    assert act.parse(json.dumps({**given, "free": long * 9}))["free"] == long * 9
    for bad in (
        {"word": long}, {"words": [fine, long]}, {"by_name": {long: 1}}, {"inner": {"word": long}},
    ):  # fmt: skip
        with pytest.raises(BadArguments, match="10,001 characters; at most 10,000 are matched"):
            act.parse(json.dumps({**given, "free": "", **bad}))
    with pytest.raises(BadArguments, match="not valid JSON"):
        act.parse('{"word": "' + "x" * 900_000 + '", broken')
    with pytest.raises(BadArguments, match="matching regex"):
        act.parse(json.dumps({**given, "free": "", "word": "z"}))


def test_what_is_no_pattern_is_told_as_before() -> None:
    with pytest.raises(re.error):
        ambiguity_of("(")
