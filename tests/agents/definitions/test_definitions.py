"""Definitions are checked when they are made: every problem at once, each with its path."""

from collections.abc import Mapping, Sized
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.profiles import examples

from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig, agent
from hubbub.agents.definitions.prompt import (
    Immediate,
    PromptDefinition,
    Resumable,
    SubagentToolConfig,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.errors import DefinitionError, UnknownAgent
from hubbub.runtime.models.scripted import ScriptedModel

MODEL = ScriptedModel([])
SIDE = SideConfig(prompt="p")


@tool
def look() -> None: ...


async def execute(input: Any, ctx: Any) -> None: ...


def prompt(**fields: Any) -> PromptDefinition:
    return PromptDefinition(**{"name": "p", "prompt": "Help.", "model": MODEL, **fields})


def model_agent(**fields: Any) -> AgentDefinition:
    return AgentDefinition(**{"name": "a", "side_a": SIDE, **fields})


def problems(make: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        make()
    return "\n".join(caught.value.problems)


def defaults(kind: Any) -> dict[str, Any]:
    """The fields of a Struct that need not be given, with what they are then."""
    return {
        each.name: each.default
        if each.default_factory is msgspec.NODEFAULT
        else each.default_factory()
        for each in msgspec.structs.fields(kind)
        if not each.required
    }


# ── agents ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-01")
def test_an_agent_has_every_property_of_the_seed_with_its_default() -> None:
    body = {
        "execute": None, "emits_start_complete": False, "on_restart": "fail",
    }  # fmt: skip
    assert defaults(AgentDefinition) == {
        **body,
        "side_a": None,
        "type": "ai_human",
        "side_b": None,
        "max_session_turns": None,
        "title": "",
        "description": "",
        "icon": "",
        "expose_as_tool": False,
        "supports_checkpointing": False,
        "tool_description": "",
        "env": {},
        "hooks": (),
        "run_limits": None,
        "package_name": "",
        "version": "",
        "author": "",
        "license": "",
    }
    with pytest.raises(TypeError, match="name"):
        AgentDefinition(side_a=SIDE)  # type: ignore[call-arg]
    minimal = model_agent()
    assert (minimal.type, minimal.is_two_sided, minimal.is_code) == ("ai_human", False, False)


@pytest.mark.spec("D-01")
def test_a_definition_does_not_change() -> None:
    with pytest.raises(AttributeError):
        model_agent().name = "b"  # type: ignore[misc]


@pytest.mark.spec("R-01")
def test_an_agent_has_exactly_one_body() -> None:
    side = SideConfig(prompt="p")
    assert AgentDefinition(name="a", execute=execute).is_code
    assert not AgentDefinition(name="a", side_a=side).is_code
    assert "give one of them" in problems(lambda: AgentDefinition(name="a"))
    assert "not both" in problems(lambda: AgentDefinition(name="a", execute=execute, side_a=side))


@pytest.mark.spec("D-01")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("side_b", SIDE),
        ("max_session_turns", 3),
        ("hooks", ("h",)),
        ("type", "dual_ai"),
    ],
)
def test_a_code_agent_has_no_field_of_a_model_agent(field: str, value: Any) -> None:
    text = problems(lambda: AgentDefinition(name="a", execute=execute, **{field: value}))
    assert f"{field}: " in text and "belongs to a model agent" in text


@pytest.mark.spec("D-01")
@pytest.mark.parametrize(
    ("field", "value"), [("emits_start_complete", True), ("on_restart", "resume")]
)
def test_a_model_agent_has_no_field_of_a_code_agent(field: str, value: Any) -> None:
    text = problems(lambda: model_agent(**{field: value}))
    assert f"{field}: belongs to a code agent" in text


@pytest.mark.spec("R-01")
def test_the_decorator_keeps_the_docstring_and_the_options() -> None:
    @agent("coder", emits_start_complete=True, on_restart="resume")
    async def coder(input: str, ctx: Any) -> None:
        """Writes code."""

    assert (coder.name, coder.description, coder.on_restart) == ("coder", "Writes code.", "resume")
    assert coder.emits_start_complete


@pytest.mark.spec("D-01")
def test_dual_ai_needs_side_b_and_ai_human_refuses_it() -> None:
    assert problems(lambda: model_agent(type="dual_ai")) == "side_b: required for dual_ai"
    assert "side_b: the other side of ai_human is the user" in problems(
        lambda: model_agent(side_b=SIDE)
    )
    assert "side_a" in problems(lambda: AgentDefinition(name="a", type="dual_ai", side_b=SIDE))
    assert model_agent(type="dual_ai", side_b=SIDE).is_two_sided


@pytest.mark.spec("D-01")
def test_dual_ai_without_a_cap_on_its_turns_is_warned_of() -> None:
    unbounded = model_agent(type="dual_ai", side_b=SIDE)
    assert unbounded.warnings == (
        "max_session_turns: not given for dual_ai; a session may take 250 turns",
    )
    assert model_agent(type="dual_ai", side_b=SIDE, max_session_turns=40).warnings == ()
    assert model_agent().warnings == ()


@pytest.mark.spec("D-01")
def test_all_problems_are_told_at_once_with_their_paths() -> None:
    text = problems(
        lambda: AgentDefinition(
            name="bad name", side_a=SideConfig(prompt="", max_steps=0), emits_start_complete=True,
            on_restart="resume", type="trio",  # type: ignore[arg-type]
        )
    )  # fmt: skip
    for path in ("name:", "side_a.prompt:", "side_a.max_steps:", "emits_start_complete:",
                 "on_restart:", "type:"):  # fmt: skip
        assert path in text, text
    text = problems(
        lambda: AgentDefinition(
            name="", type="dual_ai", side_a=SideConfig(prompt="p", max_steps=0), title=7,
            max_session_turns=0, env={"A": 1}, hooks=["h", "h"],
        )  # type: ignore[arg-type]
    )  # fmt: skip
    for problem in ("name: expected 1 to 128 letters", "side_a.max_steps: at least 1",
                    "side_b: required for dual_ai", "max_session_turns: at least 1",
                    "env.A: expected a text", "hooks[1]: 'h' is listed twice",
                    "title: expected a text"):  # fmt: skip
        assert problem in text, text
    text = problems(lambda: prompt(name="", prompt=7, model="", tools=[print, "look"]))
    for path in ("name:", "prompt:", "model:", "tools[0]: print is not a tool"):
        assert path in text, text
    assert "has no `call`" in problems(lambda: prompt(model=object()))
    assert "tools:" in problems(lambda: prompt(tools="look"))


# ── sides and their bindings ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-02")
def test_a_side_has_every_property_of_the_seed_with_its_default() -> None:
    assert defaults(SideConfig) == {
        "label": "",
        "stop_on_response": True,
        "stop_tool": None,
        "stop_tool_response_property": None,
        "max_steps": None,
        "session_stop": None,
        "session_fail": None,
        "session_status": None,
    }
    with pytest.raises(TypeError, match="prompt"):
        SideConfig()  # type: ignore[call-arg]


@pytest.mark.spec("D-02")
@pytest.mark.parametrize("which", ["session_stop", "session_fail", "session_status"])
def test_a_binding_is_a_tools_name_or_an_object(which: str) -> None:
    by_name = SideConfig(prompt="p", **{which: "done"})  # type: ignore[arg-type]
    assert by_name.binding(which) == SessionToolBinding("done", None, None)
    given_ = SessionToolBinding("done", message_property="m", attachments_property="f")
    as_object = SideConfig(prompt="p", **{which: given_})  # type: ignore[arg-type]
    assert as_object.binding(which) is given_
    assert SideConfig(prompt="p").binding(which) is None
    assert model_agent(side_a=by_name) and model_agent(side_a=as_object)


@pytest.mark.spec("D-02")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prompt": ""}, "prompt: expected a PromptDefinition or its name"),
        ({"prompt": None}, "prompt: expected a PromptDefinition or its name"),
        ({"label": 7}, "label: expected a text"),
        ({"stop_on_response": "no"}, "stop_on_response: expected True or False"),
        ({"stop_tool": ""}, "stop_tool: expected a name"),
        ({"stop_tool": ["x"]}, "stop_tool: expected a name"),
        ({"stop_tool_response_property": "x"}, "stop_tool_response_property: there is no stop_"),
        ({"max_steps": 0}, "max_steps: at least 1"),
        ({"max_steps": True}, "max_steps: at least 1"),
        ({"max_steps": 1.5}, "max_steps: at least 1"),
        ({"session_stop": ""}, "session_stop: expected a tool's name or a SessionToolBinding"),
        ({"session_fail": 7}, "session_fail: expected a tool's name or a SessionToolBinding"),
        ({"session_status": SessionToolBinding([])}, "session_status: expected a tool's name or a"),  # type: ignore[arg-type]
        (
            {"session_stop": SessionToolBinding("x", message_property=[])},  # type: ignore[arg-type]
            "session_stop.message_property: expected a name",
        ),
        (
            {"session_stop": SessionToolBinding("x", attachments_property="")},
            "session_stop.attachments_property: expected a name",
        ),
        (
            {"session_stop": "x", "session_fail": SessionToolBinding("x")},
            "session_fail: 'x' is session_stop already",
        ),
    ],
)
def test_a_wrong_side_is_told_on_either_side(fields: dict[str, Any], problem: str) -> None:
    wrong = SideConfig(**{"prompt": "p", **fields})
    assert f"side_a.{problem}" in problems(lambda: model_agent(side_a=wrong))
    text = problems(lambda: model_agent(type="dual_ai", side_b=wrong))
    assert f"side_b.{problem}" in text and "side_a" not in text
    assert "side_a: expected a SideConfig, not str" in problems(lambda: model_agent(side_a="p"))


# ── prompts ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-03")
def test_a_prompt_has_every_property_with_its_default() -> None:
    assert defaults(PromptDefinition) == {
        "tools": (),
        "agents": (),
        "skills": (),
        "variables": (),
        "env": {},
        "hooks": None,
        "required_schema": None,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "provider_options": {},
        "cache": True,
        "settings": None,
        "compaction": True,
        "output": None,
        "limits": None,
    }
    with pytest.raises(TypeError, match="model"):
        PromptDefinition(name="p", prompt="x")  # type: ignore[call-arg]


@pytest.mark.spec("D-03")
def test_a_subagent_tool_has_every_knob_with_its_default() -> None:
    assert defaults(SubagentToolConfig) == {
        "blocking": True,
        "init_user_message_property": None,
        "init_attachments_property": None,
        "init_agent_name_property": None,
        "immediate": False,
        "optional": None,
        "resumable": False,
    }
    assert defaults(Resumable) == {
        "receives_messages": None, "max_instances": None, "parent_communication": "implicit",
    }  # fmt: skip
    assert defaults(Immediate) == {
        "name_env": None, "description_env": None, "scoped_env": (),
    }  # fmt: skip
    plain = SubagentToolConfig(name="x")
    assert (plain.stays, plain.is_immediate) == (None, False)
    assert SubagentToolConfig(name="x", immediate=True).is_immediate
    assert SubagentToolConfig(name="x", immediate=Immediate()).is_immediate
    stays = Resumable(receives_messages="side_b")
    assert SubagentToolConfig(name="x", resumable=stays).stays is stays
    assert SubagentToolConfig(name="x", resumable=None).stays is None


@pytest.mark.spec("D-11")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "receives_messages: required; 'side_a' or 'side_b'"),
        ({"receives_messages": "side_c"}, "receives_messages: 'side_a' or 'side_b', not 'side_c'"),
        ({"receives_messages": []}, "receives_messages: 'side_a' or 'side_b', not []"),
        (
            {"receives_messages": "side_a", "max_instances": 0},
            "max_instances: at least 1 and below 2**63",
        ),
        (
            {"receives_messages": "side_a", "max_instances": -1},
            "max_instances: at least 1 and below 2**63",
        ),
        (
            {"receives_messages": "side_a", "max_instances": 2.0},
            "max_instances: at least 1 and below 2**63",
        ),
        (
            {"receives_messages": "side_a", "max_instances": True},
            "max_instances: at least 1 and below 2**63",
        ),
        (
            {"receives_messages": "side_a", "parent_communication": "loud"},
            "parent_communication: 'implicit' or 'explicit', not 'loud'",
        ),
    ],
)
def test_a_child_that_stays_says_who_hears_its_messages(fields: Any, problem: str) -> None:
    text = problems(lambda: SubagentToolConfig(name="x", resumable=Resumable(**fields)))
    assert text == f"resumable.{problem}"


@pytest.mark.spec("D-03")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "no name"}, "name: expected 1 to 128 letters"),
        ({"blocking": 1}, "blocking: expected True or False"),
        ({"init_user_message_property": ""}, "init_user_message_property: expected a name"),
        ({"init_attachments_property": 7}, "init_attachments_property: expected a name"),
        ({"init_agent_name_property": []}, "init_agent_name_property: expected a name"),
        ({"optional": ""}, "optional: expected a name"),
        ({"immediate": "yes"}, "immediate: expected True, False or Immediate(…)"),
        ({"immediate": Immediate(name_env="")}, "immediate.name_env: expected a name"),
        (
            {"immediate": Immediate(description_env=[])},
            "immediate.description_env: expected a name",
        ),  # type: ignore[arg-type]
        ({"immediate": Immediate(scoped_env="KEY")}, "immediate.scoped_env: expected a list"),  # type: ignore[arg-type]
        ({"immediate": Immediate(scoped_env=None)}, "immediate.scoped_env: expected a list"),  # type: ignore[arg-type]
        ({"resumable": True}, "resumable: expected False or Resumable(receives_messages=…)"),
        ({"resumable": 0}, "resumable: expected False or Resumable(receives_messages=…)"),
    ],
)
def test_a_wrong_knob_of_a_subagent_tool_is_told(fields: Any, problem: str) -> None:
    text = problems(lambda: SubagentToolConfig(**{"name": "x", **fields}))
    assert text.startswith(problem) and "\n" not in text


@pytest.mark.spec("D-03")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": 7}, "name: expected 1 to 128 letters"),
        ({"prompt": None}, "prompt: expected a text"),
        ({"model": ""}, 'model: give "provider:name"'),
        ({"tools": None}, "tools: give a list of tools or of their names"),
        ({"tools": [look, 7]}, "tools[1]: int is not a tool"),
        ({"agents": "x"}, "agents: "),
        ({"agents": [7]}, "agents[0]: expected the name of an agent, not int"),
        ({"skills": [7]}, "skills[0]: expected a Skill or its name, not int"),
        ({"variables": "KEY"}, "variables: expected a list of VariableDefinitions"),
        ({"variables": ["KEY"]}, "variables[0]: expected VariableDefinition, not str"),
        ({"env": "A=1"}, "env: expected a mapping of names to texts"),
        ({"env": {"a b": "1"}}, "env: 'a b' is no variable's name"),
        ({"env": {"sk-live-0123456789": "1"}}, "env: 'sk-… (18 characters)' is no variable's name"),
        ({"hooks": "h"}, "hooks: expected a list of hook ids"),
        ({"hooks": [["h"]]}, "hooks[0]: expected a hook's id, not list"),
        ({"hooks": 7}, "hooks: expected a list of hook ids"),
        ({"required_schema": {"type": "string"}}, "required_schema: the top must be"),
        ({"required_schema": 7}, "required_schema: give a JSON schema"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls: expected True or False"),
        (
            {"tool_choice": None},
            'tool_choice: expected "auto", "none", "any" or the name of a tool',
        ),
        (
            {"tool_choice": {"type": "any"}},
            'tool_choice: expected "auto", "none", "any" or the name',
        ),
        ({"cache": "10m"}, 'cache: expected True, False, "5m" or "1h", not \'10m\''),
        ({"cache": 1}, 'cache: expected True, False, "5m" or "1h", not 1'),
        ({"compaction": None}, "compaction: expected True, False or Compaction(…), not None"),
        ({"compaction": 0.8}, "compaction: expected True, False or Compaction(…), not 0.8"),
        ({"cache": None}, 'cache: expected True, False, "5m" or "1h", not None'),
        ({"cache": ["5m"]}, 'cache: expected True, False, "5m" or "1h", not [\'5m\']'),
        (
            {"provider_options": None},
            "provider_options: expected a mapping of names to JSON values",
        ),
        (
            {"provider_options": {1: 2}},
            "provider_options: expected a mapping of names to JSON values",
        ),
    ],
)
def test_a_wrong_field_of_a_prompt_is_told(fields: Any, problem: str) -> None:
    text = problems(lambda: prompt(**fields))
    assert text.startswith(problem) and "\n" not in text


@pytest.mark.spec("D-11")
def test_duplicate_names_within_one_prompt_are_refused_with_their_path() -> None:
    twice = [VariableDefinition(name="A"), VariableDefinition(name="A", scoped=True)]
    assert problems(lambda: prompt(variables=twice)) == "variables[1]: the name 'A' is taken"
    assert problems(lambda: prompt(hooks=["h", "h"])) == "hooks[1]: 'h' is listed twice"


@pytest.mark.spec("D-09")
def test_a_secret_in_the_text_of_a_prompt_is_refused() -> None:
    secret = VariableDefinition(name="KEY")
    assert "prompt: {{KEY}} is secret" in problems(
        lambda: prompt(prompt="Use {{ KEY }}.", variables=[secret])
    )
    text = VariableDefinition(name="KEY", type="text")
    assert prompt(prompt="Use {{KEY}}.", variables=[text]).variables == (text,)


@pytest.mark.spec("D-03")
def test_lists_and_iterators_are_kept_as_tuples() -> None:
    variable = VariableDefinition(name="A")
    read_once = prompt(
        tools=iter([look]), variables=iter([variable]), hooks=(each for each in ["h"])
    )
    assert (read_once.tools, read_once.variables, read_once.hooks) == ((look,), (variable,), ("h",))
    assert model_agent(hooks=iter(["h"])).hooks == ("h",)
    once = Immediate(scoped_env=iter(["A"]))  # type: ignore[arg-type]
    SubagentToolConfig(name="x", immediate=once)
    assert once.scoped_env == ("A",)
    assert prompt(hooks=None).hooks is None and prompt(hooks=[]).hooks == ()


@pytest.mark.spec("D-03")
def test_env_may_be_any_mapping() -> None:
    env: Mapping[str, str] = MappingProxyType({"A": ""})
    assert prompt(env=env).env["A"] == "" and model_agent(env=env).env["A"] == ""


# ── together ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-03")
def test_names_are_resolved_when_everything_is_known() -> None:
    side = SideConfig(prompt="p", max_steps=7)
    definitions = Definitions(
        [AgentDefinition(name="a", side_a=side)], [prompt(tools=["look"])], [look]
    )
    active = definitions.side("a")
    assert (active.prompt.name, dict(active.tools), active.max_steps) == ("p", {"look": look}, 7)
    assert definitions.names == ("a",)
    default = Definitions([AgentDefinition(name="a", side_a=SideConfig(prompt=prompt()))])
    assert default.side("a").max_steps == 250


@pytest.mark.spec("D-01")
def test_what_does_not_fit_together_is_told_with_what_is_known() -> None:
    a = AgentDefinition(name="a", side_a=SideConfig(prompt="q"))
    b = AgentDefinition(name="b", side_a=SideConfig(prompt="p"))
    wrong = prompt(tools=["look", "dig"], tool_choice="x")
    text = problems(
        lambda: Definitions([a, b, a, "c"], [wrong], [look])  # type: ignore[list-item]
    )
    assert "agents.a.side_a.prompt: no prompt named 'q'; known: p" in text
    assert "agents.b.side_a.prompt.tools: no tool named 'dig'; known: look" in text
    assert "agents.b.side_a.prompt.tool_choice: no tool named 'x'" in text
    assert "agents[2]: the name 'a' is taken" in text
    assert "agents[3]: expected AgentDefinition, not str" in text
    twice = AgentDefinition(name="t", side_a=SideConfig(prompt=prompt(tools=[look, look])))
    assert "two tools are named 'look'" in problems(lambda: Definitions([twice]))


def test_an_unknown_agent_is_told_with_the_known_ones() -> None:
    definitions = Definitions([AgentDefinition(name="a", execute=execute)])
    with pytest.raises(UnknownAgent, match="no agent named 'b'; known agents: a"):
        definitions.agent("b")
    with pytest.raises(UnknownAgent):
        definitions.side("a")


# ── garbage ──────────────────────────────────────────────────────────────────────────────────


class Arguments(Struct):
    message: str


GARBAGE: list[Any] = [
    None, True, False, 0, -1, 1, 3.5, float("nan"), 1 << 80, "", "p", "a", "x y", "side_a",
    "\ud800", b"p", (), [], {}, set(), frozenset(["p"]), [[]], [None], ["p", "p"], ["look", "a"],
    [{}], {"a": []}, {1: 2}, {"a": {"b": None}}, object(), object, print, look, execute, int,
    Arguments, Exception, list[int], MODEL, range(3), SIDE, SideConfig(prompt=[]),  # type: ignore[arg-type]
    SideConfig(prompt="p", stop_tool=[], session_stop=[], label=[]),  # type: ignore[arg-type]
    SideConfig(prompt="p", session_stop=SessionToolBinding({}, {}, {})),  # type: ignore[arg-type]
    SessionToolBinding([]), Immediate(name_env=[], scoped_env=7), Immediate(scoped_env=[[]]),  # type: ignore[arg-type]
    Resumable(receives_messages=[], max_instances=[], parent_communication=[]),  # type: ignore[arg-type]
    Resumable(receives_messages={}, max_instances="1"),  # type: ignore[arg-type]
    [SubagentToolConfig(name="a")], [VariableDefinition(name=[], type=[])],  # type: ignore[arg-type]
    [VariableDefinition(name="A", description=[], required=[])],  # type: ignore[arg-type]
    {"type": "object", "properties": {}}, {"type": []}, {"type": "object", "properties": []},
]  # fmt: skip
garbage = (
    st.sampled_from(GARBAGE)
    | st.builds(lambda: iter([[]]))
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner)
            | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
        ),
        max_leaves=6,
    )
)


def good(kind: Any) -> dict[str, Any]:
    if kind is PromptDefinition:
        return {"name": "p", "prompt": "x", "model": "m", "tools": (look,)}
    if kind is AgentDefinition:
        return {"name": "a", "side_a": SIDE}
    return {"prompt": "p"} if kind is SideConfig else {"name": "look"}


def with_garbage(kind: Any) -> st.SearchStrategy[tuple[Any, dict[str, Any]]]:
    names = st.sampled_from([each.name for each in msgspec.structs.fields(kind)])
    fields = st.dictionaries(names, garbage, min_size=1, max_size=3)
    return fields.map(lambda wrong: (kind, {**good(kind), **wrong}))


KINDS = (
    AgentDefinition, PromptDefinition, SideConfig, SubagentToolConfig, SessionToolBinding,
    Resumable, Immediate,
)  # fmt: skip


def use(kind: Any, made: Any) -> None:
    """Put it where it belongs, together with what is good."""
    side: Any = made if kind is SideConfig else SIDE
    tools: list[Any] = [look]
    if kind is SessionToolBinding:
        side = SideConfig(prompt="p", session_stop=made)
    elif kind is SubagentToolConfig:
        tools.append(made)
    elif kind in (Resumable, Immediate):
        field = "resumable" if kind is Resumable else "immediate"
        tools.append(SubagentToolConfig(name="b", **{field: made}))
    a = made if kind is AgentDefinition else model_agent(side_a=side)
    b = model_agent(name="b", type="dual_ai", side_b=SideConfig(prompt="q"), expose_as_tool=True,
                    side_a=SideConfig(prompt="q"))  # fmt: skip
    p = made if kind is PromptDefinition else prompt(tools=tools)
    definitions = Definitions([a, b], [p, prompt(name="q")], [look])
    for name in definitions.names:
        for active in definitions.sides_of(name):
            assert active.offered is not None and active.immediate is not None
        definitions.scoped_of(name, lambda _: True)
    assert a.tool_text is not None and a.warnings is not None


@settings(max_examples=examples(1000), deadline=None)
@given(st.sampled_from(KINDS).flatmap(with_garbage))
@example((AgentDefinition, {"name": "a", "side_a": SIDE, "hooks": [[]]}))
@example((AgentDefinition, {"name": "a", "side_a": SIDE, "hooks": None}))
@example((SideConfig, {"prompt": "p", "stop_tool": ["x"]}))
@example((SessionToolBinding, {"name": ["x"]}))
@example((SessionToolBinding, {"name": "look", "message_property": ["x"]}))
@example((PromptDefinition, {"name": "p", "prompt": "x", "model": "m", "tool_choice": {}}))
@example((Immediate, {"scoped_env": None}))
def test_garbage_in_any_field_is_accepted_or_refused_as_a_definition(wrong: Any) -> None:
    kind, fields = wrong
    kept = {k: v for k, v in fields.items() if k in kind.__struct_fields__}
    try:
        use(kind, kind(**kept))
    except DefinitionError as problem:
        told = problem.problems
        # Each says where, in a line of its own.
        assert told and all(each and isinstance(each, str) for each in told)


@given(garbage, garbage, garbage, garbage)
def test_garbage_in_place_of_lists_of_definitions_is_refused(
    agents: Any, prompts: Any, tools: Any, hooks: Any
) -> None:
    given = (agents, prompts, tools, hooks)
    is_empty = all(each is None or (isinstance(each, Sized) and not len(each)) for each in given)
    try:
        Definitions(*given)
    except DefinitionError as problem:
        for each in problem.problems:
            assert each.startswith(("agents", "prompts", "tools", "hooks"))
    else:
        assert is_empty, "what is no definition was taken for one"
