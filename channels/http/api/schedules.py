"""Schedules: what runs by itself."""

from typing import Final

from msgspec import Struct

from hubbub.channels.http.api.views import ScheduleView
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime

__all__ = ["ROUTES"]


class ScheduleList(Struct, frozen=True):
    """What the store remembers of each schedule."""

    schedules: tuple[ScheduleView, ...]


async def list_schedules(call: HttpCall) -> HttpAnswer:
    """Every schedule."""
    return HttpAnswer(content={"schedules": await ask_runtime(call.hub, "schedules")})


ROUTES: Final = (
    Route(
        method="GET", path="/api/schedules", summary="The schedules", handler=list_schedules,
        answers={200: ScheduleList}, problems=("no-runtime",),
    ),
)  # fmt: skip
