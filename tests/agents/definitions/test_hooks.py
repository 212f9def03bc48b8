"""Hooks as data: what one is, and what it may put in place of what it was given (D-06)."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hubbub.agents.definitions.hooks import NOTIFICATION_POINTS, Hook, HookPoint, by_point, mismatch
from hubbub.agents.definitions.tools import ToolResult
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    Thinking,
    ToolCall,
    UserMessage,
)
from hubbub.hub.errors import DefinitionError

POINTS = get_args(HookPoint)


def keep(state: Any, value: Any) -> None: ...


def answered(id: str, name: str = "look", output: str = "seen") -> AnsweredCall:
    return AnsweredCall(id=id, name=name, arguments="{}", output=output)


MESSAGES = (
    UserMessage(content="hello"),
    AssistantMessage(text="let me look", calls=(answered("call_1_0"), answered("call_1_1"))),
    AssistantMessage(text="done"),
)

# ── what a hook is ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06")
def test_there_are_nine_points() -> None:
    assert set(POINTS) == {
        "filter_messages", "before_create_message", "after_create_message",
        "before_store_tool_result", "after_tool_call_success", "after_tool_call_failure",
        "after_thread_created", "after_subagent_created", "after_session",
    }  # fmt: skip
    for point in POINTS:
        assert Hook("id", point, keep).name == "id"


@pytest.mark.spec("D-06")
def test_a_hook_that_is_none_says_all_that_is_wrong() -> None:
    with pytest.raises(DefinitionError) as caught:
        Hook("", "sometimes", "not a function")  # type: ignore[arg-type]
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["id", "point", "fn"]


@pytest.mark.spec("D-06")
@given(st.lists(st.sampled_from(POINTS), max_size=12))
def test_hooks_of_a_point_stay_in_list_order(points: list[Any]) -> None:
    hooks = [Hook(str(number), point, keep) for number, point in enumerate(points)]
    found = by_point(hooks)
    assert set(found) == set(points)
    for point in found:
        assert list(found[point]) == [hook for hook in hooks if hook.point == point]


# ── what it may return ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06")
@given(st.lists(st.sampled_from(range(len(MESSAGES))), unique=True))
def test_a_filter_may_drop_and_reorder_messages(kept: list[int]) -> None:
    assert mismatch("filter_messages", MESSAGES, [MESSAGES[at] for at in kept]) == ""


@pytest.mark.spec("D-06")
def test_a_filter_may_add_words_and_change_them() -> None:
    changed = (
        UserMessage(content="a note", role="system"),
        structs.replace(MESSAGES[0], content="HELLO"),
        AssistantMessage(text="", calls=(answered("call_1_1", output="[hidden]"),)),
    )
    assert mismatch("filter_messages", MESSAGES, changed) == ""


invented = {
    "another id": [AssistantMessage(calls=(answered("call_9_0"),))],
    "another name": [AssistantMessage(calls=(answered("call_1_0", name="dig"),))],
    "other arguments": [
        AssistantMessage(calls=(structs.replace(answered("call_1_0"), arguments='{"a":1}'),))
    ],
    "without its result": [
        AssistantMessage(calls=(ToolCall(id="call_1_0", name="look", arguments="{}"),))  # type: ignore[arg-type]
    ],
    "twice in a message": [AssistantMessage(calls=(answered("call_1_0"),) * 2)],
    "twice in a request": [MESSAGES[1], MESSAGES[1]],
    "calls that are none": [AssistantMessage(calls=("call_1_0",))],  # type: ignore[arg-type]
    "a result that is no text": [AssistantMessage(calls=(answered("call_1_0", output=3),))],  # type: ignore[arg-type]
    "words that are none": [UserMessage(content=3)],  # type: ignore[arg-type]
    "a role that is none": [UserMessage(content="x", role=None)],  # type: ignore[arg-type]
    "no message": ["hello"],
    "a text": "hello",
    "a number": 3,
    "a dict": {"role": "user"},
}


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("returned", invented.values(), ids=invented)
def test_a_filter_that_invents_a_call_or_splits_one_from_its_result_is_refused(
    returned: Any,
) -> None:
    assert mismatch("filter_messages", MESSAGES, returned)


@pytest.mark.spec("D-06")
@pytest.mark.parametrize(
    "point",
    [
        "before_create_message", "before_store_tool_result", "after_tool_call_success",
        "after_tool_call_failure",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("given", "returned", "fits"),
    [
        (UserMessage(content="a"), UserMessage(content="b"), True),
        (UserMessage(content="a"), "b", False),
        (UserMessage(content="a"), AssistantMessage(text="b"), False),
        (UserMessage(content="a"), UserMessage(content=3), False),  # type: ignore[arg-type]
        (UserMessage(content="a"), UserMessage(content="a", role=3), False),  # type: ignore[arg-type]
        (UserMessage(content="a"), UserMessage(content="a", notes="n"), False),  # type: ignore[arg-type]
        (AssistantMessage(text="a"), AssistantMessage(text="b"), True),
        (AssistantMessage(text="a"), AssistantMessage(thinking=(Thinking(text="t"),)), True),
        (AssistantMessage(text="a"), UserMessage(content="b"), False),
        (AssistantMessage(text="a"), AssistantMessage(text=None), False),  # type: ignore[arg-type]
        (AssistantMessage(text="a"), AssistantMessage(thinking="deep"), False),  # type: ignore[arg-type]
        (AssistantMessage(text="a"), AssistantMessage(thinking=("deep",)), False),  # type: ignore[arg-type]
        (AssistantMessage(text="a"), AssistantMessage(calls=(answered("1"),)), False),
        (ToolResult("a"), ToolResult("b", is_error=True), True),
        (ToolResult("a"), ToolResult("b", attachments=("f.txt",)), True),
        (ToolResult("a"), "b", False),
        (ToolResult("a"), ToolResult({"b": 1}), False),
        (ToolResult("a"), ToolResult("b", is_error="no"), False),  # type: ignore[arg-type]
        (ToolResult("a"), ToolResult("b", attachments="f.txt"), False),  # type: ignore[arg-type]
        (ToolResult("a"), ToolResult("b", attachments=(3,)), False),  # type: ignore[arg-type]
        (ToolResult("a"), ToolResult("b", attachments=None), False),  # type: ignore[arg-type]
    ],
)
def test_what_is_returned_must_be_of_the_kind_that_was_given(
    point: str, given: Any, returned: Any, fits: bool
) -> None:
    assert (mismatch(point, given, returned) == "") is fits


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("point", sorted(NOTIFICATION_POINTS))
def test_what_those_return_that_are_only_told_is_free(point: str) -> None:
    assert mismatch(point, MESSAGES[0], object()) == ""
