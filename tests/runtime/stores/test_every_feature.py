"""Whatever a runtime writes is sound to all that look at a store: ``fsck``, export and import,
backups, folders that come back without their database."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from journals.record import STORIES
from support.agents import echo_model, model_agent
from support.families import Recorder, child, config, parent
from support.folder_worlds import WORLDS

from hubbub import (
    CustomEvent,
    RunContext,
    RunState,
    Runtime,
    ScriptedModel,
    VariableDefinition,
    agent,
    external_tool,
    tool,
)
from hubbub.agents.state import fold
from hubbub.hub import HistoryMessage
from hubbub.hub import events as e
from hubbub.hub.events import CATALOGUE, Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.sessions import IN_BOTH_LANES
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import EventRow
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.exchange.lanes import Lanes
from hubbub.runtime.stores.open import open_reader, sqlite_store

RUN: Final = "01900000-0000-7000-8000-00000000000a"


# ── the catalogue ────────────────────────────────────────────────────────────────────────────


def lanes_of(kind: type[Event]) -> set[str]:
    """Where a runtime writes events of a type: at their home, and where a run reads its own."""
    found = {"own", "hub"} if kind.home == "scope" else {kind.home} - {"none"}
    return found | ({"own"} if kind in fold._CHANGES else set())


WRITTEN: Final = [
    (kind, lane) for kind in (*CATALOGUE, CustomEvent) for lane in sorted(lanes_of(kind))
]


def test_something_stands_in_both_lanes_of_a_run() -> None:
    both = [kind for kind in CATALOGUE if lanes_of(kind) == {"own", "in"}]
    assert both == [*IN_BOTH_LANES]


@pytest.mark.spec("G-04", "G-08")
@pytest.mark.parametrize(
    ("kind", "lane"), WRITTEN, ids=lambda x: getattr(x, "type", x) if x is not CustomEvent else "my"
)
def test_every_event_is_sound_in_every_lane_that_a_runtime_writes_it_to(
    kind: type[Event], lane: str
) -> None:
    opening = e.SessionOpen(run_id=RUN, root_run_id=RUN, agent="a", lane="in", seq=1)
    start = e.AgentStart(run_id=RUN, root_run_id=RUN, agent="a", lane="own", seq=1)
    seq = 1 if lane == "hub" else 2
    event = kind(run_id=RUN, root_run_id=RUN, agent="a", lane=lane, seq=seq)
    lanes = Lanes("store")
    problems = [
        problem.what
        for position, x in enumerate((opening, start, event), 1)
        for problem in lanes.take(
            EventRow(
                position, RUN, RUN, x.lane, x.seq, x.type, None, encode_event(x)
            )
        )
    ]  # fmt: skip
    assert problems == []


# ── the features ─────────────────────────────────────────────────────────────────────────────


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def wonder(state: RunState) -> str:
    """Ask the person."""
    return f"heard {await state.ask('Which?', options=['a', 'b'])}"


LOOKUP = external_tool("lookup", {"type": "object", "properties": {"what": {"type": "string"}}})


async def people(store: Any, ports: Ports) -> None:
    """Approvals, questions and calls carried out elsewhere: ended in every way, and left open."""
    calls = [
        call("pay", amount=1), call("pay", amount=2), call("pay", amount=3), call("wonder"),
        call("lookup", what="x"), call("pay", amount=4), call("wonder"),
    ]  # fmt: skip
    steps = [x for number, each in enumerate(calls) for x in (each, f"Done {number}.")]
    open_at_once = reply("", call("pay", amount=5), call("wonder"), call("lookup", what="y"))
    desk = model_agent(
        ScriptedModel([*steps, open_at_once]), pay, wonder, LOOKUP, name="desk",
        parallel_tool_calls=True,
    )  # fmt: skip

    @agent("asker")
    async def asker(input: Any, ctx: RunContext) -> str:
        return f"{await ctx.ask('Yes?')} {await ctx.ask('Sure?')}"

    async with Runtime([desk, asker], store=store, ports=ports, grace=0) as rt:
        asked: list[e.SessionPrompt] = []
        rt.hub.subscribe(e.SessionPrompt, asked.append)

        async def last() -> str:
            await anyio.sleep(5)
            return asked[-1].prompt_id

        run = await rt.start("desk", "go", session_key="web_ada")
        rt.hub.approve(await last())
        await run.send("again")
        rt.hub.approve(await last(), arguments={"amount": 20})
        await run.send("again")
        rt.hub.deny(await last(), "too much")
        await run.send("again")
        rt.hub.reply(await last(), "a")
        await run.send("again")
        rt.hub.reply(await last(), "found")
        await run.send("again")
        await last()
        await run.send("Never mind.")  # Denies what is open.
        await run.send("again")
        await last()
        rt.hub.interrupt(run.run_id, "enough")
        await run.send("again")
        await last()  # Three are left open.
        code = await rt.start("asker", None)
        rt.hub.reply(await last(), "yes")
        await last()
        await code.send("words")
        await anyio.sleep(5)


async def variables(store: Any, ports: Ports) -> None:
    """Requests for variables: provided, left open, and of a child that starts at once."""
    key = VariableDefinition(name="KEY", required=True, scoped=True)
    work = child(Recorder(*[call("finish", result="used it")] * 3), variables=(key,))
    boss = Recorder(*[call("helper", message="x"), "It wants a key.", "Thanks."] * 2)
    async with Runtime([parent(boss, config()), work], store=store, ports=ports) as rt:
        wanted: list[e.SessionVariables] = []
        rt.hub.subscribe(e.SessionVariables, wanted.append)
        run = await rt.start("main", "Please.", session_key="web_ada", env={"OTHER": "value 123"})
        await run.result()
        request = next(x for x in wanted if x.required)
        await rt.provide_variables(run.run_id, request.request_id, {"KEY": "a secret"})
        await anyio.sleep(30)
        await run.send("Another one.")
        await anyio.sleep(30)


async def code(store: Any, ports: Ports) -> None:
    """Steps, files, values, children, events of its own; results read, told and given up."""

    @agent("little")
    async def little(input: Any, ctx: RunContext) -> str:
        await ctx.files.write("found.txt", "x")
        return f"did {input}"

    @agent("broken")
    async def broken(input: Any, ctx: RunContext) -> str:
        raise ValueError("no way")

    @tool
    async def fetch(state: RunState) -> str:
        """Have children work."""
        read, kept = state.spawn("little", 1), state.spawn("little", 2, result="message")
        state.spawn("broken", 3, result="ignore")
        state.spawn("little", 4)
        state.hub.emit(CustomEvent.of("my:event", n=1))
        await kept
        return str((await read.result()).output)

    @agent("worker", on_restart="resume")
    async def worker(input: Any, ctx: RunContext) -> str:
        await ctx.step("once", lambda: {"n": 1})
        await ctx.kv.set("k", [1])
        await ctx.kv.delete("k")
        await ctx.files.write("a.txt", "a")
        await ctx.files.delete("a.txt")
        ctx.status("at it")
        ctx.hub.emit(CustomEvent.of("my:event", n=2))
        return (await ctx.spawn("little", 5).result()).output

    boss = model_agent(ScriptedModel([call("fetch"), "Done.", "I see."]), fetch, name="boss")
    async with Runtime([boss, worker, little, broken], store=store, ports=ports) as rt:
        run = await rt.start("boss", "go", session_key="web_ada")
        await anyio.sleep(30)
        await run.result()
        await rt.run("worker", "go")
        rt.hub.emit(CustomEvent.of("my:event", n=3))
        await rt.hub.publish(e.AgentStatus(status="not of a run"))


async def control(store: Any, ports: Ports) -> None:
    """Openings with a history and tools, schedules, resets, ends of every kind, dead letters."""
    echo = model_agent(echo_model(), name="echo")
    talk = [HistoryMessage(content="Hi."), HistoryMessage(role="assistant", content="Hello.")]
    beat = Cron("beat", "* * * * *", "echo", "Tick.")
    async with Runtime([echo], store=store, ports=ports, schedules=[beat]) as rt:
        opened = await rt.hub.open(
            "echo", "go", session_key="web_ada", history=talk, tools=[LOOKUP]
        )
        await rt.result(opened.run_id)
        rt.hub.reset(opened.run_id, "From the beginning.")
        await rt.result(opened.run_id)
        rt.hub.interrupt(opened.run_id, "nothing at work")
        await anyio.sleep(150)
        await rt.hub.close_run(opened.run_id, "done")
        other = await rt.start("echo", "go")
        rt.hub.send_to_run(other.run_id, "too late")
        await rt.terminate(other.run_id, "unwanted")
        await rt.hub.send_to_run(other.run_id, "gone")


Story = Callable[[Any, Ports], Awaitable[None]]


def _world(name: str) -> Story:
    async def play(store: Any, ports: Ports) -> None:
        await WORLDS[name](sqlite_store(store.removeprefix("sqlite:")), 3)

    return play


PLAYED: Final[dict[str, Story]] = {
    **{x.__name__: x for x in (people, variables, code, control)},
    **{f"recorded {name}": story for name, story in STORIES.items() if name != "future"},
    **{f"world {name}": _world(name) for name in WORLDS},
}
"""A story is given the text that names its store; what comes from the future needs the store."""


@pytest.mark.anyio
@pytest.mark.spec("G-04", "G-08", "P-02")
@pytest.mark.parametrize("story", PLAYED.values(), ids=PLAYED)
async def test_what_a_runtime_wrote_is_sound_and_comes_back_by_every_way(
    story: Story, ports: Ports, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    await story(store, ports)
    assert unsound(store) == []
    before = bodies(store)
    assert before

    backup_store(store, tmp_path / "backup")
    assert unsound(f"sqlite:{tmp_path / 'backup'}") == []
    assert bodies(f"sqlite:{tmp_path / 'backup'}") == before

    imported = f"sqlite:{tmp_path / 'imported'}"
    with open_reader(store) as reader:
        exports = [
            [*export_run(reader, row.run_id)] for row in reader.rows() if not row.parent_run_id
        ]
    for lines in exports:
        import_runs(imported, "run.jsonl", lines, ports=ports)
    assert unsound(imported) == []
    assert bodies(imported) == before

    adopted, kept = without_database(tmp_path / "store", tmp_path / "adopted")
    assert await told_by(adopted) == []
    assert unsound(adopted) == []
    assert bodies(adopted) == {run_id: before[run_id] for run_id in kept}


def without_database(folder: Path, copy: Path) -> tuple[str, set[str]]:
    """A copy of a store without its database, and the runs that come back there.

    Roots have a folder where somebody can address them; without theirs, their children are roots
    of their own, which changes what is written.
    """
    with open_reader(f"sqlite:{folder}") as reader:
        roots = {row.run_id: row.root_run_id for row in reader.rows()}
    shutil.copytree(folder, copy)
    for file in copy.glob("hubbub.*"):
        file.unlink()
    present = {file.parent.name for file in copy.glob("agents/*/run.jsonl")}
    kept = {run_id for run_id in present if roots[run_id] in present}
    for run_id in present - kept:
        shutil.rmtree(copy / "agents" / run_id)
    return f"sqlite:{copy}", kept


async def told_by(store: str) -> list[str]:
    """What a store reports of its folders when it is opened."""
    opened = sqlite_store(store.removeprefix("sqlite:"), ports=virtual_ports())
    await opened.open()
    try:
        await opened.projected()
        return list(opened.problems)
    finally:
        await opened.aclose()


def unsound(store: str) -> list[str]:
    """What ``fsck`` finds, folders that are behind included: a runtime has left them in order."""
    return [each.text for each in StoreCheck(store, thorough=True).problems() if not each.heals]


def bodies(store: str) -> dict[str, list[bytes]]:
    """Every event of every run, as it is kept."""
    with open_reader(store) as reader:
        return {
            row.run_id: [x.body for x in reader.event_rows((row.run_id,)) if x.lane != "hub"]
            for row in reader.rows()
        }
