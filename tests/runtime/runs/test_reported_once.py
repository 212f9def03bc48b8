"""What a child comes to is one dead letter where nobody hears it, and none where somebody does.

A child that does not stay may end outside of any session: interrupted, it ends once nothing waits.
That it is over is bookkeeping of its parent's, and no second result.
"""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import Observer
from support.families import Recorder, answers, heard

from hubbub import Agent, AgentDefinition, RunContext, Runtime, agent
from hubbub.agents.state.family import FAILURE
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("T-06", "C-10")]

DAY = 86_400.0


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Any:
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


def worker(*script: Any, latency: float = 0.0) -> AgentDefinition:
    return Agent("helper", "You work.", model=Recorder(*script, latency=latency))


def lead(boss: Recorder, *tools: Any, name: str = "main") -> AgentDefinition:
    return Agent(name, "You lead.", model=boss, tools=tools)


def letters(seen: Observer) -> list[tuple[str, str]]:
    """For each dead letter of a result the run it was for, and how the child had ended."""
    found = [(x.to, x.message) for x in seen.all("hub:dead_letter")]
    return [(to, x.outcome) for to, x in found if isinstance(x, e.SessionResult)]


@pytest.mark.parametrize("stays", [False, True])
async def test_a_background_child_that_is_interrupted_after_its_parent_is_one_dead_letter(
    stays: bool, store: Any, ports: Ports, eventually: Any
) -> None:
    helper = worker("late", latency=DAY)
    begins = (
        call("subagent_create", agent="helper", name="Bob", arguments={"message": "Go."})
        if stays else call("helper", message="Go.")
    )  # fmt: skip
    boss = Recorder(begins, "Under way.")
    agents = [lead(boss, helper.as_tool(blocking=False, resumable=stays))]
    async with Runtime(agents, store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        below = seen.first("agent:child").child_run_id
        await eventually(lambda: "session:start" in seen.types(below))
        run.close()
        await run.finished()
        await rt.hub.interrupt(below, "enough")
        await anyio.sleep(10)
        assert letters(seen) == [(run.run_id, "interrupted")]


async def test_a_child_whose_parent_times_out_is_one_dead_letter(store: Any, ports: Ports) -> None:
    boss = Recorder(call("helper", message="Go."), "Thanks.")
    agents = [lead(boss, worker("late", latency=DAY).as_tool())]
    async with Runtime(agents, store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.", timeout=60)
        assert (await run.finished()).outcome == "timed_out"
        await anyio.sleep(10)
        assert letters(seen) == [(run.run_id, "interrupted")]


async def test_a_result_that_the_parent_has_heard_is_no_dead_letter_when_that_ends(
    store: Any, ports: Ports, eventually: Any
) -> None:
    """What says that the child is over comes while the parent makes of its result its own."""
    middle = Recorder(call("helper", message="Go."), "It did not work.", latency=1)
    middle_agent = lead(middle, worker("late", latency=DAY).as_tool(), name="middle")
    boss = Recorder(call("middle", message="Go."), "Sorry.")
    async with Runtime([lead(boss, middle_agent.as_tool())], store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(lambda: len(seen.all("agent:child")) == 2)
        below = seen.all("agent:child")[1].child_run_id
        await eventually(lambda: "session:start" in seen.types(below))
        await rt.hub.interrupt(below, "enough")
        assert (await run.result()).output == "Sorry."
        await anyio.sleep(10)
        (done,) = answers(middle.requests[-1])
        assert (done.output, done.is_error) == ("interrupted: enough", True)
        assert letters(seen) == []


@pytest.mark.parametrize("parent_is", ["there", "over"])
async def test_the_end_of_a_child_that_never_began_is_its_result(
    parent_is: str, store: Any, ports: Ports, eventually: Any
) -> None:
    """There is no room for it: what says that it is over is all there is to hear of it."""
    boss = Recorder(call("helper", message="Go."), "Under way.", "Oh.", latency=10)
    agents = [lead(boss, worker().as_tool(blocking=False))]
    async with Runtime(agents, store=store, ports=ports, max_live=1) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(lambda: len(seen.all("agent:child")) == 1)
        below = seen.first("agent:child").child_run_id
        await anyio.sleep(1)
        await rt.terminate(below if parent_is == "there" else run.run_id, "enough")
        await eventually(lambda: "agent:complete" in seen.types(below))
        await anyio.sleep(100)
        assert "session:start" not in seen.types(below)
        if parent_is == "there":
            words = FAILURE.format(below, "terminated: enough")
            assert heard(boss.requests[-1]) == ["Please.", words]
        assert letters(seen) == ([(run.run_id, "terminated")] if parent_is == "over" else [])


@pytest.mark.parametrize("parent_is", ["there", "over"])
async def test_the_end_of_an_idle_frame_is_its_result(
    parent_is: str, store: Any, ports: Ports, eventually: Any
) -> None:
    """Of its sessions none is reported: its end is, though it comes outside of any."""
    asker = Agent("asker", "You ask.", model=Recorder("Which version?"), expose_as_tool=True)
    boss = Recorder(call("use_agent", name="asker", message="Ask."), "Thanks.")
    main = Agent("main", "You lead.", model=boss, agents=["asker"])
    async with Runtime([main, asker], store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.", timeout=60)
        await eventually(lambda: len(seen.all("session:end")) == 1)
        below = seen.first("agent:child").child_run_id
        if parent_is == "there":
            await rt.terminate(below, "enough")
            await eventually(lambda: len(boss.requests) == 2)
            (done,) = answers(boss.requests[-1])
            assert done.is_error
            await run.finished()
        else:
            assert (await run.finished()).outcome == "timed_out"
        await anyio.sleep(10)
        assert letters(seen) == ([(run.run_id, "interrupted")] if parent_is == "over" else [])


@pytest.mark.parametrize("blocking", [True, False])
async def test_what_waits_for_an_interrupted_child_gives_it_no_second_result(
    blocking: bool, store: Any, ports: Ports, eventually: Any
) -> None:
    """The result of a grandchild came while it asked its model."""
    leaf = Agent("leaf", "You work.", model=Recorder("early", latency=3))
    helper = Agent(
        "helper", "You work.", tools=[leaf.as_tool(blocking=False)],
        model=Recorder(call("leaf", message="Go."), "one", "two", latency=5),
    )  # fmt: skip
    boss = Recorder(call("helper", message="Go."), "Thanks.", "Oh.")
    agents = [lead(boss, helper.as_tool(blocking=blocking))]
    async with Runtime(agents, store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(lambda: len(seen.all("session:result")) == 1)
        middle = seen.first("agent:child").child_run_id
        assert "session:end" not in seen.types(middle), "it still asks"
        await rt.hub.interrupt(middle, "enough")
        await anyio.sleep(100)
        await run.result()
        found = [x for x in seen.all("session:result") if x.child_run_id == middle]
        assert [x.outcome for x in found if not x.only_ends] == ["interrupted"]
        assert letters(seen) == [(middle, "completed")], "that of the grandchild"


async def test_code_that_reads_results_as_messages_is_told_of_an_interrupted_child_once(
    store: Any, ports: Ports, eventually: Any
) -> None:
    told: list[str] = []

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> str:
        ctx.spawn("helper", "Go.", result="message")
        told.extend([message.content async for message in ctx.messages(idle_timeout=60)])
        return "read"

    async with Runtime([code, worker("late", latency=DAY)], store=store, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("code", None)
        await eventually(lambda: len(seen.all("session:start")) == 2)
        below = seen.first("agent:child").child_run_id
        await rt.hub.interrupt(below, "enough")
        assert (await run.result()).output == "read"
        assert told == [FAILURE.format(below, "interrupted: enough")]
        assert letters(seen) == []
