"""Killed after any commit, on every store, headless children give each result once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import assert_one_life
from support.crash_journal import CrashJournal
from support.families import Recorder, answers, heard, write_file
from support.profiles import portion

from hubbub import Agent, AgentDefinition, RunContext, Runtime, agent
from hubbub.agents.model import ModelRequest
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

Agents = tuple[AgentDefinition, ...]


def create(message: str) -> Any:
    return call("subagent_create", agent="helper", name="Bob", arguments={"message": message})


def write(message: str, **more: Any) -> Any:
    def to_the_first(request: ModelRequest) -> Any:
        (note,) = request.system_notes
        reference = note.splitlines()[1].removeprefix("- ").partition(":")[0]
        return call("subagent_message", reference=reference, message=message, **more)

    return to_the_first


def last_output(request: ModelRequest) -> str:
    return answers(request)[-1].output


# ── who works ────────────────────────────────────────────────────────────────────────────────


def of_one_model() -> AgentDefinition:
    script = (call("write_file", path="a.txt", text="x"), "leaf")
    leaf = Agent("leaf", "You work.", model=Recorder(*script, latency=1), tools=[write_file])
    script = (
        call("leaf", message="Go."),
        lambda request: f"{heard(request)[0]} {last_output(request)}",
        call("leaf", message="Go again."),
        lambda request: f"{heard(request)[-1]} {last_output(request)}",
    )
    return Agent(
        "helper", "You lead.", model=Recorder(*script, latency=1), tools=[leaf.as_tool()]
    )  # fmt: skip


def of_one_model_with_a_frame() -> AgentDefinition:
    """Its frame has nobody to talk with either."""
    script = (
        call("use_agent", name="asker", message="Ask."),
        lambda request: f"{heard(request)[0]} {last_output(request)} leaf",
        call("use_agent", name="asker", message="Ask again."),
        lambda request: f"{heard(request)[-1]} {last_output(request)} leaf",
    )
    return Agent("helper", "You lead.", model=Recorder(*script, latency=1), agents=["asker"])


ASKER = Agent(
    "asker", "You ask.", model=Recorder("Which?", latency=1), expose_as_tool=True
)  # fmt: skip


@agent("leaf", on_restart="resume")
async def leaf(input: str, ctx: RunContext) -> str:
    await ctx.files.write("a.txt", "x")
    await anyio.sleep(1)
    return "leaf"


@agent("helper", on_restart="resume")
async def helper(input: str, ctx: RunContext) -> str:
    return f"{input} {(await ctx.spawn('leaf', 'Go.').result()).output}"


@agent("helper", on_restart="resume")
async def reader(input: str, ctx: RunContext) -> str:
    if "a.txt" not in ctx.files.list():
        await ctx.files.write("a.txt", "own")
    async for message in ctx.messages():
        (path,) = message.attachments
        return f"{input} {path} {(await ctx.files.read(path)).decode()} {len(ctx.files.list())}"
    return "closed"


class Story:
    """A kind of child in one of the four modes: its boss's script, and what it must be told."""

    def __init__(self, kind: str, mode: str) -> None:
        blocking, stays = "wait" in mode, "stay" in mode
        ask = create if stays else lambda message: call("helper", message=message)
        second, self.told = ask("Second."), ["First. leaf", "Second. leaf"]
        made = helper
        if kind != "code":
            made = of_one_model() if kind == "one model" else of_one_model_with_a_frame()
            second = write("Second.") if stays else second
        if kind == "a frame":
            self.told = ["First. Which? leaf", "Second. Which? leaf"]
        script = [ask("First."), second] if blocking else [
            ask("First."), "On it.", second, "Noted."]  # fmt: skip
        tools = [made.as_tool(blocking=blocking, resumable=stays)]
        self.agents: Agents = (boss_of(script, *tools), ASKER, *([leaf] if made is helper else []))


def boss_of(script: list[Any], *tools: Any) -> AgentDefinition:
    return Agent("main", "You lead.", model=Recorder(*script, "The end.", latency=1), tools=tools)


class Reading:
    """Code that stays is sent a file."""

    told = ("First. a-2.txt x 2",)

    def __init__(self) -> None:
        script = [
            call("write_file", path="a.txt", text="x"), create("First."),
            write("Here.", attachments=["a.txt"]), "On it.",
        ]  # fmt: skip
        tool = reader.as_tool(blocking=False, resumable=True)
        self.agents: Agents = (boss_of(script, write_file, tool),)


# ── lives ────────────────────────────────────────────────────────────────────────────────────


class Late(LateJournal):
    def __init__(self, inner: CrashJournal) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self.crashed = inner.crashed


def reopened(store: str, place: Path, ports: Ports) -> Callable[[], Any]:
    """What each process opens: the same journal, or a store on the same folder."""
    if store == "sqlite":
        return lambda: sqlite_store(place, ports=ports, mirror=False)
    memory = MemoryJournal()
    return lambda: memory


async def thread_of(journal: Any, run_id: str) -> Thread:
    loaded = await journal.load(run_id)
    return fold_all(EMPTY, loaded.events if loaded is not None else ())


async def live(story: "Story | Reading", store: Any, ports: Ports, run_id: str) -> bool:
    """One life of the process, until all is told or it is killed.  Was it?"""
    over = False
    async with Runtime(story.agents, store=store, ports=ports, grace=0) as rt:

        async def go() -> None:
            nonlocal over
            await rt.hub.open("main", "Please.", run_id=run_id)
            while True:
                thread = await thread_of(rt.hub.journal, run_id)
                if sorted(told(thread)) == sorted(story.told) and not thread.in_session:
                    break
                await anyio.sleep(5)
            over = True
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            with anyio.fail_after(3000):
                await store.crashed.wait()
            group.cancel_scope.cancel()
    return over


def told(thread: Thread) -> list[str]:
    texts = [getattr(m, "content", "") for m in thread.transcript]
    calls = [c.output for m in thread.transcript for c in getattr(m, "calls", ())]
    return [t.partition("\n\n")[2] for t in texts if t.startswith("Subagent (")] + [
        output for output in calls if "reference" not in output and "wrote" not in output
    ]


async def ends_alike(make: Callable[[], Any], store: str, place: Path) -> None:
    """Whatever commit the process is killed after, the boss is told the same, by as many runs."""

    async def told_after(after: int | None) -> tuple[list[str], int, int]:
        ports = virtual_ports()
        run_id, opened = ports.ids.run_id(0), reopened(store, place / str(after), ports)
        first = kept = CrashJournal(opened(), after)
        over = await live(make(), Late(kept) if store == "late" else kept, ports, run_id)
        assert over or after is not None
        while not over:
            kept = CrashJournal(opened())
            over = await live(make(), Late(kept) if store == "late" else kept, ports, run_id)
        journal = opened()
        if store == "sqlite":
            await journal.open()
        lanes: dict[str, list[Event]] = {}
        for info in await journal.runs(live=False):
            lanes[info.run_id] = list((await journal.load(info.run_id)).events)
        thread = await thread_of(journal, run_id)
        if store == "sqlite":
            await journal.aclose()
        for lane_id, lane in lanes.items():
            answered = [(x.step, x.index) for x in lane if isinstance(x, e.AgentToolComplete)]
            assert len(answered) == len(set(answered))
            if any(isinstance(x, e.AgentComplete) for x in lane):
                assert_one_life(lane, lane_id)
        return told(thread), len(lanes), first.commits

    expected, runs, commits = await told_after(None)
    for after in portion(range(commits)):
        texts, found, _ = await told_after(after)
        assert texts == expected, f"killed after commit {after}"
        assert found == runs, "no child is doubled or lost"


STORES = ("memory", "late", "sqlite")
MODES = ("wait", "wait, stay", "stay", "go on")


@pytest.mark.spec("D-05", "C-01", "C-10", "R-02", "T-03", "I-01")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["one model", "a frame", "code"])
async def test_killed_after_any_commit_the_same_is_told_once(
    kind: str, mode: str, store: str, tmp_path: Path
) -> None:
    await ends_alike(lambda: Story(kind, mode), store, tmp_path)


@pytest.mark.spec("D-05", "C-10", "A-01")
@pytest.mark.parametrize("store", STORES)
async def test_killed_after_any_commit_code_has_the_files_of_a_message_once(
    store: str, tmp_path: Path
) -> None:
    await ends_alike(Reading, store, tmp_path)
