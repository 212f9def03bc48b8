"""A fork of a run at work that another process goes on with is no crash of it."""

import json
import shutil
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from support.shared_stores import SharedPlace

from hubbub import Agent, FunctionModel, RunState, Runtime, tool
from hubbub.__main__ import main
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.hub.events import AgentRestore
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-10")]


@tool(idempotent=True)
async def think(state: RunState) -> str:
    """Think."""
    await anyio.sleep(10)
    return "thought"


def agents() -> list[Agent]:
    def answer(request: ModelRequest) -> object:
        is_over = isinstance(request.messages[-1], AssistantMessage)
        return "Done." if is_over else reply("", call("think"))

    return [Agent("desk", "You think.", model=FunctionModel(answer), tools=[think])]


async def reasons(rt: Runtime, run_id: str) -> list[str]:
    """Why it was restored each time."""
    return [x.reason for x in await rt.hub.read(run_id) if isinstance(x, AgentRestore)]


async def test_a_worker_goes_on_with_what_a_channel_has_forked(ports: Ports) -> None:
    place = SharedPlace(ports.clock)
    async with (
        Runtime(agents(), store=place.journal(), ports=ports),
        Runtime(store=place.journal(is_worker=False), ports=ports, role="channel") as channel,
    ):
        last = (await channel.start("desk", "go", session_key="chat")).run_id
        forks = []
        for _ in range(4):  # More than a run may be cut off by deaths.
            await anyio.sleep(5)
            last = (await channel.fork(last)).run_id
            forks.append(last)
        await anyio.sleep(60)
        for run_id in forks:
            assert {*await reasons(channel, run_id)} == {"forked while this run was at work"}
            outcome = await channel.result(run_id)
            assert (outcome.outcome, outcome.output) == ("completed", "Done.")


async def test_a_fork_that_a_command_makes_of_a_run_that_was_cut_off_is_no_crash(
    ports: Ports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, copy = tmp_path / "store", tmp_path / "copy"
    async with Runtime(agents(), store=sqlite_store(place, ports=ports), ports=ports) as rt:
        run = await rt.start("desk", "go", session_key="chat")
        await anyio.sleep(5)
        await rt.hub.journal.flush()
        shutil.copytree(place, copy)  # What is there after a death.
    command = ["fork", run.run_id, "--json", "--store", f"sqlite:{copy}"]
    assert await anyio.to_thread.run_sync(main, command) == 0
    fork = json.loads(capsys.readouterr().out)["run_id"]
    async with Runtime(agents(), store=sqlite_store(copy, ports=ports), ports=ports) as rt:
        await anyio.sleep(60)
        for run_id, reason in ((run.run_id, ""), (fork, "forked while this run was at work")):
            assert (await rt.result(run_id)).output == "Done."
            assert await reasons(rt, run_id) == [reason]
