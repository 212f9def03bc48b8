"""A runtime says how any run was after any of its records, as the store alone says it."""

from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.stores import agents, fill

from hubbub import Runtime
from hubbub.hub.errors import BadValue, StoreFailed, UnknownRun
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.runtime import Replayed
from hubbub.runtime.inspection.replay import NoSuchRecord, replay
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "memory":
        return MemoryJournal()
    return sqlite_store(tmp_path / "store", ports=ports, mirror=False)


async def test_every_record_of_every_run_has_its_state(store: Store, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, grace=0) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        done = await rt.run("bot", "once")
        parent = await rt.start("parent", "wait")
        await anyio.sleep(1)
        with closing(store.reader()) as reader:
            rows = [*reader.rows()]
            assert len(rows) == 4
            for row in rows:
                for seq in range(row.seq + 1):
                    state = await rt.state_at(row.run_id, seq)
                    assert isinstance(state, Replayed)
                    assert (state, state.seq) == (replay(reader, row.run_id, seq), seq)
        shown = await rt.state_at(chat.run_id)
        assert (shown.agent, shown.phase, shown.outcome) == ("bot", "live", "completed")
        assert shown.keys == {"last": "heard hello"} and shown.files[0].digest
        assert shown.usage.input_tokens == 20
        assert (await rt.state_at(done.run_id)).phase == "ended"
        at_work = await rt.state_at(parent.run_id)
        assert (at_work.kind, at_work.outcome, len(at_work.children)) == ("code", "", 1)
        assert (await rt.state_at(chat.run_id, 0)).outcome == ""


async def test_what_is_not_there_is_said_in_one_line(store: Store, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports) as rt:
        chat = await rt.start("bot", "hello")
        await chat.result()
        last = (await rt.state_at(chat.run_id)).seq
        for seq in (-1, last + 1, 1 << 70):
            with pytest.raises(NoSuchRecord, match=f"{seq} is none of .* from 1 to {last}"):
                await rt.state_at(chat.run_id, seq)
        with pytest.raises(UnknownRun):
            await rt.state_at("nobody")
        wrong: Any
        for wrong in ("6", 6.0, True):
            with pytest.raises(BadValue, match="seq"):
                await rt.state_at(chat.run_id, wrong)
        wrong = 7
        with pytest.raises(BadValue, match="run_id"):
            await rt.state_at(wrong)


async def test_a_damaged_record_is_told(tmp_path: Path, ports: Ports) -> None:
    import sqlite3

    runs = await fill(tmp_path / "store", ports)
    with closing(sqlite3.connect(tmp_path / "store" / "hubbub.db")) as db:
        db.execute("UPDATE event SET body = '{' WHERE lane = 'own' AND seq = 3")
        db.commit()
    store = sqlite_store(tmp_path / "store", ports=ports, mirror=False)
    async with Runtime(agents(), store=store, ports=ports, grace=0) as rt:
        assert (await rt.state_at(runs.done, 2)).seq == 2
        with pytest.raises(StoreFailed, match="is no event"):
            await rt.state_at(runs.done)
