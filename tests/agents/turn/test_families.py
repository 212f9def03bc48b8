"""Trees of runs beside a plain-data model of them (C-07, C-10, C-18, T-02, T-05).

A world without effects: every run is a list for its journal and a list for its inbox, driven by
the pure engine alone; a step of the world answers one thing that is under way.  The model reads
the journals as plain records: it knows nothing of threads, folds or commands, and says what must
have been told to whom, how often, and in which order.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
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
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.prompt import PromptDefinition, Resumable, SubagentToolConfig
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ToolCall, UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.retry import Failure
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.child_calls import Budget, ChildRequest, read_call
from hubbub.agents.turn.decide import (
    AwaitChildren,
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
from hubbub.agents.turn.request import build_request
from hubbub.agents.turn.signals import (
    Concluded,
    Decision,
    Delegated,
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
from hubbub.runtime.models.scripted import ScriptedModel, call

CAP = 2
MAX_DEPTH = 3
MAX_LIVE = 9

MODES = {
    "w": {"blocking": True},
    "x": {"blocking": False},
    "y": {"blocking": True, "stays": True},
    "z": {"blocking": False, "stays": True},
}


@tool
def finish(result: str) -> str:
    """End well."""
    return result


@tool
def give_up(reason: str) -> str:
    """End badly."""
    return reason


@tool
def look() -> str:
    """Look."""
    return "seen"


def _child_tools() -> list[SubagentToolConfig]:
    found = []
    for name, mode in MODES.items():
        stays = mode.get("stays", False)
        resumable = Resumable(receives_messages="side_a", max_instances=CAP) if stays else False
        found.append(SubagentToolConfig(name=name, blocking=mode["blocking"], resumable=resumable))
    return found


def _definitions() -> Definitions:
    model = ScriptedModel([])
    agents = [
        AgentDefinition(
            name="main",
            side_a=SideConfig(
                prompt=PromptDefinition(
                    name="main", prompt="", model=model, tools=(look, *_child_tools())
                )
            ),
        )
    ]
    b = PromptDefinition(name="b", prompt="", model=model)
    for name in MODES:
        prompt = PromptDefinition(
            name=name, prompt="", model=model, tools=(look, finish, give_up, *_child_tools()),
            parallel_tool_calls=name in "xz",
        )  # fmt: skip
        side = SideConfig(prompt=prompt, session_stop="finish", session_fail="give_up")
        agents.append(
            AgentDefinition(
                name=name, type="dual_ai", expose_as_tool=True, max_session_turns=4,
                side_a=side, side_b=SideConfig(prompt=b),
            )
        )  # fmt: skip
    return Definitions(agents)


DEFINITIONS = _definitions()


class Run:
    """One run of the world: two lanes, and what is under way."""

    def __init__(self, run_id: str, agent: str, parent: str | None) -> None:
        self.run_id = run_id
        self.agent = agent
        self.parent = parent
        self.journal: list[Event] = []
        self.inbox: list[InLane] = []
        self.accepted: list[InLane] = []
        self.keys: set[tuple[str, str]] = set()
        self.closed = ""
        self.thread = EMPTY
        self.due: tuple[Any, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.thread.phase == "ended"

    @property
    def waiting(self) -> frozenset[Kind]:
        return frozenset(kind_of(item) for item in self.inbox)


class World:
    """All runs, and the one order in which things reach them."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.letters: list[InLane] = []
        self.queue: list[Run] = []
        """Runs that something has come for, and that have not looked yet."""
        self.is_slow = False

    def open(self, agent: str, text: str | None) -> Run:
        run_id = f"run{len(self.runs)}"
        item = e.SessionOpen(
            run_id=run_id, root_run_id=run_id, open_agent=agent, agent=agent,
            input_json=encode_value("input", text),
        )  # fmt: skip
        self.deliver(run_id, item)
        self.settle()
        return self.runs[run_id]

    # ── the store ────────────────────────────────────────────────────────────────────────────

    def deliver(self, to: str, item: InLane) -> bool:
        run = self.runs.get(to)
        if isinstance(item, e.SessionOpen) and run is None:
            run = self.runs[to] = Run(to, item.open_agent, item.parent_run_id)
        assert run is not None
        if run.closed:
            self.letters.append(item)
            return False
        key = (getattr(item, "source", ""), getattr(item, "key", ""))
        if isinstance(item, e.SessionResult):
            key = ("result", f"{item.child_run_id}#{item.session or 'end'}")
        if key[1]:
            assert key not in run.keys or isinstance(item, e.SessionMessage), "told twice"
            run.keys.add(key)
        item = structs.replace(
            item, run_id=to, lane="in", seq=len(run.accepted) + 1, agent=run.agent,
            parent_run_id=run.parent, root_run_id="run0", at=len(run.accepted) + 1,
        )  # fmt: skip
        run.accepted.append(item)
        run.inbox.append(item)
        if isinstance(item, e.SessionTerminate):
            run.closed = "terminated"
        self.queue.append(run)
        return True

    def commit(self, run: Run, decision: Decision) -> None:
        assert not run.is_over
        run.journal.extend(decision.events)
        run.thread = fold_all(run.thread, decision.events)
        if decision.after is not None:
            assert decision.after == run.thread
        assert (decision.status == "ended") == run.is_over
        assert decision.status != "waiting" or run.thread.waits
        run.inbox = [item for item in run.inbox if item.seq not in decision.taken]
        if run.is_over:
            run.closed = run.closed or "ended"
            self.letters += [
                x for x in run.inbox if isinstance(x, e.SessionMessage | e.SessionResult)
            ]
            run.inbox, run.due = [], ()
        for to, item in decision.mail:
            self.deliver(to, item)

    # ── the shell ────────────────────────────────────────────────────────────────────────────

    def budget(self) -> Budget:
        below = [run for run in self.runs.values() if run.parent is not None]
        return Budget(
            MAX_DEPTH, MAX_LIVE, 10_000, sum(not run.is_over for run in below), len(below)
        )

    def settle(self) -> None:
        """Let everybody look at what came, in order; while the world is slow, nobody does."""
        while self.queue and not self.is_slow:
            self.go_on(self.queue.pop(0))

    def let_one_look(self, number: int) -> None:
        self.go_on(self.queue.pop(number % len(self.queue)))

    def signal(self, run: Run, signal: Signal) -> None:
        self.commit_if_any(run, interpret(run.thread, signal, DEFINITIONS, run.waiting))
        self.go_on(run)
        self.settle()

    def commit_if_any(self, run: Run, decision: Decision) -> None:
        if decision.events:
            self.commit(run, decision)

    def go_on(self, run: Run) -> None:
        for _ in range(100):
            asking = next((a.turn for a in run.due if isinstance(a, CallModel)), 0)
            command = decide(run.thread, run.waiting, asking)
            match command:
                case Take(kind=kind):
                    items = tuple(item for item in run.inbox if kind_of(item) == kind)
                    signal: Signal = Taken(items, self.budget())
                    waiting = run.waiting - {kind}
                case Conclude():
                    signal, waiting = Concluded(), run.waiting
                case Park():
                    run.due = ()
                    signal, waiting = Parked(), run.waiting
                case Do(activities=activities):
                    run.due = activities
                    return
                case AwaitChildren() | Leave():
                    run.due = ()
                    return
            decision = interpret(run.thread, signal, DEFINITIONS, waiting)
            assert decision.events, "a command that changes nothing would be given forever"
            self.commit(run, decision)
        raise AssertionError("the run goes on forever")


# ── the model ────────────────────────────────────────────────────────────────────────────────


class Ledger:
    """What a run's journal says, read as plain records."""

    def __init__(self, run: Run) -> None:
        self.told: list[str] = []
        self.heard: list[str] = []
        waits: dict[tuple[int, int], tuple[str, str]] = {}
        given_up: set[tuple[str, str]] = set()
        due: set[tuple[int, int]] = set()
        reports: set[str] = set()
        self.answers: dict[tuple[int, int], int] = {}
        for event in run.journal:
            match event:
                case e.AgentChild() if not event.error:
                    if event.reports:
                        reports.add(event.child_run_id)
                    if event.waits:
                        waits[event.step, event.index] = (event.child_run_id, "open")
                case e.AgentMessage() if event.waits:
                    waits[event.step, event.index] = (event.to, event.key)
                case e.AgentToolComplete():
                    place = (event.step, event.index)
                    self.answers[place] = self.answers.get(place, 0) + 1
                    if place in due:
                        due.discard(place)
                    elif place in waits:
                        given_up.add(waits[place])
                    waits.pop(place, None)
                case e.SessionTaken():
                    for item in event.items:
                        if isinstance(item, e.SessionMessage):
                            self.heard.append(item.content)
                        if isinstance(item, e.SessionResult):
                            matched = {
                                place
                                for place, (child, key) in waits.items()
                                if child == item.child_run_id
                                and (item.final or key in item.answers)
                            }
                            due |= matched
                            dropped = any((item.child_run_id, k) in given_up for k in item.answers)
                            if item.session and not matched and not dropped:
                                self.told.append(item.child_run_id)
        assert not due, "a result that a call waited for, and no answer"
        self.waits = waits


# ── the machine ──────────────────────────────────────────────────────────────────────────────

numbers = st.integers(0, 20)


class Families(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.texts = 0
        self.terminated: set[str] = set()

    def text(self) -> str:
        self.texts += 1
        return f"u{self.texts}"

    @initialize()
    def begin(self) -> None:
        self.world.open("main", "begin")

    def pick(self, number: int, runs: list[Run]) -> Run:
        assume(runs)
        return runs[number % len(runs)]

    def asked(self) -> list[Run]:
        return [r for r in self.world.runs.values() if any(isinstance(a, CallModel) for a in r.due)]

    def _interesting(self) -> list[Run]:
        """Runs at work first: what disturbs them says the most."""
        live = [run for run in self.world.runs.values() if not run.closed]
        return sorted(live, key=lambda run: not run.thread.in_session)

    def calling(self) -> list[Run]:
        return [r for r in self.world.runs.values() if any(isinstance(a, RunTool) for a in r.due)]

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    @rule(number=numbers)
    def somebody_writes(self, number: int) -> None:
        run = self.pick(number, [r for r in self.world.runs.values() if not r.closed])
        self.world.deliver(run.run_id, e.SessionMessage(content=self.text()))
        self.world.settle()

    @precondition(lambda self: self.asked())
    @rule(
        number=numbers,
        kinds=st.lists(st.sampled_from(["w", "x", "y", "z", "write", "look", "ghost"]), max_size=3),
        end=st.sampled_from(["", "", "finish", "give_up"]),
        which=numbers,
        eager=st.integers(0, 4),
    )
    def a_model_answers(
        self, number: int, kinds: list[str], end: str, which: int, eager: int
    ) -> None:
        """A reply, and mostly what its calls come to at once."""
        run = self.pick(number, self.asked())
        (asked,) = (a for a in run.due if isinstance(a, CallModel))
        side = DEFINITIONS.side(run.thread.agent, run.thread.side)
        build_request(run.thread, side, ())  # Raises while a call is open.
        calls: list[ToolCall] = []
        if run.thread.side == "side_a":
            calls = [self._call(run, kind, which + at) for at, kind in enumerate(kinds)]
            if end and run.parent is not None:
                calls.append(call(end, **{"result" if end == "finish" else "reason": self.text()}))
        reply = ModelReply(text="" if calls else self.text(), calls=tuple(calls))
        self.world.signal(run, ModelReplied(reply, asked.turn))
        for _ in range(len(calls) if eager else 0):
            if any(isinstance(activity, RunTool) for activity in run.due):
                self._carry_out(run, which, fails=False)

    def _call(self, run: Run, kind: str, which: int) -> ToolCall:
        if kind in ("w", "x"):
            return call(kind, message=self.text())
        if kind in ("y", "z"):
            return call(
                "subagent_create", agent=kind, name=kind, arguments={"message": self.text()}
            )
        if kind == "write":
            known = [child.run_id for child in run.thread.family.registry] or ["nobody"]
            reference = known[which % len(known)]
            return call("subagent_message", reference=reference, message=self.text())
        return call(kind)

    @precondition(lambda self: self.calling())
    @rule(number=numbers, which=numbers, fails=st.booleans())
    def a_call_is_carried_out(self, number: int, which: int, fails: bool) -> None:
        self._carry_out(self.pick(number, self.calling()), which, fails=fails)

    def _carry_out(self, run: Run, which: int, *, fails: bool) -> None:
        due = [activity for activity in run.due if isinstance(activity, RunTool)]
        activity = due[which % len(due)]
        side = DEFINITIONS.side(run.thread.agent, run.thread.side)
        if activity.name in side.tools:
            signal: Signal = ToolFinished(activity.step, activity.index, self.text(), fails)
        else:
            signal = self._look_up(activity, side)
        self.world.signal(run, signal)

    def _look_up(self, activity: RunTool, side: Any) -> Delegated:
        try:
            request, problem = read_call(side, activity.name, activity.arguments), ""
        except BadArguments as error:
            request, problem = ChildRequest(agent="w"), error.message
        return Delegated(
            step=activity.step, index=activity.index, request=request, problem=problem,
            child_run_id=f"run{len(self.world.runs)}", now=self.texts, budget=self.world.budget(),
        )  # fmt: skip

    @precondition(lambda self: self.asked())
    @rule(number=numbers)
    def a_model_fails(self, number: int) -> None:
        run = self.pick(number, self.asked())
        (asked,) = (a for a in run.due if isinstance(a, CallModel))
        failure = Failure(kind="auth", error="no key", retryable=False)
        side, before = run.thread.side, len(run.journal)
        self.world.signal(run, ModelFailed(failure, asked.turn))
        written = run.journal[before:]
        assert isinstance(written[0], e.SessionEnd)
        # Whatever it was told was in the request: only what has not been taken is worth a turn.
        if len(written) > 1 and isinstance(written[1], e.SessionStart):
            assert written[1].side != side or isinstance(written[2], e.SessionTaken)

    @rule(number=numbers)
    def somebody_interrupts(self, number: int) -> None:
        run = self.pick(number, self._interesting())
        self.world.deliver(run.run_id, e.SessionAbort(reason="wait"))
        self.world.settle()

    @rule(number=numbers)
    def somebody_terminates(self, number: int) -> None:
        run = self.pick(number, self._interesting())
        assume(run.parent is not None or number % 3 == 0)
        self.terminated.add(run.run_id)
        self.world.deliver(run.run_id, e.SessionTerminate(reason="enough"))
        self.world.settle()

    @rule(number=numbers)
    def a_run_is_restored(self, number: int) -> None:
        """The process of one run stops; what is under way there is lost."""
        run = self.pick(number, [r for r in self.world.runs.values() if not r.is_over])
        assume(run.thread.restarts < 3)
        run.thread = fold_all(EMPTY, run.journal)
        run.due = ()
        if run.thread.phase == "live" and not run.thread.parked and not run.thread.waits:
            self.world.signal(run, Restored("crash"))
        else:
            self.world.go_on(run)
            self.world.settle()

    @rule(slow=st.integers(0, 3))
    def the_world_is_slow_or_not(self, slow: int) -> None:
        self.world.is_slow = slow == 0
        self.world.settle()

    @precondition(lambda self: self.world.queue)
    @rule(number=numbers)
    def one_run_looks(self, number: int) -> None:
        self.world.let_one_look(number)

    def teardown(self) -> None:
        self.world.is_slow = False
        self.world.settle()
        for check in (
            self.every_result_is_told_once_or_answers_a_call,
            self.every_session_of_a_child_has_one_result,
            self.what_is_terminated_leaves_no_child_behind,
            self.nobody_waits_for_what_will_not_come,
            self.no_run_idles_with_mail,
        ):
            check()

    # ── what must hold ───────────────────────────────────────────────────────────────────────

    @invariant()
    def the_journal_is_the_state(self) -> None:
        for run in self.world.runs.values():
            assert fold_all(EMPTY, run.journal) == run.thread

    @invariant()
    def every_result_is_told_once_or_answers_a_call(self) -> None:
        for run in self.world.runs.values():
            ledger = Ledger(run)
            assert all(count == 1 for count in ledger.answers.values())
            assert list(self._told(run)) == ledger.told

    def _told(self, run: Run) -> Iterator[str]:
        for message in run.thread.transcript:
            if isinstance(message, UserMessage) and message.content.startswith("Subagent ("):
                yield message.content.partition("reference: ")[2].partition(")")[0]

    @invariant()
    def every_session_of_a_child_has_one_result(self) -> None:
        results = [
            item
            for run in self.world.runs.values()
            for item in run.accepted
            if isinstance(item, e.SessionResult) and item.session
        ] + [x for x in self.world.letters if isinstance(x, e.SessionResult) and not x.lane]
        told = sorted(
            (item.child_run_id, item.session)
            for item in results
            if isinstance(item, e.SessionResult)
        )
        ended = sorted(
            (run.run_id, event.session)
            for run in self.world.runs.values()
            if run.parent is not None
            for event in run.journal
            if isinstance(event, e.SessionEnd)
        )
        assert [each for each in told if each[1]] == ended, "one for each, and one only"

    @invariant()
    def one_start_and_one_end(self) -> None:
        for run in self.world.runs.values():
            types = [event.type for event in run.journal if event.type.startswith("agent:")]
            assert types.count("agent:start") == bool(types)
            assert types.count("agent:complete") == run.is_over
            assert not run.is_over or types[-1] == "agent:complete"

    @invariant()
    def messages_are_heard_in_the_order_they_were_accepted(self) -> None:
        for run in self.world.runs.values():
            sent = [x.content for x in run.accepted if isinstance(x, e.SessionMessage)]
            heard = Ledger(run).heard
            assert heard == sent[: len(heard)]
            if run.agent == "main":
                words = [m.content for m in run.thread.transcript if isinstance(m, UserMessage)]
                assert [text for text in words if text in heard] == heard

    @invariant()
    def caps_and_budgets_hold(self) -> None:
        for run in self.world.runs.values():
            for name in ("y", "z"):
                live = [
                    r
                    for r in self.world.runs.values()
                    if r.parent == run.run_id and r.agent == name and not r.is_over
                ]
                assert len(live) <= CAP
            assert run.thread.origin.depth <= MAX_DEPTH
        assert self.world.budget().live <= MAX_LIVE

    @invariant()
    def what_is_terminated_leaves_no_child_behind(self) -> None:
        if self.world.queue:
            return
        for run in self.world.runs.values():
            parent = self.world.runs.get(run.parent or "")
            if parent is not None and parent.thread.terminated is not None:
                assert run.is_over

    @invariant()
    def nobody_waits_for_what_will_not_come(self) -> None:
        if self.world.queue:
            return
        for run in self.world.runs.values():
            for child, _ in Ledger(run).waits.values():
                assert not run.is_over
                other = self.world.runs[child]
                assert not other.is_over, "its end would have answered the call"
                assert other.due or other.waiting or other.thread.waits, "it can go on"
            if not run.is_over and run.thread.waits:
                assert not run.due

    @invariant()
    def no_run_idles_with_mail(self) -> None:
        if self.world.queue:
            return
        for run in self.world.runs.values():
            if run.inbox and not run.is_over:
                assert run.due or run.thread.waits or run.thread.open is not None

    @invariant()
    def the_registry_says_who_lives(self) -> None:
        for run in self.world.runs.values():
            for child in run.thread.family.registry:
                other = self.world.runs[child.run_id]
                # What is on its way is not known yet; of a parent whose inbox is closed, since it
                # is terminated, it never will be: the result is a letter.
                is_on_its_way = any(isinstance(item, e.SessionResult) for item in run.inbox)
                if not (run.is_over or run.closed or is_on_its_way):
                    assert child.ended == other.is_over
                assert other.thread.status in ("running", "idle", "terminated")
                assert (other.thread.status == "running") == other.thread.in_session

    @invariant()
    def both_views_are_fit_for_a_provider(self) -> None:
        for run in self.world.runs.values():
            for view in (run.thread.transcript, run.thread.transcript_b):
                for message in view:
                    if isinstance(message, AssistantMessage):
                        assert not (message.is_given and message.calls)


Families.TestCase.settings = settings(
    max_examples=examples(250),
    stateful_step_count=40,
    deadline=None,
    # A rule that finds no run to act on gives its example up.
    suppress_health_check=[HealthCheck.filter_too_much],
)
TestFamilies = pytest.mark.spec("C-07", "C-10", "C-14", "C-18", "T-02", "T-05", "S-07")(
    Families.TestCase
)


@pytest.mark.spec("C-10", "S-07")
def test_two_results_of_one_child_in_one_batch_answer_a_call_once() -> None:
    """Found by the machine: the end of the child's session, and that of its run."""
    world = World()
    main = world.open("main", "begin")
    (asked,) = main.due
    reply = ModelReply(calls=(call("w", message="go"),))
    world.signal(main, ModelReplied(reply, asked.turn))
    (started,) = main.due
    request = ChildRequest(agent="w", message="go")
    found = Delegated(step=started.step, index=0, request=request, child_run_id="run1")
    world.signal(main, found)
    world.is_slow = True
    world.deliver("run1", e.SessionAbort(reason="enough"))
    world.go_on(world.runs["run1"])
    assert [item.session for item in main.inbox if isinstance(item, e.SessionResult)] == [1, 0]
    world.is_slow = False
    world.settle()
    assert Ledger(main).answers == {(1, 0): 1}


@pytest.mark.spec("T-05", "T-06", "C-14")
def test_a_child_that_ends_after_its_parent_was_terminated_leaves_a_letter() -> None:
    """Found by the machine: both are terminated, and the child is the first to look."""
    world = World()
    main = world.open("main", "begin")
    (asked,) = main.due
    create = call("subagent_create", agent="z", name="Bob", arguments={"message": "go"})
    world.signal(main, ModelReplied(ModelReply(calls=(create,)), asked.turn))
    (started,) = main.due
    side = DEFINITIONS.side("main", main.thread.side)
    request = read_call(side, started.name, started.arguments)
    found = Delegated(step=started.step, index=0, request=request, child_run_id="run1")
    world.signal(main, found)
    child = world.runs["run1"]
    assert [each.run_id for each in main.thread.family.registry] == ["run1"]
    world.is_slow = True
    world.deliver("run0", e.SessionTerminate(reason="enough"))
    world.deliver("run1", e.SessionTerminate(reason="enough"))
    world.queue.remove(child)
    world.go_on(child)
    assert child.is_over and not main.is_over
    assert not main.thread.family.registry[0].ended
    letters = [x.child_run_id for x in world.letters if isinstance(x, e.SessionResult)]
    assert letters and set(letters) == {"run1"}
    world.is_slow = False
    world.settle()
    assert main.is_over and main.thread.terminated is not None
