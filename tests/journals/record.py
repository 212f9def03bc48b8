"""Records journals, which every later version must be able to read and to go on from (P-12):

    uv run python tests/journals/record.py [NAME ...]

Plays each story and writes ``NAME.jsonl``: one line that says, for each of its runs, what its own
lane folds to, then the events of these lanes, in order.  What is there is never written over: a
story that has changed, or whose events have, is recorded beside it, as ``NAME-2.jsonl`` and so on.
``tests/runtime/supervision/test_recorded_journals.py`` folds them all.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import trio.testing

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.agents import echo_model, model_agent
from support.families import Recorder, child, config, parent, write_file
from support.frames import KEY, Talk, complete, frame, use

from hubbub import (
    AgentDefinition,
    Compaction,
    CustomEvent,
    FunctionModel,
    Message,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    RunContext,
    RunState,
    Runtime,
    ScriptedModel,
    SideConfig,
    Usage,
    VariableDefinition,
    tool,
)
from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.model import AssistantMessage
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.events import Event
from hubbub.hub.events.codec import UnknownEvent, decode_event, encode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.values import decode_value
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, call, reply
from hubbub.runtime.schedules.schedules import Heartbeat

__all__ = ["FOLDER", "Recording", "essentials", "lines_of", "main"]

FOLDER = Path(__file__).parent


class Recording(msgspec.Struct):
    """The first line of a journal."""

    name: str
    about: str
    code_agents: list[str]
    runs: dict[str, Any]


# ── what a lane folds to ─────────────────────────────────────────────────────────────────────


def essentials(events: Sequence[Event], *, is_code: bool) -> Any:
    """What must stay the same of the folded state, as plain data."""
    if is_code:
        code = CodeThread()
        for event in events:
            code = fold_code(code, event)
        facts = _of_code(code)
    else:
        thread = EMPTY
        for event in events:
            thread = fold(thread, event)
        facts = _of_model(thread)
    return msgspec.to_builtins(facts)


def _of_model(thread: Thread) -> dict[str, Any]:
    outcome, family = thread.outcome, thread.family
    return {
        "agent": thread.agent,
        "phase": thread.phase,
        "session": [thread.session, thread.in_session, thread.side, thread.turn, thread.step],
        "parked": thread.parked,
        "attempt": thread.attempt,
        "status": thread.status,
        "last_text": thread.last_text,
        "transcript": [_message(each) for each in thread.transcript],
        "transcript_b": [_message(each) for each in thread.transcript_b],
        "usage": [thread.total_usage.input_tokens, thread.total_usage.output_tokens],
        "outcome": outcome and [outcome.session, outcome.success, outcome.outcome, outcome.reason],
        "children": [[each.agent, each.name, each.ended, each.reports] for each in family.children],
        "deferred": [[each.agent, list(each.required)] for each in family.deferred],
        **_of_takeover(thread),
        **_of_area(thread),
    }


def _of_takeover(thread: Thread) -> dict[str, Any]:
    """Only where there is any: what was recorded before knows nothing of it."""
    frame, pause = thread.frame, thread.pause
    facts = {
        "place": [thread.origin.frame, thread.acts_as] if thread.origin.frame else None,
        "frame": [frame.name, frame.child] if frame is not None else None,
        "pause": [pause.key, pause.expires_at] if pause is not None else None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _of_code(thread: CodeThread) -> dict[str, Any]:
    end = thread.ending
    return {
        "phase": thread.phase,
        "attempt": thread.attempt,
        "children": len(thread.children),
        "ending": end and [end.success, end.outcome, end.reason, decode_value(end.output_json)],
        **_of_area(thread),
    }


def _of_area(thread: Thread | CodeThread) -> dict[str, Any]:
    return {
        "files": {path: file.digest for path, file in thread.area.files.items()},
        "keys": {key: decode_value(value) for key, value in thread.area.keys.items()},
    }


def _message(message: Any) -> list[Any]:
    if isinstance(message, AssistantMessage):
        calls = [[each.name, each.arguments, each.output, each.is_error] for each in message.calls]
        return ["assistant", message.text, calls]
    return [message.role, message.content]


# ── the stories ──────────────────────────────────────────────────────────────────────────────


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look at something."""
    await anyio.sleep(1)
    return f"saw {what}"


@tool
async def spend(amount: int) -> str:
    """Must not be done twice."""
    await anyio.sleep(100)
    return f"spent {amount}"


@tool
async def keep(key: str, value: Any, state: RunState) -> str:
    """Keep a value."""
    await state.kv.set(key, value)
    return "kept"


async def conversation(store: MemoryJournal, ports: Ports) -> None:
    """A model that calls tools, is retried, and is spoken to meanwhile."""
    model = ScriptedModel(
        [
            reply("Let me see.", call("look", what="one"), call("look", what="two")),
            Fault("server"), "There.", reply("", call("look", what="three")), "And there.",
        ],
        latency=1,
    )  # fmt: skip
    agent = model_agent(model, look, parallel_tool_calls=True)
    async with Runtime([agent], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "Look at one and two.")
        await run.result()
        await run.send(Message("And at three.", key="k", metadata={"from": "me"}))
        await run.result()
        await rt.hub.close_run(run.run_id)
        await run.finished()


async def interrupted(store: MemoryJournal, ports: Ports) -> None:
    """A turn that is interrupted in a tool, and the next one."""
    model = ScriptedModel([reply("So.", call("spend", amount=3)), "Gone on.", "New."], latency=1)
    async with Runtime([model_agent(model, spend)], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "Spend three.")
        await anyio.sleep(5)
        rt.hub.interrupt(run.run_id, "enough")
        await run.result()
        await run.send("Go on.")
        await run.result()


async def two_sides(store: MemoryJournal, ports: Ports) -> None:
    """Two models that talk until one ends it."""
    one = Recorder("A draft.", call("finish", result="the text"), latency=1)
    agent = child(one, name="pair", other=Recorder("Better, please.", latency=1))
    async with Runtime([agent], store=store, ports=ports) as rt:
        run = await rt.start("pair", "Write.")
        await run.finished()


async def children(store: MemoryJournal, ports: Ports) -> None:
    """Children that are waited for or not, and gone when they are done or not, with files."""
    boss = Recorder(
        call("waiter", message="a"), call("goer", message="b"), "Noted.",
        reply("", *(
            call("subagent_create", agent=name, name=name, arguments={"message": "c"})
            for name in ("stayer", "roamer")
        )), "On it.", latency=1,
    )  # fmt: skip
    everybody = [
        child(
            Recorder(call("write_file", path="n.txt", text=name),
                     call("finish", result=f"{name} is done", files=["n.txt"]), latency=1),
            name=name,
        )
        for name in ("waiter", "goer", "stayer", "roamer")
    ]  # fmt: skip
    main = parent(
        boss, config("waiter"), config("goer", blocking=False), config("stayer", stays=True),
        config("roamer", blocking=False, stays=True),
    )  # fmt: skip
    async with Runtime([main, *everybody], store=store, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await anyio.sleep(30)
        await run.send("And the others.")
        await anyio.sleep(60)
        await run.result()


async def deferred(store: MemoryJournal, ports: Ports) -> None:
    """A child that waits for its variables, and gets them."""
    work = child(
        Recorder(call("finish", result="used it")),
        variables=(VariableDefinition(name="TOKEN", scoped=True, required=True),),
    )
    boss = Recorder(call("helper", message="x"), "It wants a token.", "Thanks.")
    async with Runtime([parent(boss, config()), work], store=store, ports=ports) as rt:
        asked: list[Any] = []
        rt.hub.subscribe("session:variables", asked.append)
        run = await rt.start("main", "Please.")
        await run.result()
        request = next(each for each in asked if each.required)
        await rt.provide_variables(run.run_id, request.request_id, {"TOKEN": "a secret"})
        await anyio.sleep(30)
        await run.result()


async def handoff(store: MemoryJournal, ports: Ports) -> None:
    """A conversation that goes on as another agent."""
    desk = model_agent(
        ScriptedModel([reply("One moment.", call("billing", reason="money"))]), "billing",  # type: ignore[arg-type]
        name="desk",
    )  # fmt: skip
    prompt = PromptDefinition(name="b", prompt="Pay.", model=Recorder(None, "Paid."))
    billing = AgentDefinition(name="billing", side_a=SideConfig(prompt=prompt), expose_as_tool=True)
    async with Runtime([desk, billing], store=store, ports=ports) as rt:
        run = await rt.start("desk", "My money back.")
        await run.result()


async def files_and_values(store: MemoryJournal, ports: Ports) -> None:
    """A run that writes files and values, changes and deletes them."""

    @tool
    async def tidy(state: RunState) -> str:
        """Delete."""
        await state.files.delete("a.txt")
        await state.kv.delete("one")
        return "tidied"

    model = ScriptedModel([
        reply("", call("write_file", path="a.txt", text="a"),
              call("write_file", path="b/c.txt", text="\u00fcber"),
              call("keep", key="one", value={"n": [1, None]}), call("keep", key="two", value=2)),
        call("tidy"), "Done.",
    ])  # fmt: skip
    agent = model_agent(model, write_file, keep, tidy)
    async with Runtime([agent], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "Write.")
        await run.result()


async def code_agent(store: MemoryJournal, ports: Ports) -> None:
    """Code with steps, a child, messages, values and events of its own, killed in between."""

    async def execute(input: Any, ctx: RunContext) -> Any:
        first = await ctx.step("first", lambda: {"n": 1})
        await ctx.kv.set("seen", input)
        helper = ctx.spawn("echo", "hello")
        answer = (await helper.result()).output
        ctx.status("waiting")
        async for message in ctx.messages():
            ctx.say(message.content)
            ctx.hub.emit(CustomEvent.of("my:event", text=message.content))
            if message.content == "stop":
                break
        return [first, await ctx.step("last", lambda: "end"), answer]

    worker = AgentDefinition(name="worker", execute=execute, on_restart="resume")
    echo = model_agent(echo_model(), name="echo")
    async with Runtime([worker, echo], store=store, ports=ports, grace=0) as rt:
        run = await rt.start("worker", {"a": 1})
        await run.send("one")
        await anyio.sleep(10)
    async with Runtime([worker, echo], store=store, ports=ports) as rt:
        await rt.hub.send_to_run(run.run_id, "stop")
        await rt.finished(run.run_id)


async def restored(store: MemoryJournal, ports: Ports) -> None:
    """A model run whose process dies in a tool that must not be called again."""
    model = ScriptedModel([reply("So.", call("spend", amount=3)), "Did I?"], latency=1)
    async with Runtime([model_agent(model, spend)], store=store, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "Spend three.")
        await anyio.sleep(5)
    async with Runtime([model_agent(model, spend)], store=store, ports=ports) as rt:
        await rt.result(run.run_id)


async def failed(store: MemoryJournal, ports: Ports) -> None:
    """A turn that ends by the model's failure, and a run that is terminated."""
    model = ScriptedModel([Fault("auth"), "Better."], latency=1)
    async with Runtime([model_agent(model)], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "Hello.")
        await run.result()
        await run.send("Again.")
        await run.result()
        await rt.terminate(run.run_id, "no longer wanted")
        await run.finished()


async def reset(store: MemoryJournal, ports: Ports) -> None:
    """A heartbeat: each beat begins with a fresh context."""
    agent = model_agent(ScriptedModel(["One.", "Two.", "Three."], latency=1), name="keeper")
    beat = Heartbeat("keeper", ["Tidy up."], interval=100)
    async with Runtime([agent], store=store, ports=ports, schedules=[beat]):
        await anyio.sleep(250)


async def compacted(store: MemoryJournal, ports: Ports) -> None:
    """Older messages become a summary: by themselves, by hand, and once not."""
    summaries = iter(["They said numbers.", "", "They said more numbers."])

    def answer(request: ModelRequest) -> ModelReply:
        if request.purpose == "summary":
            return ModelReply(text=next(summaries), usage=Usage(input_tokens=300))
        size = sum(len(message.content) for message in request.messages)
        return ModelReply(text="a" * 50, usage=Usage(input_tokens=size))

    model = FunctionModel(answer, latency=1)
    agent = model_agent(model, name="talker", compaction=Compaction(window=400))
    async with Runtime([agent], store=store, ports=ports) as rt:
        run = await rt.start("talker", "one " * 10)
        for word in ("two", "three", "four", "five", "six"):
            await run.ask(f"{word} " * 10)
        for _ in range(2):
            rt.hub.compact(run.run_id)
            await anyio.sleep(10)
        await run.ask("seven")


async def future(store: MemoryJournal, ports: Ports) -> None:
    """A run whose lane holds an event of a version that does not exist yet."""
    async with Runtime([model_agent(echo_model())], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "One.")
        await run.result()
    loaded = await store.load(run.run_id)
    assert loaded is not None
    last = loaded.events[-1]
    unknown = decode_event(
        msgspec.json.encode({
            "type": "agent:foresight", "at": last.at, "run_id": run.run_id,
            "root_run_id": run.run_id, "agent": "assistant", "lane": "own", "seq": last.seq + 1,
            "wisdom": {"depth": 42}, "seen": ["tomorrow"],
        })
    )  # fmt: skip
    assert isinstance(unknown, UnknownEvent)
    commit = Commit(run.run_id, (unknown,), expect=last.seq)
    store.submit(commit)
    assert not commit.error
    async with Runtime([model_agent(echo_model())], store=store, ports=ports) as rt:
        await rt.hub.send_to_run(run.run_id, "Two.")
        await rt.result(run.run_id)


async def takeover(store: MemoryJournal, ports: Ports) -> None:
    """Frames three deep: words, a result, a question; and two that are still open at the end."""
    main = ScriptedModel([use("writer", "A page."), "Main: as you like.", use("writer", "Again.")])
    writer = ScriptedModel([use("research", "Sources."), "Which?", use("research", "More.")])
    research = ScriptedModel([
        "Which version?", reply("", call("look", what="3.13"), complete("3 sources")),
        call("interrupt", prompt="All of them?", options=["yes", "no"]), "Then I wait.",
    ])  # fmt: skip
    agents = (
        frame(main, agents=("writer",)), frame(writer, name="writer", agents=("research",)),
        frame(research, look, name="research", supports_checkpointing=True),
    )  # fmt: skip
    async with Runtime(agents, store=store, ports=ports) as rt:
        talk = Talk(rt)
        for line in ("Write.", "3.13", "/back", "Once more."):
            await talk.say(line)
        await rt.hub.send("all", session_key=KEY)
        await anyio.sleep(10)
        await talk.say("yes")


async def paused(store: MemoryJournal, ports: Ports) -> None:
    """A main agent that waits for an answer."""
    main = ScriptedModel([call("interrupt", prompt="Which plan?", options=["a", "b"])])
    agent = frame(main, supports_checkpointing=True)
    async with Runtime([agent], store=store, ports=ports) as rt:
        await rt.hub.open("main", "Plan.", session_key=KEY)
        await anyio.sleep(10)


Story = Callable[[MemoryJournal, Ports], Awaitable[None]]

STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        conversation, interrupted, two_sides, children, deferred, handoff, files_and_values,
        code_agent, restored, failed, reset, future, takeover, paused, compacted,
    )
}  # fmt: skip


# ── recording ────────────────────────────────────────────────────────────────────────────────


async def lines_of(name: str) -> list[bytes]:
    """A story's journal, newly played."""
    store, ports, story = MemoryJournal(), virtual_ports(), STORIES[name]
    await story(store, ports)
    recording = Recording(name=name, about=story.__doc__ or "", code_agents=["worker"], runs={})
    lines: list[bytes] = []
    for info in await store.runs(live=False):
        loaded = await store.load(info.run_id)
        assert loaded is not None
        is_code = info.agent in recording.code_agents
        recording.runs[info.run_id] = essentials(loaded.events, is_code=is_code)
        lines += map(encode_event, loaded.events)
    return [msgspec.json.encode(recording), *lines]


def main() -> None:
    names = sys.argv[1:] or list(STORIES)
    for name in names:
        clock = trio.testing.MockClock(autojump_threshold=0)
        lines = anyio.run(lines_of, name, backend="trio", backend_options={"clock": clock})
        place, number = FOLDER / f"{name}.jsonl", 1
        while place.exists():
            number += 1
            place = FOLDER / f"{name}-{number}.jsonl"
        with place.open("xb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
        print(f"{place.name}: {len(lines) - 1} events")


if __name__ == "__main__":
    main()
