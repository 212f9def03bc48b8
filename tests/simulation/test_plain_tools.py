"""Plain tools in a simulated world: in threads, as elsewhere, and as repeatable as all else."""

import threading
from typing import Any

import anyio
import anyio.from_thread
import pytest

from hubbub import Agent, FunctionModel, RunState, ToolCall, tool
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.runtime.models.scripted import call
from hubbub.runtime.simulation import (
    Open,
    Reply,
    Say,
    Setup,
    StuckThread,
    ToolFault,
    Wait,
    World,
    run_seeded,
    simulate,
)
from hubbub.runtime.simulation.loop import lockstep
from hubbub.runtime.simulation.story.history import History


def _desk(request: ModelRequest) -> str | ToolCall:
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return last.calls[-1].output
    return call(last.content.split()[0])


def desk(*tools: Any) -> Setup:
    return Setup.of(Agent("desk", "Help.", model=FunctionModel(_desk, latency=0.4), tools=tools))


def outputs(history: History) -> list[str]:
    (run_id,) = history.runs
    return history.said(run_id)


@tool
def fetch(state: RunState) -> str:
    """Fetch a page, and keep it."""
    anyio.from_thread.run(state.files.write, "page.html", "<p>")
    state.set_status("kept it")
    return anyio.from_thread.run(state.ask, "Enough?")


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_a_plain_tool_awaits_what_is_async_by_from_thread(store: Any) -> None:
    story = [Open(agent="desk", input="fetch"), Wait(seconds=60), Reply(text="Quite.")]
    history = simulate(story, desk(fetch), store=store)
    assert outputs(history) == ["Quite."]
    assert any(event.type == "agent:file" for event in history.events)


def test_a_plain_tool_works_in_a_thread_of_its_own() -> None:
    found: list[int] = []

    @tool
    def where() -> str:
        """Say where."""
        found.append(threading.get_ident())
        return "there"

    assert outputs(simulate([Open(agent="desk", input="where")], desk(where))) == ["there"]
    assert threading.get_ident() not in found


def test_a_seed_plays_plain_tools_the_same_way_each_time() -> None:
    story = [
        *(Open(agent="desk", input="fetch") for _ in range(5)), Wait(seconds=3),
        *(Say(text="fetch again", to=to) for to in range(5)), Wait(seconds=3),
        *(Reply(text="Yes.", to=to) for to in range(5)),
    ]  # fmt: skip
    traces = [
        [simulate(story, desk(fetch), seed=seed).trace() for _ in range(2)] for seed in range(4)
    ]
    assert all(one == two for one, two in traces)


@pytest.mark.parametrize("kind", ["late", "crash", "raise", "hang"])
def test_faults_strike_plain_tools_that_need_the_loop(kind: Any) -> None:
    written: list[str] = []

    @tool
    def note(state: RunState) -> str:
        """Keep something."""
        anyio.from_thread.run(state.kv.set, "a", 1)
        written.append("a")
        return "kept"

    fault = ToolFault(kind=kind, seconds=1)
    history = simulate([Open(agent="desk", input="note")], desk(note), faults=[fault])
    assert history.injected
    assert written == (["a"] if kind in ("late", "crash") else [])
    assert len(outputs(history)) == 1


def test_a_plain_tool_that_waits_for_other_tasks_breaks_the_world(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lockstep, "MAX_THREAD_SECONDS", 0.1)
    never = threading.Event()

    @tool
    def waits() -> str:
        """Wait for what never comes."""
        never.wait()
        return "gone"

    async def main() -> None:
        async with World(desk(waits)) as world:
            await world.open("desk", "waits")
            await world.settle()

    try:
        with pytest.raises(StuckThread, match=r"waits .*test_plain_tools.py:"):
            run_seeded(main)
    finally:
        never.set()
