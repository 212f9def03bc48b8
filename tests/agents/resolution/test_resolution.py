"""How definitions fit together: what a name stands for, and everything that is refused."""

import inspect
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Struct, structs

from hubbub.agents.built_in import BUILT_IN
from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import (
    Immediate,
    PromptDefinition,
    Resumable,
    SubagentToolConfig,
)
from hubbub.agents.definitions.short_form import Agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.turn.child_calls import ChildRequest, child_specs, read_call
from hubbub.hub.errors import DefinitionError

BUILT_IN_NAMES = (
    "complete", "interrupt", "use_agent", "use_skill", "subagent_create", "subagent_message",
    "send_agent_message",
)  # fmt: skip
STAYS = Resumable(receives_messages="side_a")


@tool
def look(place: str) -> None: ...


@tool
def finish(summary: str, files: list[str]) -> None: ...


def note(state: Any, value: Any) -> Any: ...


def prompt(name: str = "p", **fields: Any) -> PromptDefinition:
    return PromptDefinition(**{"name": name, "prompt": "Help.", "model": "openai:gpt", **fields})


def human(name: str = "a", **fields: Any) -> AgentDefinition:
    side = {"side_a": SideConfig(prompt=fields.pop("reads", "p"))}
    return AgentDefinition(**{"name": name, **side, **fields})


def dual(name: str = "d", **fields: Any) -> AgentDefinition:
    side = SideConfig(prompt=fields.pop("reads", "q"))
    given = {"type": "dual_ai", "side_a": side, "side_b": side, "expose_as_tool": True, **fields}
    return AgentDefinition(name=name, **given)


def side_with(*tools: Any, others: tuple[AgentDefinition, ...] = (), **fields: Any) -> Any:
    """Side A of an ``ai_human`` agent with these tools, among these other agents."""
    return Definitions(
        [human(), *others], [prompt(tools=tools, **fields), prompt("q")], [look, finish]
    ).side("a")


def problems(*agents: Any, **known: Any) -> tuple[str, ...]:
    """What is wrong with these agents, which read the prompt ``p`` or ``q``."""
    given = {"prompts": [prompt(), prompt("q")], "tools": [look, finish], **known}
    with pytest.raises(DefinitionError) as caught:
        Definitions(agents, **given)
    return caught.value.problems


def problems_of_tools(*tools: Any, others: tuple[Any, ...] = ()) -> tuple[str, ...]:
    return problems(human(), *others, prompts=[prompt(tools=tools), prompt("q")])


# ── names that are not there ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-01")
def test_every_unknown_name_is_told_at_once_with_its_path_and_what_is_known() -> None:
    hook = Hook("note", "after_session", note)
    text = problems(
        human("a", hooks=("gone",)),
        human("b", reads="nowhere"),
        human("c", reads="h"),
        prompts=[
            prompt(tools=["dig", SubagentToolConfig(name="nobody")], tool_choice="dig"),
            prompt("h", hooks=["lost", "note"]),
        ],
        hooks=[hook],
    )
    assert text == (
        "agents.a.hooks: no hook with the id 'gone'; known: note",
        "agents.a.side_a.prompt.tools: no tool named 'dig'; known: finish, look; "
        "exposed agents: none",
        "agents.a.side_a.prompt.tools: no agent named 'nobody'; known: a, b, c",
        "agents.a.side_a.prompt.tool_choice: no tool named 'dig'",
        "agents.b.side_a.prompt: no prompt named 'nowhere'; known: h, p",
        "agents.c.side_a.prompt.hooks: no hook with the id 'lost'; known: note",
    )


@pytest.mark.spec("D-01")
def test_an_unknown_hook_of_an_agent_is_told_even_if_its_prompts_have_their_own() -> None:
    text = problems(human(hooks=("gone",)), prompts=[prompt(hooks=[])])
    assert text == ("agents.a.hooks: no hook with the id 'gone'; known: none",)


@pytest.mark.spec("D-01")
def test_both_sides_are_looked_at() -> None:
    d = dual(side_a=SideConfig(prompt="x"), side_b=SideConfig(prompt="y"))
    assert problems(d) == (
        "agents.d.side_a.prompt: no prompt named 'x'; known: p, q",
        "agents.d.side_b.prompt: no prompt named 'y'; known: p, q",
    )


@pytest.mark.spec("D-02")
@pytest.mark.parametrize("which", ["session_stop", "session_fail", "session_status"])
@pytest.mark.parametrize("as_object", [False, True])
def test_a_binding_names_a_tool_of_its_side(which: str, as_object: bool) -> None:
    binding = SessionToolBinding("finish") if as_object else "finish"
    a = human(side_a=SideConfig(prompt="p", **{which: binding}))  # type: ignore[arg-type]
    assert problems(a, prompts=[prompt(tools=[look])]) == (
        f"agents.a.side_a.{which}: the side has no tool named 'finish'; it has: look",
    )
    side = Definitions([a], [prompt(tools=[finish])]).side("a")
    assert side.bindings == {"finish": (which, SessionToolBinding("finish"))}


@pytest.mark.spec("D-02")
def test_a_binding_names_no_agent() -> None:
    a = human(side_a=SideConfig(prompt="p", session_stop="d"))
    text = problems(a, dual(), prompts=[prompt(tools=["d"]), prompt("q")])
    assert text == ("agents.a.side_a.session_stop: the side has no tool named 'd'; it has: none",)


@pytest.mark.spec("D-11")
@pytest.mark.parametrize("field", ["message_property", "attachments_property"])
@pytest.mark.parametrize("which", ["session_stop", "session_fail", "session_status"])
def test_a_bound_property_is_one_of_the_tools(which: str, field: str) -> None:
    binding = SessionToolBinding("finish", **{field: "reason"})
    d = dual(reads="p", side_b=SideConfig(prompt="p", **{which: binding}))  # type: ignore[arg-type]
    assert problems(d, prompts=[prompt(tools=[finish])]) == (
        f"agents.d.side_b.{which}.{field}: the tool 'finish' has no 'reason'",
    )
    good = SessionToolBinding("finish", message_property="summary", attachments_property="files")
    fine = dual(reads="p", side_b=SideConfig(prompt="p", **{which: good}))  # type: ignore[arg-type]
    Definitions([fine], [prompt(tools=[finish])])


@pytest.mark.spec("D-02")
def test_a_stop_tool_is_one_that_the_side_may_call() -> None:
    def stops_with(name: str, *tools: Any) -> Any:
        a = human(side_a=SideConfig(prompt="p", stop_tool=name))
        return a, dual(), {"prompts": [prompt(tools=tools), prompt("q")], "tools": [look]}

    for name, tools in [
        ("look", ["look"]),
        ("d", ["d"]),
        ("subagent_create", [SubagentToolConfig(name="d", resumable=STAYS)]),
    ]:
        *agents, known = stops_with(name, *tools)
        Definitions(agents, **known)
    for name, tools in [
        ("look", []),
        ("subagent_create", []),
        ("subagent_message", ["d"]),
        ("d", [SubagentToolConfig(name="d", resumable=STAYS)]),
    ]:
        *agents, known = stops_with(name, *tools)
        text = f"agents.a.side_a.stop_tool: the side has no tool named {name!r}"
        assert problems(*agents, **known) == (text,)


@pytest.mark.spec("D-03")
@pytest.mark.parametrize("choice", ["auto", "none", "any", "look", "d"])
def test_a_tool_choice_is_a_word_or_a_tool_that_is_offered(choice: str) -> None:
    assert side_with(look, "d", others=(dual(),), tool_choice=choice)
    if choice in ("look", "d"):
        text = problems(human(), prompts=[prompt(tool_choice=choice)])
        assert text == (f"agents.a.side_a.prompt.tool_choice: no tool named {choice!r}",)


# ── duplicate and built-in names ─────────────────────────────────────────────────────────────


@pytest.mark.spec("D-11")
def test_duplicate_names_of_anything_are_refused_with_their_place() -> None:
    @tool(name="look")
    def other() -> None: ...

    hook = Hook("note", "after_session", note)
    text = problems(
        human(), human(),
        prompts=[prompt(), prompt(), prompt("q"), prompt("q", prompt="Other.")],
        tools=[look, other],
        hooks=[hook, Hook("note", "filter_messages", note)],
    )  # fmt: skip
    assert text == (
        "agents[1]: the name 'a' is taken",
        "prompts[1]: the name 'p' is taken",
        "prompts[3]: the name 'q' is taken",
        "tools[1]: the name 'look' is taken",
        "hooks[1]: the name 'note' is taken",
    )


@pytest.mark.spec("D-11")
@pytest.mark.parametrize(
    "tools",
    [
        [look, look],
        ["look", look],
        ["look", "look"],
        ["d", "d"],
        ["d", SubagentToolConfig(name="d")],
        [SubagentToolConfig(name="d"), SubagentToolConfig(name="d", resumable=STAYS)],
        ["h", "h"],
    ],
)
def test_two_tools_of_one_name_in_one_prompt_are_refused(tools: list[Any]) -> None:
    name = getattr(tools[1], "name", tools[1])
    others = (dual(), human("h", reads="q", expose_as_tool=True))
    text = f"agents.a.side_a.prompt.tools: two tools are named {name!r}"
    assert problems_of_tools(*tools, others=others) == (text,)


@pytest.mark.spec("D-11")
def test_a_name_of_both_a_tool_and_an_agent_is_refused_where_it_is_used() -> None:
    text = problems_of_tools("look", others=(dual("look"),))
    assert text == ("agents.a.side_a.prompt.tools: 'look' names a tool and an agent; rename one",)


@pytest.mark.spec("D-11")
def test_the_built_in_names_are_those_of_the_contract() -> None:
    assert BUILT_IN == BUILT_IN_NAMES


@pytest.mark.spec("D-11")
@pytest.mark.parametrize("name", BUILT_IN_NAMES)
def test_a_tool_or_agent_named_like_a_built_in_is_refused(name: str) -> None:
    @tool(name=name)
    def mine() -> None: ...

    path = "agents.a.side_a.prompt.tools"
    refused = f"{path}: the name {name!r} is built in; rename it"
    assert problems_of_tools(mine) == (refused,)
    assert problems(human(), tools=[mine]) == (
        f"tools.{name}: the name is built in; rename the tool",
    )
    assert problems_of_tools(name, others=(dual(name),)) == (refused,)
    assert problems_of_tools(SubagentToolConfig(name=name), others=(dual(name),)) == (refused,)


# ── agents as tools ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-05")
@pytest.mark.parametrize("by", ["name", "config"])
def test_an_agent_that_is_not_exposed_is_refused_as_a_tool(by: str) -> None:
    used = "d" if by == "name" else SubagentToolConfig(name="d")
    text = problems_of_tools(used, others=(dual(expose_as_tool=False),))
    assert text == (
        "agents.a.side_a.prompt.tools: agent 'd' is not exposed; give it expose_as_tool=True",
    )


@pytest.mark.spec("D-05")
def test_a_code_agent_is_a_child_once_it_is_exposed() -> None:
    async def execute(input: Any, ctx: Any) -> None: ...

    code = AgentDefinition(name="code", execute=execute)
    text = problems_of_tools("code", others=(code,))
    assert text == (
        "agents.a.side_a.prompt.tools: agent 'code' is not exposed; give it expose_as_tool=True",
    )
    exposed = structs.replace(code, expose_as_tool=True)
    for used in ("code", SubagentToolConfig(name="code")):
        assert side_with(used, others=(exposed,)).children["code"].agent is exposed


@pytest.mark.spec("D-05")
def test_a_subagent_tool_takes_an_agent_of_one_model() -> None:
    h = human("h", reads="q", expose_as_tool=True)
    side = side_with(SubagentToolConfig(name="h", blocking=False), others=(h,))
    assert side.children["h"].agent is h and not side.handoffs
    assert side.children["h"].spec.schema["required"] == ["message"]


@pytest.mark.spec("D-05")
def test_an_agent_with_one_side_has_no_other_side_to_receive() -> None:
    h = human("h", reads="q", expose_as_tool=True)
    stays = SubagentToolConfig(name="h", resumable=Resumable(receives_messages="side_b"))
    assert problems_of_tools(stays, others=(h,)) == (
        "agents.a.side_a.prompt.tools.h.resumable.receives_messages: 'h' has one side only; "
        "give 'side_a'",
    )


# ── agents that hold others ──────────────────────────────────────────────────────────────────


def lead(name: str, *tools: Any, **options: Any) -> AgentDefinition:
    return Agent(name, "You lead.", model="openai:gpt", tools=tools, **options)


@pytest.mark.spec("U-02", "D-05")
def test_what_an_agent_holds_as_a_tool_is_known_and_exposed_to_it_alone() -> None:
    leaf = lead("leaf", look)
    middle = lead("middle", leaf.as_tool(blocking=False))
    top = lead("top", middle.as_tool(resumable=True), "look")
    known = Definitions([top], tools=[look])
    assert known.names == ("top", "middle", "leaf")
    assert known.agent("leaf") is leaf and not leaf.expose_as_tool
    assert known.side("top").children["middle"].config == SubagentToolConfig(
        name="middle", resumable=Resumable(receives_messages="side_a")
    )
    assert known.side("middle").children["leaf"].config == SubagentToolConfig(
        name="leaf", blocking=False
    )
    with pytest.raises(DefinitionError, match="agent 'leaf' is not exposed"):
        Definitions([top, lead("other", SubagentToolConfig(name="leaf"))], tools=[look])


@pytest.mark.spec("U-02", "D-08")
def test_every_option_of_a_subagent_tool_is_one_of_as_tool() -> None:
    options = set(inspect.signature(AgentDefinition.as_tool).parameters) - {"self"}
    assert options == set(SubagentToolConfig.__struct_fields__) - {"name"}
    hints = Immediate(name_env="NAME")
    leaf = lead("leaf")
    made = leaf.as_tool(
        blocking=False, immediate=hints, optional="GATE", init_user_message_property="m",
        init_attachments_property="f", init_agent_name_property="n",
    )  # fmt: skip
    assert made.agent is leaf and isinstance(made, SubagentToolConfig)
    assert made.by_name == SubagentToolConfig(
        name="leaf", blocking=False, immediate=hints, optional="GATE",
        init_user_message_property="m", init_attachments_property="f", init_agent_name_property="n",
    )  # fmt: skip


@pytest.mark.spec("U-02", "D-11")
def test_two_agents_of_one_name_are_refused_where_one_is_held() -> None:
    leaf, other = lead("leaf"), lead("leaf", title="Another")
    top = lead("top", leaf.as_tool())
    assert Definitions([top, leaf]).names == ("top", "leaf")
    assert Definitions([top, lead("leaf")]).names == ("top", "leaf"), "an equal one is no other"
    refused = "agents.leaf: 'top' has another agent of this name as a tool; rename one"
    with pytest.raises(DefinitionError, match=refused):
        Definitions([top, other])
    with pytest.raises(DefinitionError, match="'second' has another agent"):
        Definitions([top, lead("second", other.as_tool())])


@pytest.mark.spec("U-02")
def test_what_prompts_of_the_runtime_hold_is_known_too() -> None:
    leaf = lead("leaf")
    known = Definitions([human()], [prompt(tools=[leaf.as_tool()])], [look, finish])
    assert known.names == ("a", "leaf")


@pytest.mark.spec("U-02")
def test_agents_hold_each_other_a_thousand_deep() -> None:
    last = lead("agent-0")
    for number in range(1, 1000):
        last = lead(f"agent-{number}", last.as_tool())
    assert len(Definitions([last]).names) == 1000


@pytest.mark.spec("U-02")
def test_an_agent_given_as_a_tool_is_refused_with_what_to_write() -> None:
    with pytest.raises(DefinitionError, match=r"an agent is not a tool; give agent.as_tool\(\)"):
        lead("top", lead("leaf"))


@pytest.mark.spec("D-05")
def test_an_ai_human_agent_named_as_a_tool_is_a_handoff_and_a_dual_ai_one_a_child() -> None:
    h, d = human("h", reads="q", expose_as_tool=True), dual()
    side = side_with("h", "d", look, others=(h, d))
    assert dict(side.handoffs) == {"h": h}
    assert list(side.children) == ["d"] and side.children["d"].agent is d
    assert dict(side.tools) == {"look": look}
    assert side.offered == {"look", "h", "d"}
    assert not side.is_plain and side_with(look).is_plain


@pytest.mark.spec("C-19")
def test_a_dual_ai_agent_named_plainly_is_a_subagent_tool_with_defaults() -> None:
    side = side_with("d", others=(dual(),))
    assert side.children["d"].config == SubagentToolConfig(name="d")
    assert side.children["d"].config.blocking and not side.immediate and not side.resumable


@pytest.mark.spec("D-05", "D-10")
def test_a_handoff_from_a_side_of_dual_ai_is_refused() -> None:
    h = human("h", reads="q", expose_as_tool=True)
    d = dual(side_a=SideConfig(prompt="q"), side_b=SideConfig(prompt="p"))
    assert problems(d, h, prompts=[prompt(tools=["h"]), prompt("q")]) == (
        "agents.d.side_b.prompt.tools: a side of dual_ai cannot hand over to 'h' (ai_human); "
        "a SubagentToolConfig starts it as a child",
    )


@pytest.mark.spec("D-05")
@pytest.mark.parametrize("name", ["team.d", "team:d", "d" * 65])
def test_an_agent_whose_name_providers_refuse_is_no_tool(name: str) -> None:
    assert "as a tool its name may have 1 to 64 letters" in problems_of_tools(
        name, others=(dual(name),)
    )[0]  # fmt: skip


@pytest.mark.spec("D-05")
def test_an_agent_may_be_its_own_child() -> None:
    d = dual(reads="p")
    side = Definitions([d], [prompt(tools=["d"])]).side("d", "side_b")
    assert side.children["d"].agent is d


# ── immediate subagents ──────────────────────────────────────────────────────────────────────


def chain(*names: str, **last: Any) -> Any:
    """Agents of which each starts the next one at once."""
    agents = [dual(name, reads=f"of_{name}") for name in dict.fromkeys(names)]
    prompts = [
        prompt(f"of_{name}", tools=[SubagentToolConfig(name=then, immediate=True, **last)])
        for name, then in pairwise(names)
    ]
    known = {each.name for each in prompts}
    prompts += [prompt(f"of_{a.name}") for a in agents if f"of_{a.name}" not in known]
    return agents, prompts


@pytest.mark.spec("C-04")
@pytest.mark.parametrize("names", ["xx", "xyx", "xyzx"])
def test_immediate_subagents_that_start_each_other_for_ever_are_refused(names: str) -> None:
    agents, prompts = chain(*names)
    circle = " → ".join(names)
    text = f"agents.x: immediate subagents start each other: {circle}"
    assert problems(*agents, prompts=prompts) == (text,), "told once, not for every member"
    agents, prompts = chain(*names, optional="ENABLED")
    assert problems(*agents, prompts=prompts) == (text,), "whatever a variable may say later"


@pytest.mark.spec("C-04")
def test_a_circle_behind_others_is_found_and_a_chain_without_one_is_accepted() -> None:
    agents, prompts = chain("w", "x", "y", "z", "y")
    assert problems(*agents, prompts=prompts)[0].startswith("agents.y: immediate")
    agents, prompts = chain("w", "x", "y", "z")
    assert Definitions(agents, prompts).side("w").immediate == ("x",)


@pytest.mark.spec("C-04")
def test_two_circles_are_both_told() -> None:
    both = [chain("u", "v", "u"), chain("x", "y", "x")]
    agents = [each for found, _ in both for each in found]
    prompts = [each for _, found in both for each in found]
    text = problems(*agents, prompts=prompts)
    assert [each.split(":")[0] for each in text] == ["agents.u", "agents.x"]


# ── the arguments of a child ─────────────────────────────────────────────────────────────────

TASK = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What to do."},
        "sources": {"type": "array", "items": {"type": "string"}},
        "depth": {"type": "integer", "minimum": 1},
    },
    "required": ["task"],
}


class Task(Struct):
    task: str
    depth: int = 1


def specs(*tools: Any, d: AgentDefinition | None = None, **inner: Any) -> Any:
    d = d or dual(description="Researches.")
    side = Definitions([human(), d], [prompt(tools=tools), prompt("q", **inner)]).side("a")
    return side, {each.name: each for each in child_specs(side, lambda _: False)}


@pytest.mark.spec("C-19")
def test_without_a_schema_a_child_takes_one_message() -> None:
    side, found = specs("d")
    assert list(found) == ["d"]
    assert found["d"].description == "Researches."
    schema = found["d"].schema
    assert schema["required"] == ["message"] and list(schema["properties"]) == ["message"]
    assert schema["properties"]["message"]["type"] == "string"
    assert schema["additionalProperties"] is False
    assert read_call(side, "d", '{"message": "Go"}') == ChildRequest(agent="d", message="Go")
    for wrong in ("{}", '{"message": 7}', '{"message": "Go", "more": 1}'):
        with pytest.raises(BadArguments):
            read_call(side, "d", wrong)


@pytest.mark.spec("C-19")
def test_mapped_properties_give_the_default_schema_its_names() -> None:
    side, found = specs(
        SubagentToolConfig(
            name="d", init_user_message_property="task", init_attachments_property="sources",
            init_agent_name_property="called",
        )
    )  # fmt: skip
    properties = found["d"].schema["properties"]
    assert list(properties) == ["task", "called", "sources"]
    assert properties["called"]["type"] == "string"
    assert (properties["sources"]["type"], properties["sources"]["items"]) == (
        "array", {"type": "string"},
    )  # fmt: skip
    assert found["d"].schema["required"] == ["task", "called"]
    request = read_call(side, "d", '{"task": "Go", "called": "Max", "sources": ["a.txt"]}')
    assert request == ChildRequest(agent="d", message="Go", name="Max", attachments=("a.txt",))


@pytest.mark.spec("C-19")
def test_the_required_schema_of_side_a_is_what_the_model_is_shown_and_held_to() -> None:
    config = SubagentToolConfig(
        name="d", init_user_message_property="task", init_attachments_property="sources"
    )
    side, found = specs(config, required_schema=TASK)
    assert found["d"].schema == {**TASK, "additionalProperties": False}
    request = read_call(side, "d", '{"task": "Go", "sources": ["a.txt"], "depth": 2}')
    assert request == ChildRequest(agent="d", message="Go", attachments=("a.txt",))
    for wrong in ('{"depth": 1}', '{"task": "Go", "depth": 0}', '{"task": "Go", "x": 1}'):
        with pytest.raises(BadArguments):
            read_call(side, "d", wrong)


@pytest.mark.spec("C-19")
def test_a_required_schema_may_be_a_type() -> None:
    side, found = specs(
        SubagentToolConfig(name="d", init_user_message_property="task"), required_schema=Task
    )
    assert found["d"].schema["required"] == ["task"]
    assert read_call(side, "d", '{"task": "Go"}').message == "Go"


@pytest.mark.spec("C-19")
def test_a_schema_without_a_message_makes_all_the_arguments_the_message() -> None:
    side, _ = specs("d", required_schema=TASK)
    assert read_call(side, "d", '{"task": "Go"}').message == '{"task": "Go"}'


@pytest.mark.spec("C-19")
def test_the_schema_is_that_of_side_a_not_of_side_b() -> None:
    d = dual(
        side_a=SideConfig(prompt="q"), side_b=SideConfig(prompt=prompt("b", required_schema=TASK))
    )
    _, found = specs("d", d=d)
    assert list(found["d"].schema["properties"]) == ["message"]


@pytest.mark.spec("D-11")
@pytest.mark.parametrize(
    "field",
    ["init_user_message_property", "init_attachments_property", "init_agent_name_property"],
)
def test_a_mapped_property_that_the_required_schema_lacks_is_refused(field: str) -> None:
    config = SubagentToolConfig(name="d", **{field: "nowhere"})  # type: ignore[arg-type]
    text = problems(
        human(), dual(), prompts=[prompt(tools=[config]), prompt("q", required_schema=TASK)]
    )
    assert text == (
        f"agents.a.side_a.prompt.tools.d.{field}: the required_schema of its side A "
        "has no 'nowhere'",
    )


@pytest.mark.spec("C-19")
def test_a_child_that_stays_is_offered_through_the_two_lifecycle_tools_only() -> None:
    config = SubagentToolConfig(name="d", init_user_message_property="task", resumable=STAYS)
    side, found = specs(config, required_schema=TASK, d=dual(tool_description="Researches."))
    assert list(found) == ["subagent_create", "subagent_message"]
    assert side.offered == {"subagent_create", "subagent_message"}
    create, message = found.values()
    assert create.schema["properties"]["agent"]["enum"] == ["d"]
    assert create.schema["required"] == ["agent", "name", "arguments"]
    assert "- d: Researches." in create.description and '"task"' in create.description
    assert list(message.schema["properties"]) == ["reference", "message", "attachments"]
    assert message.schema["required"] == ["reference", "message"]
    assert all(each.schema["additionalProperties"] is False for each in found.values())
    made = '{"agent": "d", "name": " Max ", "arguments": {"task": "Go"}}'
    assert read_call(side, "subagent_create", made) == ChildRequest(
        agent="d", message="Go", name="Max"
    )
    for wrong, why in [
        ('{"agent": "d", "name": "  ", "arguments": {"task": "Go"}}', "name"),
        ('{"agent": "d", "arguments": {"task": "Go"}}', "name"),
        ('{"agent": "x", "name": "Max", "arguments": {"task": "Go"}}', "'x' is not one of d"),
        ('{"agent": "d", "name": "Max", "arguments": {}}', "task"),
    ]:
        with pytest.raises(BadArguments, match=why):
            read_call(side, "subagent_create", wrong)


@pytest.mark.spec("C-19")
def test_the_name_of_a_child_that_stays_is_no_argument_of_its_own() -> None:
    config = SubagentToolConfig(name="d", init_agent_name_property="called", resumable=STAYS)
    side, _ = specs(config)
    assert list(side.children["d"].spec.schema["properties"]) == ["message"]
    assert specs(config, required_schema=TASK), "nor must a required_schema have it"


@pytest.mark.spec("C-19")
@pytest.mark.parametrize("kind", ["child", "handoff"])
def test_a_model_reads_the_tool_description_else_the_description(kind: str) -> None:
    def text(**fields: Any) -> str:
        d = (
            dual(**fields)
            if kind == "child"
            else human("d", expose_as_tool=True, reads="q", **fields)
        )
        described: str = specs("d", d=d)[1]["d"].description
        return described

    assert text(description="About", tool_description="For models") == "For models"
    assert text(description="About") == "About"
    assert text() == ""


@pytest.mark.spec("C-19")
def test_a_handoff_takes_no_arguments() -> None:
    _, found = specs("d", d=human("d", expose_as_tool=True, reads="q"))
    assert found["d"].schema == {
        "type": "object", "properties": {}, "required": [], "additionalProperties": False,
    }  # fmt: skip


@pytest.mark.spec("C-03")
def test_a_branch_that_is_not_enabled_is_not_offered() -> None:
    side, found = specs(SubagentToolConfig(name="d", optional="ENABLED"))
    assert found == {}
    asked: list[str] = []
    assert child_specs(side, lambda name: bool(asked.append(name)) or True)[0].name == "d"
    assert asked == ["ENABLED"]


# ── hooks ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06")
def test_a_prompts_list_of_hooks_even_an_empty_one_replaces_its_agents() -> None:
    one, two = Hook("one", "after_session", note), Hook("two", "after_session", note)

    def hooks(ids: Any) -> Any:
        a = human(hooks=("one", "two"))
        return Definitions([a], [prompt(hooks=ids)], hooks=[one, two]).side("a").hooks

    assert hooks(None) == {"after_session": (one, two)}
    assert hooks(["two"]) == {"after_session": (two,)}
    assert hooks(["two", "one"]) == {"after_session": (two, one)}
    assert hooks([]) == {}


@pytest.mark.spec("C-19")
def test_sides_that_share_a_prompt_share_the_reader_of_a_childs_arguments() -> None:
    agents = [dual("x", reads="p"), dual("y", reads="r"), dual()]
    found = Definitions(agents, [prompt(tools=["d"]), prompt("r", tools=["d"]), prompt("q")])
    one, other = found.side("x").children["d"], found.side("y").children["d"]
    assert one.arguments is other.arguments and one.spec is other.spec
    assert (one.key, other.key) == ("p/d", "r/d")


@pytest.mark.spec("V-01")
def test_the_scoped_variables_of_a_wide_and_circular_graph_are_found_once() -> None:
    names = [f"x{index}" for index in range(40)]
    scoped = VariableDefinition(name="KEY", scoped=True, required=True)
    agents = [dual(name, reads="p") for name in names]
    found = Definitions(agents, [prompt(tools=names, variables=[scoped])])
    assert found.scoped_of("x0", lambda _: True) == ("KEY",)
    plain = Definitions(agents, [prompt(tools=names)])
    assert plain.scoped_of("x0", lambda _: True) == ()
    hidden = SubagentToolConfig(name="d", optional="ENABLED")
    branch = Definitions(
        [human(), dual()], [prompt(tools=[hidden]), prompt("q", variables=[scoped])]
    )
    assert branch.scoped_of("a", lambda name: name == "ENABLED") == ("KEY",)
    assert branch.scoped_of("a", lambda _: False) == ()
