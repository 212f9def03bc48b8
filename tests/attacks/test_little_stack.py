"""What is called with little of Python's stack left is refused, or done: nothing half-way.

the stack    ├── hundreds of frames of a caller ──┤ room ┤ the limit
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.profiles import portion

from hubbub import Agent, CustomEvent, FunctionModel, ModelReply, ModelRequest, RunState, Runtime
from hubbub import tool as made_tool
from hubbub.agents.model import UserMessage
from hubbub.hub.errors import HubbubError
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.tasks.stack_room import FRAMES
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-02")]

ROOMS = (*range(2, 60), *range(60, FRAMES + 40, 7))
"""How many frames are left to what is called."""


def with_room(room: int, function: Callable[[], Any]) -> Any:
    """What ``function`` returns where so many frames are left to it."""
    depth, frame = 0, sys._getframe()
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        depth += 1
    return _deeper(sys.getrecursionlimit() - depth - room, function)


def _deeper(frames: int, function: Callable[[], Any]) -> Any:
    return function() if frames <= 0 else _deeper(frames - 1, function)


def tried(room: int, function: Callable[[], Any]) -> Any:
    """The same; ``None`` where that is refused."""
    try:
        return with_room(room, function)
    except (RecursionError, HubbubError):
        return None


CALLS: dict[str, Callable[[Runtime, str, int], Any]] = {
    "send_to_run": lambda rt, run_id, n: rt.hub.send_to_run(run_id, f"{n}"),
    "send_to": lambda rt, run_id, n: rt.hub.send_to("desk", f"{n}"),
    "send": lambda rt, run_id, n: rt.hub.send(f"{n}", session_key="ann"),
    "open": lambda rt, run_id, n: rt.hub.open("desk", f"{n}", run_id=f"opened-{n}"),
    "reply": lambda rt, run_id, n: rt.hub.reply("unknown", f"{n}"),
    "interrupt": lambda rt, run_id, n: rt.hub.interrupt(run_id),
    "terminate": lambda rt, run_id, n: rt.hub.terminate(f"unknown-{n}"),
    "emit": lambda rt, run_id, n: rt.hub.emit(CustomEvent.of("x:y", n=n)),
    "emit, not recorded": lambda rt, run_id, n: rt.hub.emit(CustomEvent.of("x:y:delta", n=n)),
    "subscribe": lambda rt, run_id, n: rt.hub.subscribe("x:*", lambda _: None).close(),
}


def answer(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]
    if isinstance(last, UserMessage) and last.content == "work":
        return reply("", call("work"))
    return reply("done")


@made_tool
async def work(state: RunState) -> str:
    """Say things, each with a little more room than the one before."""
    said: tuple[Callable[[str], Any], ...] = (
        state.queue_message, state.inject_message, state.set_status,
        lambda text: state.set_env("NAME", text),
    )  # fmt: skip
    for room in portion(ROOMS):
        for say in said:
            tried(room, lambda say=say, room=room: say(f"{room}"))  # type: ignore[misc]
    return "worked"


def desk() -> Agent:
    return Agent("desk", "You serve.", model=FunctionModel(answer), tools=[work])


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "memory":
        return MemoryJournal()
    return sqlite_store(tmp_path / "store", ports=ports)


async def all_is_well(rt: Runtime, run_id: str) -> None:
    """Nobody waits for what never comes."""
    with anyio.fail_after(30):
        run = await rt.handle(run_id)
        assert (await run.ask("still there?")).output == "done"
        assert (await rt.run("desk", "and others?")).output == "done"
        await run.result()
        while rt.hub.statistics().waiting:
            await anyio.lowlevel.checkpoint()
        assert not rt.hub.statistics().uncommitted


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_with_little_stack_left_is_refused_or_done(
    name: str, store: Store, ports: Ports
) -> None:
    async with Runtime([desk()], store=store, ports=ports, grace=1) as rt:
        run = await rt.start("desk", "hello", session_key="ann")
        await run.result()
        receipts = [
            tried(room, lambda room=room: CALLS[name](rt, run.run_id, room))  # type: ignore[misc]
            for room in (*portion(ROOMS), FRAMES + 60)
        ]
        assert receipts[-1] is not None or name in ("emit", "emit, not recorded", "subscribe")
        await all_is_well(rt, run.run_id)


class Calling:
    """Calls a function by its type's slot, which C code does."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __call__(self) -> Any:
        return self._function()

    def __getattr__(self, name: str) -> Any:
        return self._function()


RECURSIONS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "a function": lambda again: again(),
    "a partial": lambda again: partial(again)(),
    "__call__": lambda again: Calling(again)(),
    "__getattr__": lambda again: Calling(again).deeper,
    "a reduction": lambda again: reduce(lambda *_: again(), (1, 2)),
    "a key": lambda again: sorted((1,), key=lambda _: again()),
    "a generator": lambda again: sum(again() for _ in (1,)),
}
"""Ways in which code calls itself, some of them with C code in between."""


@pytest.mark.parametrize("how", RECURSIONS)
async def test_a_call_from_the_end_of_a_recursion_is_refused_or_done(
    how: str, store: Store, ports: Ports
) -> None:
    async with Runtime([desk()], store=store, ports=ports, grace=1) as rt:
        run = await rt.start("desk", "hello", session_key="ann")
        await run.result()
        tries, accepted = 0, 0

        def visit() -> Any:
            nonlocal tries, accepted
            try:
                return RECURSIONS[how](visit)
            except RecursionError:
                tries += 1
                if tries < 400:
                    with suppress(RecursionError):
                        rt.hub.send_to_run(run.run_id, f"{tries}")
                        accepted += 1
                raise

        with suppress(RecursionError):
            visit()
        assert 0 < accepted < tries
        await all_is_well(rt, run.run_id)


async def test_a_tool_with_little_stack_left_says_nothing_half_way(
    store: Store, ports: Ports
) -> None:
    async with Runtime([desk()], store=store, ports=ports, grace=1) as rt:
        run = await rt.start("desk", "work", session_key="ann")
        with anyio.fail_after(60):
            assert (await run.result()).output == "done"
        await all_is_well(rt, run.run_id)


async def test_a_listener_that_recurses_is_one_failure(store: Store, ports: Ports) -> None:
    async with Runtime([desk()], store=store, ports=ports, grace=1) as rt:
        run = await rt.start("desk", "hello", session_key="ann")
        await run.result()
        heard = []

        def visit(depth: int) -> None:
            rt.hub.send_to_run(run.run_id, f"{depth}")
            visit(depth + 1)

        rt.hub.subscribe("hub:error", heard.append)
        with rt.hub.subscribe("x:y", lambda _: visit(0)):
            await rt.hub.publish(CustomEvent.of("x:y"))
        assert [each.error_type for each in heard] == ["RecursionError"]
        await all_is_well(rt, run.run_id)
