"""Calls from anywhere but the event loop that opened a runtime: they raise, and nothing breaks.

From another thread, from a later loop, from a forked child.  The calls are found by looking at the
public classes: a new one is missing here until it has a row.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from support.agents import model_agent

from attacks.entries import calls_of
from hubbub import (
    ContentPart,
    CustomEvent,
    ExecutableAgent,
    Hub,
    Receipt,
    Run,
    RunContext,
    RunState,
    Runtime,
    agent,
    tool,
)  # fmt: skip
from hubbub.channels import Channel, Channels
from hubbub.hub import RequestKey
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import CallerError, OperatorError, WrongLoop, WrongThread
from hubbub.hub.run_hub import RunHub
from hubbub.runtime.activities.files import FileArea, KeyArea
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.models.scripted import ScriptedModel
from hubbub.runtime.models.scripted import call as tool_call
from hubbub.runtime.runs.session import ModelSession

pytestmark = pytest.mark.spec("H-15")


@dataclass
class Site:
    """An open runtime with what people have in hand of it."""

    rt: Runtime
    run: Run
    scope: RunHub
    stream: EventStream[Any]
    channels: Channels
    pending: Receipt
    ctx: RunContext
    session: ModelSession
    state: ThreadState

    @property
    def hub(self) -> Hub:
        return self.rt.hub


Call = Callable[[Site], Any]

PART: Final = ContentPart(kind="image", url="https://example.com/a.png")
TICK: Final = CustomEvent.of("test:tick", durable=True)

HUB: Final[dict[str, Call]] = {
    "__aexit__": lambda s: s.hub.__aexit__(None, None, None),
    "aclose": lambda s: s.hub.aclose(),
    "approve": lambda s: s.hub.approve("p"),
    "ask": lambda s: s.hub.ask("user", "?"),
    "close": lambda s: s.hub.close(),
    "close_run": lambda s: s.hub.close_run(s.run.run_id),
    "deny": lambda s: s.hub.deny("p"),
    "emit": lambda s: s.hub.emit(TICK),
    "interrupt": lambda s: s.hub.interrupt(s.run.run_id),
    "open": lambda s: s.hub.open("echo", "x"),
    "publish": lambda s: s.hub.publish(TICK),
    "read": lambda s: s.hub.read(),
    "find_request": lambda s: s.hub.find_request(RequestKey("r")),
    "reply": lambda s: s.hub.reply("p", "x"),
    "reset": lambda s: s.hub.reset(s.run.run_id),
    "compact": lambda s: s.hub.compact(s.run.run_id),
    "send": lambda s: s.hub.send("x"),
    "send_to": lambda s: s.hub.send_to("keeper", "x"),
    "send_to_run": lambda s: s.hub.send_to_run(s.run.run_id, "x"),
    "serve": lambda s: s.hub.serve("address", len),
    "statistics": lambda s: s.hub.statistics(),
    "subscribe": lambda s: s.hub.subscribe("*"),
    "subscribe_until": lambda s: s.hub.subscribe_until("*", lambda event: True),
    "terminate": lambda s: s.hub.terminate(s.run.run_id),
}

RUNTIME: Final[dict[str, Call]] = {
    "__aexit__": lambda s: s.rt.__aexit__(None, None, None),
    "agent_for": lambda s: s.rt.agent_for("most-recent-foreground"),
    "conversations": lambda s: s.rt.conversations(),
    "find": lambda s: s.rt.find("k"),
    "finished": lambda s: s.rt.finished(s.run.run_id),
    "fork": lambda s: s.rt.fork(s.run.run_id),
    "handle": lambda s: s.rt.handle(s.run.run_id),
    "limit": lambda s: s.rt.limit(s.run.run_id, None),
    "pending_variables": lambda s: s.rt.pending_variables(s.run.run_id, "1"),
    "provide_variables": lambda s: s.rt.provide_variables(s.run.run_id, "1", {}),
    "result": lambda s: s.rt.result(s.run.run_id),
    "run": lambda s: s.rt.run("echo", "x"),
    "schedules": lambda s: s.rt.schedules(),
    "start": lambda s: s.rt.start("echo", "x"),
    "state_at": lambda s: s.rt.state_at(s.run.run_id),
    "terminate": lambda s: s.rt.terminate(s.run.run_id),
}

RUN: Final[dict[str, Call]] = {
    "ask": lambda s: s.run.ask("x"),
    "close": lambda s: s.run.close(),
    "events": lambda s: s.run.events(),
    "finished": lambda s: s.run.finished(),
    "interrupt": lambda s: s.run.interrupt(),
    "read": lambda s: s.run.read(),
    "result": lambda s: s.run.result(),
    "send": lambda s: s.run.send("x"),
    "terminate": lambda s: s.run.terminate(),
    "will_read": lambda s: s.run.will_read(),
}

SCOPE: Final[dict[str, Call]] = {
    "approve": lambda s: s.scope.approve("p"),
    "ask": lambda s: s.scope.ask("user", "?"),
    "close_run": lambda s: s.scope.close_run(s.run.run_id),
    "deny": lambda s: s.scope.deny("p"),
    "emit": lambda s: s.scope.emit(TICK),
    "interrupt": lambda s: s.scope.interrupt(s.run.run_id),
    "open": lambda s: s.scope.open("echo", "x"),
    "publish": lambda s: s.scope.publish(TICK),
    "read": lambda s: s.scope.read(),
    "reply": lambda s: s.scope.reply("p", "x"),
    "send": lambda s: s.scope.send("x"),
    "send_to": lambda s: s.scope.send_to("keeper", "x"),
    "send_to_run": lambda s: s.scope.send_to_run(s.run.run_id, "x"),
    "statistics": lambda s: s.scope.statistics(),
    "subscribe": lambda s: s.scope.subscribe("test:*"),
    "terminate": lambda s: s.scope.terminate(s.run.run_id),
}

STREAM: Final[dict[str, Call]] = {
    "__aexit__": lambda s: s.stream.__aexit__(None, None, None),
    "__anext__": lambda s: s.stream.__anext__(),
    "close": lambda s: s.stream.close(),
    "take": lambda s: s.stream.take(),
}

CONTEXT: Final[dict[str, Call]] = {
    "ask": lambda s: s.ctx.ask("?"),
    "messages": lambda s: s.ctx.messages(),
    "notify_parent": lambda s: s.ctx.notify_parent("x"),
    "read_part": lambda s: s.ctx.read_part(PART),
    "say": lambda s: s.ctx.say("x"),
    "send_agent_message": lambda s: s.ctx.send_agent_message("x"),
    "session": lambda s: s.ctx.session(model="scripted"),
    "set_env": lambda s: s.ctx.set_env("A", "b"),
    "spawn": lambda s: s.ctx.spawn("echo", "x"),
    "status": lambda s: s.ctx.status("x"),
    "step": lambda s: s.ctx.step("s", int),
}

STATE: Final[dict[str, Call]] = {
    "ask": lambda s: s.state.ask("?"),
    "get_child_thread": lambda s: s.state.get_child_thread("x"),
    "get_parent_thread": lambda s: s.state.get_parent_thread(),
    "inject_message": lambda s: s.state.inject_message("x"),
    "notify_parent": lambda s: s.state.notify_parent("x"),
    "queue_message": lambda s: s.state.queue_message("x"),
    "read_part": lambda s: s.state.read_part(PART),
    "send_agent_message": lambda s: s.state.send_agent_message("x"),
    "set_env": lambda s: s.state.set_env("A", "b"),
    "set_status": lambda s: s.state.set_status("x"),
    "spawn": lambda s: s.state.spawn("echo", "x"),
    "terminate": lambda s: s.state.terminate(),
    "use_agent": lambda s: s.state.use_agent("echo", "x"),
    "use_skill": lambda s: s.state.use_skill("echo", "x"),
}

FILES: Final[dict[str, Call]] = {
    "delete": lambda s: s.ctx.files.delete("a"),
    "read": lambda s: s.ctx.files.read("a"),
    "read_text": lambda s: s.state.files.read_text("a"),
    "write": lambda s: s.state.files.write("a", "b"),
}

KEYS: Final[dict[str, Call]] = {
    "delete": lambda s: s.ctx.kv.delete("a"),
    "set": lambda s: s.state.kv.set("a", 1),
}

SESSION: Final[dict[str, Call]] = {
    "__aexit__": lambda s: s.session.__aexit__(None, None, None),
    "close": lambda s: s.session.close(),
    "receive": lambda s: s.session.receive(),
    "send": lambda s: s.session.send("x"),
}

CHANNELS: Final[dict[str, Call]] = {
    "__aenter__": lambda s: s.channels.__aenter__(),
    "__aexit__": lambda s: s.channels.__aexit__(None, None, None),
    "add": lambda s: s.channels.add(Channel("another")),
    "remove": lambda s: s.channels.remove("channel"),
    "start": lambda s: s.channels.start(),
    "stop": lambda s: s.channels.stop(),
}

CALLS: Final[dict[type, dict[str, Call]]] = {
    Hub: HUB, Runtime: RUNTIME, Run: RUN, RunHub: SCOPE, EventStream: STREAM, Channels: CHANNELS,
    ExecutableAgent: {"execute": lambda s: s.rt.executable("echo").execute("x")},
    Receipt: {"__await__": lambda s: s.pending},
    RunContext: CONTEXT, ThreadState: STATE, FileArea: FILES, KeyArea: KEYS, ModelSession: SESSION,
}  # fmt: skip

LOOKS: Final = "looks at one value"
MAKES: Final = "makes an object, and changes nothing"
OWN: Final = "for the library's own parts, in the loop"

LEFT_OUT: Final[dict[type, dict[str, str]]] = {
    Hub: {
        "__aenter__": "refused by an open hub, from wherever it is called",
        "check_store": LOOKS, "cursor": MAKES, "delivery": OWN, "has": LOOKS, "is_served": LOOKS,
        "masker": OWN, "scoped": "sets a variable of the caller's own", "set_owner": OWN,
    },
    Runtime: {
        "__aenter__": "refused by an open runtime, from wherever it is called",
        "executable": MAKES,
    },
    Run: {"has_read": OWN},
    RunHub: {
        "cursor": MAKES, "end_prompt": OWN, "has": LOOKS, "open_prompt": OWN,
        "scoped": "sets a variable of the caller's own",
    },
    EventStream: {
        "__aenter__": MAKES, "end_after": OWN, "mark_live": OWN, "outlive_store": OWN,
        "removed": OWN, "wake": OWN,
    },
    Channels: {},
    ExecutableAgent: {},
    Receipt: {"raise_if_rejected": LOOKS, "settle": OWN, "watch": OWN},
    RunContext: {},
    ThreadState: {"end_forked": OWN, "masker": OWN, "standing_still": OWN},
    FileArea: {"list": LOOKS, "stat": LOOKS},
    KeyArea: {"get": LOOKS, "keys": LOOKS},
    ModelSession: {
        "__aenter__": MAKES, "apply": OWN, "at_work": OWN, "due": OWN, "listed_side": OWN,
        "receiving_side": OWN,
        "record": OWN, "take": OWN, "waiting_items": OWN, "without_runs": OWN,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", CALLS)
def test_every_public_call_has_a_row_or_a_reason(kind: type) -> None:
    assert set(calls_of(kind)) == CALLS[kind].keys() | LEFT_OUT[kind].keys()


@agent("keeper")
async def keeper(input: Any, ctx: RunContext) -> int:
    CONTEXTS.append(ctx)
    said = 0
    async for _ in ctx.messages():
        said += 1
    return said


@tool
async def hold(state: RunState) -> str:
    assert isinstance(state, ThreadState)
    STATES.append(state)
    await anyio.sleep_forever()
    return ""


CONTEXTS: Final[list[RunContext]] = []
STATES: Final[list[ThreadState]] = []


def runtime_at(store: str, tmp_path: Path) -> Runtime:
    echo = model_agent(ScriptedModel(["x"], repeat=True), name="echo")
    where = "memory" if store == "memory" else f"sqlite:{tmp_path}"
    holder = model_agent(ScriptedModel([tool_call("hold")]), hold, name="holder")
    return Runtime([echo, keeper, holder], store=where, grace=1)


async def site_of(rt: Runtime) -> Site:
    run = await rt.start("keeper", "x", session_key="k")
    assert (await run.send("before")).accepted
    channels = Channels(rt.hub, Channel("channel"))
    await channels.start()
    pending = Receipt()
    pending.home = rt.hub.pipeline.home
    async with rt.hub.subscribe("agent:tool:start") as calls:
        await rt.start("holder", "x")
        await anext(calls)
        while not STATES:
            await anyio.lowlevel.checkpoint()
    stream = rt.hub.subscribe("test:tick")
    ctx = CONTEXTS.pop()
    session = ctx.session(model=ScriptedModel([]))
    return Site(rt, run, ctx.hub, stream, channels, pending, ctx, session, STATES.pop())


async def came_of(site: Site, call: Call) -> str:
    """What a call from here comes to, in a word."""
    try:
        with anyio.fail_after(20):
            came = call(site)
            if isinstance(came, Awaitable):
                await came
    except CallerError as error:
        return type(error).__name__
    except BaseException as error:
        return f"raw {error!r}"
    return "done"


async def all_of(site: Site) -> dict[str, str]:
    """What becomes of all of them that is wrong here."""
    return {
        f"{kind.__name__}.{name}": came
        for kind, calls in CALLS.items()
        for name, call in calls.items()
        if (came := await came_of(site, call)) != "WrongThread"
    }


@pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: threads take real time.
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("theirs", ["asyncio", "trio"])
def test_from_another_thread_each_call_raises_and_the_runtime_continues(
    theirs: str, store: str, loop: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with runtime_at(store, tmp_path) as rt:
            site = await site_of(rt)

            def elsewhere() -> dict[str, str]:
                return anyio.run(all_of, site, backend=theirs)

            assert await anyio.to_thread.run_sync(elsewhere) == {}
            with anyio.fail_after(20):
                assert rt.hub.statistics().subscribers >= 2
                assert (await rt.run("echo", "x")).output == "x"
                await rt.hub.publish(TICK)
                assert (await anext(site.stream)).type == "test:tick"
                site.run.close()
                assert (await site.run.result()).output == 1
                site.state.terminate()
                await site.channels.stop()

    anyio.run(main, backend=loop)


def test_the_error_says_what_to_do_instead(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    async def main() -> None:
        async with runtime_at("memory", tmp_path) as rt:

            def elsewhere() -> None:
                with pytest.raises(WrongThread) as error:
                    anyio.run(rt.run, "echo", "x")
                caught.append(error.value)

            await anyio.to_thread.run_sync(elsewhere)

    anyio.run(main)
    assert "anyio.from_thread.run(rt.run" in str(caught[0])


# ── other loops ──────────────────────────────────────────────────────────────────────────────

LEAVING: Final = {
    "Hub.__aexit__", "Hub.aclose", "Hub.close", "Runtime.__aexit__", "EventStream.__aexit__",
    "EventStream.close", "Channels.__aexit__", "Channels.stop",
}  # fmt: skip
"""What may be done when the loop is gone."""


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_in_a_later_loop_each_call_raises_and_leaving_releases_the_store(
    store: str, tmp_path: Path
) -> None:
    rt = runtime_at(store, tmp_path)

    async def enter() -> Site:
        return await site_of(await rt.__aenter__())

    site = asyncio.run(enter())

    async def later() -> dict[str, str]:
        return {
            f"{kind.__name__}.{name}": came
            for kind, calls in CALLS.items()
            for name, call in calls.items()
            if f"{kind.__name__}.{name}" not in LEAVING
            and (came := await came_of(site, call)) != "WrongLoop"
        }

    assert asyncio.run(later()) == {}
    with pytest.raises(WrongLoop, match="that loop has ended: open a new runtime in this one"):
        asyncio.run(rt.run("echo", "x"))

    async def leave() -> None:
        with anyio.fail_after(20):
            await rt.__aexit__(None, None, None)

    asyncio.run(leave())

    async def another() -> None:
        async with runtime_at(store, tmp_path) as again:
            assert (await again.run("echo", "x")).output == "x"

    asyncio.run(another())


def test_a_loop_that_stands_still_while_another_is_at_work_is_named(tmp_path: Path) -> None:
    """As fixtures and tests with loops of their own have it."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    rt = runtime_at("memory", tmp_path)
    try:
        first.run_until_complete(rt.__aenter__())
        with pytest.raises(WrongLoop, match="use one loop for all of it"):
            second.run_until_complete(rt.run("echo", "x"))
        # What is waited for in leaving would never end there.
        with pytest.raises(WrongLoop, match="use one loop for all of it"):
            second.run_until_complete(rt.__aexit__(None, None, None))
        # While none is at work a plain fixture, or a cell of IPython, can still listen.
        ended: list[Any] = []
        rt.hub.subscribe("agent:complete", ended.append)
        assert first.run_until_complete(rt.run("echo", "x")).output == "x"
        assert len(ended) == 1
        first.run_until_complete(rt.__aexit__(None, None, None))
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_runtime_made_elsewhere_lives_where_it_is_opened(loop: str, tmp_path: Path) -> None:
    made: list[Runtime] = []
    thread = threading.Thread(target=lambda: made.append(runtime_at("memory", tmp_path)))
    thread.start()
    thread.join()

    async def main() -> None:
        async with made[0] as rt:
            assert (await rt.run("echo", "x")).output == "x"

    anyio.run(main, backend=loop)


def test_entering_and_leaving_in_different_tasks_of_one_loop_stays_possible(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        rt = runtime_at("sqlite", tmp_path)
        await asyncio.create_task(rt.__aenter__())
        assert (await asyncio.create_task(rt.run("echo", "x"))).output == "x"
        await asyncio.create_task(rt.__aexit__(None, None, None))

    asyncio.run(main())


def test_a_runtime_that_was_not_left_is_named_where_its_store_is_opened_again(
    tmp_path: Path,
) -> None:
    rt = runtime_at("sqlite", tmp_path)

    async def enter() -> None:
        await rt.__aenter__()

    asyncio.run(enter())

    async def another() -> None:
        async with runtime_at("sqlite", tmp_path):
            raise AssertionError("it is held")

    with pytest.raises(OperatorError, match=r"\); that is this one: a runtime was not left"):
        asyncio.run(another())
    asyncio.run(rt.__aexit__(None, None, None))


# ── forks ────────────────────────────────────────────────────────────────────────────────────


class Failed(Exception):
    pass


async def calls(rt: Runtime) -> None:
    for call in (
        lambda: rt.hub.send("x", session_key="k"), lambda: rt.hub.emit(TICK),
        rt.hub.statistics,
    ):  # fmt: skip
        with pytest.raises(WrongLoop, match="was forked"):
            call()
    for wait in (
        lambda: rt.hub.publish(TICK), lambda: rt.run("echo", "x"), lambda: rt.find("k"),
        lambda: rt.hub.read(),
    ):  # fmt: skip
        with pytest.raises(WrongLoop, match="was forked"):
            await wait()


async def exits(rt: Runtime) -> None:
    raise SystemExit(5)


async def raises(rt: Runtime) -> None:
    raise Failed("in the child")


IN_CHILDREN: Final = {calls: 0, exits: 5, raises: 1}
"""What a forked child does in the body of the runtime, and its status."""


def ended(child: int) -> int:
    for _ in range(2000):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("does", IN_CHILDREN, ids=lambda does: does.__name__)
def test_a_forked_child_leaves_at_once_and_its_parent_continues(
    does: Callable[[Runtime], Awaitable[None]], store: str, loop: str, tmp_path: Path
) -> None:
    async def main() -> None:
        here = os.getpid()
        try:
            async with runtime_at(store, tmp_path) as rt:
                run = await rt.start("keeper", "x", session_key="k")
                assert (await run.send("one")).accepted
                async with Channels(rt.hub, Channel("channel")), rt.hub.subscribe("*"):
                    child = os.fork()
                    if child == 0:
                        await does(rt)
                        return
                assert ended(child) == IN_CHILDREN[does]
                # Of what threads do for it the parent still hears.
                with anyio.fail_after(20):
                    assert (await run.send("two")).accepted
                    assert (await rt.run("echo", "x")).output == "x"
                    run.close()
                    assert (await run.result()).output == 2
        finally:
            if os.getpid() != here:
                os._exit(99)

    anyio.run(main, backend=loop)
    CONTEXTS.clear()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_of_several_who_enter_one_runtime_at_once_one_does(loop: str, tmp_path: Path) -> None:
    came: list[str] = []

    async def main() -> None:
        rt = runtime_at("sqlite", tmp_path)

        async def enter() -> None:
            try:
                async with rt:
                    came.append((await rt.run("echo", "x")).output)
            except CallerError as error:
                came.append(str(error))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(enter)

    anyio.run(main, backend=loop)
    refused = "this runtime is open already; use the open one"
    assert sorted(came) == [refused, refused, "x"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_run_cannot_leave_its_own_runtime(loop: str, tmp_path: Path) -> None:
    @agent("leaver")
    async def leaver(input: Any, ctx: RunContext) -> str:
        async with runtime_at("memory", tmp_path) as another:  # Which is not its own.
            assert (await another.run("echo", "x")).output == "x"
        with pytest.raises(CallerError, match="leave it where it was entered"):
            await rts[0].__aexit__(None, None, None)
        return "still here"

    rts: list[Runtime] = []

    async def main() -> None:
        with anyio.fail_after(30):
            async with Runtime([leaver], store="memory") as rt:
                rts.append(rt)
                run = await rt.start("leaver", "x")
                assert (await run.result()).output == "still here"
                assert (await rt.run("leaver", "x")).output == "still here"

    anyio.run(main, backend=loop)


def returns(state: RunState) -> None:
    pass


def raises_in_a_tool(state: RunState) -> None:
    raise Failed("in the child")


def exits_in_a_tool(state: RunState) -> None:
    raise SystemExit(5)


def speaks(state: RunState) -> None:
    with pytest.raises(WrongLoop, match="was forked"):
        state.set_status("here")


IN_TOOLS: Final = {returns: 0, raises_in_a_tool: 1, exits_in_a_tool: 5, speaks: 0}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("does", IN_TOOLS, ids=lambda does: does.__name__)
def test_a_child_that_a_plain_tool_forks_ends_with_the_tool(
    does: Callable[[RunState], None], loop: str, tmp_path: Path
) -> None:
    children: list[int] = []

    @tool
    def fork(state: RunState) -> str:
        child = os.fork()
        if child == 0:
            does(state)
        children.append(child)
        return "forked"

    async def main() -> None:
        model = ScriptedModel([tool_call("fork"), "x"])
        forks = model_agent(model, fork, name="forks")
        async with Runtime([forks], store=f"sqlite:{tmp_path}") as rt:
            assert (await rt.run("forks", "x")).output == "x"

    here = os.getpid()
    try:
        anyio.run(main, backend=loop)
    finally:
        if os.getpid() != here:
            os._exit(99)
    assert ended(children[0]) == IN_TOOLS[does]
