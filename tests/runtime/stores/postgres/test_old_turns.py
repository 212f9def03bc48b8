"""Old turns of runs that live go from a schema beside workers, of which others may drive the run,
follow it, or be of a version that knows none of this."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from support.pruned_stores import problems
from support.stores import agents
from support.virtual_time import VirtualTimeLoop

from hubbub import Event, Message, Retention, Runtime
from hubbub.__main__ import main
from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import AgentBase, HubGap
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Cut
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.virtual import EPOCH, InlineOffload, InlineWorker, LoopClock, virtual_ports
from hubbub.runtime.removal import old_turns
from hubbub.runtime.stores.postgres import migrations
from hubbub.runtime.stores.postgres.migrations import BASES
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

KEPT = Retention(keep_turns=3, ended=10)
"""A pass is made each second."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


def desk() -> list[Any]:
    return [model_agent(echo_model(0.0), name="desk")]


async def talk(rt: Runtime, first: int, last: int) -> str:
    run = await rt.start("desk", session_key="chat")
    for turn in range(first, last):
        await rt.hub.send_to_run(run.run_id, Message(f"number {turn}", key=f"k{turn}"))
        await run.result()
    return run.run_id


async def events_of(hub: Hub, run_id: str) -> list[Event]:
    def look(reader: StoreReader) -> list[Event]:
        return [x.event for x in events_in(reader, run_id) if x.event.lane != "hub"]

    return await hub.journal.inspect(look)


async def comes(hub: Hub, run_id: str, is_so: Callable[[list[Event]], object]) -> list[Event]:
    with anyio.fail_after(30):
        while not is_so(events := await events_of(hub, run_id)):  # noqa: ASYNC110
            await anyio.sleep(0.05)
    return events


def has_base(events: list[Event]) -> bool:
    return any(isinstance(x, AgentBase) for x in events)


# ── beside others ────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_a_run_that_another_worker_drives_is_cut_and_goes_on(server: Server) -> None:
    address = server.dsn()
    async with Runtime(desk(), store=PostgresStore(address), retention=KEPT) as first:
        run_id = await talk(first, 0, 2)
        async with Runtime(desk(), store=PostgresStore(address), retention=KEPT) as second:
            run_id = await talk(first, 2, 25)
            left = await comes(second.hub, run_id, base_behind_gap)
            removed = [rt.hub.removed for rt in (first, second)]
            with anyio.fail_after(30):
                while sum(x.cuts > 0 for x in removed if x is not None) != 1:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            run_id = await talk(second, 25, 30)
            for turn in (1, 29):
                said = Message(f"number {turn}", key=f"k{turn}")
                assert (await second.hub.send_to_run(run_id, said)).duplicate
                other = await first.hub.send_to_run(run_id, Message("else", key=f"k{turn}"))
                assert "key reused" in other.reason
            assert await first.hub.read(run_id) == await second.hub.read(run_id)
            assert [(x.lane, x.seq) for x in left[:2]] == [("in", 1), ("own", 1)]
        run_id = await talk(first, 30, 40)  # Whoever had the turn, it goes on.
    assert problems(address) == []
    async with Runtime(desk(), store=PostgresStore(address), retention=KEPT) as third:
        run_id = await talk(third, 40, 45)
        fork = await third.fork(run_id)
        assert (await fork.result()).run_id == fork.run_id
    assert problems(address) == []


@pytest.mark.anyio
async def test_who_is_behind_in_another_process_is_told_that_old_turns_have_gone(
    server: Server,
) -> None:
    address = server.dsn()
    watching = PostgresStore(address, is_worker=False)
    async with (
        Runtime(desk(), store=PostgresStore(address), retention=KEPT) as rt,
        Hub(journal=watching) as hub,
    ):
        run_id = await talk(rt, 0, 1)
        async with (
            hub.subscribe("*", run_id=run_id, lossless=True, buffer=1) as behind,
            hub.subscribe("*", run_id=run_id, lossless=True) as live,
        ):
            await talk(rt, 1, 25)
            left = await comes(hub, run_id, base_behind_gap)
            found: list[Event] = []
            with anyio.move_on_after(3.0):
                async for event in behind:
                    found.append(event)  # noqa: PERF401 - Until the time is over.
            assert [x.reason for x in found if isinstance(x, HubGap)] == ["removed"]
            place = next(at for at, x in enumerate(found) if isinstance(x, HubGap))
            kept = [x for x in found[place:] if x.lane]
            assert kept[-1] == left[-1] and base_behind_gap([*left[:2], *kept])
            with anyio.move_on_after(1.0):
                async for event in live:
                    assert not isinstance(event, HubGap)
        for after, is_told in ((left[1], True), (left[-2], False)):
            async with hub.subscribe("*", after=hub.cursor(after), run_id=run_id) as stream:
                assert isinstance(await anext(stream), HubGap) == is_told
        # Of the run itself nothing has ended: what is sent to it is taken.
        assert (await hub.send_to_run(run_id, "and now?")).accepted


# ── beside programs that do not know of it ───────────────────────────────────────────────────


@asynccontextmanager
async def older_store(address: str, patch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """A process at work of a program that knows no bases."""
    store = PostgresStore(address, is_worker=False)
    with patch.context() as older:
        older.setattr(migrations, "STEPS", migrations.STEPS[: BASES - 2])
        assert migrations.newest() == BASES - 1
        await store.open()
    try:
        yield store
    finally:
        await store.aclose()


@pytest.mark.anyio
async def test_beside_an_older_program_no_base_is_written_and_then_none_joins(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = server.new_schema()
    address = server.dsn(schema)
    reads = f"SELECT value FROM {schema}.meta WHERE key = 'reads'"
    async with Runtime(desk(), store=PostgresStore(address)) as other:
        server.query(
            f"INSERT INTO {schema}.worker (name, format, kind, live, expires, told) VALUES ('old', "
            f"{BASES - 1}, 'worker', true, clock_timestamp() + interval '6 seconds', 1000000)"
        )
        async with Runtime(desk(), store=PostgresStore(address), retention=KEPT) as rt:
            run_id = await talk(rt, 0, 12)
            await anyio.sleep(2.5)
            assert not has_base(await events_of(rt.hub, run_id))
            assert int(str(server.query(reads)[0][0])) < BASES
            with anyio.fail_after(30):
                while server.query(reads) != [(str(BASES),)]:  # noqa: ASYNC110  # Its lease is over.
                    await anyio.sleep(0.05)
            await talk(rt, 12, 60)
            assert await events_of(other.hub, run_id)
            with pytest.raises(OperatorError, match=rf"format {BASES}; this one knows {BASES - 1}"):
                async with older_store(address, monkeypatch):
                    pass


@pytest.mark.anyio
async def test_without_such_a_retention_older_programs_join(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.dsn()
    async with Runtime(desk(), store=PostgresStore(address), retention=Retention(ended=10)) as rt:
        await talk(rt, 0, 5)
        await anyio.sleep(1.5)
        async with older_store(address, monkeypatch):
            pass


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["import", "migrate"])
async def test_what_comes_in_with_a_base_excludes_older_programs(
    server: Server, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, schema = f"sqlite:{tmp_path / 'one'}", server.new_schema()
    two = server.dsn(schema)
    async with Runtime(agents(), store=one, retention=Retention(keep_turns=3)) as rt:
        run = await rt.start("bot", session_key="chat")
        for turn in range(20):
            await run.ask(f"number {turn}")
        passes = rt._passes
        assert passes is not None
        await passes.make_pass()
        left = await events_of(rt.hub, run.run_id)
        assert base_behind_gap(left)
    out = str(tmp_path / "run.jsonl")
    if way == "import":
        assert main(["export", run.run_id, "--out", out, "--store", one]) == 0
        assert main(["import", out, "--store", two]) == 0
    else:
        assert main(["migrate", one, two]) == 0
    assert server.query(f"SELECT value FROM {schema}.meta WHERE key = 'reads'") == [(str(BASES),)]
    assert problems(two) == []
    async with Runtime(agents(), store=two, retention=Retention(keep_turns=3)) as rt:
        assert await events_of(rt.hub, run.run_id) == left
        again = await rt.start("bot", session_key="chat")
        assert (await again.ask("and now?")).output == "It is noted."


@pytest.mark.anyio
@pytest.mark.spec("G-04")
async def test_the_last_base_that_comes_in_is_read_before_anything_is_kept(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, file = server.dsn(), server.dsn(), tmp_path / "run.jsonl"
    async with Runtime(desk(), store=PostgresStore(one), retention=KEPT) as rt:
        run_id = await talk(rt, 0, 5)
        assert has_base(await events_of(rt.hub, run_id))
    assert main(["export", run_id, "--out", str(file), "--store", one]) == 0
    lines = file.read_bytes().splitlines(keepends=True)
    place = max(i for i, line in enumerate(lines) if b'"type":"agent:base"' in line)
    lines[place] = lines[place].replace(
        b'"transcript":[{"type":"user"', b'"transcript":[{"type":"x"'
    )
    file.write_bytes(b"".join(lines))
    for more in (["--replace", "--store", one], ["--store", two]):
        assert main(["import", str(file), *more]) != 0
        assert "its base cannot be read" in capsys.readouterr().err
    assert problems(one) == []


# ── whoever is about to write ────────────────────────────────────────────────────────────────


@pytest.mark.anyio
async def test_a_cut_of_a_worker_that_has_lost_the_turn_is_refused(server: Server) -> None:
    """And one before which something waits, or of a run that is not there."""
    address = server.dsn()
    async with Runtime(desk(), store=PostgresStore(address), retention=KEPT) as rt:
        run_id = await talk(rt, 0, 10)
        events = await comes(rt.hub, run_id, has_base)
        base = next(x for x in events if isinstance(x, AgentBase))

        async def cut(**facts: Any) -> str:
            commit = Commit(cut=Cut(run_id=facts.pop("run_id", run_id), seq=base.seq, **facts))
            commit.notes_expect, done = {"turn/retention": "another"}, anyio.Event()
            commit.after = lambda _: done.set()
            rt.hub.pipeline.submit(commit)
            await done.wait()
            return commit.error

        assert await cut(inbox=base.inbox) == "conflict"
        assert sharing_of(rt.hub.journal) is not None


# ── killed ───────────────────────────────────────────────────────────────────────────────────


def virtually(do: Callable[[], Any]) -> Any:
    return anyio.run(do, backend="asyncio", backend_options={"loop_factory": VirtualTimeLoop})


def grown(server: Server) -> tuple[str, str]:
    """A run that is to be cut, and was not."""
    store = server.dsn()

    async def grow() -> str:
        ports = virtual_ports()
        async with Runtime(agents(), store=store, ports=ports) as rt:
            run = await rt.start("bot", session_key="chat")
            for turn in range(12):
                await run.ask(Message(f"number {turn}", key=f"k{turn}"))
        async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
            await anyio.sleep(0.1)  # A pass is made, and no other one while this lasts.
            run = await rt.start("bot", session_key="chat")
            for turn in range(12, 22):
                await run.ask(f"number {turn}")
        return run.run_id

    return store, virtually(grow)


def one_pass(store: str) -> None:
    clock = LoopClock(EPOCH + 86_400_000_000)
    ports = Ports(clock=clock, offload=InlineOffload(), make_worker=InlineWorker)

    async def do() -> None:
        async with Runtime(agents(), store=store, ports=ports, retention=KEPT, grace=0.1):
            await anyio.sleep(0.5)

    virtually(do)


def left_of(store: str, run_id: str) -> list[tuple[str, int]]:
    from hubbub.runtime.stores.open import open_reader

    with open_reader(store) as reader:
        return [(x.lane, x.seq) for x in reader.event_rows((run_id,)) if x.lane != "hub"]


def test_killed_before_any_step_of_a_cut_what_is_left_is_sound_and_the_next_pass_goes_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_turns, "STEP", 25)
    store, run_id = grown(server)
    before = left_of(store, run_id)
    steps = steps_of(lambda: one_pass(store), tmp_path)
    after = left_of(store, run_id)
    assert len(after) < len(before) / 2
    store, run_id = grown(server)
    seen: set[int] = set()
    for step in portion(range(1 + Random().randrange(4), steps + 1, 4)):
        is_killed = killed_before(step, partial(one_pass, store))
        left = left_of(store, run_id)
        seen.add(len(left))
        assert problems(store) == [], f"killed before step {step}"
        assert is_killed or left == after  # What went in lives before this one makes it shorter.
        if left == after:
            store, run_id = grown(server)
    one_pass(store)
    assert left_of(store, run_id) == after and problems(store) == []
