"""An agent, its prompts and all it can reach travel in one JSON file; loading runs no code."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.profiles import examples

from hubbub.agents.compaction import Compaction
from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import (
    Immediate,
    PromptDefinition,
    Resumable,
    SubagentToolConfig,
)
from hubbub.agents.definitions.short_form import Agent
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool, tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.packaging.format import (
    MAX_PACKAGE_CHARS,
    AgentPart,
    BindingPart,
    ChoicePart,
    CompactionPart,
    ImmediatePart,
    PromptPart,
    ResumablePart,
    SettingsPart,
    SidePart,
    SkillPart,
    SubagentPart,
    VariablePart,
)
from hubbub.agents.packaging.pack import Package, pack, unpack
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import DefinitionError, UnknownAgent
from hubbub.hub.events import Limits
from hubbub.runtime.models.scripted import ScriptedModel
from hubbub.runtime.runtime import Runtime

pytestmark = pytest.mark.spec("D-08")


@tool
def look(place: str) -> None:
    raise AssertionError("loading calls no tool")


@tool
def finish(summary: str, files: list[str]) -> None:
    raise AssertionError("loading calls no tool")


def no_hook(state: Any, value: Any) -> Any:
    raise AssertionError("loading calls no hook")


FIRST = Hook("first", "filter_messages", no_hook)
SECOND = Hook("second", "after_session", no_hook)


@tool
def say(message: str = "") -> None:
    raise AssertionError("loading calls no tool")


TOOLS: list[Tool[..., Any]] = [finish, look, say]
HOOKS = [FIRST, SECOND]
COMPACTIONS = st.builds(
    Compaction, at=st.sampled_from([0.5, 0.8]), keep=st.sampled_from([0.1, 0.25]),
    window=st.none() | st.integers(1, 9_000), instructions=st.sampled_from(["", "Keep names."]),
)  # fmt: skip
LIMITS = st.none() | st.builds(
    Limits, model_calls=st.none() | st.integers(1, 9), seconds=st.none() | st.floats(0.5, 9),
    cost=st.none() | st.floats(0.5, 9),
)  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "files": {"type": "array"}},
    "required": ["message"],
}


def prompt(name: str = "p", **fields: Any) -> PromptDefinition:
    return PromptDefinition(**{"name": name, "prompt": "Help.", "model": "openai:gpt", **fields})


def solo(*, agents: tuple[AgentDefinition, ...] = (), **fields: Any) -> Definitions:
    """One agent, ``a``, with one prompt given inline."""
    a = AgentDefinition(name="a", side_a=SideConfig(prompt=prompt(**fields)))
    return Definitions([a, *agents], tools=TOOLS, hooks=HOOKS)


def worker(name: str, reads: str | PromptDefinition = "w", **fields: Any) -> AgentDefinition:
    side = SideConfig(prompt=reads)
    given = {"type": "dual_ai", "side_a": side, "side_b": side, "expose_as_tool": True, **fields}
    return AgentDefinition(name=name, **given)


def team() -> Definitions:
    """A lead, a colleague it hands over to, a worker of both, its own worker; and a stranger."""
    lead = prompt(
        "lead",
        tools=[look, "colleague", SubagentToolConfig(name="worker", blocking=False)],
        hooks=["first"],
    )
    return Definitions(
        [
            AgentDefinition(
                name="lead",
                side_a=SideConfig(prompt=lead, stop_tool="look"),
                package_name="acme-lead",
                version="1.2.3",
                author="Ada",
                license="MIT",
            ),
            AgentDefinition(name="stranger", side_a=SideConfig(prompt="w", session_stop="finish")),
            AgentDefinition(
                name="colleague",
                side_a=SideConfig(prompt=prompt("talk", tools=["worker"])),
                expose_as_tool=True,
                hooks=("second",),
                version="0.9",
            ),
            worker("worker", prompt("work", tools=["deep"]), max_session_turns=3),
            worker("deep"),
        ],
        [prompt("w", tools=["finish"]), prompt("unused")],
        TOOLS,
        HOOKS,
    )


def again(package: Package) -> Definitions:
    return Definitions(
        package.agents, package.prompts, package.tools, package.hooks, package.skills
    )  # fmt: skip


def problems(data: Any, **given_: Any) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        unpack(data, **{"tools": TOOLS, "hooks": HOOKS, **given_})
    return caught.value.problems


def refusal(definitions: Definitions, agent: str = "a") -> str:
    with pytest.raises(DefinitionError) as caught:
        pack(definitions, agent)
    return "\n".join(caught.value.problems)


def changed(change: Any, definitions: Definitions | None = None, agent: str = "lead") -> bytes:
    """The team's file after ``change(file)``."""
    file = json.loads(pack(definitions or team(), agent))
    change(file)
    return json.dumps(file).encode()


# ── what is packed ───────────────────────────────────────────────────────────────────────────


def test_everything_reachable_is_packed_and_nothing_else() -> None:
    file = json.loads(pack(team(), "lead"))
    assert [each["name"] for each in file["agents"]] == ["lead", "colleague", "worker", "deep"]
    assert [each["name"] for each in file["prompts"]] == ["lead", "talk", "work", "w"]
    assert (file["tools"], file["hooks"]) == (["finish", "look"], ["first", "second"])
    deep = json.loads(pack(team(), "deep"))
    assert [each["name"] for each in deep["agents"]] == ["deep"]
    assert (deep["tools"], deep["hooks"]) == (["finish"], [])


def test_the_file_is_readable_json_with_its_format_and_the_metadata_of_the_packed_agent() -> None:
    data = pack(team(), "lead")
    file = json.loads(data)
    assert list(file) == [
        "hubbub_package", "agent", "package", "agents", "prompts", "tools", "hooks",
    ]  # fmt: skip
    assert (file["hubbub_package"], file["agent"]) == (1, "lead")
    assert file["package"] == {
        "package_name": "acme-lead", "version": "1.2.3", "author": "Ada", "license": "MIT",
    }  # fmt: skip
    assert "version" not in file["agents"][0] and file["agents"][1]["version"] == "0.9"
    assert data.startswith(b'{\n  "hubbub_package": 1,\n') and data.endswith(b"}\n")


def test_prompts_given_inline_and_tools_are_packed_by_name() -> None:
    file = json.loads(pack(team(), "lead"))
    assert file["agents"][0] == {"name": "lead", "side_a": {"prompt": "lead", "stop_tool": "look"}}
    assert file["prompts"][0] == {
        "name": "lead",
        "prompt": "Help.",
        "model": "openai:gpt",
        "tools": ["look", "colleague", {"name": "worker", "blocking": False}],
        "hooks": ["first"],
    }


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (AgentPart, AgentDefinition),
        (SidePart, SideConfig),
        (BindingPart, SessionToolBinding),
        (CompactionPart, Compaction),
        (PromptPart, PromptDefinition),
        (VariablePart, VariableDefinition),
        (SkillPart, Skill),
        (SubagentPart, SubagentToolConfig),
        (ImmediatePart, Immediate),
        (ResumablePart, Resumable),
        (SettingsPart, ModelSettings),
        (ChoicePart, ModelChoice),
    ],
)
def test_no_field_of_a_definition_is_left_out(part: Any, kind: Any) -> None:
    code_only = {"execute", "emits_start_complete", "on_restart"}
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    wire = {each.name: each for each in msgspec.structs.fields(part)}
    assert wire.keys() == fields.keys() - code_only
    for name, each in wire.items():
        required = {"side_a", "receives_messages"}
        if name not in required:
            assert (each.default, each.default_factory) == (
                fields[name].default, fields[name].default_factory,
            ), name  # fmt: skip


class Nested(Struct):
    place: str
    sizes: list[int] = []


class Wanted(Struct):
    message: str
    where: Nested
    others: list[Nested] = []
    limit: int | None = None


class Tree(Struct):
    message: str
    below: list["Tree"] = []


def test_a_required_schema_given_as_a_type_is_packed_as_its_json_schema() -> None:
    package = unpack(pack(solo(required_schema=Wanted), "a"), tools=())
    schema = package.prompts[0].required_schema
    assert isinstance(schema, dict) and "$defs" not in schema
    assert schema["required"] == ["message", "where"]
    assert schema["properties"]["where"]["properties"]["place"] == {"type": "string"}
    assert schema["properties"]["others"]["items"]["required"] == ["place"]


@pytest.mark.spec("L-03")
def test_an_output_given_as_a_type_is_packed_as_its_json_schema() -> None:
    class Model(pydantic.BaseModel):
        place: str
        limit: int | None = None

    class Checked(Struct):
        number: int

        def __post_init__(self) -> None: ...

    for output, required in ((Wanted, ["message", "where"]), (Model, ["place"])):
        package = unpack(pack(solo(output=output), "a"), tools=())
        schema = package.prompts[0].output
        assert isinstance(schema, dict) and "$defs" not in schema
        assert schema["required"] == required
    assert "prompts.p.output: Checked: __post_init__: would not run" in refusal(
        solo(output=Checked)
    )


def test_a_type_that_the_format_cannot_say_is_refused_with_a_remedy() -> None:
    text = refusal(solo(required_schema=Tree))
    assert "prompts.p.required_schema: Tree: Tree contains itself; give a JSON schema" in text

    class Pair(Struct):
        both: tuple[int, str]

    assert "prompts.p.required_schema: Pair: properties.both" in refusal(solo(required_schema=Pair))


# ── what cannot be packed ────────────────────────────────────────────────────────────────────


@pytest.mark.spec("L-06")
def test_a_list_of_models_is_packed_by_name_with_what_each_has_of_its_own() -> None:
    seeded = ModelChoice("openai:gpt", ModelSettings(seed=7), {"x": 1})
    file = json.loads(pack(solo(model=["anthropic:c", seeded]), "a"))
    assert file["prompts"][0]["model"] == [
        "anthropic:c",
        {"model": "openai:gpt", "settings": {"seed": 7}, "provider_options": {"x": 1}},
    ]
    text = refusal(solo(model=["anthropic:c", ModelChoice(ScriptedModel([]))]))
    assert "prompts.p.model[1]: a Model object cannot be packed; give the model by name" in text


def test_a_model_object_cannot_be_packed_and_the_remedy_is_told() -> None:
    text = refusal(solo(model=ScriptedModel([])))
    assert "prompts.p.model: a Model object cannot be packed; give the model by name" in text


@pytest.mark.spec("D-08", "U-02")
def test_an_agent_held_as_a_tool_is_in_the_file_by_name_and_exposed() -> None:
    leaf = Agent("leaf", "You work.", model="openai:gpt", title="Leaf")
    middle = Agent("middle", "You lead.", model="openai:gpt", tools=[leaf.as_tool(blocking=False)])
    top = Agent("top", "You lead.", model="openai:gpt", tools=[middle.as_tool(resumable=True)])
    data = pack(Definitions([top]), "top")
    package = unpack(data, tools=[])
    assert {each.name: each.expose_as_tool for each in package.agents} == {
        "top": False, "middle": True, "leaf": True,
    }  # fmt: skip
    (used,) = package.prompts[1].tools
    assert used == SubagentToolConfig(name="leaf", blocking=False)
    assert pack(again(package), "top") == data


def test_a_code_agent_cannot_be_packed() -> None:
    async def execute(input: Any, ctx: Any) -> None: ...

    definitions = Definitions([AgentDefinition(name="a", execute=execute)])
    assert "agents.a.execute: code cannot be packed" in refusal(definitions)


def test_an_agent_that_is_not_there_is_told_with_the_known_ones() -> None:
    with pytest.raises(UnknownAgent, match="no agent named 'x'"):
        pack(team(), "x")


def test_everything_that_cannot_be_packed_is_told_at_once() -> None:
    @tool(name="look")
    def other() -> None: ...

    model = ScriptedModel([])
    w = worker("w", prompt("q", prompt="Other.", tools=[other]))
    text = refusal(
        solo(
            agents=(w,),
            model=model,
            tools=[look, SubagentToolConfig(name="w")],
            provider_options={"seen": {1, 2}},
        )
    )
    assert "prompts.p.model: a Model object" in text
    assert "tools.look: two tools have this name" in text
    assert "prompts.p.provider_options.seen: {1, 2} is not JSON" in text


@pytest.mark.parametrize(
    "fields",
    [
        {"provider_options": {"x": float("nan")}},
        {"provider_options": {"x": object()}},
        {"variables": [VariableDefinition(name="A", required="yes")]},  # type: ignore[arg-type]
    ],
)
def test_what_json_cannot_hold_is_not_packed(fields: dict[str, Any]) -> None:
    assert refusal(solo(**fields))


# ── loading ──────────────────────────────────────────────────────────────────────────────────


def test_a_loaded_package_has_the_real_objects_and_is_ready_for_a_runtime() -> None:
    package = unpack(pack(team(), "lead"), tools=TOOLS, hooks=HOOKS)
    assert package.agent == "lead"
    assert (package.tools, package.hooks) == ((finish, look), (FIRST, SECOND))
    assert (package.package_name, package.version) == ("acme-lead", "1.2.3")
    assert (package.author, package.license) == ("Ada", "MIT")
    assert (package.agents[0].package_name, package.agents[1].version) == ("acme-lead", "0.9")
    runtime = Runtime(
        agents=package.agents,
        prompts=package.prompts,
        tools=package.tools,
        hooks=package.hooks,
        store="memory",
    )
    side = runtime.definitions.side("lead")
    assert side.tools["look"] is look and set(side.children) == {"worker"}
    assert set(side.handoffs) == {"colleague"}
    assert side.hooks == {"filter_messages": (FIRST,)}


def test_only_the_tools_and_hooks_that_a_package_names_are_taken() -> None:
    package = unpack(pack(team(), "deep").decode(), tools=TOOLS, hooks=HOOKS)
    assert (package.tools, package.hooks) == ((finish,), ())


def test_metadata_is_used_for_nothing_else() -> None:
    def anonymous(file: Any) -> None:
        file["package"] = {}

    given_, without = pack(team(), "lead"), changed(anonymous)
    one, other = (unpack(each, tools=TOOLS, hooks=HOOKS) for each in (given_, without))
    assert one.prompts == other.prompts and one.agents[1:] == other.agents[1:]
    plain = {"package_name": "", "version": "", "author": "", "license": ""}
    assert msgspec.structs.replace(one.agents[0], **plain) == other.agents[0]


def test_loading_imports_executes_and_opens_nothing() -> None:
    data = pack(team(), "lead")
    unpack(data, tools=TOOLS, hooks=HOOKS)  # Whatever is imported lazily is there now.
    told: list[str] = []
    is_on = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if is_on and event in ("import", "exec", "compile", "open", "subprocess.Popen"):
            told.append(event)

    sys.addaudithook(watch)  # Cannot be taken away again, hence the switch.
    try:
        unpack(data, tools=TOOLS, hooks=HOOKS)
    finally:
        is_on = False
    assert told == []


def test_names_that_look_like_code_are_only_names() -> None:
    def evil(file: Any) -> None:
        file["tools"] = ["os.system", "__import__('os').abort()", "look", "finish"]
        file["prompts"][0]["tools"] += file["tools"][:2]

    assert problems(changed(evil)) == (
        "tools: 'os.system' is missing; hand it over in tools=…",
        "tools: \"__import__('os').abort()\" is missing; hand it over in tools=…",
    )


# ── what is missing or malformed ─────────────────────────────────────────────────────────────


def test_all_missing_tools_and_hooks_are_listed() -> None:
    assert problems(pack(team(), "lead"), tools=[], hooks=[]) == (
        "tools: 'finish' is missing; hand it over in tools=…",
        "tools: 'look' is missing; hand it over in tools=…",
        "hooks: 'first' is missing; hand it over in hooks=…",
        "hooks: 'second' is missing; hand it over in hooks=…",
    )


def test_all_malformed_parts_and_missing_names_are_told_at_once_with_their_paths() -> None:
    def spoil(file: Any) -> None:
        lead, talk, work, w = file["prompts"]
        lead["tools"][2]["blockin"] = True
        talk["model"] = 7
        work["tools"].append({"name": "deep", "resumable": {"receives_messages": "side_c"}})
        w["tools"].append("dig")
        file["agents"][0]["side_a"]["max_steps"] = 0
        file["agents"][2]["side_b"] = None
        file["agents"][3]["side_a"]["prompt"] = "nowhere"

    text = "\n".join(problems(changed(spoil), hooks=[]))
    for problem in (
        "prompts[0].tools[2]: Object contains unknown field `blockin`",
        "prompts[1].model: Expected `str | array`, got `int`",
        "prompts[2].tools[1].resumable.receives_messages: 'side_a' or 'side_b', not 'side_c'",
        "prompts[3].tools[1]: the package has no tool or agent named 'dig'",
        "agents[0].side_a.max_steps: at least 1",
        "agents[2].side_b: required for dual_ai",
        "agents[3].side_a.prompt: the package has no prompt named 'nowhere'",
        "hooks: 'first' is missing",
        "hooks: 'second' is missing",
    ):
        assert problem in text, text


def test_what_does_not_fit_together_is_told_by_the_rules_for_definitions() -> None:
    def hide(file: Any) -> None:
        file["agents"][1]["expose_as_tool"] = False
        file["agents"][3]["side_a"]["session_stop"] = {"name": "finish", "message_property": "no"}

    text = "\n".join(problems(changed(hide)))
    assert "agents.lead.side_a.prompt.tools: agent 'colleague' is not exposed" in text
    assert "agents.deep.side_a.session_stop.message_property: the tool 'finish' has no 'no'" in text


def test_names_that_are_not_in_the_package_are_told() -> None:
    def lose(file: Any) -> None:
        file["agent"] = "nobody"
        file["hooks"] = []
        file["agents"] = [each for each in file["agents"] if each["name"] != "deep"]

    assert problems(changed(lose)) == (
        "agent: the package has no agent named 'nobody'",
        "prompts[0].hooks: the package has no hook named 'first'",
        "prompts[2].tools[0]: the package has no tool or agent named 'deep'",
        "agents[1].hooks: the package has no hook named 'second'",
    )


def test_duplicate_names_are_refused() -> None:
    def twice(file: Any) -> None:
        file["agents"].append(file["agents"][2])
        file["prompts"].append(file["prompts"][0])

    assert problems(changed(twice)) == (
        "agents[4].name: 'worker' is taken",
        "prompts[4].name: 'lead' is taken",
    )

    @tool(name="look")
    def other(place: str) -> None: ...

    text = problems(pack(team(), "lead"), tools=[*TOOLS, other])
    assert text == ("tools: two that were given are named 'look'",)


def test_metadata_stands_in_one_place() -> None:
    def contradict(file: Any) -> None:
        file["agents"][0]["version"] = "2"

    assert problems(changed(contradict)) == (
        "agents[0].version: stands in `package` for the packed agent",
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "this is no JSON"),
        (b"\xff\xfe", "this is no JSON"),
        ("\ud800", "this is no JSON"),
        (b"[" * 100_000, "this is no JSON"),
        (b"[]", "this is no package"),
        (b"{}", "this is no package"),
        (b'{"hubbub_package": "1"}', "this is no package"),
        (b'{"hubbub_package": true}', "this is no package"),
        (b'{"hubbub_package": 0}', "this is no package"),
        (b'{"hubbub_package": 2, "new": 1}', "format 2 is newer than 1, which this hubbub reads"),
        (b'{"hubbub_package": 1, "x": 1}', "x: unknown field"),
        (b'{"hubbub_package": 1}', "prompts: required"),
        (b" " * (MAX_PACKAGE_CHARS + 1), "8,388,609 characters are too many"),
        (None, "expected bytes or a text, not NoneType"),
        (7, "expected bytes or a text, not int"),
    ],
)
def test_what_is_no_package_of_this_format_is_refused(data: Any, problem: str) -> None:
    assert problem in "\n".join(problems(data))


def test_too_many_parts_and_endless_names_make_short_refusals() -> None:
    def swell(file: Any) -> None:
        file["agents"] *= 100
        file["prompts"][0]["tools"] = ["look"] * 100_000
        file["tools"].append("x" * 1_000_000)

    text = problems(changed(swell))
    assert "agents: Expected `array` of length <= 256" in text
    assert "prompts[0].tools: Expected `array` of length <= 256" in text
    assert sum(map(len, text)) < 100_000


def test_what_is_handed_over_must_be_tools_and_hooks() -> None:
    text = problems(pack(team(), "lead"), tools=[look, print, "finish"], hooks=None)
    assert "tools: expected Tool, not builtin_function_or_method" in text
    assert "tools: 'finish' is missing; hand it over in tools=…" in text
    assert "hooks: 'first' is missing; hand it over in hooks=…" in text


# ── round trips ──────────────────────────────────────────────────────────────────────────────

names = st.text("abcXYZ_09", min_size=1, max_size=6)
maybe = st.none() | names
texts = st.text(max_size=8)
# No value of what is declared secret below: that is refused.
envs = st.dictionaries(st.sampled_from(["A", "B_1", "d"]), texts, max_size=2)
limits = st.none() | st.integers(1, 1000)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
variables = st.lists(
    st.builds(
        VariableDefinition,
        name=st.sampled_from(["A", "B_1"]),
        type=st.just("text"),
        required=st.booleans(),
        scoped=st.booleans(),
        description=texts,
    )
    | st.builds(
        VariableDefinition,
        name=st.sampled_from(["c", "C"]),
        type=st.sampled_from(["secret", "text"]),
        required=st.booleans(),
        scoped=st.booleans(),
        description=texts,
    ),
    max_size=3,
    unique_by=lambda each: each.name,
)
hook_ids = st.lists(st.sampled_from(["first", "second"]), unique=True)
finishing = st.none() | st.just("finish") | st.builds(
    SessionToolBinding,
    name=st.just("finish"),
    message_property=st.sampled_from([None, "summary"]),
    attachments_property=st.sampled_from([None, "files"]),
)  # fmt: skip
looking = st.none() | st.builds(
    SessionToolBinding,
    name=st.just("look"),
    message_property=st.sampled_from([None, "place"]),
)


TALKERS = ["talker1", "talker2"]

# What a prompt shows may not be handed over as a secret: such names are refused (C-05).
SHOWN = {"A", "B_1", "c", "C"}
hidden = st.lists(names.filter(lambda name: name not in SHOWN)).map(tuple)


models = st.lists(
    names
    | st.builds(
        ModelChoice, names, st.none() | st.builds(ModelSettings, seed=st.integers(0, 9)),
        st.none() | st.just({"x": [1]}),
    ),
    min_size=2, max_size=3,
)  # fmt: skip
model_settings = st.builds(
    ModelSettings, temperature=st.none() | st.floats(0, 2), top_p=st.none() | st.just(0.5),
    max_tokens=limits, stop=st.lists(names, max_size=2), seed=st.none() | st.integers(-9, 9),
    thinking=st.sampled_from([None, "off", "high", 2048]), timeout=st.none() | st.floats(1, 9),
    service_tier=st.none() | names,
)  # fmt: skip


@st.composite
def subagents(draw: Any, name: str, *, may_start: bool) -> SubagentToolConfig:
    immediate = st.booleans() | st.builds(
        Immediate, name_env=maybe, description_env=maybe, scoped_env=hidden
    )
    lasting = st.builds(
        Resumable,
        receives_messages=st.sampled_from(["side_a", "side_b"]),
        max_instances=limits,
        parent_communication=st.sampled_from(["implicit", "explicit"]),
    )
    return SubagentToolConfig(
        name=name,
        blocking=draw(st.booleans()),
        init_user_message_property=draw(st.sampled_from([None, "message"])),
        init_attachments_property=draw(st.sampled_from([None, "files"])),
        immediate=draw(immediate) if may_start else False,
        optional=draw(maybe),
        resumable=draw(st.none() | st.just(False) | lasting),
    )


@st.composite
def skills(draw: Any, name: str, agents: list[str]) -> Skill:
    about: dict[str, Any] = {
        "name": name, "description": draw(names), "variables": tuple(draw(variables)),
        "env": draw(envs), "max_iterations": draw(st.integers(1, 99)),
    }  # fmt: skip
    if draw(st.booleans()):
        return Skill(**about, instructions=draw(texts), passthrough=draw(st.sampled_from(["say"])))
    tools = draw(st.none() | st.lists(st.sampled_from(["look", "finish"]), unique=True))
    if tools is not None:
        tools = (*tools, "use_agent")
    called = draw(st.none() | st.lists(st.sampled_from(agents), unique=True).map(tuple))
    model = draw(st.just("") | names)
    return Skill(**about, instructions=draw(names), tools=tools, agents=called, model=model)


@st.composite
def prompts(
    draw: Any, name: str, children: list[str], handoffs: list[str], skilled: list[str]
) -> PromptDefinition:
    tools: list[Any] = ["finish", "look"]
    for each in draw(st.lists(st.sampled_from(children), unique=True)):
        plain = draw(st.booleans())
        tools.append(each if plain else draw(subagents(each, may_start=name == "main")))
    if name == "main" and handoffs:
        tools += draw(st.lists(st.sampled_from(handoffs), unique=True))
    talks = name == "main"
    return PromptDefinition(
        name=name,
        prompt=draw(texts),
        model=draw(names | models),
        tools=tuple(draw(st.permutations(tools))),
        agents=tuple(draw(st.lists(st.sampled_from(TALKERS), unique=True))) if talks else (),
        skills=tuple(draw(st.lists(st.sampled_from(skilled), unique=True))) if talks else (),
        variables=tuple(draw(variables)),
        env=draw(envs),
        hooks=draw(st.none() | hook_ids.map(tuple)),
        required_schema=draw(st.sampled_from([None, SCHEMA])) if name != "main" else None,
        parallel_tool_calls=draw(st.booleans()),
        tool_choice=draw(st.sampled_from(["auto", "none", "any", "look"])),
        provider_options=draw(st.dictionaries(texts, json_values, max_size=3)),
        cache=draw(st.sampled_from([True, False, "5m", "1h"])),
        settings=draw(st.none() | model_settings),
        compaction=draw(st.booleans() | COMPACTIONS),
        limits=draw(LIMITS),
    )


def sides(prompt: str) -> st.SearchStrategy[SideConfig]:
    return st.builds(
        SideConfig,
        prompt=st.just(prompt),
        label=texts,
        stop_on_response=st.booleans(),
        stop_tool=st.just("look"),
        stop_tool_response_property=maybe,
        max_steps=limits,
        session_stop=finishing,
        session_fail=looking,
        session_status=st.none(),
    )


@st.composite
def families(draw: Any) -> Definitions:
    """Definitions whose names are all by name, with ``main`` reaching any part of the rest."""
    children = [f"child{index}" for index in range(draw(st.integers(1, 3)))]
    handoffs = ["other"] if draw(st.booleans()) else []
    skilled = ["skill1", "skill2"]
    about_skills = [draw(skills(name, TALKERS)) for name in skilled]
    known = [draw(prompts(name, children, handoffs, skilled)) for name in ("main", "p1", "p2")]
    reads = st.sampled_from(["p1", "p2"])
    metadata = ("package_name", "version", "author", "license")
    shown = ("title", "description", "icon", "tool_description")
    about: dict[str, Any] = dict.fromkeys((*metadata, *shown), texts)
    about |= {
        "run_limits": LIMITS,
        "env": envs,
        "hooks": hook_ids.map(tuple),
        "max_session_turns": limits,
    }

    def agent(name: str, **fields: Any) -> AgentDefinition:
        drawn: AgentDefinition = draw(
            st.builds(AgentDefinition, name=st.just(name), **about, **fields)
        )
        return drawn

    exposed = st.just(True)
    asks = {"supports_checkpointing": st.booleans()}
    agents = [agent("main", side_a=sides("main"), expose_as_tool=st.booleans(), **asks)]
    agents += [agent(name, side_a=sides(draw(reads)), expose_as_tool=exposed) for name in TALKERS]
    agents += [
        agent(
            name, type=st.just("dual_ai"), side_a=sides(draw(reads)), side_b=sides(draw(reads)),
            expose_as_tool=exposed,
        )
        for name in children
    ]  # fmt: skip
    agents += [agent(name, side_a=sides("main"), expose_as_tool=exposed) for name in handoffs]
    return Definitions(agents, known, TOOLS, HOOKS, about_skills)


slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(families())
def test_a_package_holds_equal_definitions_and_packs_to_the_same_bytes(family: Definitions) -> None:
    data = pack(family, "main")
    package = unpack(data, tools=TOOLS, hooks=HOOKS)
    for agent in package.agents:
        assert agent == family.agent(agent.name)
    for each in package.prompts:
        assert each == family.prompts[each.name]
    for skill in package.skills:
        given_ = family.skills[skill.name]
        assert skill == msgspec.structs.replace(given_, passthrough=skill.passthrough)
        assert skill.passthrough == getattr(given_.passthrough, "name", "")
    root = family.agent("main")
    for field in ("package_name", "version", "author", "license"):
        assert getattr(package, field) == getattr(root, field)
    assert pack(again(package), package.agent) == data
    assert pack(family, "main") == data
    everything = {*family.names}
    reached = {each.name for each in package.agents}
    assert reached <= everything and reached == reachable(family, "main")


def reachable(family: Definitions, agent: str) -> set[str]:
    """By the definitions' own words, not by their resolution."""
    found: set[str] = set()
    left = [agent]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        definition = family.agent(name)
        for side in (definition.side_a, definition.side_b):
            if side is not None and isinstance(side.prompt, str):
                prompt_ = family.prompts[side.prompt]
                left += prompt_.agents
                for skill in prompt_.skills:
                    left += family.skills[str(skill)].agents or ()
                for each in prompt_.tools:
                    other = each.name if isinstance(each, SubagentToolConfig) else each
                    if other in family.names:
                        left.append(str(other))
    return found


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        yield from paths(each, (*path, key))


FULL = solo(
    agents=(worker("b", prompt("q", required_schema=SCHEMA, prompt="You {{A}}",
                               variables=[VariableDefinition(name="A", type="text")])),),
    tools=["look", SubagentToolConfig(
        name="b", init_attachments_property="files",
        immediate=Immediate(name_env="A", scoped_env=("B",)),
        resumable=Resumable(receives_messages="side_b", max_instances=2),
    )],
    hooks=["first"], env={"A": "1"}, provider_options={"x": [1]},
    settings=ModelSettings(temperature=0.5, stop=["END"], thinking="high"),
)  # fmt: skip
FULL_FILE = json.loads(pack(FULL, "a"))
FULL_PATHS = [path for path in paths(FULL_FILE) if path]


@settings(max_examples=examples(500), deadline=None)
@given(st.sampled_from(FULL_PATHS), json_values | st.just([[]]) | st.just({"": {}}), st.booleans())
@example(("hubbub_package",), 1 << 62, True)
def test_one_wrong_value_anywhere_is_refused_or_read_and_never_another_exception(
    path: tuple[Any, ...], value: Any, adds: bool
) -> None:
    file = json.loads(json.dumps(FULL_FILE))
    holder = file
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    if adds and isinstance(holder, dict):
        holder["surplus"] = value
    try:
        package = unpack(json.dumps(file), tools=TOOLS, hooks=HOOKS)
    except DefinitionError:
        return
    assert pack(again(package), package.agent)


@given(st.binary(max_size=200) | st.text(max_size=200) | json_values.map(json.dumps))
def test_garbage_is_refused_as_a_definition(data: bytes | str) -> None:
    assert problems(data)


@pytest.mark.spec("D-08", "V-03")
def test_the_value_of_a_secret_variable_is_not_packed() -> None:
    token = VariableDefinition(name="TOKEN")
    text = refusal(solo(variables=[token], env={"TOKEN": "planted", "REGION": "north"}))
    assert "prompts.p.env.TOKEN: the variable is secret" in text
    assert "planted" not in text and "REGION" not in text


# ── takeover ─────────────────────────────────────────────────────────────────────────────────


def stacked() -> Definitions:
    """A main agent that gives the conversation away, to agents and to skills."""
    talker = AgentDefinition(
        name="talker", expose_as_tool=True, supports_checkpointing=True,
        side_a=SideConfig(prompt=prompt("talk", agents=["far"])),
    )  # fmt: skip
    far = AgentDefinition(name="far", expose_as_tool=True, side_a=SideConfig(prompt=prompt("far")))
    stranger = AgentDefinition(
        name="stranger", expose_as_tool=True, side_a=SideConfig(prompt=prompt("odd"))
    )
    token = VariableDefinition(name="TOKEN", required=True)
    skills_ = (
        Skill(name="writer", description="Writes.", instructions="Write.", tools=(look,),
              model="openai:gpt", max_iterations=7, variables=(token,)),
        Skill(name="asker", description="Asks.", instructions="Ask.", tools=("use_agent",),
              agents=("talker",)),
        Skill(name="all", description="Does all.", instructions="Do."),
        Skill(name="code", description="Codes.", passthrough=say),
    )  # fmt: skip
    return solo(agents=(talker, far, stranger), skills=skills_, tools=[finish])


def test_whom_a_conversation_may_be_given_to_is_packed_skills_by_value() -> None:
    file = json.loads(pack(stacked(), "a"))
    assert [each["name"] for each in file["agents"]] == ["a", "talker", "far"]
    assert file["agents"][1]["supports_checkpointing"] is True
    assert file["prompts"][0]["skills"] == ["writer", "asker", "all", "code"]
    assert file["skills"] == [
        {
            "name": "writer", "description": "Writes.", "instructions": "Write.",
            "tools": ["look"], "model": "openai:gpt", "max_iterations": 7,
            "variables": [{"name": "TOKEN", "required": True}],
        },
        {
            "name": "asker", "description": "Asks.", "instructions": "Ask.",
            "tools": ["use_agent"], "agents": ["talker"],
        },
        {"name": "all", "description": "Does all.", "instructions": "Do."},
        {"name": "code", "description": "Codes.", "passthrough": "say"},
    ]  # fmt: skip
    assert file["tools"] == ["finish", "look", "say"]


def test_a_loaded_skill_is_ready_for_a_runtime() -> None:
    data = pack(stacked(), "a")
    package = unpack(data, tools=TOOLS)
    runtime = Runtime(
        package.agents, package.prompts, package.tools, skills=package.skills, store="memory"
    )
    side = runtime.definitions.side("a")
    assert list(side.skills) == ["writer", "asker", "all", "code"]
    assert side.skills["code"].passthrough is say
    assert list(runtime.definitions.side("skill:writer").tools) == ["look"]
    assert list(runtime.definitions.side("skill:asker").agents) == ["talker"]
    assert "interrupt" in runtime.definitions.side("talker").offered
    assert pack(again(package), "a") == data


def test_a_package_without_skills_is_what_it_always_was() -> None:
    data = pack(team(), "lead")
    assert "skills" not in json.loads(data)
    assert unpack(data, tools=TOOLS, hooks=HOOKS).skills == ()


def test_what_a_skill_names_must_be_in_the_package() -> None:
    file = json.loads(pack(stacked(), "a"))
    file["skills"][0]["tools"] = ["gone"]
    file["skills"][1]["agents"] = ["nobody"]
    file["skills"][3]["passthrough"] = "gone"
    file["prompts"][0]["skills"].append("unknown")
    assert problems(json.dumps(file)) == (
        "prompts[0].skills: the package has no skill named 'unknown'",
        "skills[0].tools: the package has no tool named 'gone'",
        "skills[1].agents: the package has no agent named 'nobody'",
        "skills[3].passthrough: the package has no tool named 'gone'",
    )


def test_what_of_a_skill_cannot_be_packed_is_told() -> None:
    token = VariableDefinition(name="TOKEN")
    skill = Skill(
        name="s", description="d", instructions="i", model=ScriptedModel([]), variables=(token,),
        env={"TOKEN": "x"}, tools=(),
    )  # fmt: skip
    found = refusal(solo(skills=(skill,)))
    assert "skills.s.model: a Model object cannot be packed" in found
    assert "skills.s.env.TOKEN: the variable is secret" in found
