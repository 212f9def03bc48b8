"""``state``: what tools and hooks see and may do; parking, restarts and resets around it."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.agents import Observer, heard, model_agent

from hubbub import (
    AgentDefinition,
    Hook,
    Message,
    PromptDefinition,
    Resumable,
    Run,
    RunContext,
    RunState,
    Runtime,
    SideConfig,
    SubagentRegistryEntry,
    SubagentToolConfig,
    agent,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events import AgentComplete, SessionMessage, SessionReset
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call

pytestmark = pytest.mark.anyio

Work = Callable[[Any], Awaitable[Any]]


@tool
async def finish(message: str) -> str:
    return message


@tool
async def wait(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "waited"


@agent("double")
async def double(input: int, ctx: RunContext) -> int:
    return 2 * input


class Bench:
    """Where a run's tool, or its hook, does pieces of work."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.work: list[Work] = []
        self.found: list[Any] = []
        self.requests: list[ModelRequest] = []

    async def _do(self, state: Any) -> None:
        if self.work:
            try:
                self.found.append(await self.work.pop(0)(state))
            except Exception as error:
                self.found.append(error)

    @property
    def tool(self) -> Any:
        @tool
        async def act(state: RunState) -> str:
            await self._do(state)
            return "acted"

        return act

    def hook(self, id: str) -> Hook:
        async def act(state: RunState, value: Any) -> None:
            if self.where == "hook":
                await self._do(state)

        return Hook(id, "filter_messages", act)


class Family:
    """A parent and its child ("Ann"), a resumable subagent that nobody waits for."""

    def __init__(self, where: str = "tool") -> None:
        self.parent = Bench(where)
        self.child = Bench(where)
        self.observer: Observer
        self._reference = ""

    def _as_parent(self, request: ModelRequest) -> Any:
        self.parent.requests.append(request)
        last = request.messages[-1]
        if not isinstance(last, UserMessage):
            return "done"
        if last.content == "act":
            return call("act")
        if last.content == "create":
            arguments = {"message": "hello"}
            return call("subagent_create", agent="child", name="Ann", arguments=arguments)
        if last.content.startswith("tell "):
            return call("subagent_message", reference=self.reference, message=last.content[5:])
        return "done"

    def _as_child(self, request: ModelRequest) -> Any:
        self.child.requests.append(request)
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.content == "act":
            return call("act")
        if isinstance(last, UserMessage) and last.content == "wait":
            return call("wait", seconds=100)
        return call("finish", message=f"re: {heard(request)[-1]}")

    @property
    def reference(self) -> str:
        if not self._reference:
            self._reference = self.observer.first("agent:child").child_run_id
        return self._reference

    @property
    def agents(self) -> list[AgentDefinition]:
        worker = PromptDefinition(
            name="worker", prompt="You work.", model=FunctionModel(self._as_child),
            tools=(self.child.tool, finish, wait), hooks=("child",),
        )  # fmt: skip
        critic = PromptDefinition(name="critic", prompt="You judge.", model=ScriptedModel(["well"]))
        child = AgentDefinition(
            name="child", type="dual_ai", expose_as_tool=True, max_session_turns=9,
            side_a=SideConfig(prompt=worker, session_stop="finish"),
            side_b=SideConfig(prompt=critic),
            title="A child", description="It works.",
        )  # fmt: skip
        config = SubagentToolConfig(
            name="child", blocking=False, resumable=Resumable(receives_messages="side_a")
        )
        prompt = PromptDefinition(
            name="lead", prompt="You lead.", model=FunctionModel(self._as_parent),
            tools=(self.parent.tool, config), hooks=("parent",),
        )  # fmt: skip
        return [
            AgentDefinition(name="parent", side_a=SideConfig(prompt=prompt)), child, double,
        ]  # fmt: skip

    def open(self, journal: Journal, ports: Ports) -> Runtime:
        hooks = [self.parent.hook("parent"), self.child.hook("child")]
        runtime = Runtime(self.agents, hooks=hooks, store=journal, ports=ports)
        self.observer = Observer(runtime.hub)
        return runtime

    async def start(self, runtime: Runtime) -> Run:
        """The parent, its child there and idle."""
        run = await runtime.start("parent", "create")
        await anyio.sleep(60)
        return run

    async def in_parent(self, run: Run, work: Work) -> Any:
        return await self._done(self.parent, run, "act", work)

    async def in_child(self, run: Run, work: Work) -> Any:
        return await self._done(self.child, run, "tell act", work)

    async def _done(self, bench: Bench, run: Run, text: str, work: Work) -> Any:
        bench.work.append(work)
        before = len(bench.found)
        await run.send(text)
        await anyio.sleep(60)
        assert len(bench.found) == before + 1
        found = bench.found[-1]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture(params=["tool", "hook"])
def family(request: pytest.FixtureRequest) -> Family:
    return Family(request.param)


# ── what is seen ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01")
async def test_a_root_sees_itself(family: Family, journal: Journal, ports: Ports) -> None:
    async def look(state: RunState) -> str:
        assert isinstance(state, RunState)
        assert state.run_id == state.root_run_id
        assert (state.parent_run_id, state.agent, state.terminated) == (None, "parent", None)
        assert tuple(state.children) == ()
        assert await state.get_parent_thread() is None
        for stranger in ("ghost", "", state.run_id, other.run_id):
            assert await state.get_child_thread(stranger) is None
        assert [m.content for m in state.messages if isinstance(m, UserMessage)] == ["act"]
        assert state.run_id in repr(state)
        return state.run_id

    async with family.open(journal, ports) as runtime:
        other = await runtime.start("parent")
        run = await runtime.start("parent")
        assert await family.in_parent(run, look) == run.run_id


@pytest.mark.spec("T-01", "C-14")
async def test_a_parent_sees_its_children(family: Family, journal: Journal, ports: Ports) -> None:
    async def look(state: RunState) -> None:
        (entry,) = state.children
        assert isinstance(entry, SubagentRegistryEntry)
        assert (entry.reference, entry.name, entry.thread_name) == (
            family.reference, "child", "Ann",
        )  # fmt: skip
        assert (entry.title, entry.description) == ("A child", "It works.")
        assert (entry.resumable, entry.blocking, entry.parent_communication) == (
            True, False, "implicit",
        )  # fmt: skip
        assert entry.status == "idle"
        assert entry.created_at == family.observer.first("agent:child").created_at
        child = await state.get_child_thread(entry.reference)
        assert isinstance(child, RunState)
        assert (child.run_id, child.agent) == (entry.reference, "child")
        assert child.parent_run_id == child.root_run_id == state.run_id
        assert child.terminated is None
        assert [m.content for m in child.messages if isinstance(m, UserMessage)] == ["hello"]
        again = await child.get_parent_thread()
        assert again is not None and again.run_id == state.run_id

    async def look_from_below(state: RunState) -> None:
        assert tuple(state.children) == ()
        parent = await state.get_parent_thread()
        assert isinstance(parent, RunState)
        assert (parent.run_id, parent.agent) == (state.parent_run_id, "parent")
        assert [each.reference for each in parent.children] == [state.run_id]
        assert await state.get_child_thread(parent.run_id) is None, "a parent is no child"
        assert await state.get_child_thread(state.run_id) is None, "nor is one one's own"

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        await family.in_parent(run, look)
        await family.in_child(run, look_from_below)


@pytest.mark.spec("T-01")
async def test_a_child_that_was_spawned_is_found_but_not_listed(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def work(state: RunState) -> None:
        handle = state.spawn("parent", "hello", name="Bob")
        outcome = await handle.finished()
        assert outcome.output == "done"
        assert tuple(state.children) == (), "only instances that stay are"
        child = await state.get_child_thread(handle.run_id)
        assert child is not None and child.parent_run_id == state.run_id

    async with family.open(journal, ports) as runtime:
        await family.in_parent(await runtime.start("parent"), work)


@pytest.mark.spec("T-01", "R-13")
async def test_what_is_spawned_answers_by_its_handle_and_never_as_a_message(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def work(state: RunState) -> Any:
        handle = state.spawn("double", 21, name="Bob")
        outcome = await handle.result()
        assert outcome.run_id == handle.run_id
        return outcome.output

    async with family.open(journal, ports) as runtime:
        run = await runtime.start("parent")
        assert await family.in_parent(run, work) == 42
        start = next(x for x in family.observer.all("agent:start") if x.agent == "double")
        assert (start.root_run_id, start.parent_run_id) == (run.run_id, run.run_id)
        assert heard(family.parent.requests[-1]) == ["act"]


# ── what is said ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01", "T-02")
async def test_what_is_queued_at_work_is_seen_before_the_next_step_of_the_same_turn(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def work(state: RunState) -> None:
        receipt = state.queue_message("one")
        assert (await receipt).accepted
        state.queue_message(Message("two", silent=True))

    async with family.open(journal, ports) as runtime:
        run = await runtime.start("parent")
        await family.in_parent(run, work)
        sessions = family.observer.all("session:start")
    assert heard(family.parent.requests[-1]) == ["act", "one", "two"]
    # From a hook it is queued while the model is being asked: that turn's mail, or the next's.
    assert len(sessions) == 1
    last = family.parent.requests[-1].messages
    assert isinstance(last[1], AssistantMessage) and last[1].calls[0].output == "acted"


@pytest.mark.spec("T-01", "T-02", "T-13")
@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("triggers", [False, True])
async def test_what_is_queued_triggers_and_what_is_injected_waits_silent_or_not(
    silent: bool, triggers: bool, journal: Journal, ports: Ports
) -> None:
    """From a hook that is told of the session's end: the run is idle then."""
    requests: list[ModelRequest] = []
    told: list[Any] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "done"

    async def tell(state: RunState, outcome: Any) -> None:
        if not told:
            told.append(outcome)
            message = Message("psst", silent=silent)
            say = state.queue_message if triggers else state.inject_message
            receipt = await say(message)
            assert receipt.accepted

    agents = [model_agent(FunctionModel(answer), hooks=("tell",))]
    hooks = [Hook("tell", "after_session", tell)]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(3600)
        assert [heard(x) for x in requests[1:]] == ([["hello", "psst"]] if triggers else [])
        (message,) = observer.all("session:message")
        assert (message.silent, message.triggers) == (silent, triggers)
        assert runtime.hub.statistics().parked == 1, "it does not keep the run awake"
        await run.send("and")
        await run.result()
    assert heard(requests[-1]) == ["hello", "psst", "and"]


@pytest.mark.spec("T-01", "T-13")
async def test_what_is_injected_at_work_is_seen_at_the_next_step(
    journal: Journal, ports: Ports
) -> None:
    family = Family("tool")

    async def work(state: RunState) -> None:
        await state.inject_message("psst")

    async with family.open(journal, ports) as runtime:
        run = await runtime.start("parent")
        await family.in_parent(run, work)
        assert len(family.observer.all("session:start")) == 1
    assert heard(family.parent.requests[-1]) == ["act", "psst"]


@pytest.mark.spec("T-01", "H-20")
async def test_what_is_no_message_is_refused(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def work(state: RunState) -> None:
        for say in (state.queue_message, state.inject_message):
            for wrong in (None, 3, b"bytes", ["a"], Message(3)):  # type: ignore[arg-type]
                with pytest.raises(BadValue):
                    say(wrong)
        with pytest.raises(CallerError, match="expected a text"):
            state.set_status(3)  # type: ignore[arg-type]

    async with family.open(journal, ports) as runtime:
        await family.in_parent(await runtime.start("parent"), work)


@pytest.mark.spec("C-20", "T-01")
async def test_a_child_notifies_its_parent_in_these_words(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def work(state: RunState) -> None:
        receipt = await state.notify_parent("I need\n\na hand")
        assert receipt.accepted
        with pytest.raises(CallerError, match="expected a text"):
            state.notify_parent(3)  # type: ignore[arg-type]

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        await family.in_child(run, work)
        notice = next(
            x for x in family.observer.all("session:message") if x.source == family.reference
        )
    text = f"Subagent (reference: {family.reference}):\n\nI need\n\na hand"
    assert (notice.run_id, notice.content) == (run.run_id, text)
    assert (notice.silent, notice.triggers) == (True, True)
    assert notice.metadata == {"reference": family.reference}
    assert text in heard(family.parent.requests[-1])


@pytest.mark.spec("C-20")
async def test_a_root_has_nobody_to_notify(family: Family, journal: Journal, ports: Ports) -> None:
    async def work(state: RunState) -> None:
        with pytest.raises(CallerError, match=f"{state.run_id} is a root"):
            state.notify_parent("hello?")

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> str:
        with pytest.raises(CallerError, match=f"{ctx.run_id} is a root"):
            ctx.notify_parent("hello?")
        return "refused"

    async with family.open(journal, ports) as runtime:
        await family.in_parent(await runtime.start("parent"), work)
        assert not [x for x in family.observer.all("session:message") if x.content != "act"]
    async with Runtime([code], ports=ports, store="memory") as runtime:
        assert (await runtime.run("code")).output == "refused"


@pytest.mark.spec("C-20")
async def test_a_code_agent_notifies_the_run_that_spawned_it(
    journal: Journal, ports: Ports
) -> None:
    @agent("below")
    async def below(input: Any, ctx: RunContext) -> None:
        await ctx.notify_parent("half way")

    @agent("above")
    async def above(input: Any, ctx: RunContext) -> Any:
        child = ctx.spawn("below")
        async for message in ctx.messages():
            return [message.content, child.run_id]
        return None

    async with Runtime([above, below], store=journal, ports=ports) as runtime:
        text, reference = (await runtime.run("above")).output
    assert text == f"Subagent (reference: {reference}):\n\nhalf way"


@pytest.mark.spec("T-01", "C-14")
async def test_a_status_stands_in_the_parents_registry_and_wakes_nobody(
    family: Family, journal: Journal, ports: Ports
) -> None:
    shown: list[str] = []

    async def work(state: RunState) -> None:
        asked = len(family.parent.requests)
        state.set_status("reading page 7")
        await anyio.sleep(5)
        parent = await state.get_parent_thread()
        assert parent is not None
        (entry,) = parent.children
        shown.append(entry.status)
        assert len(family.parent.requests) == asked

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        family.child.work.append(work)
        await run.send("tell act")
        await anyio.sleep(2)
        await run.send("how is it going?")
        await anyio.sleep(60)
        notes = [note for x in family.parent.requests for note in x.system_notes]
    assert shown == ["reading page 7"]
    assert any(f"{family.reference}: child 'Ann': reading page 7" in note for note in notes)
    assert f"{family.reference}: child 'Ann': idle" in notes[-1]


# ── other runs ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01", "T-07")
async def test_another_run_is_looked_at_but_not_written(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def write(state: RunState) -> None:
        await state.files.write("mine.txt", "mine")
        await state.kv.set("mine", 1)

    async def work(state: RunState) -> None:
        other = await state.get_child_thread(family.reference)
        if state.parent_run_id is not None:
            other = await state.get_parent_thread()
        assert other is not None and other.run_id != state.run_id
        assert other.files.list() == ("mine.txt",)
        assert await other.files.read("mine.txt") == b"mine"
        assert other.kv.get("mine") == 1
        for attempt in (
            lambda: other.files.write("theirs.txt", "x"),
            lambda: other.files.write("mine.txt", "x"),
            lambda: other.files.delete("mine.txt"),
            lambda: other.kv.set("theirs", 1),
            lambda: other.kv.delete("mine"),
        ):
            with pytest.raises(CallerError, match=other.run_id):
                await attempt()
        for attempt in (
            lambda: other.set_env("THEIRS", "x"),
            lambda: other.set_status("busy"),
            lambda: other.notify_parent("hello"),
            lambda: other.spawn("double", 1),
        ):
            with pytest.raises(CallerError, match=other.run_id):
                attempt()
        assert state.files.list() == ("mine.txt",), "nor did it land here"
        assert "THEIRS" not in state.env and "THEIRS" not in other.env

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        await family.in_parent(run, write)
        await family.in_child(run, write)
        before = len([x for x in family.observer.events if x.type in ("agent:file", "agent:key")])
        await family.in_parent(run, work)
        await family.in_child(run, work)
        after = [x for x in family.observer.events if x.type in ("agent:file", "agent:key")]
    assert len(after) == before
    assert not [x for x in family.observer.all("agent:start") if x.agent == "double"]


@pytest.mark.spec("T-01")
async def test_another_run_is_sent_to(family: Family, journal: Journal, ports: Ports) -> None:
    async def work(state: RunState) -> None:
        child = await state.get_child_thread(family.reference)
        assert child is not None
        await child.inject_message("by the way")
        await anyio.sleep(1)
        await child.queue_message("from above")

    async with family.open(journal, ports) as runtime:
        await family.in_parent(await family.start(runtime), work)
    assert heard(family.child.requests[-1])[-2:] == ["by the way", "from above"]


# ── ending ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01", "T-05")
async def test_a_run_terminates_itself(family: Family, journal: Journal, ports: Ports) -> None:
    async def work(state: RunState) -> None:
        await state.terminate("enough")
        await anyio.sleep_forever()

    async with family.open(journal, ports) as runtime:
        run = await runtime.start("parent")
        family.parent.work.append(work)
        before = ports.clock.monotonic()
        await run.send("act")
        outcome = await run.finished()
        assert ports.clock.monotonic() - before < 1, "nobody waits for what was cancelled"
        assert (outcome.outcome, outcome.reason) == ("terminated", "enough")
        receipt = await run.send("hello?")
        assert not receipt.accepted and receipt.reason == "terminated"


@pytest.mark.spec("T-01", "T-05")
async def test_a_parent_terminates_a_child_and_sees_when(
    family: Family, journal: Journal, ports: Ports
) -> None:
    async def end(state: RunState) -> None:
        child = await state.get_child_thread(family.reference)
        assert child is not None
        assert (await child.terminate("enough")).accepted
        await child.terminate("twice")

    async def look(state: RunState) -> Any:
        (entry,) = state.children
        assert entry.status == "terminated"
        child = await state.get_child_thread(family.reference)
        assert child is not None
        return child.terminated

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        before = ports.clock.now()
        await family.in_parent(run, end)
        (ended,) = family.observer.all("agent:complete")
        at = await family.in_parent(run, look)
    assert isinstance(ended, AgentComplete)
    assert (ended.run_id, ended.outcome, ended.reason) == (family.reference, "terminated", "enough")
    assert before <= at <= ended.at


# ── parking and restarts ─────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-04")
@pytest.mark.parametrize("restart", [False, True], ids=["parked", "restarted"])
async def test_a_run_that_was_out_of_memory_comes_back_as_it_was(
    restart: bool, family: Family, journal: Journal, ports: Ports
) -> None:
    async def write(state: RunState) -> None:
        await state.files.write("mine.txt", "mine")
        await state.kv.set("mine", [1, 2])
        state.set_env("MINE", "set")

    async def look(state: RunState) -> Any:
        return (
            [(path, await state.files.read(path)) for path in state.files.list()],
            [(key, state.kv.get(key)) for key in state.kv.keys()],  # noqa: SIM118
            dict(state.env), tuple(state.children), state.run_id, state.root_run_id,
            state.parent_run_id, state.agent, state.terminated,
        )  # fmt: skip

    async def live(runtime: Runtime, run: Run) -> list[Any]:
        return [await family.in_parent(run, look), await family.in_child(run, look)]

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        await family.in_parent(run, write)
        await family.in_child(run, write)
        before = await live(runtime, run)
        request = family.parent.requests[-1]
        await anyio.sleep(86_400)
        assert runtime.runs.in_memory == ()
        if not restart:
            after = await live(runtime, run)
    if restart:
        async with family.open(journal, ports) as runtime:
            await anyio.sleep(60)
            assert family.observer.events == [], "nothing is done anew"
            after = await live(runtime, await runtime.handle(run.run_id))
    assert after == before
    later = family.parent.requests[-1]
    assert later.messages[: len(request.messages)] == request.messages
    assert (later.system, later.tools) == (request.system, request.tools)


@pytest.mark.spec("T-04", "T-03")
async def test_what_was_queued_before_a_restart_is_seen_after_it(
    journal: Journal, ports: Ports
) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "done"

    @tool
    async def act(state: RunState) -> None:
        state.queue_message("queued")
        state.inject_message("injected")
        await anyio.sleep(1000)

    def first(request: ModelRequest) -> Any:
        return call("act")

    async with Runtime(
        [model_agent(FunctionModel(first), act)], store=journal, ports=ports, grace=0
    ) as runtime:
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(10)
    async with Runtime([model_agent(FunctionModel(answer), act)], store=journal, ports=ports) as rt:
        assert (await rt.result(run.run_id)).output == "done"
    assert heard(requests[-1]) == ["hello", "queued", "injected"]


# ── reset ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-11")
@pytest.mark.parametrize("message", ["", "a fresh start"])
async def test_a_reset_empties_the_context_but_for_its_message(
    message: str, journal: Journal, ports: Ports
) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return f"answer {len(requests)}"

    agents = [model_agent(FunctionModel(answer))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "one")
        await run.result()
        await run.send("two")
        await run.result()
        before = await run.read()
        runtime.hub.emit(SessionReset(run_id=run.run_id, message=message))
        await anyio.sleep(60)
        assert len(requests) == (3 if message else 2), "a message is answered at once"
        await anyio.sleep(3600)
        await run.send("three")
        await run.result()
        after = await run.read()
    shown = [m.content if isinstance(m, UserMessage) else m.text for m in requests[-1].messages]
    assert shown == ([message, "answer 3"] if message else []) + ["three"]
    assert after[: len(before)] == before, "what was before stays in the journal"
    assert [x.type for x in after if x.type == "session:reset"] == ["session:reset"]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        again = await runtime.handle(run.run_id)
        await again.send("four")
        await again.result()
    assert heard(requests[-1]) == [*([message] if message else []), "three", "four"]


@pytest.mark.spec("T-11")
async def test_a_reset_interrupts_the_turn_and_leaves_all_else(
    journal: Journal, ports: Ports
) -> None:
    family = Family("tool")
    cancelled: list[str] = []

    async def write(state: RunState) -> None:
        await state.files.write("mine.txt", "mine")
        await state.kv.set("mine", 1)
        state.set_env("MINE", "set")

    async def hang(state: RunState) -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled.append("act")
            raise

    async def look(state: RunState) -> None:
        assert await state.files.read("mine.txt") == b"mine"
        assert state.kv.get("mine") == 1
        assert state.env["MINE"] == "set"
        assert [each.reference for each in state.children] == [family.reference]

    async with family.open(journal, ports) as runtime:
        run = await family.start(runtime)
        await family.in_parent(run, write)
        family.parent.work.append(hang)
        await run.send("act")
        await anyio.sleep(1)
        await run.send("queued meanwhile")
        runtime.hub.emit(SessionReset(run_id=run.run_id, message="fresh"))
        await anyio.sleep(60)
        assert cancelled == ["act"]
        assert heard(family.parent.requests[-1]) == ["fresh", "queued meanwhile"]
        ends = [x for x in family.observer.all("session:end") if x.run_id == run.run_id]
        assert ends[-2].outcome == "interrupted"
        await family.in_parent(run, look)
        notes = family.parent.requests[-1].system_notes
        assert re.search(f"{family.reference}: child 'Ann'", notes[0]), "the registry stays, too"
        messages = [x for x in await run.read() if isinstance(x, SessionMessage)]
        assert any(x.content == "act" for x in messages)


@pytest.mark.spec("T-10", "T-11")
async def test_a_reset_interrupts_the_child_that_was_waited_for(
    journal: Journal, ports: Ports
) -> None:
    async def never(request: ModelRequest) -> str:
        await anyio.sleep_forever()
        return "never"

    side = SideConfig(prompt=PromptDefinition(name="slow", prompt="", model=FunctionModel(never)))
    child = AgentDefinition(
        name="child", type="dual_ai", expose_as_tool=True, side_a=side, side_b=side
    )
    agents = [
        model_agent(
            ScriptedModel([call("child", message="go")]),
            SubagentToolConfig(name="child"),  # type: ignore[arg-type]
        ),
        child,
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await anyio.sleep(10)
        runtime.hub.emit(SessionReset(run_id=run.run_id))
        await anyio.sleep(300)
        reference = observer.first("agent:child").child_run_id
        ends = [x.outcome for x in observer.all("session:end") if x.run_id == reference]
        await run.terminate()
    assert ends == ["interrupted"]
