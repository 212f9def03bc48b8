"""``hubbub prune`` of a store in PostgreSQL."""

from pathlib import Path

import anyio
import pytest
from support.killed_steps import killed_before, steps_of
from support.postgres import Server
from support.profiles import portion
from support.pruned_stores import DAY, Aged, fill_with_ages, ports_at, problems, told_of
from support.stores import agents
from support.virtual_time import VirtualTimeLoop

from hubbub import Runtime
from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.retention.pruning import find_trees, prune_store
from hubbub.runtime.stores.retention.retention import Retention

pytestmark = pytest.mark.long

NOW = ports_at(3.5 * DAY)
TWO_DAYS = Retention(ended=2 * DAY)


def filled(server: Server) -> tuple[str, Aged]:
    store = server.dsn()

    async def fill() -> Aged:
        return await fill_with_ages(store, virtual_ports())

    options = {"loop_factory": VirtualTimeLoop}
    return store, anyio.run(fill, backend="asyncio", backend_options=options)


def test_old_trees_go_with_all_that_they_have_and_can_be_taken_in_again(
    server: Server, tmp_path: Path
) -> None:
    store, runs = filled(server)
    before = told_of(store)
    pruned = prune_store(store, TWO_DAYS, export=tmp_path, ports=NOW)
    assert [tree.root_run_id for tree in pruned.trees] == [runs.old, runs.family]
    after = told_of(store)
    assert {*before} - {*after} == {runs.old, runs.family}
    for key in (runs.young, runs.chat, runs.last, "tip", "name", "hub", "secrets"):
        assert after[key] == before[key]
    assert b"heard alone" in before["contents"].values()
    assert b"heard alone" not in after["contents"].values()
    assert b"heard shared" in after["contents"].values()
    assert problems(store) == [] and prune_store(store, TWO_DAYS, ports=NOW).trees == []
    for path in pruned.exports:
        with Path(path).open("rb") as lines:
            import_runs(store, path, lines, ports=NOW)
    assert told_of(store)["contents"] == before["contents"] and problems(store) == []


@pytest.mark.anyio
async def test_beside_a_worker_nothing_is_pruned_but_shown(server: Server, ports: Ports) -> None:
    store = server.dsn()
    async with Runtime(agents(), store=store, ports=ports) as rt:
        done = await rt.run("bot", "one question")
        with pytest.raises(OperatorError, match="at work"):
            prune_store(store, Retention(ended=1), ports=NOW)
        await rt.run("bot", "another")
        with open_reader(store) as reader:
            found = find_trees(reader, Retention(ended=1), NOW.clock.now())
        assert [tree.root_run_id for tree in found.trees] == [done.run_id]


def test_killed_before_any_of_its_steps_every_tree_is_whole_or_gone(
    server: Server, tmp_path: Path
) -> None:
    store, _ = filled(server)
    steps = steps_of(lambda: prune_store(store, TWO_DAYS, ports=NOW), tmp_path)
    store, runs = filled(server)
    before = told_of(store)
    for step in portion(range(1, steps + 1)):
        assert killed_before(step, lambda: prune_store(store, TWO_DAYS, ports=NOW))
        told = told_of(store)
        assert (runs.old in told) is (runs.family in told)
        for root in (runs.old, runs.family):
            assert root not in told or told[root] == before[root]
        for root in (runs.young, runs.chat, runs.last):
            assert told[root] == before[root]
        assert problems(store) == [], f"killed before step {step}"
        if runs.old not in told:
            break
    prune_store(store, TWO_DAYS, ports=NOW)
    assert not {runs.old, runs.family} & {*told_of(store)} and problems(store) == []
