"""Torture of the store, one command:

    uv run python -m tests.torture.run [--cycles N] [--ended S] [--vfs N] [--seed N]
                                       [--folder PATH] [--json]

``--cycles`` processes under load are killed (kill -9) at chance moments, on asyncio and on Trio in
turn, and started again in the same folder, a new folder every 20 cycles; each time everything that
was acknowledged is looked for in it.  With ``--ended`` trees go from it that ended so many seconds
ago, while they are killed.  ``--vfs`` disks lose power or fail, four times each, under
the store's own writer.  Exits 1 at the first problem, and prints the command that repeats it.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import msgspec
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.crash_vfs import Fault

from torture.killing import KillCount, Killing, Problems
from torture.power import Loss, PowerCount, lose_power

__all__ = ["main"]

CYCLES_A_FOLDER = 20
FAULTS: tuple[Fault, ...] = ("power", "power", "error", "full", "sync")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="torture of the store")
    parser.add_argument("--cycles", type=int, default=0, help="processes to kill")
    parser.add_argument("--ended", type=float, help="seconds after which an ended tree goes")
    parser.add_argument("--vfs", type=int, default=0, help="disks that lose power")
    parser.add_argument("--seed", type=int, default=1, help="what chance begins with")
    parser.add_argument("--folder", type=Path, help="where to work; kept when something fails")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    options = parser.parse_args(arguments)
    if not (options.cycles or options.vfs):
        options.cycles, options.vfs = 20, 200
    start = monotonic()
    try:
        kills = _kill(options.cycles, options.seed, options.folder, options.ended)
        power = _cut(options.vfs, options.seed)
    except (Problems, Loss) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    found = {"seconds": round(monotonic() - start, 1), "kill": kills, "vfs": power}
    if options.json:
        print(msgspec.json.encode(found).decode())
    else:
        print(file=sys.stderr)
        for name, each in (("kill -9", kills), ("power", power)):
            facts = ", ".join(f"{value} {key}" for key, value in structs.asdict(each).items())
            print(f"{name}: {facts}")
        print(f"in {found['seconds']} s, from seed {options.seed}")
    return 0


def _kill(cycles: int, seed: int, folder: Path | None, ended: float | None) -> KillCount:
    total = KillCount()
    for number, first in enumerate(range(0, cycles, CYCLES_A_FOLDER)):
        place = Path(tempfile.mkdtemp(prefix="hubbub-torture-", dir=folder))
        here = min(CYCLES_A_FOLDER, cycles - first)
        killing = Killing(place, seed + number, ended=ended)
        try:
            for _ in range(here):
                killing.kill()
                _progress(f"cycle {first + killing.lives}/{cycles}")
            killing.finish()
        except Problems:
            more = "" if ended is None else f" --ended {ended}"
            _repeat(f"--cycles {CYCLES_A_FOLDER} --seed {seed + number}{more}", f"; see {place}")
            raise
        shutil.rmtree(place)
        total = _sum(total, killing.count)
    return total


def _cut(worlds: int, seed: int) -> PowerCount:
    total = PowerCount()
    for number in range(seed, seed + worlds):
        try:
            count = lose_power(number, faults=FAULTS)
        except Loss:
            _repeat(f"--vfs 1 --seed {number}")
            raise
        total.crashes += count.crashes
        total.acknowledged += count.acknowledged
        if not number % 50:
            _progress(f"disk {number - seed}/{worlds}")
    return total


def _sum(one: KillCount, two: KillCount) -> KillCount:
    values = {
        name: (max if name.startswith("max") else int.__add__)(value, getattr(two, name))
        for name, value in structs.asdict(one).items()
    }
    return KillCount(**values)


def _progress(text: str) -> None:
    print(f"\r{text}   ", end="", file=sys.stderr, flush=True)


def _repeat(options: str, more: str = "") -> None:
    print(f"\nagain: uv run python -m tests.torture.run {options}{more}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
