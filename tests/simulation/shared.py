"""The worlds of ``drawing`` once more, with several workers on one store: they die, stand still and
are cut off, and one of them after the other has trees go."""

from collections.abc import Iterator
from random import Random

from msgspec import structs
from simulation.drawing import Drawn

from hubbub import Retention
from hubbub.runtime.simulation import CutWorker, KillWorker, PauseWorker, WorldFault

__all__ = ["shared"]

SPAN = 60.0
"""Seconds from the beginning in which something befalls a worker."""


def shared(world: Drawn, workers: int) -> Drawn:
    """A world with so many workers.  What no such store does is left out: it has no file that
    could be pruned, and old turns stay."""
    random = Random(f"workers of own world {world.seed}")
    options = dict(world.options)
    if isinstance(retention := options.pop("retention", None), Retention):
        has_others = retention.removes or retention.silent is not None
        others = structs.replace(retention, keep_turns=None) if has_others else Retention(ended=60)
        options["retention"] = others
    faults = (*world.faults, *_of_workers(random, workers))
    return structs.replace(
        world, workers=workers, store="memory", options=options, prunings=(), faults=faults
    )


def _of_workers(random: Random, workers: int) -> Iterator[WorldFault]:
    for _ in range(random.choice((0, 1, 2, 4))):
        kind = random.choice((KillWorker, PauseWorker, CutWorker))
        yield kind(
            worker=random.randrange(workers), at=round(random.uniform(0.0, SPAN), 1),
            seconds=random.choice((0.5, 5.0, 9.0, 30.0)),
        )  # fmt: skip
