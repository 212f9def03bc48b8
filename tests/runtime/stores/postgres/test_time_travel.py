"""A process says how a run was that another process on the store drives."""

from typing import Any

import anyio
import pytest
from support.postgres import Server

from hubbub import Agent, Runtime, ScriptedModel
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
