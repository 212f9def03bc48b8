"""IA's data model has IA's fields, defaults and methods, and is a view of the core's own state."""

import dataclasses
from typing import Any

import pytest

from hubbub.agents.frames.activation import ChildActivated, activated_in, first_message
from hubbub.agents.frames.frame import (
    AgentContext,
    SessionState,
    StackFrame,
    TurnAction,
    TurnResult,
)
from hubbub.agents.model import AssistantMessage, ModelReply, ToolCall, UserMessage
from hubbub.agents.standalone.stack import AgentResponse, AgentStack, AgentStackManager
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue

pytestmark = pytest.mark.spec("I-03")


def frame(name: str = "skill:research", **fields: Any) -> StackFrame:
    return StackFrame(
        frame_id=f"id of {name}", agent_name=name, agent_type="skill", session=SessionState(),
        system_prompt="You research.", context=AgentContext(), **fields,
    )  # fmt: skip


def fields_of(kind: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]


def calling(*names: str) -> ModelReply:
    return ModelReply(calls=tuple(ToolCall(name=name, arguments='{"n": 1}') for name in names))


# ── frames and stacks ────────────────────────────────────────────────────────────────────────


def test_a_frame_has_the_seeds_fields_in_its_order_with_its_defaults() -> None:
    assert fields_of(StackFrame) == [
        "frame_id", "agent_name", "agent_type", "session", "system_prompt", "context", "model",
        "environment", "iteration", "max_iterations", "effective_tools", "is_skill_agent",
        "voice", "parent_tool_use_id", "agent_session_id",
    ]  # fmt: skip
    made = frame()
    shown = {name: getattr(made, name) for name in fields_of(StackFrame)[6:]}
    assert shown == {
        "model": None, "environment": None, "iteration": 0, "max_iterations": 25,
        "effective_tools": [], "is_skill_agent": False, "voice": None,
        "parent_tool_use_id": None, "agent_session_id": None,
    }  # fmt: skip


def test_the_first_six_fields_are_required_and_lists_are_not_shared() -> None:
    with pytest.raises(TypeError, match="6 required"):
        StackFrame()  # type: ignore[call-arg]
    one, other = frame(), frame()
    one.effective_tools.append("look")
    assert other.effective_tools == []


def test_values_of_variables_do_not_show_in_a_frame() -> None:
    assert "hunter2" not in repr(frame(environment={"KEY": "hunter2"}))


def test_a_stack_is_last_in_first_out() -> None:
    stack = AgentStack()
    assert (stack.is_empty, stack.depth, stack.top, stack.frames) == (True, 0, None, [])
    main, child = frame("main"), frame("child")
    stack.push(main)
    stack.push(child)
    assert (stack.is_empty, stack.depth, stack.top) == (False, 2, child)
    assert stack.pop() is child
    assert (stack.pop(), stack.is_empty) == (main, True)
    with pytest.raises(IndexError):
        stack.pop()


def test_stacks_are_kept_by_the_key_of_their_conversation() -> None:
    manager = AgentStackManager()
    assert not manager.has_active("telegram_123_456")
    stack = manager.get_or_create("telegram_123_456")
    assert manager.get_or_create("telegram_123_456") is stack
    assert not manager.has_active("telegram_123_456"), "an empty stack is none"
    stack.push(frame())
    assert manager.has_active("telegram_123_456")
    assert not manager.has_active("telegram_123_789")
    manager.clear("telegram_123_456")
    manager.clear("telegram_123_456")
    assert not manager.has_active("telegram_123_456")
    assert manager.get_or_create("telegram_123_456") is not stack


def test_a_turn_comes_to_one_of_six_things() -> None:
    assert [each.name for each in TurnAction] == [
        "SEND_TEXT", "COMPLETE", "CHILD_ACTIVATED", "INTERRUPT", "MAX_ITERATIONS", "ERROR",
    ]  # fmt: skip
    assert fields_of(TurnResult) == ["action", "text", "child_frame"]
    result = TurnResult(TurnAction.COMPLETE)
    assert (result.text, result.child_frame) == ("", None)


def test_a_response_says_whether_a_child_has_the_conversation() -> None:
    assert set(fields_of(AgentResponse)) >= {"child_activated", "main_frame", "child_frame"}
    response = AgentResponse("hello")
    assert (response.child_activated, response.main_frame, response.child_frame) == (
        False, None, None,
    )  # fmt: skip


# ── ChildActivated ───────────────────────────────────────────────────────────────────────────


def test_child_activated_propagates_through_except_exception_handlers() -> None:
    made = frame()

    def careless() -> None:
        try:
            raise ChildActivated(made)
        except Exception:
            pytest.fail("it must pass")

    with pytest.raises(ChildActivated) as caught:
        careless()
    assert caught.value.child_frame is made
    assert not issubclass(ChildActivated, Exception)


def test_child_activated_is_found_in_groups_however_deep() -> None:
    made = frame()
    raised = ChildActivated(made)
    assert activated_in(raised) is made
    group = BaseExceptionGroup("outer", [ValueError(), BaseExceptionGroup("inner", [raised])])
    assert activated_in(group) is made
    assert activated_in(ValueError()) is None
    assert activated_in(ExceptionGroup("none", [ValueError()])) is None


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_ends_the_program_is_not_hidden_by_child_activated(ends: BaseException) -> None:
    group = BaseExceptionGroup("both", [ChildActivated(frame()), ends])
    assert activated_in(group) is None


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


def test_a_session_is_the_fold_of_what_was_said() -> None:
    session = SessionState()
    assert session.messages == [] and session.unresolved_tool_uses == []
    session.add_user_message("Hello.")
    session.add_assistant_message("Hi.")
    session.add_user_message("Bye.")
    assert session.messages == [
        UserMessage(content="Hello."), AssistantMessage(text="Hi."), UserMessage(content="Bye."),
    ]  # fmt: skip
    assert (session.thread.turn, session.thread.session) == (2, 2)


def test_calls_without_results_stand_apart_until_the_last_one_has_its_own() -> None:
    session = SessionState()
    session.add_user_message("Go.")
    session.add_assistant_message(calling("first", "second"))
    assert [(u.id, u.name, u.input) for u in session.unresolved_tool_uses] == [
        ("call_1_0", "first", {"n": 1}), ("call_1_1", "second", {"n": 1}),
    ]  # fmt: skip
    assert session.messages == [UserMessage(content="Go.")]
    session.add_tool_result("call_1_1", "two", True)
    assert [use.id for use in session.unresolved_tool_uses] == ["call_1_0"]
    session.add_tool_result("call_1_0", "one")
    last = session.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert [(c.id, c.output, c.is_error) for c in last.calls] == [
        ("call_1_0", "one", False), ("call_1_1", "two", True),
    ]  # fmt: skip
    assert session.unresolved_tool_uses == []


def test_only_an_open_call_gets_a_result() -> None:
    session = SessionState()
    with pytest.raises(BadValue, match=r"no open call has the id 'toolu_1'; open: none"):
        session.add_tool_result("toolu_1", "x")
    session.add_assistant_message(calling("first", "second"))
    session.add_tool_result("1.0", "x")
    with pytest.raises(BadValue, match=r"'call_1_0'; open: call_1_1"):
        session.add_tool_result("call_1_0", "again")


def test_the_result_of_a_frame_pops_it() -> None:
    session = SessionState()
    session.add_user_message("Go.")
    session.add_assistant_message(calling("use_agent"))
    session.fold(
        e.AgentToolStart(step=1, name="use_agent"),
        e.AgentChild(
            child_run_id="c", child_agent="child", waits=True, takeover=True, reports=True, step=1,
        ),
    )  # fmt: skip
    session.children["c"] = frame("child")
    assert session.thread.frame is not None
    session.add_tool_result("call_1_0", "found")
    assert session.thread.open is None and session.children == {}
    assert session.thread.family.find("c") is None and session.thread.family.given_up == ()


def test_what_is_said_is_text() -> None:
    with pytest.raises(BadValue, match="expected a text"):
        SessionState().add_user_message(None)  # type: ignore[arg-type]


def test_a_message_list_is_a_copy() -> None:
    session = SessionState()
    session.add_user_message("Hello.")
    session.messages.clear()
    assert len(session.messages) == 1


def test_a_frame_begins_with_its_first_user_message() -> None:
    made = frame()
    assert first_message(made) == ""
    made.session.add_user_message("find APIs")
    made.session.add_user_message("quickly")
    assert first_message(made) == "find APIs"


def test_a_session_that_was_made_by_hand_becomes_a_frames_with_all_it_holds() -> None:
    session = SessionState()
    session.add_user_message("find APIs")
    opening = e.SessionOpen(open_agent="child", run_id="c", frame=2)
    session.begin(opening)
    thread = session.thread
    assert (thread.agent, thread.phase, thread.acts_as) == ("child", "live", "frame")
    assert session.messages == [UserMessage(content="find APIs")]
    session.begin(e.SessionOpen(open_agent="other"))
    assert session.thread is thread, "it has begun"
