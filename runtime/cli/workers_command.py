"""``hubbub workers``: who is at work on a store, and what waits for somebody."""

from collections.abc import Callable

from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import Write, document, write_all
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader

__all__ = ["workers_command"]


def workers_command(write: Write) -> Callable[..., int]:
    def workers(*, json: bool = False, store: str = DEFAULT_STORE) -> int:
        """List the processes at work on a store, and the trees that nobody drives.

        Of each: what it is called, whether it drives runs (worker) or only carries channels, since
        when, how long its lease lasts if it is not renewed, trees and the runs at work in them,
        how many it takes, the position of the last event that it has heard of, how many it has yet
        to hear of and how old the first of these is, and of which agents it takes trees.
        Then the trees that nobody drives, the agents that workers define in different ways, and
        what the retention of a runtime has removed.

        Parameters
        ----------
        json
            Print one JSON object instead: position (of the last event), processes (told is the
            position that each has heard of; lag and lag_seconds, how far that is behind), free
            (trees by agent, and whether anybody who is there knows it), differing (agents, and
            who has the same definition), removed (null, or what a retention has removed since its
            runtime was opened, and when its last pass was: passed, in µs).
        store
            postgresql://…, or sqlite:PATH, which one process has to itself.
        """
        from hubbub.runtime.cli.text import process_lines
        from hubbub.runtime.inspection.at_work import list_processes

        now = Ports().clock.now()
        with open_reader(store) as opened:
            found = list_processes(opened, now)
        if json:
            write(document(found))
        else:
            write_all(write, process_lines(found, now))
        return 0

    return workers
