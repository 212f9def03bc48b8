"""What ends a run reaches it though others have all the room (R-18): its end is what makes room."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import pytest
from support.agents import model_agent
from support.families import answers
from support.frames import frame, use

from hubbub import Agent, AgentDefinition, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.hub.events import AgentStep, Ending
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("R-18")]

Places: TypeAlias = Sequence[tuple[str, int, Journal]]

LATE: Final = 1000
"""Seconds after which a run's time is over; what has not ended a second later waits for room."""


def at_once(folder: Path, ports: Ports) -> Journal:
    return MemoryJournal(ids=ports.ids)


def late(folder: Path, ports: Ports) -> Journal:
    return LateJournal(MemoryJournal(ids=ports.ids))


def on_disk(folder: Path, ports: Ports) -> Journal:
    return sqlite_store(folder, ports=ports, mirror=False)


@pytest.fixture(params=[at_once, late, on_disk])
def journal(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    store: Journal = request.param(tmp_path / "store", ports)
    return store


@pytest.fixture(params=[at_once, late, on_disk])
def places(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Places:
    """Where a run stands, and how many may be in memory; each with an empty store."""
    return [
        (stands, room, request.param(tmp_path / f"{number}-{room}", ports))
        for number, stands in enumerate(STANDS)
        for room in (1, 2)
    ]


@tool(timeout=None)
async def work(state: RunState) -> str:
    """Work without end."""
    await anyio.sleep_forever()
    return ""


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay, if a person says so."""
    return "paid"


@agent("hog")
async def hog(input: Any, ctx: RunContext) -> None:
    """Keeps its place."""
    await anyio.sleep_forever()


def chain(depth: int) -> list[AgentDefinition]:
    """Model agents each of which waits for the one below it, and the last one works."""
    agents: list[Any] = [
        Agent("run0", "You work.", model=FunctionModel(lambda _: call("work")), tools=[work])
    ]
    for number in range(1, depth + 1):
        below = agents[-1].as_tool()
        model = FunctionModel(
            lambda r, name=below.name: "Well." if answers(r) else call(name, message="go")
        )
        agents.append(Agent(f"run{number}", "You lead.", model=model, tools=[below]))
    return agents


AGENTS: Final[Sequence[Any]] = (
    *chain(3), hog,
    model_agent(FunctionModel(lambda r: "Hello."), name="parked"),
    model_agent(
        FunctionModel(lambda r: "Well." if answers(r) else call("pay", amount=1)), pay, name="asks"
    ),
    frame(
        FunctionModel(lambda r: "Back." if answers(r) else use("writer")), agents=("writer",)
    ),
    frame(FunctionModel(lambda r: call("work")), work, name="writer"),
)  # fmt: skip

STANDS: Final = {
    "waits for its child": "run1",
    "waits for a child that waits": "run3",
    "is parked": "parked",
    "asks a person": "asks",
    "has given the conversation away": "main",
}

ENDS: Final[dict[str, tuple[Callable[[Run], object], str]]] = {
    "terminated": (lambda run: run.terminate(), "terminated"),
    "interrupted": (lambda run: run.interrupt(), "interrupted"),
    "reset": (lambda run: run._hub.reset(run.run_id), "interrupted"),
    "late": (lambda run: None, "timed_out"),
    "told to stop": (lambda run: run.send("stop"), "interrupted"),
}


def is_possible(stands: str, end: str) -> bool:
    """Nothing can be interrupted of a parked run, and it hears what people say as messages."""
    if end == "told to stop":
        return stands == "has given the conversation away"
    return stands != "is parked" or end in ("terminated", "late")


@asynccontextmanager
async def full(
    journal: Journal, ports: Ports, name: str, room: int, timeout: float | None = None
) -> AsyncIterator[tuple[Runtime, Run]]:
    """A run that does not end by itself, out of memory, where others have all the room."""
    async with Runtime(AGENTS, store=journal, ports=ports, max_live=room, grace=0) as rt:
        run = await rt.start(name, "go", timeout=timeout)
        await anyio.sleep(5)
        for _ in range(room):
            await rt.start("hog")
        await anyio.sleep(5)
        assert rt.runs.get(run.run_id) is None and len(rt.runs.in_memory) == room
        yield rt, run


@pytest.mark.parametrize("end", ENDS)
async def test_what_ends_a_run_reaches_it_though_others_have_all_the_room(
    end: str, places: Places, ports: Ports
) -> None:
    act, outcome = ENDS[end]
    for stands, room, journal in places:
        if not is_possible(stands, end):
            continue
        timeout = LATE if end == "late" else None
        async with full(journal, ports, STANDS[stands], room, timeout) as (rt, run):
            act(run)
            if end == "late":
                await anyio.sleep(LATE - 10)
            await anyio.sleep(1)
            loaded = await journal.load(run.run_id)
            assert loaded is not None
            ends = [event.outcome for event in loaded.events if isinstance(event, Ending)]
            assert ends and ends[-1] == outcome, (stands, room, ends)
            assert len(rt.runs.in_memory) <= room


@pytest.mark.parametrize("end", ["interrupted", "reset", "told to stop"])
async def test_a_run_that_has_nothing_to_end_takes_no_room(
    end: str, journal: Journal, ports: Ports
) -> None:
    """Else many that are interrupted would work on at once with what was said to them."""
    act, _ = ENDS[end]
    async with full(journal, ports, "parked", 1) as (rt, run):
        never = await rt.start("parked", "hello")
        for each in (run, never):
            act(each)
            await each.send("and this")
            await anyio.sleep(1)
            assert rt.runs.get(each.run_id) is None
            act(each)
            await anyio.sleep(1)
            assert rt.runs.get(each.run_id) is None
        hog_run = next(each.lane.run_id for each in rt.runs.in_memory)
        await rt.terminate(hog_run)
        for each in (run, never):
            assert (await each.result()).output == "Hello."


async def test_a_run_that_waits_for_its_first_turn_is_terminated_without_it(
    journal: Journal, ports: Ports
) -> None:
    async with full(journal, ports, "parked", 1) as (rt, _):
        runs = [await rt.start(name, "hello") for name in ("parked", "hog", "asks")]
        for number in range(20):  # More than are held for it.
            await runs[0].send(f"{number}")
        for run in runs:
            await run.terminate()
            with anyio.fail_after(1):
                assert (await run.finished()).outcome == "terminated"
            loaded = await journal.load(run.run_id)
            assert loaded is not None
            assert not any(isinstance(event, AgentStep) for event in loaded.events)


@pytest.mark.parametrize("end", ["terminated", "interrupted", "reset", "late"])
async def test_what_came_while_nothing_ran_ends_a_run_before_there_is_room_for_it(
    end: str, places: Places, ports: Ports
) -> None:
    """Those that were at work when the process died come first, and may keep all the room."""
    _, outcome = ENDS[end]
    for stands, room, journal in places:
        if not is_possible(stands, end):
            continue
        async with Runtime(AGENTS, store=journal, ports=ports, grace=0) as rt:
            for _ in range(room):
                await rt.start("run3", "go")
            await anyio.sleep(5)  # Those that are older are resumed first.
            run = await rt.start(STANDS[stands], "go", timeout=40 if end == "late" else None)
            await anyio.sleep(5)
        async with Hub(journal=journal, ports=ports) as hub:
            if end == "terminated":
                await hub.terminate(run.run_id)
            elif end == "interrupted":
                await hub.interrupt(run.run_id)
            elif end == "reset":
                await hub.reset(run.run_id)
            await anyio.sleep(40)
        async with Runtime(AGENTS, store=journal, ports=ports, max_live=room, grace=0) as rt:
            await anyio.sleep(1)
            loaded = await journal.load(run.run_id)
            assert loaded is not None
            ends = [event.outcome for event in loaded.events if isinstance(event, Ending)]
            assert ends and ends[-1] == outcome, (stands, room, ends)
            await anyio.sleep(1)
            assert len(rt.runs.in_memory) <= room


async def test_a_run_whose_time_was_over_before_its_first_turn_still_waits_for_that(
    journal: Journal, ports: Ports
) -> None:
    """It has nothing to end yet, which its journal says where another runtime has left it."""
    async with Runtime(AGENTS, store=journal, ports=ports, max_live=1, grace=0) as rt:
        first = await rt.start("run1", "go")
        await anyio.sleep(5)
        run = await rt.start("parked", "hello", timeout=30)
        await anyio.sleep(5)
    async with Runtime(AGENTS, store=journal, ports=ports, max_live=1, grace=0) as rt:
        await anyio.sleep(40)
        loaded = await journal.load(run.run_id)
        assert loaded is not None and loaded.seq == 0
        await rt.terminate(first.run_id)
        with anyio.fail_after(1):
            assert (await rt.finished(run.run_id)).outcome == "timed_out"
