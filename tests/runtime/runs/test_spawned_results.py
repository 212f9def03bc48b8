"""What becomes of the results of children that a tool's code starts (G-10, R-13)."""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.crash_journal import CrashJournal
from support.families import heard

from hubbub import AgentDefinition, Hook, RunContext, RunState, Runtime, agent, tool
from hubbub.agents.state.family import FAILURE, RESULT
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import FunctionModel, call

pytestmark = pytest.mark.anyio


@agent("quick", on_restart="resume")
async def quick(input: Any, ctx: RunContext) -> str:
    return f"did {input}"


@agent("slow", on_restart="resume")
async def slow(input: Any, ctx: RunContext) -> str:
    await anyio.sleep(60)
    return f"did {input}"


@agent("broken")
async def broken(input: Any, ctx: RunContext) -> str:
    raise ValueError("no way")


THINKER = model_agent(FunctionModel(lambda _: "did x", latency=2), name="thinker")
CHILDREN: list[AgentDefinition] = [quick, slow, broken, THINKER]


def boss(*tools: Any, hooks: Sequence[str] = ()) -> Any:
    """An agent that calls its tools once, and says what it has heard of children since."""

    def answer(request: Any) -> Any:
        told = [x for x in heard(request) if x.startswith("Subagent")]
        if not any(getattr(x, "calls", ()) for x in request.messages):
            return call("work")
        return f"heard {len(told)}"

    return model_agent(FunctionModel(answer, latency=1), *tools, name="boss", hooks=list(hooks))


async def told(journal: Any, run_id: str) -> list[str]:
    """What the model has been told of children, in the end."""
    loaded = await journal.load(run_id)
    assert loaded is not None
    thread = fold_all(EMPTY, loaded.events)
    found = [getattr(x, "content", "") for x in thread.transcript]
    return [x for x in found if x.startswith("Subagent")]


async def lived(
    journal: Any, ports: Ports, *agents: AgentDefinition, hooks: Sequence[Hook] = ()
) -> tuple[str, list[str]]:
    async with Runtime([*agents, *CHILDREN], store=journal, ports=ports, hooks=hooks) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(400)
        with anyio.fail_after(1000):
            await run.result()
    return run.run_id, await told(journal, run.run_id)


Work = Callable[[RunState, str], Any]


async def ignores_it(state: RunState, child: str) -> str:
    state.spawn(child, "x")
    return "started"


async def lingers(state: RunState, child: str) -> str:
    state.spawn(child, "x")
    await anyio.sleep(100)
    return "started"


async def ends_with_it(state: RunState, child: str) -> str:
    state.spawn(child, "x")
    await anyio.sleep(60 if child == "slow" else 2)
    return "started"


async def raises(state: RunState, child: str) -> str:
    state.spawn(child, "x")
    raise RuntimeError("oh")


async def takes_too_long(state: RunState, child: str) -> str:
    state.spawn(child, "x")
    await anyio.sleep_forever()
    raise AssertionError


@pytest.mark.spec("G-10", "R-13")
@pytest.mark.parametrize("child", ["quick", "slow", "thinker", "broken"])
@pytest.mark.parametrize("work", [ignores_it, lingers, ends_with_it, raises, takes_too_long])
async def test_a_result_that_nobody_asked_for_is_told_once(
    work: Work, child: str, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=150)
    async def working(state: RunState) -> str:
        return str(await work(state, child))

    run_id, words = await lived(journal, ports, boss(working))
    (started,) = [x for x in await lane(journal, run_id) if isinstance(x, e.AgentChild)]
    if child == "broken":
        assert words == [FAILURE.format(started.child_run_id, "ValueError: no way")]
    else:
        assert words == [RESULT.format(started.child_run_id, "did x")]


async def lane(journal: Any, run_id: str) -> list[e.Event]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return list(loaded.events)


async def awaits(state: RunState, child: str) -> str:
    return str((await state.spawn(child, "x").result()).output)


async def awaits_late(state: RunState, child: str) -> str:
    run = state.spawn(child, "x")
    await anyio.sleep(100)
    return str((await run.result()).output)


async def finishes(state: RunState, child: str) -> str:
    return str((await state.spawn(child, "x").finished()).output)


async def listens(state: RunState, child: str) -> str:
    async with state.spawn(child, "x").events() as events:
        return str([x async for x in events][-1].output)


async def asks_and_leaves(state: RunState, child: str) -> str:
    run = state.spawn(child, "x")
    with anyio.move_on_after(0.1):
        await run.result()
    return "did x"


@pytest.mark.spec("G-10", "R-13")
@pytest.mark.parametrize("child", ["quick", "slow", "thinker"])
@pytest.mark.parametrize("work", [awaits, awaits_late, finishes, listens, asks_and_leaves])
async def test_a_result_that_was_asked_for_stays_with_its_handle(
    work: Work, child: str, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        return str(await work(state, child))

    run_id, words = await lived(journal, ports, boss(working))
    assert words == []
    (done,) = [x for x in await lane(journal, run_id) if isinstance(x, e.AgentToolComplete)]
    assert done.output == "did x"
    assert [x for x in await lane(journal, run_id) if isinstance(x, e.SessionStart)][1:] == []


@pytest.mark.spec("G-10")
@pytest.mark.parametrize("child", ["quick", "slow"])
async def test_each_of_several_is_decided_for_itself(
    child: str, journal: Journal, ports: Ports
) -> None:
    started: list[str] = []

    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        runs = [state.spawn(child, n, result=r) for n, r in enumerate(
            [None, None, "handle", "message", "ignore", None])]  # fmt: skip
        started.extend(run.run_id for run in runs)
        await runs[1].result()
        await anyio.sleep(100)
        return "ok"

    _, words = await lived(journal, ports, boss(working))
    assert sorted(words) == sorted(
        RESULT.format(started[number], f"did {number}") for number in (0, 3, 5)
    )


@pytest.mark.spec("G-10")
async def test_an_unknown_fate_is_refused_and_nothing_started(ports: Ports) -> None:
    journal, seen = MemoryJournal(), list[str]()

    @tool(name="work")
    async def working(state: RunState) -> str:
        try:
            state.spawn("quick", "x", result="postcard")
        except BadValue as error:
            seen.append(str(error))
        return "ok"

    await lived(journal, ports, boss(working))
    assert len(seen) == 1 and "postcard" in seen[0]
    assert len(await journal.runs(live=False)) == 1


@pytest.mark.spec("G-10", "T-10")
@pytest.mark.parametrize("is_read", [False, True])
async def test_an_interrupted_call_has_ended_too(
    is_read: bool, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        run = state.spawn("slow", "x")
        if is_read:
            await run.result()
        await anyio.sleep_forever()
        raise AssertionError

    async with Runtime([boss(working), *CHILDREN], store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(10)
        await run.interrupt("enough")
        await anyio.sleep(200)
        await run.result()
    assert len(await told(journal, run.run_id)) == (not is_read)


@pytest.mark.spec("G-10", "D-06")
@pytest.mark.parametrize("is_read", [False, True])
async def test_what_a_hook_has_started_is_told_unless_it_has_asked(
    is_read: bool, ports: Ports
) -> None:
    journal, begun = MemoryJournal(), list[str]()

    async def starts(state: RunState, value: Any) -> None:
        if not begun:
            run = state.spawn("slow", "x")
            begun.append(run.run_id)
            if is_read:
                await run.result()

    hook = Hook("starts", "after_session", starts)

    @tool(name="work")
    async def working(state: RunState) -> str:
        return "ok"

    _, words = await lived(journal, ports, boss(working, hooks=["starts"]), hooks=[hook])
    assert begun and len(words) == (not is_read)


@pytest.mark.spec("G-10", "P-15")
@pytest.mark.parametrize("child", ["quick", "slow", "thinker"])
async def test_code_reads_its_children_s_results_as_messages_where_it_says_so(
    child: str, journal: Journal, ports: Ports
) -> None:
    @agent("reader", on_restart="resume")
    async def reader(input: Any, ctx: RunContext) -> list[str]:
        first = ctx.spawn(child, "x", result="message")
        ctx.spawn(child, "y")
        ctx.spawn(child, "z", result="ignore")
        words = []
        async for message in ctx.messages(idle_timeout=300):
            assert message.silent and message.metadata["reference"] == first.run_id
            words.append(message.content)
        return words

    agents = [reader, *CHILDREN]
    store: Any = CrashJournal(journal)
    async with Runtime(agents, store=store, ports=ports, grace=0) as rt:
        run = await rt.start("reader")
        await anyio.sleep(100)
        store._after = store.commits
    async with Runtime(agents, store=journal, ports=ports) as rt:
        outcome = await rt.finished(run.run_id)
    (text,) = outcome.output
    assert text.endswith("\n\ndid x") and text.startswith("Subagent (reference: ")
    taken = [x for event in await lane(journal, run.run_id) if isinstance(event, e.SessionTaken)
             for x in event.items if isinstance(x, e.SessionMessage)]  # fmt: skip
    assert len(taken) == 1


@pytest.mark.spec("G-10", "P-10")
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
async def test_over_a_crash_at_any_commit_every_result_is_told_once_or_read(
    is_read: bool, idempotent: bool, is_late: bool, ports: Ports
) -> None:
    """What a call that was lost has started is told; what it starts again is read, or told."""
    total = 1
    at = 0
    while at < total:
        at += 1
        journal = MemoryJournal()

        @tool(name="work", timeout=None, idempotent=idempotent)
        async def working(state: RunState) -> str:
            run = state.spawn("quick" if is_late else "slow", "x")
            if is_late:
                await anyio.sleep(20)
            if is_read:
                await run.result()
            return "ok"

        agents = [boss(working), *CHILDREN]
        store: Any = CrashJournal(journal, at)
        run_id = ports.ids.run_id(0)
        async with Runtime(agents, store=store, ports=ports, grace=0) as rt:
            rt.hub.open("boss", "go", run_id=run_id)
            with anyio.move_on_after(300):
                await store.crashed.wait()
        total = max(total, store.commits + store.crashed.is_set())
        async with Runtime(agents, store=journal, ports=ports) as rt:
            if await journal.info(run_id) is None:
                continue
            await anyio.sleep(300)
            await rt.result(run_id)
        started = [x for x in await lane(journal, run_id) if isinstance(x, e.AgentChild)]
        words = await told(journal, run_id)
        told_of = [x.child_run_id for x in started for w in words if x.child_run_id in w]
        assert len(set(told_of)) == len(told_of) == len(words), at
        for child in started:
            decided = [x.child_run_id for x in await reads_kept(journal, run_id)]
            assert (child.child_run_id in told_of) != (child.child_run_id in decided), at
        if not is_read:
            assert len(words) == len(started)


async def reads_kept(journal: Any, run_id: str) -> list[e.AgentRead]:
    """The requests for results that no restart has made void."""
    found: list[e.AgentRead] = []
    ended = set[str]()
    for event in await lane(journal, run_id):
        match event:
            case e.AgentRead():
                found.append(event)
            case e.AgentToolComplete():
                ended.add(event.call_id)
            case e.AgentRestore():
                found = [x for x in found if x.call_id in ended]
    return found
