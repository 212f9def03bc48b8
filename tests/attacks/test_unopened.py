"""What is asked of a hub or a runtime that has not been entered says so, at the call.

The functions are found by introspection: a new one is called, too, unless it is listed here as one
that needs no open hub.
"""

import inspect
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from hubbub import CustomEvent, Hub, Runtime, agent
from hubbub.hub import RequestKey
from hubbub.hub.errors import CallerError, Closed
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.run_hub import RunHub
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

RUN = "00000000-0000-7000-8000-00000000000a"

GIVEN: dict[str, Any] = {
    "address": "user", "agent": "job", "agent_name": "job", "content": "x",
    "event": CustomEvent.of("test:x", durable=True), "handler": print, "input": "x", "key": "k",
    "limits": None,
    "message": "x", "parent_run_id": RUN, "pattern": "test:x", "prompt_id": "p", "question": "x",
    "request": RequestKey("r", "d"), "request_id": "r", "run_id": RUN, "strategy": "heartbeat",
    "until": bool, "values": {},
}  # fmt: skip
"""What is given for each parameter."""

READY = {
    "Hub.close": "never to be opened", "Hub.aclose": "as above",
    "Hub.set_owner": "a runtime's way to compose",
    "Hub.delivery": "makes what an owner commits",
    "Hub.scoped": "says only what is emitted inside belongs to",
    "Hub.masker": "masks, and asks nobody",
    "Hub.has": "looks whether anybody listens: nobody does",
    "Hub.is_served": "looks whether anybody answers: nobody does",
    "Hub.subscribe": "who only listens may begin before; see below",
    "Hub.subscribe_until": "as above",
    "Hub.check_store": "a store that is not open has not failed",
    "RunHub.has": "as Hub.has", "RunHub.scoped": "as Hub.scoped",
    "RunHub.open_prompt": "the run's own record", "RunHub.end_prompt": "as above",
    "Runtime.executable": "its execute says it",
}  # fmt: skip
"""What needs no open hub, and why."""


@agent("job")
async def job(input: Any, ctx: Any) -> Any:
    return input


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, ports: Ports, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


def calls() -> Iterator[tuple[type, str]]:
    for kind in (Hub, RunHub, Runtime):
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and f"{kind.__name__}.{name}" not in READY:
                yield kind, name


async def make(holder: object, name: str, **options: Any) -> Any:
    """The call with all that it must be given."""
    function = getattr(holder, name)
    required = [x for x in inspect.signature(function).parameters.values() if x.default is x.empty]
    positional = [GIVEN[x.name] for x in required if x.kind is x.POSITIONAL_OR_KEYWORD]
    answer = function(*positional, **options)
    return await answer if inspect.isawaitable(answer) else answer


def test_what_needs_no_open_hub_is_there() -> None:
    kinds = {kind.__name__: kind for kind in (Hub, RunHub, Runtime)}
    for each in READY:
        kind, _, name = each.partition(".")
        assert callable(getattr(kinds[kind], name))


@pytest.mark.spec("H-15")
@pytest.mark.parametrize(("kind", "name"), [*calls()], ids=lambda x: getattr(x, "__name__", x))
async def test_every_call_before_the_hub_is_entered_says_so_at_once(
    kind: type, name: str, store: Store, ports: Ports
) -> None:
    rt = Runtime([job], store=store, ports=ports)
    lane = SimpleNamespace(run_id=RUN, root_run_id=RUN, parent_run_id=None, agent="job")
    run: Any = SimpleNamespace(lane=lane, is_live=True, keep=print)
    holder = {Hub: rt.hub, RunHub: RunHub(rt.hub, run), Runtime: rt}[kind]
    with anyio.fail_after(60), pytest.raises(CallerError, match="is not open") as caught:
        await make(holder, name)
    assert not isinstance(caught.value, Closed)
    async with rt:  # And nothing of it is left.
        assert (await rt.run("job", "x")).output == "x"
        assert [x.type for x in await rt.hub.read(types="test:*")] == []


async def hear(event: Event) -> None:
    """An async handler, for which a task is needed."""


@pytest.mark.spec("H-15", "H-06")
@pytest.mark.parametrize(
    ("handler", "options"),
    [
        *product((None, print, hear), [{"after": "start"}, {"after": "end"}, {"partial": True}]),
        (hear, {}), (hear, {"lossless": True}),
    ],
)  # fmt: skip
async def test_what_replays_or_takes_a_task_begins_no_sooner_than_the_hub(
    handler: Any, options: dict[str, Any], store: Store, ports: Ports
) -> None:
    hub = Hub(journal=store, ports=ports)
    with pytest.raises(CallerError, match="is not open"):
        hub.subscribe("*", handler, **options)
    async with hub:
        assert hub.statistics().subscribers == 0


@pytest.mark.spec("H-03")
async def test_who_only_listens_may_begin_before_the_hub_and_hears_all(
    store: Store, ports: Ports
) -> None:
    rt = Runtime([job], store=store, ports=ports)
    heard: list[Event] = []
    rt.hub.subscribe("test:*", heard.append)
    stream = rt.hub.subscribe("test:*")
    until = rt.hub.subscribe_until("test:*", bool)
    async with rt:
        event = CustomEvent.of("test:first", durable=True)
        await rt.hub.publish(event)
        assert [x.type for x in heard] == [(await anext(stream)).type] == [event.type]
        assert [x.type async for x in until] == [event.type]


@pytest.mark.spec("R-06")
async def test_an_agent_as_a_function_waits_for_its_runtime_to_be_entered(ports: Ports) -> None:
    execute = Runtime([job], store="memory", ports=ports).executable("job").execute
    with pytest.raises(CallerError, match="is not open"):
        await execute("x")


async def test_a_hub_that_was_closed_unentered_is_closed(ports: Ports) -> None:
    hub = Hub(ports=ports)
    hub.close()
    with pytest.raises(Closed):
        await hub.publish(CustomEvent.of("test:x"))
    assert (await hub.send("x")).reason == "hub closed"
