"""The commands over a store in PostgreSQL: they say what they say of the same runs in a folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.postgres import Server
from support.stores import SECRET, Filled, agents, fill

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(server: Server, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def filled(server: Server) -> tuple[str, Filled]:
    address = server.dsn()
    return address, anyio.run(fill, PostgresStore(address))


def test_the_runs_are_shown_and_followed(command: Command, filled: tuple[str, Filled]) -> None:
    address, runs = filled

    def said(*arguments: str, tail: bool = False) -> Any:
        code, out, err = command(*arguments, "--json", "--store", address)
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()] if tail else json.loads(out)

    listed = said("runs", "--all")
    ids = {run["run_id"] for run in listed["runs"]}
    assert {runs.chat, runs.parent, runs.done} <= ids
    shown = said("show", runs.chat[-8:])
    assert runs.chat in json.dumps(shown)
    last = said("tail", "--lines", "5", tail=True)
    positions = [line["position"] for line in last]
    assert positions == [*range(positions[0], positions[0] + 5)]
    assert said("replay", runs.chat) and said("schedules") and said("conversations")


def test_a_sound_store_has_no_problem_and_a_changed_one_has(
    command: Command, filled: tuple[str, Filled], server: Server
) -> None:
    address, _ = filled
    code, out, err = command("fsck", "--thorough", "--store", address)
    assert (code, err) == (0, ""), out
    schema = address.partition("schema=")[2]
    for change, words in (
        (f"UPDATE {schema}.event SET body = replace(body, 'hello', 'hallo')", "position"),
        (f"UPDATE {schema}.head SET live = live + 1", "head: it counts"),
        (f"DELETE FROM {schema}.run WHERE number = (SELECT max(number) FROM {schema}.run)",
         "but no row"),
    ):  # fmt: skip
        server.query(change)
        code, out, _ = command("fsck", "--store", address)
        assert code != 0 and words in out


def test_runs_go_from_a_folder_to_a_database_and_back_unchanged(
    command: Command, server: Server, tmp_path: Path
) -> None:
    runs = anyio.run(fill, tmp_path / "store")
    folder, address = f"sqlite:{tmp_path / 'store'}", server.dsn()
    there = {}
    for run_id in (runs.chat, runs.parent, runs.done):
        code, out, err = command("export", run_id, "--store", folder)
        assert (code, err) == (0, "")
        assert SECRET not in out
        there[run_id] = tmp_path / f"{run_id}.jsonl"
        there[run_id].write_text(out)
        code, _, err = command("import", str(there[run_id]), "--store", address)
        assert (code, err) == (0, "")
    code, _, err = command("import", str(there[runs.chat]), "--store", address)
    assert code != 0 and "--replace" in err
    assert command("import", "--replace", str(there[runs.chat]), "--store", address)[0] == 0
    assert command("fsck", "--thorough", "--store", address)[0] == 0
    for run_id, file in there.items():
        code, out, err = command("export", run_id, "--store", address)
        first, *lines = out.splitlines()
        before, *others = file.read_text().splitlines()
        assert lines == others and first.partition("store")[0] == before.partition("store")[0]

    async def go_on() -> None:
        async with Runtime(agents(), store=PostgresStore(address), grace=0.1) as rt:
            assert (await rt.hub.send_to_run(runs.chat, "and now?")).accepted
            assert (await rt.result(runs.chat)).success

    anyio.run(go_on)
    assert command("fsck", "--store", address)[0] == 0


def test_a_run_that_has_ended_takes_the_place_of_one_that_lives_and_nobody_is_to_drive_it(
    command: Command, server: Server, tmp_path: Path
) -> None:
    address, file = server.dsn(), tmp_path / "run.jsonl"

    async def opened() -> str:
        async with Runtime(agents(), store=PostgresStore(address), grace=0.1) as rt:
            run = await rt.start("bot", "hello", session_key="once")
            await rt.result(run.run_id)
        return run.run_id

    async def over(run_id: str) -> None:
        async with Runtime(agents(), store=PostgresStore(address), grace=0.1) as rt:
            await rt.terminate(run_id)
            await rt.result(run_id)

    def trees() -> list[Any]:
        return [*server.query(f"SELECT live FROM {address.partition('schema=')[2]}.tree")]

    def exported() -> str:
        code, out, err = command("export", run_id, "--store", address)
        assert (code, err) == (0, "")
        return out

    run_id = anyio.run(opened)
    live = exported()
    anyio.run(over, run_id)
    ended = exported()
    assert trees() == []
    for lines, expected in ((live, [(1,)]), (ended, []), (live, [(1,)]), (ended, [])):
        file.write_text(lines)
        assert command("import", "--replace", str(file), "--store", address)[0] == 0
        assert trees() == expected
        assert command("fsck", "--thorough", "--store", address)[0] == 0


def test_an_import_that_comes_to_nothing_leaves_no_schema(
    command: Command, server: Server, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    code, _, err = command("import", str(bad), "--store", server.dsn("fleeting"))
    assert code != 0 and "nothing was imported" in err
    assert server.query("SELECT 1 FROM pg_namespace WHERE nspname = 'fleeting'") == []


def test_a_backup_is_the_servers_and_it_says_how(
    command: Command, filled: tuple[str, Filled], tmp_path: Path
) -> None:
    code, _, err = command("backup", str(tmp_path / "copy"), "--store", filled[0])
    assert code != 0 and "pg_dump --schema=" in err and err.count("\n") == 1
    assert not (tmp_path / "copy").exists()
