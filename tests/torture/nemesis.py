"""Several processes over one PostgreSQL, and everything that can happen to them; one command:

    uv run python -m tests.torture.nemesis [--cycles N] [--seconds S] [--seed N] [--faults A*3,B]

A channel process converses with runs that some workers drive, on asyncio and on Trio, while
processes are killed and stopped, connections cut, swallowed and delayed, servers restarted,
replaced by their standby, short of room and upgraded; ``A*3`` three times as often as ``B``.  After
a few of these everybody comes to rest, and the whole history is checked.  Exits 1 at the first
problem, and prints the command that repeats it.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from os import geteuid
from pathlib import Path
from time import monotonic

import msgspec
from msgspec import Struct

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres import running_server

from torture.faults import FAULTS
from torture.killing import Problems
from torture.servers import Servers
from torture.story import WORKERS, Story
from torture.story_count import StoryCount, summed

__all__ = ["Pace", "live_stories", "main"]

TTL, SPARE = 2.0, 1.0


class Pace(Struct, frozen=True):
    """How long it goes on, and how much there is in each story."""

    cycles: int = 0
    """Faults in all; 0: as many as there are in the time."""
    seconds: float = 0.0
    length: int = 8
    """Faults in a story."""
    workers: int = WORKERS
    ttl: float = TTL
    spare: float = SPARE


def live_stories(folder: Path, seed: int, faults: Sequence[str], pace: Pace) -> StoryCount:
    """Stories, one after another.  Raises ``Problems``."""
    total, until = StoryCount(), monotonic() + pace.seconds
    with ExitStack() as ends:
        servers = Servers(ends.enter_context(running_server()), ends, faults)
        while (total.cycles < pace.cycles) if pace.cycles else (monotonic() < until):
            left = min(pace.length, pace.cycles - total.cycles) if pace.cycles else pace.length
            try:
                count = _live(servers, folder / f"story-{seed}", seed, faults, left, pace)
            except Problems:
                print(f"\nbefore it: {total.words()}", file=sys.stderr)
                raise
            total = summed(total, count)
            _progress(f"{total.cycles} faults in {seed}, {total.acknowledged} acknowledged", "\n")
            seed += 1
    return total


def drawn(faults: Sequence[str], count: int, seed: int) -> list[str]:
    """So many of them, each as often as the others before one comes again."""
    draw, plan = random.Random(seed), list[str]()
    while len(plan) < count:
        plan += draw.sample(faults, len(faults))
    return plan[:count]


def _live(
    servers: Servers, place: Path, seed: int, faults: Sequence[str], count: int, pace: Pace
) -> StoryCount:  # fmt: skip
    story = Story(servers, place, seed, ttl=pace.ttl, spare=pace.spare, workers=pace.workers)
    try:
        story.begin()
        for number, fault in enumerate(drawn(faults, count, seed)):
            _progress(f"story {seed}, {number} faults, {fault}")
            story.strike(fault)
        story.finish()
    except Problems:
        print(
            f"\nagain: uv run python -m tests.torture.nemesis --seed {seed} --cycles {count} "
            f"--length {count} --workers {pace.workers} --faults {','.join(faults)}; see {place}",
            file=sys.stderr,
        )
        raise
    finally:
        story.end()
    shutil.rmtree(place)
    return story.count


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="hubbub-nemesis-", dir=options.folder))
    pace = Pace(
        cycles=options.cycles, seconds=options.seconds, length=options.length,
        workers=options.workers, ttl=options.ttl,
    )  # fmt: skip
    start = monotonic()
    try:
        count = live_stories(folder, options.seed, options.faults, pace)
    except Problems as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    if options.json:
        print(msgspec.json.encode(count).decode())
    else:
        print(f"\n{count.words()}\nin {monotonic() - start:.0f} s, from seed {options.seed}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="several processes over one PostgreSQL")
    add = parser.add_argument
    add("--cycles", type=int, default=0, help="faults (default: by time)")
    add("--seconds", type=float, default=60.0, help="how long")
    add("--seed", type=int, default=1, help="what chance begins with")
    add(
        "--faults", type=_faults, default=[x for x in FAULTS if x != "disk_full" or not geteuid()],
        help=f"which, and how often each (kill*3,cut); of {', '.join(FAULTS)}, for root the last",
    )  # fmt: skip
    add("--length", type=int, default=8, help="faults in a story, after which all is checked")
    add("--workers", type=int, default=WORKERS, help="how many at a time")
    add("--ttl", type=float, default=TTL, help="how long a lease lasts")
    add("--folder", type=Path, help="where to work; kept when something fails")
    add("--json", action="store_true", help="print JSON instead of sentences")
    return parser


def _faults(text: str) -> list[str]:
    """``kill*3,cut``, as a list with each as often as it is wanted."""
    wanted = []
    for each in text.split(","):
        name, _, times = each.strip().partition("*")
        if name not in FAULTS or not (times or "1").isdecimal():
            raise argparse.ArgumentTypeError(f"{each!r} is none of {', '.join(FAULTS)}")
        wanted += [name] * int(times or 1)
    return wanted


def _progress(text: str, end: str = "") -> None:
    print(f"\r{text}          ", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
