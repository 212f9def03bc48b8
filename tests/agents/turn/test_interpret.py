"""``interpret``: what an outcome means, as one commit."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ToolCall, Usage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.retry import MAX_RETRIES, MAX_WAIT, Failure, retry_delay
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.calls import LOST, MAX_CALLS
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import (
    Concluded,
    DeadlinePassed,
    Decision,
    LoopFailed,
    ModelFailed,
    ModelReplied,
    Parked,
    Restored,
    Signal,
    Taken,
    ToolFinished,
)
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.values import encode_value
from hubbub.runtime.models.scripted import ScriptedModel


@tool(idempotent=True)
def safe() -> None: ...


@tool
def risky() -> None: ...


def definition(name: str, **options: Any) -> AgentDefinition:
    prompt = PromptDefinition(
        name=name, prompt="", model=ScriptedModel([]), tools=(safe, risky),
        parallel_tool_calls=options.pop("parallel", False),
    )  # fmt: skip
    return AgentDefinition(name=name, side_a=SideConfig(prompt=prompt, **options))


DEFINITIONS = Definitions(
    [
        definition("seq", label="Ada"),
        definition("par", parallel=True),
        definition("few", max_steps=2),
    ]
)


class Story:
    """A thread and how it came about."""

    def __init__(self, agent: str = "seq", input: Any = "hello", **options: Any) -> None:
        self.thread: Thread = EMPTY
        self.events: list[Event] = []
        item = e.SessionOpen(
            open_agent=agent, agent=agent, seq=1, input_json=encode_value("", input), **options
        )
        self.then(Taken((item,)))

    def then(self, signal: Signal, *waiting: Any) -> Decision:
        decision = interpret(self.thread, signal, DEFINITIONS, frozenset(waiting))
        self.events += decision.events
        self.thread = fold_all(self.thread, decision.events)
        return decision

    def says(
        self, text: str = "", *names: str, waiting: tuple[Any, ...] = (), **fields: Any
    ) -> Decision:
        calls = tuple(ToolCall(name=name) for name in names)
        reply = ModelReply(text=text, calls=calls, **fields)
        return self.then(ModelReplied(reply, self.thread.turn), *waiting)

    def fails(self, kind: str = "server", *, retryable: bool = True, **fields: Any) -> Decision:
        failure = Failure(kind=kind, error=f"{kind} error", retryable=retryable, **fields)
        return self.then(ModelFailed(failure, self.thread.turn))

    def finishes(self, index: int, output: str = "fine", is_error: bool = False) -> Decision:
        return self.then(ToolFinished(self.thread.step, index, output, is_error))


def types(decision: Decision) -> list[str]:
    return [event.type for event in decision.events]


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


def test_an_opening_with_input_starts_the_run_and_its_first_session() -> None:
    story = Story(correlation_id="c", session_key="k", name="n")
    start = story.events[0]
    assert [x.type for x in story.events] == ["agent:start", "session:start", "session:taken"]
    assert isinstance(start, e.AgentStart)
    assert (start.input, start.correlation_id, start.session_key, start.name) == (
        "hello", "c", "k", "n",
    )  # fmt: skip
    assert [x.type for x in Story(input=None).events] == ["agent:start", "session:taken"]


@pytest.mark.spec("S-01")
def test_the_models_finished_reply_ends_the_session_and_the_run_goes_on() -> None:
    story = Story()
    decision = story.says("hi", usage=Usage(output_tokens=3))
    assert types(decision) == ["agent:text", "agent:step", "session:end"]
    assert decision.status == "active"
    end = decision.events[-1]
    assert isinstance(end, e.SessionEnd)
    assert (end.success, end.outcome, end.output) == (True, "completed", "hi")
    assert end.usage == Usage(output_tokens=3)
    assert types(story.then(Parked())) == ["agent:park"]


@pytest.mark.spec("R-06")
def test_a_run_of_one_session_ends_in_the_commit_that_ends_it() -> None:
    decision = Story(once=True).says("hi")
    assert types(decision)[-2:] == ["session:end", "agent:complete"]
    assert decision.status == "ended"
    kept = Story(once=True).says("hi", waiting=("message",))
    assert (types(kept)[-1], kept.status) == ("session:end", "active")


@pytest.mark.spec("R-04")
def test_nothing_is_written_after_the_end() -> None:
    story = Story(once=True)
    story.says("hi")
    failure = Failure(kind="server", error="", retryable=True)
    for signal in (
        Taken((e.SessionMessage(seq=2, content="x"),)), ModelReplied(ModelReply(text="x"), 1),
        ModelFailed(failure, 1), ToolFinished(1, 0, "x"), Restored(), DeadlinePassed(),
        LoopFailed("x", "X"), Concluded(), Parked(),
    ):  # fmt: skip
        assert interpret(story.thread, signal, DEFINITIONS) == Decision()


@pytest.mark.spec("T-10")
def test_an_interruption_answers_every_open_call_and_ends_the_session() -> None:
    story = Story("par")
    story.says("look", "safe", "risky", "safe")
    story.finishes(1)
    decision = story.then(Taken((e.SessionAbort(seq=2, reason="enough"),)))
    assert types(decision) == [
        "agent:interrupted", "agent:tool:complete", "agent:tool:complete", "session:end",
        "session:taken",
    ]  # fmt: skip
    answers = [x for x in decision.events if isinstance(x, e.AgentToolComplete)]
    assert [(x.index, x.is_error, x.output) for x in answers] == [
        (0, True, "interrupted: enough"), (2, True, "interrupted: enough"),
    ]  # fmt: skip
    end = decision.events[3]
    assert isinstance(end, e.SessionEnd) and (end.outcome, end.reason) == ("interrupted", "enough")
    again = story.then(Taken((e.SessionAbort(seq=3),)))
    assert types(again) == ["session:taken"], "nothing is at work: nothing to interrupt"


def test_a_reset_with_a_message_begins_anew() -> None:
    story = Story()
    story.says("look", "risky")
    story.then(Taken((e.SessionReset(seq=2, message="fresh"),)))
    assert [m.content for m in story.thread.transcript] == ["fresh"]  # type: ignore[union-attr]
    assert story.thread.in_session and story.thread.session == 2


@pytest.mark.spec("R-04")
def test_what_is_taken_with_a_termination_is_ended_by_it() -> None:
    story = Story.__new__(Story)
    story.thread, story.events = EMPTY, []
    opening = e.SessionOpen(open_agent="seq", agent="seq", seq=1)
    kill = e.SessionTerminate(seq=2, reason="no")
    decision = story.then(Taken((opening, kill)))
    assert types(decision) == ["agent:start", "session:taken", "agent:complete"]
    assert (decision.taken, decision.status) == ((1, 2), "ended")


@pytest.mark.parametrize(
    ("signal", "outcome"),
    [
        (DeadlinePassed(), "timed_out"),
        (LoopFailed("broken", "OSError"), "failed"),
        (Taken((e.SessionTerminate(seq=2, reason="no"),)), "terminated"),
    ],
)
@pytest.mark.spec("R-04", "S-07")
def test_an_end_from_outside_answers_every_open_call_first(signal: Signal, outcome: str) -> None:
    story = Story()
    story.says("look", "risky", "safe")
    decision = story.then(signal)
    answers = [x for x in decision.events if isinstance(x, e.AgentToolComplete)]
    assert [x.index for x in answers] == [0, 1]
    assert all(x.is_error and x.output.startswith(outcome) for x in answers)
    end = decision.events[-1]
    assert isinstance(end, e.AgentComplete)
    assert (end.success, end.outcome, decision.status) == (False, outcome, "ended")
    assert types(decision).count("session:end") == 1


# ── calls ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-08")
def test_a_step_and_the_start_of_its_first_call_are_one_commit() -> None:
    decision = Story().says("look", "safe", "risky")
    assert types(decision) == ["agent:text", "agent:step", "agent:tool:start"]
    start = decision.events[-1]
    assert (start.call_id, start.turn) == ("1.0", 1)
    assert decision.events[0].label == "Ada"


@pytest.mark.spec("S-08")
def test_the_next_call_starts_with_the_result_of_the_one_before() -> None:
    story = Story()
    story.says("", "safe", "ghost", "risky")
    assert types(story.finishes(0)) == [
        "agent:tool:complete", "agent:tool:complete", "agent:tool:start"
    ]  # fmt: skip
    assert types(story.finishes(2)) == ["agent:tool:complete"]
    assert story.thread.open is None


@pytest.mark.spec("S-08")
def test_parallel_calls_start_together_and_are_shown_in_call_order() -> None:
    story = Story("par")
    assert types(story.says("", "safe", "ghost", "risky")) == [
        "agent:step", "agent:tool:start", "agent:tool:complete", "agent:tool:start"
    ]  # fmt: skip
    story.finishes(2, "third")
    story.finishes(0, "first")
    (_, said) = story.thread.transcript
    assert [c.output[:5] for c in said.calls] == ["first", "there", "third"]  # type: ignore[union-attr]


@pytest.mark.spec("S-07")
def test_an_unknown_tool_is_answered_with_the_names_of_the_known_ones() -> None:
    decision = Story().says("", "ghost")
    (answer,) = [x for x in decision.events if isinstance(x, e.AgentToolComplete)]
    assert answer.is_error
    assert answer.output == "there is no tool named 'ghost'; available tools: risky, safe"


@pytest.mark.spec("S-07")
def test_calls_beyond_the_limit_are_answered_and_not_run() -> None:
    story = Story("par")
    decision = story.says("", *["safe"] * (MAX_CALLS + 2))
    assert types(decision).count("agent:tool:start") == MAX_CALLS
    answers = [x for x in decision.events if isinstance(x, e.AgentToolComplete)]
    assert [x.index for x in answers] == [MAX_CALLS, MAX_CALLS + 1]
    assert all("at most 128 calls" in x.output for x in answers)


def test_max_steps_ends_the_session_with_its_own_outcome() -> None:
    story = Story("few")
    for _ in range(2):
        story.says("on it", "safe")
        decision = story.finishes(0)
    end = decision.events[-1]
    assert isinstance(end, e.SessionEnd)
    assert (end.success, end.outcome, end.output) == (False, "limit", "on it")
    story.then(Taken((e.SessionMessage(seq=2, content="and?"),)))
    assert story.thread.turn_steps == 0
    full = Story("few")
    full.says("on it", "safe")
    full.finishes(0)
    assert full.says("done").events[-1].type == "session:end"
    assert full.thread.outcome is not None and full.thread.outcome.outcome == "completed"


@pytest.mark.spec("S-07")
def test_a_lost_call_is_run_again_if_idempotent_and_else_answered_honestly() -> None:
    story = Story("par")
    story.says("", "safe", "risky")
    decision = story.then(Restored())
    assert types(decision) == ["agent:restore", "agent:tool:complete"]
    answer = decision.events[1]
    assert isinstance(answer, e.AgentToolComplete)
    assert (answer.index, answer.is_error, answer.output) == (1, True, LOST)
    assert "may or may not" in LOST
    assert story.thread.open is not None and story.thread.open.calls[0].status == "started"


@pytest.mark.spec("S-07", "T-05")
@pytest.mark.parametrize(
    ("item", "begins"),
    [
        (e.SessionTerminate(seq=2), False), (e.SessionAbort(seq=2), False),
        (e.SessionReset(seq=2), False), (e.SessionClose(seq=2), True),
        (e.SessionCompact(seq=2), True),
    ],
    ids=lambda value: getattr(value, "type", ""),
)  # fmt: skip
def test_a_run_whose_end_waits_for_it_begins_no_call_when_it_is_restored(
    item: InLane, begins: bool
) -> None:
    story = Story()
    story.says("", "risky", "safe")
    decision = story.then(Restored(control=(item,)), "control")
    assert types(decision) == [
        "agent:restore", "agent:tool:complete", *(["agent:tool:start"] * begins)
    ]  # fmt: skip
    story.then(Taken((item,)))
    step = story.thread.open
    assert (step is None) == (not begins) or story.thread.phase == "ended"


# ── models that fail (M-03) ──────────────────────────────────────────────────────────────────


@pytest.mark.spec("M-03")
def test_a_failed_call_is_tried_again_visibly_and_a_bounded_number_of_times() -> None:
    story = Story()
    delays = []
    for attempt in range(1, MAX_RETRIES + 1):
        (retry,) = story.fails(jitter=0.5).events
        assert isinstance(retry, e.AgentRetry)
        assert (retry.attempt, retry.kind, retry.error) == (attempt, "server", "server error")
        assert (story.thread.attempt, story.thread.delay) == (attempt + 1, retry.delay)
        delays.append(retry.delay)
    assert MAX_RETRIES == 4
    assert delays == [0.375, 0.75, 1.5, 3.0]
    decision = story.fails()
    assert types(decision) == ["session:end"]
    assert story.thread.outcome is not None
    assert (story.thread.outcome.outcome, story.thread.outcome.reason) == ("failed", "server error")


@pytest.mark.spec("M-03")
def test_the_attempts_of_each_step_are_counted_apart() -> None:
    story = Story()
    story.fails()
    story.fails()
    decision = story.says("", "safe")
    step = decision.events[0]
    assert isinstance(step, e.AgentStep) and step.attempt == 3
    story.finishes(0)
    assert (story.thread.attempt, story.thread.delay) == (1, 0.0)


@pytest.mark.spec("M-03")
def test_retry_after_is_honoured_up_to_a_bound() -> None:
    (retry,) = Story().fails("rate_limit", retry_after=7.5).events
    assert isinstance(retry, e.AgentRetry) and retry.delay == 7.5
    assert types(Story().fails("rate_limit", retry_after=MAX_WAIT)) == ["agent:retry"]
    assert types(Story().fails("rate_limit", retry_after=MAX_WAIT + 1)) == ["session:end"]
    assert types(Story().fails("auth", retryable=False)) == ["session:end"]


@given(
    st.integers(1, 10), st.booleans(), st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(-5, 5) | st.floats(0, 500),
)  # fmt: skip
@pytest.mark.spec("M-03")
def test_retries_and_waits_are_bounded(
    attempt: int, retryable: bool, jitter: float, after: float | None
) -> None:
    failure = Failure(kind="x", error="", retryable=retryable, jitter=jitter, retry_after=after)
    delay = retry_delay(failure, attempt)
    is_too_long = after is not None and after > MAX_WAIT
    if not retryable or attempt > MAX_RETRIES or is_too_long:
        assert delay is None
    else:
        least = 0.25 * 2 ** (attempt - 1)
        usual = least * (1 + jitter)
        assert delay is not None and delay >= least, "a provider asks for more, never for less"
        assert delay == (usual if after is None or after < least else after)


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_answer_is_tried_once_more_and_then_fails(text: str) -> None:
    story = Story()
    assert types(story.says(text)) == ["agent:retry"]
    assert types(story.says(text)) == ["session:end"]
    assert story.thread.outcome is not None
    assert story.thread.outcome.reason == "the model answered with nothing"
    assert story.thread.transcript == Story().thread.transcript


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (ModelReply(stop_reason="refusal"), ""),
        (ModelReply(text="I will not", stop_reason="refusal"), "I will not"),
        (ModelReply(text="half a sen", stop_reason="length"), "half a sen"),
    ],
)
def test_refusal_and_truncated_text_are_kept_with_their_stop_reason(
    reply: ModelReply, said: str
) -> None:
    story = Story()
    decision = story.then(ModelReplied(reply, 1))
    (step,) = [x for x in decision.events if isinstance(x, e.AgentStep)]
    assert step.stop_reason == reply.stop_reason
    assert story.thread.transcript[-1].text == said  # type: ignore[union-attr]
    assert not story.thread.in_session


@pytest.mark.spec("M-03", "S-07")
@given(st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=6))
def test_call_ids_of_the_provider_are_data_and_ours_are_unique(ids: list[str]) -> None:
    story = Story("par")
    for _ in range(2):
        calls = tuple(ToolCall(name="safe", id=id_, arguments="{") for id_ in ids)
        story.then(ModelReplied(ModelReply(calls=calls), 1))
        for index in reversed(range(len(ids))):
            story.finishes(index, f"{index}")
    answered = [call for m in story.thread.transcript[1:] for call in m.calls]  # type: ignore[union-attr]
    assert len({call.id for call in answered}) == len(answered) == 2 * len(ids)
    assert [call.output for call in answered] == [f"{index}" for index in range(len(ids))] * 2
    assert {call.arguments for call in answered} == {"{"}, "the call stays as the model wrote it"
    steps = [x for x in story.events if isinstance(x, e.AgentStep)]
    assert [call.id for step in steps for call in step.calls] == ids * 2
