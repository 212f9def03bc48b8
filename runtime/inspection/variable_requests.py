"""Requests for variables: the subagents that wait for values, as their store knows them.

    session:variables of a run ──► its later session:taken ──► those that nobody has answered

Those of turns that have gone are in the run's base.  The record has names only.  What a variable is
for is what the last runtime published of the agent that reads it.  However much is on record, only
the last events are looked at.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Final, TypeAlias

from msgspec import Struct

from hubbub.agents.state.bases import family_of
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events import AgentBase, Event, SessionTaken, SessionVariables
from hubbub.hub.store.reader import EventRow, RunRow, StoreReader, decoded
from hubbub.runtime.inspection.published import PublishedVariable, published_agents

__all__ = ["VariableRequest", "WantedVariable", "open_requests"]

LAST_EVENTS: Final = 500
"""Among so many events of each run that is asked about requests are looked for."""

MAX_EVENTS: Final = 50_000
"""Among so many where all runs are asked about, or many."""

_Asked: TypeAlias = tuple[int, SessionVariables]
"""A request, and the position at which it stands."""

_ASKING: Final = (SessionVariables.type, AgentBase.type)


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
        found = _asked(store, islice(store.event_rows(run_ids, backwards=True), most))
        if not found:
            return ()
        kinds = {each.name: {x.name: x for x in each.variables} for each in published_agents(store)}
        requests = [
            (position, _shown(run, event, kinds.get(event.child_agent, {})))
            for run_id, asked in found.items()
            if (run := store.row(run_id)) is not None and run.status != "ended"
            for position, event in _unanswered(store, run, asked)
            if event.expires_at > now
        ]
    return tuple([request for _, request in sorted(requests, key=itemgetter(0))])


def _asked(store: StoreReader, rows: Iterable[EventRow]) -> dict[str, list[_Asked]]:
    """The requests of runs among their last events, the newest first; what stands before a base is
    in that."""
    found: dict[str, list[_Asked]] = {}
    with_base: set[str] = set()
    for row in rows:
        if row.lane != "own" or row.type not in _ASKING or row.run_id in with_base:
            continue
        if row.type == AgentBase.type:
            with_base.add(row.run_id)
        for event in _requests(store, row):
            found.setdefault(row.run_id, []).append((row.position, event))
    return found


def _requests(store: StoreReader, row: EventRow) -> Iterator[SessionVariables]:
    """The request that an event is, or those that a base holds; none of what cannot be read."""
    try:
        event = decoded(store, row.position, row.body)
        deferred = family_of(event).deferred if isinstance(event, AgentBase) else ()
    except (BadValue, StoreFailed):  # Damage is what fsck reports.
        return
    if isinstance(event, SessionVariables):
        yield event
    for each in deferred:
        yield SessionVariables(
            request_id=each.request_id, names=each.missing, required=each.required,
            child_agent=each.agent, expires_at=each.expires_at, at=each.asked_at,
        )  # fmt: skip


def _unanswered(store: StoreReader, run: RunRow, asked: Iterable[_Asked]) -> Iterator[_Asked]:
    """The requests of a run that no values have been given for, with their positions."""
    first = min(position for position, _ in asked)
    try:
        later = [
            item
            for row in store.event_rows((run.run_id,), after=first)
            if row.lane == "own" and row.type == SessionTaken.type
            for item in _items(decoded(store, row.position, row.body))
        ]
        later += (decoded(store, x.position, x.body) for x in store.waiting(run.run_id))
    except StoreFailed:
        return
    given = {item.request_id for item in later if isinstance(item, SessionVariables)}
    for position, event in asked:
        if event.request_id not in given:
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
