"""Snapshots of runs: offered to the store as they are at work, and read when they wake.

What reads a run for its state alone does it here: a long run is read from its snapshot on.
"""

from functools import partial

import msgspec
from msgspec import Struct, structs

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.snapshots.thread_text import decode_thread, encode_thread, fold_version
from hubbub.agents.state.bases import begun_at
from hubbub.agents.state.bases import thread_of as thread_of_base
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.logs import log
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.snapshots.draft import RECORDS, SnapshotDraft
from hubbub.hub.store.journal import Journal, LoadedRun
from hubbub.hub.store.store import snapshots_of

__all__ = ["RECORDS", "ReadRun", "load_model_run", "load_run", "offer_snapshot", "thread_of"]


class ReadRun(Struct, frozen=True):
    """A run as the journal has it, and what it has come to, where that is known."""

    loaded: LoadedRun
    thread: Thread | CodeThread | None = None
    before: Thread | CodeThread | None = None
    """What it had come to before the events that were loaded, where this process has not been told
    of these."""


def offer_snapshot(journal: Journal, lane: OwnLane, thread: Thread | CodeThread) -> int:
    """Have the store keep what a run has come to, if it is on record; and from which event on it is
    time to offer that again.

    Not in the middle of restarts: these are counted by the events of each.  Nor of a code agent
    while it asks: what it waited for is read from the events since.
    """
    if lane.in_flight or (isinstance(thread, CodeThread) and thread.prompts):
        return lane.seq
    if thread.restarts or (store := snapshots_of(journal)) is None:
        return lane.seq + RECORDS
    encode = partial(encode_thread, thread)
    store.keep_snapshot(SnapshotDraft(lane.run_id, lane.seq, fold_version(), encode))
    return lane.seq + RECORDS


async def load_run(
    journal: Journal, run_id: str
) -> tuple[LoadedRun | None, Thread | CodeThread | None]:
    """A run, and, where there is a sound snapshot of it, or its lane begins with a base, what it
    had come to before the events that are loaded.

    Raises ``BadValue`` for a base that cannot be read.
    """
    if (store := snapshots_of(journal)) is None:
        loaded = await journal.load(run_id)
    else:
        loaded = await store.load_kept(run_id, fold_version())
    if loaded is None or not loaded.after:  # It has all its records.
        return loaded, None
    if loaded.kept is None:
        return _from_base(loaded)
    try:
        return structs.replace(loaded, kept=None), decode_thread(loaded.kept)
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("snapshot.ignored", run_id=run_id, problem=str(error))
    loaded = await journal.load(run_id)
    return (loaded, None) if loaded is None else _from_base(loaded)


def _from_base(loaded: LoadedRun) -> tuple[LoadedRun, Thread | None]:
    base = begun_at(loaded.events)
    if base is None:
        return loaded, None
    after = structs.replace(loaded, events=loaded.events[1:], after=base.seq)
    return after, thread_of_base(base)


async def load_model_run(journal: Journal, run_id: str) -> tuple[LoadedRun | None, Thread | None]:
    """The same for who takes it for a model run: one that was a code agent is read whole."""
    loaded, before = await load_run(journal, run_id)
    if isinstance(before, CodeThread):
        return await journal.load(run_id), None
    return loaded, before


async def thread_of(journal: Journal, run_id: str) -> Thread | None:
    """What a model run has come to, read from its snapshot on if there is a sound one."""
    loaded, before = await load_model_run(journal, run_id)
    return None if loaded is None else fold_all(before or EMPTY, loaded.events)
