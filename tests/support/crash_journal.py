"""A journal whose process is killed after some commits: what comes later is never heard of."""

from typing import Any

import anyio

from hubbub.hub.store.journal import Commit, Journal

__all__ = ["CrashJournal"]


class CrashJournal:
    """Passes ``after`` commits on (``None``: all) and then accepts nothing more, as after kill -9.

    Put a ``LateJournal`` around it for commits that take their time: those still under way are
    lost with the process.
    """

    def __init__(self, inner: Journal, after: int | None = None) -> None:
        self._inner = inner
        self._after = after
        self.commits = 0
        self.crashed = anyio.Event()
        """Set when the process first wanted to write after its death."""

    def submit(self, commit: Commit) -> None:
        if self.commits == self._after:
            self.crashed.set()
            return
        self.commits += 1
        self._inner.submit(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
