"""What is read into a ``History``: from the store, and from the process at work."""

from collections.abc import Container, Sequence
from typing import Final

import anyio
from anyio import TaskInfo

from hubbub.hub.events import Event
from hubbub.hub.store.journal import Journal, Selection
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.story.history import History

__all__ = ["read_live", "read_open_store", "read_store", "read_tasks", "stray_tasks"]

LIFE: Final = "life "
"""How the names of the tasks begin in which processes live."""

HOUSE: Final = (LIFE, "hubbub ", "late journal", "shared journal")
"""How the names of tasks begin that are there as long as their process."""

PAGE: Final = 10_000


async def read_store(journal: Journal, history: History) -> None:
    """Read everything that a store holds which nobody has open."""
    await journal.open()
    try:
        await read_open_store(journal, history)
    finally:
        await journal.aclose()


async def read_open_store(journal: Journal, history: History) -> None:
    """Read everything that a store holds: events, runs, and what waits for them."""
    await journal.flush()
    events: list[Event] = []
    position, found = 0, True
    while found:
        page, position = await journal.read(Selection(), after=position, limit=PAGE)
        events += page
        found = bool(page)
    infos = await journal.runs(live=False)
    waiting = {}
    for info in infos:
        if info.waiting:
            loaded = await journal.load(info.run_id)
            waiting[info.run_id] = tuple(loaded.waiting) if loaded is not None else ()
    history.set_stored(tuple(events), {info.run_id: info for info in infos}, waiting)


def read_live(runtimes: Sequence[Runtime], history: History) -> None:
    """Fill in the model runs in memory, except for those with something on its way to the store."""
    found = [
        run
        for runtime in runtimes
        for run in runtime.runs.in_memory
        if isinstance(run, ModelRun) and not run.lane.in_flight
    ]
    history.live = {run.lane.run_id: run.thread for run in found}
    history.live_seq = {run.lane.run_id: run.lane.seq for run in found}


def read_tasks() -> frozenset[int]:
    """The tasks there are just now."""
    return frozenset(task.id for task in anyio.get_running_tasks())


def stray_tasks(runtimes: Sequence[Runtime], others: Container[int]) -> tuple[str, ...]:
    """The names of tasks that nobody at work needs, besides ``others``.

    Needed are those that serve a process as long as it lives, those of runs in memory or on their
    way there, and whatever these have started themselves.
    """
    tasks = {task.id: task for task in anyio.get_running_tasks() if task.id not in others}

    def is_needed(task: TaskInfo) -> bool:
        name, above = task.name or "", tasks.get(task.parent_id or 0)
        if name.startswith(HOUSE) or any(each.runs.is_busy(name) for each in runtimes):
            return True
        return above is not None and not (above.name or "").startswith(LIFE) and is_needed(above)

    return tuple(task.name or "" for task in tasks.values() if not is_needed(task))
