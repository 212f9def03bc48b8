"""Who is at work on a store: processes, what they own, and what waits for one that knows it."""

from msgspec import Struct

from hubbub.hub.store.reader import ProcessRow, StoreReader

__all__ = ["FreeTrees", "ShownProcess", "StoreAtWork", "list_processes"]


class ShownProcess(ProcessRow, frozen=True, kw_only=True):
    """A process, and how many events it has yet to hear of; ``None`` where that is not known."""

    lag: int | None = None


class FreeTrees(Struct, frozen=True, kw_only=True):
    """Trees that nobody drives, of one agent.

    ``is_known``: a worker that knows the agent is there, and takes them soon, or has no room.
    """

    agent: str
    trees: int
    is_known: bool


class StoreAtWork(Struct, frozen=True, kw_only=True):
    """The processes of a store, and the trees that nobody drives."""

    position: int
    """Of the last event in the store."""
    processes: tuple[ShownProcess, ...]
    free: tuple[FreeTrees, ...]


def list_processes(store: StoreReader) -> StoreAtWork:
    """Who is at work on a store, at one moment."""
    with store.one_moment():
        tip = store.tip
        rows, free = store.processes(), store.free_trees()
    workers = [row for row in rows if row.is_worker and not row.drains]
    return StoreAtWork(
        position=tip,
        processes=tuple(_shown(row, tip) for row in rows),
        free=tuple(
            FreeTrees(agent=agent, trees=trees, is_known=any(_knows(row, agent) for row in workers))
            for agent, trees in free.items()
        ),
    )


def _shown(row: ProcessRow, tip: int) -> ShownProcess:
    fields = {name: getattr(row, name) for name in ProcessRow.__struct_fields__}
    return ShownProcess(**fields, lag=None if row.told is None else max(0, tip - row.told))


def _knows(row: ProcessRow, agent: str) -> bool:
    return row.agents is None or agent in row.agents
