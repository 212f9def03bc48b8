"""``runs_above``: the runs above a run, as a journal knows them."""

from collections.abc import Sequence

from hubbub.hub.errors import BadValue
from hubbub.hub.store.journal import Journal, RunInfo

__all__ = ["runs_above"]


async def runs_above(journal: Journal, run: RunInfo) -> Sequence[RunInfo]:
    """The runs above one, its parent first, as far as there are any.

    Raises ``BadValue`` for parents that form a circle: only damage makes one, and without the
    check the walk would never end.
    """
    found: dict[str, RunInfo] = {}
    info: RunInfo | None = run
    while info is not None and (above := info.parent_run_id) is not None:
        if above == run.run_id or above in found:
            raise BadValue(f"run {run.run_id}", f"its parents form a circle at {above}; see fsck")
        info = await journal.info(above)
        if info is not None:
            found[above] = info
    return tuple(found.values())
