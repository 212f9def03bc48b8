"""The project's own world, one command:

    uv run python -m tests.simulation.run [--seconds N] [--seed S] [--worlds N] [--workers N]
                                          [--planted] [--json]

Lives one world for each seed, from ``--seed`` on, until time is up, and prints how many a second.
What fails is printed with the command that lives it again; then the exit status is 1.
``--planted`` plants one bug after the other in the library and prints how many worlds it takes to
find each, and which invariant names it; it exits 1 if one is not found.  With ``--workers`` each
world is lived by so many processes on one store (``shared``).
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.drawing import Drawn, drawn, lived
from simulation.planted import PLANTED, WORLDS, Plant
from simulation.shared import shared

from hubbub.runtime.simulation import SimulationFailed

__all__ = ["Find", "Found", "Worlds", "find", "live", "main"]

SECONDS = 60.0


class Found(Struct, kw_only=True):
    """A world in which something is wrong.  ``broken``: the invariant, or what was raised."""

    seed: int
    broken: str
    problem: str
    workers: int = 1

    @property
    def command(self) -> str:
        """What lives it again."""
        workers = f" --workers {self.workers}" if self.workers > 1 else ""
        return f"uv run python -m tests.simulation.run --seed {self.seed} --worlds 1{workers}"


class Worlds(Struct, kw_only=True):
    """What came of some worlds."""

    worlds: int = 0
    seconds: float = 0.0
    operations: int = 0
    """What users did, models answered and tools returned."""
    found: list[Found] = []


class Find(Struct, kw_only=True):
    """How a planted bug was found, if it was."""

    bug: str
    may_take: int
    worlds: int
    seconds: float
    found: Found | None = None


def live(
    seed: int,
    worlds: int | None,
    seconds: float,
    on_found: Callable[[Found], object] = lambda found: None,
    *,
    workers: int = 1,
) -> Worlds:
    """Live one world after the other, as many as are wanted or as there is time for."""
    result, start = Worlds(), monotonic()
    for number in _seeds(seed, worlds):
        operations, found = _lived(number, workers)
        result.worlds += 1
        result.operations += operations
        result.seconds = monotonic() - start
        if found is not None:
            result.found.append(found)
            on_found(found)
        if worlds is None and result.seconds >= seconds:
            break
    return result


def find(bug: str, plant: Plant, most: int, seed: int = 0, *, workers: int = 1) -> Find:
    """Live worlds with a bug in the library until one of them shows it, ``most`` of them."""
    start = monotonic()
    found, number = None, seed
    with plant():
        for number in range(seed, seed + most):
            _, found = _lived(number, workers)
            if found is not None:
                break
    return Find(
        bug=bug, may_take=most, worlds=number - seed + 1, seconds=monotonic() - start, found=found
    )


def _seeds(seed: int, worlds: int | None) -> Iterator[int]:
    return count(seed) if worlds is None else iter(range(seed, seed + worlds))


def _drawn(seed: int, workers: int) -> Drawn:
    return drawn(seed) if workers == 1 else shared(drawn(seed), workers)


def _lived(seed: int, workers: int) -> tuple[int, Found | None]:
    try:
        history = lived(_drawn(seed, workers))
    except SimulationFailed as failed:
        broken = failed.broken or type(failed.__cause__).__name__
        problem = failed.problems[0]
        return 0, Found(seed=seed, broken=broken, problem=problem, workers=workers)
    calls = sum(event.type == "agent:tool:complete" for event in history.events)
    return len(history.sent) + len(history.requests) + calls, None


# ── the command ──────────────────────────────────────────────────────────────────────────────


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="the project's own world")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long")
    parser.add_argument("--worlds", type=int, help="how many worlds, instead of how long")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1, help="how many work on each store")
    parser.add_argument("--planted", action="store_true", help="look for planted bugs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of sentences")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # What goes wrong on purpose is logged, too.
    if options.planted:
        return _planted(options.seed, as_json=options.json)
    if options.worlds == 1:
        return _show(options.seed, options.workers)
    how, many = (options.seed, options.worlds, options.seconds), options.workers
    if options.json:
        worlds = live(*how, workers=many)
        _print(worlds)
    else:
        worlds = live(*how, _tell_found, workers=many)
        _tell(worlds)
    return 1 if worlds.found else 0


def _show(seed: int, workers: int) -> int:
    """One world, and the whole story of what fails in it."""
    world = _drawn(seed, workers)
    try:
        history = lived(world)
    except SimulationFailed as failed:
        print(failed)
        print(f"\nsteps = {[*world.steps]!r}")
        return 1
    print(*history.trace(), sep="\n")
    return 0


def _tell_found(found: Found) -> None:
    print(f"seed {found.seed}: {found.problem}\n    {found.command}\n", flush=True)


def _tell(worlds: Worlds) -> None:
    each = worlds.operations / max(1, worlds.worlds - len(worlds.found))
    print(
        f"{worlds.worlds} worlds of {each:.0f} operations in {worlds.seconds:.1f} s: "
        f"{worlds.worlds / worlds.seconds:.0f} a second; {len(worlds.found)} failed"
    )


def _planted(seed: int, *, as_json: bool) -> int:
    finds = []
    if not as_json:
        print(f"{'bug':28} {'found in seed':>13} {'worlds':>7} {'s':>6}  named by")
    for bug, plant in PLANTED.items():
        each = find(bug, plant, WORLDS[bug], seed)
        finds.append(each)
        if not as_json:
            where = each.found.seed if each.found is not None else "-"
            what = each.found.broken if each.found is not None else f"NOT FOUND ({each.may_take})"
            print(f"{bug:28} {where:>13} {each.worlds:>7} {each.seconds:>6.1f}  {what}", flush=True)
    if as_json:
        _print(finds)
    return 0 if all(each.found is not None for each in finds) else 1


def _print(result: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())


if __name__ == "__main__":
    sys.exit(main())
