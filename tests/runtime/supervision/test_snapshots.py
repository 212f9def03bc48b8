"""A long conversation that wakes is read from its snapshot on, and goes on as it would have."""

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.agents import model_agent

from hubbub import ModelRequest, Runtime
from hubbub.__main__ import main
from hubbub.agents.snapshots.thread_text import decode_thread, fold_version
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.snapshots.draft import RECORDS
from hubbub.hub.store.journal import LoadedRun
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store, snapshots_of
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sql.reader import SqlReader

pytestmark = pytest.mark.anyio


class Talk:
    """A conversation with one agent, over several lives of its runtime."""

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.requests: list[ModelRequest] = []
        self.run_id = ""

    def _answer(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return f"answer to {len(request.messages)}"

    async def go_on(self, store: Store, messages: int) -> list[Event]:
        """One life: so many messages more; the own lane afterwards."""
        agents = [model_agent(FunctionModel(self._answer))]
        async with Runtime(agents, store=store, ports=self.ports) as rt:
            run = await rt.start("assistant", "hello", session_key="daily")
            self.run_id = run.run_id
            await run.result()
            for number in range(messages):
                await run.send(str(number))
                await run.result()
            return [event for event in await run.read() if event.lane == "own"]

    def check(self, lane: Sequence[Event]) -> None:
        """Every request has gone on where the one before it ended, as the lane says."""
        for earlier, later in pairwise(self.requests):
            assert later.messages[: len(earlier.messages)] == earlier.messages
        assert self.requests[-1].messages == fold_all(EMPTY, lane).transcript[:-1]


async def kept(store: Store, run_id: str) -> LoadedRun:
    """A run as a process finds it that has not seen it before."""
    await store.open()
    try:
        found = snapshots_of(store)
        assert found is not None
        loaded = await found.load_kept(run_id, fold_version())
    finally:
        await store.aclose()
    assert loaded is not None
    return loaded


@pytest.mark.parametrize("store_name", ["memory", "sqlite"])
async def test_a_long_conversation_goes_on_from_its_snapshot(
    store_name: str, ports: Ports, tmp_path: Path
) -> None:
    memory = MemoryJournal(ids=ports.ids)

    def store() -> Store:
        return memory if store_name == "memory" else sqlite_store(tmp_path, ports=ports)

    talk = Talk(ports)
    for _ in range(3):
        lane = await talk.go_on(store(), RECORDS // 2)
        talk.check(lane)
        loaded = await kept(store(), talk.run_id)
        assert len(lane) - RECORDS <= loaded.after <= loaded.seq == len(lane)
        assert loaded.kept is not None
        assert decode_thread(loaded.kept) == fold_all(EMPTY, lane[: loaded.after])
        assert list(loaded.events) == lane[loaded.after :]


async def test_nobody_reads_the_whole_of_a_long_conversation_for_one_more_message(
    ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(ports)
    await talk.go_on(sqlite_store(tmp_path, ports=ports), RECORDS)
    read: list[tuple[str, int]] = []
    look = SqlReader._own_lane

    def counted(self: SqlReader, run_id: str, number: int, after: int) -> list[Event]:
        read.append((run_id, after))
        return look(self, run_id, number, after)

    monkeypatch.setattr(SqlReader, "_own_lane", counted)
    await talk.go_on(sqlite_store(tmp_path, ports=ports), 3)
    assert {run_id for run_id, _ in read} == {talk.run_id}
    assert all(after >= RECORDS for _, after in read)


async def test_what_a_store_makes_of_load_holds_for_runs_that_have_a_snapshot(
    ports: Ports,
) -> None:
    class Derived(MemoryJournal):
        async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
            loads.append(run_id)
            return await super().load(run_id, after=after)

    class Wrapped:
        def __init__(self, inner: Store) -> None:
            self._inner = inner

        async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
            loads.append(run_id)
            return await self._inner.load(run_id, after=after)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    loads: list[str] = []
    memory = MemoryJournal(ids=ports.ids)
    for store in (Derived(ids=ports.ids), Wrapped(memory)):
        talk = Talk(ports)
        await talk.go_on(store, RECORDS)  # type: ignore[arg-type]
        loads.clear()
        await talk.go_on(store, 2)  # type: ignore[arg-type]
        assert talk.run_id in loads and snapshots_of(store) is None
    patched = MemoryJournal(ids=ports.ids)
    assert snapshots_of(patched) is patched
    patched.load = None  # type: ignore[assignment,method-assign]
    assert snapshots_of(patched) is None


async def test_a_run_shorter_than_that_has_no_snapshot(ports: Ports, tmp_path: Path) -> None:
    talk = Talk(ports)
    lane = await talk.go_on(sqlite_store(tmp_path, ports=ports), 10)
    assert len(lane) < RECORDS
    loaded = await kept(sqlite_store(tmp_path, ports=ports), talk.run_id)
    assert (loaded.kept, loaded.after) == (None, 0)
    assert rows(tmp_path, "SELECT * FROM snapshot") == []


def rows(folder: Path, statement: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        found = db.execute(statement, values).fetchall()
        db.commit()
        return found


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE snapshot SET body = X'7B7D'",
        "UPDATE snapshot SET body = 'a text'",
        "UPDATE snapshot SET body = zeroblob(0)",
        "UPDATE snapshot SET seq = seq - 1",
        "UPDATE snapshot SET seq = seq + 1000000",
        "UPDATE snapshot SET seq = 'many'",
        "UPDATE snapshot SET crc = crc + 1",
        "UPDATE snapshot SET version = X'00'",
        "UPDATE snapshot SET version = version || '0'",
        "UPDATE snapshot SET version = '0-0000'",
        "UPDATE snapshot SET run = run + 77",
        "DROP TABLE snapshot",
    ],
)
async def test_a_snapshot_that_cannot_be_used_is_told_once_and_changes_nothing(
    change: str, ports: Ports, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    talk = Talk(ports)
    await talk.go_on(sqlite_store(tmp_path, ports=ports), RECORDS // 2)
    rows(tmp_path, change)
    is_known = "version ||" in change or "0-0000" in change or "DROP" in change
    name = f"sqlite:{tmp_path}"
    assert main(["fsck", "--thorough", "--store", name]) == 0
    said = capsys.readouterr().out
    assert is_known or "snapshot: run" in said
    with caplog.at_level(logging.WARNING, "hubbub"):
        lane = await talk.go_on(sqlite_store(tmp_path, ports=ports), 10)
    talk.check(lane)
    told = [x for x in caplog.records if "snapshot.ignored" in x.getMessage()]
    assert len(told) == (0 if "DROP" in change or "run + 77" in change else 1)
    # The next one takes its place.
    await talk.go_on(sqlite_store(tmp_path, ports=ports), RECORDS)
    loaded = await kept(sqlite_store(tmp_path, ports=ports), talk.run_id)
    assert loaded.kept is not None and loaded.seq - loaded.after <= RECORDS


async def test_a_snapshot_of_another_record_is_none(ports: Ports, tmp_path: Path) -> None:
    """A store that an older program has written on knows nothing of the snapshot in it."""
    talk = Talk(ports)
    lane = await talk.go_on(sqlite_store(tmp_path, ports=ports), RECORDS // 2)
    (seq,) = rows(tmp_path, "SELECT seq FROM snapshot")[0]
    rows(tmp_path, "UPDATE event SET crc = crc + 1 WHERE lane = 'own' AND seq = ?", seq)
    store = sqlite_store(tmp_path, ports=ports)
    await store.open()
    try:
        with pytest.raises(Exception, match="its record has changed"):
            await store.load_kept(lane[0].run_id, fold_version())
    finally:
        await store.aclose()


async def test_no_more_is_written_of_snapshots_than_of_events(
    ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation that is never compacted: its snapshot grows with it."""
    from hubbub.runtime.stores.sql import snapshots

    sizes: list[int] = []
    put = snapshots.checksum_of

    def counted(run_id: str, seq: int, chain: int, version: str, body: bytes) -> int:
        sizes.append(len(body))
        return put(run_id, seq, chain, version, body)

    monkeypatch.setattr(snapshots, "checksum_of", counted)
    talk = Talk(ports)
    for _ in range(2):
        await talk.go_on(sqlite_store(tmp_path, ports=ports), 5 * RECORDS)
    (written,) = rows(tmp_path, "SELECT sum(length(body)) FROM event")[0]
    assert len(sizes) >= 4
    assert sum(sizes) <= written + sizes[-1]
