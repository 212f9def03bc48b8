"""Variables: who gives the value, what a prompt shows of it, what a graph of agents needs."""

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    Resumable,
    SideConfig,
    SubagentToolConfig,
    VariableDefinition,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.definitions.variables import fill_prompt, is_true, placeholders, resolve
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.errors import DefinitionError
from hubbub.runtime.models.scripted import ScriptedModel

MODEL = ScriptedModel([])

NAMES = ("ONE", "TWO", "THREE")
names = st.sampled_from(NAMES)
values = st.one_of(st.just(""), st.text(max_size=5))
envs = st.dictionaries(names, values, max_size=3)


# ── D-07: the order ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-07", "D-09")
@given(
    name=names,
    own=envs,
    ancestors=st.lists(st.tuples(envs, st.frozensets(names)), max_size=4),
    defaults=st.tuples(envs, envs, envs),
    is_scoped=st.booleans(),
)
def test_the_first_that_has_a_value_gives_it(
    name: str,
    own: dict[str, str],
    ancestors: list[tuple[dict[str, str], frozenset[str]]],
    defaults: tuple[dict[str, str], ...],
    is_scoped: bool,
) -> None:
    heard_of = [
        env for env, given_here in ancestors if not is_scoped or name in given_here
    ]  # An ancestor that merely has a scoped variable is as if it had none.
    hits = [env[name] for env in (own, *heard_of, *defaults) if name in env]
    found = resolve(
        name,
        own=own.get,
        ancestors=[str(at) for at in range(len(ancestors))],
        own_of=lambda run_id, name: ancestors[int(run_id)][0].get(name),
        is_scoped=is_scoped,
        was_given=lambda run_id, name: name in ancestors[int(run_id)][1],
        defaults=defaults,
    )
    assert found == (hits[0] if hits else None)


# ── C-03: what counts as true ────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-03")
@pytest.mark.parametrize("word", ["true", "1", "yes", "TRUE", "Yes", "tRuE", "YES"])
def test_three_words_enable_a_branch_in_any_case(word: str) -> None:
    assert is_true(word)


@pytest.mark.spec("C-03")
@given(st.one_of(st.none(), st.text(), st.sampled_from(["on", "y", "t", "2", "01", "true "])))
@example("ye\u017f")  # A long s: its case folds to "yes", and it is another word.
@example(" yes")
@example("1\n")
def test_nothing_else_does(word: str | None) -> None:
    by_the_book = word is not None and re.fullmatch("true|1|yes", word, re.I | re.A) is not None
    assert is_true(word) == by_the_book


# ── D-09: prompts ────────────────────────────────────────────────────────────────────────────

words = st.one_of(
    st.text(alphabet="ab {}\n", max_size=4),
    st.sampled_from(["{{ONE}}", "{{ TWO }}", "{{THREE}}", "{{FOUR}}", "{ONE}", "{{}}"]),
)


@pytest.mark.spec("D-09")
@given(
    pieces=st.lists(words, max_size=6),
    kinds=st.dictionaries(names, st.sampled_from(["text", "secret"])),
    env=envs,
)
def test_a_text_variable_is_filled_in_and_nothing_else(
    pieces: list[str], kinds: dict[str, Any], env: dict[str, str]
) -> None:
    prompt = "|".join(pieces)
    variables = [VariableDefinition(name=name, type=kind) for name, kind in kinds.items()]
    texts = {name for name, kind in kinds.items() if kind == "text"}

    def piece(name: str, shown: str) -> str:
        return env.get(name, "") if name in texts else shown

    expected = re.sub(r"\{\{\s*([A-Z]+)\s*\}\}", lambda m: piece(m[1], m[0]), prompt)
    assert fill_prompt(prompt, variables, env.get) == expected
    assert placeholders(prompt) >= {name for name in NAMES if "{{" + name + "}}" in prompt}


@pytest.mark.spec("D-09")
def test_a_value_is_not_looked_into_for_further_names() -> None:
    one, two = (VariableDefinition(name=name, type="text") for name in ("ONE", "TWO"))
    values = {"ONE": "{{TWO}}", "TWO": "2"}
    assert fill_prompt("{{ONE}} {{TWO}}", [one, two], values.get) == "{{TWO}} 2"


def prompt(name: str = "p", **fields: Any) -> PromptDefinition:
    return PromptDefinition(**{"name": name, "prompt": "Help.", "model": MODEL, **fields})


def problems(make: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        make()
    return "\n".join(caught.value.problems)


@pytest.mark.spec("D-09")
def test_a_variable_is_secret_optional_and_inherited_unless_it_says_otherwise() -> None:
    variable = VariableDefinition(name="KEY")
    assert (variable.type, variable.required, variable.scoped) == ("secret", False, False)
    assert variable.description == ""


@pytest.mark.spec("D-09")
def test_a_secret_in_a_prompt_is_refused() -> None:
    text = problems(lambda: prompt(prompt="{{KEY}}", variables=(VariableDefinition(name="KEY"),)))
    assert "{{KEY}} is secret" in text


@pytest.mark.spec("D-09", "D-07")
def test_problems_of_variables_and_values_are_told_together_and_show_no_value() -> None:
    wrong: Any = VariableDefinition(name="A-B", type="other")  # type: ignore[arg-type]
    twice = VariableDefinition(name="KEY")
    text = problems(
        lambda: prompt(
            variables=(wrong, twice, twice, "KEY"), env={"KEY": 17, "BAD NAME": "planted"}
        )
    )
    for path in (
        "variables[0].name", "variables[0].type", "variables[2]", "variables[3]", "env.KEY",
        "'BAD NAME'",
    ):  # fmt: skip
        assert path in text
    assert "17" not in text and "planted" not in text

    def decorated() -> None:
        @tool(variables=[wrong])
        def look() -> None: ...

    assert "variables[0].name" in problems(decorated)


# ── V-01: what a graph needs ─────────────────────────────────────────────────────────────────


def two_sided(
    name: str, *, a: dict[str, Any] | None = None, b: dict[str, Any] | None = None, **fields: Any
) -> AgentDefinition:
    return AgentDefinition(
        name=name,
        type="dual_ai",
        expose_as_tool=True,
        max_session_turns=4,
        side_a=SideConfig(prompt=prompt(f"{name}-a", **(a or {}))),
        side_b=SideConfig(prompt=prompt(f"{name}-b", **(b or {}))),
        **fields,
    )


def scoped(name: str, *, required: bool = True) -> VariableDefinition:
    return VariableDefinition(name=name, scoped=True, required=required)


@pytest.mark.spec("V-01")
def test_the_graph_is_both_sides_their_tools_and_the_enabled_branches() -> None:
    @tool(variables=[scoped("OF_TOOL")])
    def look() -> None: ...

    stays = Resumable(receives_messages="side_a")
    top = two_sided(
        "top",
        a={
            "variables": (scoped("OF_A"), scoped("MAY_BE", required=False)),
            "tools": ("below", SubagentToolConfig(name="gated", optional="GATE")),
        },
        b={"variables": (scoped("OF_B"),)},
    )
    below = two_sided(
        "below",
        a={
            "tools": (look, SubagentToolConfig(name="top", resumable=stays)),
            "variables": (VariableDefinition(name="INHERITED", required=True),),
        },
    )
    gated = two_sided("gated", b={"variables": (scoped("OF_GATED"),)})
    known = Definitions([top, below, gated])
    assert set(known.scoped_of("top", lambda _: False)) == {"OF_A", "OF_B", "OF_TOOL"}
    assert set(known.scoped_of("top", {"GATE"}.__contains__)) == {
        "OF_A", "OF_B", "OF_TOOL", "OF_GATED",
    }  # fmt: skip
    assert set(known.scoped_of("below", lambda _: False)) == {"OF_TOOL", "OF_A", "OF_B"}
    assert known.scoped_of("gated", lambda _: False) == ("OF_GATED",)
    assert known.declares_scoped("top", "MAY_BE") and not known.declares_scoped("top", "OF_TOOL")


# ── C-04: who would start whom forever ──────────────────────────────────────────────────────


def starting(name: str) -> SubagentToolConfig:
    return SubagentToolConfig(name=name, immediate=True)


@pytest.mark.spec("C-04")
@settings(max_examples=examples(50))
@given(st.lists(st.frozensets(st.integers(0, 3), max_size=3), min_size=4, max_size=4))
def test_agents_that_would_start_themselves_are_refused_with_the_way_round(
    starts: list[frozenset[int]],
) -> None:
    agents = [
        two_sided(f"n{at}", a={"tools": tuple(starting(f"n{to}") for to in sorted(others))})
        for at, others in enumerate(starts)
    ]
    reached = [set(others) for others in starts]
    for _ in starts:
        reached = [one.union(*(reached[to] for to in one)) for one in reached]
    if not any(at in one for at, one in enumerate(reached)):
        Definitions(agents)
        return
    text = problems(lambda: Definitions(agents))
    assert "immediate subagents start each other" in text
    for way in re.findall(r"start each other: (.+)", text):
        steps = [int(step[1:]) for step in way.split(" → ")]
        assert steps[0] == steps[-1]
        assert all(to in starts[at] for at, to in pairwise(steps))


@pytest.mark.spec("C-04")
def test_a_side_b_that_starts_its_own_agent_is_refused() -> None:
    agent = two_sided("loop", b={"tools": (starting("loop"),)})
    assert "loop → loop" in problems(lambda: Definitions([agent]))
