"""Who sees what: a generated conversation of two sides beside a plain model of it (S-02).

The conversation is held by the real core (``decide``, ``interpret``, ``fold``, ``build_request``)
with a shell without effects.  ``Model`` below knows only who said what in which order, and works
out from it what each side must be shown: words, never messages of the library.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.profiles import examples

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import (
    AssistantMessage,
    ModelReply,
    ModelRequest,
    Thinking,
    ToolCall,
    UserMessage,
)
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Origin, Thread
from hubbub.agents.state.transcript import NO_MESSAGE, hear, other_side, said, tell
from hubbub.agents.turn.decide import (
    CallModel,
    Conclude,
    Do,
    Kind,
    Leave,
    Park,
    RunTool,
    Take,
    decide,
)
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.request import build_request
from hubbub.agents.turn.signals import (
    Concluded,
    ModelReplied,
    Parked,
    Restored,
    Signal,
    Taken,
    ToolFinished,
)
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.values import encode_value
from hubbub.runtime.models.http.messages import UserTurn, conversation
from hubbub.runtime.models.scripted import ScriptedModel

A, B = "side_a", "side_b"


@tool(idempotent=True)
def look() -> None: ...


@tool(idempotent=True)
def hand_in() -> None: ...


@tool(idempotent=True)
def finish() -> None: ...


def side(which: str, talks: bool, max_steps: int) -> SideConfig:
    prompt = PromptDefinition(
        name=f"{which}-{talks}-{max_steps}", prompt=f"You are {which}.",
        model=ScriptedModel([]), tools=(look, hand_in, finish),
    )  # fmt: skip
    return SideConfig(
        prompt=prompt, stop_on_response=talks, stop_tool="hand_in", session_stop="finish",
        max_steps=max_steps,
    )  # fmt: skip


# ── what is generated ────────────────────────────────────────────────────────────────────────


class Call(NamedTuple):
    name: str
    result: str
    is_error: bool


class Step(NamedTuple):
    """What a model answers, what its tools return, what arrives while it is asked."""

    text: str
    calls: tuple[Call, ...]
    mail: int
    """So many messages come while the model is being asked."""

    crashes: bool


calls = st.builds(
    Call,
    st.sampled_from(["look", "look", "look", "hand_in", "ghost", "finish"]),
    st.sampled_from(["fine", "", "a whole page"]),
    st.booleans(),
)
steps = st.builds(
    Step,
    st.sampled_from(["", " ", "hello", "a thought"]),
    st.lists(calls, max_size=3).map(tuple),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([False, False, False, True]),
).filter(lambda step: bool(step.text.strip() or step.calls))


class Rules(NamedTuple):
    """How the two sides stop, and which one messages are for."""

    a_talks: bool
    b_talks: bool
    a_steps: int
    b_steps: int
    max_turns: int
    receives: str

    def talks(self, which: str) -> bool:
        return self.a_talks if which == A else self.b_talks

    def steps(self, which: str) -> int:
        return self.a_steps if which == A else self.b_steps


rules = st.builds(
    Rules, st.booleans(), st.booleans(), st.integers(1, 3), st.integers(1, 3),
    st.integers(1, 6), st.sampled_from([A, B]),
)  # fmt: skip


# ── the model ────────────────────────────────────────────────────────────────────────────────


class Word(NamedTuple):
    """Something said, in the order in which it was."""

    by: str
    """The side whose words they are."""

    text: str
    results: tuple[tuple[str, str], ...] = ()
    """The names and the results of its calls, if it is a step with some."""

    is_step: bool = True


class Model:
    """The conversation as a list of words; whose turn it is, by SA 2 and 5 in plain Python."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.words: list[Word] = []
        self.side = A
        self.turn = 1
        self.steps = 0
        self.has_spoken = False
        self.mail: list[str] = []
        self.over = False

    def hear(self, text: str, to: str) -> None:
        """Words to a side are the other side's own."""
        self.words.append(Word(B if to == A else A, text, is_step=False))

    def before_step(self) -> None:
        if self.side == self.rules.receives:
            for text in self.mail:
                self.hear(text, self.side)
            self.mail = []

    def step(self, step: Step) -> int:
        """What a step leads to; returns how many of its calls run or are refused."""
        side, ended, results = self.side, False, []
        for call in step.calls:
            if ended:
                results.append((call.name, "skipped"))
            elif call.name == "ghost":
                results.append((call.name, "there is no tool"))
            else:
                results.append((call.name, call.result))
                ended = call.name == "finish" and not call.is_error
        text = step.text if step.text.strip() else ""
        self.words.append(Word(side, text, tuple(results)))
        self.has_spoken = self.has_spoken or bool(text)
        self.steps += 1
        handed = [out for name, out in results if name == "hand_in" and out != "skipped"]
        if ended:
            self.over = True
        elif handed:
            self._next(handed[0])
        elif (text and not step.calls and self.rules.talks(side)) or (
            self.steps >= self.rules.steps(side)
        ):
            self._next("")
        return len(results)

    def _next(self, hands_over: str) -> None:
        if self.turn >= self.rules.max_turns:
            self.over = True
            return
        if not hands_over and not self.has_spoken:
            hands_over = NO_MESSAGE
        self._handed(hands_over)
        self.side = B if self.side == A else A
        self.turn, self.steps, self.has_spoken = self.turn + 1, 0, False

    def _handed(self, text: str) -> None:
        """What is handed over beside what was said: only the other side is shown it."""
        if text:
            self.words.append(Word(f"to {B if self.side == A else A}", text, is_step=False))

    def view(self, which: str) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
        """What a side is shown: who speaks, the words, the calls with their results."""
        seen: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
        for word in self.words:
            if word.by == which:
                seen.append(("assistant" if word.is_step else "given", word.text, word.results))
            elif word.by == f"to {which}" or (word.by in (A, B) and word.text):
                seen.append(("user", word.text, ()))
        if not seen or (seen[-1][0] != "user" and not seen[-1][2]):
            seen.append(("user", "(continue)", ()))
        return seen


# ── the core, and a shell without effects ────────────────────────────────────────────────────


class Talk:
    """A conversation held by the core; ``check`` looks at every request."""

    def __init__(
        self,
        rules: Rules,
        check: Callable[[str, ModelRequest], None] = lambda *_: None,
        parent: str | None = None,
    ) -> None:
        definition = AgentDefinition(
            name="pair", type="dual_ai", max_session_turns=rules.max_turns,
            side_a=side(A, rules.a_talks, rules.a_steps),
            side_b=side(B, rules.b_talks, rules.b_steps),
        )  # fmt: skip
        self.definitions = Definitions([definition])
        self.check = check
        self.thread: Thread = EMPTY
        self.journal: list[Event] = []
        self.inbox: list[Any] = []
        self.arrived = 0
        self.is_over = False
        self.arrive(
            e.SessionOpen(
                open_agent="pair", agent="pair", receives=rules.receives, parent_run_id=parent,
                input_json=encode_value("", "the task"),
            )
        )  # fmt: skip

    def arrive(self, item: Any) -> None:
        self.arrived += 1
        self.inbox.append(structs.replace(item, lane="in", seq=self.arrived))

    def signal(self, signal: Signal, but: frozenset[Kind] = frozenset()) -> None:
        waiting: frozenset[Kind] = frozenset({"message"} if self.inbox else set()) - but
        decision = interpret(self.thread, signal, self.definitions, waiting)
        self.journal += decision.events
        self.thread = fold_all(self.thread, decision.events)
        self.inbox = [item for item in self.inbox if item.seq not in decision.taken]

    def crash(self) -> None:
        """Only the journal is left; what it says is what was."""
        before = self.thread
        self.thread = fold_all(EMPTY, self.journal)
        assert self.thread == before
        self.signal(Restored())

    def due(self) -> CallModel | RunTool | None:
        """Do what has no effect until a model or a tool is due."""
        for _ in range(20):
            kinds = frozenset[Kind](
                "control" if isinstance(x, e.SessionOpen) else "message" for x in self.inbox
            )
            match decide(self.thread, kinds):
                case Take(kind=kind):
                    items, self.inbox = tuple(self.inbox), []
                    self.signal(Taken(items), frozenset((kind,)))
                case Do(activities=(CallModel() as activity,)):
                    which = self.definitions.side("pair", self.thread.side)
                    self.check(self.thread.side, build_request(self.thread, which, ()))
                    return activity
                case Do(activities=(RunTool() as activity,)):
                    return activity
                case Conclude():
                    self.signal(Concluded())
                case Park():
                    self.signal(Parked())
                case Leave():
                    self.is_over = True
                    return None
                case other:
                    raise AssertionError(other)
        raise AssertionError("the loop never rests")


def shown(request: ModelRequest) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    """A request in the words of the model above."""
    found: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            found.append(("user", message.content, ()))
            continue
        results = tuple(
            (c.name, next((w for w in ("skipped", "there is no tool") if c.output.startswith(w)),
                          c.output))
            for c in message.calls
        )  # fmt: skip
        found.append(("given" if message.is_given else "assistant", message.text, results))
    return found


def assert_acceptable(request: ModelRequest) -> None:
    """What every provider wants: the user first and last, results in between, each id once."""
    turns = conversation(request.messages)
    assert isinstance(turns[0], UserTurn)
    for one, two in pairwise(turns):
        is_answered = isinstance(one, AssistantMessage) and bool(one.calls)
        assert isinstance(one, UserTurn) is not isinstance(two, UserTurn) or is_answered
    last = turns[-1]
    assert isinstance(last, UserTurn) or last.calls
    ids = [call.id for m in turns if isinstance(m, AssistantMessage) for call in m.calls]
    assert len(set(ids)) == len(ids)


@pytest.mark.spec("S-02", "S-04", "S-07", "S-09", "T-02", "C-08")
@given(rules, st.lists(steps, min_size=1, max_size=12))
@settings(max_examples=examples(400), deadline=None)
def test_each_side_is_shown_its_own_steps_and_the_others_words_and_nothing_else(
    rules: Rules, script: list[Step]
) -> None:
    model = Model(rules)
    model.hear("the task", A)

    def check(which: str, request: ModelRequest) -> None:
        model.before_step()
        assert which == model.side
        assert request.system == f"You are {which}."
        assert shown(request) == model.view(which)
        assert_acceptable(request)

    talk = Talk(rules, check)
    sent = 0
    for number, step in enumerate(script):
        activity = talk.due()
        if activity is None:
            break
        assert isinstance(activity, CallModel) and activity.step == number + 1
        for _ in range(step.mail):
            sent += 1
            model.mail.append(f"mail {sent}")
            talk.arrive(e.SessionMessage(content=f"mail {sent}"))
        if step.crashes:
            talk.crash()
        thoughts = (Thinking(text=f"{talk.thread.side} thinks"),)
        made = tuple(ToolCall(name=call.name, id="same") for call in step.calls)
        reply = ModelReply(text=step.text, calls=made, thinking=thoughts)
        talk.signal(ModelReplied(reply, activity.turn))
        while talk.thread.open is not None:
            tool_call = talk.due()
            assert isinstance(tool_call, RunTool)
            if step.crashes:
                talk.crash()
                assert talk.due() == tool_call
            call = step.calls[tool_call.index]
            talk.signal(ToolFinished(tool_call.step, tool_call.index, call.result, call.is_error))
        model.step(step)
    talk.due()
    assert talk.is_over is model.over
    sides = [x.side for x in talk.journal if isinstance(x, e.SessionStart | e.SessionTurn)]
    assert sides == [A, B, A, B, A, B][: model.turn], "A starts, and they alternate"
    if not model.over:
        assert talk.thread.turn == model.turn
        assert [x.content for x in talk.inbox] == model.mail, "it waits for its side"


# ── one rule at a time ───────────────────────────────────────────────────────────────────────

TWO = Thread(two_sided=True)
ONE = Thread()


@pytest.mark.spec("S-02")
def test_words_to_a_side_are_the_other_sides_own() -> None:
    message = UserMessage(content="do it")
    given = AssistantMessage(text="do it", is_given=True)
    to_a, to_b = hear(TWO, message), hear(TWO, message, B)
    assert (to_a.transcript, to_a.transcript_b) == ((message,), (given,))
    assert (to_b.transcript, to_b.transcript_b) == ((given,), (message,))
    alone = hear(ONE, message, B)
    assert (alone.transcript, alone.transcript_b) == ((message,), ())


@pytest.mark.spec("S-02", "C-08")
def test_what_only_one_side_is_told_the_other_never_sees() -> None:
    message = UserMessage(content="Subagent (reference: x) …")
    told = tell(TWO, message, B)
    assert (told.transcript, told.transcript_b) == ((), (message,))


@pytest.mark.spec("S-02")
def test_a_steps_calls_results_and_thoughts_stay_on_its_own_side() -> None:
    story = Talk(Rules(True, True, 9, 9, 9, A))
    assert story.due() is not None
    thoughts = (Thinking(text="hm"),)
    story.signal(
        ModelReplied(
            ModelReply(text="I look", thinking=thoughts, calls=(ToolCall(name="look"),)), 1
        )
    )
    story.signal(ToolFinished(1, 0, "seen"))
    own, others = story.thread.transcript[-1], story.thread.transcript_b[-1]
    assert isinstance(own, AssistantMessage)
    assert (own.text, own.thinking, own.calls[0].output) == ("I look", thoughts, "seen")
    assert others == UserMessage(content="I look")
    assert (other_side(A), other_side(B)) == (B, A)
    silent = said(structs.replace(TWO, side=B), AssistantMessage(text=""))
    assert (silent.transcript, len(silent.transcript_b)) == ((), 1), "no words, nothing to hear"


@pytest.mark.spec("C-08")
@pytest.mark.parametrize("receives", [A, B])
def test_from_idle_a_message_gives_the_turn_to_the_side_that_receives(receives: str) -> None:
    """A child that stays: its session is over, and its parent writes again."""
    talk = Talk(Rules(True, True, 9, 9, 1, receives), parent="its parent")
    talk.due()
    talk.signal(ModelReplied(ModelReply(text="first"), 1))
    assert talk.due() is None and talk.thread.parked
    talk.arrive(e.SessionMessage(content="and now?"))
    assert isinstance(talk.due(), CallModel)
    assert (talk.thread.side, talk.thread.session, talk.thread.session_turns) == (receives, 2, 1)
    assert talk.thread.view[-1] == UserMessage(content="and now?")
    other = talk.thread.transcript if receives == B else talk.thread.transcript_b
    assert other[-1] == AssistantMessage(text="and now?", is_given=True)


@pytest.mark.spec("C-08")
def test_a_run_without_receives_messages_receives_on_side_a() -> None:
    assert Origin().receives == e.SessionOpen().receives == A


@pytest.mark.spec("T-02", "C-08")
@pytest.mark.parametrize("receives", [A, B])
def test_at_work_mail_waits_for_the_next_step_of_the_side_that_receives(receives: str) -> None:
    seen: list[tuple[str, int]] = []

    def check(which: str, request: ModelRequest) -> None:
        received = [m for m in request.messages if isinstance(m, UserMessage)]
        mail = [m for m in received if "mail" in m.content]
        seen.append((which, len(mail)))

    talk = Talk(Rules(False, False, 2, 2, 9, receives), check)
    for number in range(1, 5):  # A steps twice, then B does
        activity = talk.due()
        assert isinstance(activity, CallModel)
        if number == 2:
            talk.arrive(e.SessionMessage(content="mail"))
        talk.signal(ModelReplied(ModelReply(text=f"step {number}"), activity.turn))
    talk.due()
    if receives == A:
        assert seen == [(A, 0), (A, 0), (B, 0), (B, 0), (A, 1)]
    else:
        assert seen == [(A, 0), (A, 0), (B, 1), (B, 1), (A, 0)]
