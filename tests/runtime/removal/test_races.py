"""What is asked of a run while it goes finds it whole, or finds none."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from support.pruned_stores import problems
from support.stores import agents

from hubbub import Message, Retention, Runtime
from hubbub.hub.errors import UnknownRun
from hubbub.hub.events import HubGap
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import removals_of
from hubbub.runtime.removal.passes import RetentionPasses

pytestmark = pytest.mark.anyio

DAY = 86_400

FOUND, GONE = "found", "gone"


def passes_of(rt: Runtime) -> RetentionPasses:
    store = removals_of(rt.hub.journal)
    assert store is not None
    return RetentionPasses(rt.services, Retention(ended=0.001), store)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_is_asked_of_a_run_while_it_goes_finds_it_whole_or_finds_none(
    kind: str, tmp_path: Path, ports: Ports
) -> None:
    store = "memory" if kind == "memory" else f"sqlite:{tmp_path / 'store'}"
    told: Counter[tuple[str, str]] = Counter()
    forks: list[str] = []
    async with Runtime(agents(), store=store, ports=ports) as rt:

        async def ask(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
            try:
                answer = await call()
            except UnknownRun:
                told[name, GONE] += 1
                return
            told[name, FOUND] += 1
            if name == "fork":
                forks.append(answer.run_id)

        for turns in range(60):
            run = await rt.start("bot", Message("hi", key="k"), session_key=f"s{turns}")
            await run.result()
            run.close()
            await run.finished()
            await rt.run("bot", "the last event of the store is another run's")
            await anyio.sleep(1)
            async with anyio.create_task_group() as group:
                group.start_soon(passes_of(rt).make_pass)
                for _ in range(turns):
                    await checkpoint()
                group.start_soon(ask, "fork", lambda id_=run.run_id: rt.fork(id_, message="on"))
                group.start_soon(ask, "state", lambda id_=run.run_id: rt.state_at(id_, 2))
                group.start_soon(ask, "result", lambda id_=run.run_id: rt.result(id_))
                receipt = await rt.hub.send_to_run(run.run_id, "are you there?")
            assert receipt.reason in ("ended", "unknown")
            again = await rt.start("bot", Message("hi", key="k"), session_key=f"s{turns}")
            assert (await again.result()).outcome == "completed" and again.run_id != run.run_id
        for fork in forks:
            assert (await rt.result(fork)).outcome == "completed"
        for name in ("fork", "state", "result"):
            assert told[name, FOUND] > 0 and told[name, GONE] > 0, (name, told)
    if kind == "sqlite":
        assert problems(store) == []


class MeanwhileJournal(MemoryJournal):
    """Something happens behind the first look at its notes, before what was seen is told."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        found = await super().notes(prefix)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


async def test_what_goes_while_a_place_is_looked_for_is_told(ports: Ports) -> None:
    journal = MeanwhileJournal()
    async with Runtime(agents(), store=journal, ports=ports, retention=Retention(ended="1d")) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        (*_, last) = await rt.hub.read(chat.run_id)
        cursor = rt.hub.cursor(last)
        old = await rt.run("bot", "old")
        await chat.ask("still there?")
        journal.meanwhile = partial(anyio.sleep, 2 * DAY)
        async with rt.hub.subscribe("*", after=cursor) as events:
            first, second = await anext(events), await anext(events)
        assert isinstance(first, HubGap) and first.reason == "removed"
        assert second.run_id == chat.run_id
        assert await journal.info(old.run_id) is None


async def test_what_is_about_to_go_is_told_to_who_begins_to_read(ports: Ports) -> None:
    """It may be there when the place is looked for, and gone when it is read."""
    async with Runtime(agents(), store=MemoryJournal(), ports=ports) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        (*_, last) = await rt.hub.read(chat.run_id)
        old = await rt.run("bot", "old")
        await chat.ask("still there?")
        is_done = rt.hub.dispatcher.removing(old.run_id, (old.run_id,), rt.hub.journal.tip)
        selected = ({}, {"run_id": old.run_id}, {"run_id": chat.run_id})
        for told, where in zip((True, True, False), selected, strict=True):
            async with rt.hub.subscribe("*", after=rt.hub.cursor(last), **where) as events:
                assert isinstance(await anext(events), HubGap) == told, where
        is_done()
        async with rt.hub.subscribe("*", after=rt.hub.cursor(last)) as events:
            assert not isinstance(await anext(events), HubGap)
