"""Variables of runs at work: who gives the value, who sees it, and how long (D-07, D-09)."""

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import Observer, model_agent
from support.profiles import examples

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    RunContext,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    VariableDefinition,
    agent,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.events import AgentToolComplete
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio

NAMES = ("ONE", "TWO", "THREE")


@tool(idempotent=True)
def finish(result: str) -> str:
    return result


def child_agent(
    name: str, model: Any, *tools: Any, env: Any = None, **prompt: Any
) -> AgentDefinition:
    side_a = PromptDefinition(
        name=f"{name}-a", prompt="Work.", model=model, tools=(finish, *tools), **prompt
    )
    side_b = PromptDefinition(name=f"{name}-b", prompt="Check.", model=ScriptedModel(["go on"]))
    return AgentDefinition(
        name=name,
        type="dual_ai",
        expose_as_tool=True,
        max_session_turns=4,
        env=env or {},
        side_a=SideConfig(
            prompt=side_a, session_stop=SessionToolBinding("finish", message_property="result")
        ),
        side_b=SideConfig(prompt=side_b),
    )


# ── D-07: the order, in a tree of runs ───────────────────────────────────────────────────────


class Node:
    """One run of a chain: what it has been given, where."""

    def __init__(self, at: int, draw: Any) -> None:
        def env(place: str) -> dict[str, str]:
            names = draw(st.frozensets(st.sampled_from(NAMES)))
            blank = draw(st.frozensets(st.sampled_from(NAMES)))
            return {n: "" if n in blank else f"{place} {at} {n}" for n in names}

        self.at = at
        self.sets = env("own")  # By ``set_env``, once it is at work.
        self.agent_env = env("agent")
        self.prompt_env = env("prompt")
        self.scoped = draw(st.frozensets(st.sampled_from(NAMES), max_size=2))
        self.seen: dict[str, str] = {}
        self.contains: list[str] = []
        self.length = -1
        self.of_the_process = ""

    def variables(self) -> tuple[VariableDefinition, ...]:
        return tuple(VariableDefinition(name=name, scoped=True) for name in sorted(self.scoped))

    def tool(self) -> Any:
        @tool
        def look(state: RunState) -> None:
            for name, value in self.sets.items():
                state.set_env(name, value)
            self.seen = dict(state.env)
            self.contains = [name for name in (*NAMES, "PATH") if name in state.env]
            self.length = len(state.env)
            self.of_the_process = state.env.get("PATH", "none")

        return look


@st.composite
def trees(draw: Any) -> tuple[list[Node], dict[str, str], dict[str, str]]:
    given_env = draw(st.dictionaries(st.sampled_from(NAMES), st.just("given"), max_size=2))
    runtime_env = draw(st.dictionaries(st.sampled_from(NAMES), st.just("runtime"), max_size=2))
    depth = draw(st.integers(1, 3))
    return [Node(at, draw) for at in range(depth)], given_env, runtime_env


def expected(
    nodes: list[Node], given_env: dict[str, str], runtime_env: dict[str, str], at: int
) -> dict[str, str]:
    """The model: look in each place in turn."""
    found = {}
    for name in NAMES:
        places = [nodes[at].sets]
        if at == 0:
            places.append(given_env)
        for above in reversed(nodes[:at]):
            if name not in nodes[at].scoped or name in above.scoped:
                places.append(above.sets)
                places += [given_env] if above.at == 0 else []
        places += [nodes[at].agent_env, nodes[at].prompt_env, runtime_env]
        values = [place[name] for place in places if name in place]
        if values:
            found[name] = values[0]
    return found


@pytest.mark.spec("D-07", "D-09")
@settings(max_examples=examples(60), deadline=None)
@given(tree=trees(), late=st.booleans())
async def test_each_run_of_a_tree_sees_what_the_order_says(tree: Any, late: bool) -> None:
    nodes, given_env, runtime_env = tree
    agents: list[AgentDefinition] = []
    for node in nodes:
        below = [f"n{node.at + 1}"] if node.at + 1 < len(nodes) else []
        steps = [call("look"), *(call(name, message="go") for name in below)]
        fields = {"env": node.prompt_env, "variables": node.variables()}
        if node.at == 0:
            root = model_agent(ScriptedModel([*steps, "done"]), node.tool(), *below, **fields)
            agents.append(AgentDefinition(name="n0", side_a=root.side_a, env=node.agent_env))
        else:
            model = ScriptedModel([*steps, call("finish", result="x")])
            prompt = PromptDefinition(
                name=f"p{node.at}", prompt="Work.", model=model,
                tools=(finish, node.tool(), *below), **fields,
            )  # fmt: skip
            other = PromptDefinition(name=f"b{node.at}", prompt=".", model=ScriptedModel(["on"]))
            agents.append(
                AgentDefinition(
                    name=f"n{node.at}", type="dual_ai", expose_as_tool=True, max_session_turns=4,
                    env=node.agent_env, side_a=SideConfig(prompt=prompt, session_stop="finish"),
                    side_b=SideConfig(prompt=other),
                )
            )  # fmt: skip
    journal: Journal = LateJournal(MemoryJournal()) if late else MemoryJournal()
    ports = virtual_ports()
    async with Runtime(agents, env=runtime_env, store=journal, ports=ports) as runtime:
        run = await runtime.start("n0", "go", env=given_env)
        assert (await run.result()).output == "done"
        await run.close()
        await run.finished()
    for node in nodes:
        should = expected(nodes, given_env, runtime_env, node.at)
        assert node.seen == should, node.at
        assert node.contains == [name for name in NAMES if name in should]
        assert node.length == len(should)
        assert node.of_the_process == "none"
    assert ports.secrets.keys("") == (), "values go with their runs"


@pytest.mark.spec("D-07")
async def test_set_env_reaches_live_descendants(journal: Journal, ports: Ports) -> None:
    """A child, and a child's child, that are at work already; and none of another run."""
    seen: list[tuple[str, str | None]] = []

    @tool
    async def look(state: RunState) -> None:
        for _ in range(2):
            seen.append((state.agent, state.env.get("KEY")))
            await anyio.sleep(10)

    @tool
    async def change(state: RunState) -> None:
        await anyio.sleep(5)
        state.set_env("KEY", "new")

    leaf = child_agent("leaf", ScriptedModel([call("look"), call("finish", result="x")]), look)
    middle = child_agent(
        "middle",
        ScriptedModel([call("leaf", message="go"), call("finish", result="x")]),
        "leaf",
    )
    start = SubagentToolConfig(name="middle", blocking=False)
    model = ScriptedModel([reply("", call("middle", message="go"), call("change")), *["done"] * 4])
    root = model_agent(model, start, change)
    other = model_agent(ScriptedModel([call("look"), "done"]), look, name="other")
    async with Runtime([root, middle, leaf, other], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go", env={"KEY": "old"})
        await runtime.start("other", "go")
        await anyio.sleep(100)
        await run.result()
    assert [value for name, value in seen if name == "leaf"] == ["old", "new"]
    assert [value for name, value in seen if name == "other"] == [None, None]


@pytest.mark.spec("D-07")
async def test_the_process_environment_is_never_looked_at(
    journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "from the process")
    seen: list[Any] = []

    @tool(variables=[VariableDefinition(name="KEY")])
    def look(state: RunState) -> None:
        seen.extend([state.env.get("KEY"), "KEY" in state.env, list(state.env)])
        with pytest.raises(KeyError, match="KEY: the variable is not set"):
            state.env["KEY"]

    text = VariableDefinition(name="KEY", type="text")
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return call("look") if len(requests) == 1 else "done"

    one = model_agent(FunctionModel(answer), look, variables=(text,), name="one")
    environ = {"KEY": "for providers only"}
    async with Runtime([one], store=journal, ports=ports, environ=environ) as runtime:
        await (await runtime.start("one", "go")).result()
    assert seen == [None, False, []]


@pytest.mark.spec("D-07", "R-18")
async def test_one_question_may_bring_values_too(journal: Journal, ports: Ports) -> None:
    @tool(variables=[VariableDefinition(name="KEY")])
    def look(state: RunState) -> str:
        return "it is there" if state.env["KEY"] == "k-77e1" else "it is not"

    model = ScriptedModel([call("look"), "done"])
    one = model_agent(model, look, name="one")
    async with Runtime([one], store=journal, ports=ports) as runtime:
        assert (await runtime.run("one", "go", env={"KEY": "k-77e1"})).output == "done"
        assert (await runtime.run("one", "go", env={"KEY": "other"})).output == "done"
        said = await runtime.hub.read(types=["agent:tool:complete", "session:open"])
        with pytest.raises(BadValue, match="env"):
            await runtime.run("one", "go", env={"KEY": 17})  # type: ignore[dict-item]
    results = [x.output for x in said if isinstance(x, AgentToolComplete)]
    assert results == ["it is there", "it is not"]
    assert "k-77e1" not in repr(said)


@pytest.mark.spec("D-07", "H-19")
@pytest.mark.parametrize("value", [17, None, b"planted", ["planted"]])
async def test_a_value_that_is_no_text_is_refused_and_not_shown(
    value: Any, journal: Journal, ports: Ports
) -> None:
    problems: list[str] = []

    @tool
    def change(state: RunState) -> None:
        for name, wrong in (("KEY", value), ("BAD NAME", "planted")):
            with pytest.raises(BadValue) as caught:
                state.set_env(name, wrong)
            problems.append(str(caught.value))

    agents = [model_agent(ScriptedModel([call("change"), "done"]), change)]
    with pytest.raises(DefinitionError) as refused:
        Runtime(agents, env={"KEY": value}, store="memory")
    problems.append(str(refused.value))
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        with pytest.raises(BadValue) as caught:
            await runtime.start("assistant", "go", env={"KEY": value})
        problems.append(str(caught.value))
        await (await runtime.start("assistant", "go")).result()
    assert len(problems) == 4
    assert "planted" not in " ".join(problems)


# ── how long ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-07", "V-03")
async def test_values_survive_a_restart_and_are_in_no_journal(
    journal: Journal, ports: Ports
) -> None:
    seen: list[dict[str, str]] = []

    @tool
    def change(state: RunState) -> None:
        state.set_env("SET", "set-4e0a")

    @tool
    def look(state: RunState) -> None:
        seen.append(dict(state.env))

    model = ScriptedModel([call("change"), "one", call("look"), "two"])
    agents = [model_agent(model, change, look)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go", env={"GIVEN": "given-93bd", "BLANK": ""})
        await run.result()
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await runtime.hub.send_to_run(run.run_id, "again")
        await runtime.result(run.run_id)
        written = repr(await runtime.hub.read())
    assert seen == [{"GIVEN": "given-93bd", "BLANK": "", "SET": "set-4e0a"}]
    assert "given-93bd" not in written and "set-4e0a" not in written


@pytest.mark.spec("V-03", "D-07")
@pytest.mark.parametrize("end", ["close", "terminate"])
async def test_values_go_with_their_run_also_when_it_ends_after_a_restart(
    end: str, journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(ScriptedModel(["one"]))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go", env={"KEY": "v"})
        other = await runtime.start("assistant", "go", env={"KEY": "w"})
        await run.result()
        await other.result()
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        if end == "close":
            await runtime.hub.close_run(run.run_id)
        else:
            await runtime.terminate(run.run_id)
        await runtime.finished(run.run_id)
        assert ports.secrets.keys("") == (f"{other.run_id}/KEY",)


@pytest.mark.spec("D-07")
async def test_code_agents_hand_their_values_down(journal: Journal, ports: Ports) -> None:
    seen: list[dict[str, str]] = []

    @tool
    def look(state: RunState) -> None:
        seen.append(dict(state.env))

    @agent("boss")
    async def boss(input: Any, ctx: RunContext) -> Any:
        child = ctx.spawn("assistant", "go")
        return (await child.result()).output

    worker = model_agent(ScriptedModel([call("look"), "done"]), look)
    async with Runtime([boss, worker], store=journal, ports=ports) as runtime:
        run = await runtime.start("boss", None, env={"KEY": "v"})
        assert (await run.finished()).output == "done"
    assert seen == [{"KEY": "v"}]


# ── D-09: what a prompt shows, what a tool needs ─────────────────────────────────────────────


class Asked:
    def __init__(self, *script: Any) -> None:
        self.requests: list[ModelRequest] = []
        scripted = ScriptedModel(script)

        async def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            return await scripted.call(request)

        self.model = FunctionModel(answer)


def answers(request: ModelRequest) -> list[tuple[str, bool]]:
    return [
        (x.output, x.is_error)
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for x in message.calls
    ]


@pytest.mark.spec("D-09", "D-07")
async def test_text_variables_enter_the_prompt_anew_at_each_step(
    journal: Journal, ports: Ports
) -> None:
    @tool
    def change(value: str, state: RunState) -> None:
        state.set_env("CITY", value)

    asked = Asked(call("change", value="Paris"), call("change", value=""), "done")
    prompt = PromptDefinition(
        name="p", prompt="You are in {{CITY}}; {{ CITY }}; {{OTHER}}; {{UNSET}}.",
        model=asked.model, tools=(change,),
        variables=(
            VariableDefinition(name="CITY", type="text"),
            VariableDefinition(name="UNSET", type="text"),
            VariableDefinition(name="OTHER", type="text"),
            VariableDefinition(name="KEY"),
        ),
    )  # fmt: skip
    agents = [AgentDefinition(name="a", side_a=SideConfig(prompt=prompt))]
    # A value is not read for further names, so that a text may show the braces themselves.
    env = {"CITY": "Rome", "OTHER": "{{OTHER}}", "KEY": "planted"}
    async with Runtime(agents, env=env, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        await (await runtime.start("a", "go")).result()
    assert [request.system for request in asked.requests] == [
        "You are in Rome; Rome; {{OTHER}}; .",
        "You are in Paris; Paris; {{OTHER}}; .",
        "You are in ; ; {{OTHER}}; .",
    ]
    assert "planted" not in repr(asked.requests) + repr(observer.events)


@pytest.mark.spec("D-09")
async def test_a_tool_is_not_called_while_a_variable_that_it_requires_is_unset(
    journal: Journal, ports: Ports
) -> None:
    calls: list[str] = []
    needs = [
        VariableDefinition(name="KEY", required=True),
        VariableDefinition(name="MAY_BE"),
    ]

    @tool(variables=needs)
    def fetch(state: RunState) -> str:
        calls.append(state.env["KEY"])
        return "fetched"

    @tool
    def change(value: str, state: RunState) -> None:
        state.set_env("KEY", value)

    fetching = call("fetch")
    asked = Asked(fetching, call("change", value=""), fetching, "done")
    agents = [model_agent(asked.model, fetch, change)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "go")).result()
    first, _, last = answers(asked.requests[-1])
    assert first == ("fetch cannot run: KEY is not set", True)
    assert last == ("fetched", False), "a blank text is a value"
    assert calls == [""]


@pytest.mark.spec("D-09", "D-07")
async def test_a_handoff_keeps_the_run_s_own_values_and_takes_the_new_agent_s(
    journal: Journal, ports: Ports
) -> None:
    seen: list[dict[str, str]] = []

    @tool
    def look(state: RunState) -> None:
        seen.append(dict(state.env))

    def one(name: str, model: Any, *tools: Any) -> AgentDefinition:
        prompt = PromptDefinition(
            name=f"p-{name}", prompt=".", model=model, tools=tools, env={"PROMPT": name}
        )
        return AgentDefinition(
            name=name, expose_as_tool=True, env={"AGENT": name}, side_a=SideConfig(prompt=prompt)
        )

    first = one("first", ScriptedModel([reply("", call("look"), call("second"))]), look, "second")
    second = one("second", ScriptedModel(["", call("look"), "done"]), look)
    async with Runtime([first, second], store=journal, ports=ports) as runtime:
        await (await runtime.start("first", "go", env={"OWN": "mine"})).result()
    assert seen == [
        {"OWN": "mine", "AGENT": "first", "PROMPT": "first"},
        {"OWN": "mine", "AGENT": "second", "PROMPT": "second"},
    ]


@pytest.mark.spec("G-06")
@pytest.mark.parametrize("given", ["start", "runtime"])
@pytest.mark.parametrize("who", ["a tool", "a code agent", "a child's tool"])
async def test_a_value_that_was_replaced_is_masked_where_code_still_quotes_it(
    who: str, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = "old-secret-value-42", "new-secret-value-43"

    def quoted(state: Any) -> str:
        read = state.env["TOKEN"]
        state.set_env("TOKEN", new)
        raise ValueError(f"revoking {read} for {new} failed")

    parents: list[RunState] = []

    @tool
    async def rotate(state: RunState) -> str:
        return quoted(state)

    @tool
    async def delegate(state: RunState) -> str:
        parents.append(state)
        return str((await state.spawn("holder", "go").result()).reason)

    @tool
    async def hold(state: RunState) -> str:
        read = state.env["TOKEN"]
        parents[0].set_env("TOKEN", new)
        raise ValueError(f"revoking {read} for {new} failed")

    @agent("coded")
    async def coded(input: str, ctx: RunContext) -> str:
        return quoted(ctx)

    agents = {
        "a tool": (model_agent(ScriptedModel([call("rotate"), "ok"]), rotate),),
        "a code agent": (coded,),
        "a child's tool": (
            model_agent(ScriptedModel([call("delegate"), "ok"]), delegate),
            model_agent(ScriptedModel([call("hold"), "ok"]), hold, name="holder"),
        ),
    }[who]
    env = {"TOKEN": old}
    values = env if given == "runtime" else None
    async with Runtime(agents=agents, env=values, store="memory") as rt:
        run = await rt.start(agents[0].name, "go", env=env if given == "start" else None)
        outcome = await run.result()
        said = [str(event) for event in await rt.hub.read()]
    shown = f"{outcome} {said} {caplog.text}"
    assert "revoking" in shown
    assert old not in shown
    assert new not in shown
