"""Runs of two sides: two models talk to each other until one of them ends it (SA 2–5)."""

from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest
from support.agents import Observer, assert_one_life, heard
from support.anthropic_wire import anthropic_problems
from support.crash_journal import CrashJournal
from support.openai_wire import openai_problems
from support.profiles import portion

from hubbub import (
    AgentDefinition,
    Event,
    Message,
    PromptDefinition,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
)
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.tools import ToolError, tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, UserMessage
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.anthropic import model as anthropic_model
from hubbub.runtime.models.openai import model as openai_model
from hubbub.runtime.models.scripted import (
    Fault,
    FunctionModel,
    ScriptedModel,
    ScriptItem,
    call,
    reply,
)

pytestmark = pytest.mark.anyio


@tool
async def draw(what: str) -> str:
    await anyio.sleep(1)
    return f"a drawing of {what}"


@tool
def approve(summary: str = "") -> str:
    return "approval noted"


@tool
def give_up(reason: str) -> str:
    return "noted"


@tool
def hand_in(note: str) -> dict[str, Any]:
    return {"note": note, "internal": "not for the other side"}


@tool
def progress(status: str) -> str:
    return f"shown: {status}"


class Side:
    """A side with a script, and the requests it was sent."""

    def __init__(self, *script: ScriptItem, tools: Any = (), latency: float = 1.0, **config: Any):
        self.requests: list[ModelRequest] = []
        self._scripted = ScriptedModel(script, latency=latency)
        self._tools = tools
        self._prompt = {key: config.pop(key) for key in ("parallel_tool_calls",) if key in config}
        self._config = config

    async def _answer(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        return await self._scripted.call(request)

    def config(self, name: str) -> SideConfig:
        prompt = PromptDefinition(
            name=name, prompt=f"You are the {name}.", model=FunctionModel(self._answer),
            tools=self._tools, **self._prompt,
        )  # fmt: skip
        return SideConfig(prompt=prompt, label=name.title(), **self._config)

    @property
    def last(self) -> list[tuple[str, str]]:
        """Its latest request: who speaks, and what."""
        return [
            (type(m).__name__[:4].lower(), m.content if isinstance(m, UserMessage) else m.text)
            for m in self.requests[-1].messages
        ]


def pair(worker: Side, reviewer: Side, max_turns: int = 20) -> AgentDefinition:
    return AgentDefinition(
        name="pair", type="dual_ai", max_session_turns=max_turns,
        side_a=worker.config("worker"), side_b=reviewer.config("reviewer"),
    )  # fmt: skip


def turns(events: list[Event]) -> list[tuple[str, str, str]]:
    """The turns that were handed over: to whom, why, with what."""
    return [(x.side, x.reason, x.content) for x in events if isinstance(x, e.SessionTurn)]


APPROVE = SessionToolBinding("approve", message_property="summary")


# ── how a session goes, and ends ─────────────────────────────────────────────────────────────


@pytest.mark.spec("S-02", "S-05", "R-14")
async def test_a_worker_and_a_reviewer_talk_until_one_of_them_approves(
    journal: Journal, ports: Ports
) -> None:
    worker = Side(reply("first I draw", call("draw", what="a cat")), "a cat", "a red cat",
                  tools=(draw,))  # fmt: skip
    reviewer = Side("make it red", reply("good", call("approve", summary="a red cat, approved")),
                    tools=(approve,), session_stop=APPROVE)  # fmt: skip
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "draw a cat")
        outcome = await run.result()
        assert (await run.finished()).output == outcome.output
        info = await journal.info(run.run_id)
    assert (outcome.success, outcome.outcome, outcome.reason, outcome.output) == (
        True, "completed", "", "a red cat, approved",
    )  # fmt: skip
    assert worker.last == [
        ("user", "draw a cat"), ("assi", "first I draw"), ("assi", "a cat"), ("user", "make it red")
    ]  # fmt: skip
    assert reviewer.last == [
        ("assi", "draw a cat"), ("user", "first I draw"), ("user", "a cat"),
        ("assi", "make it red"), ("user", "a red cat"),
    ]  # fmt: skip
    assert {r.system for r in reviewer.requests} == {"You are the reviewer."}
    assert [spec.name for spec in reviewer.requests[0].tools] == ["approve"]
    assert "drawing" not in str(reviewer.requests), "nothing of the other's tools"
    assert "make it red" in str(worker.requests) and "approve" not in str(worker.requests)
    # What an observer sees: who speaks in which turn, one end of the session and of the run.
    assert turns(observer.of(run.run_id)) == [
        ("side_b", "response", ""), ("side_a", "response", ""), ("side_b", "response", "")
    ]  # fmt: skip
    texts = [(x.side, x.label, x.turn) for x in observer.all("agent:text")]
    assert texts == [
        ("side_a", "Worker", 1), ("side_a", "Worker", 1), ("side_b", "Reviewer", 2),
        ("side_a", "Worker", 3), ("side_b", "Reviewer", 4),
    ]  # fmt: skip
    assert observer.types(run.run_id)[-2:] == ["session:end", "agent:complete"]
    assert assert_one_life(observer.events, run.run_id).output == "a red cat, approved"
    assert info is not None and info.status == "ended", "its session was the run (decision 12)"


@pytest.mark.spec("S-05")
async def test_in_the_string_form_the_payload_is_what_the_tool_returned(
    journal: Journal, ports: Ports
) -> None:
    worker = Side("a cat")
    reviewer = Side(call("approve", summary="unread"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("pair", "draw a cat")
    assert (outcome.outcome, outcome.output) == ("completed", "approval noted")


@pytest.mark.spec("S-05", "S-07")
async def test_a_binding_whose_tool_fails_does_not_end_the_session(
    journal: Journal, ports: Ports
) -> None:
    ran: list[str] = []

    @tool
    def approve(summary: str) -> str:
        ran.append(summary)
        if len(ran) == 1:
            raise ToolError("the form is incomplete")
        return "noted"

    worker = Side("a cat", "here you are again")
    reviewer = Side(
        reply("", call("approve", wrong=1), call("approve", summary="one")), "not yet",
        call("approve", summary="two"), tools=(approve,), session_stop=APPROVE,
    )  # fmt: skip
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair", "draw a cat")
        outcome = await run.finished()
    assert ran == ["one", "two"]
    assert (outcome.outcome, outcome.output) == ("completed", "two")
    step = next(m for m in reviewer.requests[1].messages if getattr(m, "calls", ()))
    assert isinstance(step, AssistantMessage)
    assert step.calls[0].output.startswith("Bad arguments for approve")
    assert (step.calls[1].output, step.calls[1].is_error) == ("the form is incomplete", True)


@pytest.mark.spec("S-05", "S-07")
async def test_a_session_that_fails_is_a_failure_without_an_error(
    journal: Journal, ports: Ports
) -> None:
    worker = Side(
        reply("sorry", call("give_up", reason="no paint"), call("draw", what="a cat")),
        tools=(draw, give_up), session_fail=SessionToolBinding("give_up", "reason"),
        parallel_tool_calls=True,
    )  # fmt: skip
    async with Runtime([pair(worker, Side())], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "draw a cat")
        outcome = await run.result()
    assert (outcome.success, outcome.outcome, outcome.reason, outcome.output) == (
        False, "failed", "no paint", "no paint",
    )  # fmt: skip
    assert observer.all("agent:failed") == []
    assert [x.name for x in observer.all("agent:tool:start")] == ["give_up"]
    results = [(x.name, x.is_error, x.output) for x in observer.all("agent:tool:complete")]
    assert results == [
        ("give_up", False, "noted"), ("draw", True, "skipped: the session ended with give_up")
    ]  # fmt: skip
    assert_one_life(observer.events, run.run_id)


@pytest.mark.spec("S-05")
async def test_a_status_is_published_and_the_talk_goes_on(journal: Journal, ports: Ports) -> None:
    worker = Side(call("progress", status="half way"), "done", tools=(progress,),
                  session_status=SessionToolBinding("progress", "status"))  # fmt: skip
    reviewer = Side(call("approve"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        assert (await runtime.run("pair", "go")).success
    (status,) = observer.all("agent:status")
    assert (status.status, status.side, status.turn) == ("half way", "side_a", 1)


@pytest.mark.spec("S-06")
@pytest.mark.parametrize("limit", [1, 3])
async def test_the_last_turn_that_is_allowed_ends_the_session(
    limit: int, journal: Journal, ports: Ports
) -> None:
    worker, reviewer = Side("a1", "a2", "a3"), Side("b1", "b2")
    agents = [pair(worker, reviewer, max_turns=limit)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "talk")
        outcome = await run.result()
    last = ["a1", "b1", "a2"][limit - 1]
    assert (outcome.success, outcome.outcome, outcome.reason, outcome.output) == (
        False, "limit", "limit", last,
    )  # fmt: skip
    assert len(worker.requests) + len(reviewer.requests) == limit
    assert len(turns(observer.of(run.run_id))) == limit - 1
    assert assert_one_life(observer.events, run.run_id).outcome == "limit"


@pytest.mark.spec("S-06", "S-09", "S-02")
async def test_a_side_out_of_steps_hands_its_turn_over_whatever_it_has_to_say(
    journal: Journal, ports: Ports
) -> None:
    worker = Side(
        call("draw", what="a"), call("draw", what="b"), reply("more", call("draw", what="c")),
        call("draw", what="d"), tools=(draw,), max_steps=2,
    )  # fmt: skip
    reviewer = Side(
        "and?", reply("good", call("approve")), tools=(approve,), session_stop="approve"
    )
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "draw")
        assert (await run.finished()).success
    assert turns(observer.of(run.run_id)) == [
        ("side_b", "limit", "(no message)"), ("side_a", "response", ""), ("side_b", "limit", "")
    ]  # fmt: skip
    assert reviewer.last == [
        ("assi", "draw"), ("user", "(no message)"), ("assi", "and?"), ("user", "more")
    ]  # fmt: skip
    assert "(no message)" not in str(worker.requests)


@pytest.mark.spec("S-04")
async def test_without_stop_on_response_a_side_goes_on_until_its_stop_tool(
    journal: Journal, ports: Ports
) -> None:
    worker = Side(
        "let me think", "I have it", reply("look:", call("hand_in", note="the idea")),
        tools=(hand_in,), stop_on_response=False, stop_tool="hand_in",
        stop_tool_response_property="note",
    )  # fmt: skip
    reviewer = Side(call("approve"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair", "think")
        assert (await run.finished()).success
        recorded = await run.read()
    for asked, request in enumerate(worker.requests):
        texts = heard(request)
        assert texts == (["think", "(continue)"] if asked else ["think"])
        assert request.messages[-1] == UserMessage(content=texts[-1])
    assert "(continue)" not in str(recorded), "it is not stored"
    assert turns(recorded) == [("side_b", "stop_tool", "the idea")]
    assert reviewer.last == [
        ("assi", "think"), ("user", "let me think"), ("user", "I have it"), ("user", "look:"),
        ("user", "the idea"),
    ]  # fmt: skip
    assert "internal" not in str(reviewer.requests)


@pytest.mark.spec("S-04")
@pytest.mark.parametrize("arguments", [{"note": "x"}, {"wrong": "x"}])
async def test_a_stop_tool_with_bad_arguments_does_not_end_the_turn(
    arguments: dict[str, str], journal: Journal, ports: Ports
) -> None:
    @tool
    def hand_in(note: str) -> str:
        raise ToolError("the tray is full")

    worker = Side(call("hand_in", **arguments), "in my own words", tools=(hand_in,),
                  stop_tool="hand_in")  # fmt: skip
    reviewer = Side(call("approve"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair", "think")
        assert (await run.finished()).success
    said = "the tray is full" if "note" in arguments else "in my own words"
    assert reviewer.last == [("assi", "think"), ("user", said)], "success or not, if it ran"


@pytest.mark.spec("S-07", "S-08")
async def test_a_batch_with_a_bound_tool_runs_one_by_one_though_parallel_calls_are_enabled(
    journal: Journal, ports: Ports
) -> None:
    worker = Side(
        reply("", call("draw", what="a"), call("draw", what="b")),
        reply("", call("draw", what="a"), call("approve"), call("draw", what="b")),
        tools=(draw, approve), session_stop="approve", parallel_tool_calls=True,
    )  # fmt: skip
    async with Runtime([pair(worker, Side())], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "draw")
        assert (await run.finished()).output == "approval noted"
    marks = [
        ("+" if x.type == "agent:tool:start" else "-") + x.call_id
        for x in observer.of(run.run_id)
        if x.type.startswith("agent:tool:")
    ]
    assert marks[:2] == ["+1.0", "+1.1"] and set(marks[2:4]) == {"-1.0", "-1.1"}
    assert marks[4:] == ["+2.0", "-2.0", "+2.1", "-2.1", "-2.2"]
    assert observer.all("agent:tool:complete")[-1].output.startswith("skipped: ")


# ── what comes from outside ──────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-02", "C-08", "S-02")
async def test_messages_wait_for_side_as_next_step_and_are_side_bs_own_words(
    journal: Journal, ports: Ports
) -> None:
    worker = Side(call("draw", what="a"), "a1", "a2", tools=(draw,))
    reviewer = Side("b1", reply("fine", call("approve")), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair", "go")
        await anyio.sleep(0.5)
        run.send("while A is asked")  # seen at its next step, after its tool's result
        await anyio.sleep(3)
        assert len(reviewer.requests) == 1
        run.send("while B is asked")  # seen when it is A's turn again
        assert (await run.finished()).success
    assert [heard(r) for r in worker.requests] == [
        ["go"], ["go", "while A is asked"], ["go", "while A is asked", "b1", "while B is asked"]
    ]  # fmt: skip
    assert reviewer.last == [
        ("assi", "go"), ("assi", "while A is asked"), ("user", "a1"), ("assi", "b1"),
        ("assi", "while B is asked"), ("user", "a2"),
    ]  # fmt: skip
    given = [m.is_given for m in reviewer.requests[-1].messages if isinstance(m, AssistantMessage)]
    assert given == [True, True, False, True]


@pytest.mark.spec("T-02", "T-09")
async def test_a_message_whose_side_never_steps_again_is_a_dead_letter(
    journal: Journal, ports: Ports
) -> None:
    worker = Side("a1")
    reviewer = Side(call("approve"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "go")
        await anyio.sleep(1.5)
        assert (await run.send("too late")).accepted
        assert (await run.finished()).success
        late = await run.send("later still")
    assert not late.accepted and "ended" in late.reason
    letters = [x.message.content for x in observer.all("hub:dead_letter")]
    assert letters == ["too late", "later still"]


@pytest.mark.spec("S-02")
async def test_a_pair_without_input_waits_for_its_first_message(
    journal: Journal, ports: Ports
) -> None:
    worker = Side("a1")
    reviewer = Side(call("approve"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair")
        await anyio.sleep(3600)
        assert worker.requests == [] and runtime.hub.statistics().parked == 1
        run.send("go")
        assert (await run.finished()).success
    assert worker.last == [("user", "go")]


@pytest.mark.spec("S-06", "M-03")
async def test_a_model_that_fails_ends_the_session_and_so_the_run(
    journal: Journal, ports: Ports
) -> None:
    worker, reviewer = Side("a1"), Side(Fault("server", times=None), "never")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "go")
        outcome = await run.finished()
    assert (outcome.success, outcome.outcome, outcome.output) == (False, "failed", "a1")
    assert len(reviewer.requests) == 5 and outcome.reason
    assert observer.all("agent:failed") == [], "no error ended the run; its session did"
    assert_one_life(observer.events, run.run_id)


@pytest.mark.spec("T-10", "S-02")
async def test_an_interruption_ends_the_session_of_both_sides(
    journal: Journal, ports: Ports
) -> None:
    worker, reviewer = Side("a1"), Side(call("draw", what="a"), tools=(draw,))
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("pair", "go")
        await anyio.sleep(2.5)
        run.interrupt("enough")
        outcome = await run.finished()
    assert (outcome.outcome, outcome.reason) == ("interrupted", "enough")
    (result,) = observer.all("agent:tool:complete")
    assert (result.side, result.is_error, result.output) == ("side_b", True, "interrupted: enough")
    assert_one_life(observer.events, run.run_id)


# ── what a provider is sent ──────────────────────────────────────────────────────────────────


def as_sent(body: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body))


@pytest.mark.spec("S-02", "S-07", "M-03")
async def test_every_request_of_both_sides_is_one_that_providers_accept(
    journal: Journal, ports: Ports
) -> None:
    work = reply("", call("draw", what="x"), call("nothing"), call("draw", wrong=1))
    worker = Side(work, work, " still here ", work, work, work, tools=(draw,), max_steps=3)
    reviewer = Side(
        reply("\n", call("draw", what="y")), "go on", "go on", reply("", call("approve")),
        tools=(draw, approve), session_stop="approve", stop_on_response=False, max_steps=2,
    )  # fmt: skip
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair", "go")
        for number in range(12):
            await anyio.sleep(0.7)
            run.send(f"message {number}")
        assert (await run.finished()).outcome == "completed"
    assert len(worker.requests) == 6 and len(reviewer.requests) == 4
    for request in (*worker.requests, *reviewer.requests):
        body = anthropic_model.request_body(request, model="m", max_tokens=100)
        assert anthropic_problems(as_sent(body)) == []
        assert openai_problems(as_sent(openai_model.request_body(request, model="m"))) == []


# ── after a restart ──────────────────────────────────────────────────────────────────────────


class Memory:
    """A pair that can be held in several processes, and what it did outside of them."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

    def agents(self) -> list[AgentDefinition]:
        @tool
        async def risky(number: int) -> str:
            self.ran[f"risky {number}"] += 1
            await anyio.sleep(0.5)
            return f"result {number}"

        @tool(idempotent=True)
        async def hand_in(note: str) -> str:
            self.ran[note] += 1
            await anyio.sleep(0.5)
            return note

        @tool(idempotent=True)
        async def finish(summary: str) -> str:
            self.ran[summary] += 1
            await anyio.sleep(0.5)
            return "noted"

        worker = Side(
            reply("I try", call("risky", number=1)), call("hand_in", note="my note"),
            call("risky", number=2), "that is all",
            tools=(risky, hand_in), stop_tool="hand_in", max_steps=2,
        )  # fmt: skip
        reviewer = Side(
            "go on", reply("well", call("finish", summary="the end")),
            tools=(finish,), session_stop=SessionToolBinding("finish", "summary"),
        )  # fmt: skip
        return [pair(worker, reviewer)]


async def live(memory: Memory, store: Any, ports: Ports, run_id: str) -> bool:
    """One process, until the run or the journal is over; whether the run is."""
    over = False
    async with Runtime(memory.agents(), store=store, ports=ports, grace=0) as runtime:

        async def hold() -> None:
            nonlocal over
            await runtime.hub.open("pair", "the task", run_id=run_id)
            await runtime.finished(run_id)
            over = True
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            with anyio.fail_after(1000):
                await store.crashed.wait()
            group.cancel_scope.cancel()
    return over


def killed(journal: MemoryJournal, after: int | None, late: bool) -> tuple[CrashJournal, Any]:
    crash = CrashJournal(journal, after)
    if not late:
        return crash, crash
    store: Any = LateJournal(crash)  # type: ignore[arg-type]
    store.crashed = crash.crashed
    return crash, store


@pytest.mark.spec("S-02", "S-04", "S-05", "S-06", "S-07")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_killed_after_any_commit_the_two_sides_come_to_the_same_end(late: bool) -> None:
    async def whole_or_killed(after: int | None) -> tuple[list[Event], Memory, int]:
        memory, ports, journal = Memory(), virtual_ports(), MemoryJournal()
        run_id = ports.ids.run_id(ports.clock.now())
        crash, store = killed(journal, after, late)
        assert await live(memory, store, ports, run_id) is (after is None)
        if after is not None:
            assert await live(memory, killed(journal, None, late)[1], ports, run_id)
        loaded = await journal.load(run_id)
        assert loaded is not None
        return list(loaded.events), memory, crash.commits

    whole, _, commits = await whole_or_killed(None)
    end = fold_all(EMPTY, whole)
    assert end.outcome is not None and end.outcome.outcome == "completed"
    assert commits >= 12 and len(turns(whole)) == 3
    for after in portion(range(commits)):
        events, memory, _ = await whole_or_killed(after)
        thread = fold_all(EMPTY, events)
        assert thread.outcome == end.outcome, after
        assert turns(events) == turns(whole), after
        for mine, theirs in (
            (thread.transcript, end.transcript), (thread.transcript_b, end.transcript_b)
        ):  # fmt: skip
            assert len(mine) == len(theirs)
            for one, two in zip(mine, theirs, strict=True):
                if one != two:  # only what nobody can know: whether a lost call had its effect
                    assert isinstance(one, AssistantMessage) and isinstance(two, AssistantMessage)
                    assert [c.output for c in one.calls] == [LOST]
                    assert one.calls[0].name == "risky" and one.text == two.text
        assert all(memory.ran[f"risky {n}"] <= 1 for n in (1, 2))


# ── silent and triggering (T-13) ─────────────────────────────────────────────────────────────


@pytest.mark.spec("T-13")
@pytest.mark.parametrize("triggers", [True, False], ids=["queued", "injected"])
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "shown"])
async def test_what_is_hidden_and_what_forces_a_turn_are_two_matters(
    silent: bool, triggers: bool, journal: Journal, ports: Ports
) -> None:
    """Said while the run is idle: a queued message is answered, an injected one seen later."""
    requests: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        requests.append(heard(request))
        return "answer"

    def once(state: RunState, outcome: Any) -> None:
        if outcome.session == 1:
            say = state.queue_message if triggers else state.inject_message
            say(Message("by the way", silent=silent))

    prompt = PromptDefinition(
        name="p", prompt="", model=FunctionModel(answer, latency=1), hooks=("once",)
    )
    agents = [AgentDefinition(name="one", side_a=SideConfig(prompt=prompt))]
    hooks = [Hook("once", "after_session", once)]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub, "session:message")
        run = await runtime.start("one", "hello")
        await run.result()
        await anyio.sleep(60)
        answered = [["hello"], ["hello", "by the way"]] if triggers else [["hello"]]
        assert requests == answered, "it forces a turn if it was queued, silent or not"
        await run.send("and now?")
        await run.result()
        assert requests[-1] == ["hello", "by the way", "and now?"], "the model sees it in any case"
        sessions = [x for x in await run.read() if isinstance(x, e.SessionStart)]
    assert len(sessions) == (3 if triggers else 2)
    marks = [(x.content, x.silent, x.triggers) for x in observer.events]
    assert marks == [("by the way", silent, triggers), ("and now?", False, True)]


@pytest.mark.spec("T-13", "T-02")
@pytest.mark.parametrize("triggers", [True, False], ids=["queued", "injected"])
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "shown"])
async def test_said_by_a_tool_at_work_all_four_are_seen_at_the_next_step(
    silent: bool, triggers: bool, journal: Journal, ports: Ports
) -> None:
    @tool
    async def speak(state: RunState) -> str:
        say = state.queue_message if triggers else state.inject_message
        await say(Message("by the way", silent=silent))
        return "said"

    worker = Side(call("speak"), "a1", tools=(speak,))
    reviewer = Side(call("approve"), tools=(approve,), session_stop="approve")
    async with Runtime([pair(worker, reviewer)], store=journal, ports=ports) as runtime:
        run = await runtime.start("pair", "go")
        assert (await run.finished()).success
        sessions = [x for x in await run.read() if isinstance(x, e.SessionStart)]
    assert worker.last == [("user", "go"), ("assi", ""), ("user", "by the way")]
    assert len(sessions) == 1
