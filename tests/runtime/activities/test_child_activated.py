"""A tool of one's own may give the conversation away: ``state.use_agent``, ``ChildActivated``."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.frames import Talk, complete, frame, open_runtime, skill, use

from hubbub import Hook, Skill, ToolError, agent, tool
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.frames.activation import ChildActivated
from hubbub.agents.frames.frame import AgentContext, SessionState, StackFrame
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError
from hubbub.hub.ports import Ports, ThreadOffload
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("I-03")]


def by_hand(name: str = "child", message: str = "do it") -> StackFrame:
    session = SessionState()
    if message:
        session.add_user_message(message)
    return StackFrame(
        frame_id="mine", agent_name=name, agent_type="agent", session=session, system_prompt="",
        context=AgentContext(),
    )  # fmt: skip


@tool
async def through_except_exception(state: RunState) -> str:
    """Catch what can be caught."""
    try:
        state.use_agent("child", "do it")
    except Exception:
        return "caught"


@tool
def sync(state: RunState) -> str:
    """No task, no loop."""
    state.use_agent("child", "do it")


@tool
def returns_an_awaitable(state: RunState) -> Awaitable[str]:
    """Sync, and async all the same."""

    async def later() -> str:
        state.use_agent("child", "do it")

    return later()


@tool
async def out_of_a_task_group(state: RunState) -> str:
    """From a task beside others."""

    async def child() -> None:
        await anyio.sleep(1)
        state.use_agent("child", "do it")

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        group.start_soon(child)
    return "done"


@tool
async def out_of_nested_groups_with_an_error(state: RunState) -> str:
    """Beside an error, two groups deep."""
    async with anyio.create_task_group(), anyio.create_task_group() as group:

        async def errs() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise ValueError("on the way out")

        group.start_soon(errs)
        await anyio.sleep(1)
        state.use_agent("child", "do it")
    return "done"


@tool
async def raised_by_hand() -> str:
    """With a frame of one's own making."""
    raise ChildActivated(by_hand())


@tool
async def after_a_timeout(state: RunState) -> str:
    """Inside a scope of one's own."""
    with anyio.fail_after(10):
        await anyio.sleep(1)
        state.use_agent("child", "do it")


@tool
async def while_it_cleans_up(state: RunState) -> str:
    """With something to close."""
    try:
        state.use_agent("child", "do it")
    finally:
        await anyio.sleep(1)


WAYS = [
    through_except_exception, sync, returns_an_awaitable, out_of_a_task_group,
    out_of_nested_groups_with_an_error, raised_by_hand, after_a_timeout, while_it_cleans_up,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
async def test_a_tool_gives_the_conversation_away_and_gets_the_frames_result(
    way: Tool[..., Any], journal: Journal, ports: Ports
) -> None:
    main = ScriptedModel([reply("", call(way.name), call("after")), "Main: done."])

    @tool
    def after() -> str:
        return "after"

    agents = (
        frame(main, way, after, agents=("child",)),
        frame(ScriptedModel(["Child: sure?", complete("result")]), name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("child", "Child: sure?")]
        assert talk.stack == ["main", "child"]
        assert talk.results("after") == [], "its turn comes after the frame"
        (push,) = talk.of(e.SessionPush)
        assert (push.message, push.frame_agent, push.call_id) == ("do it", "child", "1.0")
        assert await talk.say("yes") == [("main", "Main: done.")]
        assert talk.results(way.name) == [("result", False)]
        assert talk.results("after") == [("after", False)]
        assert talk.of(e.HubErrorEvent) == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_sync_tool_in_a_real_thread_gives_the_conversation_away(backend: str) -> None:
    """On a real loop: a thread takes no virtual time."""
    agents = (
        frame(ScriptedModel([call("sync"), "Main."]), sync, agents=("child",)),
        frame(ScriptedModel([complete("result")]), name="child"),
    )

    async def talk_to() -> None:
        ports = Ports(offload=ThreadOffload())
        async with open_runtime(*agents, journal=MemoryJournal(), ports=ports) as runtime:
            talk = Talk(runtime)
            assert await talk.say("go") == [("main", "Main.")]
            assert talk.results("sync") == [("result", False)]

    anyio.run(talk_to, backend=backend)


async def test_state_use_skill_begins_a_skill(journal: Journal, ports: Ports) -> None:
    @tool
    async def write(state: RunState) -> str:
        state.use_skill("writer", "a haiku")

    writer = Skill(
        name="writer", description="d", instructions="i", tools=(),
        model=ScriptedModel([complete("5-7-5")]),
    )  # fmt: skip
    main = frame(ScriptedModel([call("write"), "Main."]), write, skills=(writer,))
    async with open_runtime(main, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main.")]
        assert talk.results("write") == [("5-7-5", False)]
        assert [x.frame_agent for x in talk.of(e.SessionPush)] == ["skill:writer"]


async def test_a_frames_own_tool_may_begin_the_next_one(journal: Journal, ports: Ports) -> None:
    @tool
    async def ask_research(state: RunState) -> str:
        state.use_agent("research", "find")

    agents = (
        frame(ScriptedModel([use("writer"), "Main."]), agents=("writer",)),
        frame(ScriptedModel([call("ask_research"), complete("written")]), ask_research,
              name="writer", agents=("research",)),
        frame(ScriptedModel(["Which?", complete("found")]), name="research"),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("research", "Which?")]
        assert talk.stack == ["main", "writer", "research"]
        assert await talk.say("3.13") == [("main", "Main.")]
        assert talk.results("ask_research") == [("found", False)]


@pytest.mark.spec("I-04")
async def test_two_tools_of_a_parallel_step_may_both_give_it_away(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def away(to: str, state: RunState) -> str:
        state.use_agent(to, "Go.")

    main = ScriptedModel([reply("", call("away", to="a"), call("away", to="b")), "Main."])
    agents = (
        frame(main, away, agents=("a", "b"), parallel_tool_calls=True),
        frame(ScriptedModel(["A?", complete("a")]), name="a"),
        frame(ScriptedModel([complete("b")]), name="b"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        assert await talk.say("yes") == [("main", "Main.")]
        assert sorted(talk.results("away")) == [("a", False), ("b", False)]


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-07", "I-14")
@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda state: state.use_agent("nobody", "x"), "there is no agent 'nobody' for you"),
        (lambda state: state.use_agent("other", "x"), "there are: child"),
        (lambda state: state.use_agent("main", "x"), "you are main already"),
        (lambda state: state.use_skill("nothing", "x"), "there is no skill 'nothing'"),
        (lambda state: state.use_skill("code", "x"), "a tool of its own"),
        (lambda state: state.use_agent("child", 7), "Bad arguments for use_agent"),
    ],
)
async def test_what_the_prompt_does_not_name_is_refused_at_the_call(
    ask: Callable[[Any], Any], words: str, journal: Journal, ports: Ports
) -> None:
    caught: list[str] = []

    @tool
    async def away(state: RunState) -> str:
        try:
            ask(state)
        except ToolError as error:
            caught.append(str(error))
            raise
        return "never"

    @tool
    async def do_code(message: str) -> str:
        return message

    code = Skill(name="code", description="d", passthrough=do_code)
    agents = (
        frame(ScriptedModel([call("away"), "Main."]), away, agents=("child",), skills=(code,)),
        frame(ScriptedModel([]), name="child"),
        frame(ScriptedModel([]), name="other"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main.")]
        assert talk.of(e.SessionPush) == []
        ((told, is_error),) = talk.results("away")
    assert is_error and caught == [told] and words in told


@pytest.mark.spec("I-07")
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (by_hand("gone"), "there is no agent 'gone'"),
        (by_hand("main"), "you are main already"),
        (by_hand("child", ""), "say what it is to do"),
    ],
)
async def test_a_frame_that_cannot_be_begun_is_the_calls_error(
    made: StackFrame, words: str, journal: Journal, ports: Ports
) -> None:
    @tool
    async def away() -> str:
        raise ChildActivated(made)

    agents = (
        frame(ScriptedModel([call("away"), "Main."]), away, agents=("child",)),
        frame(ScriptedModel([]), name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main.")]
        ((told, is_error),) = talk.results("away")
    assert is_error and words in told


async def test_a_failed_frame_is_the_error_of_the_tools_call(
    journal: Journal, ports: Ports
) -> None:
    agents = (
        frame(ScriptedModel([call("sync"), "Main."]), sync, agents=("child",)),
        frame(ScriptedModel(["Sure?"]), name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        assert await talk.say("/back") == [("main", "Main.")]
        ((told, is_error),) = talk.results("sync")
    assert is_error and told.startswith("child did not complete")


async def test_a_state_that_is_kept_gives_nothing_away_after_its_call(
    journal: Journal, ports: Ports
) -> None:
    kept: list[RunState] = []

    @tool
    async def keep(state: RunState) -> str:
        kept.append(state)
        return "kept"

    agents = (
        frame(ScriptedModel([call("keep"), "Main."]), keep, agents=("child",)),
        frame(ScriptedModel([]), name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        await Talk(runtime).say("go")
        with pytest.raises(CallerError, match="this call is over"):
            kept[0].use_agent("child", "x")


# ── it never escapes ─────────────────────────────────────────────────────────────────────────


async def test_a_hook_cannot_give_the_conversation_away(journal: Journal, ports: Ports) -> None:
    async def away(state: Any, value: Any) -> None:
        state.use_agent("child", "x")

    async def raised(state: Any, value: Any) -> None:
        raise ChildActivated(by_hand())

    hooks = (Hook("away", "before_create_message", away), Hook("raised", "after_session", raised))
    agents = (
        frame(ScriptedModel(["Main.", "Again."]), agents=("child",), hooks=("away", "raised")),
        frame(ScriptedModel([]), name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports, hooks=hooks) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main.")]
        assert await talk.say("more") == [("main", "Again.")]
        assert talk.of(e.SessionPush) == []


async def test_a_code_agent_that_raises_it_fails_and_the_runtime_lives(
    journal: Journal, ports: Ports
) -> None:
    @agent("code")
    async def code(input: Any, ctx: Any) -> None:
        raise ChildActivated(by_hand())

    agents = (code, frame(ScriptedModel(["Main."])))
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        run = await runtime.start("code")
        outcome = await run.finished()
        assert outcome.outcome == "failed" and "ChildActivated" in outcome.reason
        assert await Talk(runtime).say("go") == [("main", "Main.")]


async def test_a_tool_of_a_code_agents_session_cannot_give_the_conversation_away(
    journal: Journal, ports: Ports
) -> None:
    @agent("code")
    async def code(input: Any, ctx: Any) -> str:
        model = ScriptedModel([call("raised_by_hand"), "So be it."])
        async with ctx.session(model=model, tools=[raised_by_hand]) as session:
            await session.send("go")
            async for _ in session.receive():
                pass
            return str(session.text)

    agents = (code, frame(ScriptedModel([]), name="child"))
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        outcome = await (await runtime.start("code")).finished()
        assert outcome.output == "So be it."


async def test_a_tool_that_is_a_skill_may_give_the_conversation_away_too(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def carry_out(message: str) -> str:
        raise ChildActivated(by_hand())

    code = Skill(name="code", description="d", passthrough=carry_out)
    agents = (
        frame(ScriptedModel([skill("code"), "Main."]), skills=(code,)),
        frame(ScriptedModel([complete("c")]), name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main.")]
        assert talk.results("use_skill") == [("c", False)]
