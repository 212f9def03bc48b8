"""``decide``: one question, one answer, from the state alone."""

from itertools import combinations

import pytest

from hubbub.agents.state.prompts import OpenPrompt, for_code
from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.agents.turn.decide import (
    SUMMARIZING,
    CallModel,
    Conclude,
    Do,
    Kind,
    Leave,
    Park,
    Receive,
    RunTool,
    Take,
    decide,
    is_wanted,
    kind_of,
)
from hubbub.hub import events as e

KINDS: tuple[Kind, ...] = ("control", "result", "message")
SETS = [frozenset(some) for count in range(4) for some in combinations(KINDS, count)]
NOTHING: frozenset[Kind] = frozenset()


def step(*statuses: str, parallel: bool = False) -> OpenStep:
    calls = tuple(
        OpenCall(index, f"tool{index}", "{}", status)  # type: ignore[arg-type]
        for index, status in enumerate(statuses)
    )
    return OpenStep(number=3, text="", thinking=(), calls=calls, parallel=parallel)


IDLE = Thread(phase="live", agent="a")
AT_WORK = Thread(phase="live", agent="a", in_session=True, session=1, turn=1)
CALLING = Thread(
    phase="live", agent="a", in_session=True, session=1, turn=1, step=3, open=step("started")
)


@pytest.mark.parametrize("waiting", SETS, ids=sorted)
@pytest.mark.spec("R-04")
def test_a_run_that_has_ended_only_leaves(waiting: frozenset[Kind]) -> None:
    assert decide(Thread(phase="ended", in_session=True), waiting) == Leave()


@pytest.mark.parametrize("thread", [Thread(), IDLE, AT_WORK, CALLING])
@pytest.mark.parametrize("waiting", [some for some in SETS if "control" in some], ids=sorted)
def test_control_comes_first(thread: Thread, waiting: frozenset[Kind]) -> None:
    assert decide(thread, waiting) == Take("control")
    assert decide(thread, waiting, asking=thread.turn) == Take("control")


@pytest.mark.parametrize("thread", [Thread(), IDLE, AT_WORK, CALLING])
@pytest.mark.parametrize("others", [some for some in SETS if "control" not in some], ids=sorted)
@pytest.mark.parametrize("hook_events", [False, True])
@pytest.mark.parametrize("asking", [0, 1, SUMMARIZING])
@pytest.mark.spec("U-05")
def test_what_ends_the_question_of_a_tool_or_a_hook_is_taken_whatever_is_under_way(
    thread: Thread, others: frozenset[Kind], hook_events: bool, asking: int
) -> None:
    for hooked in (NOTHING, frozenset(("message",)), frozenset(("message", "result"))):
        command = decide(thread, others | {"reply"}, asking, hook_events=hook_events, hooked=hooked)
        assert command == Take("reply")


@pytest.mark.spec("U-05")
def test_it_comes_after_control_except_for_an_opening_that_a_hook_is_shown() -> None:
    both, hooked = frozenset(("control", "reply")), frozenset(("message",))
    for thread in (IDLE, AT_WORK, CALLING):
        assert decide(thread, both, hook_events=True, hooked=hooked) == Take("control")
    assert decide(Thread(), both) == Take("control")
    assert decide(Thread(), both, hooked=hooked) == Take("reply")
    assert decide(Thread(), frozenset(("control",)), hooked=hooked) == Do((Receive("control"),))


@pytest.mark.spec("U-05")
def test_a_reply_is_for_code_where_no_call_waits_for_it_in_its_status() -> None:
    prompts = (OpenPrompt("code"), OpenPrompt("tool", ordinal=1), OpenPrompt("call", is_held=True))
    items = (
        e.SessionReply(prompt_id="call"), e.SessionResult(), e.SessionReply(prompt_id="code"),
        e.SessionReply(prompt_id="over"), e.SessionTimer(timer="tool"), e.SessionMessage(),
    )  # fmt: skip
    assert for_code(prompts, items) == (items[2], items[4])
    assert for_code((), items) == ()


@pytest.mark.parametrize("thread", [IDLE, AT_WORK, CALLING])
def test_results_come_before_messages(thread: Thread) -> None:
    assert decide(thread, frozenset(("result", "message"))) == Take("result")


def test_a_run_that_was_not_opened_yet_waits_for_its_opening() -> None:
    assert decide(Thread(), frozenset(("message",))) == Leave()


@pytest.mark.spec("S-07")
def test_nothing_is_taken_or_asked_while_calls_are_open() -> None:
    expected = Do((RunTool(3, 0, "tool0", "{}"),))
    assert decide(CALLING, frozenset(("message",))) == expected
    assert decide(CALLING, NOTHING) == expected


@pytest.mark.spec("S-08")
def test_calls_are_under_way_one_by_one_or_all_at_once() -> None:
    def under_way(*statuses: str, parallel: bool) -> list[int]:
        thread = Thread(phase="live", in_session=True, open=step(*statuses, parallel=parallel))
        command = decide(thread, NOTHING)
        assert isinstance(command, Do)
        return [a.index for a in command.activities if isinstance(a, RunTool)]

    assert under_way("done", "started", "todo", parallel=False) == [1]
    assert under_way("started", "done", "started", parallel=True) == [0, 2]


@pytest.mark.spec("T-03")
def test_messages_are_taken_before_the_model_is_asked_and_wait_while_it_is() -> None:
    mail = frozenset(("message",))
    asked = Do((CallModel(turn=1, step=1, attempt=1, delay=0.0),))
    assert decide(AT_WORK, mail) == Take("message")
    assert decide(AT_WORK, NOTHING) == asked
    assert decide(AT_WORK, mail, asking=1) == asked
    # Asked on behalf of a turn that was interrupted: nothing to wait for.
    assert decide(AT_WORK, mail, asking=7) == Take("message")
    assert decide(IDLE, mail, asking=1) == Take("message")


@pytest.mark.spec("S-10")
def test_what_an_activity_says_counts_while_its_turn_or_call_goes_on() -> None:
    ask, other = (CallModel(turn=turn, step=1, attempt=1, delay=0.0) for turn in (1, 2))
    assert is_wanted(AT_WORK, ask)
    assert not is_wanted(AT_WORK, other)
    assert not is_wanted(IDLE, ask)
    assert is_wanted(CALLING, RunTool(3, 0, "tool0", "{}"))
    assert not is_wanted(CALLING, RunTool(2, 0, "tool0", "{}"))
    assert not is_wanted(AT_WORK, RunTool(3, 0, "tool0", "{}"))
    done = Thread(phase="live", in_session=True, open=step("done", "started"))
    assert not is_wanted(done, RunTool(3, 0, "tool0", "{}"))


def test_an_idle_run_parks_once_and_leaves() -> None:
    assert decide(IDLE, NOTHING) == Park()
    assert decide(Thread(phase="live", parked=True), NOTHING) == Leave()
    assert decide(Thread(phase="live", parked=True), frozenset(("message",))) == Take("message")


@pytest.mark.spec("R-06", "R-17")
def test_a_closing_run_and_one_of_one_session_end_when_nothing_waits() -> None:
    closing = Thread(phase="live", closing=True)
    once = Thread(phase="live", once=True, session=1)
    for thread in (closing, once):
        assert decide(thread, NOTHING) == Conclude()
        assert decide(thread, frozenset(("message",))) == Take("message")
    assert decide(Thread(phase="live", once=True), NOTHING) == Park(), "its session is to come"


def test_every_item_of_an_inbox_has_a_kind() -> None:
    for event in e.CATALOGUE:
        if event.home == "in":
            assert kind_of(event()) in KINDS  # type: ignore[arg-type]
