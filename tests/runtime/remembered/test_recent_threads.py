"""What a message to a long conversation costs: what has come since, not all there was (P-03)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from support.agents import model_agent

from hubbub import ModelRequest, Runtime
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import LoadedRun, Selection
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.remembered.recent import MAX_EVENTS, MIN_EVENTS, RecentThreads
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


class Counted(MemoryJournal):
    """Counts the events that are read of runs."""

    events_read = 0

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        loaded = await super().load(run_id, after=after)
        self.events_read += len(loaded.events) if loaded is not None else 0
        return loaded

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        found, position = await super().read(selection, after=after, until=until, limit=limit)
        self.events_read += len(found)
        return found, position


async def test_a_message_to_a_long_conversation_reads_nothing_that_was_read_before(
    ports: Ports,
) -> None:
    journal = Counted(ids=ports.ids)
    async with Runtime(
        [model_agent(FunctionModel(lambda _: "yes"))], store=journal, ports=ports
    ) as rt:
        run = await rt.start("assistant", "hello")
        for number in range(200):
            await run.send(str(number))
            await run.result()
        before = journal.events_read
        for number in range(50):
            await run.send(str(number))
            await run.result()
        loaded = await journal.load(run.run_id)
        assert loaded is not None and len(loaded.events) > 1000
        assert journal.events_read - before == len(loaded.events)  # This last look at it all.


async def test_what_was_kept_is_what_the_journal_says(ports: Ports, tmp_path: Path) -> None:
    """The second of two runtimes reads all that the first one remembered."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return f"answer to {len(request.messages)}"

    bot = model_agent(FunctionModel(answer))
    for _ in range(2):
        async with Runtime([bot], store=sqlite_store(tmp_path, ports=ports), ports=ports) as rt:
            run = await rt.start("assistant", "hello", session_key="daily")
            await run.result()
            for number in range(40):
                await run.send(str(number))
                await run.result()
            events = [event for event in await run.read() if event.lane == "own"]
    assert len(events) > 3 * MIN_EVENTS
    assert len(requests) == 82
    for earlier, later in pairwise(requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
    assert requests[-1].messages == fold_all(EMPTY, events).transcript[:-1]


def thread(number: int) -> Thread:
    return Thread(status=str(number))


def test_the_last_ones_are_kept_as_far_as_they_are_not_too_much_together() -> None:
    kept = RecentThreads()
    kept.put("short", thread(0), MIN_EVENTS - 1)
    assert kept.take("short") is None
    size = MAX_EVENTS // 4
    for number in range(6):
        kept.put(f"run {number}", thread(number), size)
    assert [kept.take(f"run {number}") is not None for number in range(6)] == [
        False, False, True, True, True, True,
    ]  # fmt: skip
    assert kept.take("run 5") is None, "once: it is at work now"


def test_a_run_that_is_longer_than_all_that_may_be_kept_is_kept_alone() -> None:
    kept = RecentThreads()
    kept.put("small", thread(1), MIN_EVENTS)
    kept.put("huge", thread(2), 10 * MAX_EVENTS)
    assert (kept.take("small"), kept.take("huge")) == (None, (thread(2), 10 * MAX_EVENTS))
    kept.put("huge", thread(3), 10 * MAX_EVENTS)
    kept.put("huge", thread(4), 10 * MAX_EVENTS + 5)
    assert kept.take("huge") == (thread(4), 10 * MAX_EVENTS + 5)
