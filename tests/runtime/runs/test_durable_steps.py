"""A code agent that is executed again finds what it did on record (P-15, P-10)."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from support.agents import Observer, assert_one_life, echo_model, model_agent
from support.crash_journal import CrashJournal
from support.profiles import portion

from hubbub import AgentDefinition, Hub, Message, RunContext, RunState, Runtime
from hubbub.agents.code.lifecycle import CodeThread, fold_code, fold_code_all
from hubbub.agents.definitions.tools import tool
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, ChildChanged, InsideStep, ReservedEvent, RunEnded
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio

Body = Callable[[RunContext], Awaitable[Any]]


def code(body: Body, *, name: str = "worker", on_restart: Any = "resume") -> AgentDefinition:
    """A code agent of a function that looks at its context only."""

    async def execute(input: Any, ctx: RunContext) -> Any:
        return await body(ctx)

    return AgentDefinition(name=name, execute=execute, on_restart=on_restart)


async def own_lane(journal: Journal, run_id: str) -> list[Event]:
    loaded = await journal.load(run_id)
    return [] if loaded is None else list(loaded.events)


async def stopped(journal: Journal, ports: Ports, *agents: AgentDefinition, seconds: float) -> str:
    """Start a run of ``worker`` in a process that is stopped after some time; its id."""
    async with Runtime(agents, store=journal, ports=ports, grace=0) as runtime:
        run = await runtime.start("worker")
        await anyio.sleep(seconds)
    return run.run_id


async def resumed(
    journal: Journal, ports: Ports, run_id: str, *agents: AgentDefinition
) -> tuple[Any, list[Event]]:
    """What the run comes to in a further process, and what is on record then."""
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        with anyio.fail_after(1000):
            outcome = await runtime.finished(run_id)
    return outcome, await own_lane(journal, run_id)


# ── steps ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-15")
async def test_a_recorded_step_returns_its_value_and_runs_once(
    journal: Journal, ports: Ports
) -> None:
    ran: list[str] = []

    def plain(what: str, *, by: int = 1) -> dict[str, Any]:
        ran.append(what)
        return {"what": what, "number": len(ran) * by}

    async def slow(what: str) -> dict[str, Any]:
        await anyio.sleep(1)
        return plain(what)

    async def body(ctx: RunContext) -> list[Any]:
        values = [await ctx.step("plain", plain, "a", by=10)]
        values.append(await ctx.step("slow", slow, "b"))
        await anyio.sleep(5)
        values.append(await ctx.step("late", plain, "c"))
        return values

    run_id = await stopped(journal, ports, code(body), seconds=3)
    assert ran == ["a", "b"]
    outcome, recorded = await resumed(journal, ports, run_id, code(body))
    assert ran == ["a", "b", "c"]
    assert [value["number"] for value in outcome.output] == [10, 2, 3]
    records = [x for x in recorded if isinstance(x, e.AgentRecord)]
    assert [(x.name, x.index, x.value["what"]) for x in records] == [
        ("plain", 1, "a"), ("slow", 1, "b"), ("late", 1, "c")
    ]  # fmt: skip
    assert [x.attempt for x in recorded if isinstance(x, e.AgentRestore)] == [2]
    assert_one_life(recorded, run_id)


@pytest.mark.spec("P-15")
async def test_a_step_returns_once_its_value_is_on_record(journal: Journal, ports: Ports) -> None:
    async def body(ctx: RunContext) -> None:
        assert await ctx.step("one", lambda: 1) == 1
        records = [x for x in await own_lane(journal, ctx.run_id) if x.type == "agent:record"]
        assert len(records) == 1

    async with Runtime([code(body)], store=journal, ports=ports) as runtime:
        assert (await runtime.run("worker")).success


@pytest.mark.spec("P-15")
async def test_what_ran_but_was_not_on_record_runs_again(journal: Journal, ports: Ports) -> None:
    ran: list[int] = []

    async def effect(ctx: RunContext) -> str:
        ran.append(ctx.attempt)
        await anyio.sleep(10)
        return "done"

    async def body(ctx: RunContext) -> Any:
        return await ctx.step("effect", effect, ctx)

    run_id = await stopped(journal, ports, code(body), seconds=5)
    outcome, _ = await resumed(journal, ports, run_id, code(body))
    assert (ran, outcome.output) == ([1, 2], "done")


@pytest.mark.spec("P-15")
async def test_steps_of_one_name_are_told_apart_by_their_order(
    journal: Journal, ports: Ports
) -> None:
    ran: list[int] = []

    def once(number: int) -> int:
        ran.append(number)
        return number * number

    async def body(ctx: RunContext) -> list[int]:
        values = []
        for number in range(6):
            values.append(await ctx.step("square", once, number))
            await anyio.sleep(1)
        return values

    run_id = await stopped(journal, ports, code(body), seconds=2.5)
    outcome, _ = await resumed(journal, ports, run_id, code(body))
    assert outcome.output == [0, 1, 4, 9, 16, 25]
    assert ran == list(range(6))


@pytest.mark.spec("P-15")
async def test_concurrent_steps_of_different_names_may_finish_in_any_order(
    journal: Journal, ports: Ports
) -> None:
    ran: list[str] = []

    async def wait(name: str, seconds: float) -> str:
        await anyio.sleep(seconds)
        ran.append(name)
        return f"{name} done"

    async def body(ctx: RunContext) -> dict[str, str]:
        done: dict[str, str] = {}

        async def one(name: str, seconds: float) -> None:
            done[name] = await ctx.step(name, wait, name, seconds)

        order = [("slow", 10.0), ("fast", 1.0), ("medium", 2.0)]
        async with anyio.create_task_group() as group:
            for name, seconds in order if ctx.attempt == 1 else reversed(order):
                group.start_soon(one, name, seconds)
        return done

    run_id = await stopped(journal, ports, code(body), seconds=5)
    outcome, _ = await resumed(journal, ports, run_id, code(body))
    assert ran == ["fast", "medium", "slow"]
    assert outcome.output == {name: f"{name} done" for name in ran}


class Order(Struct):
    item: str
    lines: tuple[int, ...] = ()


VALUES: list[tuple[Any, Any, Any]] = [
    ((1, 2), Any, [1, 2]),
    ((1, 2), tuple[int, ...], (1, 2)),
    (Order("tea", (1,)), Any, {"item": "tea", "lines": [1]}),
    (Order("tea", (1,)), Order, Order("tea", (1,))),
    ({3: "x"}, Any, {"3": "x"}),
    ({3: "x"}, dict[int, str], {3: "x"}),
    (b"ab", bytes, b"ab"),
    (None, Any, None),
    ("text", Any, "text"),
]


@pytest.mark.spec("P-15")
@pytest.mark.parametrize(("value", "type_", "expected"), VALUES, ids=repr)
async def test_every_execution_sees_the_same_value(
    value: Any, type_: Any, expected: Any, ports: Ports
) -> None:
    journal, seen = MemoryJournal(), []

    async def body(ctx: RunContext) -> None:
        seen.append(await ctx.step("value", lambda: value, type=type_))
        await anyio.sleep(10)

    run_id = await stopped(journal, ports, code(body), seconds=5)
    await resumed(journal, ports, run_id, code(body))
    assert seen == [expected, expected]
    assert type(seen[0]) is type(seen[1]) is type(expected)


@pytest.mark.spec("P-15")
async def test_the_value_is_a_copy_that_nobody_else_can_change(
    journal: Journal, ports: Ports
) -> None:
    source = {"list": [1]}

    async def body(ctx: RunContext) -> Any:
        value = await ctx.step("value", lambda: source)
        assert value is not source
        value["list"].append(2)
        await anyio.sleep(1)
        return await ctx.step("again", lambda: source)

    run_id = await stopped(journal, ports, code(body), seconds=0.5)
    source["list"].append(3)
    outcome, recorded = await resumed(journal, ports, run_id, code(body))
    assert outcome.output == {"list": [1, 3]}
    assert next(x.value for x in recorded if isinstance(x, e.AgentRecord)) == {"list": [1]}


@pytest.mark.spec("P-15")
async def test_an_exception_is_raised_and_not_recorded(journal: Journal, ports: Ports) -> None:
    tries: list[int] = []

    def fail_at_first(ctx: RunContext) -> str:
        tries.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("no network")
        return "fine"

    async def body(ctx: RunContext) -> str:
        try:
            value: str = await ctx.step("fetch", fail_at_first, ctx)
        except ConnectionError:
            value = "none"
        await ctx.step("then", lambda: None)
        await anyio.sleep(5)
        return value

    run_id = await stopped(journal, ports, code(body), seconds=1)
    before = await own_lane(journal, run_id)
    assert [x.name for x in before if isinstance(x, e.AgentRecord)] == ["then"]
    outcome, _ = await resumed(journal, ports, run_id, code(body))
    assert (tries, outcome.output) == ([1, 2], "fine")


@pytest.mark.spec("P-15")
async def test_what_cannot_be_kept_is_refused_and_leaves_no_record(
    journal: Journal, ports: Ports
) -> None:
    async def fetch() -> str:
        return "x"

    async def body(ctx: RunContext) -> None:
        with pytest.raises(BadValue, match="result of step 'a'"):
            await ctx.step("a", object)
        with pytest.raises(BadValue, match=r"result of step 'b'.*change type="):
            await ctx.step("b", lambda: "text", type=int)
        with pytest.raises(BadValue, match=r"expected a function: ctx.step\('c', function"):
            await ctx.step("c", fetch())  # type: ignore[arg-type]
        for name in ("", 7, "x" * 300, "\ud800"):
            with pytest.raises(BadValue, match="name of a step"):
                await ctx.step(name, fetch)  # type: ignore[arg-type]

    async with Runtime([code(body)], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("worker")
        assert outcome.success, outcome.reason
    assert "agent:record" not in [x.type for x in await own_lane(journal, outcome.run_id)]


@pytest.mark.spec("P-15")
async def test_a_recorded_value_that_no_longer_fits_is_a_clear_error(
    journal: Journal, ports: Ports
) -> None:
    async def before(ctx: RunContext) -> None:
        await ctx.step("count", lambda: "three")
        await anyio.sleep(10)

    async def after(ctx: RunContext) -> None:
        await ctx.step("count", lambda: 3, type=int)

    run_id = await stopped(journal, ports, code(before), seconds=1)
    outcome, _ = await resumed(journal, ports, run_id, code(after))
    assert outcome.outcome == "failed"
    assert "result of step 'count'" in outcome.reason
    assert "another name" in outcome.reason


@pytest.mark.spec("P-15", "R-04")
async def test_after_the_end_of_the_run_there_are_no_steps(journal: Journal, ports: Ports) -> None:
    ran: list[str] = []
    problems: list[Exception] = []

    async def try_to(ctx: RunContext, name: str, function: Callable[[], Any]) -> None:
        with pytest.raises(RunEnded) as caught:
            await ctx.step(name, function)
        problems.append(caught.value)

    async def execute(input: Any, ctx: RunContext) -> None:
        def end() -> None:
            ran.append("end")
            ctx.hub.emit(e.AgentComplete())

        await try_to(ctx, "ends the run", end)
        await try_to(ctx, "after it", lambda: ran.append("never"))
        with pytest.raises(RunEnded):
            ctx.spawn("worker")

    definition = AgentDefinition(name="worker", execute=execute, emits_start_complete=True)
    async with Runtime([definition], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("worker")
    assert (ran, len(problems)) == (["end"], 2)
    assert "agent:record" not in [x.type for x in await own_lane(journal, outcome.run_id)]


@pytest.mark.spec("P-15")
async def test_only_the_runtime_writes_records(journal: Journal, ports: Ports) -> None:
    async def body(ctx: RunContext) -> None:
        with pytest.raises(ReservedEvent, match="agent:record"):
            ctx.hub.emit(e.AgentRecord(name="mine", index=1))

    async with Runtime([code(body)], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("worker")
    assert outcome.success, outcome.reason


@pytest.mark.spec("P-15")
async def test_what_is_kept_by_itself_is_refused_inside_of_a_step(
    journal: Journal, ports: Ports
) -> None:
    """An execution that skips the step would miss it, and count the next ones wrongly."""
    refused: list[str] = []

    async def body(ctx: RunContext) -> str:
        async def hear(event: Any) -> None: ...

        tries: dict[str, Callable[[], Any]] = {
            "spawn": lambda: ctx.spawn("worker"),
            "step": lambda: ctx.step("inner", lambda: 1),
            "messages": lambda: anext(ctx.messages()),
            "subscribe": lambda: ctx.hub.subscribe("session:message", hear),
        }
        for name, attempt in tries.items():
            with pytest.raises(InsideStep, match=f"inside of step '{name}'"):
                await ctx.step(name, attempt)
            refused.append(name)
        # Asking the user is not kept by itself: there it belongs.
        answer: str = await ctx.step("asked", ctx.ask, "Deploy?")
        await anyio.sleep(5)
        return answer

    asked: list[str] = []
    for boot in (1, 2):
        async with Runtime([code(body)], store=journal, ports=ports, grace=0) as runtime:

            def answer(event: Any, hub: Hub = runtime.hub) -> None:
                asked.append(event.question)
                hub.reply(event.prompt_id, "yes")

            runtime.hub.subscribe("session:prompt", answer)
            if boot == 1:
                run = await runtime.start("worker")
                await anyio.sleep(1)
            else:
                outcome = await runtime.finished(run.run_id)
    assert outcome.output == "yes", outcome.reason
    assert asked == ["Deploy?"]
    assert refused == ["spawn", "step", "messages", "subscribe"] * 2


# ── children ─────────────────────────────────────────────────────────────────────────────────


def helper(started: list[str]) -> AgentDefinition:
    async def execute(input: str, ctx: RunContext) -> str:
        if ctx.attempt == 1:
            started.append(input)
        await anyio.sleep(len(input))
        return f"helped {input}"

    return AgentDefinition(name="helper", execute=execute, on_restart="resume")


@pytest.mark.spec("P-15", "R-13")
async def test_a_child_on_record_is_found_again_running_or_over(
    journal: Journal, ports: Ports
) -> None:
    started: list[str] = []

    async def body(ctx: RunContext) -> list[Any]:
        children = [ctx.spawn("helper", text) for text in ("a", "a" * 20)]
        await anyio.sleep(5)
        children.append(ctx.spawn(helper(started), "b"))
        return [(await child.result()).output for child in children]

    agents = (code(body), helper(started))
    run_id = await stopped(journal, ports, *agents, seconds=3)
    outcome, recorded = await resumed(journal, ports, run_id, *agents)
    assert outcome.output == ["helped a", "helped " + "a" * 20, "helped b"]
    assert sorted(started) == ["a", "a" * 20, "b"]
    assert len([x for x in recorded if isinstance(x, e.AgentChild)]) == 3
    assert len(await journal.runs(live=False)) == 4


@pytest.mark.spec("P-15")
async def test_code_that_now_starts_another_agent_is_told_so(
    journal: Journal, ports: Ports
) -> None:
    async def before(ctx: RunContext) -> None:
        ctx.spawn("helper", "a")
        await anyio.sleep(10)

    async def after(ctx: RunContext) -> None:
        with pytest.raises(ChildChanged) as caught:
            ctx.spawn("other", "a")
        assert (caught.value.recorded, caught.value.asked) == ("helper", "other")
        raise caught.value

    run_id = await stopped(journal, ports, code(before), helper([]), seconds=1)
    agents = (code(after), helper([]), code(before, name="other"))
    outcome, _ = await resumed(journal, ports, run_id, *agents)
    assert outcome.outcome == "failed"
    assert "child number 1 is on record as a run of 'helper'" in outcome.reason
    assert "start a new run for the new code" in outcome.reason


@pytest.mark.spec("P-15")
async def test_children_that_were_refused_or_that_tools_started_do_not_shift_the_others(
    journal: Journal, ports: Ports
) -> None:
    started: list[str] = []

    @tool
    async def delegate(state: RunState) -> str:
        state.spawn("helper", "by a tool")
        return "started"

    async def body(ctx: RunContext) -> list[Any]:
        model = ScriptedModel([reply("", call("delegate")), "done"])
        async with ctx.session(model=model, tools=[delegate]) as session:
            if ctx.attempt == 1:
                await session.send("go")
                async for _ in session.receive():
                    pass
        children = [ctx.spawn("helper", "first")]
        with pytest.raises(BadValue):
            ctx.spawn("helper", 7)
        children.append(ctx.spawn("helper", "third"))
        await anyio.sleep(20)
        return [(await child.result()).output for child in children]

    agents = (code(body), helper(started))
    run_id = await stopped(journal, ports, *agents, seconds=5)
    outcome, _ = await resumed(journal, ports, run_id, *agents)
    assert outcome.output == ["helped first", "helped third"], outcome.reason
    assert sorted(started) == ["by a tool", "first", "third"]


# ── messages ─────────────────────────────────────────────────────────────────────────────────


def hears(log: list[str], *, way: str) -> AgentDefinition:
    """Logs its messages, each as it came; a consumed one again is marked with ``*``."""

    async def body(ctx: RunContext) -> list[str]:
        heard: list[str] = []
        done = anyio.Event()

        async def hear(message: Any) -> None:
            heard.append(message.content)
            log.append(f"{ctx.attempt}{'*' if message.redelivered else ' '}{message.content}")
            await anyio.sleep(2)
            if message.content == "last":
                done.set()

        if way == "handler":
            ctx.hub.subscribe("session:message", hear)
            await done.wait()
        elif way == "handler of the run":
            ctx.hub.subscribe(["session:message"], hear, run_id=ctx.run_id)
            await done.wait()
        else:
            named = partial(ctx.hub.subscribe, ["session:message", "shop:order"])
            async for message in ctx.messages() if way == "messages" else named():
                await hear(message)
                if done.is_set():
                    break
        return heard

    return code(body)


@pytest.mark.spec("P-15", "R-07", "T-03")
@pytest.mark.parametrize("way", ["messages", "handler", "handler of the run", "stream"])
async def test_consumed_messages_come_again_first_and_marked(
    way: str, journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    definition = hears(log, way=way)
    async with Runtime([definition], store=journal, ports=ports, grace=0) as runtime:
        run = await runtime.start("worker")
        for text in ("a", "b", "c"):
            await run.send(text)
        await anyio.sleep(3)  # b is at hand.
    assert log == ["1 a", "1 b"]
    log.clear()
    async with Runtime([definition], store=journal, ports=ports, grace=0) as runtime:
        await anyio.sleep(5)  # a and b are consumed, c is at hand.
    assert log == ["2*a", "2 b", "2 c"]
    log.clear()
    async with Runtime([definition], store=journal, ports=ports) as runtime:
        await runtime.hub.send_to_run(run.run_id, "last")
        outcome = await runtime.finished(run.run_id)
    assert log == ["3*a", "3*b", "3 c", "3 last"]
    assert outcome.output == ["a", "b", "c", "last"]
    recorded = await own_lane(journal, run.run_id)
    taken = [i for x in recorded if isinstance(x, e.SessionTaken) for i in x.items]
    messages = [(i.content, i.redelivered) for i in taken if isinstance(i, e.SessionMessage)]
    assert messages == [(text, False) for text in ("a", "b", "c", "last")]


@pytest.mark.spec("P-15", "R-17")
async def test_a_run_closed_before_the_crash_still_ends_after_it(
    journal: Journal, ports: Ports
) -> None:
    async def body(ctx: RunContext) -> list[str]:
        await anyio.sleep(5)
        return [message.content async for message in ctx.messages()]

    async with Runtime([code(body)], store=journal, ports=ports, grace=0) as runtime:
        run = await runtime.start("worker")
        await run.send("a")
        await run.close()
        await anyio.sleep(1)
    outcome, _ = await resumed(journal, ports, run.run_id, code(body))
    assert outcome.output == ["a"]


# ── restarts ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-15", "R-02", "T-09")
async def test_a_run_that_is_not_to_resume_fails_and_whoever_waits_is_told(
    journal: Journal, ports: Ports
) -> None:
    ran: list[str] = []

    async def below(ctx: RunContext) -> None:
        ran.append(ctx.run_id)
        async for _ in ctx.messages():
            await anyio.sleep_forever()

    async def body(ctx: RunContext) -> list[str]:
        child = ctx.spawn("below")

        async def tell() -> None:
            for text in ("at hand", "waiting"):
                await ctx.hub.send_to_run(child.run_id, text)

        await ctx.step("tell", tell)
        outcome = await child.result()
        return [child.run_id, outcome.outcome, outcome.reason]

    agents = [code(body), code(below, name="below", on_restart="fail")]
    run_id = await stopped(journal, ports, *agents, seconds=5)
    # A hub of its own: listened to before the first run goes on.
    async with Hub(journal=journal, ports=ports) as hub:
        observer = Observer(hub)
        async with Runtime(agents, hub=hub) as runtime:
            child_id, outcome, reason = (await runtime.finished(run_id)).output
        letters = [x for x in observer.all("hub:dead_letter") if x.to == child_id]
    assert ran == [child_id]
    assert (outcome, reason) == ("failed", "the process stopped while this run was at work")
    recorded = await own_lane(journal, child_id)
    assert assert_one_life(recorded, child_id).outcome == "failed"
    assert [x.type for x in recorded][-3:] == ["agent:failed", "session:end", "agent:complete"]
    assert [x.message.content for x in letters] == ["at hand", "waiting"]
    assert "agent:restore" not in [x.type for x in recorded]


@pytest.mark.spec("P-15", "R-02")
async def test_every_restart_is_a_further_attempt_of_the_same_run(
    journal: Journal, ports: Ports
) -> None:
    attempts: list[tuple[str, int]] = []

    async def body(ctx: RunContext) -> int:
        attempts.append((ctx.run_id, ctx.attempt))
        for number in range(5):
            await ctx.step(f"{number}", lambda: None)
            await anyio.sleep(1)
        return ctx.attempt

    run_id = await stopped(journal, ports, code(body), seconds=0.5)
    for _ in range(3):
        async with Runtime([code(body)], store=journal, ports=ports, grace=0):
            await anyio.sleep(1.5)
    outcome, recorded = await resumed(journal, ports, run_id, code(body))
    assert attempts == [(run_id, number) for number in range(1, 6)]
    assert outcome.output == 5
    assert [x.attempt for x in recorded if isinstance(x, e.AgentRestore)] == [2, 3, 4, 5]
    assert_one_life(recorded, run_id)


class Late(LateJournal):
    """A late journal over one that crashes."""

    def __init__(self, inner: CrashJournal) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self.crashed = inner.crashed


def killed(journal: MemoryJournal, after: int | None, late: bool) -> tuple[CrashJournal, Any]:
    crash = CrashJournal(journal, after)
    return crash, Late(crash) if late else crash


async def kill(
    journal: MemoryJournal, ports: Ports, *agents: AgentDefinition, run_id: str, after: int
) -> None:
    """One process: it starts the run or goes on with it, and dies after some commits."""
    _, store = killed(journal, after, late=False)
    async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
        if await journal.info(run_id) is None:
            runtime.hub.open("worker", run_id=run_id)
        await anyio.sleep(10)


async def just_dies(ctx: RunContext) -> None:
    await anyio.sleep_forever()


@pytest.mark.spec("P-10")
async def test_a_run_that_kills_its_process_three_times_fails_as_a_crash_loop(
    ports: Ports,
) -> None:
    journal, run_id = MemoryJournal(), ports.ids.run_id(ports.clock.now())
    await kill(journal, ports, code(just_dies), run_id=run_id, after=2)  # Opened, started.
    for _ in range(2):
        await kill(journal, ports, code(just_dies), run_id=run_id, after=1)  # Restored.
    outcome, recorded = await resumed(journal, ports, run_id, code(just_dies))
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("crash_loop: the process died 3 times")
    assert [x.attempt for x in recorded if isinstance(x, e.AgentRestore)] == [2, 3]
    (failed,) = [x for x in recorded if isinstance(x, e.AgentFailed)]
    assert failed.error_type == "CrashLoop"
    assert_one_life(recorded, run_id)


async def makes_a_step(ctx: RunContext) -> None:
    for number in range(ctx.attempt):
        await ctx.step(f"{number}", lambda: None)
    await anyio.sleep_forever()


async def starts_a_child(ctx: RunContext) -> None:
    for _ in range(ctx.attempt):
        ctx.spawn("idle")
    await anyio.sleep_forever()


async def asks_a_model(ctx: RunContext) -> None:
    async with ctx.session(model=echo_model()) as session:
        await session.send("hello")
        async for _ in session.receive():
            pass
    await anyio.sleep_forever()


async def hears_somebody(ctx: RunContext) -> None:
    ctx.hub.send_to_run(ctx.run_id, f"{ctx.attempt}")
    async for message in ctx.messages():
        if message.content == f"{ctx.attempt}":
            await anyio.sleep(1)
    await anyio.sleep_forever()


async def waits_for_somebody(ctx: RunContext) -> None:
    async for _ in ctx.messages():
        pass


@pytest.mark.spec("P-10")
@pytest.mark.parametrize(
    "body",
    [makes_a_step, starts_a_child, asks_a_model, hears_somebody, waits_for_somebody],
    ids=lambda body: body.__name__,
)
async def test_a_run_that_gets_on_may_be_restarted_any_number_of_times(
    body: Body, ports: Ports
) -> None:
    journal, run_id = MemoryJournal(), ports.ids.run_id(ports.clock.now())
    agents = (code(body), model_agent(echo_model(), name="idle"))
    for _ in range(8):
        await kill(journal, ports, *agents, run_id=run_id, after=1000)
        recorded = await own_lane(journal, run_id)
        # What ends the process is no orderly end: nothing is written by it.
        _, store = killed(journal, 0, late=False)
        async with Runtime(agents, store=store, ports=ports, grace=0):
            pass
        assert await own_lane(journal, run_id) == recorded
    assert [x.attempt for x in recorded if isinstance(x, e.AgentRestore)] == list(range(2, 9))
    assert "agent:complete" not in [x.type for x in recorded]


@pytest.mark.spec("P-10", "R-16")
async def test_a_runtime_that_is_left_in_order_has_not_crashed(
    journal: Journal, ports: Ports
) -> None:
    run_id = await stopped(journal, ports, code(just_dies), seconds=1)
    for _ in range(6):
        async with Runtime([code(just_dies)], store=journal, ports=ports, grace=0):
            await anyio.sleep(1)
    recorded = await own_lane(journal, run_id)
    assert [x.attempt for x in recorded if isinstance(x, e.AgentRestore)] == list(range(2, 8))
    assert "agent:complete" not in [x.type for x in recorded]


@pytest.mark.spec("P-10")
@given(
    st.lists(
        st.sampled_from(
            [
                e.AgentRestore(),
                e.AgentRecord(name="x", index=1),
                e.AgentStep(step=1),
                e.AgentChild(child_run_id="c"),
                e.AgentPark(),
                e.SessionTaken(items=(e.SessionMessage(),)),
                e.SessionTaken(items=(e.SessionReply(),)),
                e.AgentText(text="x"),
                e.AgentStatus(),
                e.AgentKey(key="k"),
            ]
        )
    )
)
def test_restarts_are_those_since_the_last_progress(events: list[Event]) -> None:
    thread = CodeThread()
    for event in events:
        thread = fold_code(thread, event)
    # By execution: whether it got anywhere before the next one had to begin.
    executions = [False]
    for event in events:
        is_message = isinstance(event, e.SessionTaken) and isinstance(
            event.items[0], e.SessionMessage
        )
        progress = e.AgentRecord | e.AgentStep | e.AgentChild | e.AgentPark
        if isinstance(event, e.AgentRestore):
            executions.append(False)
        elif is_message or isinstance(event, progress):
            executions[-1] = True
    in_vain = list(takewhile(lambda has_progressed: not has_progressed, reversed(executions[:-1])))
    assert thread.restarts == (0 if executions[-1] else len(in_vain))
    assert thread.has_progressed == executions[-1]


# ── conversations with a model ───────────────────────────────────────────────────────────────


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    await anyio.sleep(5)
    return f"seen {where}"


def steps_of(recorded: list[Event]) -> list[int]:
    return [x.step for x in recorded if isinstance(x, e.AgentStep)]


@pytest.mark.spec("S-07", "R-12")
async def test_conversations_at_once_never_share_a_step_number(
    journal: Journal, ports: Ports
) -> None:
    def looks(request: Any) -> Any:
        is_done = hasattr(request.messages[-1], "calls")
        return "done" if is_done else reply("", call("look", where="here"))

    async def body(ctx: RunContext) -> None:
        async def converse(seconds: float) -> None:
            model = FunctionModel(looks, latency=seconds)
            async with ctx.session(model=model, tools=[look]) as session:
                await session.send("look")
                async for _ in session.receive():
                    pass
                assert session.text == "done"

        async with anyio.create_task_group() as group:
            for seconds in (3, 1, 2):
                group.start_soon(converse, seconds)
        await converse(1)

    async with Runtime([code(body)], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("worker")
        assert outcome.success, outcome.reason
    recorded = await own_lane(journal, outcome.run_id)
    assert sorted(steps_of(recorded)) == list(range(1, 9))
    calls = [(x.step, x.index) for x in recorded if isinstance(x, e.AgentToolStart)]
    results = [(x.step, x.index) for x in recorded if isinstance(x, e.AgentToolComplete)]
    assert sorted(calls) == sorted(results) == sorted(set(calls))
    # And the texts belong to the steps behind them.
    assert {x.step for x in recorded if isinstance(x, e.AgentText)} <= set(steps_of(recorded))


@pytest.mark.spec("S-07", "P-15", "R-12")
@pytest.mark.parametrize("on_restart", ["resume", "fail"])
async def test_a_call_that_a_crash_cut_short_has_its_result_and_steps_count_on(
    on_restart: Any, journal: Journal, ports: Ports
) -> None:
    prompts: list[list[str]] = []
    calls = [call("look", where="a"), call("look", where="b")]

    def model(request: Any) -> Any:
        prompts.append([type(message).__name__ for message in request.messages])
        return reply("Looking.", *calls) if len(prompts) == 1 else "done"

    async def body(ctx: RunContext) -> str:
        async with ctx.session(model=FunctionModel(model), tools=[look]) as session:
            await session.send("hello")
            async for _ in session.receive():
                pass
            return session.text

    definition = code(body, on_restart=on_restart)
    run_id = await stopped(journal, ports, definition, seconds=2)
    outcome, recorded = await resumed(journal, ports, run_id, definition)
    results = [x for x in recorded if isinstance(x, e.AgentToolComplete)]
    assert [(x.step, x.index, x.is_error, x.ran) for x in results] == [
        (1, 0, True, True), (1, 1, True, False)
    ]  # fmt: skip
    assert "may or may not" in results[0].output
    assert "not run" in results[1].output
    if on_restart == "fail":
        assert outcome.outcome == "failed"
    else:
        assert outcome.output == "done"
        assert prompts[-1] == ["UserMessage"], "the conversation began anew"
        assert steps_of(recorded) == [1, 2]
    assert_one_life(recorded, run_id)
    assert fold_code_all(CodeThread(), recorded).calls == ()


@pytest.mark.spec("P-15", "R-12")
async def test_a_conversation_in_a_step_is_held_once(journal: Journal, ports: Ports) -> None:
    async def body(ctx: RunContext) -> str:
        async def converse() -> str:
            async with ctx.session(model=echo_model()) as session:
                await session.send("hello")
                async for _ in session.receive():
                    pass
                return session.text

        text = await ctx.step("draft", converse, type=str)
        await anyio.sleep(10)
        return text

    run_id = await stopped(journal, ports, code(body), seconds=5)
    outcome, recorded = await resumed(journal, ports, run_id, code(body))
    assert outcome.output == "echo: hello"
    assert steps_of(recorded) == [1]


# ── killed after any commit ──────────────────────────────────────────────────────────────────


class Workflow:
    """A code agent that does all that is kept, and a log of its outside effects."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.heard: list[tuple[int, str, bool]] = []

    async def effect(self, name: str, seconds: float = 0.5) -> str:
        self.effects.append(name)
        await anyio.sleep(seconds)
        return f"{name} done"

    def agents(self) -> list[AgentDefinition]:
        async def help_out(ctx: RunContext) -> Any:
            return await ctx.step("help", self.effect, "help", 0.3)

        async def work(ctx: RunContext) -> list[str]:
            done = [await ctx.step("begin", self.effect, "begin")]
            child = ctx.spawn("helper", "x")
            sides: dict[str, str] = {}

            async def side(name: str, seconds: float) -> None:
                sides[name] = await ctx.step(name, self.effect, name, seconds)

            async with anyio.create_task_group() as group:
                group.start_soon(side, "left", 2)
                group.start_soon(side, "right", 1)
            done += [sides["left"], sides["right"]]
            async for message in ctx.messages():
                self.heard.append((ctx.attempt, message.content, message.redelivered))
                done.append(await ctx.step("answer", self.effect, message.content))
                if message.content == "last":
                    break
            return [*done, (await child.result()).output]

        return [code(work), code(help_out, name="helper")]

    async def hold(self, runtime: Runtime, run_id: str) -> Any:
        """What the user does; everything is sent with a key, so it may be sent again."""
        await runtime.hub.open("worker", run_id=run_id)
        for text in ("one", "two", "last"):
            await runtime.hub.send_to_run(run_id, Message(text, key=text))
            await anyio.sleep(1)
        return (await runtime.finished(run_id)).output


OUTPUT = [f"{name} done" for name in ("begin", "left", "right", "one", "two", "last", "help")]


async def live(workflow: Workflow, store: Any, ports: Ports, run_id: str) -> Any:
    """One process: until the run is over, or its journal is dead."""
    output: Any = None
    async with Runtime(workflow.agents(), store=store, ports=ports, grace=0) as runtime:

        async def hold() -> None:
            nonlocal output
            output = await workflow.hold(runtime, run_id)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            with anyio.fail_after(10_000):
                await store.crashed.wait()
            group.cancel_scope.cancel()
    return output


async def recorded_steps(journal: Journal) -> Counter[str]:
    """The effects that are on record, of all runs."""
    kept: Counter[str] = Counter()
    for info in await journal.runs(live=False):
        lane = await own_lane(journal, info.run_id)
        kept.update(x.value.removesuffix(" done") for x in lane if isinstance(x, e.AgentRecord))
    return kept


async def assert_whole(workflow: Workflow, journal: Journal, run_id: str, crashes: int) -> None:
    """One life, one child, every effect on record once and run at most once more per crash."""
    runs = await journal.runs(live=False)
    assert len(runs) == 2
    for info in runs:
        events = await own_lane(journal, info.run_id)
        assert assert_one_life(events, info.run_id).outcome == "completed"
    events = await own_lane(journal, run_id)
    assert [x.type for x in events].count("agent:child") == 1
    records = await recorded_steps(journal)
    assert records == Counter(text.removesuffix(" done") for text in OUTPUT)
    for name, times in Counter(workflow.effects).items():
        assert 1 <= times <= 1 + crashes, name
    last = max(attempt for attempt, _, _ in workflow.heard)
    assert [text for attempt, text, _ in workflow.heard if attempt == last] == [
        "one", "two", "last"
    ]  # fmt: skip
    taken = [i for x in events if isinstance(x, e.SessionTaken) for i in x.items]
    contents = [i.content for i in taken if isinstance(i, e.SessionMessage)]
    assert contents == ["one", "two", "last"]


@pytest.mark.spec("P-15", "P-10", "R-02")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_killed_after_any_commit_the_work_comes_to_the_same_end(late: bool) -> None:
    journal, ports = MemoryJournal(), virtual_ports()
    crash, store = killed(journal, None, late)
    run_id = ports.ids.run_id(ports.clock.now())
    assert await live(Workflow(), store, ports, run_id) == OUTPUT
    assert crash.commits > 15
    for after in portion(range(crash.commits)):
        workflow, journal, ports = Workflow(), MemoryJournal(), virtual_ports()
        run_id = ports.ids.run_id(ports.clock.now())
        try:
            _, store = killed(journal, after, late)
            assert await live(workflow, store, ports, run_id) is None
            before, kept = await own_lane(journal, run_id), await recorded_steps(journal)
            done = len(workflow.effects)
            _, store = killed(journal, None, late)
            assert await live(workflow, store, ports, run_id) == OUTPUT
            assert not set(workflow.effects[done:]) & set(kept), "on record, and run again"
            assert (await own_lane(journal, run_id))[: len(before)] == before
            await assert_whole(workflow, journal, run_id, crashes=1)
        except BaseException as error:
            error.add_note(f"killed after {after} commits")
            raise


@pytest.mark.spec("P-15", "R-02")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("seed", range(6))
async def test_killed_again_and_again_the_work_comes_to_the_same_end(seed: int, late: bool) -> None:
    workflow, journal, ports = Workflow(), MemoryJournal(), virtual_ports()
    run_id = ports.ids.run_id(ports.clock.now())
    draw = random.Random(seed)
    crashes, output = 0, None
    while output is None:
        assert crashes < 50
        # Commits enough to get somewhere, or the run would fail as a crash loop.
        _, store = killed(journal, draw.randint(8, 10), late)
        output = await live(workflow, store, ports, run_id)
        crashes += output is None
    assert (output, crashes > 1) == (OUTPUT, True)
    await assert_whole(workflow, journal, run_id, crashes)
