"""``GroupTrees``: whose the trees are that a group of commits concerns, and what becomes of them.

    an own lane's commit   refused unless the tree is this worker's, under the epoch of the commit
    a run is opened        its tree has one more that lives; a new tree is the worker's, or free
    a run ends             one less; with the last one the tree is over, and nobody owns it
    claimed                trees that nobody owns, by the agent of their root; those in which a run
                           is only to end, by anybody

The order of groups is that of the ``head``'s lock, so what is read here is so until the commit.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from hubbub.hub.events import SessionOpen
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.placement import ENDING
from hubbub.runtime.stores.postgres.rows import PostgresRows
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.sql.connection import SqlCursor
from hubbub.runtime.stores.sql.rows import Row

__all__ = ["CLAIM", "CLAIMED", "FREE_TREES", "CameTo", "GroupTrees"]


class GroupTree(Struct, eq=False):
    """A tree as the group finds it, and as it has become by it."""

    owner: int
    epoch: int
    live: int
    more: int = 0
    """How many runs more of it live now."""
    want: str = ""
    """The agent of the root, if the tree is new."""


class CameTo(Struct, frozen=True):
    """What a commit came to, beside what it says itself."""

    opened: tuple[str, ...] = ()
    """The roots of the trees that it has opened and this worker owns."""
    over: str = ""
    """The root of the tree that is over with it."""
    is_free: bool = False
    """Whether it has opened a tree that nobody owns."""


NOTHING: Final = CameTo()

_Asked: TypeAlias = Sequence[SqlCursor]


class GroupTrees:
    """The trees of one group after the other."""

    def __init__(self, db: PostgresConnection, rows: PostgresRows) -> None:
        self._db = db
        self._rows = rows
        self._trees: dict[int, GroupTree] = {}
        """By the numbers of their roots."""

    # ── before a group ───────────────────────────────────────────────────────────────────────

    def ask(self, commits: Iterable[Commit]) -> _Asked:
        """Ask whose the trees are of the lanes that are written; within a pipeline."""
        asking = (run_id for x in commits for run_id in (x.run_id, *x.gone) if run_id)
        run_ids = list(dict.fromkeys(asking))
        if not run_ids:
            return ()
        # Where the root is known, that is one look into one index.
        known = {self._rows.root_of(run_id) for run_id in run_ids} - {None}
        unknown = [run_id for run_id in run_ids if self._rows.root_of(run_id) is None]
        asked = []
        if known:
            asked.append(self._db.execute(_SELECT_KNOWN, (list(known),)))
        if unknown:
            asked.append(self._db.execute(_SELECT_OF_RUNS, (unknown,)))
        return asked

    def take_in(self, asked: _Asked) -> None:
        self._trees = {
            root: GroupTree(owner or 0, epoch, live)
            for found in asked
            for root, owner, epoch, live in found
        }

    # ── commit by commit ─────────────────────────────────────────────────────────────────────

    def is_refused(self, row: Row, worker: int, epoch: int) -> bool:
        """Whether a run's own lane is not this worker's to write, under that epoch.

        Without one it is that of a tree which the worker is opening.
        """
        tree = self._trees.get(row.root)
        return tree is not None and (tree.owner, tree.epoch) != (worker, epoch or 1)

    def is_any_alive(self, run_ids: Iterable[str]) -> bool:
        """Whether anything lives in a tree of one of these runs: such a tree is somebody's, or is
        to be claimed."""
        trees = (self._trees.get(self._rows.root_of(run_id) or 0) for run_id in run_ids)
        return any(tree is not None and tree.live + tree.more > 0 for tree in trees)

    def applied(self, commit: Commit, worker: int, own: Collection[str]) -> CameTo:
        """Count what a commit has opened and ended; of new trees those in ``own`` are the
        worker's."""
        opened: tuple[str, ...] = ()
        if (commit.deliveries or commit.found is not None) and not commit.error:
            opened = tuple(self._opened(commit, worker, own))
            self._came_ended(commit)
        over = ""
        if commit.status == "ended" and not commit.error and commit.run_id:
            over = self._ended(commit.run_id)
        if not (opened or over):
            return NOTHING
        mine = tuple([root for root in opened if root in own])
        return CameTo(mine, over, is_free=len(mine) < len(opened))

    def _opened(self, commit: Commit, worker: int, own: Collection[str]) -> Iterable[str]:
        """The roots of new trees."""
        for event in commit.written:
            if not (isinstance(event, SessionOpen) and event.lane == "in" and event.seq == 1):
                continue
            row = self._rows.find(event.run_id)
            assert row is not None
            is_new = row.root not in self._trees and row.number == row.root
            tree = self._trees.get(row.root)
            if tree is None:  # Of a child in a tree of which only the number has to change.
                owner = worker if is_new and row.run_id in own else 0
                tree = self._trees[row.root] = GroupTree(owner, 1, 0, want=row.agent)
            tree.more += 1
            if is_new:
                yield row.run_id

    def _came_ended(self, commit: Commit) -> None:
        """What comes in ended does not live."""
        for run in commit.found.runs if commit.found is not None else ():
            row = self._rows.find(run.new.run_id)
            if row is not None and run.status == "ended":
                self._trees[row.root].more -= 1

    def _ended(self, run_id: str) -> str:
        row = self._rows.find(run_id)
        tree = self._trees.get(row.root) if row is not None else None
        if row is None or tree is None:
            return ""
        tree.more -= 1
        return row.root_run_id if tree.live + tree.more == 0 else ""

    # ── after a group ────────────────────────────────────────────────────────────────────────

    def send(self) -> None:
        """Have the database keep what has changed; within a pipeline."""
        changed = {root: tree for root, tree in self._trees.items() if tree.more or tree.want}
        new = [(root, tree) for root, tree in changed.items() if tree.want and tree.more]
        if new:
            self._db.execute(_PUT, _columns((r, t.want, t.owner, t.more) for r, t in new))
        old = {root: tree for root, tree in changed.items() if not tree.want}
        over = [root for root, tree in old.items() if tree.live + tree.more == 0]
        counted = [(root, tree.more) for root, tree in old.items() if root not in over]
        if over:
            self._db.execute("DELETE FROM tree WHERE root = ANY(?)", (over,))
        if counted:
            self._db.execute(_COUNT, _columns(counted))


def _columns(rows: Iterable[Sequence[Any]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


_SELECT_KNOWN: Final = "SELECT root, owner, epoch, live FROM tree WHERE root = ANY(?)"
_SELECT_OF_RUNS: Final = (
    "SELECT DISTINCT tree.root, owner, epoch, tree.live FROM address AS own "
    "JOIN run ON run.number = own.number JOIN address AS top ON top.run_id = run.root_run_id "
    "JOIN tree ON tree.root = top.number WHERE own.run_id = ANY(?)"
)
_PUT: Final = (
    "INSERT INTO tree (root, want, owner, epoch, live) "
    "SELECT root, want, nullif(owner, 0), 1, live "
    "FROM unnest(?::bigint[], ?::text[], ?::bigint[], ?::bigint[]) AS new (root, want, owner, live)"
    " ON CONFLICT (root) DO UPDATE SET live = tree.live + excluded.live"
)
_COUNT: Final = (
    "UPDATE tree SET live = tree.live + counted.more "
    "FROM unnest(?::bigint[], ?::bigint[]) AS counted (root, more) WHERE tree.root = counted.root"
)

_IS_FREE: Final = "owner IS NULL OR owner = ANY(ARRAY(SELECT id FROM worker WHERE NOT live))"
_ENDING: Final = (
    "SELECT top.number FROM run JOIN address AS top ON top.run_id = run.root_run_id "
    "WHERE run.ready = 1 AND run.inbox = 'terminated' UNION ALL "
    "SELECT top.number FROM run JOIN address AS top ON top.run_id = run.root_run_id "
    "WHERE run.wake_at IS NOT NULL AND run.status <> 'ended' "
    "AND run.wake_at <= extract(epoch FROM clock_timestamp()) * 1000000"
)
"""The trees in which a run is only to end: it is terminated, or its time is over."""
_WANTED: Final = f"CASE WHEN root IN ({_ENDING}) THEN '{ENDING}' ELSE want END"
FREE_TREES: Final = (
    f"SELECT needs, {_WANTED} AS wanted, count(*) FROM tree WHERE {_IS_FREE} GROUP BY needs, wanted"
)
"""How many trees nobody owns, by what they need and by what they are claimed by."""
CLAIM: Final = f"""
WITH found AS (
  SELECT root FROM tree WHERE ({_IS_FREE}) AND needs = ?4 AND {_WANTED} = ?3 ORDER BY root LIMIT ?2
  FOR UPDATE SKIP LOCKED
), claimed AS (
  UPDATE tree SET owner = ?1, epoch = epoch + 1 FROM found
  WHERE tree.root = found.root AND EXISTS (SELECT 1 FROM worker WHERE id = ?1 AND live)
  RETURNING tree.root, tree.epoch, tree.want
)
SELECT run_id, epoch, want FROM claimed JOIN address ON number = root
"""
"""So many of them for a lease."""
CLAIMED: Final = (
    "SELECT run_id, epoch, want FROM tree JOIN address ON number = root "
    "WHERE owner = ? AND epoch > 1"
)
"""A tree that is its opener's has the first epoch."""
