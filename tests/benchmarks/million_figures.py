"""The figures of a store with a million parked conversations: opening, memory, waking, listing.

One store is filled for all of them (two minutes, 2.7 GB), and removed when the program ends.
"""

import atexit
import functools
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter

import anyio
from durable_figures import fill_store
from figures import Aim, Figure, Loop, on_loop

from hubbub import AgentDefinition, PromptDefinition, Runtime, ScriptedModel, SideConfig
from hubbub.runtime.inspection.views import list_runs
from hubbub.runtime.stores.open import sqlite_store

__all__ = ["million_boot", "million_memory", "million_page", "million_wake"]

COUNT = 1_000_000
WOKEN = 2_000


@functools.cache
def _filled(loop: Loop, count: int) -> Path:
    folder = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".store-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    on_loop(loop, fill_store, folder / "store", count, 0)
    return folder / "store"


def _store(scale: float) -> tuple[Path, int]:
    count = max(2_000, int(COUNT * scale))
    return _filled("asyncio", count), count


def _runtime(path: Path) -> Runtime:
    model = ScriptedModel(["Hello."], repeat=True)
    prompt = PromptDefinition(name="assistant", prompt="You help.", model=model)
    agent = AgentDefinition(name="assistant", side_a=SideConfig(prompt=prompt))
    return Runtime([agent], store=sqlite_store(path, mirror=False))


async def _open(path: Path) -> float:
    """Seconds until the runtime is open."""
    start = perf_counter()
    async with _runtime(path):
        return perf_counter() - start


async def _print_resident(path: Path) -> None:
    """MB that a program of this runtime has in memory, once all of them are checked."""
    async with _runtime(path):
        await anyio.sleep(5)
        print(_resident())


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def million_boot(loop: Loop, rounds: int, scale: float) -> Figure:
    """Opening a runtime on the store."""
    path, count = _store(scale)
    times = sorted(on_loop(loop, _open, path) for _ in range(max(3, rounds)))
    return Figure(
        what="opening a store of parked runs", loop=loop, unit="s",
        value=times[len(times) // 2], aim=Aim("<=", 1.0), note=f"{count:,} conversations",
    )  # fmt: skip


def million_memory(loop: Loop, rounds: int, scale: float) -> Figure:
    """The memory of the whole process with the store open, its program included."""
    path, count = _store(scale)
    program = [sys.executable, __file__, loop, str(path)]
    resident = float(subprocess.run(program, capture_output=True, check=True, text=True).stdout)
    size = (path / "hubbub.db").stat().st_size
    return Figure(
        what="memory with parked runs on disk", loop=loop, unit="MB", value=resident,
        aim=Aim("<=", 100), note=f"{count:,} conversations, {size / count:,.0f} B each on disk",
    )  # fmt: skip


async def _wake(path: Path) -> list[float]:
    with closing(sqlite3.connect(path / "hubbub.db")) as db:
        (last,) = db.execute("SELECT max(number) FROM run").fetchone()
        chosen = random.Random(7).sample(range(1, last + 1), min(WOKEN, last // 2))
        select = "SELECT run_id FROM run WHERE number = ?"
        run_ids = [db.execute(select, (number,)).fetchone()[0] for number in chosen]
    began: dict[str, float] = {}
    times: list[float] = []
    async with _runtime(path) as runtime:
        runtime.hub.subscribe(
            "session:start", lambda event: times.append(perf_counter() - began[event.run_id])
        )
        for run_id in run_ids:
            began[run_id] = perf_counter()
            await runtime.hub.send_to_run(run_id, "And now?")
            await runtime.result(run_id)
    return sorted(times)


def million_wake(loop: Loop, rounds: int, scale: float) -> Figure:
    """From sending to one of them until it says that it has begun."""
    path, count = _store(scale)
    times = on_loop(loop, _wake, path)
    return Figure(
        what="waking one of many, p99", loop=loop, unit="ms",
        value=times[int(len(times) * 0.99) - 1] * 1000, aim=Aim("<=", 20),
        note=f"{count:,} conversations; median {times[len(times) // 2] * 1000:.2f} ms",
    )  # fmt: skip


def million_page(loop: Loop, rounds: int, scale: float) -> Figure:
    """What ``hubbub runs`` and the page of runs show: the fifty newest trees."""
    path, count = _store(scale)
    times = []
    with closing(sqlite_store(path, mirror=False).reader()) as reader:
        for _ in range(20):
            start = perf_counter()
            assert len(list_runs(reader, limit=50).runs) == 50
            times.append(perf_counter() - start)
    times.sort()
    return Figure(
        what="a page of runs, p95", loop=loop, unit="ms", value=times[18] * 1000,
        aim=Aim("<=", 50), note=f"{count:,} conversations; median {times[10] * 1000:.2f} ms",
    )  # fmt: skip


if __name__ == "__main__":
    anyio.run(_print_resident, Path(sys.argv[2]), backend=sys.argv[1])
