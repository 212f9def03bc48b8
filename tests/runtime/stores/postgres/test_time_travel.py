"""A process says how a run was that another process on the store drives."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.postgres import Server

from hubbub import (
    START,
    Agent,
    FunctionModel,
    Message,
    ModelReply,
    ModelRequest,
    Retention,
    RunState,
    Runtime,
    ScriptedModel,
    tool,
)
from hubbub.__main__ import main
from hubbub.agents.model import UserMessage
from hubbub.hub.errors import CallerError
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long


def talker() -> Agent:
    return Agent("desk", "You help.", model=ScriptedModel(["One.", "Two."]))


def test_a_run_of_another_worker_is_seen_as_it_was(server: Server) -> None:
    address = server.dsn()

    async def work() -> list[Any]:
        async with (
            Runtime([talker()], store=PostgresStore(address)) as one,
            Runtime(store=PostgresStore(address, is_worker=False), role="channel") as other,
        ):
            run = await one.start("desk", "hello", session_key="ann")
            await run.result()
            last = await one.state_at(run.run_id)
            states = []
            for seq in range(last.seq + 1):
                state = await one.state_at(run.run_id, seq)
                assert await other.state_at(run.run_id, seq) == state
                states.append(state)
            return states

    states = anyio.run(work)
    assert states[0].phase == "new" and states[-1].outcome == "completed"


def test_a_fork_is_this_workers_and_the_old_run_stays_the_others(server: Server) -> None:
    address = server.dsn()

    async def work() -> list[Any]:
        async with (
            Runtime([talker()], store=PostgresStore(address)) as one,
            Runtime([talker()], store=PostgresStore(address)) as other,
        ):
            run = await one.start("desk", "hello", session_key="ann")
            await run.result()
            found = []
            for seq in (0, 4, None):
                fork = await other.fork(run.run_id, seq, message="again")
                found.append((await fork.result()).output)
                assert (await one.state_at(fork.run_id)).outcome == "completed"
            with pytest.raises(CallerError, match="is there already"):
                await other.fork(run.run_id, session_key="ann")
            found.append((await run.ask("more")).output)
            return found

    assert anyio.run(work) == ["One.", "One.", "Two.", "Two."]
    assert [*StoreCheck(address, thorough=True).problems()] == []


def test_a_process_without_agents_forks_and_a_worker_goes_on(server: Server) -> None:
    address = server.dsn()

    async def work() -> str:
        async with (
            Runtime([talker()], store=PostgresStore(address)) as one,
            Runtime(store=PostgresStore(address, is_worker=False), role="channel") as other,
        ):
            run = await one.start("desk", "hello", session_key="ann")
            await run.result()
            fork = await other.fork(run.run_id, message="again")
            return str((await fork.result()).output)

    assert anyio.run(work) == "Two."
    assert [*StoreCheck(address).problems()] == []


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_what_a_fork_is_told_answers_nothing_that_it_asks_whoever_takes_it_up(
    server: Server, loop: str
) -> None:
    address = server.dsn()
    paid: list[str] = []

    @tool(approval=True)
    async def pay(amount: int, state: RunState) -> str:
        """Pay."""
        paid.append(state.run_id)
        return f"{amount} paid"

    def answer(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.content == "pay":
            return reply("", call("pay", amount=7))
        return reply("You are welcome." if isinstance(last, UserMessage) else "It is done.")

    desk = Agent("desk", "You pay.", model=FunctionModel(answer), tools=[pay])

    async def work() -> None:
        async with Runtime([desk], store=PostgresStore(address)) as first:
            run = await first.start("desk", "pay", session_key="ann")
            async with first.hub.subscribe("session:prompt", after=START) as prompts:
                prompt = await anext(prompts)
            fork = await first.fork(run.run_id, prompt.seq - 1, message="And thanks!")
        async with Runtime([desk], store=PostgresStore(address)) as second:
            asked = [x for x in await second.hub.read(fork.run_id) if x.type == "session:prompt"]
            assert (await second.hub.approve(asked[0].prompt_id)).accepted
            told = await second.handle(fork.run_id)
            assert (await told.result()).output == "You are welcome."
        assert paid == [fork.run_id]

    anyio.run(work, backend=loop)
    assert [*StoreCheck(address, thorough=True).problems()] == []


def test_a_fork_knows_what_was_accepted_in_turns_that_have_gone(
    server: Server, tmp_path: Path
) -> None:
    address, store, export = server.dsn(), f"sqlite:{tmp_path / 'store'}", tmp_path / "run.jsonl"
    bot = Agent("desk", "You help.", model=FunctionModel(lambda _: "Noted."))

    async def cut() -> str:
        async with Runtime([bot], store=store, retention=Retention(keep_turns=1)) as rt:
            run = await rt.start("desk", session_key="ann")
            for turn in range(12):
                await run.ask(Message(f"number {turn}", key=f"k{turn}"))
            assert rt._passes is not None
            await rt._passes.make_pass()
            assert rt._passes.removed.cuts
            return run.run_id

    async def fork(run_id: str) -> None:
        async with Runtime([bot], store=PostgresStore(address)) as rt:
            for seq in (None, (await rt.state_at(run_id)).seq):
                forked = await rt.fork(run_id, seq)
                again = await rt.hub.send_to_run(forked.run_id, Message("number 1", key="k1"))
                assert again.duplicate
                other = await rt.hub.send_to_run(forked.run_id, Message("another", key="k1"))
                assert not other.accepted and "key reused" in other.reason
                assert (await forked.ask(Message("number 12", key="k12"))).output == "Noted."

    run_id = anyio.run(cut)
    assert main(["export", run_id, "--out", str(export), "--store", store]) == 0
    assert main(["import", str(export), "--store", address]) == 0
    anyio.run(fork, run_id)
    assert [*StoreCheck(address, thorough=True).problems()] == []
