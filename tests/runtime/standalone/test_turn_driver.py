"""IA by hand: turns of frames, and the loop that keeps a stack of them, over the runtime's core."""

import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.frames import KEY, complete, frame, open_runtime, skill, use
from support.profiles import examples
from support.virtual_time import VirtualTimeLoop

import hubbub
from hubbub import (
    AgentDefinition,
    PromptDefinition,
    SideConfig,
    Skill,
    ToolError,
    VariableDefinition,
    tool,
)
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.frames.activation import ChildActivated, first_message
from hubbub.agents.frames.frame import (
    AgentContext,
    SessionState,
    StackFrame,
    TurnAction,
    TurnResult,
)
from hubbub.agents.model import AnsweredCall, AssistantMessage, UserMessage
from hubbub.agents.standalone.stack import AgentStackManager
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, DefinitionError, UnknownAgent
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.standalone.executor import AgentExecutor, execute_turn
from hubbub.runtime.standalone.orchestration import handle_message
from hubbub.runtime.standalone.tools import CompleteTool, UseAgentTool, UseSkillTool

pytestmark = [pytest.mark.anyio, pytest.mark.spec("I-03")]

A = TurnAction


@tool
async def look(what: str) -> str:
    """Look something up."""
    return f"looked at {what}"


@tool
async def fail() -> str:
    """Fail."""
    raise OSError("the disk is full")


def script(*items: Any) -> ScriptedModel:
    return ScriptedModel(items)


def research(*items: Any, **fields: Any) -> Skill:
    return Skill(
        name="research", description="Finds things out.", instructions="You research.",
        **{"tools": (look,), "model": script(*items), **fields},
    )  # fmt: skip


def calls_of(session: SessionState) -> list[AnsweredCall]:
    said = (each for each in session.messages if isinstance(each, AssistantMessage))
    return [each for message in said for each in message.calls]


def outputs(session: SessionState) -> list[tuple[str, str, bool]]:
    return [(each.name, each.output, each.is_error) for each in calls_of(session)]


class Chat:
    """A provider: its stacks, the main agent's session, and what the user was sent."""

    def __init__(self, *agents: AgentDefinition, ports: Ports, **options: Any) -> None:
        self.executor = AgentExecutor(agents, ports=ports, **options)
        self.manager = AgentStackManager()
        self.session = SessionState()
        self.sent: list[str] = []

    async def say(self, text: str) -> list[str]:
        """Say something; what was sent back."""
        self.sent = []
        await handle_message(
            self.executor, self.manager, KEY, text, self._send, session=self.session
        )
        return self.sent

    async def _send(self, text: str) -> None:
        self.sent.append(text)

    @property
    def stack(self) -> list[str]:
        if not self.manager.has_active(KEY):
            return []
        return [each.agent_name for each in self.manager.get_or_create(KEY).frames]

    @property
    def top(self) -> StackFrame:
        top = self.manager.get_or_create(KEY).top
        assert top is not None
        return top


async def child_of(executor: AgentExecutor, text: str = "go") -> tuple[StackFrame, StackFrame]:
    """The frames of a main agent that gives the conversation away at once."""
    response = await executor.process_message(text)
    assert response.child_activated
    assert response.main_frame is not None and response.child_frame is not None
    return response.main_frame, response.child_frame


# ── execute_turn handles all TurnAction variants ─────────────────────────────────────────────


async def test_send_text(ports: Ports) -> None:
    executor = AgentExecutor([frame(script("Hello."))], ports=ports)
    main = executor.main_frame()
    assert await execute_turn(main, "hi", executor=executor) == TurnResult(A.SEND_TEXT, "Hello.")
    assert main.session.messages == [UserMessage(content="hi"), AssistantMessage(text="Hello.")]
    assert main.iteration == 1


async def test_execute_turn_is_called_as_the_seed_calls_it(ports: Ports) -> None:
    main = frame(script(use("child", "do it"), "All done."), agents=("child",))
    child = frame(script("Which?", complete("done")), name="child")
    below, top = await child_of(AgentExecutor([main, child], ports=ports))
    assert await execute_turn(top) == TurnResult(A.SEND_TEXT, "Which?")
    assert await execute_turn(top, "that", None) == TurnResult(A.COMPLETE, "done")
    assert top.parent_tool_use_id is not None
    given = (top.parent_tool_use_id, "done", False)
    result = await execute_turn(below, user_message=None, tool_result=given)
    assert result == TurnResult(A.SEND_TEXT, "All done.")


async def test_a_frame_made_by_hand_needs_an_executor(ports: Ports) -> None:
    executor = AgentExecutor([frame(script("Hello."))], ports=ports)
    made = StackFrame("f", "main", "main", SessionState(), "", AgentContext(KEY))
    with pytest.raises(CallerError, match="give executor="):
        await execute_turn(made, "hi")
    made.executor = executor
    assert (await execute_turn(made, "hi")).text == "Hello."
    assert "executor" not in repr(made)


def test_what_frames_are_made_of_is_offered_at_the_front_door() -> None:
    wanted = {
        "AgentContext", "AgentExecutor", "AgentResponse", "AgentStack", "AgentStackManager",
        "ChildActivated", "SessionState", "StackFrame", "StackFrameMeta", "ToolUse", "TurnAction",
        "TurnResult", "execute_turn",
    }  # fmt: skip
    assert wanted <= set(hubbub.__all__)
    meta = hubbub.StackFrameMeta(
        frame_id="f", agent_session_id="f", agent_name="main", agent_type="main"
    )
    made = hubbub.StackFrame(
        "f", "main", "main", hubbub.SessionState(), "", hubbub.AgentContext("telegram_1_2")
    )
    assert meta.max_iterations == made.max_iterations == 25


async def test_complete(ports: Ports) -> None:
    main = frame(script(use("child", "do it")), agents=("child",))
    child = frame(script(reply("", call("look", what="x")), complete("done")), look, name="child")
    executor = AgentExecutor([main, child], ports=ports)
    _, pushed = await child_of(executor)
    assert await executor.execute_turn(pushed) == TurnResult(A.COMPLETE, "done")
    assert outputs(pushed.session)[0] == ("look", "looked at x", False)
    assert pushed.session.unresolved_tool_uses == []


async def test_child_activated(ports: Ports) -> None:
    agents = (frame(script(skill("research", "find APIs")), skills=(research("Which?"),)),)
    executor = AgentExecutor(agents, ports=ports)
    main = executor.main_frame(context=AgentContext(KEY))
    result = await executor.execute_turn(main, "go")
    child = result.child_frame
    assert result.action is A.CHILD_ACTIVATED and child is not None
    assert (child.agent_name, child.agent_type, child.is_skill_agent) == (
        "skill:research", "skill", True,
    )  # fmt: skip
    assert (child.system_prompt, child.max_iterations) == ("You research.", 25)
    assert child.effective_tools == ["complete", "look"]
    assert child.parent_tool_use_id == "call_1_0" == main.session.unresolved_tool_uses[0].id
    assert child.context.session_key == KEY
    assert child.session.messages == [UserMessage(content="find APIs")]
    assert child.frame_id == child.agent_session_id != main.frame_id


@pytest.mark.spec("I-15")
@pytest.mark.parametrize("by_result", [False, True])
async def test_interrupt(by_result: bool, ports: Ports) -> None:
    asks = call("interrupt", prompt="Deploy?", options=["yes", "no"])
    agent = frame(script(reply("Ready.", asks), "Deployed."), supports_checkpointing=True)
    executor = AgentExecutor([agent], ports=ports)
    main = executor.main_frame()
    said: list[str] = []

    async def send(text: str) -> None:
        said.append(text)

    result = await executor.execute_turn(main, "go", send=send)
    assert result == TurnResult(A.INTERRUPT, "Deploy?\n- yes\n- no") and said == ["Ready."]
    assert await executor.execute_turn(main) == result, "it still waits"
    if by_result:
        result = await executor.execute_turn(main, tool_result=("call_1_0", "yes", False))
    else:
        result = await executor.execute_turn(main, "yes")
    assert result == TurnResult(A.SEND_TEXT, "Deployed.")
    assert outputs(main.session) == [("interrupt", "yes", False)]


@pytest.mark.spec("I-15")
async def test_an_interrupt_expires(ports: Ports) -> None:
    agent = frame(
        script(call("interrupt", prompt="Deploy?"), "Not deployed.", "And now?"),
        supports_checkpointing=True,
    )
    executor = AgentExecutor([agent], ports=ports)
    main = executor.main_frame()
    await executor.execute_turn(main, "go")
    await anyio.sleep(3601)
    result = await executor.execute_turn(main, "yes")
    assert result.action is A.SEND_TEXT
    ((_, text, is_error),) = outputs(main.session)
    assert is_error and "no answer came within 3600 s" in text
    assert UserMessage(content="yes") in main.session.messages, "it is heard as a message"


@pytest.mark.spec("I-15")
async def test_a_cancel_word_is_the_error_result_of_an_interrupt(ports: Ports) -> None:
    agent = frame(
        script(call("interrupt", prompt="Deploy?"), "As you like."), supports_checkpointing=True
    )
    chat = Chat(agent, ports=ports)
    assert await chat.say("go") == ["Deploy?"]
    assert chat.stack == ["main"]
    assert await chat.say("stop") == ["As you like."]
    assert outputs(chat.session) == [("interrupt", "cancelled by the user", True)]
    assert chat.stack == []


async def test_max_iterations(ports: Ports) -> None:
    looping = FunctionModel(lambda request: reply("", call("look", what="x")))
    main = frame(script(use("child")), agents=("child",))
    executor = AgentExecutor([main, frame(looping, look, name="child")], ports=ports)
    _, child = await child_of(executor)
    result = await executor.execute_turn(child)
    assert result.action is A.MAX_ITERATIONS
    assert result.text.startswith("child did not complete: it made as many model calls")
    assert (child.iteration, len(outputs(child.session))) == (25, 25)


async def test_a_frames_own_max_iterations_bounds_it(ports: Ports) -> None:
    looping = FunctionModel(lambda request: reply("", call("look", what="x")))
    main = frame(script(use("child")), agents=("child",))
    executor = AgentExecutor([main, frame(looping, look, name="child")], ports=ports)
    _, child = await child_of(executor)
    child.max_iterations = 2
    assert (await executor.execute_turn(child)).action is A.MAX_ITERATIONS
    assert len(outputs(child.session)) == 2


@pytest.mark.spec("I-05")
async def test_a_message_begins_a_new_count_and_a_tool_result_costs_none(ports: Ports) -> None:
    looks = reply("", call("look", what="x"))
    main = frame(script(looks, "One.", looks, "Two."), look, max_steps=2)
    executor = AgentExecutor([main], ports=ports)
    chat = executor.main_frame()
    assert (await executor.execute_turn(chat, "a")).text == "One."
    assert (await executor.execute_turn(chat, "b")).text == "Two."
    assert chat.iteration == 2


async def test_error(ports: Ports) -> None:
    broken = script(Fault("auth", message="bad key"), "never")
    main = frame(script(use("child")), agents=("child",))
    executor = AgentExecutor([main, frame(broken, name="child")], ports=ports)
    _, child = await child_of(executor)
    result = await executor.execute_turn(child)
    assert result.action is A.ERROR
    assert result.text.startswith("child did not complete") and "bad key" in result.text


# ── Verification: tools that spawn ───────────────────────────────────────────────────────────


async def test_use_skill_tool_raises_child_activated_with_a_valid_frame(ports: Ports) -> None:
    executor = AgentExecutor([frame(script(), skills=(research("Which?"),))], ports=ports)
    context = AgentContext(KEY, tool_use_id="toolu_7", metadata={"chat": 1})
    with pytest.raises(ChildActivated) as caught:
        await UseSkillTool(executor).execute({"name": "research", "message": "find"}, context)
    child = caught.value.child_frame
    assert child.agent_name == "skill:research" and child.parent_tool_use_id == "toolu_7"
    assert (
        child.session.messages
        == [UserMessage(content="find")]
        == [UserMessage(content=first_message(child))]
    )
    assert (child.context.session_key, child.context.metadata) == (KEY, {"chat": 1})
    assert (child.iteration, child.max_iterations) == (0, 25), "no turn was run"
    assert await executor.execute_turn(child) == TurnResult(A.SEND_TEXT, "Which?")


async def test_use_agent_tool_raises_child_activated_with_a_valid_frame(ports: Ports) -> None:
    executor = AgentExecutor(
        [frame(script(), agents=("child",)), frame(script(complete("ok")), name="child")],
        ports=ports,
    )
    with pytest.raises(ChildActivated) as caught:
        await UseAgentTool(executor).execute({"name": "child", "message": "x"}, AgentContext())
    child = caught.value.child_frame
    assert (child.agent_type, child.is_skill_agent, child.model) == ("agent", False, "scripted")
    assert await executor.execute_turn(child) == TurnResult(A.COMPLETE, "ok")


KEYED = VariableDefinition(name="API_KEY", required=True)


@pytest.mark.spec("I-07")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "nothing", "message": "x"}, "there is no skill 'nothing'"),
        ({"name": "research"}, "message"),
        ({"name": "research", "message": " "}, "say what it is to do"),
        ({"name": "keyed", "message": "x"}, "API_KEY is not set"),
        ({"name": "modelless", "message": "x"}, "was not started"),
    ],
)
async def test_use_skill_tool_begins_nothing_that_is_refused(
    arguments: dict[str, str], words: str, ports: Ports
) -> None:
    skills = (
        research(),
        Skill(name="keyed", description="d", instructions="i", variables=(KEYED,)),
        Skill(name="modelless", description="d", instructions="i", model="no such model"),
    )
    executor = AgentExecutor([frame(script(), skills=skills)], ports=ports, environ={})
    result = await UseSkillTool(executor).execute(arguments, AgentContext())
    assert result.is_error and words in result.content


async def test_complete_tool_is_intercepted_and_never_executed() -> None:
    assert CompleteTool.name == "complete"
    assert CompleteTool.description == "Signal that your task is complete and return a result."
    with pytest.raises(CallerError):
        await CompleteTool().execute({"result": "x"}, AgentContext())


# ── Behaviors, row by row ────────────────────────────────────────────────────────────────────


def team(*main: Any, **options: Any) -> tuple[AgentDefinition, AgentDefinition]:
    """Main, with a skill ``writer`` that may call the agent ``research``."""
    writer = Skill(
        name="writer", description="Writes.", instructions="You write.", tools=("use_agent",),
        model=script(*options.pop("writer", ())),
    )  # fmt: skip
    inner = frame(script(*options.pop("research", ())), look, name="research")
    return frame(script(*main), look, skills=(writer,), **options), inner


@pytest.mark.spec("I-02")
async def test_skill_completes_first_turn(ports: Ports, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="hubbub")
    chat = Chat(*team(skill("writer"), "Main: done.", writer=[complete("written")]), ports=ports)
    assert await chat.say("go") == ["Main: done."]
    told = re.findall(r"(stack\.\w+) .*?agent='([\w:]+)' depth=(\d)", caplog.text)
    assert told == [
        ("stack.pushed", "main", "1"), ("stack.pushed", "skill:writer", "2"),
        ("stack.popped", "skill:writer", "1"),
    ]  # fmt: skip
    assert chat.stack == []
    assert outputs(chat.session) == [("use_skill", "written", False)]


@pytest.mark.spec("I-02")
async def test_skill_needs_interaction(ports: Ports) -> None:
    chat = Chat(*team(skill("writer"), writer=["Which style?", "And length?"]), ports=ports)
    assert await chat.say("go") == ["Which style?"]
    assert chat.stack == ["main", "skill:writer"]
    assert await chat.say("short") == ["And length?"]
    assert chat.top.session.messages[-2] == UserMessage(content="short")
    assert chat.session.messages == [UserMessage(content="go")], "main heard nothing of it"


@pytest.mark.spec("I-02")
async def test_nested_skill_calls_agent(ports: Ports) -> None:
    agents = team(skill("writer"), writer=[use("research", "find")], research=["Which version?"])
    chat = Chat(*agents, ports=ports)
    assert await chat.say("go") == ["Which version?"]
    assert chat.stack == ["main", "skill:writer", "research"]
    assert chat.top.context.session_key == KEY


@pytest.mark.spec("I-02")
async def test_inner_agent_completes(ports: Ports) -> None:
    agents = team(
        skill("writer"), "Main: done.", writer=[use("research"), "Like this?", complete("w")],
        research=["Which?", complete("found 3 APIs")],
    )  # fmt: skip
    chat = Chat(*agents, ports=ports)
    await chat.say("go")
    assert await chat.say("3.13") == ["Like this?"]
    assert chat.stack == ["main", "skill:writer"]
    assert outputs(chat.top.session) == [("use_agent", "found 3 APIs", False)]
    assert await chat.say("yes") == ["Main: done."]
    assert chat.stack == []


@pytest.mark.spec("I-02")
async def test_max_iterations_hit(ports: Ports) -> None:
    looks = reply("", call("look", what="x"))
    agents = team(
        skill("writer"), "Main.", writer=[use("research"), "Sorry."], research=[looks] * 25
    )
    chat = Chat(*agents, ports=ports)
    assert await chat.say("go") == ["Sorry."]
    ((name, text, is_error),) = outputs(chat.top.session)
    assert (name, is_error) == ("use_agent", True) and text.startswith("research did not complete")


@pytest.mark.spec("I-02")
async def test_main_agent_resumes(ports: Ports) -> None:
    looks = reply("", call("look", what="x"))
    chat = Chat(*team(skill("writer"), looks, "Main: done.", writer=[complete("w")]), ports=ports)
    assert await chat.say("go") == ["Main: done."]
    assert [name for name, *_ in outputs(chat.session)] == ["use_skill", "look"]


@pytest.mark.spec("I-02")
async def test_stack_empty_and_message(ports: Ports) -> None:
    chat = Chat(*team("One.", "Two."), ports=ports)
    assert (await chat.say("a"), await chat.say("b")) == (["One."], ["Two."])
    assert [m.content for m in chat.session.messages if isinstance(m, UserMessage)] == ["a", "b"]
    assert chat.stack == [] and not chat.manager.has_active(KEY)


@pytest.mark.spec("I-02")
async def test_stack_active_and_message(ports: Ports) -> None:
    chat = Chat(*team(skill("writer"), writer=["Which?", "Ah."]), ports=ports)
    await chat.say("go")
    top = chat.top
    assert await chat.say("that") == ["Ah."]
    assert top.session.messages[-2] == UserMessage(content="that")


@pytest.mark.spec("I-02")
async def test_llm_error_in_turn(ports: Ports) -> None:
    broken = Fault("auth", message="bad key")
    agents = team(skill("writer"), "Main: sorry.", writer=[broken, "never"])
    chat = Chat(*agents, ports=ports)
    assert await chat.say("go") == ["Main: sorry."]
    ((_, text, is_error),) = outputs(chat.session)
    assert is_error and "bad key" in text and chat.stack == []


# ── Errors, row by row ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-02")
async def test_max_iterations_exceeded_by_main_is_told_to_the_user(ports: Ports) -> None:
    looks = reply("", call("look", what="x"))
    chat = Chat(*team(looks, looks, "Back.", max_steps=2), ports=ports)
    (told,) = await chat.say("go")
    assert told.startswith("main did not complete: it made as many model calls")
    assert await chat.say("again") == ["Back."]


@pytest.mark.spec("I-02")
async def test_llm_api_error_is_retried_and_then_cascades(ports: Ports) -> None:
    flaky = Fault("server", times=2)
    chat = Chat(*team(skill("writer"), "Main.", writer=[flaky, complete("w")]), ports=ports)
    assert await chat.say("go") == ["Main."]
    assert outputs(chat.session) == [("use_skill", "w", False)]
    dead = Fault("server", times=None, message="down")
    chat = Chat(*team(skill("writer"), "Main: sorry.", writer=[dead, "never"]), ports=ports)
    assert await chat.say("go") == ["Main: sorry."]
    assert "down" in outputs(chat.session)[0][1]


@pytest.mark.spec("I-02")
async def test_llm_api_error_of_main_is_told_and_the_conversation_goes_on(ports: Ports) -> None:
    asked: list[str] = []

    def answer(request: Any) -> str:
        asked.append("")
        if len(asked) == 1:
            raise RuntimeError("bad key")
        return "Back."

    chat = Chat(frame(FunctionModel(answer)), ports=ports)
    (told,) = await chat.say("go")
    assert told.startswith("main did not complete") and "bad key" in told
    assert await chat.say("again") == ["Back."]


@pytest.mark.spec("I-02")
async def test_tool_execution_error(ports: Ports) -> None:
    model = script(call("fail"), "It failed; shall I go on?")
    main = frame(script(use("child")), agents=("child",))
    chat = Chat(main, frame(model, fail, name="child"), ports=ports)
    assert await chat.say("go") == ["It failed; shall I go on?"]
    assert outputs(chat.top.session) == [("fail", "OSError: the disk is full", True)]


@pytest.mark.spec("I-02")
async def test_stack_empty_unexpectedly(ports: Ports, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def reset() -> str:
        chat.manager.clear(KEY)
        return "cleared"

    model = script("Which?", reply("", call("reset"), use("inner")))
    main = frame(script(use("child"), "Back."), agents=("child",))
    child = frame(model, reset, name="child", agents=("inner",))
    chat = Chat(main, child, frame(script("Inner?"), name="inner"), ports=ports)
    await chat.say("go")
    caplog.clear()
    assert await chat.say("reset") == []
    assert [(x.levelname, x.getMessage().split()[0]) for x in caplog.records] == [
        ("WARNING", "stack.changed")
    ]
    assert await chat.say("again") == ["Back."], "and main does not wait forever"


@pytest.mark.spec("I-02")
async def test_missing_parent_tool_use_id_on_complete(ports: Ports) -> None:
    agents = team(skill("writer"), "Back.", writer=["Which?", complete("w")])
    chat = Chat(*agents, ports=ports)
    await chat.say("go")
    chat.top.parent_tool_use_id = None
    with pytest.raises(AssertionError, match="skill:writer has no caller's call"):
        await chat.say("that")
    assert chat.stack == [], "no half stack is left"
    assert await chat.say("again") == ["Back."]
    ((_, text, is_error),) = outputs(chat.session)
    assert is_error and "cut off by an error" in text


@pytest.mark.spec("I-16")
async def test_an_exception_of_the_provider_leaves_no_half_stack(ports: Ports) -> None:
    agents = team(
        skill("writer"), "Back.", writer=[use("research")], research=["Which?"],
    )  # fmt: skip
    chat = Chat(*agents, ports=ports)

    async def broken(text: str) -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await handle_message(chat.executor, chat.manager, KEY, "go", broken, session=chat.session)
    assert chat.stack == [] and not chat.session.unresolved_tool_uses
    assert await chat.say("again") == ["Back."]


@pytest.mark.spec("I-16")
async def test_a_completed_frame_without_a_caller_sends_its_result(ports: Ports) -> None:
    chat = Chat(*team(research=["Which?", complete("found")]), ports=ports)
    lonely = chat.executor.main_frame()
    lonely.agent_name, lonely.agent_type, lonely.session = "research", "agent", SessionState()
    lonely.session.add_user_message("find")
    chat.manager.get_or_create(KEY).push(lonely)
    assert await chat.say("go") == ["Which?"]
    assert await chat.say("that") == ["found"]
    assert chat.stack == []


# ── cascades ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-04")
@pytest.mark.parametrize("parallel", [False, True])
async def test_of_three_calls_each_is_executed_once_and_in_order(
    parallel: bool, ports: Ports
) -> None:
    order: list[str] = []

    @tool
    def note(what: str) -> str:
        order.append(what)
        return what

    three = reply("", call("note", what="1"), use("child", "2"), call("note", what="3"))
    main = frame(script(three, "Main."), note, agents=("child",), parallel_tool_calls=parallel)
    chat = Chat(main, frame(script("Two?", complete("2")), name="child"), ports=ports)
    assert await chat.say("go") == ["Two?"]
    assert order == ["1"]
    assert await chat.say("yes") == ["Main."]
    assert order == ["1", "3"]
    assert [text for _, text, _ in outputs(chat.session)] == ["1", "2", "3"]


@pytest.mark.spec("I-04")
async def test_the_second_and_the_third_call_begin_frames_one_after_the_other(
    ports: Ports,
) -> None:
    main = frame(
        script(reply("", call("look", what="x"), use("b"), use("c")), "Main."), look,
        agents=("b", "c"),
    )  # fmt: skip
    chat = Chat(
        main, frame(script("B?", complete("b")), name="b"),
        frame(script("C?", complete("c")), name="c"), ports=ports,
    )  # fmt: skip
    assert await chat.say("go") == ["B?"]
    assert chat.stack == ["main", "b"]
    assert await chat.say("1") == ["C?"]
    assert chat.stack == ["main", "c"]
    assert await chat.say("2") == ["Main."]
    assert [text for _, text, _ in outputs(chat.session)] == ["looked at x", "b", "c"]


@pytest.mark.spec("I-10")
async def test_what_is_said_beside_calls_reaches_the_user_and_blanks_do_not(ports: Ports) -> None:
    agents = team(
        reply("I shall ask.", skill("writer")), "Main: done.",
        writer=[reply("Bye.", complete("w"))],
    )  # fmt: skip
    chat = Chat(*agents, ports=ports)
    assert await chat.say("go") == ["I shall ask.", "Bye.", "Main: done."]


@pytest.mark.spec("I-08")
async def test_stop_unwinds_all_frames_and_the_main_agent_is_usable(ports: Ports) -> None:
    agents = team(skill("writer"), "Back.", writer=[use("research")], research=["Which?"])
    chat = Chat(*agents, ports=ports)
    await chat.say("go")
    frames = list(chat.manager.get_or_create(KEY).frames)
    assert await chat.say(" Stop ") == []
    assert chat.stack == []
    assert all(not each.session.unresolved_tool_uses for each in frames)
    assert outputs(chat.session) == [("use_skill", "interrupted: cancelled by the user", True)]
    assert await chat.say("stop") == ["Back."], "without a frame it is an ordinary message"


@pytest.mark.spec("I-08")
async def test_back_pops_one_frame(ports: Ports) -> None:
    agents = team(skill("writer"), writer=[use("research"), "Then like this?"], research=["Which?"])
    chat = Chat(*agents, ports=ports)
    await chat.say("go")
    assert await chat.say("/back") == ["Then like this?"]
    assert chat.stack == ["main", "skill:writer"]
    ((_, text, is_error),) = outputs(chat.top.session)
    assert is_error and "sent back by the user" in text


async def test_a_frame_that_waits_for_another_cannot_be_spoken_to(ports: Ports) -> None:
    executor = AgentExecutor(team(skill("writer"), writer=["Which?"]), ports=ports)
    main, child = await child_of(executor)
    with pytest.raises(CallerError, match="main waits for skill:writer"):
        await executor.execute_turn(main, "hello")
    result = await executor.execute_turn(main)
    assert result == TurnResult(A.CHILD_ACTIVATED, child_frame=child), "nothing else is due"


@pytest.mark.spec("I-12")
async def test_a_passthrough_skill_bypasses_the_stack(ports: Ports) -> None:
    @tool
    async def claude_code(message: str) -> str:
        """Code."""
        return f"coded: {message}"

    code = Skill(name="claude-code", description="Codes.", passthrough=claude_code)
    main = frame(script(skill("claude-code", "fix it"), "Main."), skills=(code,))
    chat = Chat(main, ports=ports)
    assert await chat.say("go") == ["Main."]
    assert outputs(chat.session) == [("use_skill", "coded: fix it", False)]
    result = await UseSkillTool(chat.executor).execute(
        {"name": "claude-code", "message": "x"}, AgentContext()
    )
    assert (result.content, result.is_error) == ("coded: x", False)


@pytest.mark.spec("I-12")
async def test_headless_a_frames_text_is_its_result(ports: Ports) -> None:
    agents = team(
        skill("writer"), "Main: done.", writer=[use("research"), "Written."], research=["Found."]
    )
    executor = AgentExecutor(agents, ports=ports)
    main = executor.main_frame(context=AgentContext(is_headless=True))
    stack = [main]
    result = await executor.execute_turn(main, "go")
    while len(stack) > 1 or result.action is A.CHILD_ACTIVATED:
        if result.child_frame is not None:
            stack.append(result.child_frame)
            result = await executor.execute_turn(stack[-1])
            continue
        assert result.action is A.COMPLETE
        done = stack.pop()
        assert done.parent_tool_use_id is not None
        given_ = (done.parent_tool_use_id, result.text, False)
        result = await executor.execute_turn(stack[-1], tool_result=given_)
    assert result == TurnResult(A.SEND_TEXT, "Main: done.")
    assert outputs(main.session) == [("use_skill", "Written.", False)]


# ── tools, variables, models ─────────────────────────────────────────────────────────────────


async def test_a_tool_sees_its_frame(ports: Ports) -> None:
    seen: dict[str, Any] = {}

    @tool
    async def work(state: RunState) -> str:
        await state.files.write("a.txt", "hello")
        await state.kv.set("n", (state.kv.get("n") or 0) + 1)
        state.set_status("at it")
        state.set_env("MOOD", "good")
        seen.update(
            id=state.run_id, agent=state.agent, call=state.call_id, env=state.env.get("KEY"),
            mood=state.env["MOOD"], n=state.kv.get("n"), said=len(state.messages),
        )  # fmt: skip
        return await state.files.read_text("a.txt")

    executor = AgentExecutor([frame(script(call("work"), call("work"), "ok"), work)], ports=ports)
    main = executor.main_frame()
    main.environment = {"KEY": "mine"}
    assert (await executor.execute_turn(main, "go")).text == "ok"
    assert seen == {
        "id": main.frame_id, "agent": "main", "call": "2.0", "env": "mine", "mood": "good",
        "n": 2, "said": 2,
    }  # fmt: skip
    assert [text for _, text, _ in outputs(main.session)] == ["hello", "hello"]


async def test_what_takes_a_hub_says_that_there_is_none(ports: Ports) -> None:
    @tool
    async def send(state: RunState) -> str:
        with pytest.raises(CallerError, match="driven by hand has no hub"):
            state.queue_message("x")
        with pytest.raises(CallerError, match="has no spawn"):
            state.spawn("main")
        with pytest.raises(CallerError, match="has no hub"):
            await state.hub.ask("user", "Really?")
        state.hub.emit(e.AgentText(text="Working."))
        return "sent"

    chat = Chat(frame(script(call("send"), "ok"), send), ports=ports)
    assert await chat.say("go") == ["Working.", "ok"]


async def test_a_skill_is_carried_out_by_its_callers_model_and_inherits_its_variables(
    ports: Ports,
) -> None:
    @tool(variables=[KEYED])
    async def read_key(state: RunState) -> str:
        return state.env["API_KEY"]

    def answer(request: Any) -> Any:
        if request.system == "You use a key.":
            done = [m for m in request.messages if isinstance(m, AssistantMessage)]
            return complete(done[0].calls[0].output) if done else call("read_key")
        calls = [m for m in request.messages if isinstance(m, AssistantMessage)]
        return "Main." if calls else skill("keyed")

    keyed = Skill(
        name="keyed", description="d", instructions="You use a key.", tools=(read_key,),
        variables=(KEYED,),
    )  # fmt: skip
    main = frame(FunctionModel(answer), skills=(keyed,))
    chat = Chat(main, ports=ports, env={"API_KEY": "k"})
    assert await chat.say("go") == ["Main."]
    assert outputs(chat.session) == [("use_skill", "k", False)]


async def test_a_subagent_needs_a_runtime(ports: Ports) -> None:
    prompt = PromptDefinition(name="w", prompt="Work.", model=script())
    side = SideConfig(prompt=prompt)
    worker = AgentDefinition(
        name="worker", type="dual_ai", side_a=side, side_b=side, expose_as_tool=True
    )
    main = frame(script(call("worker", message="x"), "Alone then."), "worker")
    chat = Chat(main, worker, ports=ports)
    assert await chat.say("go") == ["Alone then."]
    ((_, text, is_error),) = outputs(chat.session)
    assert is_error and "use a Runtime" in text


async def test_a_handoff_goes_on_as_the_other_agent(ports: Ports) -> None:
    main = frame(script(call("other"), "never"), "other")
    other = frame(script("never", "Other here.", "Other again."), name="other")
    chat = Chat(main, other, ports=ports)
    assert await chat.say("go") == ["Other here."]
    assert await chat.say("and") == ["Other again."]


async def test_an_executor_is_told_what_does_not_fit_together(ports: Ports) -> None:
    with pytest.raises(DefinitionError, match="at least one"):
        AgentExecutor()
    with pytest.raises(DefinitionError, match="nobody"):
        AgentExecutor([frame(script(), agents=("nobody",))])
    executor = AgentExecutor([frame(script())], ports=ports)
    lost = executor.main_frame()
    lost.agent_name = "gone"
    with pytest.raises(UnknownAgent, match="gone"):
        await executor.execute_turn(lost, "hi")


async def test_a_tool_that_takes_too_long_is_a_result(ports: Ports) -> None:
    @tool(timeout=5)
    async def slow() -> None:
        await anyio.sleep(3600)

    chat = Chat(frame(script(call("slow"), "ok"), slow), ports=ports)
    assert await chat.say("go") == ["ok"]
    assert "timed out" in outputs(chat.session)[0][1]


async def test_calls_of_a_parallel_step_run_side_by_side(ports: Ports) -> None:
    met = anyio.Event()

    @tool
    async def wait() -> str:
        await met.wait()
        return "met"

    @tool
    async def come() -> str:
        met.set()
        return "came"

    main = frame(
        script(reply("", call("wait"), call("come")), "ok"), wait, come, parallel_tool_calls=True
    )
    chat = Chat(main, ports=ports)
    assert await chat.say("go") == ["ok"]
    assert [text for _, text, _ in outputs(chat.session)] == ["met", "came"]


# ── tools of one's own that give the conversation away ───────────────────────────────────────


async def test_the_very_frame_that_a_tool_raises_is_the_child(ports: Ports) -> None:
    made: list[StackFrame] = []

    @tool
    async def delegate() -> str:
        session = SessionState()
        session.add_user_message("do it")
        child = StackFrame(
            frame_id="mine", agent_name="child", agent_type="agent", session=session,
            system_prompt="", context=AgentContext(), environment={"K": "v"}, voice="calm",
        )  # fmt: skip
        made.append(child)
        try:
            async with anyio.create_task_group():
                raise ChildActivated(child)
        except Exception:
            return "caught"

    main = frame(script(call("delegate"), "Main."), delegate)
    chat = Chat(main, frame(script("Child?", complete("c")), name="child"), ports=ports)
    assert await chat.say("go") == ["Child?"]
    assert chat.top is made[0] and chat.top.parent_tool_use_id == "call_1_0"
    assert await chat.say("yes") == ["Main."]
    assert outputs(chat.session) == [("delegate", "c", False)]


async def test_state_use_agent_gives_the_conversation_away(ports: Ports) -> None:
    @tool
    def delegate(state: RunState) -> str:
        state.use_agent("child", "do it")

    main = frame(script(call("delegate"), "Main."), delegate, agents=("child",))
    chat = Chat(main, frame(script("Child?", complete("c")), name="child"), ports=ports)
    assert await chat.say("go") == ["Child?"]
    assert first_message(chat.top) == "do it"
    assert await chat.say("yes") == ["Main."]


async def test_state_use_agent_refuses_who_is_not_of_the_prompt(ports: Ports) -> None:
    @tool
    def delegate(state: RunState) -> str:
        try:
            state.use_agent("other", "do it")
        except ToolError as error:
            text = f"refused: {error}"
        return text

    main = frame(script(call("delegate"), "Main."), delegate)
    chat = Chat(main, frame(script(), name="other"), ports=ports)
    assert await chat.say("go") == ["Main."]
    assert "there is no agent 'other' for you" in outputs(chat.session)[0][1]


# ── the same core: a driver and a runtime cannot tell ────────────────────────────────────────

NAMES = ("main", "one", "two")


def steps(depth: int) -> st.SearchStrategy[Any]:
    """What a model may do in one step."""
    words = st.sampled_from(["Hm.", "Well?", "So."])
    looks = st.sampled_from([call("look", what="x"), call("fail"), call("nothing")])
    away = st.sampled_from((*NAMES[depth:], "nobody")).map(use)
    ask = st.just(call("interrupt", prompt="Sure?"))
    ends = [st.just(complete("done"))] if depth else []
    alone = st.one_of(looks, away, ask, *ends)
    several = st.builds(
        lambda text, calls: reply(text, *calls),
        st.sampled_from(["", "Look."]), st.lists(alone, min_size=2, max_size=3),
    )  # fmt: skip
    bad = st.just(Fault("auth", message="no"))
    return st.one_of(words, words, alone, several, st.tuples(bad, words))


def scripts(depth: int) -> st.SearchStrategy[tuple[Any, ...]]:
    def flat(items: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(x for item in items for x in (item if isinstance(item, tuple) else (item,)))

    return st.lists(steps(depth), min_size=4, max_size=8).map(flat)


def agents_of(models: dict[str, tuple[Any, ...]]) -> tuple[AgentDefinition, ...]:
    return tuple(
        frame(
            FunctionModel(_endless(models[name])), look, fail, name=name, agents=NAMES,
            supports_checkpointing=True, max_steps=4,
        )
        for name in NAMES
    )  # fmt: skip


def _endless(items: tuple[Any, ...]) -> Any:
    """A script that says the same forever when it is over."""
    scripted = ScriptedModel([*items, *(["Still."] * 200)])

    async def answer(request: Any) -> Any:
        return await scripted.call(request)

    return answer


async def by_hand(models: Any, lines: list[str]) -> tuple[list[list[str]], list[Any]]:
    chat = Chat(*agents_of(models), ports=virtual_ports())
    said = [await chat.say(line) for line in lines]
    return said, chat.session.messages


async def by_runtime(models: Any, lines: list[str]) -> tuple[list[list[str]], list[Any]]:
    said: list[list[str]] = []
    async with open_runtime(
        *agents_of(models), journal=MemoryJournal(), ports=virtual_ports()
    ) as runtime:
        heard: list[str] = []

        def hear(event: Any) -> None:
            if isinstance(event, e.AgentText):
                heard.append(event.text)
            elif isinstance(event, e.SessionPrompt):
                heard.append(event.question)

        runtime.hub.subscribe("*", hear)
        for line in lines:
            heard.clear()
            receipt = await runtime.hub.open("main", line, session_key=KEY)
            with anyio.move_on_after(1):  # Virtual: until nothing is left to do but to wait.
                await runtime.result(receipt.run_id)
            said.append(list(heard))
        found = await runtime.runs.look_at(receipt.run_id)
        assert found is not None
        return said, list(found[1]().transcript)


@pytest.mark.spec("I-03", "I-02")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries({name: scripts(index) for index, name in enumerate(NAMES)}),
    st.lists(st.sampled_from(["hi", "yes", "more", "/back", "stop"]), min_size=2, max_size=5),
)
def test_a_driver_and_a_runtime_say_the_same_and_remember_the_same(
    models: dict[str, tuple[Any, ...]], lines: list[str]
) -> None:
    options = {"loop_factory": VirtualTimeLoop}
    mine, transcript = anyio.run(by_hand, models, lines, backend_options=options)
    theirs, kept = anyio.run(by_runtime, models, lines, backend_options=options)
    failures = ("main did not complete",)
    shown = [[text for text in texts if not text.startswith(failures)] for texts in mine]
    assert shown == theirs
    assert transcript == kept


def test_the_front_door_has_the_seeds_names_and_the_driver_loads_when_it_is_used() -> None:
    names = (
        "StackFrame", "AgentStack", "AgentStackManager", "TurnAction", "TurnResult",
        "AgentResponse", "ChildActivated", "execute_turn", "AgentExecutor",
    )  # fmt: skip
    code = (
        "import hubbub, sys; assert 'hubbub.runtime.standalone.executor' not in sys.modules; "
        f"print([n for n in {names} if n not in hubbub.__all__ or not hasattr(hubbub, n)])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.spec("U-03")
@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("approve", ("pay", "paid 1", False)),
        ("no", ("pay", "not run: denied: no", True)),
    ],
)
async def test_a_call_that_needs_approval_waits_for_the_user(
    said: str, result: tuple[str, str, bool], ports: Ports
) -> None:
    paid: list[int] = []

    @tool(approval=lambda amount: amount > 0)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    agent = frame(script(call("pay", amount=1), "So."), pay)
    executor = AgentExecutor([agent], ports=ports)
    main = executor.main_frame()
    asked = await executor.execute_turn(main, "go")
    assert asked == TurnResult(A.INTERRUPT, 'May pay run? {"amount":1}\n- approve\n- deny')
    assert not paid
    assert await executor.execute_turn(main, said) == TurnResult(A.SEND_TEXT, "So.")
    assert outputs(main.session) == [result]
    assert paid == ([1] if said == "approve" else [])
