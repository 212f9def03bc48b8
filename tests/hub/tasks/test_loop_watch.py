"""A function that holds the event loop is named while it does."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support.agents import heard, model_agent

from hubbub import CustomEvent, Hook, Hub, Runtime, agent, tool
from hubbub.agents.model import ModelRequest
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.tasks import loop_watch
from hubbub.hub.tasks.loop_watch import NoWatch, ThreadWatch
from hubbub.hub.virtual import LoopClock, virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: threads take real time.


class Told(logging.Handler):
    """Takes what is logged and lets go of whoever waits for that."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.is_told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("event_loop.held"):
            assert record.levelno == logging.WARNING
            self.lines.append(record.getMessage())
            self.is_told.set()

    def hold(self, *_: Any) -> None:
        assert self.is_told.wait(20)


@pytest.fixture
def told() -> Any:
    handler = Told()
    logging.getLogger("hubbub").addHandler(handler)
    yield handler
    logging.getLogger("hubbub").removeHandler(handler)


def watched(patience: float = 0.05) -> Ports:
    return Ports(watch=ThreadWatch(every=0.01, patience=patience))


def holders(told: Told) -> dict[str, Callable[[], Any]]:
    """Each place where a user's code may hold the loop, by the name that is to be told."""

    def listen(event: Event) -> None:
        told.hold()

    async def listen_async(event: Event) -> None:
        told.hold()

    @tool(name="act")
    async def act() -> str:
        await anyio.lowlevel.checkpoint()
        told.hold()
        return "done"

    @agent("assistant")
    async def code(input: Any, ctx: Any) -> None:
        told.hold()

    def answer(request: ModelRequest) -> str:
        told.hold()
        return heard(request)[-1]

    def hook(state: Any, value: Any) -> Any:
        told.hold()
        return value

    def listening(handler: Any) -> Callable[[], Any]:
        async def main() -> None:
            async with Hub(ports=watched()) as hub:
                hub.subscribe("held:up", handler)
                await hub.publish(CustomEvent.of("held:up"))
                while not told.lines:
                    await anyio.lowlevel.checkpoint()

        return main

    def running(definition: Any, **more: Any) -> Callable[[], Any]:
        async def main() -> None:
            async with Runtime([definition], store="memory", ports=watched(), **more) as rt:
                await rt.run("assistant", "Go.")

        return main

    hooks = [Hook(id="h", point="filter_messages", fn=hook)]
    return {
        "listen": listening(listen),
        "listen_async": listening(listen_async),
        "act": running(model_agent(ScriptedModel([call("act"), "Well."]), act)),
        "code": running(code),
        "answer": running(model_agent(FunctionModel(answer))),
        "hook": running(model_agent(ScriptedModel(["Well."]), hooks=["h"]), hooks=hooks),
    }  # fmt: skip


@pytest.mark.spec("U-08")
@LOOPS
@pytest.mark.parametrize("name", ["listen", "listen_async", "act", "code", "answer", "hook"])
def test_what_holds_the_loop_is_named_with_file_and_line(name: str, loop: str, told: Told) -> None:
    anyio.run(holders(told)[name], backend=loop)
    (line,) = told.lines
    assert f".{name}'" in line and f"at='{__file__}:" in line


@LOOPS
def test_of_nested_calls_the_one_that_hubbub_made_last_is_named(loop: str, told: Told) -> None:
    def inner(event: Event) -> None:
        told.hold()

    @tool(name="act")
    async def act(state: Any = None) -> str:
        hub.emit(CustomEvent.of("held:up"))
        return "done"

    async def main() -> None:
        nonlocal hub
        bot = model_agent(ScriptedModel([call("act"), "Well."]), act)
        async with Runtime([bot], store="memory", ports=watched()) as rt:
            hub = rt.hub
            hub.subscribe("held:up", inner)
            await rt.run("assistant", "Go.")

    hub: Any = None
    anyio.run(main, backend=loop)
    (line,) = told.lines
    assert ".inner'" in line


@LOOPS
def test_code_that_hubbub_has_not_called_is_not_warned_of(loop: str, told: Told) -> None:
    looked = threading.Event()

    def look(thread: int) -> tuple[str, str] | None:
        found = called_in(thread)
        looked.set()
        return found

    async def main() -> None:
        async with Hub(ports=watched()):
            assert looked.wait(20)

    called_in = loop_watch.called_in
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_watch, "called_in", look)
        anyio.run(main, backend=loop)
    assert not told.lines


@LOOPS
def test_the_watch_ends_with_its_hub(loop: str) -> None:
    async def main() -> None:
        async with Hub(ports=watched(patience=0.5)):
            assert [x for x in threading.enumerate() if x.name == "hubbub watch"]

    before = {x for x in threading.enumerate() if x.name == "hubbub watch"}
    anyio.run(main, backend=loop)
    for each in {x for x in threading.enumerate() if x.name == "hubbub watch"} - before:
        each.join(20)
        assert not each.is_alive()


def test_a_second_is_noticed_for_certain_and_little_less_never() -> None:
    assert loop_watch.EVERY + loop_watch.PATIENCE == 1
    assert loop_watch.PATIENCE >= 0.75


def test_nobody_watches_where_time_is_virtual() -> None:
    assert isinstance(Ports().watch, ThreadWatch)
    assert isinstance(virtual_ports().watch, NoWatch)
    assert isinstance(Ports(clock=LoopClock()).watch, NoWatch)
