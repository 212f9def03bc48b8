"""A fork is asked, and told, as the run that it goes on from: its approvals can be given, and a
message is heard once."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import (
    Agent,
    FunctionModel,
    Limits,
    Message,
    ModelReply,
    ModelRequest,
    RunState,
    Runtime,
    tool,
)
from hubbub.agents.model import AssistantMessage
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentStep, AgentToolComplete, SessionPrompt, SessionPromptEnd
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.virtual import LoopClock
from hubbub.runtime.inspection.record_check import RecordCheck
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

DAY = 86_400


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "memory":
        return MemoryJournal()
    return sqlite_store(tmp_path / "store", ports=ports)


class Desk:
    """A runtime with an agent whose tool waits for a person; who paid, in order."""

    def __init__(
        self,
        ports: Ports,
        store: Store,
        timeout: float | None = None,
        thinking: float = 0.0,
        limits: Limits | None = None,
    ) -> None:
        self.ports, self.store = ports, store
        self.paid: list[str] = []

        @tool(approval=True, approval_timeout=timeout)
        async def pay(amount: int, state: RunState) -> str:
            """Pay."""
            self.paid.append(state.run_id)
            return f"{amount} paid"

        async def answer(request: ModelRequest) -> ModelReply:
            await anyio.sleep(thinking)
            last = request.messages[-1]
            if isinstance(last, AssistantMessage):
                return reply("It is done.")
            if "thanks" in last.content:
                return reply("You are welcome.")
            return reply("", call("pay", amount=7))

        self.agent = Agent(
            "desk", "You pay.", model=FunctionModel(answer), tools=[pay], run_limits=limits
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runtime]:
        async with Runtime([self.agent], store=self.store, ports=self.ports) as rt:
            yield rt


async def asked(rt: Runtime, run_id: str) -> SessionPrompt:
    (prompt,) = [x for x in await rt.hub.read(run_id) if isinstance(x, SessionPrompt)]
    return prompt


async def step_of(rt: Runtime, run_id: str) -> int:
    """The number of the record of its only step."""
    (step,) = [x for x in await rt.hub.read(run_id) if isinstance(x, AgentStep)]
    return step.seq


async def forked_at_its_step(rt: Runtime, message: str | None = None) -> tuple[str, str]:
    """A conversation in which approval is asked, and its fork from the record before that."""
    run = await rt.start("desk", "pay", session_key="chat")
    await anyio.sleep(10)
    step = await step_of(rt, run.run_id)
    await anyio.sleep(DAY)
    fork = await rt.fork(run.run_id, step, message=message)
    await anyio.sleep(1)
    return run.run_id, fork.run_id


@pytest.mark.parametrize("is_reopened", [False, True], ids=["at once", "reopened"])
async def test_what_a_fork_asks_can_be_approved_and_is_the_fork_s_alone(
    store: Store, ports: Ports, is_reopened: bool
) -> None:
    desk = Desk(ports, store)
    async with desk.open() as rt:
        old, fork = await forked_at_its_step(rt)
        info = await rt.hub.journal.info(fork)
        assert info is not None and info.status == "waiting"
        if not is_reopened:
            assert (await rt.hub.approve((await asked(rt, fork)).prompt_id)).accepted
            assert (await (await rt.handle(fork)).result()).output == "It is done."
    async with desk.open() as rt:
        if is_reopened:
            assert (await rt.hub.approve((await asked(rt, fork)).prompt_id)).accepted
            assert (await (await rt.handle(fork)).result()).output == "It is done."
        assert desk.paid == [fork]
        assert (await rt.hub.approve((await asked(rt, old)).prompt_id)).accepted
        await (await rt.handle(old)).result()
    assert desk.paid == [fork, old]
    with closing(store.reader()) as reader:
        found = RecordCheck(reader, tell=print).problems()
        assert [x.text for x in found] == []


async def test_there_is_as_long_to_answer_in_a_fork_as_there_was(
    store: Store, ports: Ports
) -> None:
    """However long ago it was asked in the old run."""
    desk = Desk(ports, store, timeout=60.0)
    async with desk.open() as rt:
        _, fork = await forked_at_its_step(rt)
        await anyio.sleep(50)
        assert [x for x in await rt.hub.read(fork) if x.type == "session:prompt:end"] == []
        await anyio.sleep(20)
        assert (await (await rt.handle(fork)).result()).output == "It is done."
        assert desk.paid == []


@pytest.mark.parametrize("is_reopened", [False, True], ids=["at once", "reopened"])
@pytest.mark.parametrize("is_approved", [False, True], ids=["denied", "approved"])
async def test_what_a_fork_is_told_is_heard_after_what_it_asks_and_answers_nothing(
    store: Store, ports: Ports, *, is_approved: bool, is_reopened: bool
) -> None:
    """What comes later is an answer."""
    desk = Desk(ports, store)
    async with AsyncExitStack() as life:
        rt = await life.enter_async_context(desk.open())
        _, fork = await forked_at_its_step(rt, "And thanks!")
        if is_reopened:
            await life.aclose()
            rt = await life.enter_async_context(desk.open())
            await anyio.sleep(1)
        info = await rt.hub.journal.info(fork)
        assert info is not None and info.status == "waiting"
        if is_approved:
            assert (await rt.hub.approve((await asked(rt, fork)).prompt_id)).accepted
        else:
            await rt.hub.send_to_run(fork, "not that much")
        await anyio.sleep(1)
        assert desk.paid == [fork] * is_approved
        came_to = [x.output for x in await rt.hub.read(fork) if isinstance(x, AgentToolComplete)]
        assert came_to == ["7 paid" if is_approved else "not run: denied: not that much"]
        assert (await (await rt.handle(fork)).result()).output == "You are welcome."
    with closing(store.reader()) as reader:
        found = RecordCheck(reader, tell=print).problems()
        assert [x.text for x in found] == []


class SetClock(LoopClock):
    """A clock that somebody sets."""

    offset = 0

    def now(self) -> int:
        return super().now() + self.offset


async def test_what_waited_when_a_fork_asks_is_no_answer_though_the_clock_was_set_back(
    store: Store, ports: Ports
) -> None:
    ports.clock = clock = SetClock()
    desk = Desk(ports, store, thinking=5)
    async with desk.open() as rt:
        run = await rt.start("desk", "pay", session_key="chat")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "And thanks!")
        await anyio.sleep(10)
        clock.offset -= DAY * 1_000_000
        fork = await rt.fork(run.run_id, await step_of(rt, run.run_id))
        await anyio.sleep(1)
        assert (await rt.hub.approve((await asked(rt, fork.run_id)).prompt_id)).accepted
        assert (await fork.result()).output == "You are welcome."
    assert desk.paid == [fork.run_id]


async def test_time_until_a_fork_is_made_is_no_time_at_work(store: Store, ports: Ports) -> None:
    """Though it asks at once."""
    desk = Desk(ports, store, thinking=5, limits=Limits(seconds=20))
    async with desk.open() as rt:
        _, fork = await forked_at_its_step(rt)
        assert (await rt.hub.approve((await asked(rt, fork)).prompt_id)).accepted
        assert (await (await rt.handle(fork)).result()).output == "It is done."


@pytest.mark.parametrize("said", ["again", "other", "new"])
async def test_a_message_that_the_run_has_heard_is_not_said_to_its_fork_once_more(
    store: Store, ports: Ports, said: str
) -> None:
    heard: list[int] = []

    def answer(request: ModelRequest) -> str:
        heard.append(len(request.messages))
        return "It is noted."

    bot = Agent("bot", "You note.", model=FunctionModel(answer))
    async with Runtime([bot], store=store, ports=ports) as rt:
        run = await rt.start("bot", "hello", session_key="chat")
        await run.result()
        await run.ask(Message("7 euros", key="k1"))
        heard.clear()
        given: dict[str, Any] = {
            "again": Message("7 euros", key="k1"),
            "other": Message("8 euros", key="k1"),
            "new": Message("8 euros", key="k2"),
        }
        if said == "other":
            with pytest.raises(BadValue, match=r"message: .* under its key 'k1'; give a key of"):
                await rt.fork(run.run_id, message=given[said])
            assert len(await rt.hub.journal.runs(live=False)) == 1
            return
        fork = await rt.fork(run.run_id, message=given[said])
        await fork.result()
        assert len(heard) == (said == "new")
        for message in given.values():
            before = await rt.hub.send_to_run(run.run_id, message) if message.key == "k1" else None
            after = await rt.hub.send_to_run(fork.run_id, message)
            assert before is None or (before.status, before.reason) == (after.status, after.reason)


@pytest.mark.spec("H-10")
@pytest.mark.parametrize("answer", ["a reply", "words", "nobody"])
async def test_what_was_answered_in_one_commit_is_answered_in_every_fork(
    store: Store, ports: Ports, answer: str
) -> None:
    """A fork of the record in the middle of it had the answer, and never said that it was there."""

    @tool(idempotent=True)
    async def wonder(state: RunState) -> str:
        """Ask."""
        return str(await state.ask("Which?", timeout=60))

    model = FunctionModel(
        lambda request: "Done." if isinstance(request.messages[-1], AssistantMessage)
        else reply("", call("wonder"))
    )  # fmt: skip
    agent = Agent("desk", "You ask.", model=model, tools=[wonder])
    async with Runtime([agent], store=store, ports=ports) as rt:
        run = await rt.start("desk", "go", session_key="chat")
        await anyio.sleep(1)
        if answer == "a reply":
            rt.hub.reply((await asked(rt, run.run_id)).prompt_id, "this one")
        elif answer == "words":
            rt.hub.send("this one", session_key="chat")
        await run.result()
        last = max(x.seq for x in await rt.hub.read(run.run_id) if x.lane == "own")
        for seq in range(2, last):
            fork = await rt.fork(run.run_id, seq)
            await anyio.sleep(100)
            await rt.hub.terminate(fork.run_id)
            await rt.finished(fork.run_id)
            found = await rt.hub.read(fork.run_id)
            questions = [x.prompt_id for x in found if isinstance(x, SessionPrompt)]
            ended = [x.prompt_id for x in found if isinstance(x, SessionPromptEnd)]
            assert sorted(questions) == sorted(ended), f"forked after {seq}"
