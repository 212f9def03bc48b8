"""Records: the durable events of a run, a page at a time."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from hubbub.channels.http.streams.wanted import patterns
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.hub import Hub
from hubbub.hub.store.backwards import read_back

__all__ = ["ROUTES", "RecordPage"]


class RecordsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records: behind a position (``start``: from the beginning), or ``before`` one (``end``:
    the last ones), of types that match one of the patterns, parted by commas."""

    after: str | None = None
    before: str | None = None
    types: str = "*"
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class RecordPage(Struct, frozen=True, kw_only=True):
    """Durable events, each with its ``position``; ``next`` is the position to go on with.

    In order, to go on ``after``; or, of what is ``before`` a position, the newest first, to go on
    ``before``: there it is empty when nothing older is left, and what a position is of is among
    what is before it.
    """

    records: tuple[dict[str, Any], ...]
    next: str


async def list_records(call: HttpCall) -> HttpAnswer:
    """A page of the durable events of a run."""
    hub, query, run_id = call.hub, call.query, call.path["run_id"]
    if await hub.journal.info(run_id) is None:
        raise Refusal("unknown-run", "there is no such run")
    types = patterns((query.types,))
    if query.before is not None:
        return await _read_back(call, types)
    events = await hub.read(run_id, after=query.after, types=types, limit=query.limit)
    last = hub.cursor(events[-1]) if events else query.after or "start"
    return _page(hub, events, last)


async def _read_back(call: HttpCall, types: tuple[str, ...]) -> HttpAnswer:
    hub, query = call.hub, call.query
    if query.after is not None:
        raise Refusal("invalid-value", "give one of after and before")
    events, last = await read_back(
        hub.journal, call.path["run_id"], before=query.before, match=Patterns(types).match,
        limit=query.limit,
    )  # fmt: skip
    return _page(hub, events, last)


def _page(hub: Hub, events: Sequence[Event], last: str) -> HttpAnswer:
    records = b",".join(_record(hub, event) for event in events)
    return HttpAnswer(content=b'{"records":[%b],"next":%b}' % (records, _text(last)))


def _record(hub: Hub, event: Event) -> bytes:
    """An event as JSON with its position in front."""
    return b'{"position":%b,%b' % (_text(hub.cursor(event)), encode_event(event)[1:])


def _text(value: str) -> bytes:
    return msgspec.json.encode(value)


ROUTES: Final = (
    Route(
        method="GET", path="/api/runs/{run_id}/records", summary="The durable events of a run",
        handler=list_records, query=RecordsQuery, answers={200: RecordPage},
        problems=("unknown-run",),
    ),
)  # fmt: skip
