"""Several processes over one PostgreSQL, and everything that can happen to them; one command:

    uv run python -m tests.torture.nemesis [--cycles N] [--seconds S] [--seed N] [--faults A,B]

A channel process converses with runs that three workers drive, on asyncio and on Trio, while
processes are killed and stopped, connections cut, swallowed and delayed, servers restarted and
replaced by their standby.  After a few of these everybody comes to rest, and the whole history is
checked.  Exits 1 at the first problem, and prints the command that repeats it.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres import Server, folder_in_memory, running_server

from torture.killing import Problems
from torture.story import FAULTS, Story, StoryCount, summed

__all__ = ["Servers", "live_stories", "main"]

FAULTS_A_STORY = 8
TTL, SPARE = 2.0, 1.0


class Servers:
    """A primary, and its synchronous standby once there has to be one."""

    def __init__(self, primary: Server, ends: ExitStack) -> None:
        self.primary = primary
        self._standby: Server | None = None
        self._ends = ends

    def prepare(self, faults: Sequence[str]) -> None:
        if "failover" in faults and self._standby is None:
            self._add_standby()

    def fail_over(self, moved: Callable[[int], None]) -> None:
        """The primary dies, and its standby takes its place; ``moved`` is called with its port."""
        assert self._standby is not None
        self.primary.stop()
        self.primary = self._standby
        moved(self.primary.port)
        self.primary.promote()
        self._add_standby()

    def _add_standby(self) -> None:
        standby = self.primary.standby(self._ends.enter_context(folder_in_memory()))
        self._ends.callback(standby.stop)
        standby.start()
        self.primary.wait_for_standby()
        self._standby = standby


def live_stories(
    folder: Path, seed: int, faults: Sequence[str], *, cycles: int, seconds: float,
    ttl: float = TTL, spare: float = SPARE,
) -> StoryCount:  # fmt: skip
    """So many faults, or for so long, a few in each story.  Raises ``Problems``."""
    total, until = StoryCount(), monotonic() + seconds
    with ExitStack() as ends:
        servers = Servers(ends.enter_context(running_server()), ends)
        servers.prepare(faults)
        while (total.cycles < cycles) if cycles else (monotonic() < until):
            place = folder / f"story-{seed}"
            draw = random.Random(seed)
            left = min(FAULTS_A_STORY, cycles - total.cycles) if cycles else FAULTS_A_STORY
            plan = draw.sample(faults, min(left, len(faults)))
            story = Story(servers, place, seed, ttl=ttl, spare=spare)
            try:
                story.begin()
                for fault in plan:
                    story.strike(fault)
                    _progress(f"{total.cycles + story.count.cycles} faults, {fault}")
                story.finish()
            except Problems:
                names = ",".join(faults)
                print(
                    f"\nagain: uv run python -m tests.torture.nemesis --seed {seed} "
                    f"--cycles {left} --faults {names}; see {place}", file=sys.stderr,
                )  # fmt: skip
                raise
            finally:
                story.end()
            total = summed(total, story.count)
            shutil.rmtree(place)
            seed += 1
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="several processes over one PostgreSQL")
    parser.add_argument("--cycles", type=int, default=0, help="faults (default: by time)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="what chance begins with")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which, of the default ones")
    parser.add_argument("--ttl", type=float, default=TTL, help="how long a lease lasts")
    parser.add_argument("--folder", type=Path, help="where to work; kept when something fails")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    options = parser.parse_args(arguments)
    faults = [name.strip() for name in options.faults.split(",")]
    if unknown := {*faults} - {*FAULTS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    folder = Path(tempfile.mkdtemp(prefix="hubbub-nemesis-", dir=options.folder))
    start = monotonic()
    try:
        count = live_stories(
            folder, options.seed, faults, cycles=options.cycles, seconds=options.seconds,
            ttl=options.ttl,
        )  # fmt: skip
    except Problems as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    if options.json:
        print(msgspec.json.encode(count).decode())
    else:
        print(f"\n{count.words()}\nin {monotonic() - start:.0f} s, from seed {options.seed}")
    return 0


def _progress(text: str) -> None:
    print(f"\r{text}          ", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
