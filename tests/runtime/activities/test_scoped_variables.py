"""Children that wait for their variables (SA 7.8, SB 7, V-01 … V-03), and where values are seen."""

import gc
import json
import logging
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import Observer, model_agent
from support.crash_journal import CrashJournal
from support.profiles import examples
from support.workers import workers

from hubbub import (
    AgentDefinition,
    Hook,
    Immediate,
    PromptDefinition,
    Resumable,
    Run,
    RunState,
    Runtime,
    Secret,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    ToolError,
    VariableDefinition,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.agents.state.family import RESULT
from hubbub.hub.errors import Closed, HubbubError, VariablesRefused
from hubbub.hub.events import CustomEvent
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.activities.variable_requests import MAX_VALUE_CHARS
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, ScriptItem, call, reply

pytestmark = pytest.mark.anyio

HOUR = 3600


@tool(idempotent=True)
def finish(result: str) -> str:
    return result


def scoped(name: str, *, required: bool = True) -> VariableDefinition:
    return VariableDefinition(name=name, scoped=True, required=required)


class Script:
    """A model that plays a script, and goes on saying ``done``; what it was shown is kept."""

    def __init__(self, *script: ScriptItem, latency: float = 0.0) -> None:
        self.requests: list[ModelRequest] = []
        scripted = ScriptedModel([*script, *["done"] * 9], latency=latency)

        async def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            return await scripted.call(request)

        self.model = FunctionModel(answer)

    def heard(self) -> list[str]:
        return [m.content for m in self.requests[-1].messages if isinstance(m, UserMessage)]

    def results(self) -> list[tuple[str, bool]]:
        return [
            (x.output, x.is_error)
            for message in self.requests[-1].messages
            if isinstance(message, AssistantMessage)
            for x in message.calls
        ]


class Helper:
    """A ``dual_ai`` agent whose tool looks at its variables before it ends."""

    def __init__(
        self,
        name: str = "helper",
        *variables: VariableDefinition,
        tools: tuple[Any, ...] = (),
        of_tool: tuple[VariableDefinition, ...] = (),
        of_b: tuple[VariableDefinition, ...] = (),
        env_b: Mapping[str, str] | None = None,
        of_prompt: Mapping[str, str] | None = None,
        script: tuple[ScriptItem, ...] | None = None,
        env: Mapping[str, str] | None = None,
        latency: float = 0.0,
    ) -> None:
        self.seen: list[dict[str, str]] = []
        self.files: list[list[str]] = []

        @tool(variables=of_tool, idempotent=True)
        def look(state: RunState) -> None:
            self.seen.append(dict(state.env))
            self.files.append([file.path for file in state.files.list()])

        steps = script if script is not None else (call("look"), call("finish", result="helped"))
        self.script = Script(*steps, latency=latency)
        side_a = PromptDefinition(
            name=f"{name}-a", prompt="Work.", model=self.script.model, variables=variables,
            tools=(finish, look, *tools), env=of_prompt or {},
        )  # fmt: skip
        side_b = PromptDefinition(
            name=f"{name}-b", prompt="Check.", model=ScriptedModel(["go on"] * 9),
            variables=of_b, env=env_b or {},
        )  # fmt: skip
        ends = SessionToolBinding("finish", message_property="result")
        self.agent = AgentDefinition(
            name=name, type="dual_ai", expose_as_tool=True, max_session_turns=6, env=env or {},
            side_a=SideConfig(prompt=side_a, session_stop=ends), side_b=SideConfig(prompt=side_b),
        )  # fmt: skip


def lasting(name: str = "helper", **fields: Any) -> SubagentToolConfig:
    most = fields.pop("max_instances", None)
    stays = Resumable(receives_messages="side_a", max_instances=most)
    return SubagentToolConfig(name=name, resumable=stays, **fields)


def create(name: str = "helper", called: str = "Ada", **arguments: Any) -> Any:
    arguments.setdefault("message", "the payload")
    return call("subagent_create", agent=name, name=called, arguments=arguments)


class Asking:
    """A parent whose one step asks for a child that lacks variables."""

    def __init__(
        self, journal: Journal, ports: Ports, helper: Helper, config: Any = None, **runtime: Any
    ) -> None:
        direct = config is not None and config.resumable is False
        step = call("helper", message="the payload") if direct else create()
        self.script = Script(step)
        self.agents = [
            model_agent(self.script.model, config or lasting()),
            helper.agent,
        ]
        self.journal, self.ports, self.options = journal, ports, runtime

    def process(self) -> Runtime:
        return Runtime(self.agents, store=self.journal, ports=self.ports, **self.options)

    async def ask(self, runtime: Runtime, **start: Any) -> tuple[Run, str]:
        run = await runtime.start("assistant", "hello", **start)
        await run.result()
        (wanted,) = [x for x in await run.read() if x.type == "session:variables"]
        return run, wanted.request_id


async def provide(runtime: Runtime, run_id: str, request_id: str, values: Any) -> Run:
    with anyio.fail_after(1000):
        return await runtime.provide_variables(run_id, request_id, values)


async def booted(runtime: Runtime, run: Run, request_id: str, values: Any) -> Run:
    """Provide the values and wait until the child is done and its parent has heard of it."""
    child = await provide(runtime, run.run_id, request_id, values)
    await child.result()
    await run.result()
    return child


def error_of(text: str) -> Any:
    found = json.loads(text)
    assert found["error"] == "subagent_env_required"
    return found


# ── V-01: the structured error ───────────────────────────────────────────────────────────────


@pytest.mark.spec("V-01", "R-10")
@pytest.mark.parametrize("way", ["create", "direct", "immediate"])
@pytest.mark.parametrize("blocking", [True, False])
async def test_missing_variables_are_told_and_nothing_is_started(
    way: str, blocking: bool, journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"), scoped("MAY_BE", required=False), scoped("HAS"))
    form: dict[str, Any] = {"name": "helper", "blocking": blocking}
    if way == "create":
        config, script = lasting(blocking=blocking), Script(create())
    elif way == "direct":
        config, script = SubagentToolConfig(**form), Script(call("helper", message="x"))
    else:
        immediate = Immediate(scoped_env=("HAS",))
        config, script = SubagentToolConfig(immediate=immediate, **form), Script("done")
    agents = [model_agent(script.model, config), helper.agent]
    given_env = {"HAS": "planted-1f", "KEY": "planted-2e"}
    runtime_env = {} if way == "immediate" else {"HAS": "planted-3d"}
    async with Runtime(agents, env=runtime_env, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello", env=given_env)
        assert (await run.result()).output == "done"
    (wanted,) = observer.all("session:variables")
    if way == "immediate":
        text = script.heard()[1]
        head, _, body = text.partition("\n\n")
        assert head.startswith("Subagent (reference: ") and "has reported a failure" in head
        error = error_of(body)
    else:
        ((body, is_error),) = script.results()
        assert is_error
        error = error_of(body)
    assert error["request_id"] == wanted.request_id != ""
    assert error["required"] == ["KEY", "HAS"]
    assert error["missing"] == ["KEY"]
    assert error["path"] == f"/threads/{run.run_id}/variables/{wanted.request_id}"
    assert (wanted.lane, wanted.run_id, wanted.names) == ("own", run.run_id, ("KEY",))
    assert wanted.expires_at - wanted.at == HOUR * 1_000_000
    assert observer.run_ids == {run.run_id}, "nothing was started"
    assert not helper.script.requests
    assert "planted" not in repr(observer.events) + repr(script.requests)
    assert [x for x in observer.all("agent:child") if not x.error] == []


@pytest.mark.spec("V-01")
async def test_the_whole_graph_is_looked_at(journal: Journal, ports: Ports) -> None:
    """Prompts of both sides, their tools, and the branches that are enabled in the child."""
    leaf = Helper("leaf", scoped("OF_LEAF"))
    on = Helper("on", of_tool=(scoped("OF_ON"),))
    off = Helper("off", scoped("OF_OFF"))
    foreign = Helper("foreign", scoped("OF_FOREIGN"))
    helper = Helper(
        "helper",
        of_tool=(scoped("OF_TOOL"),),
        of_b=(scoped("OF_B"),),
        tools=(
            "leaf",
            SubagentToolConfig(name="on", optional="ON"),
            SubagentToolConfig(name="off", optional="OFF"),
            SubagentToolConfig(name="foreign", optional="FOREIGN"),
        ),
        env={"ON": "yes"},
    )
    script = Script(create())
    parent = model_agent(script.model, lasting(), env={"FOREIGN": "true"})
    agents = [parent, *(each.agent for each in (helper, leaf, on, off, foreign))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "hello")).result()
    ((text, _),) = script.results()
    missing = error_of(text)["missing"]
    assert sorted(missing) == ["OF_B", "OF_LEAF", "OF_ON", "OF_TOOL"]


@pytest.mark.spec("V-01", "D-09")
@pytest.mark.parametrize("first", [True, False])
async def test_what_one_of_two_tools_requires_is_required(
    first: bool, journal: Journal, ports: Ports
) -> None:
    @tool(variables=[scoped("KEY", required=first)])
    def one() -> None: ...

    @tool(variables=[scoped("KEY", required=not first)])
    def two() -> None: ...

    helper = Helper("helper", tools=(one, two))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        await asking.ask(runtime)
    assert error_of(asking.script.results()[0][0])["missing"] == ["KEY"]


@pytest.mark.spec("V-01", "D-07")
@pytest.mark.parametrize(
    "place", ["agent env", "prompt env", "prompt env of b", "runtime env", "leaf agent env"]
)
async def test_what_resolves_where_it_is_read_is_not_missing(
    place: str, journal: Journal, ports: Ports
) -> None:
    env = {"KEY": "default"}
    reads = (scoped("KEY"),)
    options: dict[str, Any] = {}
    more: list[AgentDefinition] = []
    match place:
        case "agent env":
            helper = Helper("helper", *reads, env=env)
        case "prompt env":
            helper = Helper("helper", *reads, of_prompt=env)
        case "prompt env of b":
            helper = Helper("helper", of_b=reads, env_b=env)
        case "leaf agent env":
            more.append(Helper("leaf", *reads, env=env).agent)
            helper = Helper("helper", tools=("leaf",))
        case _:
            helper = Helper("helper", *reads)
            options["env"] = env
    script = Script(create())
    agents = [model_agent(script.model, lasting()), helper.agent, *more]
    async with Runtime(agents, store=journal, ports=ports, **options) as runtime:
        await (await runtime.start("assistant", "hello")).result()
    assert script.results() == [("helped", False)]


@pytest.mark.spec("V-01", "D-09")
async def test_a_value_that_the_parent_merely_has_is_not_inherited(
    journal: Journal, ports: Ports
) -> None:
    """One that it declares as scoped itself, or was given as such, is."""
    for declares in (False, True):
        helper = Helper("helper", scoped("KEY"))
        script = Script(create())
        variables = (scoped("KEY"),) if declares else ()
        agents = [model_agent(script.model, lasting(), variables=variables), helper.agent]
        async with Runtime(agents, ports=ports, store="memory") as runtime:
            await (await runtime.start("assistant", "hello", env={"KEY": "v"})).result()
        assert bool(helper.seen) == declares
        if declares:
            assert helper.seen == [{"KEY": "v"}]
        else:
            assert error_of(script.results()[0][0])["missing"] == ["KEY"]


async def test_a_run_that_waits_stays_in_memory_until_its_hooks_have_been_called(
    ports: Ports,
) -> None:
    """The child that it starts meanwhile needs its place."""
    told: list[str] = []
    may_end = anyio.Event()

    @tool
    async def linger() -> None:
        await may_end.wait()

    hook = Hook("told", "after_subagent_created", lambda _, child: told.append(child.reference))
    helper = Helper("helper", scoped("KEY"))
    busy = Helper("busy", tools=(linger,), script=(call("linger"), call("finish", result="done")))
    script = Script(reply("", create(), call("busy", message="x")))
    parent = model_agent(script.model, lasting(), "busy", hooks=("told",))
    agents, journal = [parent, helper.agent, busy.agent], LateJournal(MemoryJournal())
    options: dict[str, Any] = {"hooks": [hook], "max_live": 2}
    async with Runtime(agents, store=journal, ports=ports, **options) as runtime:
        run = await runtime.start("assistant", "hello")
        with anyio.fail_after(1000):
            async with runtime.hub.subscribe("agent:tool:start", lossless=True) as started:
                async for event in started:
                    if event.name == "linger":
                        break
        (wanted,) = [x for x in await run.read() if x.type == "session:variables"]
        child = await provide(runtime, run.run_id, wanted.request_id, {"KEY": "v"})
        may_end.set()
        await child.result()
        await run.result()
    assert child.run_id in told and len(told) == 2


# ── V-02: they are provided ──────────────────────────────────────────────────────────────────


@pytest.mark.spec("V-02", "V-01")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("resumable", [True, False])
async def test_the_child_is_started_with_its_values_and_its_result_is_queued(
    resumable: bool, blocking: bool, journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"), scoped("TOKEN"))
    config = SubagentToolConfig(name="helper", blocking=blocking)
    if resumable:
        config = lasting(blocking=blocking)
    asking = Asking(journal, ports, helper, config)
    async with asking.process() as runtime:
        observer = Observer(runtime.hub)
        run, request_id = await asking.ask(runtime)
        pending = await runtime.pending_variables(run.run_id, request_id)
        assert (pending.request_id, pending.agent) == (request_id, "helper")
        assert (pending.required, pending.missing) == (("KEY", "TOKEN"), ("KEY", "TOKEN"))
        values = {"KEY": "k-5d", "TOKEN": ""}
        child = await provide(runtime, run.run_id, request_id, values)
        assert (await child.result()).output == "helped", "the handle serves at once"
        await run.result()
        (start,) = [x for x in observer.all("agent:child") if not x.error]
        (opened,) = [x for x in observer.all("session:open") if x.run_id == child.run_id]
    assert helper.seen == [values], "a blank text is a value"
    assert start.child_run_id == child.run_id
    assert (opened.input, opened.parent_run_id) == ("the payload", run.run_id)
    assert start.name == ("Ada" if resumable else "helper")
    assert (start.waits, start.blocking, start.resumable) == (False, blocking, resumable)
    assert asking.script.heard() == ["hello", RESULT.format(child.run_id, "helped")]
    assert len(asking.script.results()) == 1, "the call was answered by the error"


@pytest.mark.spec("V-02", "A-01")
async def test_the_original_payload_is_kept_with_its_files(journal: Journal, ports: Ports) -> None:
    @tool
    async def write(state: RunState) -> None:
        await state.files.write("plan.txt", b"first")

    @tool
    async def rewrite(state: RunState) -> None:
        await state.files.write("plan.txt", b"second")

    contents: list[bytes] = []

    @tool
    async def read(state: RunState) -> None:
        contents.append(await state.files.read("plan.txt"))

    helper = Helper(
        "helper", scoped("KEY"), tools=(read,), script=(call("read"), call("finish", result="x"))
    )
    config = lasting(init_attachments_property="files", init_user_message_property="task")
    arguments = {"task": "read it", "files": ["plan.txt"]}
    creating = call("subagent_create", agent="helper", name=" Ada ", arguments=arguments)
    script = Script(call("write"), creating, call("rewrite"))
    agents = [model_agent(script.model, config, write, rewrite), helper.agent]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        await run.result()
        (wanted,) = observer.all("session:variables")
        await booted(runtime, run, wanted.request_id, {"KEY": "v"})
        (opened,) = [x for x in observer.all("session:open") if x.open_agent == "helper"]
    assert (opened.input, opened.name, opened.tags) == ("read it", "Ada", ("name:Ada",))
    assert contents == [b"first"], "as it was when it was called"


@pytest.mark.spec("V-02", "D-09")
async def test_given_values_are_the_child_s_and_its_subtree_s_only(
    journal: Journal, ports: Ports
) -> None:
    leaf = Helper("leaf", scoped("KEY"))
    helper = Helper(
        "helper",
        tools=("leaf",),
        script=(call("look"), call("leaf", message="go"), call("finish", result="helped")),
    )
    asking = Asking(journal, ports, helper)
    seen: list[Any] = []

    @tool
    def look(state: RunState) -> None:
        seen.append(state.env.get("KEY"))

    watcher = model_agent(ScriptedModel([call("look"), "x"]), look, name="watcher")
    asking.agents += [leaf.agent, watcher]
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        await booted(runtime, run, request_id, {"KEY": "v"})
        await (await runtime.start("watcher", "go")).result()
        loaded = await runtime.runs.look_at(run.run_id)
        assert loaded is not None
    assert (helper.seen, leaf.seen, seen) == ([{"KEY": "v"}], [{"KEY": "v"}], [None])


@pytest.mark.spec("V-02")
async def test_what_has_been_set_meanwhile_is_no_longer_missing(
    journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"), scoped("TOKEN"))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        runtime.env["KEY"] = "default"
        pending = await runtime.pending_variables(run.run_id, request_id)
        assert (pending.required, pending.missing) == (("KEY", "TOKEN"), ("TOKEN",))
        await booted(runtime, run, request_id, {"TOKEN": "t"})
    assert helper.seen == [{"TOKEN": "t", "KEY": "default"}]


@pytest.mark.spec("V-02", "C-04", "C-05")
async def test_one_that_started_with_its_prompt_keeps_what_was_transferred(
    journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"), scoped("HAS"))
    hints = Immediate(scoped_env=("HAS", "MORE"), name_env="NAME", description_env="TASK")
    config = SubagentToolConfig(name="helper", immediate=hints)
    script = Script("done", "and done")
    agents = [model_agent(script.model, config), helper.agent]
    env = {"HAS": "h", "MORE": "m", "NAME": "Ada", "TASK": "read"}
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello", env=env)
        await run.result()
        (wanted,) = observer.all("session:variables")
        pending = await runtime.pending_variables(run.run_id, wanted.request_id)
        assert (pending.required, pending.missing) == (("KEY", "HAS"), ("KEY",))
        child = await booted(runtime, run, wanted.request_id, {"KEY": "k"})
        (opened,) = [x for x in observer.all("session:open") if x.run_id == child.run_id]
    assert {name: helper.seen[0][name] for name in ("KEY", "HAS", "MORE")} == {
        "KEY": "k", "HAS": "h", "MORE": "m",
    }  # fmt: skip
    assert (opened.input, opened.name) == ("read", "Ada")
    assert script.heard()[-1] == RESULT.format(child.run_id, "helped")


@pytest.mark.spec("V-02", "X-04")
async def test_what_the_child_must_have_comes_from_the_channel_and_from_its_parent() -> None:
    """The channel's process knows no agents; another one runs them."""
    helper = Helper("helper", scoped("KEY"), scoped("HAS"))
    config = SubagentToolConfig(name="helper", immediate=Immediate(scoped_env=("HAS",)))
    agents = [model_agent(Script("done", "and done").model, config), helper.agent]
    async with workers(lambda: agents, 1) as store, store.channel_runtime() as channel:
        run = await channel.start("assistant", "hello", env={"HAS": "h"})
        await run.result()
        (wanted,) = [x for x in await run.read() if x.type == "session:variables"]
        asked = run.run_id, wanted.request_id
        pending = await channel.pending_variables(*asked)
        assert (pending.required, pending.missing) == (("KEY", "HAS"), ("KEY",))
        with pytest.raises(VariablesRefused) as refused:
            await channel.provide_variables(*asked, {})
        assert refused.value.kind == "incomplete"
        child = await channel.provide_variables(*asked, {"KEY": "k"})
        assert (await child.result()).output == "helped"
        assert helper.seen == [{"KEY": "k", "HAS": "h"}]
        with pytest.raises(VariablesRefused) as refused:
            await channel.provide_variables(*asked, {"KEY": "k"})
        assert refused.value.kind == "booted"


@pytest.mark.spec("V-02")
@pytest.mark.parametrize("provided", [True, False])
async def test_it_works_over_a_restart(provided: bool, journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"), latency=10)
    asking = Asking(journal, ports, helper, grace=0)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        if provided:  # And the child is at work.
            child = await provide(runtime, run.run_id, request_id, {"KEY": "v"})
            await anyio.sleep(5)
    async with asking.process() as runtime:
        if not provided:
            pending = await runtime.pending_variables(run.run_id, request_id)
            assert pending.missing == ("KEY",)
            child = await provide(runtime, run.run_id, request_id, {"KEY": "v"})
        with pytest.raises(VariablesRefused) as caught:
            await provide(runtime, run.run_id, request_id, {"KEY": "w"})
        assert caught.value.kind == "booted"
        assert (await runtime.result(child.run_id)).output == "helped"
        await runtime.result(run.run_id)
    assert helper.seen == [{"KEY": "v"}]
    assert asking.script.heard()[1:] == [RESULT.format(child.run_id, "helped")]


@pytest.mark.spec("V-02", "C-10")
async def test_killed_after_any_commit_the_child_is_started_once(anyio_backend: Any) -> None:
    after = 0
    refusals: list[str] = []
    while True:
        ports, memory = virtual_ports(after), MemoryJournal()
        helper = Helper("helper", scoped("KEY"), latency=1)
        asking = Asking(memory, ports, helper, grace=0)
        async with asking.process() as runtime:
            run, request_id = await asking.ask(runtime)
        store = CrashJournal(memory, after)
        asking.journal = store  # type: ignore[assignment]
        async with asking.process() as runtime, anyio.create_task_group() as group:
            group.start_soon(provide, runtime, run.run_id, request_id, {"KEY": "v"})
            with anyio.move_on_after(60):
                await store.crashed.wait()
            group.cancel_scope.cancel()
        asking.journal = memory
        async with asking.process() as runtime:
            try:
                await provide(runtime, run.run_id, request_id, {"KEY": "v"})
            except VariablesRefused as error:
                refusals.append(error.kind)
            with anyio.fail_after(1000):
                await anyio.sleep(100)
                await runtime.result(run.run_id)
            lane = await runtime.hub.read(run.run_id)
            live = await memory.runs()
        (start,) = [x for x in lane if x.type == "agent:child"]
        assert helper.seen[-1] == {"KEY": "v"}, after
        told = [text for text in asking.script.heard() if text.startswith("Subagent")]
        assert told == [RESULT.format(start.child_run_id, "helped")], after
        owners = {key.split("/")[0] for key in ports.secrets.keys("")}
        assert {start.child_run_id} <= owners
        assert {x.run_id for x in live} == {run.run_id, start.child_run_id}
        if not store.crashed.is_set():
            break
        after += 1
    assert len(refusals) == after > 5, "only what was cut at the first commit was not accepted"
    assert set(refusals) == {"booted"}


@pytest.mark.spec("V-02")
async def test_of_two_who_answer_at_once_one_is_told_that_it_is_too_late(
    journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"))
    asking = Asking(journal, ports, helper)
    ends: list[str] = []
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)

        async def answer(value: str) -> None:
            try:
                await provide(runtime, run.run_id, request_id, {"KEY": value})
                ends.append(value)
            except VariablesRefused as refused:
                ends.append(refused.kind)

        async with anyio.create_task_group() as group:
            for value in ("one", "two", "three"):
                group.start_soon(answer, value)
        await run.result()
        owners = {key.split("/")[0] for key in ports.secrets.keys("")}
    assert sorted(ends) == sorted(["booted", "booted", helper.seen[0]["KEY"]])
    assert len(helper.seen) == 1
    assert len(owners) == 1, "what was refused is not kept"


@pytest.mark.spec("V-02")
async def test_a_busy_parent_starts_the_child_all_the_same(journal: Journal, ports: Ports) -> None:
    """The handle serves at once, also while the parent waits for its model."""
    helper = Helper("helper", scoped("KEY"))
    asking = Asking(journal, ports, helper)
    asking.script = Script(create(), "done", latency=30)
    asking.agents[0] = model_agent(asking.script.model, lasting())
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        await run.send("again")
        await anyio.sleep(10)
        child = await provide(runtime, run.run_id, request_id, {"KEY": "v"})
        with anyio.fail_after(100):
            assert (await child.result()).output == "helped"
        await run.result()
    assert asking.script.heard()[-1] == RESULT.format(child.run_id, "helped")


# ── V-02: refusals ───────────────────────────────────────────────────────────────────────────


async def refused(runtime: Runtime, run_id: str, request_id: str, values: Any = None) -> str:
    """The kind of the refusal; nothing was stored or written."""
    ports = runtime.ports
    before = ports.secrets.keys(""), len(await runtime.hub.read())
    given_values = {"KEY": "planted-7c"} if values is None else values
    with pytest.raises(VariablesRefused) as caught:
        await provide(runtime, run_id, request_id, given_values)
    assert (ports.secrets.keys(""), len(await runtime.hub.read())) == before
    for shown in (str(caught.value), repr(caught.value), repr(caught.value.__dict__)):
        assert "planted" not in shown and request_id in shown
    return caught.value.kind


@pytest.mark.spec("V-02")
async def test_unknown_and_foreign_requests_are_refused(journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        other, its_id = await asking.ask(runtime)
        assert request_id != its_id
        assert await refused(runtime, run.run_id, "0" * 12) == "unknown"
        assert await refused(runtime, run.run_id, its_id) == "unknown"
        assert await refused(runtime, other.run_id, request_id) == "unknown"
        assert await refused(runtime, "no-such-run", request_id) == "unknown"
        for run_id, wrong in ((run.run_id, its_id), ("no-such-run", request_id)):
            with pytest.raises(VariablesRefused) as caught:
                await runtime.pending_variables(run_id, wrong)
            assert caught.value.kind == "unknown"
    assert not helper.seen


@pytest.mark.spec("V-02")
async def test_a_request_is_answered_once(journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        await booted(runtime, run, request_id, {"KEY": "v"})
        assert await refused(runtime, run.run_id, request_id) == "booted"
        with pytest.raises(VariablesRefused) as caught:
            await runtime.pending_variables(run.run_id, request_id)
        assert caught.value.kind == "booted"
    assert helper.seen == [{"KEY": "v"}]


@pytest.mark.spec("V-02")
async def test_after_an_hour_a_request_has_expired(journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        await anyio.sleep(HOUR - 1)
        pending = await runtime.pending_variables(run.run_id, request_id)
        assert 0 < pending.expires_at - ports.clock.now() <= 1_000_000
        await anyio.sleep(1)
        assert await refused(runtime, run.run_id, request_id) == "expired"
    async with asking.process() as runtime:
        assert await refused(runtime, run.run_id, request_id) == "expired"
        with pytest.raises(VariablesRefused) as caught:
            await runtime.pending_variables(run.run_id, request_id)
        assert caught.value.kind == "expired"
    assert not helper.seen


@pytest.mark.spec("V-02")
@pytest.mark.parametrize("end", ["close", "terminate"])
async def test_a_parent_that_is_over_starts_nothing(
    end: str, journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        await (run.close() if end == "close" else run.terminate())
        await run.finished()
        assert await refused(runtime, run.run_id, request_id) == "ended"
    assert not helper.seen


@pytest.mark.spec("V-02", "C-07")
async def test_a_cap_that_is_reached_meanwhile_refuses(journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"))
    script = Script(reply("", create(called="one"), create(called="two")))
    agents = [model_agent(script.model, lasting(max_instances=1)), helper.agent]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        await run.result()
        one, two = [x.request_id for x in await run.read() if x.type == "session:variables"]
        child = await booted(runtime, run, one, {"KEY": "v"})
        assert await refused(runtime, run.run_id, two) == "cap"
        await runtime.terminate(child.run_id)
        await child.finished()
        await run.result()
        await booted(runtime, run, two, {"KEY": "w"})
    assert helper.seen == [{"KEY": "v"}, {"KEY": "w"}], "and is answered when there is room"


@pytest.mark.spec("V-02", "C-15")
async def test_the_tree_s_budget_refuses_too(journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"))
    script = Script(reply("", create(called="one"), create(called="two")))
    agents = [model_agent(script.model, lasting()), helper.agent]
    async with Runtime(agents, store=journal, ports=ports, max_descendants=1) as runtime:
        run = await runtime.start("assistant", "hello")
        await run.result()
        one, two = [x.request_id for x in await run.read() if x.type == "session:variables"]
        await booted(runtime, run, one, {"KEY": "v"})
        assert await refused(runtime, run.run_id, two) == "cap"
    assert helper.seen == [{"KEY": "v"}]


class Busy(Asking):
    """A parent that asks for two children, and is asking its model when they are answered."""

    def __init__(self, journal: Journal, ports: Ports, config: Any = None, **runtime: Any) -> None:
        self.helper = Helper("helper", scoped("KEY"))
        super().__init__(journal, ports, self.helper, config, **runtime)
        both = reply("", create(called="one"), create(called="two"))
        self.script = Script(both, "done", latency=10)
        self.agents[0] = model_agent(self.script.model, config or lasting())
        self.ends: list[str] = []

    async def begin(self, runtime: Runtime) -> tuple[Run, list[str]]:
        run = await runtime.start("assistant", "hello")
        await run.result()
        wanted = [x.request_id for x in await run.read() if x.type == "session:variables"]
        await run.send("again")
        await anyio.sleep(1)
        return run, wanted

    async def answer(self, runtime: Runtime, run: Run, request_id: str) -> None:
        try:
            await provide(runtime, run.run_id, request_id, {"KEY": "v"})
            self.ends.append("started")
        except VariablesRefused as error:
            self.ends.append(error.kind)
        except Closed:
            self.ends.append("closed")


@pytest.mark.spec("V-02", "C-07")
async def test_of_two_that_were_accepted_the_cap_refuses_one(
    journal: Journal, ports: Ports
) -> None:
    busy = Busy(journal, ports, lasting(max_instances=1))
    async with busy.process() as runtime:
        run, wanted = await busy.begin(runtime)
        async with anyio.create_task_group() as group:
            for request_id in wanted:
                group.start_soon(busy.answer, runtime, run, request_id)
        await anyio.sleep(100)
        await run.result()
        owners = {key.split("/")[0] for key in ports.secrets.keys("")}
    assert sorted(busy.ends) == ["cap", "started"]
    assert busy.helper.seen == [{"KEY": "v"}]
    assert len(owners) == 1, "what was refused is not kept"


@pytest.mark.spec("V-02", "T-09")
async def test_a_parent_that_ends_before_it_has_taken_them_starts_nothing(
    journal: Journal, ports: Ports
) -> None:
    busy = Busy(journal, ports)
    async with busy.process() as runtime:
        run, wanted = await busy.begin(runtime)
        async with anyio.create_task_group() as group:
            group.start_soon(busy.answer, runtime, run, wanted[0])
            await anyio.sleep(1)
            await run.terminate()
        assert ports.secrets.keys("") == ()
    assert (busy.ends, busy.helper.seen) == (["ended"], [])


@pytest.mark.spec("V-02", "R-16")
async def test_what_was_accepted_is_started_by_the_next_process(
    journal: Journal, ports: Ports
) -> None:
    busy = Busy(journal, ports, grace=0)
    async with anyio.create_task_group() as group, busy.process() as runtime:
        run, wanted = await busy.begin(runtime)
        group.start_soon(busy.answer, runtime, run, wanted[0])
        await anyio.sleep(1)
    async with busy.process() as runtime:
        await anyio.sleep(100)
        await runtime.result(run.run_id)
    assert (busy.ends, busy.helper.seen) == (["closed"], [{"KEY": "v"}])


@pytest.mark.spec("V-02")
@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        ({}, "incomplete", ("KEY", "TOKEN")),
        ({"KEY": "planted"}, "incomplete", ("TOKEN",)),
        ({"KEY": "planted", "TOKEN": "planted", "OTHER": "planted"}, "unwanted", ("OTHER",)),
        ({"key": "planted", "TOKEN": "planted"}, "unwanted", ("key",)),
        ({"sk-live-planted-0123": "x"}, "unwanted", ("sk-… (20 characters)",)),
        ({"KEY": "planted", "TOKEN": 17}, "value", ("TOKEN",)),
        ({"KEY": None, "TOKEN": b"planted"}, "value", ("KEY", "TOKEN")),
        ({"KEY": Secret("planted"), "TOKEN": "planted"}, "value", ("KEY",)),
        ({"KEY": "planted" + "x" * MAX_VALUE_CHARS, "TOKEN": ""}, "value", ("KEY",)),
        ([("KEY", "planted")], "value", ()),
        ("planted", "value", ()),
    ],
)
async def test_values_are_checked_before_anything_is_stored(
    values: Any, kind: str, names: tuple[str, ...], journal: Journal, ports: Ports
) -> None:
    helper = Helper("helper", scoped("KEY"), scoped("TOKEN"), scoped("SPARE", required=False))
    asking = Asking(journal, ports, helper)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        assert await refused(runtime, run.run_id, request_id, values) == kind
        with pytest.raises(VariablesRefused) as caught:
            await provide(runtime, run.run_id, request_id, values)
        assert caught.value.names == names
        assert all(name in str(caught.value) for name in names)
        right = {"KEY": "k", "TOKEN": "t"}
        await booted(runtime, run, request_id, right)
    assert helper.seen == [right], "a refusal spends nothing"


@pytest.mark.spec("V-03")
async def test_values_are_kept_per_run_and_go_with_it(journal: Journal, ports: Ports) -> None:
    helper = Helper("helper", scoped("KEY"), latency=10)
    asking = Asking(journal, ports, helper, SubagentToolConfig(name="helper"), grace=0)
    async with asking.process() as runtime:
        run, request_id = await asking.ask(runtime)
        child = await provide(runtime, run.run_id, request_id, {"KEY": "planted-9a"})
        await anyio.sleep(5)
        assert ports.secrets.get(f"{child.run_id}/KEY") == "planted-9a"
    async with asking.process() as runtime:
        await runtime.result(child.run_id)
        await runtime.result(run.run_id)
        assert ports.secrets.keys("") == (), "the child is over"
        assert "planted" not in repr(await runtime.hub.read())
    assert helper.seen == [{"KEY": "planted-9a"}]


# ── H-19: where values are seen ──────────────────────────────────────────────────────────────


class Logged(logging.Handler):
    """Every line that is logged, with its exception."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.__dict__!r}")


class Plan:
    """Where values are planted, and what goes on around them."""

    def __init__(self, draw: Any) -> None:
        yes = st.booleans()
        numbers = draw(
            st.lists(st.integers(2**60, 2**64 - 1), min_size=12, max_size=12, unique=True)
        )
        tokens = iter(f"zq{number:x}" for number in numbers)
        names = ("A", "B", "C")

        def env() -> dict[str, str]:
            return {"KEY_" + name: next(tokens) for name in names if draw(yes)}

        self.start, self.runtime, self.prompt = env(), env(), env()
        self.set_below = draw(st.sampled_from(["", next(tokens)]))
        self.provided, self.refused = next(tokens), next(tokens)
        self.hints = {"NAME": "Ada of the hints", "TASK": "task of the hints"}
        self.scoped_env = ("KEY_A", "KEY_B", *(["TASK"] if draw(yes) else []))
        self.description_env = draw(st.sampled_from([None, "TASK"]))
        self.name_env = draw(st.sampled_from([None, "NAME"]))
        self.immediate, self.blocking = draw(yes), draw(yes)
        self.leaf_by = draw(st.sampled_from(["create", "direct", "immediate"]))
        self.optional = draw(st.sampled_from([None, None, None, "KEY_C"]))
        self.raises, self.late, self.restart = draw(yes), draw(yes), draw(yes)

    @property
    def secrets(self) -> set[str]:
        """What must be seen nowhere; hints are, where they are declared as such."""
        found = {self.provided, self.refused, self.set_below}
        for env in (self.start, self.runtime, self.prompt):
            found.update(env.values())
        if not (self.immediate and self.description_env):
            found.add(self.hints["TASK"])
        if not (self.immediate and self.name_env):
            found.add(self.hints["NAME"])
        return found - {""}


class Told:
    """Whatever anybody outside of tools can get hold of."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.things: list[Any] = []
        runtime.hub.subscribe("*", self.things.append)
        runtime.hub.subscribe("agent:tool:*", self._broken)
        self.stream = runtime.hub.subscribe("*", after="start", lossless=True)

    @staticmethod
    def _broken(event: Any) -> None:
        raise ValueError(f"cannot take {event!r}")

    async def everything(self) -> list[str]:
        with anyio.move_on_after(1):
            async for event in self.stream:
                self.things.append(event)
        self.stream.close()
        hub = self.runtime.hub
        self.things += await hub.read()
        infos = await hub.journal.runs(live=False)
        texts = []
        for event in self.things:
            encoded = encode_event(event)
            texts += [repr(event), str(event), encoded.decode(), repr(decode_event(encoded))]
            if isinstance(event, CustomEvent):
                continue
            with suppress(TypeError):  # It refuses what holds a secret.
                texts.append(msgspec.json.encode(event).decode())
        public: list[Any] = [self.runtime, hub, hub.statistics(), infos, self.runtime.ports]
        public += [await hub.journal.load(info.run_id) for info in infos]
        for info in infos:
            found = await self.runtime.runs.look_at(info.run_id)
            public.append(found and (found[0], found[1]()))
        return texts + [repr(each) for each in public]


@pytest.mark.spec("H-19", "C-05", "V-02", "V-03", "D-09")
@settings(max_examples=examples(50), deadline=None)
@given(data=st.data())
async def test_planted_values_are_seen_nowhere(data: st.DataObject) -> None:
    plan = Plan(data.draw)
    texts: list[str] = []
    seen: list[dict[str, str]] = []

    @tool(idempotent=True)
    def probe(state: RunState) -> str:
        """Says of its state whatever a careless author might."""
        seen.append(dict(state.env))
        if plan.set_below:
            state.set_env("SET_BELOW", plan.set_below)
        for wrong in (17, [plan.refused], Secret(plan.refused)):
            try:
                state.set_env("KEY_A", wrong)  # type: ignore[arg-type]
            except HubbubError as error:
                texts.extend(traceback.format_exception(error))
        state.set_status(f"{state!r} {state.env!r}")
        told = f"{state!r} {state.env!r} {state.children!r} {state.messages!r} {state.hub!r}"
        if plan.raises:
            raise ToolError(told)
        return told

    stays = Resumable(receives_messages="side_a")
    leaf_fields: dict[str, Any] = {"name": "leaf"}
    if plan.leaf_by == "create":
        leaf_fields["resumable"] = stays
    leaf_fields["immediate"] = plan.leaf_by == "immediate"
    asks = {
        "create": [call("subagent_create", agent="leaf", name="x", arguments={"message": "go"})],
        "direct": [call("leaf", message="go")],
        "immediate": [],
    }[plan.leaf_by]
    needs = VariableDefinition(name="KEY_LEAF", required=True, scoped=True)
    leaf = Helper("leaf", needs, tools=(probe,), script=(call("probe"), call("finish", result="x")))
    middle = Helper(
        "middle",
        *(VariableDefinition(name=f"KEY_{name}") for name in "ABC"),
        tools=(probe, SubagentToolConfig(**leaf_fields)),
        script=(call("probe"), *asks, "waiting", "done"),
    )
    immediate: Any = False
    if plan.immediate:
        immediate = Immediate(
            scoped_env=plan.scoped_env,
            name_env=plan.name_env,
            description_env=plan.description_env,
        )
    config = SubagentToolConfig(
        name="middle", immediate=immediate, blocking=plan.blocking, resumable=stays,
        optional=plan.optional,
    )  # fmt: skip
    creating = create("middle", message="go")
    root = Script(call("probe"), "first", creating)
    agents = [
        model_agent(root.model, config, probe, env=plan.prompt),
        middle.agent,
        leaf.agent,
    ]
    logged = Logged()
    logger = logging.getLogger()
    level = logger.level
    logger.addHandler(logged)
    logger.setLevel(logging.DEBUG)
    memory = MemoryJournal()
    ports = virtual_ports()
    try:
        for process in range(2 if plan.restart else 1):
            store: Journal = LateJournal(memory) if plan.late else memory
            async with Runtime(agents, env=plan.runtime, store=store, ports=ports) as runtime:
                told = Told(runtime)
                if process == 0:
                    run = await runtime.start(
                        "assistant", "hello", env={**plan.start, **plan.hints}
                    )
                    with pytest.raises(HubbubError) as caught:
                        await runtime.start(
                            "assistant", env={"A B": plan.refused, "C": [plan.refused]}
                        )  # type: ignore[dict-item]
                    texts += traceback.format_exception(caught.value)
                else:
                    await runtime.hub.send_to_run(run.run_id, "again")
                await anyio.sleep(5)
                await runtime.result(run.run_id)
                if process == 0:
                    await runtime.hub.send_to_run(run.run_id, "create one")
                await anyio.sleep(5)
                for wanted in await runtime.hub.read(types="session:variables"):
                    if wanted.lane == "own":
                        texts += await answered(runtime, wanted, plan)
                await anyio.sleep(5)
                texts += await told.everything()
                texts.append(repr([run, await runtime.result(run.run_id)]))
    finally:
        logger.removeHandler(logged)
        logger.setLevel(level)
    requests = [*root.requests, *middle.script.requests, *leaf.script.requests]
    texts += [repr(request) for request in requests]
    texts += [msgspec.json.encode(request).decode() for request in requests]
    texts += logged.lines
    assert seen and seen[0].items() >= plan.start.items(), "tools do see them"
    haystack = "\n".join(texts)
    assert len(requests) > 1 and "session:open" in haystack
    if plan.immediate and plan.optional is None:
        assert plan.hints["TASK"] in haystack or not plan.description_env, "a hint is shown"
        assert plan.hints["NAME"] in haystack or not plan.name_env
    haystack += reachable(memory, told.things, requests)
    for secret in plan.secrets:
        assert secret not in haystack


async def answered(runtime: Runtime, wanted: Any, plan: Plan) -> list[str]:
    """Every wrong answer, and then the right one; what was said of it."""
    texts = []
    for values in (
        {}, {"KEY_LEAF": [plan.refused]}, {"OTHER": plan.refused}, plan.refused,
        {"KEY_LEAF": Secret(plan.refused)}, {"KEY_LEAF": plan.provided},
        {"KEY_LEAF": plan.refused},
    ):  # fmt: skip
        try:
            pending = await runtime.pending_variables(wanted.run_id, wanted.request_id)
            texts.append(repr(pending))
            child = await provide(runtime, wanted.run_id, wanted.request_id, values)
            texts.append(repr([child, await child.result()]))
        except VariablesRefused as error:
            texts += [repr(error), repr(error.__dict__), *traceback.format_exception(error)]
    return texts


def reachable(*roots: Any) -> str:
    """Every text that is found from ``roots`` by any path of references."""
    texts: list[str] = []
    seen, todo = set(), list(roots)
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type) or type(thing).__name__ == "module":
            continue
        seen.add(id(thing))
        if isinstance(thing, str):
            texts.append(thing)
        elif isinstance(thing, bytes | bytearray | msgspec.Raw):
            texts.append(bytes(thing).decode("latin-1"))
        elif isinstance(thing, Secret):
            todo.append(thing.reveal())
        elif hasattr(thing, "__struct_fields__"):
            todo.extend(getattr(thing, name) for name in thing.__struct_fields__)
        elif not callable(thing):
            todo.extend(gc.get_referents(thing))
    return "\n".join(texts)


def test_the_search_finds_what_is_there() -> None:
    assert "zq1" in reachable([{"a": ("zq1!",)}], 1)
    assert "zq1" in reachable({"a": Secret("zq1")})
    assert "zq1" in reachable(msgspec.Raw(b'{"a":"zq1"}'), None)
