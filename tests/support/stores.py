"""Stores with some of everything in them, for the tests of what is done with stores."""

from pathlib import Path
from typing import Any

import anyio

from hubbub import AgentDefinition, Message, PromptDefinition, RunState, Runtime, SideConfig, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ModelRequest, Usage, UserMessage
from hubbub.hub.ports import Ports
from hubbub.hub.store.store import Store
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.schedules.schedules import Heartbeat
from hubbub.runtime.stores.open import sqlite_store

__all__ = ["SECRET", "Filled", "agents", "fill", "open_runtime"]

SECRET = "hunter2-5e6c2e74d1"
COST = Usage(input_tokens=10, output_tokens=2)


class Filled:
    """The ids of the runs in a filled store."""

    def __init__(self, chat: str, parent: str, child: str, done: str) -> None:
        self.chat = chat
        """Idle, a model's, opened with a key, with a file, a second key, and a session key."""
        self.parent = parent
        """At work, a function's; two messages wait for it, one with a key."""
        self.child = child
        """Its child, ended."""
        self.done = done
        """Ended, a model's."""


@tool
async def note(text: str, state: RunState) -> str:
    """Write something down."""
    await state.files.write("notes/note.txt", text)
    await state.kv.set("last", text)
    return "noted"


def answer(request: ModelRequest) -> ModelReply | str:
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return reply("Let me see.", call("note", text=f"heard {last.content}"), usage=COST)
    return reply("It is noted.", usage=COST)


def agents() -> list[AgentDefinition]:
    prompt = PromptDefinition(name="p", prompt="x", model=FunctionModel(answer), tools=[note])
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))

    @agent("child")
    async def child(input: Any, ctx: Any) -> int:
        ctx.say("I am a child.")
        return 3

    @agent("parent", on_restart="resume")
    async def parent(input: Any, ctx: Any) -> list[str]:
        started = ctx.spawn("child", "go")
        await started.result()
        await ctx.files.write("plan.md", "# Plan")
        if input == "wait":
            await anyio.sleep(3600)
        return [message.content async for message in ctx.messages()]

    return [bot, child, parent]


def open_runtime(
    path: Path | Store, ports: Ports | None = None, *, mirror: bool = False, **options: Any
) -> Runtime:
    store = sqlite_store(path, ports=ports, mirror=mirror) if isinstance(path, Path) else path
    options = {"grace": 0.1, **options}  # The parent at work would use up any.
    return Runtime(agents(), store=store, ports=ports, **options)


async def fill(path: Path | Store, ports: Ports | None = None, *, mirror: bool = False) -> Filled:
    """Make a store, and leave it in order."""
    beat = Heartbeat("bot", ["Tidy up."], interval=1800)
    opening = Message("hello", key="opening")
    async with open_runtime(path, ports, mirror=mirror, schedules=[beat]) as rt:
        chat = await rt.start("bot", opening, session_key="chat_1_2", env={"TOKEN": SECRET})
        await chat.result()
        await rt.hub.send_to_run(chat.run_id, Message("again", key="first"))
        await chat.result()
        parent = await rt.start("parent", "wait")
        children: list[str] = []
        while not children:
            await anyio.sleep(0.01)
            runs = await rt.hub.journal.runs(live=False, root_run_id=parent.run_id)
            children = [run.run_id for run in runs if run.parent_run_id and run.status == "ended"]
        await rt.hub.send_to_run(parent.run_id, "are you there?")
        await rt.hub.send_to_run(parent.run_id, Message("hello?", key="twice"))
        done = await rt.run("bot", "one question")
    return Filled(chat.run_id, parent.run_id, children[0], done.run_id)
