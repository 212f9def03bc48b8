"""Whether the hub is well."""

from typing import Final

from msgspec import Struct

from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.hub.hub import HubStatistics

__all__ = ["ROUTES", "Health", "check_ready"]


class Health(Struct, frozen=True):
    """That it is well."""

    status: str = "ok"


async def health(call: HttpCall) -> HttpAnswer:
    """The process answers, and need not be started again."""
    _check_store(call)
    return HttpAnswer(content=Health())


async def ready(call: HttpCall) -> HttpAnswer:
    """What is sent now will be accepted."""
    check_ready(call)
    return HttpAnswer(content=Health())


def check_ready(call: HttpCall) -> None:
    """Raise ``Refusal`` while the hub is closed, or after its store has failed."""
    hub = call.hub
    if hub.is_closed or not hub.tasks.is_open or call.host.context is None:
        raise Refusal("closed", "the hub, or this app, is not open")
    _check_store(call)


def _check_store(call: HttpCall) -> None:
    """Raise ``Refusal`` once the store has failed: that is for good, waiting is no failure."""
    journal = call.hub.journal
    if journal.failure:
        raise Refusal("store-failed", f"store {journal.name}: {journal.failure}")


async def statistics(call: HttpCall) -> HttpAnswer:
    """How much there is of everything, now."""
    return HttpAnswer(content=call.hub.statistics())


ROUTES: Final = (
    Route(
        method="GET", path="/health", summary="The process answers", handler=health,
        answers={200: Health}, problems=("store-failed",), is_open=True, is_counted=False,
    ),
    Route(
        method="GET", path="/ready", summary="What is sent now will be accepted", handler=ready,
        answers={200: Health}, problems=("closed", "store-failed"), is_open=True, is_counted=False,
    ),
    Route(
        method="GET", path="/api/statistics", summary="How much there is of everything",
        handler=statistics, answers={200: HubStatistics},
    ),
)  # fmt: skip
