"""Stories of whole worlds, one for each thing that the contract allows, and how they are lived.

Every model here answers from its request alone, so that a story can be cut off at any commit and
goes on in another life.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from msgspec import Struct

from hubbub import (
    AgentDefinition,
    FunctionModel,
    ModelRequest,
    PromptDefinition,
    RestorePolicy,
    RunContext,
    RunState,
    ScriptedModel,
    SideConfig,
    Skill,
    agent,
    tool,
)
from hubbub.agents.model import AssistantMessage, ToolCall
from hubbub.hub import events as e
from hubbub.hub.errors import Closed
from hubbub.runtime.models.scripted import Fault, call, reply
from hubbub.runtime.simulation.loop.seeded import run_seeded
from hubbub.runtime.simulation.story.faults import WorldFault as AnyFault
from hubbub.runtime.simulation.story.history import History, StoreName
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.world.world import World
from support.families import child, config, parent
from support.frames import complete, frame, use
from support.programs import Programs, spoken

__all__ = ["STORIES", "Story", "lived"]


class Story(Struct, frozen=True):
    """Who takes part, and what the users do."""

    setup: Callable[[], Setup]
    scenario: Callable[[World], Awaitable[None]]


def lived(
    story: Story,
    *,
    seed: int = 0,
    faults: Sequence[AnyFault] = (),
    store: StoreName = "memory",
) -> History:
    """The history of a world in which the story happened, at rest."""

    async def main() -> History:
        async with World(story.setup(), seed=seed, faults=faults, store=store) as world:
            await story.scenario(world)
            await world.settle()
            world.end_faults()
            await world.settle()
            world.history.is_settled = True
        return world.history

    return run_seeded(main, seed)


@tool(idempotent=True)
async def look(what: str, seconds: float = 0.0) -> str:
    """Look at something."""
    await anyio.sleep(seconds)
    if what == "nothing":
        raise ValueError("there is nothing")
    return f"a {what}"


def one(model: Any, *tools: Any, name: str = "main", **side: Any) -> AgentDefinition:
    prompt = PromptDefinition(
        name=f"prompt-of-{name}", prompt="You help.", model=model, tools=tools
    )
    return AgentDefinition(name=name, side_a=SideConfig(prompt=prompt, **side))


# ── a conversation with tools ────────────────────────────────────────────────────────────────


def _tools() -> Setup:
    script = ScriptedModel(
        [
            reply("Let me see.", call("look", what="tree"), call("look", what="nothing")),
            Fault("rate_limit", times=2, retry_after=1.0),
            "A tree.",
            call("fly"),
            ToolCall(name="look", arguments='{"what":'),
            Fault("cut", after=3),
            "Nothing else.",
            call("look", what="house", seconds=5.0),
            *["A house."] * 20,
        ],
        latency=1.0,
    )
    return Setup.of(one(script, look))


async def _talk(world: World) -> None:
    run = await world.open("main", "What is there?", user="ann")
    await world.say(run, "And besides?", user="ann")
    await world.say(run, "Hurry.", user="bob", key="k1")
    await world.say(run, "Hurry.", user="bob", key="k1")
    await world.wait(100)
    await world.say(run, "Go on.", user="ann")
    await world.wait(2)
    await world.say(run, "Well?", user="ann")


async def _cut_short(world: World) -> None:
    run = await world.open("main", "What is there?")
    await world.wait(0.5)
    await world.interrupt(run, "enough")
    for text in ("And besides?", "Go on.", "More.", "Still more."):
        await world.say(run, text)
        await world.wait(1.5)
    await world.interrupt(run, "enough again")
    _reset(world, run, "Forget it.")
    await world.say(run, "Now?")
    await world.wait(50)
    await world.say(run, "Wait.")
    await world.say(run, "Wait more.")
    await world.terminate(run, "that is all")
    await world.say(run, "Too late.")


def _reset(world: World, run_id: str, message: str) -> None:
    with suppress(Closed):  # Where the process has just died.
        world.hub.emit(e.SessionReset(run_id=run_id, message=message))


async def _closed(world: World) -> None:
    run = await world.open("main", "What is there?")
    await world.say(run, "And besides?")
    await world.close(run)
    await world.say(run, "Too late.")
    await world.open("main", "Quick.", timeout=0.5)
    await world.open("main", "Only once.", once=True)
    world.hub.open("nobody", "Are you there?")
    silent = await world.open("main")
    await world.say(silent, "Now.")


async def _left(world: World) -> None:
    """What waits while a run is at work is a letter in the next life."""
    run = await world.open("main", "What is there?")
    await world.wait(0.5)
    await world.say(run, "And besides?")
    await world.say(run, "Hurry.")
    await world.die()
    await world.wait(100)
    await world.say(run, "Again.")
    await world.restart()


def _context_only() -> Setup:
    return Setup.of(*_tools().agents, restore=RestorePolicy.CONTEXT_ONLY)


# ── children ─────────────────────────────────────────────────────────────────────────────────


def _children() -> Setup:
    boss = ScriptedModel(
        [
            call("quick", message="Count to 3."),
            reply("", call("slow", message="Count to 9."), call("slow", message="Fail.")),
            "Under way.",
            reply(
                "", _create("keeper", "Kim"), _create("runner", "Rob"), _create("quiet", "Quinn")
            ),
            _say("Kim", "And now?"),
            _say("Rob", "And now?"),
            _say("Rob", "Even more."),
            reply("", _say_now("Rob", "More."), _say_now("nobody", "Most.")),
            *["All at work."] * 20,
        ],
        latency=0.1,
    )
    names = ("quick", "slow", "keeper", "runner", "quiet")
    modes = (
        config("quick"), config("slow", blocking=False), config("keeper", stays=True),
        config("runner", blocking=False, stays=True),
        config("quiet", blocking=False, stays=True, parent_communication="explicit"),
    )  # fmt: skip
    work = FunctionModel(_work, latency=1.0)
    return Setup.of(parent(boss, *modes), *(child(work, name=name) for name in names))


def _create(agent: str, name: str) -> ToolCall:
    return call("subagent_create", agent=agent, name=name, arguments={"message": f"Begin, {name}."})


def _reference(request: ModelRequest, name: str) -> str:
    lines = [line for note in request.system_notes for line in note.splitlines() if name in line]
    return lines[0].removeprefix("- ").partition(":")[0] if lines else "nobody"


def _say(name: str, text: str) -> Any:
    return lambda request: call(
        "subagent_message", reference=_reference(request, name), message=text
    )


def _say_now(name: str, text: str) -> ToolCall:
    return call("subagent_message", reference=name, message=text)


def _work(request: ModelRequest) -> Any:
    said = [m.content for m in request.messages if not isinstance(m, AssistantMessage)]
    if any("Fail." in text for text in said):
        return call("give_up", reason="no")
    calls = sum(isinstance(m, AssistantMessage) for m in request.messages)
    if calls % 3 == 0:
        return call("report", status=f"at {calls}")
    return "Hm." if calls % 3 == 1 else call("finish", result=f"done {calls}")


async def _delegate(world: World) -> None:
    run = await world.open("main", "Please.")
    await world.wait(3)
    await world.say(run, "How far are you?")
    await world.wait(20)
    await world.say(run, "And now?")
    await world.wait(0.3)
    await world.interrupt(run, "enough")
    await world.say(run, "Once more.")
    await world.wait(0.25)
    await world.say(run, "Wait.")
    await world.terminate(run)


async def _orphans(world: World) -> None:
    """Parents end before their children do."""
    for seconds in (0.15, 1.3, 2.4):
        run = await world.open("main", "Please.", once=True)
        await world.wait(seconds)
        await world.terminate(run)
    await world.open("main", "Please.", once=True)
    late = await world.open("main", "Please.", timeout=4.0)
    await world.wait(2)
    await world.close(late)


# ── two sides, handoffs ──────────────────────────────────────────────────────────────────────


def _two_sides() -> Setup:
    prompts = {
        "front": ScriptedModel(["Which one?", call("back"), "Hello again."]),
        "back": ScriptedModel(["Hm.", "I am the back.", call("front")], latency=0.5),
    }
    agents = [child(FunctionModel(_work, latency=0.5), name="pair", max_session_turns=3)]
    for name, model in prompts.items():
        other = "back" if name == "front" else "front"
        agents.append(
            AgentDefinition(
                name=name, expose_as_tool=True,
                side_a=SideConfig(
                    prompt=PromptDefinition(
                        name=f"p-{name}", prompt=name, model=model, tools=[other]
                    )
                ),
            )
        )  # fmt: skip
    return Setup.of(*agents)


async def _sides(world: World) -> None:
    pair = await world.open("pair", "Do it together.")
    await world.say(pair, "Both of you.")
    await world.open("pair", "Fail.")
    run = await world.open("front", "I want that.")
    for text in ("The red one.", "Who is there?", "Back, please.", "And again?"):
        await world.say(run, text)
        await world.wait(0.4)


# ── takeover ─────────────────────────────────────────────────────────────────────────────────


def _frames() -> Setup:
    return Setup.of(*Programs(latency=0.5).agents())


async def _stack(world: World) -> None:
    key = "telegram_1_2"
    nested = [["tell"], ["use", "ann", [["use", "bob", [["say"], ["complete"]]], ["say"]]], ["say"]]
    run = await world.open("main", spoken("m1", nested), session_key=key)
    await world.wait(5)
    for number, program in enumerate(([["say"]], [["complete"]], [["say"]], [["complete"]])):
        await world.say(key, spoken(f"n{number}", program))
        await world.say(run, spoken(f"o{number}", [["say"]]), user="bob")
        await world.wait(0.7)
    three = [["three", ["ann", [["say"]]], ["bob", [["complete"]]]], ["say"]]
    await world.say(key, spoken("m2", three))
    await world.wait(3)
    for text in ("/back", "hello", "stop", spoken("m3", three)):
        await world.say(key, text)
        await world.wait(1.2)
    await world.interrupt(run, "enough")
    await world.say(key, spoken("m4", three))
    await world.wait(2)
    _reset(world, run, "Anew.")
    await world.say(key, spoken("m5", three))
    await world.wait(2)
    await world.terminate(run)


async def _to_frames(world: World) -> None:
    """Messages sent to a frame itself move at its pop (I-13)."""
    run = await world.open("main", spoken("m1", [["use", "ann", [["say"]]], ["say"]]))
    await world.wait(5)
    children = [
        x.event.child_run_id for x in world.history.heard
        if isinstance(x.event, e.AgentChild) and x.event.takeover
    ]  # fmt: skip
    child_run = children[0] if children else run
    await world.say(child_run, spoken("f1", [["complete"]]))
    await world.wait(0.2)
    await world.say(child_run, spoken("f2", [["say"]]))
    await world.say(run, spoken("f3", [["say"]]))
    await world.say(child_run, spoken("f4", [["say"]]))
    await world.wait(10)
    await world.say(run, spoken("m2", [["use", "ann", [["fail"]]], ["use", "bob", [["say"]]]]))
    await world.wait(10)
    await world.close(run)


async def _wait_for_user(world: World) -> None:
    """A frame has the conversation, and waits."""
    run = await world.open("main", spoken("m1", [["use", "ann", [["use", "bob", [["say"]]]]]]))
    await world.wait(5)
    await world.say(run, spoken("m2", [["say"]]))


def _pauses() -> Setup:
    asks = ScriptedModel(
        [call("interrupt", prompt="Which?"), use("ann"), call("interrupt", prompt="Sure?"), "Well."]
    )
    ann = ScriptedModel([call("interrupt", prompt="Red?", options=["yes"]), "Hm.", complete("red")])
    helper = Skill(
        name="helper", description="Helps.", instructions="Help.",
        model=ScriptedModel([complete("helped")]),
    )  # fmt: skip
    main = frame(asks, agents=["ann"], skills=[helper], supports_checkpointing=True)
    return Setup.of(main, frame(ann, name="ann", supports_checkpointing=True))


async def _pause(world: World) -> None:
    run = await world.open("main", "Hello", session_key="k_1_2")
    for text in ("this one", "yes", "go on", "cancel", "hello", "again"):
        await world.wait(2)
        await world.say("k_1_2", text)
    await world.wait(2)
    await world.restart()
    await world.wait(5000)
    await world.say(run, "Still there?")


@tool
async def give(who: str, message: str, state: RunState) -> str:
    """Give the conversation away."""
    state.use_agent(who, message)


def _gives(request: ModelRequest) -> Any:
    heard = request.messages[-1]
    if isinstance(heard, AssistantMessage) or heard.content != "go":
        return "Well."
    frames = (("ann", "Ask."), ("bob", "Nest."), ("ann", "Ask, too."))
    return reply("", *(call("give", who=who, message=text) for who, text in frames))


def _asks(request: ModelRequest) -> Any:
    heard = request.messages[-1]
    if isinstance(heard, AssistantMessage) or heard.content == "done":
        return complete("done")
    return (
        reply("", *[call("give", who="ann", message="Ask.")] * 2)
        if heard.content == "Nest."
        else "Which?"
    )


def _beside() -> Setup:
    main = FunctionModel(_gives, name="main", latency=0.1)
    asks = FunctionModel(_asks, name="asks", latency=0.1)
    both: dict[str, Any] = {"agents": ["ann"], "parallel_tool_calls": True}
    return Setup.of(
        frame(main, give, agents=["ann", "bob"], parallel_tool_calls=True),
        frame(asks, name="ann"), frame(asks, give, name="bob", **both),
    )  # fmt: skip


async def _lie_beside(world: World) -> None:
    """Frames of one parallel step, two of them above one of these."""
    key = "telegram_1_2"
    run = await world.open("main", "go", session_key=key)

    async def say(*texts: str) -> None:
        for text in texts:
            await world.say(key, text)
            await world.wait(0.7)

    await world.wait(2)
    await say("done", "what?", "done", "/back", "stop", "go", "/back", "cancel", "go", "done")
    await world.interrupt(run, "enough")
    await say("go")
    _reset(world, run, "Anew.")
    await say("go")
    await world.restart()
    await say("done", "stop", "go", "done", "done", "done", "done", "go")
    await world.terminate(run)
    other = await world.open("main", "go")
    await world.wait(1)
    await world.close(other)


# ── code agents ──────────────────────────────────────────────────────────────────────────────


@agent("keeper", on_restart="resume")
async def keeper(input: Any, ctx: RunContext) -> int:
    count = 0
    async for message in ctx.messages():
        await ctx.step("note", _nothing)
        ctx.say(f"{message.content}!")
        count += 1
        if message.content == "child":
            spawned = ctx.spawn("main", "What is there?")
            await spawned.result()
        if message.content == "ask":
            async with ctx.session(model="chat", tools=[look]) as session:
                await session.send("Look.")
                async for _ in session.receive():
                    pass
    return count


async def _nothing() -> int:
    await anyio.sleep(0.1)
    return 0


@agent("fragile", emits_start_complete=True)
async def fragile(input: Any, ctx: RunContext) -> str:
    async for message in ctx.messages():
        if message.content == "break":
            raise ValueError("broken")
    return "over"


def _code() -> Setup:
    chat = ScriptedModel([call("look", what="cat", seconds=1.0), "A cat."])
    return Setup.of(keeper, fragile, *_tools().agents, models={"chat": chat})


async def _programs(world: World) -> None:
    run = await world.open("keeper", None)
    other = await world.open("fragile", 1)
    for text in ("one", "ask", "child", "two"):
        await world.say(run, text)
        await world.say(other, text)
        await world.wait(1.1)
    await world.die()
    await world.wait(50)
    await world.say(run, "three")
    await world.close(run)
    third = await world.open("fragile", 2)
    await world.say(third, "break")
    await world.say(third, "never read")


STORIES = {
    "tools": Story(_tools, _talk),
    "cut short": Story(_tools, _cut_short),
    "closed": Story(_tools, _closed),
    "left": Story(_tools, _left),
    "context only": Story(_context_only, _left),
    "children": Story(_children, _delegate),
    "orphans": Story(_children, _orphans),
    "two sides": Story(_two_sides, _sides),
    "stack": Story(_frames, _stack),
    "to frames": Story(_frames, _to_frames),
    "beside": Story(_beside, _lie_beside),
    "waiting frame": Story(_frames, _wait_for_user),
    "pauses": Story(_pauses, _pause),
    "code": Story(_code, _programs),
}
