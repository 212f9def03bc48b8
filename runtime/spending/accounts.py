"""``TreeAccounts``: what each tree of runs has used of what it may use.

    limits given with a root's opening, or to the runtime ─► the tree's account
    a commit of one of its runs ─► what that run has used ─► the sum of the tree

Rules
-----
* A run's part is what its own lane says, and is replaced as a whole: so nothing counts twice, and
  a run that is read again corrects it.
* An account is made when a tree is begun that has limits, when one is read from the journal, and
  when somebody asks what a tree of many runs or calls has used.  From then on no commit needs
  the journal.
* What is decided by it is recorded by the run that decides: no fold looks here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.bases import begun_at
from hubbub.agents.state.spending import NOTHING_SPENT, Spent, used_up
from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import Limits
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Journal, LoadedRun, RunInfo
from hubbub.runtime.spending.recorded import (
    Work,
    limits_in,
    pages_of,
    spent_on_record,
    work_in,
    work_on_record,
)

__all__ = ["CountedRun", "TreeAccount", "TreeAccounts"]

MAX_FREE: Final = 10_000
"""Trees without limits whose accounts are kept."""

_TAKEN: Final = frozenset((e.SessionTaken.type, e.AgentBase.type))

MANY_CALLS: Final = 100
MANY_RUNS: Final = 8
"""Calls, or runs, from which on what a tree has used is kept, for nobody else to read them again:
each of its runs may be asked about."""


class CountedRun(Protocol):
    """A run in memory."""

    @property
    def lane(self) -> OwnLane: ...

    @property
    def thread(self) -> Thread | CodeThread: ...

    def meet_limits(self) -> None:
        """What its tree may use has changed."""
        ...


class TreeAccount:
    """What the runs of one tree have used, and may use."""

    __slots__ = (
        "_below", "_by_run", "_parents", "_work", "limits", "root_run_id", "spent", "worked",
    )  # fmt: skip

    def __init__(self, root_run_id: str, limits: Limits | None = None) -> None:
        self.root_run_id = root_run_id
        self.limits = limits
        self.spent = NOTHING_SPENT
        self.worked = 0
        """Microseconds at work, of all runs."""
        self._by_run: dict[str, Spent] = {}
        self._below: dict[str, Spent] = {}
        """What each run and all below it have used."""
        self._parents: dict[str, str | None] = {}
        self._work: dict[str, int] = {}

    def note(self, run_id: str, parent_run_id: str | None, spent: Spent) -> None:
        """A run has used so much, in all."""
        if run_id not in self._parents:
            self._parents[run_id] = parent_run_id
            if run_id in self._below:  # By runs below it, which were noted before it.
                self._add(parent_run_id, self._below[run_id])
        before = self._by_run.get(run_id, NOTHING_SPENT)
        if spent is not before:
            self._by_run[run_id] = spent
            change = spent - before
            self.spent += change
            self._add(run_id, change)

    def _add(self, run_id: str | None, change: Spent) -> None:
        """To what a run and all above it have used below them."""
        for _ in range(len(self._parents) + 1):
            if run_id is None:
                break
            self._below[run_id] = self._below.get(run_id, NOTHING_SPENT) + change
            run_id = self._parents.get(run_id)

    def note_work(self, run_id: str, worked: int) -> None:
        """A run was at work for so long, in all."""
        self.worked += worked - self._work.get(run_id, 0)
        self._work[run_id] = worked

    def spent_by(self, run_id: str) -> Spent:
        """What a run and all below it have used."""
        is_root = run_id == self.root_run_id
        return self.spent if is_root else self._below.get(run_id, NOTHING_SPENT)


class TreeAccounts:
    """The accounts of one runtime's trees."""

    __slots__ = (
        "_asked",
        "_definitions",
        "_live",
        "_owns",
        "_unlimited",
        "by_root",
        "default",
        "limited",
        "work",
    )

    def __init__(
        self,
        definitions: Definitions,
        live: Mapping[str, CountedRun],
        default: Limits | None,
        owns: Callable[[str], bool] = lambda root_run_id: True,
    ) -> None:
        self._owns = owns
        """Whether a tree is this process's to drive; of others nothing is kept."""
        self._definitions = definitions
        self._live = live
        self.default = default
        """What each tree may use whose opening says nothing."""
        self.by_root: dict[str, TreeAccount] = {}
        self.limited = frozenset(_limited(definitions))
        """The agents whose turns or runs have limits."""
        self.work: dict[str, Work] = {}
        """By run, of those whose time at work is limited."""
        self._unlimited: dict[str, None] = {}
        """Trees of which it is known that they have no limits; the oldest are forgotten."""
        self._asked: dict[str, None] = {}
        """Trees without limits that have an account, for somebody has asked."""

    # ── limits ───────────────────────────────────────────────────────────────────────────────

    def limit(self, root_run_id: str, limits: Limits | None) -> TreeAccount:
        """A tree may use so much from now on."""
        self._unlimited.pop(root_run_id, None)
        self._asked.pop(root_run_id, None)
        account = self.by_root.get(root_run_id)
        if account is None:
            account = self.by_root[root_run_id] = TreeAccount(root_run_id)
        account.limits = limits if limits is not None else self.default
        return account

    def account_of(self, lane: OwnLane) -> TreeAccount | None:
        """The account of a run's tree, if it has one or is to have one."""
        account = self.by_root.get(lane.root_run_id)
        if account is None and self.default is not None:
            account = self.limit(lane.root_run_id, None)
        return account

    def limits(self, agent: str, lane: OwnLane) -> bool:
        """Whether a run of an agent has any limits."""
        account = self.by_root.get(lane.root_run_id)
        has_own = account is not None and account.limits is not None
        return has_own or self.default is not None or agent in self.limited

    # ── code's own conversations with models ─────────────────────────────────────────────────

    def reached(self, lane: OwnLane, spent: Spent) -> str:
        """The name of the limit that code has reached by its own conversations with models."""
        own, account = self._limits_of_run(lane), self.account_of(lane)
        worked = self.work[lane.run_id].run if lane.run_id in self.work else 0
        if own is not None and (name := used_up(own, spent, worked)):
            return f"run.{name}"
        if account is None or account.limits is None:
            return ""
        name = used_up(account.limits, account.spent, account.worked)
        return name and f"tree.{name}"

    def time_left(self, lane: OwnLane) -> float | None:
        """Seconds that a conversation in code may be at work; ``None`` where nothing says so."""
        own, account = self._limits_of_run(lane), self.account_of(lane)
        left = []
        if own is not None and own.seconds is not None:
            left.append(own.seconds - self.work_of(lane.run_id).run / 1_000_000)
        if account is not None and account.limits is not None and account.limits.seconds:
            left.append(account.limits.seconds - account.worked / 1_000_000)
        return max(0.0, min(left)) if left else None

    def note_work(self, lane: OwnLane, worked: int) -> None:
        """A conversation in code was at work for so long."""
        account = self.account_of(lane)
        if worked > 0 and self.times(lane.agent, account):
            work = self.work_of(lane.run_id)
            work.run += worked
            if account is not None:
                account.note_work(lane.run_id, work.run)

    def _limits_of_run(self, lane: OwnLane) -> Limits | None:
        definition = self._definitions.find_agent(lane.agent)
        return None if definition is None else definition.run_limits

    def limits_cost(self, lane: OwnLane) -> bool:
        """Whether there is a limit for what a run of code may cost."""
        account = self.account_of(lane)
        found = [None if account is None else account.limits, *self._own(lane.agent)]
        return any(each is not None and each.cost is not None for each in found)

    def follow(self, lane: OwnLane, before: Limits | None, thread: Thread | CodeThread) -> None:
        """A commit of a run is about to be submitted: what the run has used, and may use.

        ``before``: what was on record of that until now.
        """
        root = lane.root_run_id
        if thread.limits is not before:
            self.limit(root, thread.limits)
            for run in self._live.values():
                if run.lane.root_run_id == root:
                    run.meet_limits()
        account = self.by_root.get(root)
        if account is not None:
            account.note(lane.run_id, lane.parent_run_id, thread.spent)

    def times(self, agent: str, account: TreeAccount | None) -> bool:
        """Whether the time that runs of an agent are at work is limited."""
        tree = None if account is None else account.limits
        found = [tree, *self._own(agent)]
        return any(each is not None and each.seconds is not None for each in found)

    def work_of(self, run_id: str) -> Work:
        """How long a run was at work, to be counted on."""
        return self.work.setdefault(run_id, Work())

    def ended(self, run_id: str, root_run_id: str, *, is_last: bool) -> None:
        """A run is over; with the last one of its tree the account is."""
        self.work.pop(run_id, None)
        if is_last:
            self.by_root.pop(root_run_id, None)
            self._asked.pop(root_run_id, None)

    def forget(self, root_run_id: str) -> None:
        """Another process drives the tree."""
        for known in (self.by_root, self._asked, self._unlimited):
            known.pop(root_run_id, None)

    def _own(self, agent: str) -> Sequence[Limits | None]:
        return _limits_of(self._definitions, agent)

    # ── read from the journal ────────────────────────────────────────────────────────────────

    async def load(
        self, loaded: LoadedRun, journal: Journal, before: Thread | CodeThread | None = None
    ) -> None:
        """Know what the tree of a run may use and has used, and how long the run was at work;
        ``before``: what it had come to before the events that are loaded."""
        info = loaded.info
        root = info.root_run_id
        if not self._owns(root):
            return
        if root not in self.by_root and root not in self._unlimited:
            limits = await self._limits_of_tree(loaded, journal, before)
            if limits is None:
                self._note_unlimited(root)
            else:
                await self._read(root, limits, journal)
        for item in loaded.waiting:  # It came when nobody was there who would know it.
            if isinstance(item, e.SessionLimits) and item.limits is not None:
                await self.learn(root, item.limits, journal)
        is_whole = not loaded.after or begun_at(loaded.events) is not None
        is_new = info.run_id not in self.work and (before is not None or is_whole)
        if is_new and self.times(info.agent, self.by_root.get(root)):
            whole = loaded if before is None else await journal.load(info.run_id)
            self.work[info.run_id] = work_in(() if whole is None else whole.events)

    async def learn(self, root_run_id: str, limits: Limits, journal: Journal) -> None:
        """Know what a tree has used that is to be limited, also by runs that are over."""
        await journal.flush()
        account = self.by_root.get(root_run_id)
        if account is None:
            account = await self._read(root_run_id, self.default, journal)
        self.by_root[root_run_id] = account
        self._asked.pop(root_run_id, None)
        if limits.seconds is None:
            return
        for info in await journal.runs(live=False, root_run_id=root_run_id):
            is_known = info.run_id in self.work
            found = None if is_known else await work_on_record(journal, info.run_id)
            work = self.work.get(info.run_id)
            if work is None and found is not None:
                work = found
                if info.status != "ended":
                    self.work[info.run_id] = work
            if work is not None:
                account.note_work(info.run_id, work.run)

    async def spent_by(self, info: RunInfo, journal: Journal) -> Spent:
        """What a run and all below it have used."""
        root = info.root_run_id
        account = self.by_root.get(root)
        if account is None:
            account = await self._read(root, self.default, journal)
        return account.spent_by(info.run_id)

    async def _limits_of_tree(
        self, loaded: LoadedRun, journal: Journal, before: Thread | CodeThread | None
    ) -> Limits | None:
        if loaded.info.parent_run_id is None:
            if before is not None:
                return limits_in(loaded.events, before.limits) or self.default
            if loaded.after and begun_at(loaded.events) is None:
                return self.default  # It was in memory before, and had none then.
            return limits_in(loaded.events, None) or self.default
        found = None
        async with aclosing(pages_of(journal, loaded.info.root_run_id, _TAKEN)) as pages:
            async for events in pages:
                found = limits_in(events, found)
        return found or self.default

    async def _read(self, root: str, limits: Limits | None, journal: Journal) -> TreeAccount:
        account = TreeAccount(root, limits)
        infos = await journal.runs(live=False, root_run_id=root)
        for info in infos:
            if limits is not None and limits.seconds is not None:
                work = await work_on_record(journal, info.run_id)
                account.note_work(info.run_id, 0 if work is None else work.run)
            spent = await spent_on_record(journal, info.run_id)
            account.note(info.run_id, info.parent_run_id, spent)
        known = self.by_root.get(root)
        if known is not None:  # Made meanwhile.
            return known
        for live in self._live.values():
            if live.lane.root_run_id == root:
                account.note(live.lane.run_id, live.lane.parent_run_id, live.thread.spent)
        if not self._owns(root):
            return account
        if limits is not None:
            self.by_root[root] = account
        elif account.spent.model_calls >= MANY_CALLS or len(infos) >= MANY_RUNS:
            self.by_root[root] = account
            self._note_asked(root)
        return account

    def _note_unlimited(self, root: str) -> None:
        self._unlimited[root] = None
        if len(self._unlimited) > MAX_FREE:
            del self._unlimited[next(iter(self._unlimited))]

    def _note_asked(self, root: str) -> None:
        """Keep an account that nothing depends on, as long as there are not too many."""
        self._asked[root] = None
        if len(self._asked) > MAX_FREE:
            oldest = next(iter(self._asked))
            del self._asked[oldest], self.by_root[oldest]


def _limited(definitions: Definitions) -> Iterable[str]:
    for name in definitions.names:
        if any(each is not None for each in _limits_of(definitions, name)):
            yield name


def _limits_of(definitions: Definitions, agent: str) -> Sequence[Limits | None]:
    definition = definitions.find_agent(agent)
    sides = definitions.sides_of(agent)
    own = None if definition is None else definition.run_limits
    return (own, *(side.prompt.limits for side in sides))
