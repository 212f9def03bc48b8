"""A plain ``def`` tool acts from its thread as an ``async def`` one does from the loop (D-04).

Every member of ``RunState``, of its hub and of its files, keys and variables is used by a tool of
either kind, on both loops and every store: what it gives back, and what it writes, is the same.
The members are found by introspection, so a new one must be put into the table.
"""

import contextvars
import gc
import inspect
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import greenlet
import pytest
from msgspec import structs
from support.agents import model_agent
from support.families import child

from hubbub import CustomEvent, Image, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.agents.definitions.run_state import Files, Keys
from hubbub.hub.errors import BadValue, CallerError, NoSuchFile, WrongThread
from hubbub.hub.events import AgentStatus
from hubbub.hub.hub import Hub
from hubbub.hub.run_hub import RunHub
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.activities.files import FileArea, KeyArea
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("D-04")]

Act = Callable[[Any, "World"], Any]


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/store"
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


class World:
    """What an act needs besides the state: how to await in its kind of tool, and who is there."""

    def __init__(self, wait: Callable[..., Any], others: Mapping[str, str]) -> None:
        self.wait = wait
        self.others = others


# ── what a tool of either kind does ──────────────────────────────────────────────────────────


async def settled(receipt: Any) -> str:
    return (await receipt).status  # type: ignore[no-any-return]


async def first_of(stream: Any) -> str:
    async with stream:
        async for event in stream:
            return str(event.status)
    return "none"


def receipt_of(act: Callable[[Any, World], Any]) -> Act:
    return lambda state, world: world.wait(settled, act(state, world))


def said(state: Any, world: World) -> list[str]:
    heard: list[str] = []
    place = state.hub.subscribe("agent:status", lambda event: heard.append(event.status))
    state.hub.emit(AgentStatus(status="one"))
    world.wait(state.hub.publish, AgentStatus(status="two"))
    place()
    place.close()
    world.wait(state.hub.publish, AgentStatus(status="three"))
    return heard


def streamed(state: Any, world: World) -> str:
    stream = state.hub.subscribe("agent:status")
    state.hub.emit(AgentStatus(status="streamed"))
    return world.wait(first_of, stream)


def scoped(state: Any, world: World) -> int:
    found: list[int] = []
    heard = state.hub.subscribe("custom:*", lambda event: found.append(event.turn))
    with heard, state.hub.scoped(turn=7):
        state.hub.emit(CustomEvent.of("custom:a", durable=False))
    return found[0]


def asked(state: Any, world: World) -> str:
    def answer(prompt: Any) -> None:
        root.reply(prompt.prompt_id, "yes")

    root = state.hub.hub
    with state.hub.subscribe("session:prompt", answer):
        return world.wait(state.hub.ask, "user", "Well?")


def asked_on_record(state: Any, world: World) -> str:
    def answer(prompt: Any) -> None:
        root.reply(prompt.prompt_id, "yes")

    root = state.hub.hub
    with state.hub.subscribe("session:prompt", answer):
        return world.wait(state.ask, "Well?")


def spawned(state: Any, world: World) -> Any:
    run = state.spawn("helper", "x", name="h")
    return run.agent, world.wait(run.result).output


def of_the_parent(state: Any, world: World) -> Any:
    parent = world.wait(state.get_parent_thread)
    return parent.agent, world.wait(settled, parent.queue_message("from below"))


def handed_on(state: Any, world: World) -> str:
    try:
        state.use_agent("nobody", "hello")
    except Exception as error:
        return type(error).__name__
    return "taken"


def part_read(state: Any, world: World) -> str:
    try:
        world.wait(state.read_part, Image(b"\x89PNG\r\n\x1a\n").part)
    except NoSuchFile as error:
        return str(error)
    return "read"


OF_STATE: dict[str, Act] = {
    "run_id": lambda s, w: len(s.run_id),
    "root_run_id": lambda s, w: len(s.root_run_id),
    "parent_run_id": lambda s, w: s.parent_run_id == s.root_run_id,
    "agent": lambda s, w: s.agent,
    "call_id": lambda s, w: s.call_id,
    "hub": lambda s, w: s.hub.has("agent:status"),
    "messages": lambda s, w: [type(each).__name__ for each in s.messages],
    "children": lambda s, w: len(s.children),
    "terminated": lambda s, w: s.terminated,
    "env": lambda s, w: (dict(s.env), s.env.get("NO"), "GIVEN" in s.env, repr(s.env)),
    "files": lambda s, w: s.files.list(),
    "kv": lambda s, w: s.kv.keys(),
    "read_part": part_read,
    "set_env": lambda s, w: (s.set_env("SET", "here"), s.env["SET"]),
    "ask": asked_on_record,
    "queue_message": receipt_of(lambda s, w: s.queue_message("queued")),
    "inject_message": receipt_of(lambda s, w: s.inject_message("injected")),
    "notify_parent": receipt_of(lambda s, w: s.notify_parent("look")),
    "send_agent_message": lambda s, w: w.wait(
        settled, w.wait(s.send_agent_message, "hi", w.others["other"])
    ),
    "set_status": lambda s, w: s.set_status("busy"),
    "get_child_thread": lambda s, w: w.wait(s.get_child_thread, "nobody"),
    "get_parent_thread": of_the_parent,
    "terminate": lambda s, w: callable(s.terminate),
    "spawn": spawned,
    "use_agent": handed_on,
    "use_skill": lambda s, w: None,
}

OF_HUB: dict[str, Act] = {
    "emit": said,
    "publish": lambda s, w: w.wait(s.hub.publish, CustomEvent.of("custom:b", n=1)),
    "subscribe": streamed,
    "has": lambda s, w: s.hub.has("nothing:like:it"),
    "scoped": scoped,
    "send_to_run": receipt_of(lambda s, w: s.hub.send_to_run(w.others["other"], "hello")),
    "send_to": receipt_of(lambda s, w: s.hub.send_to("other", "hello")),
    "send": receipt_of(lambda s, w: s.hub.send("hello", session_key="key")),
    "open": receipt_of(lambda s, w: s.hub.open("helper", "x")),
    "ask": asked,
    "reply": receipt_of(lambda s, w: s.hub.reply("nobody", "hello")),
    "approve": receipt_of(lambda s, w: s.hub.approve("nobody", {"a": 1})),
    "deny": receipt_of(lambda s, w: s.hub.deny("nobody", "no")),
    "interrupt": receipt_of(lambda s, w: s.hub.interrupt(w.others["other"], "stop")),
    "close_run": receipt_of(lambda s, w: s.hub.close_run(w.others["other"])),
    "terminate": receipt_of(lambda s, w: s.hub.terminate(w.others["other"])),
    "read": lambda s, w: [each.type for each in w.wait(s.hub.read, w.others["other"])][:2],
    "cursor": lambda s, w: bool(s.hub.cursor(w.wait(s.hub.read, w.others["other"])[0])),
    "statistics": lambda s, w: s.hub.statistics().live > 0,
    "hub": lambda s, w: s.hub.hub.has("nothing:like:it"),
    "run_id": lambda s, w: len(s.hub.run_id),
}


def of_files(state: Any, world: World) -> Any:
    written = world.wait(state.files.write, "a.txt", "text")
    found = state.files.list(), state.files.stat("a.txt").size, written.path
    text = world.wait(state.files.read_text, "a.txt"), world.wait(state.files.read, "a.txt")
    world.wait(state.files.delete, "a.txt")
    return found, text, state.files.list()


def of_keys(state: Any, world: World) -> Any:
    world.wait(state.kv.set, "a", [1])
    found = state.kv.get("a"), state.kv.keys()
    world.wait(state.kv.delete, "a")
    return found, state.kv.get("a", "gone")


def of_a_run(state: Any, world: World) -> Any:
    run = state.spawn("waiter", "x")
    told = [run.agent, world.wait(settled, run.send("one"))]
    stream = run.events()
    told += [world.wait(type_of_first, stream), world.wait(settled, run.interrupt("no"))]
    told += [bool(world.wait(run.read)), world.wait(settled, run.close())]
    try:
        world.wait(run.ask, "What?")
    except CallerError as error:
        told.append(type(error).__name__)
    return [*told, world.wait(run.terminate).accepted, world.wait(run.finished).outcome]


async def type_of_first(stream: Any) -> str:
    async with stream:
        return (await anext(stream)).type  # type: ignore[no-any-return]


ACTS: dict[str, Act] = {
    **{f"state.{name}": act for name, act in OF_STATE.items()},
    **{f"hub.{name}": act for name, act in OF_HUB.items()},
    "files": of_files, "kv": of_keys, "run": of_a_run,
}  # fmt: skip


def members_of(kind: type) -> set[str]:
    slots = {name for each in kind.__mro__ for name in getattr(each, "__slots__", ())}
    return {name for name in {*dir(kind), *slots} if not name.startswith("_")}


OF_SPAWNING = ("will_read", "has_read", "on_read", "on_left")
"""Notes on a handle, for whoever has made it."""


def test_the_table_has_every_member() -> None:
    assert set(OF_STATE) == members_of(RunState)
    of_prompts = {"open_prompt", "end_prompt"}  # What ``ask`` is made of.
    assert set(OF_HUB) == members_of(RunHub) - of_prompts
    uses = inspect.getsource(of_files) + inspect.getsource(of_keys) + inspect.getsource(of_a_run)
    missing = [
        name
        for kind in (Files, Keys, Run)
        for name in members_of(kind)
        - {"created", "cursor", "duplicate", "is_root", "of", "run_id", "result", *OF_SPAWNING}
        if f".{name}" not in uses
    ]
    assert missing == []


@agent("helper")
async def helper(input: Any, ctx: Any) -> str:
    return f"helped {input}"


@agent("waiter")
async def waiter(input: Any, ctx: Any) -> None:
    async for _ in ctx.messages():
        pass


@agent("boss")
async def boss(input: Any, ctx: Any) -> Any:
    return (await ctx.spawn("worker", "Go.").finished()).outcome


async def story(act: Act, store: Any, *, is_plain: bool) -> tuple[Any, list[str]]:
    """What ``act`` gives to a tool, and the types of what its run has written."""
    found: list[Any] = []
    others: dict[str, str] = {}

    @tool(name="act")
    async def in_the_loop(state: RunState) -> str:
        found.append(await awaited(act, state, others))
        return "done"

    @tool(name="act")
    def in_a_thread(state: RunState) -> str:
        assert threading.current_thread() is not threading.main_thread()
        found.append(act(state, World(anyio.from_thread.run, others)))
        return "done"

    model = ScriptedModel([call("act"), "Well.", "Well."])
    worker = child(model, in_a_thread if is_plain else in_the_loop, name="worker")
    agents = [worker, boss, helper, waiter, structs.replace(waiter, name="other")]
    async with Runtime(agents, store=store, env={"GIVEN": "x"}) as rt:
        others["other"] = (await rt.start("other", session_key="key")).run_id
        with anyio.fail_after(20):
            await rt.run("boss", "Go.")
        events = await rt.hub.read()
    failed = [x for x in events if x.type == "agent:tool:complete" and x.is_error]
    assert not [x.output for x in failed]
    return found[0], sorted({x.type for x in events if x.agent == "worker"})


async def awaited(act: Act, state: Any, others: Mapping[str, str]) -> Any:
    """``act`` in a task of the loop, which is what an ``async def`` tool is."""
    loop_side = greenlet.getcurrent()

    def wait(function: Callable[..., Any], *args: Any) -> Any:
        return loop_side.switch(function(*args))

    work: Any = greenlet.greenlet(lambda: ("done", act(state, World(wait, others))))
    work.gr_context = contextvars.copy_context()
    step = work.switch()
    while not work.dead:
        try:
            value = await step
        except Exception as error:
            step = work.throw(error)
        else:
            step = work.switch(value)
    return step[1]


REAL = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
"""Threads take real time, so the loop has it, too."""


@REAL
@pytest.mark.parametrize("name", ACTS)
async def test_a_member_acts_from_a_thread_as_it_does_in_the_loop(
    name: str, store: Any, tmp_path: Path
) -> None:
    here = await story(ACTS[name], store, is_plain=True)
    other = LateJournal(MemoryJournal()) if isinstance(store, LateJournal) else MemoryJournal()
    there = f"sqlite:{tmp_path}/other" if isinstance(store, str) else other
    assert here == await story(ACTS[name], there, is_plain=False)


async def run_of(fn: Callable[..., Any]) -> str:
    """What the one call of a tool comes to."""
    bot = model_agent(ScriptedModel([call("fn"), "Well."]), tool(fn, name="fn"))
    async with Runtime([bot], store="memory") as rt:
        run = await rt.start("assistant", "Go.")
        await run.result()
        (done,) = [x for x in await run.read() if x.type == "agent:tool:complete"]
    return str(done.output)  # type: ignore[attr-defined]


def async_members(kind: type) -> list[str]:
    return [each for each in members_of(kind) if inspect.iscoroutinefunction(getattr(kind, each))]


@REAL
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_async_member_that_is_called_plainly_says_how_to_call_it(
    kind: str, tmp_path: Path
) -> None:
    """And leaves no coroutine that nobody awaits."""
    said: dict[str, str] = {}

    def fn(state: RunState) -> str:
        child_run = state.spawn("helper", "x")
        places = {
            "state": (state, ThreadState), "state.hub": (state.hub, RunHub),
            "state.hub.hub": (state.hub.hub, Hub), "state.files": (state.files, FileArea),
            "state.kv": (state.kv, KeyArea), "run": (child_run, Run),
        }  # fmt: skip
        for place, (target, kind) in places.items():
            for name in async_members(kind):
                try:
                    getattr(target, name)("a")
                except WrongThread as error:
                    said[f"{place}.{name}"] = str(error)
                else:
                    said[f"{place}.{name}"] = "nothing"
        gc.collect()
        anyio.from_thread.run(child_run.terminate)
        anyio.from_thread.run(state.terminate)
        return "terminated"

    bot = model_agent(ScriptedModel([call("fn"), "Well."]), tool(fn, name="fn"))
    store = "memory" if kind == "memory" else f"sqlite:{tmp_path}/store"
    async with Runtime([bot, helper], store=store) as rt:
        with anyio.fail_after(20):
            outcome = await (await rt.start("assistant", "Go.")).finished()
    assert outcome.outcome == "terminated"
    assert {"state.get_parent_thread", "state.hub.ask", "run.result"} <= {*said}
    for place, words in said.items():
        assert f"anyio.from_thread.run({place}, ...)" in words, place
        assert "\n" not in words


@REAL
async def test_a_thread_that_the_tool_has_started_itself_is_told_where_to_call() -> None:
    def fn(state: RunState) -> str:
        raised: list[Exception] = []

        def elsewhere() -> None:
            try:
                state.set_status("busy")
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return f"{type(raised[0]).__name__}: {raised[0]}"

    said = await run_of(fn)
    assert said.startswith(f"{WrongThread.__name__}: ") and "thread of the tool itself" in said


@REAL
async def test_a_plain_function_that_returns_an_awaitable_uses_its_state_in_the_loop() -> None:
    def fn(state: RunState) -> Any:
        async def later() -> str:
            state.set_status("busy")
            await state.kv.set("a", 1)
            return f"{state.kv.get('a')} {threading.current_thread() is threading.main_thread()}"

        return later()

    assert await run_of(fn) == "1 True"


@REAL
async def test_what_a_member_raises_is_raised_in_the_thread() -> None:
    def fn(state: RunState) -> str:
        with pytest.raises(BadValue):
            state.set_env("not a name", "x")
        with pytest.raises(CallerError, match="is a root"):
            state.notify_parent("hello")
        with pytest.raises(KeyError):
            state.env["NOT_SET"]
        with pytest.raises(AttributeError):
            getattr(state, "nothing_like_it")  # noqa: B009
        return "all raised"

    assert await run_of(fn) == "all raised"


@REAL
async def test_a_thread_whose_call_is_over_writes_nothing_any_more(store: Any) -> None:
    is_over, is_done = threading.Event(), threading.Event()
    raised: list[str] = []

    def fn(state: RunState) -> str:
        state.set_status("at work")
        is_over.wait(20)
        for act in (
            lambda: state.set_env("A", "b"),
            lambda: state.spawn("assistant", "x"),
            lambda: state.set_status("too late"),
        ):
            try:
                act()
            except CallerError as error:
                raised.append(str(error))
        is_done.set()
        return "too late"

    bot = model_agent(ScriptedModel([call("fn"), "Well."]), tool(fn, name="fn"))
    async with Runtime([bot], store=store) as rt:
        async with rt.hub.subscribe("agent:status") as events:
            run = await rt.start("assistant", "Go.")
            await anext(events)
        await run.interrupt("enough")
        await run.result()
        is_over.set()
        assert await anyio.to_thread.run_sync(is_done.wait, 20)
        events = await run.read()
    assert raised == ["this call is over; what it still writes is not kept"] * 3
    assert [x.status for x in events if x.type == "agent:status"] == ["at work"]
    assert not [x for x in events if x.type == "agent:child"]


@REAL
async def test_a_plain_tool_gives_the_conversation_away() -> None:
    """``ChildActivated`` passes from the loop into the thread, and from there into the run."""

    def fn(state: RunState) -> str:
        state.use_agent("deep", "Go on.")

    deep = model_agent(ScriptedModel([call("complete", result="deep result")]), name="deep")
    deep = structs.replace(deep, expose_as_tool=True, tool_description="Deep.")
    model = ScriptedModel([call("fn"), "Well."])
    bot = model_agent(model, tool(fn, name="fn"), agents=["deep"])
    async with Runtime([bot, deep], store="memory") as rt:
        run = await rt.start("assistant", "Go.")
        assert (await run.result()).output == "Well."
        (done,) = [
            x for x in await run.read() if x.type == "agent:tool:complete" and x.name == "fn"
        ]
    assert done.output == "deep result"  # type: ignore[attr-defined]
