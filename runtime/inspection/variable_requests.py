"""Requests for variables: the subagents that wait for values, as their store knows them.

    session:variables of a run ──► its later session:taken ──► those that nobody has answered

The record has names only.  What a variable is for is what the last runtime published of the agent
that reads it.  However much is on record, only the last events are looked at.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import StoreFailed
from hubbub.hub.events import Event, SessionTaken, SessionVariables
from hubbub.hub.store.reader import EventRow, RunRow, StoreReader, decoded
from hubbub.runtime.inspection.published import PublishedVariable, published_agents

__all__ = ["VariableRequest", "WantedVariable", "open_requests"]

LAST_EVENTS: Final = 500
"""Among so many events of each run that is asked about requests are looked for."""

MAX_EVENTS: Final = 50_000
"""Among so many where all runs are asked about, or many."""


class WantedVariable(Struct, frozen=True, kw_only=True):
    """A variable that a subagent needs: a ``secret``, or a ``text`` that people may see.

    ``is_missing``: it had no value when the subagent was called.
    """

    name: str
    type: str = "secret"
    description: str = ""
    is_missing: bool = True


class VariableRequest(Struct, frozen=True, kw_only=True):
    """A subagent that is started as soon as its variables are given.

    ``run_id`` is the run that called it, ``agent`` the subagent.  ``path`` is what gives them over
    HTTP, relative to where the hub is served.  ``since`` and ``expires_at`` are µs since the Unix
    epoch.
    """

    request_id: str
    run_id: str
    root_run_id: str
    agent: str
    path: str
    variables: tuple[WantedVariable, ...]
    since: int
    expires_at: int


def open_requests(
    store: StoreReader, run_ids: Collection[str] | None = None, *, now: int = 0
) -> tuple[VariableRequest, ...]:
    """What these runs, or any, wait for, the oldest first; what has expired ``now`` is left out."""
    if run_ids is not None and not run_ids:
        return ()
    most = MAX_EVENTS if run_ids is None else min(MAX_EVENTS, LAST_EVENTS * len(run_ids))
    with store.one_moment():
        found: dict[str, list[EventRow]] = {}
        for row in islice(store.event_rows(run_ids, backwards=True), most):
            if row.type == SessionVariables.type and row.lane == "own":
                found.setdefault(row.run_id, []).append(row)
        if not found:
            return ()
        kinds = {each.name: {x.name: x for x in each.variables} for each in published_agents(store)}
        requests = {
            position: _shown(run, event, kinds.get(event.child_agent, {}))
            for run_id, rows in found.items()
            if (run := store.row(run_id)) is not None and run.status != "ended"
            for position, event in _unanswered(store, run, rows)
            if event.expires_at > now
        }
    return tuple([requests[position] for position in sorted(requests)])


def _unanswered(
    store: StoreReader, run: RunRow, rows: list[EventRow]
) -> Iterator[tuple[int, SessionVariables]]:
    """The requests of a run that no values have been given for, with their positions."""
    first = min(row.position for row in rows)
    try:
        asked = [(row.position, decoded(store, row.position, row.body)) for row in rows]
        later = [
            item
            for row in store.event_rows((run.run_id,), after=first)
            if row.lane == "own" and row.type == SessionTaken.type
            for item in _items(decoded(store, row.position, row.body))
        ]
        later += (decoded(store, x.position, x.body) for x in store.waiting(run.run_id))
    except StoreFailed:  # Damage is what fsck reports.
        return
    given = {item.request_id for item in later if isinstance(item, SessionVariables)}
    for position, event in asked:
        if isinstance(event, SessionVariables) and event.request_id not in given:
            yield position, event


def _items(event: Event) -> tuple[Event, ...]:
    return event.items if isinstance(event, SessionTaken) else ()


def _shown(
    run: RunRow, event: SessionVariables, kinds: Mapping[str, PublishedVariable]
) -> VariableRequest:
    variables = []
    for name in event.required or event.names:
        kind = kinds.get(name) or PublishedVariable(name=name)
        variables.append(
            WantedVariable(
                name=name, type=kind.type, description=kind.description,
                is_missing=name in event.names,
            )
        )  # fmt: skip
    return VariableRequest(
        request_id=event.request_id, run_id=run.run_id, root_run_id=run.root_run_id,
        agent=event.child_agent, path=f"/threads/{run.run_id}/variables/{event.request_id}",
        variables=tuple(variables), since=event.at, expires_at=event.expires_at,
    )  # fmt: skip
