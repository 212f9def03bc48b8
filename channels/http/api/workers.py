"""Who is at work on the store, and what waits for somebody."""

from typing import Final

from msgspec import Struct

from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime

__all__ = ["ROUTES"]


class ProcessView(Struct, frozen=True, kw_only=True):
    """A process at work on the store; what the store does not know of it is ``null``.

    ``is_worker``: it drives trees, else it only carries channels; ``left``: seconds until its lease
    is over, unless it renews it; ``running``: runs at work in its ``trees``; ``capacity``: how many
    trees it takes; ``agents``: of which; ``told``: the position of the last event that it has heard
    of; ``lag``: how many it has yet to hear of, the first of which is ``lag_seconds`` old;
    ``drains``: it is leaving.
    """

    name: str
    is_worker: bool
    since: int | None
    left: float | None
    trees: int
    running: int
    capacity: int | None
    agents: tuple[str, ...] | None
    told: int | None
    lag: int | None
    lag_seconds: float | None
    drains: bool


class FreeTreesView(Struct, frozen=True, kw_only=True):
    """Trees that nobody drives, of one agent; ``is_known``: a worker is there that knows it."""

    agent: str
    trees: int
    is_known: bool


class WorkersView(Struct, frozen=True, kw_only=True):
    """The processes at work on the store, whose last event is at ``position``."""

    position: int
    processes: tuple[ProcessView, ...]
    free: tuple[FreeTreesView, ...]


async def list_workers(call: HttpCall) -> HttpAnswer:
    """Every process."""
    return HttpAnswer(content=await ask_runtime(call.hub, "workers"))


ROUTES: Final = (
    Route(
        method="GET", path="/api/workers", summary="The processes at work on the store",
        handler=list_workers, answers={200: WorkersView}, problems=("no-runtime",),
    ),
)  # fmt: skip
