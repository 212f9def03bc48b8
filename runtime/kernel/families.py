"""``Families``: how runs are related: parents, children, statuses, and which run waits for which.

Kept here is what no run's own journal says at once: the statuses of children that stay, by
parent, and who waits for whom, those that have left memory meanwhile included.
The rest is read from the journal when it is asked for.

Who waits for whom (``WaitGraph``):

    a call of the model's    for the child that answers it   ``calls_of``, which its record says
    code, for an outcome     for the run to be over or idle  ┐ ``waiting``, until it is left, or
    code, that asks a run    for a reply of that run's code  ┘ has its answer (``is_open``)

A run whose code waits comes to no end, so who waits for its outcome waits for what it waits for.
A run that is asked may answer while other tasks of its code wait: then it waits only for what the
task waits for that reads its inbox, or for all of it where none reads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import LoadedRun, Selection
from hubbub.runtime.kernel.ancestry import runs_above
from hubbub.runtime.kernel.budgets import TreeBudgets
from hubbub.runtime.kernel.current_run import CURRENT_READER
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.remembered.snapshots import load_model_run, thread_of
from hubbub.runtime.spending.accounts import TreeAccounts

__all__ = ["Families", "WaitGraph"]


class CodeWait(Struct, frozen=True, eq=False, gc=False):
    """That the code of a run waits for another run."""

    other: str
    is_ask: bool
    is_readers: bool
    """Whether the code does that reads its run's inbox."""
    is_open: Callable[[], bool] | None
    """Whether it is not over yet, though its task may go on only later."""


class WaitGraph:
    """The waits of one runtime's runs; ``calls_of`` are those on record, ``reader_of`` names what
    reads a run's inbox, and says whether it awaits the next message."""

    __slots__ = ("_calls_of", "_reader_of", "_waits")

    def __init__(
        self,
        calls_of: Callable[[str], tuple[str, ...]],
        reader_of: Callable[[str], tuple[object | None, bool]],
    ) -> None:
        self._calls_of = calls_of
        self._reader_of = reader_of
        self._waits: dict[str, list[CodeWait]] = {}

    @contextmanager
    def waiting(
        self,
        run_id: str,
        other: str,
        *,
        asks: bool = False,
        is_open: Callable[[], bool] | None = None,
    ) -> Iterator[None]:
        """The code of ``run_id`` waits for ``other``; what it ``asks``, while ``is_open``."""
        reader = self._reader_of(run_id)[0]
        is_readers = reader is not None and reader is CURRENT_READER.get()
        wait = CodeWait(other, asks, is_readers, is_open)
        waits = self._waits.setdefault(run_id, [])
        waits.append(wait)
        try:
            yield
        finally:
            waits.remove(wait)
            if not waits:
                self._waits.pop(run_id, None)

    def directly(self, run_id: str) -> tuple[str, ...]:
        """What a run itself waits for: by calls, and the outcomes that its code does."""
        outcomes = [wait.other for wait in self._waits.get(run_id, ()) if not wait.is_ask]
        return (*self._calls_of(run_id), *outcomes)

    def reached(self, run_id: str) -> Iterator[str]:
        """Everything that a run may wait for, through others, and itself; what is asked, too."""
        found = [run_id]
        for each in found:
            yield each
            asked = [wait.other for wait in self._waits.get(each, ()) if wait.is_ask]
            found += [x for x in (*self.directly(each), *asked) if x not in found]

    def waits_for(self, run_id: str, other: str) -> bool:
        """Whether ``run_id`` waits, maybe through others, for an outcome of ``other``."""
        reached = [run_id]
        for each in reached:
            reached += [run for run in self.directly(each) if run not in reached]
        return other in reached[1:]

    def closes(self, waiter: str, other: str, *, asks: bool = False) -> bool:
        """Whether nothing would end the wait of the code at hand, which is ``waiter``'s, for
        ``other``: that waits for this code."""
        if self.waits_for(other, waiter):
            return True
        reader = self._reader_of(waiter)[0]
        is_free = reader is not None and reader is not CURRENT_READER.get()
        reached = [(other, asks)]
        for run_id, is_asked in reached:
            if run_id == waiter:
                if not (is_asked and is_free):
                    return True
                continue  # Another task answers it.
            reached += [x for x in self._blocking(run_id, is_asked) if x not in reached]
        return False

    def _blocking(self, run_id: str, is_asked: bool) -> Iterator[tuple[str, bool]]:
        """What a run waits for before it is over, or, where it is asked, before it answers."""
        waits = [
            wait for wait in self._waits.get(run_id, ()) if wait.is_open is None or wait.is_open()
        ]
        if is_asked:
            reader, awaits_message = self._reader_of(run_id)
            if awaits_message:
                return
            if reader is not None:
                waits = [wait for wait in waits if wait.is_readers]
        for call in self._calls_of(run_id):
            yield call, False
        for wait in waits:
            yield wait.other, wait.is_ask


class Families:
    """The families of one runtime's runs."""

    __slots__ = (
        "_accounts", "_budgets", "_evicted", "_frames", "_hub", "_live", "_statuses", "waits",
    )  # fmt: skip

    def __init__(
        self, hub: Hub, budgets: TreeBudgets, accounts: TreeAccounts, live: LiveRuns
    ) -> None:
        self._hub = hub
        self._budgets = budgets
        self._accounts = accounts
        self._live = live
        self._evicted: dict[str, tuple[str, ...]] = {}
        """The children that runs wait for that have left memory meanwhile."""
        self._frames: dict[str, str] = {}
        """The same, of those that wait for a frame."""
        self.waits = WaitGraph(self._waited_by, live.reader_of)
        self._statuses: dict[str, dict[str, str]] = {}
        """By parent: what its children that stay say of themselves."""

    # ── coming and going ─────────────────────────────────────────────────────────────────────

    def evicted(self, run_id: str, thread: Thread) -> None:
        """A run leaves memory while it waits for its children."""
        self._evicted[run_id] = _waited_for(thread)
        if (call := thread.frame) is not None:
            self._frames[run_id] = call.child

    def came_back(self, run_id: str) -> None:
        self._evicted.pop(run_id, None)
        self._frames.pop(run_id, None)

    def ended(self, run_id: str) -> None:
        self._statuses.pop(run_id, None)

    def forget(self, run_id: str) -> None:
        """Another process has driven the run: what was known of it holds no more."""
        self.came_back(run_id)
        self._statuses.pop(run_id, None)

    def forget_unstarted(self, events: Iterable[e.Event]) -> None:
        """Release the values that were put away for children that were not started."""
        for event in events:
            if isinstance(event, e.AgentChild) and event.error and event.child_run_id:
                self._hub.addressing.drop_values(event.child_run_id)

    # ── statuses ─────────────────────────────────────────────────────────────────────────────

    def statuses_of(self, run_id: str) -> Mapping[str, str]:
        """What a run's children that stay say of themselves, by run id."""
        return self._statuses.get(run_id, {})

    def set_status(self, lane: OwnLane, thread: Thread) -> None:
        """A child says what it is at; its parent's next step sees it."""
        if lane.parent_run_id is not None and not thread.once:
            self._statuses.setdefault(lane.parent_run_id, {})[lane.run_id] = thread.status

    # ── read from the journal ────────────────────────────────────────────────────────────────

    async def load(self, loaded: LoadedRun, before: Thread | CodeThread | None = None) -> None:
        """Read what a run needs to know of its tree, its budget and its limits, and the statuses
        of its own children; ``before``: what it had come to before the events that are loaded."""
        info, journal = loaded.info, self._hub.journal
        started = [event for event in loaded.events if isinstance(event, e.AgentChild)]
        children = [event.child_run_id for event in started if event.resumable]
        if isinstance(before, Thread):
            children = [child.run_id for child in before.family.registry] + children
        if info.parent_run_id is not None or started or before is not None:
            is_own = self._hub.share.owns(info.root_run_id)
            await self._budgets.load(info.root_run_id, journal, is_own=is_own)
        await self._accounts.load(loaded, journal, before)
        known = self._statuses.get(info.run_id, {})
        for child in children:
            if child not in known and (status := await self._status_on_record(child)):
                self._statuses.setdefault(info.run_id, {}).setdefault(child, status)

    async def _status_on_record(self, run_id: str) -> str:
        try:
            thread = await thread_of(self._hub.journal, run_id)
            return thread.status if thread is not None else ""
        except Exception as error:  # A child that cannot be read does not stop its parent.
            log.warning("run.unreadable", run_id=run_id, error=str(error))
            return ""

    async def ancestors(self, loaded: LoadedRun) -> tuple[tuple[str, str], ...]:
        """The runs above, as the journal knows them.  Raises ``BadValue`` for a circle."""
        above = await runs_above(self._hub.journal, loaded.info)
        return tuple((info.run_id, info.agent) for info in above)

    async def lane_of(self, loaded: LoadedRun) -> OwnLane:
        """The pen of a run, as it was read."""
        info = loaded.info
        return OwnLane(
            self._hub.pipeline,
            run_id=info.run_id,
            root_run_id=info.root_run_id,
            parent_run_id=info.parent_run_id,
            agent=info.agent,
            seq=loaded.seq,
            ancestors=await self.ancestors(loaded),
        )

    async def look_at(self, run_id: str) -> tuple[OwnLane, Callable[[], Thread]] | None:
        """A run's lane and state: live while it is in memory, else as the journal has it."""
        run = self._live.find_model_run(run_id)
        if run is not None:
            live = run
            return live.lane, lambda: live.thread
        await self._hub.journal.flush()
        loaded, before = await load_model_run(self._hub.journal, run_id)
        if loaded is None:
            return None
        thread = fold_all(before or EMPTY, loaded.events)
        lane = await self.lane_of(loaded)
        await self.load(loaded, before)
        return lane, lambda: thread

    def seen_by(self, run_id: str) -> int:
        """The number of the last item in the inbox of a model run in memory; 0 for other runs."""
        run = self._live.find_model_run(run_id)
        return run.mail.seen if run is not None else 0

    # ── who has the conversation ─────────────────────────────────────────────────────────────

    def has_conversation(self, lane: OwnLane) -> bool:
        """Whether a frame is the one that its caller waits for, and so on down to the root.

        As far as is known in memory; who is not there is brought there by ``Supervisor.lend``.
        """
        frame = lane.run_id
        for run_id, _ in lane.ancestors:
            if self.frame_of(run_id) != frame:
                return False
            frame = run_id
        return frame == lane.root_run_id

    def frame_of(self, run_id: str) -> str:
        """The frame that a run in memory, or one that has left it while it waits, waits for."""
        run = self._live.find_model_run(run_id)
        if run is not None:
            call = run.thread.frame
            return call.child if call is not None else ""
        return self._frames.get(run_id, "")

    async def frame_on_record(self, run_id: str) -> str:
        """The same, of a run that need not have been in memory yet."""
        frame = self.frame_of(run_id)
        if frame or self._live.find_model_run(run_id) is not None:
            return frame
        thread = await thread_of(self._hub.journal, run_id)
        call = thread.frame if thread is not None else None
        return call.child if call is not None else ""

    # ── who waits for whom ───────────────────────────────────────────────────────────────────

    def interrupted_with(self, run_id: str) -> tuple[str, ...]:
        """The runs that an interruption of ``run_id`` reaches: those that it waits for."""
        found: list[str] = [run_id]
        for each in found:
            found += [child for child in self._stopped_with(each) if child not in found]
        return tuple(found)

    def _stopped_with(self, run_id: str) -> tuple[str, ...]:
        """The children that an interruption of a run in memory, or gone from it, reaches."""
        run = self._live.find_model_run(run_id)
        if run is None:
            return (*self._waited_by(run_id), *self.awaited_by_code(run_id))
        over = [item.child_run_id for item in run.mail.kept if isinstance(item, e.SessionResult)]
        awaited = [child for _, child in run.thread.family.awaited if child not in over]
        return (*_waited_for(run.thread), *awaited)

    def awaited_by_code(self, run_id: str) -> tuple[str, ...]:
        """The children whose outcomes the function of a code agent's run awaits."""
        run = self._live.find(run_id)
        if run is None or not isinstance(run.thread, CodeThread):
            return ()
        return tuple([x for x in self.waits.directly(run_id) if x in run.thread.children])

    async def interrupted_elsewhere(self, run_id: str, seq: int) -> tuple[str, ...]:
        """The same, of a run that another process drives: as the store has it at the item with
        this number in its inbox, by calls of models alone."""
        journal = self._hub.journal
        until = await journal.position(run_id, "in", seq)
        found = [run_id]
        for each in found:
            events: list[e.Event] = []
            position, end = 0, until or journal.tip
            selection = Selection(run_id=each)
            while position < end:
                page, position = await journal.read(selection, after=position, until=end)
                events += [event for event in page if event.lane == "own"]
            thread = fold_all(EMPTY, events)
            waited = (*_waited_for(thread), *(child for _, child in thread.family.awaited))
            found += [child for child in waited if child not in found]
        return tuple(found)

    def waits_for(self, run_id: str, other: str) -> bool:
        """Whether ``run_id`` waits, maybe through others, for an outcome of ``other``."""
        return self.waits.waits_for(run_id, other)

    async def read_waits(self, run_id: str) -> None:
        """Read what the runs wait for by calls that ``run_id`` may wait for and that have not been
        in memory since the store was opened."""
        journal, read = self._hub.journal, set[str]()
        while True:
            unread = [x for x in self.waits.reached(run_id) if not (x in read or self._is_known(x))]
            if not unread:
                return
            for each in unread:
                read.add(each)
                info = await journal.info(each)
                if info is None or info.status != "waiting":
                    continue
                thread = await thread_of(journal, each)
                if thread is not None and not self._is_known(each):
                    self._evicted[each] = _waited_for(thread)

    def _is_known(self, run_id: str) -> bool:
        return self._live.find(run_id) is not None or run_id in self._evicted

    def _waited_by(self, run_id: str) -> tuple[str, ...]:
        run = self._live.find_model_run(run_id)
        return _waited_for(run.thread) if run is not None else self._evicted.get(run_id, ())


def _waited_for(thread: Thread) -> tuple[str, ...]:
    """The children that a run waits for."""
    calls = thread.open.calls if thread.open is not None else ()
    waited = [call.child for call in calls if call.status == "waiting" and call.child]
    waited += [start.child for start in thread.family.starts if start.status == "waiting"]
    return tuple(dict.fromkeys(waited))
