"""``LivedThreads``: whether each commit leaves a run in memory with what the journal says of it.

    read: the lane folds to a thread ─► commit: its events folded into that = the run's thread?

The state of a run at rest is seen by ``replay_equals_live``.  But most runs have left memory by
then, and what was wrong in the middle of a turn may be forgotten with its end.  So it is compared
when a commit is submitted, while nothing else of that run is on its way.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.store.journal import Commit, LoadedRun
from hubbub.runtime.kernel.live import LiveRun
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.simulation.story.differing import differing

__all__ = ["LivedThreads"]


class _Known(Struct, frozen=True):
    thread: Thread
    seq: int
    """The number of the last event in it."""


class LivedThreads:
    """Of one process, whose runs ``in_memory`` names.  ``found`` gets what differs, a line each."""

    def __init__(self, in_memory: Callable[[], Iterable[LiveRun]], found: list[str]) -> None:
        self._in_memory = in_memory
        self._found = found
        self._known: dict[str, _Known] = {}

    def loaded(self, loaded: LoadedRun | None) -> None:
        """A run's own lane was read."""
        if loaded is None or loaded.kept is not None or loaded.after:
            return
        known = self._known.get(loaded.info.run_id)
        if known is None or known.seq < loaded.seq:
            thread = fold_all(EMPTY, loaded.events)
            self._known[loaded.info.run_id] = _Known(thread, loaded.seq)

    def written(self, commit: Commit) -> None:
        """A commit is submitted."""
        if commit.lane is None or not commit.events:
            return
        run = next((x for x in self._in_memory() if x.lane is commit.lane), None)
        if not isinstance(run, ModelRun):
            return
        known = self._known.pop(run.lane.run_id, None)
        if not commit.expect:
            known = _Known(EMPTY, 0)
        seq = commit.events[-1].seq
        is_last = run.lane.seq == seq
        if known is not None and known.seq == commit.expect:
            folded = fold_all(known.thread, commit.events)
            if is_last and folded != run.thread:
                last, fields = commit.events[-1].id, ", ".join(differing(folded, run.thread))
                self._found.append(
                    f"run {run.lane.run_id} has another state in memory than in the journal "
                    f"after {last}: {fields}"
                )
        elif is_last:
            folded = run.thread
        else:
            return
        self._known[run.lane.run_id] = _Known(run.thread if is_last else folded, seq)
