"""Branches that a variable enables: neither listed nor callable while it does not (C-03)."""

import re
from typing import Any

import anyio
import pytest
from support.agents import Observer, model_agent

from hubbub import (
    AgentDefinition,
    Immediate,
    PromptDefinition,
    Resumable,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelRequest
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, ScriptItem, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("C-03")]


@tool
def finish(result: str) -> str:
    return result


@tool
def switch(name: str, value: str, state: RunState) -> None:
    """Sets a variable of the run."""
    state.set_env(name, value)


def worker(name: str) -> AgentDefinition:
    """A child that ends at once."""
    model = ScriptedModel([call("finish", result=f"{name} did it")], repeat=True)
    ends = SessionToolBinding("finish", message_property="result")
    side_a = PromptDefinition(name=f"{name}-a", prompt="Work.", model=model, tools=(finish,))
    side_b = PromptDefinition(name=f"{name}-b", prompt="Check.", model=ScriptedModel(["go on"]))
    return AgentDefinition(
        name=name,
        type="dual_ai",
        expose_as_tool=True,
        max_session_turns=4,
        side_a=SideConfig(prompt=side_a, session_stop=ends),
        side_b=SideConfig(prompt=side_b),
    )


def direct(name: str, gate: str | None) -> SubagentToolConfig:
    return SubagentToolConfig(name=name, optional=gate)


def lasting(name: str, gate: str | None) -> SubagentToolConfig:
    return SubagentToolConfig(
        name=name, optional=gate, resumable=Resumable(receives_messages="side_a")
    )


class Parent:
    """A parent that plays a script; what its model was shown is kept."""

    def __init__(self, script: list[ScriptItem], *tools: Any, **prompt: Any) -> None:
        self.requests: list[ModelRequest] = []
        scripted = ScriptedModel(script)

        async def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            return await scripted.call(request)

        self.agent = model_agent(FunctionModel(answer), switch, *tools, **prompt)

    def listed(self) -> list[list[str]]:
        """The tools of each request; resumable ones as ``create:<agent>``."""
        return [sorted(_names(request)) for request in self.requests]

    def results(self) -> list[tuple[str, str, bool]]:
        calls: list[AnsweredCall] = []
        for message in self.requests[-1].messages:
            calls += message.calls if isinstance(message, AssistantMessage) else ()
        return [(x.name, x.output, x.is_error) for x in calls]


def _names(request: ModelRequest) -> list[str]:
    names: list[str] = []
    for spec in request.tools:
        if spec.name == "subagent_create":
            listed = spec.schema["properties"]["agent"]["enum"]
            names += [f"create:{name}" for name in listed]
            described = [x for x in ("one", "two") if f"- {x}:" in spec.description]
            assert described == sorted(listed), "the description names the same agents"
        elif spec.name not in ("switch", "finish"):
            names.append(spec.name)
    return names


@pytest.mark.parametrize("gate", ["true", "1", "yes", "YES", "True", "tRUE"])
async def test_an_enabled_branch_is_listed_and_callable(
    gate: str, journal: Journal, ports: Ports
) -> None:
    parent = Parent([call("one", message="go"), "done"], direct("one", "GATE"))
    async with Runtime([parent.agent, worker("one")], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go", env={"GATE": gate})
        await run.result()
    assert parent.listed() == [["one"]] * 2
    assert parent.results() == [("one", "one did it", False)]


@pytest.mark.parametrize("gate", [None, "", "no", "0", "false", "on", " true", "yes please"])
async def test_a_disabled_branch_is_neither_listed_nor_callable(
    gate: str | None, journal: Journal, ports: Ports
) -> None:
    """A model that calls it all the same gets an error result, and nothing is started."""
    script: list[ScriptItem] = [
        call("one", message="go"),
        call("subagent_create", agent="two", name="second", arguments={"message": "go"}),
        "done",
    ]
    parent = Parent(script, direct("one", "GATE"), lasting("two", "GATE"))
    env = {} if gate is None else {"GATE": gate}
    agents = [parent.agent, worker("one"), worker("two")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go", env=env)
        assert (await run.result()).output == "done"
    assert parent.listed() == [[]] * 3
    assert [(name, is_error) for name, _, is_error in parent.results()] == [
        ("one", True), ("subagent_create", True),
    ]  # fmt: skip
    for _, text, _ in parent.results():
        assert "not available" in text
    assert observer.all("agent:child") == [] and observer.run_ids == {run.run_id}


async def test_only_the_enabled_agents_are_offered_by_subagent_create(
    journal: Journal, ports: Ports
) -> None:
    parent = Parent(
        [
            call("switch", name="GATE_ONE", value="1"),
            call("switch", name="GATE_TWO", value="yes"),
            call("switch", name="GATE_ONE", value="no"),
            call("switch", name="GATE_TWO", value=""),
            "done",
        ],
        lasting("one", "GATE_ONE"),
        lasting("two", "GATE_TWO"),
    )
    agents = [parent.agent, worker("one"), worker("two")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "go")).result()
    both = ["create:one", "create:two"]
    assert parent.listed() == [
        [],
        [both[0], "subagent_message"],
        [*both, "subagent_message"],
        [both[1], "subagent_message"],
        [],
    ], "evaluated anew at each model call"


@pytest.mark.parametrize("source", ["agent", "prompt", "runtime"])
async def test_the_variable_resolves_like_every_other(
    source: str, journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE", "no")
    env = {"GATE": "true"}
    parent = Parent(
        [call("one", message="go"), "done"],
        direct("one", "GATE"),
        env=env if source == "prompt" else {},
    )
    agent = parent.agent
    if source == "agent":
        agent = AgentDefinition(name=agent.name, side_a=agent.side_a, env=env)
    agents = [agent, worker("one")]
    values = env if source == "runtime" else {}
    async with Runtime(agents, env=values, store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "go")).result()
    assert parent.results() == [("one", "one did it", False)]


async def test_the_process_environment_enables_nothing(
    journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE", "true")
    parent = Parent(["done"], direct("one", "GATE"))
    async with Runtime([parent.agent, worker("one")], store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "go")).result()
    assert parent.listed() == [[]]


async def test_it_is_evaluated_again_at_the_call(journal: Journal, ports: Ports) -> None:
    """Between the request that listed the branch and its call, the variable changes."""
    off = call("switch", name="GATE", value="off")
    on = call("switch", name="GATE", value="true")
    direct_call = call("one", message="go")
    create = call("subagent_create", agent="two", name="second", arguments={"message": "go"})
    script: list[ScriptItem] = [
        reply("", off, direct_call, create), reply("", on, direct_call, create), "done",
    ]  # fmt: skip
    parent = Parent(script, direct("one", "GATE"), lasting("two", "GATE"))
    agents = [parent.agent, worker("one"), worker("two")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go", env={"GATE": "true"})
        await run.result()
    everything = ["create:two", "one", "subagent_message"]
    assert parent.listed() == [everything, [], everything]
    refused, started = parent.results()[:3], parent.results()[3:]
    assert [is_error for *_, is_error in refused] == [False, True, True]
    assert [is_error for *_, is_error in started] == [False, False, False]
    assert len(observer.all("agent:child")) == 2


async def test_a_disabled_branch_takes_no_messages_either(journal: Journal, ports: Ports) -> None:
    def write(request: ModelRequest) -> Any:
        found = re.search(r"^- (\S+): one", request.system_notes[0], re.M)
        assert found is not None, "the registry tells the reference"
        return call("subagent_message", reference=found[1], message="more")

    create = call("subagent_create", agent="one", name="first", arguments={"message": "go"})
    script: list[ScriptItem] = [
        create, write, call("switch", name="GATE", value="no"), write,
        call("switch", name="GATE", value="YES"), write, "done",
    ]  # fmt: skip
    parent = Parent(script, lasting("one", "GATE"))
    agents = [parent.agent, worker("one")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go", env={"GATE": "true"})
        assert (await run.result()).output == "done"
        sent = [x for x in await run.read() if x.type == "agent:message"]
    written = [(text, bad) for name, text, bad in parent.results() if name == "subagent_message"]
    assert [bad for _, bad in written] == [False, True, False]
    assert "not available" in written[1][0]
    assert len(sent) == 2, "nothing is sent by the refused call"


async def test_a_disabled_branch_does_not_start_with_its_prompt(
    journal: Journal, ports: Ports
) -> None:
    config = SubagentToolConfig(name="one", optional="GATE", immediate=Immediate())
    parent = Parent(["done"], config)
    async with Runtime([parent.agent, worker("one")], store=journal, ports=ports) as runtime:
        with anyio.fail_after(60):
            off = await runtime.start("assistant", "go")
            await off.result()
            on = await runtime.start("assistant", "go", env={"GATE": "1"})
            await on.result()
        started = [
            [bool(x.child_run_id) for x in await run.read() if x.type == "agent:child"]
            for run in (off, on)
        ]
    assert started == [[], [True]]
    assert len(parent.requests[0].messages) == 1, "nobody is told of it"


async def test_what_no_variable_gates_is_always_there(journal: Journal, ports: Ports) -> None:
    parent = Parent(["done"], direct("one", None), lasting("two", None))
    agents = [parent.agent, worker("one"), worker("two")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "go")).result()
    assert parent.listed() == [["create:two", "one", "subagent_message"]]
