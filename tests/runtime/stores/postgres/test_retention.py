"""Trees go from a schema beside workers: real processes that talk and die, and passes that are
killed before any of their steps."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.killed_steps import killed_before, steps_of
from support.postgres import Server
from support.profiles import portion
from support.pruned_stores import DAY, Aged, fill_with_ages, ports_at, problems, told_of
from support.stores import agents
from support.virtual_time import VirtualTimeLoop
from support.worker_process import WorkerProcess

from hubbub import Event, Message, Retention, Runtime, agent
from hubbub.hub.errors import StoreFailed
from hubbub.hub.events import HubGap, SessionMessage
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import InlineOffload, InlineWorker, virtual_ports
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.postgres.migrations import newest
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


# ── processes ────────────────────────────────────────────────────────────────────────────────

MODULE = """
from hubbub import Agent, FunctionModel, agent

def answer(request):
    return f"echo: {request.messages[-1].content}"

desk = Agent("desk", "You help.", model=FunctionModel(answer))

@agent("part")
async def part(input, ctx):
    return "done"

@agent("job")
async def job(input, ctx):
    ctx.spawn("part", input, result="ignore")
    return "done"

agents = [desk, job, part]
"""

RETENTION = ("--retention-ended", "1.5s")


class Crew:
    """Three ``hubbub worker``s on one schema; who is killed is followed by another one."""

    def __init__(self, folder: Path, server: Server, seed: int) -> None:
        (folder / "my_agents.py").write_text(MODULE)
        self.folder, self.server, self.random = folder, server, Random(seed)
        self.schema = server.new_schema()
        self.address = server.dsn(self.schema)
        self.alive: dict[str, WorkerProcess] = {}
        self.kills = 0
        self._count = 0

    def begin(self) -> None:
        self._count += 1
        name = f"worker-{self._count}"
        arguments = ("my_agents:agents", "--store", self.address, "--name", name, *RETENTION)
        self.alive[name] = WorkerProcess(self.folder, *arguments)
        self.alive[name].wait_for(f"worker {name} is at work")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.query(sql.replace("{}", self.schema))

    def holder(self) -> str:
        """Who makes the passes."""
        found = self.query(
            "SELECT name FROM {}.worker JOIN {}.note ON key = 'turn/retention' AND value = id::text"
        )
        return found[0][0] if found else ""

    def kill(self, name: str) -> None:
        worker = self.alive.pop(name)
        worker.signal(signal.SIGKILL)
        worker.wait()
        self.kills += 1

    def end(self) -> None:
        for worker in self.alive.values():
            worker.signal(signal.SIGTERM)
        for worker in self.alive.values():
            assert worker.wait() == 0, worker.stderr


async def talk(crew: Crew, hub: Hub, rounds: int) -> tuple[dict[str, list[str]], set[str]]:
    """Conversations go on and jobs end, while the worker that has trees go is killed, and
    connections are cut; what was acknowledged."""
    said: dict[str, list[str]] = {}
    jobs: set[str] = set()
    for number in range(3):
        receipt = await hub.open("desk", "hello", session_key=f"chat-{number}")
        said[receipt.run_id] = []
    for number in range(rounds):
        for _ in range(3):
            jobs.add((await hub.open("job", str(number))).run_id)
            to = crew.random.choice([*said])
            words = f"{number}.{len(said[to])}"
            message = Message(words, key=f"{to}{words}")
            if (await hub.send_to_run(to, message)).accepted:
                said[to].append(words)
        await anyio.sleep(crew.random.random() / 4)
        holder = await anyio.to_thread.run_sync(crew.holder) if number % 20 == 10 else ""
        if holder in crew.alive:
            await anyio.to_thread.run_sync(crew.kill, holder)
            await anyio.to_thread.run_sync(crew.begin)
        if number % 25 == 5:
            await anyio.to_thread.run_sync(crew.server.end_connections)
    return said, jobs


@pytest.mark.anyio
async def test_workers_talk_and_die_while_trees_go_and_nothing_is_lost_or_left(
    server: Server, tmp_path: Path, anyio_backend: str
) -> None:
    crew = Crew(tmp_path, server, seed=len(anyio_backend))
    try:
        for _ in range(3):
            crew.begin()
        async with Hub(journal=PostgresStore(crew.address, is_worker=False)) as hub:
            heard: list[Event] = []
            hub.subscribe("*", heard.append)
            said, jobs = await talk(crew, hub, rounds=70)
            with anyio.fail_after(60):
                while await left_of(hub, jobs):  # A server has its own time.
                    await hub.send_to_run(next(iter(said)), "the last event of the store")
                    await anyio.sleep(0.5)
            assert hub.dispatcher.dispatched == hub.journal.tip
            for run_id, words in said.items():
                events = await hub.read(run_id=run_id, types="session:message")
                texts = [x.content for x in events if isinstance(x, SessionMessage)]
                assert [text for text in texts if text in words] == words
            ends = Counter(x.run_id for x in heard if x.type == "agent:complete")
            assert jobs <= {*ends} and {*ends.values()} == {1}
        crew.end()
        gone = [root for (root,) in crew.query(GONE)]
        assert len(gone) == len({*gone}) and {*gone} >= jobs and not {*gone} & {*said}
        assert crew.kills >= 2 and problems(crew.address) == []
        for table in ("run", "event", "accepted", "waiting", "snapshot"):
            column = "number" if table == "run" else "run"
            assert crew.query(LEFT.replace("{table}", table).replace("{column}", column)) == []
    finally:
        for worker in crew.alive.values():
            worker.__exit__()


GONE = (
    "SELECT (substr(value, strpos(value, ' ') + 1)::jsonb ->> 0)::text FROM {}.note "
    "WHERE key LIKE 'gone/%'"
)
LEFT = (
    "SELECT {column} FROM {}.{table} WHERE {column} <> 0 AND {column} NOT IN "
    "(SELECT number FROM {}.address) LIMIT 1"
)
"""What is nobody's: its address has gone."""


async def left_of(hub: Hub, run_ids: set[str]) -> set[str]:
    found: set[str] = await hub.journal.inspect(lambda reader: {*reader.roots().values()})
    return found & run_ids


# ── others who listen ────────────────────────────────────────────────────────────────────────


def jobs() -> list[Any]:
    @agent("job")
    async def job(input: Any, ctx: Any) -> str:
        return "done"

    return [job, model_agent(echo_model(0.01), name="desk")]


async def heard_in(events: Any, seconds: float = 2.0) -> list[Event]:
    found: list[Event] = []
    with anyio.move_on_after(seconds):
        async for event in events:
            found.append(event)  # noqa: PERF401 - Until the time is over.
    return found


def gaps(events: list[Event]) -> list[str]:
    return [event.reason for event in events if isinstance(event, HubGap)]


async def goes(hub: Hub, run_id: str) -> None:
    with anyio.fail_after(30):
        while await left_of(hub, {run_id}):  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.05)


@pytest.mark.anyio
async def test_a_subscriber_that_is_behind_in_another_process_gets_its_gap(server: Server) -> None:
    address = server.dsn()
    watching = PostgresStore(address, is_worker=False)
    async with (
        Runtime(jobs(), store=PostgresStore(address), retention=Retention(ended=0.5)) as rt,
        Hub(journal=watching) as hub,
    ):
        async with (
            hub.subscribe("*", lossless=True, buffer=1) as behind,
            hub.subscribe("*", lossless=True) as live,
        ):
            run = await rt.run("job", "go")
            chat = await rt.start("desk", "the last event is another one's", session_key="chat")
            await chat.result()
            await goes(hub, run.run_id)
            found = await heard_in(behind)
            assert gaps(found) == ["removed"]
            kept = [(x.run_id, x.lane, x.seq) for x in found if x.lane]
            assert len(kept) == len({*kept})
            wanted = await hub.read(run_id=chat.run_id)
            assert {(x.run_id, x.lane, x.seq) for x in wanted} <= {*kept}
            assert gaps(await heard_in(live)) == []
        async with hub.subscribe("*", after="start") as later:
            assert gaps(await heard_in(later, 1.0)) == []  # It has missed nothing.
        assert hub.dispatcher.dispatched == hub.journal.tip == rt.hub.journal.tip


@pytest.mark.anyio
async def test_beside_a_program_that_does_not_know_of_it_nothing_goes(server: Server) -> None:
    schema = server.new_schema()
    address = server.dsn(schema)
    assert newest() > 3
    retention = Retention(ended=0.1)
    async with Runtime(jobs(), store=PostgresStore(address), retention=retention) as rt:
        server.query(
            f"INSERT INTO {schema}.worker (name, format, kind, live, expires, told) VALUES "
            f"('old', 3, 'worker', true, clock_timestamp() + interval '5 seconds', 1000000)"
        )
        run = await rt.run("job", "go")
        await (await rt.start("desk", "hello", session_key="chat")).result()
        await anyio.sleep(3)
        assert await left_of(rt.hub, {run.run_id}) == {run.run_id}
        await goes(rt.hub, run.run_id)  # Its lease is over.


@pytest.mark.anyio
async def test_a_role_that_may_make_no_index_does_without(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    schema = server.new_schema()
    address, role = server.dsn(schema), f"guest_{schema}"
    async with Runtime(jobs(), store=PostgresStore(address)):
        pass
    server.query(f"CREATE ROLE {role} LOGIN")
    server.query(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for what in ("TABLES", "SEQUENCES"):
        server.query(f"GRANT ALL ON ALL {what} IN SCHEMA {schema} TO {role}")
    guest = PostgresStore(address.replace("hubbub@", f"{role}@"))
    async with Runtime(jobs(), store=guest, retention=Retention(ended=0.5)) as rt:
        run = await rt.run("job", "go")
        await (await rt.start("desk", "hello", session_key="chat")).result()
        await goes(rt.hub, run.run_id)
    assert "retention.unindexed" in caplog.text and "CREATE INDEX CONCURRENTLY" in caplog.text
    store = PostgresStore(address)
    async with Runtime(jobs(), store=store, retention=Retention(ended="1d")):
        found: set[Any] = set()
        with anyio.fail_after(30):
            while not {"event_end", "note_request", "run_live_root", "run_live_child"} <= found:
                names = server.query(
                    f"SELECT indexname FROM pg_indexes WHERE schemaname='{schema}'"
                )
                found = {name for (name,) in names}
                await anyio.sleep(0.05)


REFUSALS = {
    "a foreign key": (
        "CREATE TABLE {}.mine (run bigint REFERENCES {}.run(number));"
        "INSERT INTO {}.mine SELECT number FROM {}.run WHERE agent = 'job'",
        "DROP TABLE {}.mine",
    ),
    "a trigger": (
        "CREATE FUNCTION {}.no() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;"
        "CREATE TRIGGER no BEFORE DELETE ON {}.event FOR EACH ROW EXECUTE FUNCTION {}.no()",
        "DROP TRIGGER no ON {}.event",
    ),
    "a right": (
        "REVOKE DELETE ON {}.event FROM guest_{}", "GRANT DELETE ON {}.event TO guest_{}",
    ),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("what", REFUSALS)
async def test_a_tree_whose_removal_the_server_refuses_stays_until_it_no_longer_does(
    what: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    schema = server.new_schema()
    address, role = server.dsn(schema), f"guest_{schema}"
    refuse, allow = (sql.replace("{}", schema) for sql in REFUSALS[what])
    async with Runtime(jobs(), store=PostgresStore(address)) as rt:
        run = await rt.run("job", "go")
    server.query(f"CREATE ROLE {role} LOGIN")
    server.query(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for each in ("TABLES", "SEQUENCES"):
        server.query(f"GRANT ALL ON ALL {each} IN SCHEMA {schema} TO {role}")
    guest = PostgresStore(address.replace("hubbub@", f"{role}@"))
    async with Runtime(jobs(), store=guest, retention=Retention(ended=0.5)) as rt:
        server.query(refuse)  # Before anything else is written the last tree stays.
        chat = await rt.start("desk", "hello", session_key="chat")
        await chat.result()
        with anyio.fail_after(20):
            while "retention.kept" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await anyio.sleep(4)
        assert (await chat.ask("again")).output == "echo: again"
        assert await left_of(rt.hub, {run.run_id}) == {run.run_id}
        server.query(allow)
        await goes(rt.hub, run.run_id)
        assert (await chat.ask("still")).output == "echo: still"
    assert caplog.text.count("retention.kept") == 1
    assert "store.failed" not in caplog.text and "commit.unwritable" not in caplog.text


@pytest.mark.anyio
async def test_what_the_server_refuses_to_add_is_its_trouble_as_before(server: Server) -> None:
    schema = server.new_schema()
    async with Runtime(jobs(), store=PostgresStore(server.dsn(schema))) as rt:
        await (await rt.start("desk", "hello", session_key="chat")).result()
        server.query(
            f"CREATE FUNCTION {schema}.no() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no more'; END $$;"
            f"CREATE TRIGGER no BEFORE INSERT ON {schema}.event FOR EACH ROW"
            f" EXECUTE FUNCTION {schema}.no()"
        )
        with pytest.raises(StoreFailed, match="no more"):
            await (await rt.start("desk", "more")).result()


# ── killed in a pass ─────────────────────────────────────────────────────────────────────────


def virtually(do: Callable[[], Any]) -> Any:
    return anyio.run(do, backend="asyncio", backend_options={"loop_factory": VirtualTimeLoop})


def filled(server: Server) -> tuple[str, Aged]:
    store = server.dsn()
    return store, virtually(lambda: fill_with_ages(store, virtual_ports()))


def one_pass(store: str) -> None:
    """A runtime that has go what ended over two days ago, on the day after the last one."""
    ports = Ports(
        clock=ports_at(3.5 * DAY).clock, offload=InlineOffload(), make_worker=InlineWorker
    )

    async def do() -> None:
        retention = Retention(ended=2 * DAY)
        async with Runtime(agents(), store=store, ports=ports, retention=retention, grace=0.1):
            await anyio.sleep(1)

    virtually(do)


def test_a_pass_that_is_killed_before_any_of_its_steps_leaves_each_tree_whole_or_gone(
    server: Server, tmp_path: Path
) -> None:
    store, _ = filled(server)
    steps = steps_of(lambda: one_pass(store), tmp_path)
    store, runs = filled(server)
    before, seen = told_of(store), set()
    for step in portion(range(1 + Random().randrange(4), steps + 1, 4)):
        assert killed_before(step, partial(one_pass, store))
        told = told_of(store)
        for root in (runs.old, runs.family):
            assert root not in told or told[root] == before[root]
        for root in (runs.young, runs.chat, runs.last):
            assert told[root] == before[root]
        assert told["secrets"].items() <= before["secrets"].items()
        left = frozenset({runs.old, runs.family} & {*told})
        seen.add(left)
        assert problems(store) == [], f"killed before step {step}"
        if not left:
            store, runs = filled(server)
            before = told_of(store)
    one_pass(store)
    assert not {runs.old, runs.family} & {*told_of(store)} and problems(store) == []
    with open_reader(store) as reader:
        assert sum(key.startswith("gone/") for key in reader.notes()) == 2
    assert os.environ.get("CI") is None or len(seen) >= 2


def test_what_went_last_is_noted_and_older_notes_go(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubbub.runtime.stores.postgres.removal import removals

    kept = removals._FORGET_OLD.replace("- 1000", "- 3")
    monkeypatch.setattr(removals, "_FORGET_OLD", kept)
    store = server.dsn()

    async def do() -> None:
        ports = virtual_ports()
        async with Runtime(jobs(), store=store, ports=ports, retention=Retention(ended=60)) as rt:
            for number in range(6):
                await rt.run("job", str(number))
            await anyio.sleep(100)

    virtually(do)
    with open_reader(store) as reader:
        numbers = sorted(key for key in reader.notes() if key.startswith("gone/"))
    assert [int(key[5:]) for key in numbers] == [3, 4, 5]
