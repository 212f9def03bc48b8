"""What must hold of a store in PostgreSQL that several processes were at work on.

``watch_owners`` before they begin, ``history_problems`` afterwards: of what the tables hold, of
what was acknowledged, of what each subscriber saw, and of what the tools did to the world.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from torture.audit import (
    Run,
    doubled_items,
    inbox_problems,
    lane_problems,
    life_problems,
    read_runs,
    result_problems,
    twice,
    unfinished,
)
from torture.heard import HeardEvent

from hubbub.hub.events import ScheduleFire
from hubbub.hub.events.codec import decode_event
from support.postgres import SchemaRecord
from support.promises import Said, promise_problems

__all__ = ["history_problems", "watch_owners"]


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
    problems += promise_problems(runs, said, is_quiet=is_quiet) + _secrets(db, runs, said)
    problems += doubled_items(runs) + inbox_problems(runs)
    problems += result_problems(runs)
    problems += _fires(db, runs)
    for run in runs.values():
        problems += life_problems(run)
    problems += _unlike(db, said.heard, complete)
    if is_quiet:
        problems += [problem for run in runs.values() for problem in unfinished(run)]
        problems += _ready(db) + _below_terminated(db, said)
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


# ── what the store has beside runs ───────────────────────────────────────────────────────────────


def _fires(db: Any, runs: Mapping[str, Run]) -> list[str]:
    """Ticks that came twice, or of which nothing came."""
    found = db.execute("SELECT body FROM event WHERE lane = 'hub' AND type = 'schedule:fire'")
    events = [decode_event(body) for (body,) in found]
    fires = [x for x in events if isinstance(x, ScheduleFire)]
    problems = twice([(x.schedule, x.tick) for x in fires], "tick")
    return problems + [f"lost: tick {x.tick}" for x in fires if x.run_id not in runs]


def _secrets(db: Any, runs: Mapping[str, Run], said: Said) -> list[str]:
    kept = {x.replace(" ", "_") for x in SchemaRecord(db).secrets()} if said.secrets else set()
    return [
        f"lost: a secret of {run_id}"
        for run_id, value in said.secrets
        if run_id in runs and runs[run_id].status != "ended" and value not in kept
    ]


def _below_terminated(db: Any, said: Said) -> list[str]:
    live = db.execute("SELECT run_id, root_run_id FROM run WHERE status <> 'ended'").fetchall()
    return [f"{run} goes on below {root}, terminated" for run, root in live
            if root in said.terminated]  # fmt: skip


# ── what was seen ────────────────────────────────────────────────────────────────────────────────


def _unlike(
    db: Any, heard: Mapping[str, Sequence[HeardEvent]], complete: Sequence[str]
) -> list[str]:
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
