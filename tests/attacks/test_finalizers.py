"""What finalizers call: refused where the garbage collector runs them, in the midst of anything.

the last reference goes  ──► __del__, where it went             ──► a call like any other
Python collects garbage  ──► __del__, wherever it had allocated ──► refused, and says so
"""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Agent, CustomEvent, FunctionModel, RunState, Runtime
from hubbub import tool as made_tool
from hubbub.agents.model import AssistantMessage
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event, SessionMessage, SessionTaken
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-15")]


class Finalized:
    """Calls a function when it goes, and keeps what that raised."""

    def __init__(self, function: Callable[[], Any], raised: list[Exception]) -> None:
        self._function = function
        self._raised = raised

    def __del__(self) -> None:
        try:
            self._function()
        except Exception as error:
            self._raised.append(error)


def in_a_circle(finalized: Finalized) -> None:
    """From now on garbage, which only the collector finds."""
    finalized.itself = finalized  # type: ignore[attr-defined]


CALLS: dict[str, Callable[[Runtime, str], Any]] = {
    "send_to_run": lambda rt, run_id: rt.hub.send_to_run(run_id, "gone"),
    "send": lambda rt, run_id: rt.hub.send("gone", session_key="ann"),
    "open": lambda rt, run_id: rt.hub.open("desk", "gone"),
    "reply": lambda rt, run_id: rt.hub.reply("unknown", "gone"),
    "interrupt": lambda rt, run_id: rt.hub.interrupt(run_id),
    "terminate": lambda rt, run_id: rt.terminate(run_id),
    "close_run": lambda rt, run_id: rt.hub.close_run(run_id),
    "emit": lambda rt, run_id: rt.hub.emit(CustomEvent.of("x:y")),
    "emit, not recorded": lambda rt, run_id: rt.hub.emit(CustomEvent.of("x:y:delta")),
    "subscribe": lambda rt, run_id: rt.hub.subscribe("x:*", lambda _: None),
}


@made_tool
async def work(state: RunState) -> str:
    """Work."""
    raised: list[Exception] = []
    in_a_circle(Finalized(lambda: state.set_status("gone"), raised))
    gc.collect()
    return f"{raised[0]}"


def desk() -> Agent:
    def answer(request: Any) -> Any:
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return last.calls[-1].output
        return reply("", call("work")) if last.content == "work" else f"about {last.content}"

    return Agent("desk", "You serve.", model=FunctionModel(answer), tools=[work])


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "memory":
        return MemoryJournal()
    return sqlite_store(tmp_path / "store", ports=ports)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(7, 2, 2)
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_the_collector_makes_is_refused_and_one_that_it_does_not_is_made(
    name: str, store: Store, ports: Ports
) -> None:
    async with Runtime([desk()], store=store, ports=ports, grace=1) as rt:
        run = await rt.start("desk", "hello", session_key="ann")
        await run.result()
        raised: list[Exception] = []
        in_a_circle(Finalized(lambda: CALLS[name](rt, run.run_id), raised))
        gc.collect()
        (error,) = raised
        assert type(error) is CallerError
        assert "call_soon_threadsafe" in str(error)
        before = len(await rt.hub.read())
        del raised[:]
        Finalized(lambda: CALLS[name](rt, run.run_id), raised)
        assert not raised
        if name not in ("reply", "emit, not recorded", "subscribe"):
            await rt.hub.publish(CustomEvent.of("x:last"))
            assert len(await rt.hub.read()) > before + 1


async def test_a_tool_s_state_refuses_the_collector_too(ports: Ports) -> None:
    async with Runtime([desk()], store="memory", ports=ports) as rt:
        outcome = await rt.run("desk", "work")
        assert "garbage collector" in str(outcome.output)


async def test_what_the_collector_closes_is_closed(ports: Ports) -> None:
    async with Runtime([desk()], store="memory", ports=ports) as rt:
        heard: list[Event] = []
        raised: list[Exception] = []
        in_a_circle(Finalized(rt.hub.subscribe("x:*", heard.append).close, raised))
        gc.collect()
        await rt.hub.publish(CustomEvent.of("x:y"))
        assert not raised
        assert not heard


async def test_finalizers_that_are_run_at_any_allocation_break_nothing(
    store: Store, ports: Ports, eager_collector: None
) -> None:
    async with Runtime([desk()], store=store, ports=ports, grace=1) as rt:
        heard: list[tuple[str, int]] = []
        said: list[str] = []
        raised: list[Exception] = []
        run = await rt.start("desk", "hello", session_key="ann")

        def speak() -> None:
            rt.hub.emit(CustomEvent.of("x:y:delta"))
            rt.hub.send_to_run(run.run_id, f"{len(said)}")
            said.append(f"{len(said)}")

        def listen(event: Event) -> None:
            if len(heard) < 600:
                in_a_circle(Finalized(speak, raised))
            if event.lane:
                heard.append((event.run_id, event.seq))

        rt.hub.subscribe("*", listen)
        with anyio.fail_after(60):
            for number in range(60):
                other = await rt.start("desk", f"{number}", session_key=f"key-{number % 3}")
                assert (await other.result()).success
            await run.result()
        await rt.hub.publish(CustomEvent.of("x:last"))
        assert {type(error) for error in raised} <= {CallerError}
        assert raised
        events = await rt.hub.read()
        assert [(x.run_id, x.seq) for x in events][-len(heard) :] == heard
        items = [item for x in events if isinstance(x, SessionTaken) for item in x.items]
        mine = [x for x in items if isinstance(x, SessionMessage) and x.run_id == run.run_id]
        assert [item.content for item in mine] == said
