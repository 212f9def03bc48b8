"""Ids of prompts, whoever asks: people see them, answer to them, and paste them."""

import shlex
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from support.agents import model_agent

from hubbub import RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


@agent("asker")
async def asker(input: Any, ctx: RunContext) -> str:
    return await ctx.ask("Which one?")


@agent("asks-by-the-hub")
async def asks_by_hub(input: Any, ctx: RunContext) -> Any:
    return await ctx.hub.ask("user", "Which one?")


@pytest.mark.parametrize("name", ["asker", "asks-by-the-hub", "assistant"])
async def test_ids_of_prompts_can_stand_in_a_path_and_on_a_command_line(
    name: str, journal: Journal, ports: Ports
) -> None:
    @tool(timeout=None)
    async def ask(state: RunState) -> str:
        return str(await state.hub.ask("user", "Which one?"))

    teller = model_agent(ScriptedModel([reply("", call("ask")), "done"]), ask)
    async with Runtime([asker, asks_by_hub, teller], store=journal, ports=ports, grace=0) as rt:
        told: list[str] = []
        rt.hub.subscribe("session:prompt", lambda prompt: told.append(prompt.prompt_id))
        await rt.start(name, "x")
        await anyio.sleep(1)
        (asked,) = told
        assert asked and quote(asked, safe="") == shlex.quote(asked) == asked
        assert (await rt.hub.reply(asked, "that one")).accepted
