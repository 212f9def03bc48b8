"""The figures of the store: durable runs, waking, booting; beside a bare loop over SQLite.

The floor is what a program would do by hand: one transaction per step of a run (a model call, a
tool, a model call), four records each, flushed to the disk (``synchronous=FULL``), on the same
disk and in the same process.
"""

import sqlite3
import statistics
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import anyio
from figures import Aim, Figure, Loop, on_loop, rate
from standard_run import QUESTION, standard_runtime

from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.open import sqlite_store

__all__ = [
    "boot",
    "durable",
    "durable_parked",
    "durable_together",
    "fill_store",
    "folder_on_disk",
    "wake",
]

STEPS = 3
RECORDS = 4
RECORD = "x" * 330


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A folder of its own for a store."""
    # Beside this file, not in /tmp, which may be memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".store-") as folder:
        yield Path(folder)


def _floor(count: int) -> float:
    """Runs a second of the bare loop."""
    with folder_on_disk() as folder:
        db = sqlite3.connect(folder / "floor.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
            db.execute(f"PRAGMA {pragma}")
        db.execute(
            "CREATE TABLE record (position INTEGER PRIMARY KEY, run TEXT, seq INT, body TEXT)"
        )
        start = perf_counter()
        for run in range(count):
            for step in range(STEPS):
                rows = [(f"run-{run}", step * RECORDS + n, RECORD) for n in range(RECORDS)]
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT INTO record (run, seq, body) VALUES (?, ?, ?)", rows)
                db.execute("COMMIT")
        seconds = perf_counter() - start
        db.close()
    return count / seconds


async def _runs(count: int, at_once: int, mirror: bool) -> tuple[float, float]:
    """Runs a second, and transactions per run."""
    with folder_on_disk() as folder:
        store = sqlite_store(folder / "store", mirror=mirror)
        async with standard_runtime(store=store) as runtime:
            for _ in range(10):
                await runtime.run("assistant", QUESTION)
            apply, commits = store._writer.apply, 0

            def counted(batch):  # type: ignore[no-untyped-def]
                nonlocal commits
                commits += 1
                return apply(batch)

            store._writer.apply = counted  # type: ignore[method-assign]

            async def some() -> None:
                for _ in range(count // at_once):
                    await runtime.run("assistant", QUESTION)

            start = perf_counter()
            async with anyio.create_task_group() as group:
                for _ in range(at_once):
                    group.start_soon(some)
            seconds = perf_counter() - start
    return count / seconds, commits / count


def _versus(loop: Loop, rounds: int, count: int, at_once: int) -> tuple[float, float, float, float]:
    """Ours and the floor's runs a second, transactions per run, ours without agents' folders."""
    measured = []
    for _ in range(rounds):
        floor = _floor(max(20, count // 4))
        ours, commits = on_loop(loop, _runs, count, at_once, True)
        bare, _ = on_loop(loop, _runs, count, at_once, False)
        measured.append((ours, floor, commits, bare))
    measured.sort(key=lambda each: each[0] / each[1])
    return measured[len(measured) // 2]


def durable(loop: Loop, rounds: int, scale: float) -> Figure:
    """Durable runs, one after another."""
    ours, floor, commits, bare = _versus(loop, rounds, max(10, int(400 * scale)), 1)
    return Figure(
        what="durable runs, one at a time", loop=loop, unit="runs/s", value=ours, floor=floor,
        aim=rate(loop, 0.8),
        note=f"{commits:.2f} transactions a run (aim: 3 at most); without agents' folders "
        f"{bare:,.0f} runs/s = {bare / floor:.2f} × floor",
    )  # fmt: skip


def durable_together(loop: Loop, rounds: int, scale: float) -> Figure:
    """Durable runs, a hundred at once."""
    ours, floor, commits, bare = _versus(loop, rounds, max(200, int(2000 * scale)), 100)
    return Figure(
        what="durable runs, 100 at once", loop=loop, unit="runs/s", value=ours, floor=floor,
        aim=rate(loop, 2.5),
        note=f"{commits:.3f} transactions a run; without agents' folders {bare:,.0f} runs/s = "
        f"{bare / floor:.2f} × floor",
    )  # fmt: skip


# ── parked runs ──────────────────────────────────────────────────────────────────────────────


async def _parked(count: int) -> float:
    with folder_on_disk() as folder:
        store = sqlite_store(folder / "store", mirror=False)
        async with standard_runtime(store=store, tools=False) as runtime:
            await _park(runtime, 1500)
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            await _park(runtime, count)
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    return (after - before) / count


async def _park(runtime, count: int) -> None:  # type: ignore[no-untyped-def]
    for _ in range(0, count, 100):
        runs = [await runtime.start("assistant", "Hello") for _ in range(100)]
        for run in runs:
            await run.result()


def durable_parked(loop: Loop, rounds: int, scale: float) -> Figure:
    """What a parked run holds of memory, its journal being on disk."""
    value = on_loop(loop, _parked, max(500, int(5000 * scale)))
    return Figure(
        what="a parked run on disk", loop=loop, unit="B", value=value, aim=Aim("<=", 100),
        note="resident, by tracemalloc, each after a turn",
    )  # fmt: skip


async def _wake(count: int) -> list[float]:
    times = []
    with folder_on_disk() as folder:
        store = sqlite_store(folder / "store")
        async with standard_runtime(store=store, tools=False) as runtime:
            runs = [await runtime.start("assistant", "Hello") for _ in range(count)]
            for run in runs:
                await run.result()
            began: dict[str, float] = {}
            ended = []
            runtime.hub.subscribe(
                "session:start", lambda event: ended.append(perf_counter() - began[event.run_id])
            )
            for run in runs:
                began[run.run_id] = perf_counter()
                await run.send("And now?")
                await run.result()
            times = ended
    return times


def wake(loop: Loop, rounds: int, scale: float) -> Figure:
    """From sending to a parked run until it says that it has begun."""
    times = sorted(on_loop(loop, _wake, max(20, int(500 * scale))))
    return Figure(
        what="waking a parked run, p99", loop=loop, unit="ms",
        value=times[int(len(times) * 0.99) - 1] * 1000, aim=Aim("<=", 20),
        note=f"median {statistics.median(times) * 1000:.2f} ms",
    )  # fmt: skip


# ── booting ──────────────────────────────────────────────────────────────────────────────────


async def _boot(count: int, unfinished: int) -> float:
    """Seconds from opening a runtime to the first event of an unfinished run."""
    with folder_on_disk() as folder:
        await fill_store(folder / "store", count, unfinished)
        start = perf_counter()
        async with standard_runtime(store=sqlite_store(folder / "store"), grace=0) as runtime:
            first = anyio.Event()
            runtime.hub.subscribe("agent:*", lambda event: first.set())
            await first.wait()
            return perf_counter() - start


async def fill_store(path: Path, count: int, unfinished: int) -> None:
    """A store with so many runs, most of them parked after a turn."""
    store = sqlite_store(path, mirror=False)
    async with standard_runtime(store=store, tools=False) as runtime:
        template = await runtime.start("assistant", "Hello")
        await template.result()
        loaded = await store.load(template.run_id)
        assert loaded is not None
        opening = (await runtime.hub.read(template.run_id, types="session:open"))[0]
    events = loaded.events
    store = sqlite_store(path, mirror=False)
    await store.open()
    from msgspec import structs

    from hubbub.hub.store.journal import Delivery, NewRun

    for number in range(count):
        run_id = store._ports.ids.run_id(store._ports.clock.now())
        new = NewRun(run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="assistant")
        opened = structs.replace(opening, lane="", seq=0)
        store.submit(Commit(deliveries=(Delivery(opened, run_id, new=new),)))
        if number >= unfinished:
            own = [structs.replace(x, run_id=run_id, root_run_id=run_id) for x in events]
            store.submit(Commit(run_id, own, taken=(1,), status="parked"))
        if number % 5000 == 4999:
            await store.flush()
    await store.aclose()


def boot(loop: Loop, rounds: int, scale: float) -> Figure:
    """Opening a store of 100,000 runs of which 1,000 are unfinished."""
    count, unfinished = max(1000, int(100_000 * scale)), max(10, int(1000 * scale))
    value = on_loop(loop, _boot, count, unfinished)
    return Figure(
        what="boot to the first event", loop=loop, unit="s", value=value, aim=Aim("<=", 1.5),
        note=f"{count:,} runs, {unfinished:,} of them unfinished",
    )  # fmt: skip
