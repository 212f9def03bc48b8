"""Programs with other definitions of one agent on one database: as processes, and their stores."""

import json
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.postgres import Server
from support.worker_process import WorkerProcess

from hubbub.__main__ import main
from hubbub.hub.store.declared import OtherDefinition
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

MODULE = """
from hubbub import Agent, FunctionModel

ann = Agent("ann", "You {0}.", model=FunctionModel(lambda request: "{0}"))
"""

OWN = """
import os
from hubbub import Runtime
from theirs import ann

runtime = Runtime([ann], store=os.environ["STORE"], replace_agents=True)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "ours.py").write_text(MODULE.format("help"))
    (tmp_path / "theirs.py").write_text(MODULE.format("refuse"))
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def at_work(address: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["workers", "--json", "--store", address]) == 0
    return json.loads(capsys.readouterr().out)


def notes(address: str) -> Mapping[str, str]:
    with open_reader(address) as reader:
        return reader.notes()


def test_another_program_is_refused_in_one_line_and_joins_when_the_first_is_gone(
    here: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    address = server.dsn()
    with WorkerProcess(here, "ours", "--store", address, "--name", "one") as one:
        one.wait_for("is at work")
        before = notes(address)
        for command in ("worker", "serve"):
            with WorkerProcess(here, "theirs", "--store", address, command=command) as other:
                assert other.wait() == 2
                assert other.said == "" and other.stderr.count("\n") == 1
                for words in ("'one'", "'ann'", "--replace"):
                    assert words in other.stderr
        assert notes(address) == before
        found = at_work(address, capsys)
        assert [each["name"] for each in found["processes"]] == ["one"]
        assert found["differing"] == []
        with WorkerProcess(here, "ours", "--store", address, "--name", "two") as two:
            two.wait_for("is at work")
            one.signal(signal.SIGKILL)
            two.signal(signal.SIGTERM)
            assert two.wait() == 0
        with WorkerProcess(here, "theirs", "--store", address) as other:
            other.wait_for("is at work")


def test_in_a_rolling_deploy_both_are_at_work_and_it_is_shown(
    here: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.dsn()
    monkeypatch.setenv("STORE", address)
    with WorkerProcess(here, "ours", "--store", address, "--name", "old") as old:
        old.wait_for("is at work")
        with WorkerProcess(here, "own:runtime") as own:
            own.wait_for("is at work")
            with WorkerProcess(
                here, "theirs", "--store", address, "--name", "new", "--replace"
            ) as new:
                new.wait_for("is at work")
                (differing,) = at_work(address, capsys)["differing"]
                assert differing["agent"] == "ann"
                assert ["old"] in differing["workers"] and len(differing["workers"]) == 2
                assert main(["workers", "--store", address]) == 0
                assert "agents with several definitions" in capsys.readouterr().out
                old.signal(signal.SIGTERM)
                assert old.wait() == 0
                assert at_work(address, capsys)["differing"] == []


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def joined(address: str, digest: str, *, replaces: bool = False) -> PostgresStore:
    store = PostgresStore(address, ttl=1.5)
    await store.sharing.declare({"ann": digest}, replaces=replaces)
    await store.open()
    return store


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.05)


def has_begun_again(store: PostgresStore, before: int) -> bool:
    return store._lease.worker != before


async def ended(store: PostgresStore, server: Server, schema: str) -> None:
    """Others find its lease to be over."""
    worker = store._lease.worker
    server.query(f"UPDATE {schema}.worker SET live = false WHERE id = {worker}")


@pytest.mark.anyio
async def test_who_comes_back_where_others_mean_another_agent_has_failed(server: Server) -> None:
    schema = server.new_schema()
    one = await joined(server.dsn(schema), "1")
    try:
        server.query(f"UPDATE {schema}.definition SET digest = '2'")  # As if it had been away:
        other = await joined(server.dsn(schema), "2")
        try:
            server.query(f"DELETE FROM {schema}.definition WHERE worker = {one._lease.worker}")
            await ended(one, server, schema)
            await until(lambda: one.failure != "")
            assert "another definition of the agent 'ann'" in one.failure
            assert not other.failure
        finally:
            await other.aclose()
    finally:
        await one.aclose()


@pytest.mark.anyio
async def test_who_comes_back_is_not_refused_for_who_replaces_it(server: Server) -> None:
    schema = server.new_schema()
    one = await joined(server.dsn(schema), "1")
    try:
        new = await joined(server.dsn(schema), "2", replaces=True)
        try:
            for store in (one, new):
                before = store._lease.worker
                await ended(store, server, schema)
                await until(partial(has_begun_again, store, before))
                assert not store.failure
            found = server.query(f"SELECT digest FROM {schema}.definition ORDER BY digest")
            assert found == [("1",), ("2",)], "under the leases that they have now"
        finally:
            await new.aclose()
    finally:
        await one.aclose()


@pytest.mark.anyio
async def test_a_death_that_is_not_certain_is_waited_for(server: Server) -> None:
    """Its connection is gone, and its lease is not over: it may come back."""
    schema = server.new_schema()
    # Another process is there, or all leases would be over at once.
    channel = PostgresStore(server.dsn(schema), is_worker=False)
    await channel.open()
    try:
        one = await joined(server.dsn(schema), "1")
        one.forget_submitted()
        await one.aclose()
        other = await joined(server.dsn(schema), "2")
        await other.aclose()
    finally:
        await channel.aclose()


@pytest.mark.anyio
async def test_a_store_of_a_version_that_declared_nothing_gets_the_table(server: Server) -> None:
    """And who knows nothing of it is at work beside those that do."""
    schema = server.new_schema()
    older = await joined(server.dsn(schema), "1")
    try:
        server.query(f"DROP TABLE {schema}.definition")
        with open_reader(server.dsn(schema)) as reader:
            assert [each.definitions for each in reader.processes()] == [{}]
        one = await joined(server.dsn(schema), "2")
        try:
            with pytest.raises(OtherDefinition):
                await joined(server.dsn(schema), "3")
            await older.flush()
            assert not older.failure
        finally:
            await one.aclose()
    finally:
        await older.aclose()


@pytest.mark.anyio
async def test_who_comes_back_publishes_its_agents_again(server: Server) -> None:
    schema = server.new_schema()
    one = PostgresStore(server.dsn(schema), ttl=1.5)
    one.publish({"agents:1": '[{"name": "ann"}]'})
    await one.open()
    try:
        before = one._lease.worker
        server.query(f"DELETE FROM {schema}.note WHERE key = 'agents:1'")  # As if it were away.
        await ended(one, server, schema)
        await until(partial(has_begun_again, one, before))
        assert await one.notes("agents") == {"agents:1": '[{"name": "ann"}]'}
    finally:
        await one.aclose()
