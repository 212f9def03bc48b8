"""The turn engine beside a plain-data model of it: every rule does both, then they are compared.

The machine below is a shell without effects: a list for the journal, a list for the inbox, a set
for what is under way.  Its model knows nothing of events, folds or commands; it says what the
transcript, the open calls and the sessions must be.
"""

from typing import Any

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec import structs
from support.profiles import examples

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ToolCall, UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.retry import MAX_RETRIES, Failure
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.calls import LOST
from hubbub.agents.turn.decide import (
    Activity,
    CallModel,
    Conclude,
    Do,
    Kind,
    Leave,
    Park,
    RunTool,
    Take,
    decide,
    kind_of,
)
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.request import CONTINUE, build_request
from hubbub.agents.turn.signals import (
    Concluded,
    DeadlinePassed,
    Decision,
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
from hubbub.hub.values import NULL, encode_value
from hubbub.runtime.models.scripted import ScriptedModel


@tool(idempotent=True)
def safe() -> None: ...


@tool
def risky() -> None: ...


def _agent(name: str, *, parallel: bool = False, max_steps: int | None = None) -> AgentDefinition:
    prompt = PromptDefinition(
        name=name, prompt="", model=ScriptedModel([]), tools=(safe, risky),
        parallel_tool_calls=parallel,
    )  # fmt: skip
    return AgentDefinition(name=name, side_a=SideConfig(prompt=prompt, max_steps=max_steps))


DEFINITIONS = Definitions([_agent("one"), _agent("all", parallel=True), _agent("few", max_steps=3)])

calls = st.lists(
    st.builds(
        ToolCall,
        name=st.sampled_from(["safe", "risky", "ghost"]),
        arguments=st.sampled_from(["{}", "{", "[]"]),
        id=st.sampled_from(["", "same", "other"]),
    ),
    min_size=1,
    max_size=4,
)


class Model:
    """What must be, in plain data."""

    def __init__(self, *, once: bool, max_steps: int, parallel: bool) -> None:
        self.once = once
        self.max_steps = max_steps
        self.parallel = parallel
        self.transcript: list[Any] = []
        self.mail: list[tuple[str, bool]] = []
        self.calls: list[str] = []
        self.results: dict[int, str] = {}
        self.text = ""
        self.started: set[int] = set()
        self.asked = 0
        self.attempt = 1
        self.steps = 0
        self.in_session = False
        self.sessions = 0
        self.closing = False
        self.ended = ""

    def go_on(self) -> None:
        """Do what needs nothing from outside."""
        if self.ended or self.asked:
            return
        if self.calls:
            self._go_on_with_calls()
            if self.calls:
                return
        if not self.in_session and self.once and self.sessions and not self.mail:
            self.ended = "end"
            return
        if self.mail:
            self.transcript += [text for text, _ in self.mail]
            if not self.in_session and any(triggers for _, triggers in self.mail):
                self.in_session, self.steps, self.attempt = True, 0, 1
                self.sessions += 1
            self.mail = []
        if self.in_session:
            self.asked = self.attempt
        elif self.closing or (self.once and self.sessions):
            self.ended = "end"

    def _go_on_with_calls(self) -> None:
        for index, name in enumerate(self.calls):
            if index in self.results:
                continue
            if name == "ghost":
                self.results[index] = "there is no tool"
                continue
            self.started.add(index)
            if not self.parallel:
                break
        if len(self.results) == len(self.calls):
            self._answered()
            if self.steps >= self.max_steps:
                self.in_session = False

    def _answered(self) -> None:
        results = [(name, self.results[index]) for index, name in enumerate(self.calls)]
        self.transcript.append((self.text, results))
        self.calls, self.results, self.started = [], {}, set()

    def interrupt(self, reason: str) -> None:
        """Answer what is open and end the session."""
        for index in range(len(self.calls)):
            self.results.setdefault(index, reason)
        if self.calls:
            self._answered()
        self.asked, self.in_session = 0, False

    @property
    def running(self) -> set[int]:
        return {index for index in self.started if index not in self.results}


class TurnEngine(RuleBasedStateMachine):
    @initialize(
        agent=st.sampled_from(["one", "all", "few"]), once=st.booleans(), input=st.booleans()
    )
    def open(self, agent: str, once: bool, input: bool) -> None:
        self.thread = EMPTY
        self.journal: list[Event] = []
        self.inbox: list[InLane] = []
        self.running: dict[Activity, None] = {}
        self.arrived = 0
        self.agent = agent
        self.model = Model(
            once=once, max_steps=3 if agent == "few" else 250, parallel=agent == "all"
        )
        if input:
            self.model.mail.append(("input", True))
        self._arrive(
            e.SessionOpen(
                open_agent=agent, once=once, input_json=encode_value("", "input") if input else NULL
            )
        )
        self._go_on()

    # ── what may happen ──────────────────────────────────────────────────────────────────────

    @rule(triggers=st.sampled_from([True, True, True, False]))
    def message(self, triggers: bool) -> None:
        assume(not self.model.closing)
        text = f"m{self.arrived}"
        if not self.model.ended:
            self.model.mail.append((text, triggers))
        self._arrive(e.SessionMessage(content=text, triggers=triggers))
        self._go_on()

    @rule(count=st.integers(2, 4))
    def several_messages_at_once(self, count: int) -> None:
        assume(not self.model.closing and not self.model.ended)
        for _ in range(count):
            self.model.mail.append((f"m{self.arrived}", True))
            self._arrive(e.SessionMessage(content=f"m{self.arrived}"))
        self._go_on()

    @precondition(lambda self: self.model.asked)
    @rule(text=st.sampled_from(["hello", "yes"]), stop=st.sampled_from(["end", "length"]))
    def model_says(self, text: str, stop: str) -> None:
        self._replied(ModelReply(text=text, stop_reason=stop))
        self.model.transcript.append((text, []))
        self.model.in_session = False
        self._go_on()

    @precondition(lambda self: self.model.asked)
    @rule()
    def model_refuses(self) -> None:
        self._replied(ModelReply(stop_reason="refusal"))
        self.model.transcript.append(("", []))
        self.model.in_session = False
        self._go_on()

    @precondition(lambda self: self.model.asked)
    @rule(calls=calls, text=st.sampled_from(["", "let me see"]))
    def model_calls_tools(self, calls: list[ToolCall], text: str) -> None:
        self._replied(ModelReply(text=text, calls=tuple(calls), stop_reason="tools"))
        self.model.calls, self.model.text = [call.name for call in calls], text
        self._go_on()

    @precondition(lambda self: self.model.asked)
    @rule(kind=st.sampled_from(["server", "rate_limit", "empty", "request"]))
    def model_fails(self, kind: str) -> None:
        attempt, self.model.asked = self.model.asked, 0
        failure = Failure(kind=kind, error=kind, retryable=kind != "request", jitter=0.5)
        limit = {"empty": 1, "request": 0}.get(kind, MAX_RETRIES)
        if attempt > limit:
            self.model.in_session, self.model.attempt = False, 1
        else:
            self.model.attempt = attempt + 1
        (activity,) = self.running
        assert isinstance(activity, CallModel)
        assert activity.attempt == attempt
        del self.running[activity]
        if kind == "empty":
            self._signal(ModelReplied(ModelReply(text=" "), activity.turn))
        else:
            self._signal(ModelFailed(failure, activity.turn))
        self._go_on()

    @precondition(lambda self: self.model.running)
    @rule(data=st.data(), output=st.sampled_from(["fine", "again"]), is_error=st.booleans())
    def tool_finishes(self, data: st.DataObject, output: str, is_error: bool) -> None:
        activity = data.draw(st.sampled_from(sorted(self.running, key=repr)))
        assert isinstance(activity, RunTool)
        self.model.results[activity.index] = output
        del self.running[activity]
        self._signal(ToolFinished(activity.step, activity.index, output, is_error))
        self._go_on()

    @rule(late=st.integers(0, 3))
    def something_comes_too_late(self, late: int) -> None:
        """What was cancelled may still return: it means nothing."""
        before = len(self.journal)
        self._signal(ToolFinished(self.thread.step - late - 1, 0, "late"))
        self._signal(ModelReplied(ModelReply(text="late"), self.thread.turn - late - 1))
        failure = Failure(kind="server", error="late", retryable=True)
        self._signal(ModelFailed(failure, self.thread.turn - late - 1))
        assert len(self.journal) == before

    @rule()
    def interrupt(self) -> None:
        assume(not self.model.ended)
        if self.model.in_session:
            self.model.interrupt("interrupted")
            self.model.attempt = 1
        self._arrive(e.SessionAbort(reason="stop"))
        self._go_on()

    @precondition(lambda self: self.arrived > 4)
    @rule()
    def close(self) -> None:
        self.model.closing = True
        self._arrive(e.SessionClose())
        self._go_on()

    @precondition(lambda self: self.arrived > 6)
    @rule(how=st.sampled_from(["terminate", "deadline"]))
    def kill(self, how: str) -> None:
        assume(not self.model.ended)
        self.model.interrupt("terminated" if how == "terminate" else "timed_out")
        self.model.ended = how
        if how == "terminate":
            self._arrive(e.SessionTerminate(reason="enough"))
        else:
            self._signal(DeadlinePassed())
        self._go_on()

    @rule()
    def crash(self) -> None:
        """What was under way is lost; the journal is read again."""
        self.running.clear()
        self.thread = fold_all(EMPTY, self.journal)
        if self.model.ended or self.thread.parked:
            return
        assume(self.thread.restarts < 3)
        for index in self.model.running:
            if self.model.calls[index] == "risky":
                self.model.results[index] = LOST
        if self.model.asked:
            self.model.attempt, self.model.asked = self.model.asked, 0
        self._signal(Restored())
        self._go_on()

    @rule()
    def something_unknown_is_recorded(self) -> None:
        before = self.thread
        for event in (
            e.CustomEvent.of("shop:order", number=1),
            e.AgentClaim(),
            e.AgentText(text="said by a tool", step=0),
        ):  # fmt: skip
            assert fold(self.thread, event) == before
            self.journal.append(event)

    # ── the shell ────────────────────────────────────────────────────────────────────────────

    def _arrive(self, item: Any) -> None:
        if self.thread.phase == "ended":
            return
        self.arrived += 1
        self.inbox.append(structs.replace(item, lane="in", seq=self.arrived, agent=self.agent))

    def _waiting(self) -> frozenset[Kind]:
        return frozenset(kind_of(item) for item in self.inbox)

    def _signal(self, signal: Signal) -> None:
        decision = interpret(self.thread, signal, DEFINITIONS, self._waiting())
        self._commit(decision)

    def _commit(self, decision: Decision) -> None:
        for event in decision.events:
            self.journal.append(event)
            self.thread = fold(self.thread, event)
        assert self.thread == fold_all(EMPTY, self.journal)
        assert set(decision.taken) <= {item.seq for item in self.inbox}
        self.inbox = [item for item in self.inbox if item.seq not in decision.taken]
        if decision.status is not None:
            assert (decision.status == "ended") is (self.thread.phase == "ended")
            assert self.thread.parked or decision.status != "parked"

    def _replied(self, reply: ModelReply) -> None:
        (activity,) = self.running
        assert isinstance(activity, CallModel)
        del self.running[activity]
        self.model.asked, self.model.attempt = 0, 1
        self.model.steps += 1
        self._signal(ModelReplied(reply, activity.turn))

    def _go_on(self) -> None:
        self.model.go_on()
        for _ in range(50):
            asking = next((a.turn for a in self.running if isinstance(a, CallModel)), 0)
            command = decide(self.thread, self._waiting(), asking)
            match command:
                case Take(kind=kind):
                    items = tuple(item for item in self.inbox if kind_of(item) == kind)
                    assert items
                    self._signal(Taken(items))
                case Conclude():
                    self._signal(Concluded())
                case Park():
                    self.running.clear()
                    self._signal(Parked())
                case Leave():
                    self.running.clear()
                    return
                case Do(activities=activities):
                    self._ensure(activities)
                    return
        raise AssertionError("the loop never rests")

    def _ensure(self, activities: tuple[Activity, ...]) -> None:
        assert activities, "nothing under way and nothing to wait for"
        for activity in activities:
            if isinstance(activity, CallModel) and activity not in self.running:
                self._check_request()
        self.running = dict.fromkeys(activities)

    def _check_request(self) -> None:
        """The model is asked: everything said so far is shown to it, every call answered."""
        assert not self._waiting()
        request = build_request(self.thread, DEFINITIONS.side(self.agent), ())
        shown = list(request.messages)
        if shown[-1] is CONTINUE:
            shown.pop()
        assert len(shown) == len(self.model.transcript)
        for message, expected in zip(shown, self.model.transcript, strict=True):
            if isinstance(message, UserMessage):
                assert message.content == expected
                continue
            assert isinstance(message, AssistantMessage)
            text, results = expected
            assert message.text == text
            assert [call.name for call in message.calls] == [name for name, _ in results]
            for call, (_, output) in zip(message.calls, results, strict=True):
                assert call.output.startswith(output)
        ids = [call.id for m in shown if isinstance(m, AssistantMessage) for call in m.calls]
        assert len(set(ids)) == len(ids)

    # ── what holds always ────────────────────────────────────────────────────────────────────

    @invariant()
    def the_same_is_under_way(self) -> None:
        asked = [a for a in self.running if isinstance(a, CallModel)]
        assert [a.attempt for a in asked] == ([self.model.asked] if self.model.asked else [])
        tools = {a.index for a in self.running if isinstance(a, RunTool)}
        assert tools == self.model.running
        assert not (asked and tools)
        if not self.model.parallel:
            assert len(tools) <= 1

    @invariant()
    def no_run_idles_with_mail(self) -> None:
        if not self.running and not self.model.ended:
            assert not self._waiting()
            assert not self.model.mail
            assert self.thread.parked

    @invariant()
    def one_start_and_one_end(self) -> None:
        types = [event.type for event in self.journal if not isinstance(event, e.AgentClaim)]
        assert types.count("agent:start") == 1
        assert types.count("agent:complete") == bool(self.model.ended)
        assert (self.thread.phase == "ended") is bool(self.model.ended)

    @invariant()
    def sessions_begin_and_end_in_turn(self) -> None:
        marks = [x for x in self.journal if isinstance(x, e.SessionStart | e.SessionEnd)]
        for number, mark in enumerate(marks):
            assert isinstance(mark, e.SessionEnd if number % 2 else e.SessionStart)
            assert mark.session == number // 2 + 1
        assert bool(len(marks) % 2) is self.model.in_session is self.thread.in_session
        assert self.thread.session == self.model.sessions

    @invariant()
    def every_call_has_one_result_or_is_open(self) -> None:
        wanted: list[tuple[int, int]] = []
        for event in self.journal:
            if isinstance(event, e.AgentStep):
                wanted += [(event.step, index) for index in range(len(event.calls))]
        results = [(x.step, x.index) for x in self.journal if isinstance(x, e.AgentToolComplete)]
        open_ = self.thread.open
        missing = (
            [(open_.number, call.index) for call in open_.calls if call.status != "done"]
            if open_ is not None
            else []
        )
        assert sorted(results + missing) == wanted
        assert len(missing) == len(self.model.calls) - len(self.model.results)


TurnEngine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, derandomize=True
)


@pytest.mark.spec("S-07", "S-08", "T-03", "R-04")
class TestTurnEngine(TurnEngine.TestCase):  # type: ignore[name-defined,misc]
    """Runs the machine above."""
