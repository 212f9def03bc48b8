"""Whoever closes a hub from inside one of its own tasks is told that it would wait for itself."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from hubbub import Agent, Hub, RunContext, Runtime, ScriptedModel, agent, tool
from hubbub.channels import Channel, Channels
from hubbub.hub.errors import CallerError
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-02"), pytest.mark.spec("R-16")]

Close = Callable[[], Awaitable[Any]]
Tries = list[str]


async def tried(close: Close, tries: Tries) -> None:
    """Close, and keep what is said of it."""
    try:
        await close()
    except CallerError as error:
        tries.append(str(error))
        raise
    tries.append("closed")


async def in_a_listener(rt: Runtime, close: Close, tries: Tries) -> None:
    async def hear(_: object) -> None:
        await tried(close, tries)

    rt.hub.subscribe("agent:complete", hear)
    await rt.run("chatting", "hi")


async def in_a_service(rt: Runtime, close: Close, tries: Tries) -> None:
    rt.hub.serve("svc", lambda _: tried(close, tries))
    with pytest.raises(Exception, match="waits for this very task"):
        await rt.hub.ask("svc", "?")


async def in_a_channel(rt: Runtime, close: Close, tries: Tries) -> None:
    async def hear(*_: object) -> None:
        await tried(close, tries)

    async with Channels(rt.hub, Channel("c", {"agent:complete": hear})):
        await rt.run("chatting", "hi")
        await anyio.wait_all_tasks_blocked()


PLACES: Final[dict[str, Callable[[Runtime, Close, Tries], Awaitable[None]]]] = {
    "a listener": in_a_listener,
    "a service": in_a_service,
    "a channel": in_a_channel,
}
CLOSES: Final[dict[str, Callable[[Runtime], Close]]] = {
    "the hub": lambda rt: rt.hub.aclose,
    "the runtime": lambda rt: lambda: rt.__aexit__(None, None, None),
}
STORES: Final = ("memory", "sqlite")


def place(store: str, folder: Path) -> str:
    return "memory" if store == "memory" else f"sqlite:{folder}"


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("close", CLOSES)
@pytest.mark.parametrize("where", PLACES)
async def test_what_hears_cannot_close_what_it_is_heard_by(
    where: str, close: str, store: str, tmp_path: Path, ports: Ports
) -> None:
    tries: Tries = []
    chatting = Agent("chatting", "Help.", model=ScriptedModel(["Hello."] * 3))
    async with Runtime([chatting], store=place(store, tmp_path), ports=ports) as rt:
        with anyio.fail_after(20):
            await PLACES[where](rt, CLOSES[close](rt), tries)
            while not tries:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert (await rt.run("chatting", "still there?")).output == "Hello."
    assert all("waits for this very task; set an Event" in each for each in tries)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("how", ["run", "start"])
@pytest.mark.parametrize("kind", ["tool", "code"])
async def test_a_run_cannot_close_the_hub_that_it_is_on(
    kind: str, how: str, store: str, tmp_path: Path, ports: Ports
) -> None:
    tries: Tries = []
    hubs: list[Hub] = []

    @tool
    async def closes() -> str:
        """Close."""
        await tried(hubs[0].aclose, tries)
        return "closed"

    @agent("code")
    async def code(input: str, ctx: RunContext) -> str:
        with pytest.raises(CallerError):
            await tried(hubs[0].aclose, tries)
        return "done"

    model = ScriptedModel([call("closes"), "done"])
    agents = [code, Agent("tool", "Help.", model=model, tools=[closes])]
    async with Runtime(agents, store=place(store, tmp_path), ports=ports) as rt:
        hubs.append(rt.hub)
        with anyio.fail_after(20):
            if how == "run":
                assert (await rt.run(kind, "hi")).output == "done"
            elif kind == "code":
                assert (await (await rt.start(kind, "hi")).result()).output == "done"
            else:
                assert (await (await rt.start(kind)).ask("hi")).output == "done"
    assert tries
    assert all("waits for this very task" in each for each in tries)


async def test_a_hub_may_be_closed_in_a_task_of_another_one() -> None:
    closed: list[bool] = []
    async with Hub() as outer:

        async def hear(_: object) -> None:
            async with Hub() as inner:
                pass
            closed.append(inner.is_closed)

        outer.subscribe("session:open", hear)
        await outer.open("a", "x")
        with anyio.fail_after(20):
            while not closed:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert closed == [True]


@pytest.mark.parametrize("close", CLOSES)
async def test_on_trio_another_task_is_told_where_to_leave(
    close: str, ports: Ports, anyio_backend_name: str
) -> None:
    said: list[str] = []

    async def leave() -> None:
        try:
            await CLOSES[close](rt)()
        except CallerError as error:
            said.append(str(error))

    async with Runtime([], store="memory", ports=ports) as rt, anyio.create_task_group() as group:
        if anyio_backend_name == "trio":
            group.start_soon(leave)
    assert len(said) == (1 if anyio_backend_name == "trio" else 0)
    assert all("the task that entered it" in each for each in said)
