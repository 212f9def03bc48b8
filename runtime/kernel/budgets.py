"""``TreeBudgets``: what each tree of runs has used of its budget.

Live descendants and starts are drawn from the root, depth is each run's own.  Kept for trees that
have children; read from the journal once, where a runtime resumes what another began.
"""

from msgspec import structs

from hubbub.agents.state.spending import NOTHING_SPENT, Spent
from hubbub.agents.turn.child_calls import Budget
from hubbub.hub.errors import LimitExceeded
from hubbub.hub.store.journal import Journal

__all__ = ["TreeBudgets"]


class TreeBudgets:
    """What is left to each tree."""

    __slots__ = ("_over", "_roots_over", "_spent", "by_root", "fresh")

    def __init__(self, *, max_depth: int, max_live: int, max_spawns: int) -> None:
        self.fresh = Budget(max_depth=max_depth, max_live=max_live, max_spawns=max_spawns)
        self.by_root: dict[str, Budget] = {}
        self._roots_over: set[str] = set()
        self._over: dict[str, list[str]] = {}
        """Runs that have ended above others that have not."""
        self._spent: dict[str, tuple[int, Spent]] = {}
        """How many runs of a tree have ended here, and what they had used."""

    def of(self, root_run_id: str) -> Budget:
        """What is left of a root's budget."""
        return self.by_root.get(root_run_id, self.fresh)

    def exceeded(self, root_run_id: str, depth: int) -> LimitExceeded | None:
        """Why code may start no child at ``depth``; ``None`` when it may."""
        budget = self.of(root_run_id)
        refused = budget.refusal(depth)
        if not refused:
            return None
        if depth > budget.max_depth:
            limit, argument = budget.max_depth, "max_depth"
        elif budget.live >= budget.max_live:
            limit, argument = budget.max_live, "max_descendants"
        else:
            limit, argument = budget.max_spawns, "max_spawns"
        remedy = f"{refused}, or open the runtime with a higher {argument}"
        return LimitExceeded("children", limit, remedy)

    def has_children(self, root_run_id: str) -> bool:
        """Whether any run of the tree may still be alive below its root."""
        return root_run_id in self.by_root

    def started(self, root_run_id: str) -> None:
        """A descendant of the root is started."""
        budget = self.of(root_run_id)
        self.by_root[root_run_id] = structs.replace(
            budget, live=budget.live + 1, spawned=budget.spawned + 1
        )

    def started_elsewhere(self, root_run_id: str, is_read: bool) -> None:
        """A descendant is started that its parent did not start; ``is_read``: that is in memory.

        Else the tree, where it is not counted yet, is counted when the first of it is read.
        """
        if is_read or self.has_children(root_run_id):
            self.started(root_run_id)

    def spent_by(self, run_id: str, root_run_id: str, spent: Spent) -> Spent | None:
        """What a run that is over, and has used ``spent``, and all below it have used.

        ``None`` where only the journal knows it: something below lives, or has ended before the
        tree was driven here, or it is no root.
        """
        budget = self.by_root.get(root_run_id)
        if budget is None:
            return spent
        ended, below = self._spent.get(root_run_id, (0, NOTHING_SPENT))
        return below + spent if run_id == root_run_id and ended == budget.spawned else None

    def ended(self, run_id: str, root_run_id: str, spent: Spent) -> tuple[str, ...]:
        """A run of the tree is over, and has used so much; with the last one its budget is
        forgotten.

        Returns the runs whose variables no run inherits any more.
        """
        budget = self.by_root.get(root_run_id)
        if budget is None:
            return (run_id,)
        over = self._over.setdefault(root_run_id, [])
        over.append(run_id)
        if run_id == root_run_id:
            self._roots_over.add(root_run_id)
        else:
            budget = self.by_root[root_run_id] = structs.replace(
                budget, live=max(0, budget.live - 1)
            )
            ended, below = self._spent.get(root_run_id, (0, NOTHING_SPENT))
            self._spent[root_run_id] = (ended + 1, below + spent)
        if budget.live:
            return ()
        if root_run_id in self._roots_over:
            self._roots_over.discard(root_run_id)
            del self.by_root[root_run_id]
            self._spent.pop(root_run_id, None)
        del self._over[root_run_id]
        return tuple(over)

    def forget(self, root_run_id: str) -> None:
        """Another process drives the tree."""
        self.by_root.pop(root_run_id, None)
        self._over.pop(root_run_id, None)
        self._spent.pop(root_run_id, None)
        self._roots_over.discard(root_run_id)

    async def load(self, root_run_id: str, journal: Journal, *, is_own: bool = True) -> None:
        """Count the runs of a tree that was begun elsewhere; each time, where another process
        drives it."""
        if root_run_id in self.by_root and is_own:
            return
        runs = await journal.runs(live=False, root_run_id=root_run_id)
        tree = [run for run in runs if run.run_id != root_run_id]
        if tree and (root_run_id not in self.by_root or not is_own):
            live = sum(run.status != "ended" for run in tree)
            self.by_root[root_run_id] = structs.replace(self.fresh, live=live, spawned=len(tree))
            if all(r.run_id != root_run_id or r.status == "ended" for r in runs):
                self._roots_over.add(root_run_id)
