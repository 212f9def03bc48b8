"""Tables of an older format are upgraded once, under a lock; two adjacent versions share them."""

import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.postgres import Server
from support.postgres_formats import DROPPED, LABELLED, NEXT, NOW, SORTED, run_as_format, version

import hubbub
from hubbub import AgentDefinition, Runtime
from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import open_intake, open_reader
from hubbub.runtime.stores.postgres import migrations
from hubbub.runtime.stores.postgres.migrations import FIRST, Upgrade, newest, upgrade
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TOGETHER = (*NEXT, DROPPED)


def schema_of(address: str) -> str:
    return address.partition("schema=")[2]


def meta_of(server: Server, address: str) -> dict[str, str]:
    found: Any = server.query(f"SELECT key, value FROM {schema_of(address)}.meta")
    return {key: value for key, value in found if key in ("format", "reads")}


def meta(after: int = 0, *, reads: int = FIRST) -> dict[str, str]:
    """What tables say so many formats after this program's."""
    return {"format": str(NOW + after), "reads": str(reads)}


def shape_of(server: Server, address: str) -> set[tuple[Any, ...]]:
    """Columns and indexes, wherever in a table a column is."""
    schema = schema_of(address)
    columns = server.query(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        f"WHERE table_schema = '{schema}'"
    )
    indexes = server.query(f"SELECT indexdef FROM pg_indexes WHERE schemaname = '{schema}'")
    return {*columns, *((str(text).replace(schema, "schema"),) for (text,) in indexes)}


async def echo(text: Any, ctx: Any) -> str:
    return f"heard: {text}"


async def use(address: str) -> str:
    """Have a run in a store."""
    agent = AgentDefinition(name="echo", execute=echo)
    async with Runtime([agent], store=PostgresStore(address)) as rt:
        return str((await rt.run("echo", "hello")).output)


async def refused(address: str) -> str:
    with pytest.raises(OperatorError) as caught:
        await use(address)
    words = str(caught.value)
    assert "\n" not in words and "; " in words
    return words


# ── steps ────────────────────────────────────────────────────────────────────────────────────


def test_steps_lead_from_each_format_to_the_next() -> None:
    steps = migrations.STEPS
    assert [step.to for step in steps] == [*range(FIRST + 1, newest() + 1)]
    assert [step.beside for step in steps] == sorted(step.beside for step in steps)
    assert all(step.beside <= step.to for step in steps)


OLDEST = Path(__file__).parents[3] / "stores" / f"postgres_format_{FIRST}.sql"
"""The tables as the first version made them."""


async def test_tables_of_the_first_version_become_those_that_are_made_anew(server: Server) -> None:
    address, new = server.dsn(), server.dsn()
    schema = schema_of(address)
    server.query(f"CREATE SCHEMA {schema}")
    server.query(
        f"SET search_path TO {schema}; {OLDEST.read_text()};"
        f"INSERT INTO meta (key, value) VALUES ('format', '{FIRST}'), ('reads', '{FIRST}'), "
        "('store', 'old')"
    )
    assert await use(address) == await use(new) == "heard: hello"
    assert meta_of(server, address) == meta_of(server, new) == meta()
    assert shape_of(server, address) == shape_of(server, new)


async def test_the_first_of_a_newer_version_upgrades_and_nothing_is_lost(server: Server) -> None:
    address = server.dsn()
    await use(address)
    assert meta_of(server, address) == meta()
    with version(*NEXT):
        for _ in range(2):  # The second time there is nothing to do.
            assert await use(address) == "heard: hello"
            assert meta_of(server, address) == meta(2, reads=NOW)
        with open_reader(address) as reader:
            assert reader.count("run") == 3
            assert not [*reader.faults(thorough=True)]
    found = server.query(f"SELECT label FROM {schema_of(address)}.run")
    assert found == [("none",)] * 3


async def test_upgraded_tables_are_those_that_are_made_anew(server: Server) -> None:
    addresses = [server.dsn(), server.dsn()]
    await use(addresses[0])
    with version(*NEXT):
        for address in addresses:
            await use(address)
    upgraded, new = (shape_of(server, address) for address in addresses)
    assert upgraded == new


async def test_a_program_one_version_behind_works_on_and_one_two_behind_is_refused(
    server: Server,
) -> None:
    address = server.dsn()
    with version(*NEXT):
        await use(address)
    assert await use(address) == "heard: hello"
    with open_reader(address) as reader:
        assert reader.count("run") == 2
    with version(*TOGETHER):
        await use(address)
        assert meta_of(server, address) == meta(3, reads=NOW + 2)
    before = shape_of(server, address)
    words = f"written by a newer hubbub (format {NOW + 3}; this one knows {NOW})"
    assert words in await refused(address)
    for open_ in (open_reader(address), open_intake(address, Ports().ids)):
        with pytest.raises(OperatorError, match="upgrade hubbub"), open_:
            pass
    with version(*NEXT):
        await use(address)
    assert shape_of(server, address) == before


async def test_what_only_reads_upgrades_nothing_and_says_what_does(server: Server) -> None:
    address = server.dsn()
    await use(address)
    with version(*NEXT):
        words = f"older hubbub .format {NOW}; this one knows {NOW + 2}.; open a runtime on it"
        with pytest.raises(OperatorError, match=words), open_reader(address):
            pass
    assert meta_of(server, address) == meta()


# ── whatever comes in between ────────────────────────────────────────────────────────────────


async def test_many_that_open_it_at_once_upgrade_it_once(server: Server) -> None:
    address = server.dsn()
    await use(address)
    counted = Upgrade(
        to=NOW + 1, beside=NOW, changes=(*LABELLED.changes, "INSERT INTO label VALUES (1, '')")
    )
    errors: list[BaseException] = []

    def run() -> None:
        try:
            upgrade(PostgresAddress(address))
        except BaseException as error:
            errors.append(error)

    with version(counted, SORTED):
        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert server.query(f"SELECT run FROM {schema_of(address)}.label") == [(1,)]
    assert meta_of(server, address) == meta(2, reads=NOW)


async def test_a_process_that_is_killed_in_a_step_leaves_tables_of_the_format_before(
    server: Server,
) -> None:
    address = server.dsn()
    await use(address)
    before = shape_of(server, address)
    script = (
        "from hubbub.runtime.stores.postgres.server.connection import PostgresConnection\n"
        "from hubbub.runtime.stores.postgres.server.address import PostgresAddress\n"
        "whole = PostgresConnection.execute\n"
        "def execute(self, sql, values=(), /):\n"
        "    found = whole(self, sql, values)\n"
        "    if sql == NEXT[0].changes[-1]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return found\n"
        "PostgresConnection.execute = execute\n"
        "migrations.upgrade(PostgresAddress(sys.argv[1]))\n"
    )
    for _ in range(2):
        command = [*run_as_format("NEXT", script), address]
        done = subprocess.run(command, timeout=60, check=False)  # noqa: ASYNC221
        assert done.returncode == -signal.SIGKILL
        assert shape_of(server, address) == before
        assert meta_of(server, address)["format"] == str(NOW)
    assert await use(address) == "heard: hello"
    with version(*NEXT):
        await use(address)
    assert meta_of(server, address) == meta(2, reads=NOW)


async def test_a_step_that_fails_says_so_in_one_line_and_changes_nothing(server: Server) -> None:
    address = server.dsn()
    await use(address)
    before = shape_of(server, address)
    with version(Upgrade(to=NOW + 1, beside=NOW, changes=(*LABELLED.changes, "SELECT 1 / 0"))):
        words = await refused(address)
    assert f"from format {NOW} to {NOW + 1}" in words and "nothing has changed" in words
    assert shape_of(server, address) == before
    assert await use(address) == "heard: hello"


async def test_an_index_that_was_left_half_built_is_built_again(server: Server) -> None:
    address = server.dsn()
    await use(address)
    await use(address)
    schema = schema_of(address)
    with pytest.raises(psycopg.errors.UniqueViolation):
        server.query(f"CREATE UNIQUE INDEX CONCURRENTLY run_label ON {schema}.run (agent)")
    with version(*NEXT):
        await use(address)
        with open_reader(address) as reader:
            assert not [*reader.faults(thorough=True)]
    select = "SELECT indexdef FROM pg_indexes WHERE indexname = 'run_label' AND schemaname = "
    (found,) = server.query(f"{select}'{schema}'")
    assert "UNIQUE" not in str(found)


async def test_an_upgrade_waits_for_a_group_that_is_on_its_way(server: Server) -> None:
    address = server.dsn()
    await use(address)
    dsn = address.partition("&schema=")[0]
    with psycopg.connect(dsn) as group, version(*NEXT):
        group.execute(f"UPDATE {schema_of(address)}.worker SET group_no = group_no + 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            upgrade(PostgresAddress(address))
        assert meta_of(server, address)["format"] == str(NOW)
        group.commit()
        upgrade(PostgresAddress(address))
    assert meta_of(server, address)["format"] == str(NOW + 2)


async def test_no_upgrade_leaves_a_process_behind_that_is_at_work(server: Server) -> None:
    address = server.dsn()
    await use(address)
    schema = schema_of(address)
    server.query(
        f"INSERT INTO {schema}.worker (name, format, kind, live, expires) VALUES "
        f"('old-1', {NOW}, 'worker', true, clock_timestamp() + interval '1 hour')"
    )
    with version(*TOGETHER):
        words = await refused(address)
        assert f"an older one is at work: 'old-1' (format {NOW}); stop it first" in words
        assert meta_of(server, address) == meta(), "not even the first step"
        server.query(f"UPDATE {schema}.worker SET live = false")
        await use(address)
    assert meta_of(server, address) == meta(3, reads=NOW + 2)


# ── statements ───────────────────────────────────────────────────────────────────────────────


def test_statements_name_the_columns_that_they_read_and_write() -> None:
    root = Path(hubbub.__file__).parent / "runtime" / "stores"
    files = [file for room in ("sql", "postgres") for file in (root / room).glob("*.py")]
    assert len(files) > 20
    found = [f"{file.name}: {text}" for file in files for text in unnamed(file.read_text())]
    assert not found


def unnamed(source: str) -> Sequence[str]:
    """Statements of a source that mean whatever columns a table has."""
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    inserts = re.findall(r"INSERT INTO \w+ (?:VALUES|SELECT)[^\"]*", joined)
    selects = [x for x in re.findall(r"SELECT \*[^\"]*", joined) if "FROM unnest(" not in x]
    return [*inserts, *selects]


def test_what_names_no_columns_is_found() -> None:
    assert unnamed('a = "INSERT INTO run "\n    "VALUES (?)"') and unnamed('f"SELECT * FROM x"')
    assert not unnamed('"INSERT INTO run (a) SELECT * FROM unnest(?)"')
