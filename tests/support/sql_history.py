"""What must hold of a store in PostgreSQL that several processes were at work on.

``watch_owners`` before they begin, ``history_problems`` afterwards: of what the tables hold, of
what was acknowledged, of what each subscriber saw, and of what the tools did to the world.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

from msgspec import Struct, field
from torture.audit import (
    doubled_items,
    inbox_problems,
    lane_problems,
    life_problems,
    read_runs,
    result_problems,
    twice,
    unfinished,
)

from hubbub.hub.events import ScheduleFire, SessionMessage, SessionOpen, SessionTaken
from hubbub.hub.events.codec import decode_event

__all__ = ["Heard", "Said", "history_problems", "watch_owners"]

Heard: TypeAlias = tuple[str, str, int]
"""The run, the lane and the number of an event that a subscriber has seen."""


class Said(Struct):
    """What processes were told is so, and what they did."""

    opened: set[str] = field(default_factory=set)
    """Runs."""
    accepted: set[tuple[str, str]] = field(default_factory=set)
    """Messages: the run and the key."""
    finished: dict[str, str] = field(default_factory=dict)
    """How runs have ended."""
    effects: Counter[str] = field(default_factory=Counter)
    """How often each thing was done that must not be done twice."""
    heard: dict[str, list[Heard]] = field(default_factory=dict)
    """What subscribers saw, in their order."""


def watch_owners(db: Any) -> None:
    """Have the database write down every change of a tree's owner, and when it was."""
    db.execute(_WATCH.format(schema=db.address.schema))


def history_problems(
    db: Any, said: Said, *, is_quiet: bool = False, complete: Sequence[str] = ()
) -> list[str]:
    """Everything that is wrong, each in one line.

    ``is_quiet``: what was begun is done; ``complete``: subscribers who have seen everything to the
    end.
    """
    runs = read_runs(db)
    problems = [*lane_problems(db), *_head_problems(db)]
    problems += _owner_problems(db)
    problems += _lost(runs, said)
    problems += doubled_items(runs) + inbox_problems(runs)
    problems += _taken_twice(runs) + result_problems(runs)
    problems += twice(_fires(db), "tick")
    for run in runs.values():
        problems += life_problems(run)
    problems += [f"effect {x}: {count} times" for x, count in said.effects.items() if count > 1]
    problems += _unlike(db, said.heard, complete)
    if is_quiet:
        problems += [problem for run in runs.values() for problem in unfinished(run)]
        problems += _ready(db)
    return problems


def _head_problems(db: Any) -> list[str]:
    """What the store counts, and what there is."""
    (position, hub_seq, live, waiting) = db.execute(
        "SELECT position, hub_seq, live, waiting FROM head WHERE log = 0"
    ).fetchone()
    (last, last_hub, alive, wait) = db.execute(
        "SELECT coalesce(max(position), 0), coalesce(max(seq) FILTER (WHERE lane = 'hub'), 0), "
        "(SELECT count(*) FROM run WHERE status <> 'ended'), "
        "(SELECT count(*) FROM waiting JOIN run ON run.number = waiting.run "
        "WHERE run.status <> 'ended') FROM event"
    ).fetchone()
    counted, there = (position, hub_seq, live, waiting), (last, last_hub, alive, wait)
    return [] if counted == there else [f"the head counts {counted}, and there is {there}"]


# ── who writes ───────────────────────────────────────────────────────────────────────────────────


def _owner_problems(db: Any) -> list[str]:
    """Events of own lanes that another process wrote than the owner of their tree."""
    owners: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    select = "SELECT root, owner, epoch, since FROM owner_watch ORDER BY number"
    for root, owner, epoch, since in db.execute(select):
        owners[root].append((since, owner or 0, epoch))
    problems = [
        f"tree {root}: epoch {later[2]} of worker {later[1]} after {earlier[2]} of {earlier[1]}"
        for root, changes in owners.items() for earlier, later in pairwise(changes)
        if later[1] and later[1] != earlier[1] and later[2] <= _last_epoch(changes, later)
    ]  # fmt: skip
    select = "SELECT position, root, writer FROM event WHERE lane = 'own' ORDER BY position"
    for position, root, writer in db.execute(select):
        since = [owner for since, owner, _ in owners[root] if since < position]
        if since and since[-1] != writer:
            problems.append(
                f"stale: event {position} of tree {root} by worker {writer}, owned by {since[-1]}"
            )
    return problems


def _last_epoch(changes: list[tuple[int, int, int]], change: tuple[int, int, int]) -> int:
    """The epoch of the owner before."""
    before = [epoch for _, owner, epoch in changes[: changes.index(change)] if owner]
    return before[-1] if before else 0


# ── what was said ────────────────────────────────────────────────────────────────────────────────


def _lost(runs: Mapping[str, Any], said: Said) -> list[str]:
    problems = [f"lost: run {run_id}" for run_id in said.opened if run_id not in runs]
    for run_id, key in said.accepted:
        there = [x for x in runs[run_id].inbox if _key(x) == key] if run_id in runs else []
        if len(there) != 1:
            problems.append(f"lost: message {key} of {run_id}, {len(there)} times there")
    for run_id, outcome in said.finished.items():
        ends = [x.outcome for x in runs[run_id].own if x.type == "agent:complete"]
        if ends != [outcome]:
            problems.append(f"lost: the end of {run_id}, {outcome}: {ends}")
    return problems


def _taken_twice(runs: Mapping[str, Any]) -> list[str]:
    keys = [
        (item.run_id, key)
        for run in runs.values() for x in run.own if isinstance(x, SessionTaken)
        for item in x.items if (key := _key(item))
    ]  # fmt: skip
    return twice(keys, "taken")


def _key(item: Any) -> str:
    said = item.message if isinstance(item, SessionOpen) else item
    return said.key if isinstance(said, SessionMessage) else ""


def _fires(db: Any) -> list[tuple[str, int]]:
    found = db.execute("SELECT body FROM event WHERE lane = 'hub' AND type = 'schedule:fire'")
    events = [decode_event(body) for (body,) in found]
    return [(x.schedule, x.tick) for x in events if isinstance(x, ScheduleFire)]


# ── what was seen ────────────────────────────────────────────────────────────────────────────────


def _unlike(db: Any, heard: Mapping[str, Sequence[Heard]], complete: Sequence[str]) -> list[str]:
    """Subscribers who saw anything else than the store's order, from some point on."""
    if not heard:
        return []
    select = (
        "SELECT coalesce(address.run_id, ''), lane, seq FROM event "
        "LEFT JOIN address ON address.number = event.run ORDER BY position"
    )
    stored = [tuple(found) for found in db.execute(select)]
    places = {what: number for number, what in enumerate(stored)}
    problems = []
    for name, seen in heard.items():
        unknown = next((each for each in seen if each not in places), None)
        if unknown is not None:
            problems.append(f"{name} has seen {unknown}, which is not there")
            continue
        at = [places[each] for each in seen]
        wrong = next((x for x, y in pairwise(at) if y != x + 1), None)
        if wrong is not None:
            problems.append(f"{name} has seen another one after position {wrong + 1}")
        elif name in complete and (not at or at[-1] != len(stored) - 1):
            problems.append(f"{name} has seen {at[-1] + 1 if at else 0} of {len(stored)}")
    return problems


def _ready(db: Any) -> list[str]:
    found = db.execute("SELECT run_id FROM run WHERE ready = 1 AND status <> 'ended'")
    return [f"{run_id} is ready, and nobody takes it up" for (run_id,) in found]


_WATCH: Final = """
CREATE TABLE {schema}.owner_watch (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, root bigint NOT NULL, owner bigint,
  epoch bigint NOT NULL, since bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION {schema}.watch_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO {schema}.owner_watch (root, owner, epoch, since)
    SELECT NEW.root, NEW.owner, NEW.epoch,
      CASE WHEN EXISTS (SELECT 1 FROM {schema}.owner_watch AS known WHERE known.root = NEW.root)
      THEN head.position ELSE 0 END FROM {schema}.head;
  RETURN NEW;
END $$;
CREATE TRIGGER watch_new_owner AFTER INSERT ON {schema}.tree
  FOR EACH ROW EXECUTE FUNCTION {schema}.watch_owner();
CREATE TRIGGER watch_owner AFTER UPDATE ON {schema}.tree
  FOR EACH ROW WHEN (OLD.owner IS DISTINCT FROM NEW.owner OR OLD.epoch <> NEW.epoch)
  EXECUTE FUNCTION {schema}.watch_owner();
"""
