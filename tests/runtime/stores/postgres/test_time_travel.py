"""A process says how a run was that another process on the store drives."""

from typing import Any

import anyio
import pytest
from support.postgres import Server

from hubbub import Agent, Runtime, ScriptedModel
from hubbub.hub.errors import CallerError
from hubbub.runtime.inspection.check import StoreCheck
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
