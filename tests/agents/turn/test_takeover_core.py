"""Takeover as the core decides it: words, lending, pauses, results, limits.  Pure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hubbub import AgentDefinition, PromptDefinition, SideConfig
from hubbub.agents.model import AssistantMessage, ModelReply, UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME
from hubbub.agents.retry import Failure
from hubbub.agents.state.commands import command_of, is_not_for_model
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.decide import (
    AwaitChildren,
    Conclude,
    Do,
    Kind,
    Leave,
    Lend,
    Park,
    RunTool,
    Take,
    decide,
)
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.request import build_request
from hubbub.agents.turn.signals import (
    Decision,
    Delegated,
    ModelFailed,
    ModelReplied,
    Restored,
    Taken,
)
from hubbub.agents.turn.takeover import request_of
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane, ToolCall
from hubbub.hub.values import NULL, encode_value
from hubbub.runtime.models.scripted import FunctionModel, call, reply

NOTHING: frozenset[Kind] = frozenset()
STOPS = ("cancel", "stop", "/stop")
RUNS = ("main-1", "ann-1", "bob-1", "eve-1")


def definitions(max_steps: int | None = None) -> Definitions:
    def agent(name: str, *agents: str, checks: bool = False) -> AgentDefinition:
        prompt = PromptDefinition(
            name=f"p-{name}", prompt="", model=FunctionModel(lambda _: "x"), agents=agents
        )
        return AgentDefinition(
            name=name, expose_as_tool=True, supports_checkpointing=checks,
            side_a=SideConfig(prompt=prompt, max_steps=max_steps),
        )  # fmt: skip

    return Definitions(
        [agent("main", "ann", checks=True), agent("ann", "bob", checks=True), agent("bob", "ann")]
    )


class Lane:
    """A run in pure form: signals in, its thread and everything it has decided out."""

    def __init__(self, opening: e.SessionOpen, known: Definitions) -> None:
        self.known = known
        self.thread: Thread = EMPTY
        self.events: list[Event] = []
        self.number = 0
        self.take(opening)

    def signal(self, signal: Any, *waiting: Kind) -> Decision:
        decision = interpret(self.thread, signal, self.known, frozenset(waiting))
        if decision.after is not None:  # What is known ahead is what folding comes to (P-11).
            assert fold_all(self.thread, decision.events) == decision.after
        for event in decision.events:
            self.thread = fold(self.thread, structs.replace(event, seq=len(self.events) + 1))
            self.events.append(event)
        return decision

    def take(self, *items: InLane) -> Decision:
        run_id = self.thread.origin.run_id
        placed = []
        for item in items:
            self.number += 1
            here = item.run_id or run_id
            placed.append(structs.replace(item, run_id=here, lane="in", seq=self.number))
        return self.signal(Taken(tuple(placed)))

    def reply(self, *calls: ToolCall, text: str = "") -> Decision:
        return self.answer(reply(text, *calls))

    def answer(self, said: ModelReply) -> Decision:
        return self.signal(ModelReplied(said, self.thread.turn))

    def push(self, child: str, agent: str, index: int = 0) -> Decision:
        request = request_of(agent, "Go.")
        step = self.thread.step
        return self.signal(Delegated(step=step, index=index, request=request, child_run_id=child))

    @property
    def is_over(self) -> bool:
        return self.thread.phase == "ended"

    def of(self, kind: type) -> list[Any]:
        return [x for x in self.events if isinstance(x, kind)]


def root(known: Definitions | None = None) -> Lane:
    opening = e.SessionOpen(
        open_agent="main", agent="main", run_id="main-1", root_run_id="main-1",
        input_json=encode_value("input", "hello"),
    )  # fmt: skip
    return Lane(opening, known or definitions())


def frame(known: Definitions | None = None, level: int = 2) -> Lane:
    agents = {2: "ann", 3: "bob"}
    opening = e.SessionOpen(
        open_agent=agents[level], agent=agents[level], run_id=RUNS[level - 1],
        root_run_id="main-1", parent_run_id=RUNS[level - 2], reports=True, frame=level,
        depth=level - 1, input_json=encode_value("input", "Go."),
    )  # fmt: skip
    return Lane(opening, known or definitions())


def use(name: str) -> ToolCall:
    return call("use_agent", name=name, message="Go.")


def with_frame() -> Lane:
    """A main agent that waits for a frame."""
    lane = root()
    lane.reply(use("ann"))
    lane.push("ann-1", "ann")
    assert lane.thread.frame is not None
    return lane


def paused(lane: Lane) -> Lane:
    lane.reply(call("interrupt", prompt="Really?"))
    assert lane.thread.pause is not None
    return lane


def said(text: str, run_id: str = "") -> e.SessionMessage:
    return e.SessionMessage(content=text, source="web", run_id=run_id)


def result(child: str, **fields: Any) -> e.SessionResult:
    return e.SessionResult(
        child_run_id=child, child_agent="ann", session=1, final=True,
        **{"success": True, "outcome": "completed", "content": "found", **fields},
    )  # fmt: skip


# ── words ────────────────────────────────────────────────────────────────────────────────────

blanks = st.text(" \t\n", max_size=3)
spelled = st.sampled_from([*STOPS, "/back"]).flatmap(
    lambda word: st.tuples(blanks, st.sampled_from([word, word.upper(), word.title()]), blanks).map(
        "".join
    )
)


@pytest.mark.spec("I-08")
@given(text=spelled)
def test_a_word_is_the_whole_message_whatever_its_case_and_blanks(text: str) -> None:
    expected = "back" if "back" in text.casefold() else "stop"
    assert command_of(said(text)) == expected
    assert command_of(said(f"{text} it")) == ""
    assert command_of(structs.replace(said(text), silent=True)) == ""
    assert command_of(structs.replace(said(text), from_run=True)) == ""


@pytest.mark.spec("I-08")
@given(text=spelled)
def test_words_are_heard_by_a_main_agent_alone_and_by_nobody_else(text: str) -> None:
    alone = root()
    alone.reply(text="Yes?")
    assert not is_not_for_model(alone.thread, said(text))
    assert is_not_for_model(with_frame().thread, said(text))
    assert is_not_for_model(frame().thread, said(text))
    assert is_not_for_model(paused(root()).thread, said(text))
    alone.take(said(text))
    assert [m.content for m in alone.thread.transcript if isinstance(m, UserMessage)] == [
        "hello",
        text,
    ]


@pytest.mark.spec("I-08", "I-16")
@given(text=spelled.filter(lambda text: "back" not in text.casefold()))
def test_a_main_agent_that_is_stopped_answers_every_call_and_unwinds_its_frame(text: str) -> None:
    lane = root()
    lane.reply(use("ann"), use("ann"), call("nothing"))
    lane.push("ann-1", "ann")
    decision = lane.take(said(text))
    assert [to for to, item in decision.mail if isinstance(item, e.SessionCancel)] == ["ann-1"]
    assert [(x.index, x.is_error) for x in lane.of(e.AgentToolComplete)] == [
        (0, True), (1, True), (2, True),
    ]  # fmt: skip
    assert len(lane.of(e.SessionPop)) == len(lane.of(e.SessionPush)) == 1
    assert lane.of(e.SessionEnd)[-1].outcome == "interrupted"
    assert decide(lane.thread, NOTHING) == Park()
    # The frame's late result changes nothing, and the main agent is usable.
    lane.take(result("ann-1", outcome="interrupted", success=False, content=""))
    lane.take(said("again"))
    lane.reply(text="Here I am.")
    assert lane.thread.last_text == "Here I am." and lane.thread.open is None


@pytest.mark.spec("I-08")
def test_a_frame_passes_stop_on_and_back_pops_the_one_on_top() -> None:
    lane = frame()
    decision = lane.take(said("cancel"))
    assert [(to, type(item)) for to, item in decision.mail] == [("main-1", e.SessionCancel)]
    assert decision.status != "ended"
    decision = lane.take(said("/back", "main-1"))
    assert (decision.status, decision.taken, decision.leave_to) == ("ended", (), "main-1")
    assert decision.lent == (("main-1", 3),)
    ((to, told),) = decision.mail
    assert (to, told.final, told.outcome) == ("main-1", True, "interrupted")  # type: ignore[union-attr]


# ── who takes what a person says ─────────────────────────────────────────────────────────────


@pytest.mark.spec("I-01", "I-13")
def test_what_is_said_is_lent_to_the_frame_and_taken_by_whoever_has_no_open_call() -> None:
    lane, words = with_frame(), frozenset[Kind](("message", "said"))
    assert decide(lane.thread, words) == Lend("ann-1")
    assert decide(lane.thread, frozenset(("message",))) == AwaitChildren()
    assert decide(lane.thread, words | {"stop"}) == Take("stop")
    assert decide(lane.thread, words | {"back"}) == Lend("ann-1")
    assert decide(lane.thread, words | {"result"}) == Take("result")
    top = frame()
    top.reply(text="Which?")
    assert decide(top.thread, words) == Take("message")
    assert decide(top.thread, words | {"back"}) == Take("back")
    assert decide(top.thread, words | {"stop"}) == Take("stop")


@pytest.mark.spec("I-01", "I-13")
def test_nothing_is_taken_while_a_call_is_at_work() -> None:
    lane = root()
    lane.reply(use("ann"))
    words = frozenset[Kind](("message", "said"))
    assert decide(lane.thread, words) == Do((RunTool(1, 0, "use_agent", lane_arguments(lane)),))


def lane_arguments(lane: Lane) -> str:
    assert lane.thread.open is not None
    return lane.thread.open.calls[0].arguments


@pytest.mark.spec("I-13")
def test_what_a_frame_takes_of_the_conversation_is_set_apart() -> None:
    lane = frame()
    lane.reply(text="Which?")
    decision = lane.take(said("mine"), said("lent", "main-1"))
    assert (decision.taken, decision.lent) == ((2,), (("main-1", 3),))
    texts = [getattr(m, "content", "") for m in lane.thread.transcript]
    assert texts[-2:] == ["mine", "lent"]


# ── pauses ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("make", [root, frame])
@pytest.mark.parametrize("text", ["yes", "cancel", "/back"])
def test_what_is_said_first_to_a_paused_run_is_the_answer(make: Any, text: str) -> None:
    lane = paused(make())
    assert decide(lane.thread, frozenset(("message", "said"))) == AwaitChildren()
    assert decide(lane.thread, frozenset(("message", "said", "answer"))) == Take("answer")
    decision = lane.take(said(text))
    answers = lane.of(e.AgentToolComplete)
    if make is frame and text == "cancel":  # Where there are frames to leave, they are left.
        assert [to for to, _ in decision.mail] == ["main-1"] and not answers
        return
    assert [(x.output if not x.is_error else "", x.is_error) for x in answers] == [
        ("yes", False) if text == "yes" else ("", True)
    ]
    assert len(lane.of(e.SessionPromptEnd)) == 1
    assert lane.thread.pause is None
    if not (make is frame and text == "/back"):
        assert lane.thread.in_session


# ── results, and what comes too late ─────────────────────────────────────────────────────────


@pytest.mark.spec("I-01", "I-16")
@given(
    outcome=st.sampled_from(["completed", "failed", "limit", "interrupted", "terminated"]),
    content=st.sampled_from(["", "found"]),
    times=st.integers(1, 3),
)
def test_a_result_answers_its_call_once_whatever_it_is(
    outcome: Any, content: str, times: int
) -> None:
    lane = with_frame()
    for _ in range(times):
        lane.take(result("ann-1", outcome=outcome, content=content))
    (answer,) = lane.of(e.AgentToolComplete)
    (pop,) = lane.of(e.SessionPop)
    well = outcome == "completed"
    assert (answer.is_error, pop.is_error) == (not well, not well)
    assert answer.output == content if well else answer.output.startswith("ann did not complete: ")
    assert (pop.frame_run_id, pop.depth, pop.call_id) == ("ann-1", 1, answer.call_id)
    assert isinstance(lane.thread.transcript[-1], AssistantMessage)
    side = lane.known.side("main", "side_a")
    assert build_request(lane.thread, side, ()).messages


@pytest.mark.spec("I-04")
@pytest.mark.parametrize("crashed", [False, True])
def test_of_three_calls_each_is_begun_when_the_one_before_is_answered(crashed: bool) -> None:
    lane = root()
    lane.reply(call("nothing"), use("ann"), use("ann"))
    for number, child in enumerate(("ann-1", "ann-2"), 1):
        if crashed:  # A call that only delegates is made again; what was answered stays.
            lane.signal(Restored("", ()))
        assert decide(lane.thread, NOTHING) == Do(
            (RunTool(1, number, "use_agent", lane_arguments_of(lane, number)),)
        )
        lane.push(child, "ann", number)
        assert decide(lane.thread, NOTHING) == AwaitChildren()
        lane.take(result(child, content=child))
    assert [(x.index, x.output) for x in lane.of(e.AgentToolComplete)][1:] == [
        (1, "ann-1"), (2, "ann-2"),
    ]  # fmt: skip
    assert lane.thread.open is None and lane.thread.turn_steps == 1


def lane_arguments_of(lane: Lane, index: int) -> str:
    assert lane.thread.open is not None
    return lane.thread.open.calls[index].arguments


# ── limits ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-05")
@given(max_steps=st.none() | st.integers(1, 40))
def test_a_frame_ends_at_its_limit_or_at_25(max_steps: int | None) -> None:
    known = definitions(max_steps)
    expected = min(25, max_steps or 25)
    assert known.side("ann", FRAME).max_steps == expected
    lane = frame(known)
    for number in range(1, expected + 1):
        assert lane.thread.phase == "live"
        decision = lane.reply(call("nothing"))
        assert (decision.status == "ended") == (number == expected)
    ((_, told),) = decision.mail
    assert told.outcome == "limit"  # type: ignore[union-attr]


@pytest.mark.spec("I-05")
@given(
    plan=st.lists(st.sampled_from(["call", "use", "say", "hear"]), max_size=40),
    max_steps=st.integers(1, 8),
)
def test_model_calls_count_from_a_users_message_to_the_next_text(
    plan: list[str], max_steps: int
) -> None:
    """A child's return starts no new count, and to resume pending calls costs none."""
    lane = frame(definitions(max_steps))
    counted, children = 0, 0
    for act in plan:
        if lane.is_over:
            break
        if act == "hear" or not lane.thread.in_session:
            counted = 0 if not lane.thread.in_session else counted
            lane.take(said("Go on."))
        elif act == "say":
            lane.reply(text="Well.")
            counted = 0
        elif act == "call":
            lane.reply(call("nothing"))
            counted += 1
        else:
            lane.reply(use("bob"), use("bob"))
            counted += 1
            for index in range(2):
                children += 1
                lane.push(f"bob-{children}", "bob", index)
                lane.take(result(f"bob-{children}"))
        assert lane.is_over == (counted >= max_steps)


@pytest.mark.spec("I-05", "I-16")
def test_a_model_that_fails_pops_its_frame_and_only_idles_a_main_agent() -> None:
    failure = Failure(kind="request", error="no", retryable=False)
    for lane, ends in ((frame(), True), (root(), False)):
        decision = lane.signal(ModelFailed(failure, lane.thread.turn))
        assert (decision.status == "ended") == ends
        assert decide(lane.thread, NOTHING) == (Leave() if ends else Park())


# ── closing, and frames for one session ──────────────────────────────────────────────────────


@pytest.mark.spec("I-01")
def test_a_conversation_that_closes_closes_its_frame_which_has_then_not_completed() -> None:
    lane = with_frame()
    decision = lane.take(e.SessionClose(reason="bye"))
    assert [(to, type(item)) for to, item in decision.mail] == [("ann-1", e.SessionClose)]
    top = frame()
    top.reply(text="Which?")
    top.take(e.SessionClose())
    assert decide(top.thread, NOTHING) == Conclude()
    lane.take(result("ann-1", outcome="interrupted", success=False, content=""))
    assert lane.of(e.AgentToolComplete)[-1].is_error
    lane.reply(use("ann"))
    opening = lane.push("ann-2", "ann").mail[-1][1]
    assert isinstance(opening, e.SessionOpen) and opening.once
    assert opening.input_json is not NULL
