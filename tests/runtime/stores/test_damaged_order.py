"""An index of the database that leads back: whoever goes by it comes to an end all the same."""

import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path

import anyio
import pytest

from hubbub import Agent, Runtime, ScriptedModel
from hubbub.hub.errors import HubbubError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Selection
from hubbub.hub.store.reader import StoreUnreadable
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-07")]

LEAF = 0x0A
PAGE = 4096


def runtime(folder: Path, ports: Ports, *, mirror: bool = False) -> Runtime:
    agent = Agent("bot", "x", model=ScriptedModel(["Hello."] * 1000))
    store = sqlite_store(folder, ports=ports, mirror=mirror)
    return Runtime([agent], store=store, ports=ports, grace=1)


async def talked(folder: Path) -> str:
    """A conversation of many events, the second run of a store, with some behind it."""
    async with runtime(folder, virtual_ports(), mirror=True) as rt:
        await rt.run("bot", "first")
        run = await rt.start("bot", "hi", session_key="web_c_1")
        for _ in range(80):
            await run.ask("more")
        for _ in range(40):
            await rt.run("bot", "another")
    return run.run_id


def lead_back(database: Path, run_id: str) -> None:
    """Change a bit of the run's last entry in the index of runs: it names an event of the same run
    that comes long before it."""
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        select = "SELECT number FROM address WHERE run_id = ?"
        ((number,),) = db.execute(select, (run_id,))
        ((last,),) = db.execute("SELECT max(position) FROM event WHERE run = ?", (number,))
        bit = last.bit_length() - 1
        earlier = (number, last ^ 1 << bit)
        assert db.execute("SELECT 1 FROM event WHERE run = ? AND position = ?", earlier).fetchone()
    assert 2 <= number < 128 and 8 <= bit < 15, "so the entry is as it is looked for"
    entry = bytes((3, 1, 2, number)) + last.to_bytes(2)
    data = bytearray(database.read_bytes())
    places = [
        data.index(entry, page, page + PAGE)
        for page in range(0, len(data), PAGE)
        if data[page] == LEAF and entry in data[page : page + PAGE]
    ]
    (place,) = places
    data[place + len(entry) - 2] ^= 1 << bit - 8
    database.write_bytes(data)


async def damaged(folder: Path) -> str:
    run_id = await talked(folder)
    lead_back(folder / "hubbub.db", run_id)
    return run_id


async def test_a_reader_is_told(tmp_path: Path) -> None:
    run_id = await damaged(tmp_path)
    with open_reader(f"sqlite:{tmp_path}") as reader:
        for backwards in (False, True):
            rows = reader.event_rows([run_id], backwards=backwards)
            with pytest.raises(StoreUnreadable, match="not in the order"):
                list(islice(rows, 10_000))


async def test_a_check_of_the_store_ends_and_says_so(tmp_path: Path) -> None:
    run_id = await damaged(tmp_path)
    found = list(StoreCheck(f"sqlite:{tmp_path}", thorough=True).problems())
    assert any(run_id in str(problem) for problem in found)


async def test_a_page_of_events_leads_forward_wherever_it_begins(tmp_path: Path) -> None:
    run_id = await damaged(tmp_path)
    refused = 0
    async with runtime(tmp_path, virtual_ports()) as rt:
        journal, selection = rt.hub.journal, Selection(run_id=run_id)
        for after in range(rt.hub.journal.tip):
            try:
                _, reached = await journal.read(selection, after=after, limit=1000)
            except HubbubError:
                refused += 1
            else:
                assert reached > after
    assert refused


async def test_a_runtime_serves_the_others_and_can_be_left(tmp_path: Path) -> None:
    run_id = await damaged(tmp_path)
    with anyio.fail_after(100_000):
        async with runtime(tmp_path, virtual_ports(), mirror=True) as rt:
            for ask in (rt.state_at, rt.fork, rt.hub.read):
                with pytest.raises(HubbubError):
                    await ask(run_id)  # type: ignore[operator]
            assert (await rt.run("bot", "hi")).output == "Hello."
