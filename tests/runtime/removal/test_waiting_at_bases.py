"""Old turns go behind no base at which something waited: that would be lost to forks of there."""

from functools import partial

import anyio
import pytest

from hubbub import Agent, FunctionModel, Hub, ModelRequest, Retention, Runtime
from hubbub.agents.model import UserMessage
from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.events import AgentBase, Event, SessionMessage, SessionTaken
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader, events_in

pytestmark = pytest.mark.anyio

KEPT = Retention(keep_turns=1)


def waited(events: list[Event], seq: int) -> list[str]:
    """What waited in a run's inbox after a record of its own, by all its events."""
    came: dict[int, str] = {}
    for event in events:
        if isinstance(event, SessionMessage) and event.lane == "in":
            came[event.seq] = event.content
        elif isinstance(event, SessionTaken):
            for item in event.items:
                came.pop(item.seq, None)
        if event.lane == "own" and event.seq == seq:
            break
    return list(came.values())


def first_left(reader: StoreReader, run_id: str) -> int:
    """The base behind what has gone of a run; 0 where nothing has."""
    return base_behind_gap(x.event for x in events_in(reader, run_id))


async def heard(rt: Runtime, run_id: str) -> list[str]:
    """What a run has been told that is left of it."""

    def look(reader: StoreReader) -> list[str]:
        taken = [x.event for x in events_in(reader, run_id) if isinstance(x.event, SessionTaken)]
        items = [item for event in taken for item in event.items]
        return [item.content for item in items if isinstance(item, SessionMessage)]

    return await rt.hub.journal.inspect(look)


async def test_a_fork_of_the_first_record_that_is_left_hears_what_waited_then(ports: Ports) -> None:
    """It was on its way to the store while the run was about to rest."""
    hub = Hub(journal=LateJournal(MemoryJournal(), turns=3), ports=ports)

    def answer(request: ModelRequest) -> str:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and not str(last.content).startswith("behind"):
            hub.send_to_run(runs[-1], f"behind {last.content}")
        return "It is noted."

    bot = Agent("bot", "You answer.", model=FunctionModel(answer))
    runs: list[str] = []
    whole: list[Event] = []
    hub.subscribe("*", whole.append)
    async with hub, Runtime([bot], hub=hub, retention=KEPT) as rt:
        run = await rt.start("bot", session_key="chat")
        runs.append(run.run_id)
        for turn in range(4):
            await rt.hub.send_to_run(run.run_id, f"number {turn}")
            await anyio.sleep(30)
        events = [x for x in whole if x.run_id == run.run_id and x.lane in ("own", "in")]
        bases = [x.seq for x in events if isinstance(x, AgentBase)]
        assert any(waited(events, seq) for seq in bases)
        seq = await hub.journal.inspect(partial(first_left, run_id=run.run_id))
        assert seq, "old turns have gone"
        fork = await rt.fork(run.run_id, seq)
        await anyio.sleep(10)
        assert await heard(rt, fork.run_id) == waited(events, seq)
