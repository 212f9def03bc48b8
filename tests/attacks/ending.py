"""A program that is ended, by Ctrl-C or by code of its own: ``ending.py LOOP FOLDER STORE PLACE``.

It says "ready" when it is at work.  Whoever was told that something is accepted finds its number
in the file of that name in the store's folder.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread

from hubbub import CustomEvent, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ModelRequest, OnDelta
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

STATUS = 3
BLOCKED = threading.Event()


def leave(place: str, wanted: str) -> None:
    if place == wanted:
        sys.exit(STATUS)


def agents(place: str) -> list[AgentDefinition]:
    @tool
    async def waits() -> str:
        await anyio.lowlevel.checkpoint()
        leave(place, "async tool")
        return "x"

    @tool
    def plain() -> str:
        leave(place, "plain tool")
        if place.startswith("blocked"):
            BLOCKED.set()
            time.sleep(3600)
        return "x"

    class Leaving:
        name = "leaving"

        async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
            leave(place, "model")
            return ModelReply(text="x")

    @tool
    def asks(state: RunState) -> str:
        return str(anyio.from_thread.run(state.hub.ask, "user", "Well?"))

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> None:
        leave(place, "code")
        await ctx.step("s", lambda: leave(place, "step"))

    def with_model(name: str, model: Any, *tools: Any) -> AgentDefinition:
        prompt = PromptDefinition(name=f"p-{name}", prompt="x", model=model, tools=tools)
        return AgentDefinition(name=name, side_a=SideConfig(prompt=prompt))

    script = ScriptedModel([reply("", call("waits"), call("plain")), "done"], repeat=True)
    asking = ScriptedModel([call("asks"), "done"], repeat=True)
    return [
        with_model("tools", script, waits, plain), with_model("model", Leaving()), code,
        with_model("asking", asking, asks),
    ]  # fmt: skip


async def main(store: str, place: str) -> None:
    def listen(event: Any) -> None:
        if place == "while a listener answers itself":
            rt.hub.emit(CustomEvent.of("program:note", durable=True))
        if event.type == "program:work":
            leave(place, "listener")
        if event.type == "agent:start":
            leave(place, "listener of starts")
        if event.type == "session:prompt":
            leave(place, "while a thread asks")

    async def listen_later(event: Any) -> None:
        leave(place, "async listener")

    accepted = open("accepted", "a", buffering=1)  # noqa: SIM115, ASYNC230
    async with Runtime(
        agents(place), store=store, grace=0.2 if place.startswith("blocked") else 1.0
    ) as rt:
        rt.hub.subscribe("*", listen)
        rt.hub.subscribe("program:work", listen_later)
        print("ready", flush=True)
        for number in range(100_000):
            event = CustomEvent.of("program:work", durable=True, number=number)
            await rt.hub.publish(event)
            accepted.write(f"{number}\n")
            names = ("asking",) if place == "while a thread asks" else ("tools", "model", "code")
            for name in names:
                await rt.start(name, "x")
            leave(place, "body")
            if BLOCKED.is_set():
                print("blocked", flush=True)
                leave(place, "blocked, left")
                await anyio.sleep_forever()


if __name__ == "__main__":
    os.chdir(Path(sys.argv[2]))
    store = "memory" if sys.argv[3] == "memory" else "sqlite:store"
    anyio.run(main, store, sys.argv[4], backend=sys.argv[1])
