"""Subagents that start with their prompt (SA 7.6, SB 5.2, C-04, C-05)."""

from collections.abc import Iterable
from typing import Any

import anyio
import pytest
from support.agents import Observer, model_agent
from support.crash_journal import CrashJournal

from hubbub import (
    AgentDefinition,
    Immediate,
    Model,
    PromptDefinition,
    Resumable,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.agents.state.family import FAILURE, RESULT
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, ScriptItem, call

pytestmark = pytest.mark.anyio


@tool(idempotent=True)
def finish(result: str) -> str:
    return result


class Script:
    """A model that plays a script; what it was shown, and when, is kept."""

    def __init__(self, *script: ScriptItem, latency: float = 0.0, repeat: bool = False) -> None:
        self.requests: list[ModelRequest] = []
        self.times: list[float] = []
        scripted = ScriptedModel(script, latency=latency, repeat=repeat)

        async def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            self.times.append(anyio.current_time())
            return await scripted.call(request)

        self.model = FunctionModel(answer)

    def heard(self, request: int = -1) -> list[str]:
        messages = self.requests[request].messages
        return [m.content for m in messages if isinstance(m, UserMessage)]


def starting(name: str, *, blocking: bool = True, **form: Any) -> SubagentToolConfig:
    immediate = Immediate(**form) if form else True
    return SubagentToolConfig(name=name, blocking=blocking, immediate=immediate)


def pair(
    name: str,
    a: Model,
    b: Model | None = None,
    *,
    tools_a: Iterable[Any] = (),
    tools_b: Iterable[Any] = (),
) -> AgentDefinition:
    """A ``dual_ai`` agent that ends with ``finish``, on whichever side."""
    ends = SessionToolBinding("finish", message_property="result")
    b = b or ScriptedModel(["go on"], repeat=True)
    side_a = PromptDefinition(name=f"{name}-a", prompt="Work.", model=a, tools=(finish, *tools_a))
    side_b = PromptDefinition(name=f"{name}-b", prompt="Check.", model=b, tools=(finish, *tools_b))
    return AgentDefinition(
        name=name,
        type="dual_ai",
        expose_as_tool=True,
        tool_description=f"does {name}",
        max_session_turns=9,
        side_a=SideConfig(prompt=side_a, session_stop=ends),
        side_b=SideConfig(prompt=side_b, session_stop=ends),
    )


def worker(name: str, *tools: Any, latency: float = 0.0, result: str = "") -> AgentDefinition:
    script = ScriptedModel([call("finish", result=result or f"{name} done")], latency=latency)
    return pair(name, script, tools_a=tools)


def starts(observer: Observer, agent: str) -> list[Any]:
    return [x for x in observer.all("agent:child") if x.child_agent == agent]


# ── when ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-04", "C-09")
async def test_it_runs_before_the_first_step_of_a_run_and_its_result_is_there(
    journal: Journal, ports: Ports
) -> None:
    parent = Script("one", "two", latency=1)
    agents = [model_agent(parent.model, starting("helper")), worker("helper", latency=5)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        began = anyio.current_time()
        run = await runtime.start("assistant", "hello")
        assert (await run.result()).output == "one"
        (start,) = starts(observer, "helper")
        assert parent.heard(0) == ["hello", RESULT.format(start.child_run_id, "helper done")]
        assert parent.times[0] - began >= 5, "a blocking one holds the step back"
        assert not any(
            message.calls
            for request in parent.requests
            for message in request.messages
            if isinstance(message, AssistantMessage)
        ), "no tool call is forged"
        assert observer.all("agent:tool:start") == [
            x for x in observer.all("agent:tool:start") if x.run_id == start.child_run_id
        ]
        await run.send("again")
        await run.result()
    assert len(starts(observer, "helper")) == 1, "not for a further session of the same prompt"
    assert (start.blocking, start.resumable, start.waits) == (True, False, True)
    taken = [x for x in observer.of(run.run_id) if x.type == "session:taken"]
    assert [item.type for x in taken for item in x.items] == [
        "session:open", "session:result", "session:message",
    ]  # fmt: skip


@pytest.mark.spec("C-04")
async def test_one_that_does_not_block_does_not_hold_the_step_back(
    journal: Journal, ports: Ports
) -> None:
    parent = Script("first", "and then", latency=1)
    agents = [
        model_agent(parent.model, starting("helper", blocking=False)),
        worker("helper", latency=5),
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        began = anyio.current_time()
        run = await runtime.start("assistant", "hello")
        assert (await run.result()).output == "first"
        assert anyio.current_time() - began < 2
        await anyio.sleep(10)
    (start,) = starts(observer, "helper")
    assert parent.heard(0) == ["hello"]
    assert parent.heard(1) == ["hello", RESULT.format(start.child_run_id, "helper done")]
    assert len(parent.requests) == 2, "its result forces a turn"


@pytest.mark.spec("C-04")
async def test_several_are_started_in_order_and_all_blocking_ones_are_waited_for(
    journal: Journal, ports: Ports
) -> None:
    parent = Script("done")
    tools = [starting("slow"), starting("late", blocking=False), starting("quick")]
    agents = [
        model_agent(parent.model, *tools),
        worker("slow", latency=20),
        worker("late", latency=60),
        worker("quick", latency=1),
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        began = anyio.current_time()
        run = await runtime.start("assistant", "hello")
        await run.result()
        assert 20 <= parent.times[0] - began < 25, "they run side by side"
    assert [x.child_agent for x in observer.all("agent:child")] == ["slow", "late", "quick"]
    told = [text.rpartition("\n\n")[2] for text in parent.heard(0)]
    assert told == ["hello", "quick done", "slow done"]


@pytest.mark.spec("C-04")
async def test_side_b_s_start_at_its_first_turn_and_not_when_sides_alternate(
    journal: Journal, ports: Ports
) -> None:
    a = Script("a1", "a2", call("finish", result="over"), latency=1)
    b = Script("b1", "b2", latency=1)
    agents = [
        pair("both", a.model, b.model, tools_a=[starting("of_a")], tools_b=[starting("of_b")]),
        worker("of_a"),
        worker("of_b"),
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("both", "hello")
        assert (await run.finished()).output == "over"
    (of_a,), (of_b,) = starts(observer, "of_a"), starts(observer, "of_b")
    assert (of_a.side, of_b.side) == ("side_a", "side_b")
    assert a.heard(0) == ["hello", RESULT.format(of_a.child_run_id, "of_a done")]
    assert b.heard(0) == ["a1", RESULT.format(of_b.child_run_id, "of_b done")]
    events = observer.of(run.run_id)
    assert events.index(of_b) > events.index(observer.first("session:turn"))
    opened = [x for x in observer.all("session:open") if x.open_agent == "of_b"]
    assert [x.input for x in opened] == ["a1"], "what made its prompt active"


@pytest.mark.spec("C-04", "D-10")
async def test_a_handoff_starts_those_of_the_new_prompt_and_those_of_the_old_again_on_return(
    journal: Journal, ports: Ports
) -> None:
    a = Script(call("second"), "unused", "back at the first", latency=1)
    b = Script("unused", call("first"), latency=1)
    first = _exposed("first", a.model, "second", starting("of_first"))
    second = _exposed("second", b.model, "first", starting("of_second"))
    agents = [first, second, worker("of_first", latency=3), worker("of_second", latency=3)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("first", "hello")
        assert (await run.result()).output == "back at the first"
        await run.send("more")
        await run.result()
    assert [x.child_agent for x in observer.all("agent:child")] == [
        "of_first", "of_second", "of_first",
    ]  # fmt: skip
    assert [_told(text) for text in b.heard(0)] == ["hello", "of_first done", "of_second done"]
    assert [_told(text) for text in a.heard(1)] == [
        "hello", "of_first done", "of_second done", "of_first done",
    ]  # fmt: skip


def _exposed(name: str, model: Model, *tools: Any) -> AgentDefinition:
    prompt = PromptDefinition(name=f"{name}-prompt", prompt="Help.", model=model, tools=tools)
    return AgentDefinition(name=name, expose_as_tool=True, side_a=SideConfig(prompt=prompt))


def _told(text: str) -> str:
    return text.rpartition("\n\n")[2]


@pytest.mark.spec("C-04")
async def test_a_restart_starts_none_again(journal: Journal, ports: Ports) -> None:
    """Left while the child is at work, while the model is asked, and while the run is parked."""
    parent = Script("one", "two", latency=10)
    agents = [model_agent(parent.model, starting("helper")), worker("helper", latency=10)]

    def process() -> Runtime:
        return Runtime(agents, store=journal, ports=ports, grace=0)

    seen: list[Any] = []
    async with process() as runtime:
        seen.append(Observer(runtime.hub))
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(5)
    async with process() as runtime:
        seen.append(Observer(runtime.hub))
        await anyio.sleep(15)
    async with process() as runtime:
        seen.append(Observer(runtime.hub))
        assert (await runtime.result(run.run_id)).output == "one"
    async with process() as runtime:
        seen.append(Observer(runtime.hub))
        await runtime.hub.send_to_run(run.run_id, "again")
        assert (await runtime.result(run.run_id)).output == "two"
    assert [len(starts(observer, "helper")) for observer in seen] == [1, 0, 0, 0]
    assert [_told(text) for text in parent.heard()] == ["hello", "helper done", "again"]


@pytest.mark.spec("C-04", "C-10")
async def test_killed_after_any_commit_each_starts_once_for_each_activation(
    anyio_backend: Any,
) -> None:
    after = 0
    while True:
        ports, memory = virtual_ports(after), MemoryJournal()
        a = Script(call("second"), "unused", latency=1)
        b = Script("unused", "at the end", latency=1)
        first = _exposed("first", a.model, "second", starting("of_first"))
        second = _exposed("second", b.model, starting("of_second"), starting("of_first"))
        agents = [first, second, worker("of_first"), worker("of_second")]
        run_id = ports.ids.run_id(0)
        store = CrashJournal(memory, after)
        async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:  # type: ignore[arg-type]
            runtime.hub.open("first", "hello", run_id=run_id)
            with anyio.move_on_after(60):
                await store.crashed.wait()
        async with Runtime(agents, store=memory, ports=ports) as runtime:
            await runtime.hub.open("first", "hello", run_id=run_id)
            with anyio.fail_after(1000):
                assert (await runtime.result(run_id)).output == "at the end", after
            lane = await runtime.hub.read(run_id)
        made = [x.child_agent for x in lane if x.type == "agent:child"]
        assert made == ["of_first", "of_second", "of_first"], after
        assert sorted(map(_told, b.heard())) == sorted(
            ["hello", "of_first done", "of_second done", "of_first done"]
        ), after
        if not store.crashed.is_set():
            break
        after += 1
    assert after > 15, "the whole conversation was cut at every commit"


@pytest.mark.spec("C-04")
async def test_it_is_recursive(journal: Journal, ports: Ports) -> None:
    """Each child's own prompt starts the next one, before the child's first step."""
    depth = 4
    scripts = [
        Script(call("finish", result=f"result {at}"), latency=1) for at in range(1, depth + 1)
    ]
    agents = [
        pair(
            f"level{at}",
            scripts[at - 1].model,
            tools_a=[starting(f"level{at + 1}")] if at < depth else [],
        )
        for at in range(1, depth + 1)
    ]
    parent = Script("done")
    agents.append(model_agent(parent.model, starting("level1")))
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        await (await runtime.start("assistant", "hello")).result()
    assert [x.child_agent for x in observer.all("agent:child")] == [
        f"level{at}" for at in range(1, depth + 1)
    ]
    assert [x.depth for x in observer.all("session:open")] == [0, 1, 2, 3, 4]
    for at, script in enumerate(scripts, 1):
        below = [f"result {at + 1}"] if at < depth else []
        assert [_told(text) for text in script.heard(0)] == ["hello", *below]
    times = [script.times[0] for script in scripts]
    assert times == sorted(times, reverse=True), "the innermost is asked first"
    assert [_told(text) for text in parent.heard(0)] == ["hello", "result 1"]


@pytest.mark.spec("C-04")
async def test_a_resumable_one_is_listed_and_stays(journal: Journal, ports: Ports) -> None:
    config = SubagentToolConfig(
        name="helper", immediate=True, resumable=Resumable(receives_messages="side_a")
    )
    parent = Script("done", "and done")
    agents = [model_agent(parent.model, config), worker("helper")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        await run.result()
        await run.send("again")
        await run.result()
    assert [_told(text) for text in parent.heard(0)] == ["hello", "helper done"]
    assert "helper" in parent.requests[0].system_notes[0]
    names = {spec.name for spec in parent.requests[0].tools}
    assert names == {"subagent_create", "subagent_message"}


@pytest.mark.spec("C-04", "T-10")
async def test_an_interrupted_run_does_not_wait_for_it_for_ever(
    journal: Journal, ports: Ports
) -> None:
    parent = Script("done")
    hangs = pair("helper", ScriptedModel([Fault("hang", times=None), "never"]))
    agents = [model_agent(parent.model, starting("helper")), hangs]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(10)
        receipt = await run.interrupt("enough")
        (start,) = starts(observer, "helper")
        assert receipt.run_ids == (run.run_id, start.child_run_id)
        await anyio.sleep(1)
        await run.send("still there?")
        with anyio.fail_after(100):
            assert (await run.result()).output == "done"
    assert len(starts(observer, "helper")) == 1
    assert parent.heard() == ["hello", "still there?"], "and no turn that nobody asked for"


# ── what it is told ──────────────────────────────────────────────────────────────────────────

HINTS = {"name_env": "HELPER_NAME", "description_env": "HELPER_TASK"}


@pytest.mark.spec("C-04", "C-05")
@pytest.mark.parametrize("has_name", [True, False])
@pytest.mark.parametrize("has_task", [True, False])
async def test_the_hints_give_name_and_message_without_asking_a_model(
    has_name: bool, has_task: bool, journal: Journal, ports: Ports
) -> None:
    env = {"HELPER_NAME": "Ada"} if has_name else {}
    env |= {"HELPER_TASK": "read the plan"} if has_task else {}
    parent = Script("done")
    agents = [model_agent(parent.model, starting("helper", **HINTS)), worker("helper")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello", env=env)
        await run.result()
    (opened,) = [x for x in observer.all("session:open") if x.open_agent == "helper"]
    assert opened.input == ("read the plan" if has_task else "hello")
    (start,) = starts(observer, "helper")
    assert start.name == ("Ada" if has_name else "helper")
    if has_name:
        assert "name:Ada" in opened.tags
    assert len(parent.requests) == 1, "no model was asked for it"


@pytest.mark.spec("C-04", "C-05")
async def test_without_the_object_form_the_activating_message_is_what_it_hears(
    journal: Journal, ports: Ports
) -> None:
    parent = Script("done")
    helper = Script(call("finish", result="ok"))
    agents = [model_agent(parent.model, starting("helper")), pair("helper", helper.model)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant")
        await run.result()
        assert starts(observer, "helper") == [], "no prompt is active before anything is said"
        await run.send("the first words")
        await run.result()
    assert helper.heard(0) == ["the first words"]
    assert starts(observer, "helper")[0].name == "helper"


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-04", "C-15")
@pytest.mark.parametrize("most", [1, 2])
async def test_beyond_the_depth_limit_the_failure_is_told_and_the_run_goes_on(
    most: int, journal: Journal, ports: Ports
) -> None:
    scripts = [Script(call("finish", result=f"result {at}")) for at in (1, 2, 3)]
    parent = Script("done")
    agents = [
        pair("level1", scripts[0].model, tools_a=[starting("level2")]),
        pair("level2", scripts[1].model, tools_a=[starting("level3")]),
        pair("level3", scripts[2].model),
        model_agent(parent.model, starting("level1")),
    ]
    async with Runtime(agents, store=journal, ports=ports, max_depth=most) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        assert (await run.result()).output == "done"
    refused = [x for x in observer.all("agent:child") if x.error]
    assert [x.child_agent for x in refused] == [f"level{most + 1}"]
    last = scripts[most - 1].heard(0)[-1]
    assert last == FAILURE.format(refused[0].child_run_id, refused[0].error)
    assert f"{most} deep" in last
    assert not scripts[most].requests, "nothing was started"
    assert [_told(text) for text in parent.heard(0)] == ["hello", "result 1"]


@pytest.mark.spec("C-04", "C-09")
async def test_a_failing_one_is_told_as_a_failure(journal: Journal, ports: Ports) -> None:
    parent = Script("done")
    broken = pair("helper", ScriptedModel([Fault("auth", times=None), "never"]))
    agents = [model_agent(parent.model, starting("helper")), broken]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        assert (await run.result()).output == "done"
    (start,) = starts(observer, "helper")
    told = parent.heard(0)[1]
    assert told.startswith(FAILURE.format(start.child_run_id, ""))
    assert "scripted fault (auth)" in told


# ── scoped_env ───────────────────────────────────────────────────────────────────────────────


class Looker:
    """A child whose tool looks at its variables."""

    def __init__(self, name: str = "helper", *below: Any) -> None:
        self.seen: list[dict[str, str]] = []
        self.states: list[str] = []

        @tool
        def look(state: RunState) -> str:
            self.seen.append(dict(state.env))
            return ", ".join(sorted(state.env))

        script = Script(call("look"), call("finish", result="looked"))
        self.script = script
        self.agent = pair(name, script.model, tools_a=[look, *below])


@pytest.mark.spec("C-05")
async def test_scoped_env_is_copied_into_the_child_s_scope_and_nowhere_else(
    journal: Journal, ports: Ports
) -> None:
    """Also what the parent has from its own agent, prompt or runtime: the child has not."""
    looker = Looker()
    parent = Script("done")
    config = starting("helper", scoped_env=("KEY", "OF_PROMPT", "ABSENT"))
    agent = model_agent(parent.model, config, env={"OF_PROMPT": "p-5fd2", "OTHER": "o-11aa"})
    async with Runtime([agent, looker.agent], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello", env={"KEY": "k-77e1"})
        await run.result()
        everything = repr(observer.events) + repr(await runtime.hub.read())
        (start,) = starts(observer, "helper")
        assert ports.secrets.keys(f"{start.child_run_id}/") == (), "gone with their run"
    assert looker.seen == [{"KEY": "k-77e1", "OF_PROMPT": "p-5fd2"}]
    everything += repr(parent.requests) + repr(looker.script.requests)
    for value in ("k-77e1", "p-5fd2", "o-11aa"):
        assert value not in everything


@pytest.mark.spec("C-05")
async def test_it_is_a_copy(journal: Journal, ports: Ports) -> None:
    """What the parent sets later does not reach the child's own value."""
    seen: list[str] = []

    @tool
    async def look(state: RunState) -> None:
        await anyio.sleep(10)
        seen.append(state.env["KEY"])

    @tool
    def change(state: RunState) -> None:
        state.set_env("KEY", "new")

    parent = Script(call("change"), "done", "done")
    config = starting("helper", blocking=False, scoped_env=("KEY",))
    child = pair(
        "helper", ScriptedModel([call("look"), call("finish", result="x")]), tools_a=[look]
    )
    agents = [model_agent(parent.model, config, change), child]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello", env={"KEY": "old"})
        await run.result()
        await anyio.sleep(20)
    assert seen == ["old"]


@pytest.mark.spec("C-05")
async def test_a_scoped_value_shows_where_it_is_declared_as_a_hint_and_only_there(
    journal: Journal, ports: Ports
) -> None:
    looker = Looker()
    parent = Script("done")
    config = starting("helper", scoped_env=("TASK", "KEY"), description_env="TASK")
    agents = [model_agent(parent.model, config), looker.agent]
    env = {"TASK": "task-9c41", "KEY": "key-0be2"}
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        await (await runtime.start("assistant", "hello", env=env)).result()
    assert looker.seen == [env]
    assert looker.script.heard(0) == ["task-9c41"]
    shown = repr(observer.events) + repr(looker.script.requests) + repr(parent.requests)
    assert "key-0be2" not in shown


@pytest.mark.spec("C-05", "D-09")
async def test_what_was_transferred_is_inherited_by_the_child_s_own_subtree(
    journal: Journal, ports: Ports
) -> None:
    inner = Looker("inner")
    outer = pair("outer", ScriptedModel([call("finish", result="x")]), tools_a=[starting("inner")])
    parent = Script("done")
    agents = [
        model_agent(parent.model, starting("outer", scoped_env=("KEY",)), env={"KEY": "v"}),
        outer,
        inner.agent,
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await (await runtime.start("assistant", "hello")).result()
    assert inner.seen == [{"KEY": "v"}]


@pytest.mark.spec("C-05", "V-03")
async def test_a_transferred_value_survives_a_restart(journal: Journal, ports: Ports) -> None:
    looker = Looker()
    slow = Script(call("look"), call("finish", result="looked"), latency=10)
    side_a = looker.agent.side_a
    assert side_a is not None and isinstance(side_a.prompt, PromptDefinition)
    child = pair("helper", slow.model, tools_a=[side_a.prompt.tools[1]])
    parent = Script("done")
    config = starting("helper", scoped_env=("KEY",))
    agents = [model_agent(parent.model, config, env={"KEY": "v"}), child]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as runtime:
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(5)
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await runtime.result(run.run_id)
    assert looker.seen == [{"KEY": "v"}]
