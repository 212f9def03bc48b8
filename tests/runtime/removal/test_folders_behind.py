"""A folder that is behind is no damage, also where the turns that say so have gone."""

from pathlib import Path

import anyio
import pytest
from support.pruned_stores import problems

from hubbub import Agent, FunctionModel, ModelRequest, Retention, RunState, Runtime, tool
from hubbub.agents.model import AssistantMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-08")]


@tool
async def write(text: str, state: RunState) -> str:
    """Keep a text."""
    await state.files.write("a.txt", text)
    return "kept"


def answer(request: ModelRequest) -> object:
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return "Done."
    return reply("", call("write", text=last.content))


async def test_a_file_whose_older_content_no_event_names_any_more_is_behind(
    ports: Ports, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    agent = Agent("clerk", "You write.", model=FunctionModel(answer), tools=[write])
    for first, last, mirror in ((0, 1, True), (1, 30, False), (30, 31, False)):
        store = sqlite_store(place, ports=ports, mirror=mirror)
        async with Runtime(
            [agent], store=store, ports=ports, retention=Retention(keep_turns=3)
        ) as rt:
            for number in range(first, last):
                run = await rt.start("clerk", f"text {number}", session_key="chat")
                await run.result()
            await anyio.sleep(7200)
    assert problems(f"sqlite:{place}") == []
