"""Worlds whose runs have folders: conversations, families, code, a handoff."""

import random
import re
from typing import Any

import anyio

from hubbub import AgentDefinition, Message, RunContext, RunState, Runtime, SideConfig, agent, tool
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.hub import events as e
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, ScriptedModel, call, reply
from support.agents import model_agent
from support.families import Recorder, child, config, parent

__all__ = ["WORLDS", "conversation", "family", "handoff"]


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look."""
    await anyio.sleep(number % 3)
    return f"seen {number}"


@tool
async def keep(name: str, text: str, state: RunState) -> str:
    """Keep a file and a value."""
    await state.files.write(name, text)
    await state.kv.set(name, {"text": text})
    if text == "3":
        await state.files.delete(name)
    state.hub.emit(e.AgentText(text="said on the way"))
    return "kept"


def a_script(draw: random.Random) -> list[Any]:
    script: list[Any] = []
    for number in range(12):
        calls = [
            call("look", number=number) if draw.random() < 0.6
            else call("keep", name=f"f{draw.randint(0, 2)}.txt", text=str(draw.randint(0, 3)))
            for _ in range(draw.randint(0, 3))
        ]  # fmt: skip
        if draw.random() < 0.2:
            script.append(Fault("server", times=1))
        script.append(reply(f"text {number}" if draw.random() < 0.8 else "", *calls)
                      if calls else f"answer {number}")  # fmt: skip
    return [*script, *["and so on"] * 60]


async def conversation(store: Any, seed: int) -> None:
    """One side: tools, files, values, interruptions, resets, silent messages, an end."""
    draw = random.Random(seed)
    model = ScriptedModel(a_script(draw), latency=1)
    definition = model_agent(model, look, keep, parallel_tool_calls=bool(seed % 2), max_steps=6)
    ports = virtual_ports()
    async with Runtime([definition], store=store, ports=ports, grace=0) as runtime:
        hub = runtime.hub
        run_id = ports.ids.run_id(ports.clock.now())
        await hub.open("assistant", "hello", run_id=run_id, session_key="web_1_2")
        for number in range(draw.randint(2, 6)):
            match draw.randint(0, 6):
                case 0:
                    hub.send(Message("psst", silent=True), session_key="web_1_2")
                case 1:
                    hub.emit(e.SessionReset(run_id=run_id, message=draw.choice(["", "afresh"])))
                case 2:
                    hub.emit(e.SessionAbort(run_id=run_id, reason="enough"))
                case _:
                    hub.send_to_run(run_id, Message(f"message {number}", key=f"k{number}"))
            await anyio.sleep(draw.choice([0.3, 2, 20]))
        if draw.random() < 0.3:
            hub.emit(e.SessionTerminate(run_id=run_id, reason="over"))
            await anyio.sleep(1)


async def family(store: Any, seed: int) -> None:
    """Children in every mode, two-sided, some of whose results come while others are awaited."""
    draw = random.Random(seed)
    stays, blocking, at_once = draw.random() < 0.6, draw.random() < 0.5, draw.random() < 0.4
    worker = ScriptedModel(
        [
            x for n in range(40) for x in (
                f"thinking {n}",
                reply("", call("write_file", path="out.txt", text=str(n))),
                reply("", call("finish", result=f"result {n}", files=["out.txt"]))
                if n % 3 else reply("", call("give_up", reason="no luck")),
            )
        ], latency=1,
    )  # fmt: skip

    def begin_with(name: str) -> Any:
        if stays:
            return call("subagent_create", agent="helper", name=name, arguments={"message": name})
        return call("helper", message=name)

    def again(request: ModelRequest) -> Any:
        found = [m.content for m in request.messages if isinstance(m, UserMessage)]
        found += [c.output for m in request.messages if isinstance(m, AssistantMessage)
                  for c in m.calls]  # fmt: skip
        found += list(request.system_notes)
        ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", " ".join(found))
        if not ids or not stays:
            return "Nobody is there."
        return call("subagent_message", reference=ids[-1], message="Again.")

    steps = [
        begin_with("one") if draw.random() < 0.5 else reply("Two.", begin_with("two")),
        reply("", begin_with("three"), call("look", number=2)), again, "So far.", again,
    ]  # fmt: skip
    more = {"immediate": True} if at_once else {}
    lead = parent(Recorder(*steps, latency=1), config(blocking=blocking, stays=stays, **more), look)
    agents, ports = [lead, child(worker)], virtual_ports()
    async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.hub.open("main", "lead", run_id=run_id, session_key="a_b_c")
        for _ in range(draw.randint(1, 3)):
            await anyio.sleep(draw.choice([0.5, 2.5, 4, 7, 60]))
            if draw.random() < 0.5:
                runtime.hub.emit(e.SessionAbort(run_id=run_id, reason="stop it"))
            runtime.hub.send_to_run(run_id, "and now?")
        await anyio.sleep(draw.choice([3, 60]))


async def code(store: Any, seed: int) -> None:
    """A code agent that reads messages and starts another."""

    @agent("little")
    async def little(input: int, ctx: RunContext) -> int:
        return input + 1

    @agent("coder")
    async def coder(input: dict[str, int], ctx: RunContext) -> str:
        ctx.say("at work")
        run = ctx.spawn("little", input["n"])
        await run
        heard = []
        async for message in ctx.messages():
            heard.append(message.content)
            ctx.say(f"heard {message.content}")
        return ", ".join(heard)

    ports = virtual_ports()
    async with Runtime([coder, little], store=store, ports=ports, grace=0) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.hub.open("coder", {"n": seed}, run_id=run_id)
        for number in range(seed % 4):
            await runtime.hub.send_to_run(run_id, f"m{number}")
        if seed % 2:
            await runtime.hub.close_run(run_id)
        await anyio.sleep(5)


async def handoff(store: Any, seed: int) -> None:
    """One agent hands the conversation over to another."""
    first = PromptDefinition(
        name="first", prompt="You greet.", tools=("expert",),
        model=ScriptedModel([reply("One moment.", call("expert"))] * 3, latency=1),
    )  # fmt: skip
    second = PromptDefinition(
        name="second", prompt="You know.", tools=(look,),
        model=ScriptedModel([reply("", call("look", number=1)), *["Here I am."] * 9], latency=1),
    )  # fmt: skip
    agents = [
        AgentDefinition(name="greeter", side_a=SideConfig(prompt=first)),
        AgentDefinition(
            name="expert", side_a=SideConfig(prompt=second), expose_as_tool=True,
            tool_description="knows",
        ),
    ]  # fmt: skip
    ports = virtual_ports()
    async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.hub.open("greeter", "help", run_id=run_id)
        await anyio.sleep(30)
        await runtime.hub.send_to_run(run_id, "thanks")
        await anyio.sleep(30)


WORLDS = {"conversation": conversation, "family": family, "code": code, "handoff": handoff}
