"""``hubbub migrate`` into PostgreSQL and back: everything there is the same, or nothing is."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.feature_stories import FEATURES, Story
from support.killed_steps import killed_before, steps_of
from support.ledger_model import Model, commit_of, told
from support.ledger_plans import family, plan
from support.postgres import Server
from support.profiles import examples, portion
from support.stores import SECRET, Filled, agents, fill
from support.whole_stores import agents_in, told_by

from hubbub import Message, Runtime
from hubbub.__main__ import main
from hubbub.hub.conformance.members import Member
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import CustomEvent
from hubbub.hub.ports import Ports
from hubbub.hub.store.sharing import sharing_of
from hubbub.runtime.copies import migration
from hubbub.runtime.copies.agent_folders import write_agent_folders
from hubbub.runtime.copies.migration import migrate_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.open import open_intake, open_reader, sqlite_store
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.long

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "from"


@pytest.fixture
def runs(server: Server, folder: Path) -> Filled:
    async def fill_it() -> Filled:
        return await fill(folder, mirror=True)

    return anyio.run(fill_it)


def of(folder: Path) -> str:
    return f"sqlite:{folder}"


def schema_of(address: str) -> str:
    return address.rpartition("schema=")[2]


def refused(command: Command, source: str, target: str) -> str:
    code, out, err = command("migrate", source, target)
    assert code == 2 and not out and err.count("\n") == 1 and SECRET not in err, (code, out, err)
    return err


def problems(store: str) -> list[str]:
    return [each.text for each in StoreCheck(store, thorough=True).problems()]


def is_there(server: Server, address: str) -> bool:
    return bool(server.query(
        f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema_of(address)}'"
    ))  # fmt: skip


# ── everything comes along ───────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.spec("X-08")
@pytest.mark.parametrize("story", FEATURES.values(), ids=FEATURES)
async def test_what_a_runtime_wrote_is_the_same_there_and_back(
    story: Story, server: Server, ports: Ports, tmp_path: Path
) -> None:
    first, second, third = of(tmp_path / "from"), server.dsn(), of(tmp_path / "back")
    await story(first, ports)
    said = told_by(first)
    migrate_store(first, second)
    assert told_by(second) == said and problems(second) == []
    migrate_store(second, third)
    assert told_by(third) == said == told_by(first) and problems(third) == []
    # Folders of agents are made of the record alone, wherever it is.
    out = tmp_path / "agents"
    with open_reader(second) as reader:
        write_agent_folders(reader, out)
    assert agents_in(out) == agents_in(tmp_path / "back" / "agents")


@pytest.mark.spec("X-08")
@settings(
    max_examples=examples(20),
    deadline=None,
    # What fails is shown as it was drawn: each example has three stores, and hundreds of smaller
    # ones would be tried.
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # Each draws a schema of its own.
)
@given(st.data())
def test_whatever_was_done_to_a_store_it_goes_on_in_the_other_as_it_would(
    server: Server, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder, model = tmp_path_factory.mktemp("drawn"), Model()

    async def go_on(store: Any, batches: int) -> None:
        await store.open()
        await claim_all(store)
        for _ in range(batches):
            for _ in range(data.draw(st.integers(1, 5))):
                drawn = plan(data.draw, model) if model.runs else family()
                commit, expected = commit_of(drawn), model.apply(drawn)
                store.submit(commit)
                await store.flush()
                assert told(commit) == expected
        assert store.depths() == model.depths()
        await store.aclose()

    there, back = server.dsn(), folder / "back"
    anyio.run(go_on, SqliteStore(folder / "from"), 2)
    with pytest.MonkeyPatch.context() as patch:
        # No runtime has written these runs: fsck would say that their lanes make no sense.
        patch.setattr(migration, "RecordCheck", lambda *_, **__: NoCheck())
        migrate_store(of(folder / "from"), there)
        assert told_by(there) == told_by(of(folder / "from"))
        anyio.run(go_on, PostgresStore(there), 2)
        migrate_store(there, of(back))
    assert told_by(there) == told_by(of(back))
    anyio.run(go_on, SqliteStore(back), 2)


async def claim_all(store: Any) -> None:
    """Have a store that processes may share own what nobody owns after a migration."""
    if (share := sharing_of(store)) is not None:
        share.attach(Member(store))
        roots = {info.root_run_id for info in await store.runs()}
        with anyio.fail_after(30):
            while not roots <= set(share.trees()):  # noqa: ASYNC110
                await anyio.sleep(0.01)


class NoCheck:
    def problems(self) -> list[Any]:
        return []


@pytest.mark.anyio
@pytest.mark.spec("X-08", "H-06", "H-09")
async def test_a_runtime_goes_on_there_in_the_middle_of_a_run_by_old_cursors_and_keys(
    server: Server, folder: Path, ports: Ports, tmp_path: Path
) -> None:
    runs = await fill(folder, ports)
    with open_reader(of(folder)) as reader:
        middle = reader.tip // 2
        cursor = f"{reader.name}@{middle}"
        expected = [(row.run_id, row.lane, row.seq) for row in reader.event_rows(after=middle)]
    address = server.dsn()
    migrate_store(of(folder), address)
    found: list[Any] = []

    async def live(store: Any) -> None:
        async with Runtime(agents(), store=store, ports=ports, grace=0.1) as rt:
            async with rt.hub.subscribe("*", after=cursor) as events:
                rt.hub.emit(CustomEvent.of("my:mark"))
                async for event in events:
                    found.append((event.run_id, event.lane, event.seq))
                    if event.type == "my:mark":
                        break
            again = await rt.hub.send_to_run(runs.chat, Message("again", key="first"))
            assert again.duplicate
            assert (await rt.hub.send_to_run(runs.chat, "and now?")).accepted
            assert (await rt.result(runs.chat)).success

    await live(PostgresStore(address, ports=ports))
    assert found[: len(expected)] == expected
    assert problems(address) == []
    migrate_store(address, of(tmp_path / "back"))
    await live(sqlite_store(tmp_path / "back", ports=ports))
    assert problems(of(tmp_path / "back")) == []


def test_lists_and_prompts_are_the_same_there(
    server: Server, folder: Path, runs: Filled, command: Command
) -> None:
    address = server.dsn()
    code, out, err = command("migrate", of(folder), address)
    assert (code, err) == (0, "") and SECRET not in out
    for what in ("runs --all", "conversations", "schedules", f"show {runs.chat}"):
        said = command(*what.split(), "--json", "--store", address)
        assert said == command(*what.split(), "--json", "--store", of(folder)) and said[0] == 0


def test_values_of_secrets_are_encrypted_there_and_readable_again_in_a_folder(
    server: Server, folder: Path, runs: Filled, tmp_path: Path
) -> None:
    address = server.dsn()
    migrate_store(of(folder), address)
    ((value,),) = server.query(f"SELECT value FROM {schema_of(address)}.secret")
    assert isinstance(value, bytes) and SECRET.encode() not in value
    migrate_store(address, of(tmp_path / "back"))
    assert SECRET.encode() in (tmp_path / "back" / "hubbub.db").read_bytes()


def test_positions_and_numbers_go_on_behind_those_that_were_copied(
    server: Server, folder: Path, runs: Filled
) -> None:
    address = server.dsn()
    migrate_store(of(folder), address)

    async def live() -> None:
        async with Runtime(agents(), store=PostgresStore(address), grace=0.1) as rt:
            assert (await rt.run("bot", "new")).success

    anyio.run(live)
    assert problems(address) == []


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("X-08")
def test_without_the_key_of_the_secrets_nothing_is_copied(
    server: Server, folder: Path, runs: Filled, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = server.dsn(), server.dsn()
    migrate_store(of(folder), first)
    monkeypatch.delenv("HUBBUB_SECRETS_KEY")
    assert "set HUBBUB_SECRETS_KEY to" in refused(command, of(folder), second)
    assert "set HUBBUB_SECRETS_KEY to" in refused(command, first, of(folder / "x"))
    monkeypatch.setenv("HUBBUB_SECRETS_KEY", "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=")
    assert "encrypted with another key" in refused(command, first, of(folder / "x"))
    assert not is_there(server, second) and not (folder / "x").exists()


@pytest.mark.spec("X-08")
def test_other_tables_stores_with_runs_and_copies_are_no_targets(
    server: Server, folder: Path, runs: Filled, command: Command
) -> None:
    used, copy, foreign = server.dsn(), server.dsn(), server.dsn()
    anyio.run(fill, PostgresStore(used))
    migrate_store(of(folder), copy)
    server.query(f"CREATE SCHEMA {schema_of(foreign)}")
    server.query(f"CREATE TABLE {schema_of(foreign)}.event (mine text)")
    before = told_by(used)
    assert "holds runs; give an empty store" in refused(command, of(folder), used)
    assert "is a copy of that store already" in refused(command, of(folder), copy)
    assert 'relation "event" already exists' in refused(command, of(folder), foreign)
    assert server.query(f"SELECT * FROM {schema_of(foreign)}.event") == []
    assert told_by(used) == before
    assert "is the store itself" in refused(command, used, used)
    respelt = server.dsn_at(schema=schema_of(used))  # By TCP, not by the socket.
    assert "is the store itself" in refused(command, used, respelt)


@pytest.mark.spec("G-04")
def test_an_import_that_fails_takes_nothing_from_others_in_the_schema(
    server: Server, tmp_path: Path, command: Command
) -> None:
    address = server.dsn()
    server.query(f"CREATE SCHEMA {schema_of(address)}")
    server.query(f"CREATE TABLE {schema_of(address)}.mine (x text)")
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    assert command("import", bad, "--store", address)[0]
    left = server.query(
        f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema_of(address)}'"
    )
    assert left == [("mine",)]


def test_a_store_with_nothing_in_it_becomes_the_copy(
    server: Server, folder: Path, runs: Filled
) -> None:
    async def open_once() -> None:
        async with Runtime(agents(), store=PostgresStore(address)):
            pass

    address = server.dsn()
    anyio.run(open_once)
    migrate_store(of(folder), address)
    assert told_by(address) == told_by(of(folder))


@pytest.mark.spec("X-08")
def test_nobody_may_be_at_work_on_either(
    server: Server, folder: Path, runs: Filled, command: Command, tmp_path: Path
) -> None:
    address, empty = server.dsn(), server.dsn()
    migrate_store(of(folder), address)

    async def at_work(store: str, source: str, target: str) -> None:
        async with Runtime(agents(), store=PostgresStore(store), grace=0.1):
            assert "somebody is at work on this store" in refused(command, source, target)

    anyio.run(at_work, address, address, of(tmp_path / "x"))
    anyio.run(at_work, empty, of(folder), empty)


def test_nobody_works_on_either_while_it_is_copied(
    server: Server, folder: Path, runs: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = server.dsn(), server.dsn()
    migrate_store(of(folder), first)
    told: list[str] = []

    async def try_it(address: str) -> None:
        with pytest.raises(OperatorError) as refusal:
            async with Runtime(agents(), store=PostgresStore(address)):
                pass
        told.append(str(refusal.value))

    class Check(migration.RecordCheck):
        def problems(self) -> Any:
            for address in (first, second):
                anyio.run(try_it, address)
            return super().problems()

    monkeypatch.setattr(migration, "RecordCheck", Check)
    migrate_store(first, second)
    assert "at work on this store" in told[0] and "an unfinished copy" in told[1]


@pytest.mark.spec("X-08", "G-04")
@pytest.mark.parametrize("damage", [
    "UPDATE {}.event SET body = replace(body, 'hello', 'hallo')",
    "DELETE FROM {}.event WHERE position = 3",
    "DELETE FROM {}.run WHERE number = 2",
    "UPDATE {}.blob SET content = 'changed'",
])  # fmt: skip
def test_a_damaged_original_is_refused(
    server: Server, folder: Path, runs: Filled, command: Command, tmp_path: Path, damage: str
) -> None:
    address = server.dsn()
    migrate_store(of(folder), address)
    server.query(damage.format(schema_of(address)))
    assert "hubbub fsck" in refused(command, address, of(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_what_a_table_of_the_server_cannot_hold_is_refused_in_one_line(
    server: Server, folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder that an earlier version has filled, which took longer keys.
    monkeypatch.setattr("hubbub.hub.texts.MAX_KEY", 10_000)

    async def long_key() -> None:
        async with Runtime(agents(), store=SqliteStore(folder)) as rt:
            key = random.Random(1).randbytes(4000).hex()
            await rt.start("bot", Message("hello", key=key), session_key="x")

    anyio.run(long_key)
    address = server.dsn()
    assert "keys and names end at about 2,600 bytes" in refused(command, of(folder), address)
    assert not is_there(server, address)


# ── interrupted ──────────────────────────────────────────────────────────────────────────────


def state_of(address: str) -> str:
    """What somebody finds who opens the store: nothing yet, a store, or what is unfinished."""

    async def run() -> None:
        async with Runtime(agents(), store=PostgresStore(address)):
            pass

    def read() -> None:
        with open_reader(address):
            pass

    def take_in() -> None:
        with open_intake(address, Ports().ids):
            pass

    told = refusal_of(read)
    if not told:
        return "whole"
    if "no store in the schema" in told:
        return "nothing"
    for use in (read, take_in, lambda: anyio.run(run)):
        assert "run the same hubbub migrate again" in refusal_of(use)
    return "unfinished"


def refusal_of(use: Callable[[], object]) -> str:
    try:
        use()
    except OperatorError as error:
        return str(error)
    return ""


ORDER = ["nothing", "unfinished", "whole"]


@pytest.mark.spec("X-08")
def test_killed_at_any_step_on_the_way_there_it_can_be_done_again(
    server: Server, folder: Path, runs: Filled, tmp_path: Path
) -> None:
    said, states, whole = told_by(of(folder)), [], server.dsn()
    steps = steps_of(lambda: migrate_store(of(folder), whole), tmp_path)
    for step in portion(range(1, steps + 1)):
        address = server.dsn(f"killed_{step}")
        assert killed_before(step, lambda to=address: migrate_store(of(folder), to))  # type: ignore[misc]
        states.append(state_of(address))
        if states[-1] == "whole":
            assert "is a copy of that store already" in refusal_of(
                lambda to=address: migrate_store(of(folder), to)  # type: ignore[misc]
            )
        else:
            migrate_store(of(folder), address)
        assert told_by(address) == said, f"killed before step {step}"
        server.query(f"DROP SCHEMA killed_{step} CASCADE")
    assert states == sorted(states, key=ORDER.index) and {"nothing", "unfinished"} <= {*states}
    assert told_by(of(folder)) == said


@pytest.mark.spec("X-08")
def test_killed_at_any_step_on_the_way_back_it_can_be_done_again(
    server: Server, folder: Path, runs: Filled, tmp_path: Path
) -> None:
    address = server.dsn()
    migrate_store(of(folder), address)
    said, there = told_by(address), tmp_path / "killed"
    steps = steps_of(lambda: migrate_store(address, of(tmp_path / "all")), tmp_path)
    for step in portion(range(1, steps + 1)):
        assert killed_before(step, lambda: migrate_store(address, of(there)))
        try:
            migrate_store(address, of(there))
        except OperatorError as error:
            assert "is a copy of that store already" in str(error)  # noqa: PT017
        assert told_by(of(there)) == said, f"killed before step {step}"
        assert [x for x in StoreCheck(of(there)).problems() if not x.heals] == []
        shutil.rmtree(there)
    assert told_by(address) == said


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_server_that_is_lost_on_the_way_is_told_in_one_line_and_it_can_be_done_again(
    server: Server, folder: Path, runs: Filled, command: Command, tmp_path: Path, way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    address = server.dsn()
    source, target = of(folder), address
    if way == "back":
        migrate_store(source, address)
        source, target = address, of(tmp_path / "back")
    said = told_by(source)

    def lose(*_: object) -> None:
        server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'hubbub:%migrate'"
        )

    with monkeypatch.context() as patch:
        put = migration._check

        def losing(*arguments: Any) -> None:
            lose()
            put(*arguments)

        patch.setattr(migration, "_check", losing)
        words = refused(command, source, target)
    assert "server" in words
    if way == "there":
        assert state_of(target) == "unfinished"
    migrate_store(source, target)
    assert told_by(target) == said


def test_interrupted_it_leaves_nothing(
    server: Server, folder: Path, runs: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    address = server.dsn()
    monkeypatch.setattr(migration, "_check", fail)
    with pytest.raises(KeyboardInterrupt):
        migrate_store(of(folder), address)
    assert not is_there(server, address)
