"""Which tables and indexes the commits of a store in SQLite write to."""

from pathlib import Path

import pytest
from support.log_pages import pages_written

from hubbub.hub.conformance.steps import A_RUN, B_RUN, open_run, write
from hubbub.hub.events import AgentComplete, AgentStatus
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sql.store_reader import NEWEST_LIVE


@pytest.mark.anyio
async def test_what_changes_nothing_by_which_runs_are_found_writes_no_index_of_runs(
    tmp_path: Path, ports: Ports
) -> None:
    store = sqlite_store(tmp_path, ports=ports, mirror=False)
    await store.open()
    await open_run(store, A_RUN)
    for seq in range(3):
        await write(store, A_RUN, seq, AgentStatus())
    of_steps = pages_written(tmp_path / "hubbub.db")[-3:]
    for pages in of_steps:
        assert {name for name in pages if name.startswith("run")} == {"run"}, pages
    await write(store, A_RUN, 3, AgentComplete(), status="ended")
    assert "run_ready" in pages_written(tmp_path / "hubbub.db")[-1]
    assert await store.ready() == []
    await store.aclose()


@pytest.mark.anyio
async def test_a_run_that_never_rests_goes_into_no_index_of_runs_that_do(
    tmp_path: Path, ports: Ports
) -> None:
    store = sqlite_store(tmp_path, ports=ports, mirror=False)
    await store.open()
    await open_run(store, A_RUN)
    await write(store, A_RUN, 0, AgentComplete(), status="ended")
    await open_run(store, B_RUN)
    await write(store, B_RUN, 0, AgentStatus(), taken=(1,), status="parked")
    _, opened, ended, other, parked = pages_written(tmp_path / "hubbub.db")[-5:]
    for pages in (opened, ended, other):
        assert not any(name.startswith("run_resting") for name in pages)
    assert "run_resting_root" in parked
    reader = store.reader()
    try:
        assert [row.run_id for row in reader.resting_roots(10)] == [B_RUN]
        assert [*reader.newest_trees(live=True, limit=10)[0]] == [B_RUN]
    finally:
        reader.close()
    await store.aclose()


@pytest.mark.anyio
async def test_live_trees_are_found_by_indexes_of_what_lives(tmp_path: Path, ports: Ports) -> None:
    store = sqlite_store(tmp_path, ports=ports, mirror=False)
    await store.open()
    plan = [detail for *_, detail in store._db.execute(f"EXPLAIN QUERY PLAN {NEWEST_LIVE}", (5,))]
    read = {detail for detail in plan if " run" in detail and "INTEGER PRIMARY KEY" not in detail}
    indexes = ("run_resting_root", "run_resting_child", "run_ready")
    assert read == {f"SCAN run USING INDEX {index}" for index in indexes}
    await store.aclose()
