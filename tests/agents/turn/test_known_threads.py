"""What a decision says it comes to is what its events come to once they are recorded."""

from collections.abc import Iterator

import pytest
from journals.record import FOLDER
from msgspec import structs
from support.run_states import decisions

from hubbub import Agent, FunctionModel, tool
from hubbub.agents.model import ModelReply, ToolCall
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.compactions import MIN_COVERED
from hubbub.agents.state.fold import STAMPED, fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import (
    Decision,
    ModelReplied,
    Restored,
    Signal,
    Summarized,
    Taken,
    ToolFinished,
)
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.values import encode_value

NOW = 1_700_000_000_000_000


@tool
def wonder() -> None:
    """Asks somebody."""


def _definitions() -> Definitions:
    agent = Agent("desk", "Help.", model=FunctionModel(lambda _: "x"), tools=[wonder])
    return Definitions([agent])


DEFINITIONS = _definitions()


def recorded(decision: Decision) -> tuple[Event, ...]:
    """As its owner stamps them."""
    return tuple(structs.replace(event, at=NOW) for event in decision.events)


def agrees(thread: Thread, decision: Decision) -> bool:
    return decision.after is None or decision.after == fold_all(thread, recorded(decision))


class Story:
    """Signals one after another; what is decided on each must be known rightly."""

    def __init__(self) -> None:
        self.thread = EMPTY
        self.then(
            Taken(
                (e.SessionOpen(open_agent="desk", agent="desk", seq=1, run_id="1",
                               input_json=encode_value("", "hello")),)
            )
        )  # fmt: skip

    def then(self, signal: Signal) -> Decision:
        decision = interpret(self.thread, signal, DEFINITIONS)
        assert agrees(self.thread, decision), decision.events
        self.thread = fold_all(self.thread, recorded(decision))
        return decision

    def says(self, text: str = "", *calls: str) -> Decision:
        reply = ModelReply(text=text, calls=tuple(ToolCall(name=name) for name in calls))
        return self.then(ModelReplied(reply, self.thread.turn))

    def asks(self) -> None:
        """The tool of the first call opens a question whose answer is kept."""
        call = f"{self.thread.step}.0"
        prompt = e.SessionPrompt(prompt_id="p", call_id=call, ordinal=1, at=NOW, question="Sure?")
        self.thread = fold(self.thread, prompt)


def test_every_decision_that_can_be_reached_knows_rightly_what_it_comes_to() -> None:
    known = 0
    for thread, label, decision in decisions():
        assert agrees(thread, decision), (label, decision.events)
        known += decision.after is not None
    assert known > 100


@pytest.mark.parametrize("calls", [("wonder",), ("wonder", "wonder")])
def test_a_question_that_ends_with_its_call_is_forgotten_with_its_step(
    calls: tuple[str, ...],
) -> None:
    """Whether the tool has returned, or is gone with its process, or with its turn."""
    ends: list[Signal] = [
        ToolFinished(1, 0, "fine"), Restored(), Taken((e.SessionAbort(run_id="1", seq=2),)),
    ]  # fmt: skip
    for signal in ends:
        story = Story()
        story.says("", *calls)
        story.asks()
        decision = story.then(signal)
        assert any(isinstance(event, e.SessionPromptEnd) for event in decision.events)
        assert bool(story.thread.answers) == (story.thread.open is not None)


def test_a_summary_is_of_the_time_at_which_it_was_recorded_beside_children_at_work() -> None:
    story = Story()
    for number in range(MIN_COVERED):
        story.says("a long answer")
        message = e.SessionMessage(content="and?", source="web", run_id="1", seq=number + 2)
        story.then(Taken((message,)))
    child = e.AgentChild(child_run_id="2", child_agent="desk", turn=1)
    story.thread = fold(story.thread, child)
    summary = Summarized(side="side_a", step=story.thread.step, covers=MIN_COVERED, summary="Said.")
    story.then(summary)
    assert story.thread.compactions.side_a.at == NOW


def _lanes() -> Iterator[list[Event]]:
    for file in sorted(FOLDER.glob("*.jsonl")):
        lanes: dict[str, list[Event]] = {}
        for line in file.read_bytes().splitlines()[1:]:
            event = decode_event(line)
            lanes.setdefault(event.run_id, []).append(event)
        yield from lanes.values()


def test_only_what_is_named_so_is_folded_by_the_time_of_its_record() -> None:
    depending = set()
    for lane in _lanes():
        thread = EMPTY
        for event in lane:
            bare = structs.replace(event, at=0, seq=0, run_id="", root_run_id="", lane="")
            if fold(thread, bare) != (after := fold(thread, event)):
                depending.add(type(event))
            thread = after
    assert depending == STAMPED
