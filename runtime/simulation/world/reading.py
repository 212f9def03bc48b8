"""What is read into a ``History``: from the store, and from the process at work."""

from collections.abc import Container, Sequence
from typing import Final

import anyio
from anyio import TaskInfo

from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Journal, Selection
from hubbub.hub.store.reader import Stored, StoreReader, decoded
from hubbub.hub.store.store import Store
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.story.gone import really_gone, with_gone
from hubbub.runtime.simulation.story.history import History

__all__ = [
    "read_live", "read_open_store", "read_store", "read_tasks", "shown_prompt", "stray_tasks",
]  # fmt: skip

LIFE: Final = "life "
"""How the names of the tasks begin in which processes live."""

HOUSE: Final = (LIFE, "hubbub ", "late journal", "shared journal")
"""How the names of tasks begin that are there as long as their process."""

PAGE: Final = 10_000


async def read_store(journal: Store, history: History) -> None:
    """Read everything that a store holds which nobody has open."""
    await journal.open()
    try:
        await read_open_store(journal, history)
    finally:
        await journal.aclose()


async def read_open_store(journal: Store, history: History) -> None:
    """Read everything that a store holds, and what has gone from it: events, runs, and what waits
    for them."""
    await journal.flush()
    infos = await journal.runs(live=False)
    runs = {info.run_id: info for info in infos}
    if history.gone:
        stored = await journal.inspect(_stored)
        history.gone[:] = really_gone(stored, history.gone)
        placed, runs, before = with_gone(stored, infos, history.gone)
        events = [each.event for each in placed]
        history.positions = tuple(each.position for each in placed)
        _forget(history, before)
    else:
        events = await _events(journal)
    waiting = {}
    for info in infos:
        if info.waiting:
            loaded = await journal.load(info.run_id)
            waiting[info.run_id] = tuple(loaded.waiting) if loaded is not None else ()
    history.set_stored(tuple(events), runs, waiting)


async def _events(journal: Journal) -> list[Event]:
    events: list[Event] = []
    position, found = 0, True
    while found:
        page, position = await journal.read(Selection(), after=position, limit=PAGE)
        events += page
        found = bool(page)
    return events


def _stored(store: StoreReader) -> list[Stored]:
    rows = store.event_rows()
    return [Stored(row.position, decoded(store, row.position, row.body)) for row in rows]


def _forget(history: History, events: Sequence[Event]) -> None:
    """Have nothing be heard of runs whose ids others have now."""
    if events:
        told = [each for each in history.heard if each.event not in events]
        history.heard[:] = told


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


def shown_prompt(
    history: History, hub: Hub | None, run_id: str, kind: str, answered: Container[str]
) -> str:
    """The oldest prompt of a run, or of one below it, that was shown and has no answer; of that
    kind, where one is given; else empty."""
    shown: dict[str, None] = {}
    for each in history.heard:
        match each.event:
            case e.SessionPrompt() as event if run_id in (event.run_id, event.root_run_id):
                if event.prompt_id not in answered and kind in ("", event.kind):
                    shown[event.prompt_id] = None
            case e.SessionPromptEnd() as event:
                shown.pop(event.prompt_id, None)
    if hub is not None and history.workers is None:  # It may have ended unheard.
        return next(filter(hub.prompts.is_unanswered, shown), "")
    return next(iter(shown), "")


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
