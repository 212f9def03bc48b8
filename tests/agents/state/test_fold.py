"""``fold``: the state is what the journal says, and nothing else."""

import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.model import AnsweredCall, AssistantMessage, Thinking, UserMessage
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event, ToolCall, Usage
from hubbub.hub.values import encode_value


def opened(input: Any = None, **fields: Any) -> tuple[Event, ...]:
    item = e.SessionOpen(open_agent="a", input_json=encode_value("", input), lane="in", **fields)
    start = e.AgentStart(agent="a")
    return (start, e.SessionStart(session=1), e.SessionTaken(items=(item,)))


def heard(*texts: str) -> e.SessionTaken:
    return e.SessionTaken(items=tuple(e.SessionMessage(content=text) for text in texts))


def messages(*events: Event) -> tuple[Any, ...]:
    return fold_all(EMPTY, events).transcript


PART = e.ContentPart(kind="image", media_type="image/png", digest="0" * 64, size=1)

TWO_CALLS = e.AgentStep(
    step=1, calls=(ToolCall(name="x", arguments="{", id="same"), ToolCall(name="y", id="same"))
)


def done(index: int, output: str, step: int = 1) -> e.AgentToolComplete:
    return e.AgentToolComplete(step=step, index=index, output=output)


def test_what_a_run_is_opened_with_is_what_the_user_says_first() -> None:
    assert messages(*opened("hello")) == (UserMessage(content="hello"),)
    assert messages(*opened({"a": [1]})) == (UserMessage(content='{"a":[1]}'),)
    assert messages(*opened()) == ()


def test_messages_are_heard_in_the_order_in_which_they_are_taken() -> None:
    said = messages(*opened("a"), heard("b", "c"), heard("d"))
    assert [message.content for message in said] == ["a", "b", "c", "d"]


def test_a_step_without_calls_is_said_at_once() -> None:
    thread = fold_all(
        EMPTY,
        (
            *opened("hi"),
            e.AgentThinking(step=1, text="hm", signature="s"),
            e.AgentText(step=1, text="yes", block=1),
            e.AgentStep(step=1, usage=Usage(input_tokens=3)),
        ),
    )
    assert thread.transcript[-1] == AssistantMessage(
        text="yes", thinking=(Thinking(text="hm", signature="s"),)
    )
    assert (thread.open, thread.step, thread.last_text) == (None, 1, "yes")
    assert thread.usage == thread.total_usage == Usage(input_tokens=3)


@pytest.mark.spec("S-07", "S-08")
def test_a_step_with_calls_is_said_when_all_are_answered_results_in_call_order() -> None:
    before = (*opened("hi"), e.AgentText(step=1, text="look"), TWO_CALLS)
    assert len(messages(*before)) == 1
    assert len(messages(*before, done(1, "second"))) == 1
    (_, said) = messages(*before, done(1, "second"), done(0, "first"))
    assert said == AssistantMessage(
        text="look",
        calls=(
            AnsweredCall(id="call_1_0", name="x", arguments="{", output="first"),
            AnsweredCall(id="call_1_1", name="y", arguments="{}", output="second"),
        ),
    )


@pytest.mark.spec("S-07")
def test_a_second_result_for_a_call_and_one_for_no_call_change_nothing() -> None:
    thread = fold_all(EMPTY, (*opened("hi"), TWO_CALLS, done(0, "first")))
    for event in (done(0, "again"), done(7, "nobody's"), e.AgentToolStart(step=1, index=0)):
        assert fold(thread, event) == thread
    assert fold(fold_all(EMPTY, opened()), done(0, "no step")) == fold_all(EMPTY, opened())


@pytest.mark.spec("M-03")
def test_a_retry_and_a_restore_void_what_was_drafted() -> None:
    for event in (e.AgentRetry(step=1, attempt=1, delay=2.0), e.AgentRestore()):
        thread = fold_all(EMPTY, (*opened("hi"), e.AgentText(step=1, text="half"), event))
        assert (thread.draft_text, thread.draft_thinking) == ("", ())
        after = fold_all(thread, (e.AgentText(step=1, text="whole"), e.AgentStep(step=1)))
        assert after.transcript[-1] == AssistantMessage(text="whole")
        assert (after.attempt, after.delay) == (1, 0.0)


def test_what_a_tool_says_on_the_way_is_not_what_the_model_said() -> None:
    before = fold_all(EMPTY, (*opened("hi"), TWO_CALLS))
    assert fold(before, e.AgentText(step=0, text="working")) == before


def test_usage_counts_by_session_and_in_all() -> None:
    def spent(step: int) -> e.AgentStep:
        return e.AgentStep(step=step, usage=Usage(output_tokens=step))

    thread = fold_all(
        EMPTY,
        (
            *opened("a"), spent(1), spent(2), e.SessionEnd(session=1),
            e.SessionStart(session=2), heard("b"), spent(3),
        ),
    )  # fmt: skip
    assert (thread.usage.output_tokens, thread.total_usage.output_tokens) == (3, 6)
    assert (thread.session, thread.turn, thread.turn_steps) == (2, 2, 1)


def test_parking_and_waking() -> None:
    parked = fold_all(EMPTY, (*opened(), e.SessionEnd(), e.AgentPark()))
    assert parked.parked
    assert not fold(parked, heard("hello")).parked


def test_the_end_of_a_run_ends_everything() -> None:
    thread = fold_all(
        EMPTY, (*opened("a"), TWO_CALLS, e.AgentComplete(success=False, outcome="terminated"))
    )
    assert (thread.phase, thread.in_session, thread.open) == ("ended", False, None)
    assert thread.outcome is not None and thread.outcome.outcome == "terminated"


def test_events_that_are_unknown_or_only_for_display_change_nothing() -> None:
    thread = fold_all(EMPTY, (*opened("a"), TWO_CALLS, done(0, "x")))
    changing = {
        "agent:start", "agent:complete", "agent:park", "agent:restore", "session:start",
        "session:end", "session:taken", "agent:text", "agent:thinking", "agent:retry",
        "agent:step", "agent:tool:start", "agent:tool:complete", "agent:status", "agent:child",
        "agent:handoff", "agent:immediate", "agent:file", "agent:key", "session:turn",
        "session:variables", "session:prompt", "session:prompt:end", "agent:read",
        "session:compaction", "agent:base",
    }  # fmt: skip
    for kind in e.CATALOGUE:
        if kind.type not in changing:
            assert fold(thread, kind()) == thread, kind.type
    assert fold(thread, e.CustomEvent.of("agent:invented", text="x")) == thread


def test_a_thread_is_plain_data_that_can_be_written_down_and_read_back() -> None:
    thread = fold_all(EMPTY, (*opened("a"), TWO_CALLS, done(1, "x")))
    assert msgspec.json.decode(msgspec.json.encode(thread), type=Thread) == thread
    with pytest.raises(AttributeError):
        thread.step = 7  # type: ignore[misc]


@given(
    results=st.lists(
        st.builds(
            done,
            index=st.integers(120, 140),
            output=st.text(max_size=2),
            step=st.just(1),
        )
        | st.builds(
            lambda index: msgspec.structs.replace(done(index, "p"), parts=(PART,)),
            st.integers(120, 140),
        ),
        max_size=60,
    ),
    rest=st.booleans(),
    two_sided=st.booleans(),
)
def test_results_of_very_many_calls_are_folded_as_one_after_the_other(
    results: list[Event], rest: bool, two_sided: bool
) -> None:
    calls = tuple(ToolCall(name="x", id=str(index)) for index in range(135))
    opening = list(opened("hello"))
    opening[0] = e.AgentStart(agent="a", two_sided=two_sided)
    events = [*opening, e.AgentStep(step=1, calls=calls)]
    if rest:  # All but some of these are done.
        events += [done(index, "") for index in range(120)]
    one_by_one = EMPTY
    for event in (*events, *results):
        one_by_one = fold(one_by_one, event)
    assert fold_all(EMPTY, (*events, *results)) == one_by_one


def test_an_answer_with_very_many_calls_costs_what_its_calls_cost() -> None:
    """One copy of the calls for each of them would take seconds, and stop everything else."""
    calls = tuple(ToolCall(name="x", id=str(index)) for index in range(100_000))
    events = (*opened("hello"), e.AgentStep(step=1, calls=calls))
    started = time.process_time()
    thread = fold_all(EMPTY, events)
    to_open = time.process_time() - started
    results = [done(index, "refused") for index in range(128, len(calls))]
    started = time.process_time()
    thread = fold_all(thread, results)
    took = time.process_time() - started
    assert thread.open is not None
    assert [call.status for call in thread.open.calls[126:130]] == ["todo", "todo", "done", "done"]
    assert took < 50 * max(to_open, 0.05)
