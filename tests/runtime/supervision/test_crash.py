"""Killed after any commit, a conversation goes on to the same end (R-02, S-07, T-03)."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import assert_one_life, model_agent
from support.crash_journal import CrashJournal
from support.profiles import portion

from hubbub import AgentDefinition, Message, RunContext, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, UserMessage
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import (
    Fault,
    FunctionModel,
    ScriptedModel,
    ScriptItem,
    call,
    reply,
)

pytestmark = pytest.mark.anyio


class Conversation:
    """A generated conversation, and a log of the outside effects of having it."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.parallel = bool(seed % 2)
        self.messages = [f"message {number}" for number in range(2)]
        self.script: list[ScriptItem] = []
        self.asked: list[tuple[int, int]] = []
        self.ran: list[tuple[str, int]] = []
        self._done: dict[int, float] = {}
        number = 0
        for text in self.messages:
            for _ in range(draw.randint(1, 2)):
                calls = []
                for _ in range(draw.randint(1, 3)):
                    number += 1
                    self._done[number] = draw.choice([0.0, 0.5, 3.0])
                    calls.append(call(draw.choice(["safe", "safe", "risky"]), number=number))
                if draw.random() < 0.4:
                    self.script.append(Fault("server", times=draw.randint(1, 2)))
                self.script.append(reply(f"step {number}", *calls))
            self.script.append(f"answer to {text}")

    def agent(self) -> AgentDefinition:
        scripted = ScriptedModel(self.script, latency=1)

        async def answer(request: ModelRequest) -> ModelReply:
            steps = sum(isinstance(m, AssistantMessage) for m in request.messages)
            self.asked.append((steps, request.attempt))
            return await scripted.call(request)

        @tool(idempotent=True)
        async def safe(number: int) -> str:
            return await self._run("safe", number)

        @tool
        async def risky(number: int) -> str:
            return await self._run("risky", number)

        return model_agent(FunctionModel(answer), safe, risky, parallel_tool_calls=self.parallel)

    async def _run(self, name: str, number: int) -> str:
        self.ran.append((name, number))
        await anyio.sleep(self._done[number])
        return f"result {number}"

    async def hold(self, runtime: Runtime, run_id: str) -> None:
        """What the user does; everything is sent with a key, so it may be sent again."""
        await runtime.hub.open("assistant", run_id=run_id)
        for text in self.messages:
            await runtime.hub.send_to_run(run_id, Message(text, key=text))
            await runtime.result(run_id)
        await runtime.hub.close_run(run_id)
        await runtime.finished(run_id)


class Held:
    """What is left of a conversation in the journal, and outside of it."""

    def __init__(self, conversation: Conversation, events: list[Event]) -> None:
        self.events = events
        self.thread: Thread = fold_all(EMPTY, events)
        self.asked = Counter(conversation.asked)
        self.ran = Counter(conversation.ran)
        self.texts = [x.text for x in events if isinstance(x, e.AgentText)]


async def own_lane(journal: Journal, run_id: str) -> list[Event]:
    loaded = await journal.load(run_id)
    return [] if loaded is None else list(loaded.events)


async def live(
    conversation: Conversation, store: Any, ports: Ports, run_id: str, *, linger: bool = False
) -> bool:
    """One process: until the conversation is over, or its journal is dead.  Was it over?"""
    crashed: anyio.Event = store.crashed
    over = False
    async with Runtime([conversation.agent()], store=store, ports=ports, grace=0) as runtime:

        async def hold() -> None:
            nonlocal over
            await conversation.hold(runtime, run_id)
            over = True
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(hold)
            with anyio.fail_after(10_000):
                await crashed.wait()
            if linger:  # What was under way goes on as far as it gets without writing.
                await anyio.sleep(100)
            group.cancel_scope.cancel()
    return over


class Late(LateJournal):
    """A late journal over one that crashes."""

    def __init__(self, inner: CrashJournal) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self.crashed = inner.crashed


def killed(journal: MemoryJournal, after: int | None, late: bool) -> tuple[CrashJournal, Any]:
    crash = CrashJournal(journal, after)
    return crash, Late(crash) if late else crash


async def held(seed: int, late: bool) -> tuple[Held, int]:
    """The conversation without a crash, and the number of its commits."""
    conversation, ports, journal = Conversation(seed), virtual_ports(), MemoryJournal()
    run_id = ports.ids.run_id(ports.clock.now())
    crash, store = killed(journal, None, late)
    assert await live(conversation, store, ports, run_id)
    return Held(conversation, await own_lane(journal, run_id)), crash.commits


def assert_same(crashed: Held, whole: Held, run_id: str, crashes: int) -> None:
    """The history is the same, but for honest results of lost calls."""
    assert assert_one_life(crashed.events, run_id).outcome == "completed"
    assert crashed.texts == whole.texts
    assert len(crashed.thread.transcript) == len(whole.thread.transcript)
    lost = 0
    for one, two in zip(crashed.thread.transcript, whole.thread.transcript, strict=True):
        if isinstance(one, UserMessage) or isinstance(two, UserMessage):
            assert one == two
            continue
        assert (one.text, one.thinking) == (two.text, two.thinking)
        for mine, theirs in zip(one.calls, two.calls, strict=True):
            assert (mine.id, mine.name, mine.arguments) == (
                theirs.id, theirs.name, theirs.arguments,
            )  # fmt: skip
            if mine.output != theirs.output:
                assert (mine.name, mine.output, mine.is_error) == ("risky", LOST, True)
                lost += 1
    assert lost <= 3 * crashes
    # Nothing was done more often than the crashes explain; nothing risky ever twice.
    assert sum((crashed.asked - whole.asked).values()) <= crashes
    assert not whole.asked - crashed.asked
    for (name, number), times in crashed.ran.items():
        assert times <= (1 if name == "risky" else 1 + crashes), (name, number)
    state = EMPTY
    for event in crashed.events:  # And the state at every prefix is that of the journal.
        state = fold(state, event)
    assert state == crashed.thread


@contextmanager
def told_of(seed: int, after: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"conversation {seed}, killed after {after} commits")
        raise


@pytest.mark.spec("S-07", "S-08", "T-03", "R-02", "R-16")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("linger", [False, True], ids=["killed", "killed a while later"])
@pytest.mark.parametrize("seed", range(6))
async def test_killed_after_any_commit_a_conversation_comes_to_the_same_end(
    seed: int, linger: bool, late: bool
) -> None:
    whole, commits = await held(seed, late)
    assert commits > 15
    for after in portion(range(commits)):
        with told_of(seed, after):
            conversation, ports, journal = Conversation(seed), virtual_ports(), MemoryJournal()
            run_id = ports.ids.run_id(ports.clock.now())
            crash, store = killed(journal, after, late)
            assert not await live(conversation, store, ports, run_id, linger=linger)
            assert crash.commits == after
            before = await own_lane(journal, run_id)
            ran_before = len(conversation.ran)
            _, store = killed(journal, None, late)
            assert await live(conversation, store, ports, run_id)
            events = await own_lane(journal, run_id)
            assert_same(Held(conversation, events), whole, run_id, crashes=1)
            # What was recorded stays, and no call whose result is on record is run again.
            assert events[: len(before)] == before
            finished = {
                (x.name, _number_of(before, x))
                for x in before
                if isinstance(x, e.AgentToolComplete)
            }
            assert not finished & set(conversation.ran[ran_before:])
            restores = [x for x in events[len(before) :] if isinstance(x, e.AgentRestore)]
            at_work = bool(before) and not fold_all(EMPTY, before).parked
            assert len(restores) == (1 if at_work else 0)


def _number_of(events: list[Event], done: e.AgentToolComplete) -> int:
    (step,) = [x for x in events if isinstance(x, e.AgentStep) and x.step == done.step]
    return int("".join(filter(str.isdigit, step.calls[done.index].arguments)))


@pytest.mark.spec("S-07", "T-03", "T-12")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("seed", range(6))
async def test_killed_again_and_again_a_conversation_comes_to_the_same_end(
    seed: int, late: bool
) -> None:
    whole, _ = await held(seed, late)
    conversation, ports, journal = Conversation(seed), virtual_ports(), MemoryJournal()
    run_id = ports.ids.run_id(ports.clock.now())
    draw = random.Random(seed)
    crashes, over = 0, False
    while not over:
        assert crashes < 50
        # Enough commits for a step, or the run would fail as one that kills its process.
        _, store = killed(journal, draw.randint(6, 9), late)
        over = await live(conversation, store, ports, run_id, linger=draw.random() < 0.5)
        crashes += not over
    assert crashes > 2
    assert_same(Held(conversation, await own_lane(journal, run_id)), whole, run_id, crashes)


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_a_run_that_never_gets_anywhere_fails_in_the_end(late: bool) -> None:
    ports, journal = virtual_ports(), MemoryJournal()
    agents = [model_agent(ScriptedModel(["never"], latency=1))]
    run_id = ports.ids.run_id(ports.clock.now())
    # The opening and the start; then each process writes that it has come back, and dies.
    for boot, after in enumerate((2, 1, 1)):
        _, store = killed(journal, after, late)
        async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
            if boot == 0:
                runtime.hub.open("assistant", "hello", run_id=run_id)
            with anyio.fail_after(100):
                await store.crashed.wait()
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        with anyio.fail_after(100):
            outcome = await runtime.finished(run_id)
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("crash_loop: the process died 3 times in a row")
    assert_one_life(await own_lane(journal, run_id), run_id)


@pytest.mark.spec("T-03")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_what_was_accepted_before_the_crash_is_answered_after_it(late: bool) -> None:
    """Whatever the run was doing when the messages came, and however often it was killed."""
    for after in range(2, 26):
        with told_of(1, after):
            conversation, ports, journal = Conversation(1), virtual_ports(), MemoryJournal()
            conversation.script += ["and"] * 30
            run_id = ports.ids.run_id(ports.clock.now())
            _, store = killed(journal, after, late)
            accepted = []
            agents = [conversation.agent()]
            async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
                runtime.hub.open("assistant", "first", run_id=run_id)
                receipts = []
                for number in range(10):
                    receipts.append(runtime.hub.send_to_run(run_id, f"m{number}"))
                    await anyio.sleep(0.7)
                accepted = [f"m{n}" for n, receipt in enumerate(receipts) if receipt.accepted]
            async with Runtime(agents, store=journal, ports=ports) as runtime:
                await runtime.result(run_id)
                info = await journal.info(run_id)
                assert info is not None
                assert (info.status, info.waiting) == ("parked", 0)
            thread = fold_all(EMPTY, await own_lane(journal, run_id))
            said = [m.content for m in thread.transcript if isinstance(m, UserMessage)]
            assert said[0] == "first"
            # In order, each once; one whose receipt had not come may be there or not.
            assert [text for text in said[1:] if text in accepted] == accepted
            assert len(set(said)) == len(said)
            assert isinstance(thread.transcript[-1], AssistantMessage)


# ── code agents ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-02", "R-03", "R-05")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("emits", [False, True], ids=["runtime", "agent"])
@pytest.mark.parametrize("on_restart", ["fail", "resume"])
async def test_a_killed_code_run_has_one_start_and_one_end(
    on_restart: Any, emits: bool, late: bool
) -> None:
    attempts: list[tuple[str, int]] = []

    @agent("code", on_restart=on_restart, emits_start_complete=emits)
    async def code(input: str, ctx: RunContext) -> str:
        attempts.append((ctx.run_id, ctx.attempt))
        if emits:
            ctx.hub.emit(e.AgentStart())
        for number in range(3):
            ctx.say(f"{number}")
            await anyio.sleep(1)
        if emits:
            ctx.hub.emit(e.AgentComplete())
        return input

    for after in range(8):
        with told_of(0, after):
            attempts.clear()
            ports, journal = virtual_ports(), MemoryJournal()
            run_id = ports.ids.run_id(ports.clock.now())
            _, store = killed(journal, after, late)
            async with Runtime([code], store=store, ports=ports, grace=0) as runtime:
                runtime.hub.open("code", "in", run_id=run_id)
                await anyio.sleep(10)
            before = await own_lane(journal, run_id)
            async with Runtime([code], store=journal, ports=ports) as runtime:
                await runtime.hub.open("code", "in", run_id=run_id)
                outcome = await runtime.finished(run_id)
            events = await own_lane(journal, run_id)
            end = assert_one_life(events, run_id)
            assert events[: len(before)] == before
            assert [x.type for x in events].count("session:start") == 1
            assert [x.type for x in events].count("session:end") == 1
            begun, over = bool(before), [x.type for x in before].count("agent:complete") == 1
            restored = [x.attempt for x in events if isinstance(x, e.AgentRestore)]
            if begun and not over and on_restart == "fail":
                assert (outcome.outcome, end.outcome) == ("failed", "failed")
                assert "process stopped" in outcome.reason
                assert restored == []
            else:
                assert (outcome.outcome, end.outcome) == ("completed", "completed")
                again = begun and not over
                assert restored == ([2] if again else [])
                assert attempts[-1] == (run_id, 2 if again else 1)
