"""The figures of several processes over one PostgreSQL store, on a server of their own.

Workers are processes that think as models do; the channel that starts their runs, sends and
listens is this one.  All share this machine's cores, so no worker is given more to do than a part
of one: what is measured is the store between them.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
from figures import Aim, Figure, Loop, on_loop
from shared_worker import thinker

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres import SECRETS_KEY, Server, binaries, folder_in_memory, running_server

from hubbub import Event, Message, Runtime
from hubbub.hub.events import AgentStep, AgentText, SessionOpen
from hubbub.hub.store.journal import Commit, Delivery, NewRun
from hubbub.hub.store.sharing import RemovedTree, sharing_of
from hubbub.hub.store.store import Store
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.postgres.sealing import KEY_VARIABLE
from hubbub.runtime.stores.postgres.store import PostgresStore

__all__ = ["ack", "busy_ack", "heard", "is_possible", "steps", "store", "take_over"]

WORKER: Final = Path(__file__).parent / "shared_worker.py"
THINKING: Final = 0.2
RUNS: Final = 20
"""Runs of each worker, each of which makes five steps a second."""
IN_FLIGHT: Final = 100
WINDOW: Final = 10.0
DISK: Final = {"commit_delay": "3000", "commit_siblings": "0"}
"""A flush of the disk takes 3 ms, as one of a cloud does."""


def is_possible() -> bool:
    """Whether PostgreSQL is installed."""
    return binaries() is not None


@contextmanager
def _server(**settings: str) -> Iterator[Server]:
    os.environ.setdefault(KEY_VARIABLE, SECRETS_KEY)
    with running_server(**settings) as server:
        yield server


@contextmanager
def _workers(store: str, loop: Loop, count: int) -> Iterator[None]:
    command = [sys.executable, str(WORKER), store, loop, str(THINKING)]
    with ExitStack() as all_of_them:
        processes = [
            all_of_them.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            for _ in range(count)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            for process in processes:
                process.kill()


@asynccontextmanager
async def _channel(store: str) -> AsyncIterator[Runtime]:
    agent, prompt = thinker(THINKING)
    async with Runtime([agent], prompts=[prompt], store=store, role="channel", grace=0) as rt:
        yield rt


async def _until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not is_so():  # noqa: ASYNC110 - beside what waits for it this costs nothing
            await anyio.sleep(0.02)


# ── workers beside each other ────────────────────────────────────────────────────────────────


def steps(loop: Loop, rounds: int, scale: float) -> Figure:
    """Steps that four workers make in the time in which one makes some."""
    seconds = max(1.0, WINDOW * scale)
    one: list[float] = []
    four: list[float] = []
    for _ in range(min(rounds, 3)):
        for count, into in ((1, one), (4, four)):
            with _server(**DISK) as server:
                dsn = server.dsn()
                with _workers(dsn, loop, count):
                    into.append(on_loop(loop, _steps, dsn, count * RUNS, seconds))
    return Figure(
        what="thinking agents: steps of four workers, 3 ms of disk", loop=loop, unit="steps/s",
        value=statistics.median(four), floor=statistics.median(one), aim=Aim(">=", 3.6, True),
        note=f"floor: one worker; {RUNS} runs a worker offer {RUNS / THINKING:,.0f} steps/s",
    )  # fmt: skip


async def _steps(store: str, runs: int, seconds: float) -> float:
    async with _channel(store) as rt:
        begun: set[str] = set()
        made = 0

        def count(event: Event) -> None:
            nonlocal made
            begun.add(event.run_id)
            made += 1

        rt.hub.subscribe(AgentStep.type, count)
        for _ in range(runs):
            await rt.start("thinker", "Think.")
        await _until(lambda: len(begun) == runs)
        before, start = made, perf_counter()
        await anyio.sleep(seconds)
        return (made - before) / (perf_counter() - start)


def ack(loop: Loop, rounds: int, scale: float) -> Figure:
    """How long a channel waits until what it sends is acknowledged."""
    found = _late(loop, scale, 2)[0]
    return _figure("a channel's send_to_run → acknowledged, two workers", loop, found, 10)


def heard(loop: Loop, rounds: int, scale: float) -> Figure:
    """How late another process hears of an event, its commit included."""
    found = _late(loop, scale, 2)[1]
    return _figure("a worker's event → heard in another process", loop, found, 10)


def busy_ack(loop: Loop, rounds: int, scale: float) -> Figure:
    """The longest waits for a commit where four workers' commits are in the way."""
    found = _late(loop, scale, 4, **DISK)[0]
    what = "send_to_run → acknowledged, four workers, 3 ms of disk"
    return _figure(what, loop, found, 100, percent=99)


def _late(
    loop: Loop, scale: float, workers: int, **settings: str
) -> tuple[list[float], list[float]]:
    with _server(**settings) as server:
        dsn = server.dsn()
        with _workers(dsn, loop, workers):
            return on_loop(loop, _delays, dsn, workers * RUNS, max(5, int(300 * scale)))


def _figure(what: str, loop: Loop, found: list[float], most: float, percent: int = 50) -> Figure:
    found.sort()
    value, p99 = (found[len(found) * each // 100] for each in (percent, 99))
    return Figure(
        what=f"{what}, p{percent}", loop=loop, unit="ms", value=value, aim=Aim("<=", most),
        note=f"p99 {p99:.1f} ms on {loop}; {RUNS} runs a worker think beside it",
    )  # fmt: skip


async def _delays(store: str, runs: int, count: int) -> tuple[list[float], list[float]]:
    acknowledged: list[float] = []
    delays: list[float] = []
    async with _channel(store) as rt:

        def hear(event: Event) -> None:
            delays.append(time.time() * 1000 - event.at / 1000)

        rt.hub.subscribe(AgentStep.type, hear)
        run_ids = [(await rt.start("thinker", "Think.")).run_id for _ in range(runs)]
        await _until(lambda: len(delays) >= runs)
        delays.clear()
        for number in range(count):
            start = perf_counter()
            receipt = rt.hub.send_to_run(run_ids[number % runs], Message("Go on."))
            await receipt
            acknowledged.append((perf_counter() - start) * 1000)
            await anyio.sleep(0.02)
    return acknowledged, delays


# ── the store alone ──────────────────────────────────────────────────────────────────────────


def store(loop: Loop, rounds: int, scale: float) -> Figure:
    """Commits a second beside SQLite's, a hundred in flight."""
    count = max(200, int(5000 * scale))
    pairs = []
    with _server() as server:
        for _ in range(rounds):
            ours = on_loop(loop, _commits, lambda: PostgresStore(server.dsn()), count)
            pairs.append((ours, on_loop(loop, _sqlite_commits, count)))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    mine, floor = pairs[len(pairs) // 2]
    return Figure(
        what="PostgreSQL: commits of three events, 100 in flight", loop=loop, unit="commits/s",
        value=mine, floor=floor, aim=Aim(">=", 0.2, True), note="floor: SQLite without folders",
    )  # fmt: skip


async def _sqlite_commits(count: int) -> float:
    with folder_in_memory() as folder:  # As the server's.
        return await _commits(lambda: sqlite_store(folder / "store", mirror=False), count)


class Alone:
    """A process that hears of no other one."""

    def heard_elsewhere(self, events: Sequence[Event]) -> None: ...
    def claimed(self, root_run_ids: Collection[str]) -> None: ...
    def lost(self, root_run_ids: Collection[str]) -> None: ...
    def crowded(self, counts: Mapping[str, int]) -> None: ...
    def passed(self, position: int) -> None: ...
    def removed(self, trees: Sequence[RemovedTree] | None) -> None: ...


async def _commits(make: Callable[[], Store], count: int) -> float:
    """Commits a second of so many runs, each of which has one under way."""
    store = make()
    await store.open()
    if (sharing := sharing_of(store)) is not None:
        sharing.offer(("thinker",), None)
        sharing.attach(Alone())
    run_ids = [f"{number:032x}" for number in range(IN_FLIGHT)]
    for run_id in run_ids:
        new = NewRun(run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="thinker")
        opened = SessionOpen(run_id=run_id, root_run_id=run_id, agent="thinker", at=1)
        store.submit(Commit(deliveries=(Delivery(opened, run_id, new=new),)))
    await store.flush()
    left, under_way, is_done = count, IN_FLIGHT, anyio.Event()

    def go_on(run_id: str, seq: int) -> None:
        nonlocal left, under_way
        if not left:
            under_way -= 1
            if not under_way:
                is_done.set()
            return
        left -= 1
        events = [
            AgentText(
                run_id=run_id, root_run_id=run_id, agent="thinker", at=1, lane="own",
                seq=seq + number, text="x" * 200,
            )
            for number in (1, 2, 3)
        ]  # fmt: skip
        commit = Commit(run_id, events, expect=seq)
        commit.done = partial(_written, go_on, run_id, seq + 3)
        store.submit(commit)

    start = perf_counter()
    for run_id in run_ids:
        go_on(run_id, 0)
    await is_done.wait()
    seconds = perf_counter() - start
    await store.aclose()
    return count / seconds


def _written(go_on: Callable[[str, int], None], run_id: str, seq: int, commit: Commit) -> None:
    assert not commit.error, commit.error
    go_on(run_id, seq)


# ── taking over ──────────────────────────────────────────────────────────────────────────────


def take_over(loop: Loop, rounds: int, scale: float) -> Figure:
    """From the leaving of a worker to the claiming of all its parked trees by another one."""
    count = max(100, int(10_000 * scale))
    with _server() as server:
        value = on_loop(loop, _taken_over, server.dsn(), count)
    return Figure(
        what="parked trees of a worker that leaves, claimed by another", loop=loop, unit="s",
        value=value, aim=Aim("<=", 2), note=f"{count:,} trees",
    )  # fmt: skip


async def _taken_over(dsn: str, count: int) -> float:
    claimed = 0

    class Taking(Alone):
        def claimed(self, root_run_ids: Collection[str]) -> None:
            nonlocal claimed
            claimed += len(root_run_ids)

    second = PostgresStore(dsn, name="second")
    await second.open()
    second.sharing.offer(("thinker",), None)
    second.sharing.attach(Taking())
    # What is opened last is closed first: on Trio tasks nest.
    first = PostgresStore(dsn, name="first")
    await first.open()
    first.sharing.offer(("thinker",), None)
    first.sharing.attach(Alone())
    for number in range(count):
        run_id = f"{number:032x}"
        new = NewRun(run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="thinker")
        opened = SessionOpen(run_id=run_id, root_run_id=run_id, agent="thinker", at=1)
        text = AgentText(
            run_id=run_id, root_run_id=run_id, agent="thinker", at=1, lane="own", seq=1, text="x"
        )
        first.submit(Commit(deliveries=(Delivery(opened, run_id, new=new),)))
        first.submit(Commit(run_id, [text], taken=(1,), status="parked"))
    await first.flush()

    await anyio.sleep(1)
    start, before = perf_counter(), claimed
    await first.aclose()
    await _until(lambda: claimed - before >= count - before)
    seconds = perf_counter() - start
    await second.aclose()
    return seconds
