"""Who is at work on a store: processes, what they own, what waits for one that knows it, and what a
retention has had go."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hubbub.hub.errors import StoreFailed
from hubbub.hub.store.reader import ProcessRow, StoreReader, decoded
from hubbub.hub.store.store import RETENTION, Removed, read_removed

__all__ = ["DifferingAgent", "FreeTrees", "ShownProcess", "StoreAtWork", "list_processes"]


class ShownProcess(ProcessRow, frozen=True, kw_only=True):
    """A process, and how far it is behind the store; ``None`` where that is not known.

    What it has heard of is what it said when it renewed its lease last: one that is at work is a
    fraction of a second ahead of that.
    """

    lag: int | None = None
    """How many events it has yet to hear of."""
    lag_seconds: float | None = None
    """How long ago the first of them was written."""


class FreeTrees(Struct, frozen=True, kw_only=True):
    """Trees that nobody drives, of one agent.

    ``is_known``: a worker that knows the agent is there, and takes them soon, or has no room.
    """

    agent: str
    trees: int
    is_known: bool


class DifferingAgent(Struct, frozen=True, kw_only=True):
    """An agent of which workers have several definitions, as in the middle of a rolling deploy.

    ``workers``: their names, those with the same definition together.
    """

    agent: str
    workers: tuple[tuple[str, ...], ...]


class StoreAtWork(Struct, frozen=True, kw_only=True):
    """The processes of a store, and the trees that nobody drives."""

    position: int
    """Of the last event in the store."""
    processes: tuple[ShownProcess, ...]
    free: tuple[FreeTrees, ...]
    differing: tuple[DifferingAgent, ...] = ()
    removed: Removed | None = None
    """What the runtime with a retention that made a pass last has had go."""


def list_processes(store: StoreReader, now: int) -> StoreAtWork:
    """Who is at work on a store, at one moment; ``now`` is µs since the Unix epoch."""
    with store.one_moment():
        tip = store.tip
        rows, free = store.processes(), store.free_trees()
        removed = read_removed(store.notes(RETENTION).get(RETENTION, ""))
        shown = tuple(_shown(store, row, tip, now) for row in rows)
    workers = [row for row in rows if row.is_worker and not row.drains]
    return StoreAtWork(
        position=tip,
        processes=shown,
        free=tuple(
            FreeTrees(agent=agent, trees=trees, is_known=any(_knows(row, agent) for row in workers))
            for agent, trees in free.items()
        ),
        differing=tuple(_differing(rows)),
        removed=removed,
    )


def _differing(rows: Sequence[ProcessRow]) -> Iterator[DifferingAgent]:
    for agent in sorted({agent for row in rows for agent in row.definitions}):
        names: dict[str, tuple[str, ...]] = {}
        for row in rows:
            if (digest := row.definitions.get(agent)) is not None:
                names[digest] = (*names.get(digest, ()), row.name)
        if len(names) > 1:
            yield DifferingAgent(agent=agent, workers=tuple(names.values()))


def _shown(store: StoreReader, row: ProcessRow, tip: int, now: int) -> ShownProcess:
    fields = {name: getattr(row, name) for name in ProcessRow.__struct_fields__}
    if row.told is None:
        return ShownProcess(**fields)
    lag = max(0, tip - row.told)
    seconds = _seconds_since(store, row.told + 1, now) if lag else 0.0
    return ShownProcess(**fields, lag=lag, lag_seconds=seconds)


def _seconds_since(store: StoreReader, position: int, now: int) -> float | None:
    """How long ago the event at a position was written, by the clock of who wrote it."""
    for row in store.event_rows(after=position - 1, until=position):
        try:
            return max(0.0, (now - decoded(store, row.position, row.body).at) / 1e6)
        except StoreFailed:  # hubbub fsck says so.
            return None
    return None


def _knows(row: ProcessRow, agent: str) -> bool:
    return row.agents is None or agent in row.agents
