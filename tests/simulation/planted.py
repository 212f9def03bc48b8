"""Bugs to plant in the real library, one at a time: what the simulation must find.

Each is a context manager that changes one place, as somebody might have written it, and nothing
else.  ``PLANTED`` has them by name; ``WORLDS`` says how many it may take to find each.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from msgspec import structs
from simulation.planted_answers import answered_twice
from simulation.planted_turns import TURNS, WORLDS_OF_TURNS

from hubbub.agents.definitions.variables import resolve
from hubbub.agents.state.call_order import CallOrder
from hubbub.agents.state.family import Family, with_results
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn import calls, endings, interpret
from hubbub.agents.turn import intake as taking
from hubbub.agents.turn.hook_events import HookEvent, hook_events_of
from hubbub.agents.turn.prompt_endings import with_prompt_ends
from hubbub.agents.turn.signals import Decision, Signal
from hubbub.hub import events as e
from hubbub.hub.addressing import Addressing
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.events import Event, InLane, SessionMessage
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.store import inbox_rules
from hubbub.hub.store.journal import Commit, FoundTree, NewRun
from hubbub.hub.store.memory_rows import MemoryRows
from hubbub.hub.store.reader import RunRow, StoreReader
from hubbub.runtime.activities.hooks import filtered_result
from hubbub.runtime.kernel.deliveries import deliveries_of
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.mailbox import Mailbox
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.schedules.scheduler import _Served
from hubbub.runtime.spending.accounts import TreeAccounts
from hubbub.runtime.stores.retention.trees import ended_page, last_trees
from hubbub.runtime.stores.sql.rows import StoredRows
from hubbub.runtime.supervision.loader import Loader
from hubbub.runtime.supervision.ready import ReadyRuns
from hubbub.runtime.timelines.cut import CutTree, _Cut
from hubbub.runtime.timelines.fork import ForkedAs, forked

__all__ = ["PLANTED", "WORLDS", "Plant"]

Plant: TypeAlias = Callable[[], AbstractContextManager[Any]]


# ── what is accepted ─────────────────────────────────────────────────────────────────────────


@contextmanager
def ack_before_commit() -> Iterator[None]:
    """The receipt of a message is settled when it is handed to the store."""
    submit = Pipeline.submit

    def submit_early(pipeline: Pipeline, commit: Commit) -> None:
        if commit.receipt is not None and isinstance(commit.deliveries[0].event, SessionMessage):
            commit.receipt.settle("accepted")
        submit(pipeline, commit)

    with patch.object(Pipeline, "submit", submit_early):
        yield


@contextmanager
def missing_dedupe() -> Iterator[None]:
    """Nobody looks whether a message was accepted before, under its source and key."""

    def judge(row: Any, delivery: Any, known: Event | None) -> bool:
        return inbox_rules.judge(row, delivery, None)

    with patch("hubbub.hub.store.ledger.judge", judge):
        yield


@contextmanager
def second_agent() -> Iterator[None]:
    """An opening by a descriptor looks for no agent that stands for it already."""
    with ExitStack() as stack:
        for rows in (MemoryRows, StoredRows):
            stack.enter_context(patch.object(rows, "opened", _by_key(rows)))
        yield


def _by_key(rows: type[Any]) -> Callable[[Any, NewRun], str | None]:
    opened = rows.opened
    return lambda self, new: None if new.by_descriptor else opened(self, new)


@contextmanager
def message_out_of_order() -> Iterator[None]:
    """A message that comes while another one waits is put before it."""
    put = Mailbox.put

    def put_first(mailbox: Mailbox, item: InLane) -> None:
        count = len(mailbox.messages)
        put(mailbox, item)
        if len(mailbox.messages) > max(count, 1):
            mailbox.messages[-2:] = mailbox.messages[-1], mailbox.messages[-2]

    with patch.object(Mailbox, "put", put_first):
        yield


@contextmanager
def lost_wake_up() -> Iterator[None]:
    """What comes while a run is about to park is left to whoever wakes it next: nobody."""
    wake = ModelRun.wake

    def wake_late(run: ModelRun, item: InLane) -> None:
        if not run.thread.parked:
            wake(run, item)

    with patch.object(ModelRun, "wake", wake_late):
        yield


@contextmanager
def lost_while_read() -> Iterator[None]:
    """What comes while a run is being read from the store is not kept for it."""

    def takes(loader: Loader, item: InLane) -> bool:
        return item.run_id in loader.loading

    with patch.object(Loader, "takes", takes):
        yield


# ── what is written ──────────────────────────────────────────────────────────────────────────


@contextmanager
def pop_then_inject() -> Iterator[None]:
    """The end of a child is one commit, and what its parent is told of it another."""
    append = OwnLane.append

    def append_twice(lane: OwnLane, events: Any, **options: Any) -> Commit:
        mail = options.pop("deliveries", ())
        told = [x for x in mail if isinstance(x.event, e.SessionResult)]
        rest = [x for x in mail if not isinstance(x.event, e.SessionResult)]
        commit = append(lane, events, deliveries=tuple(rest), **options)
        for each in told:
            lane.pipeline.submit(Commit(deliveries=(each,)))
        return commit

    with patch.object(OwnLane, "append", append_twice):
        yield


@contextmanager
def terminal_twice() -> Iterator[None]:
    """Who is terminated writes its end, and so does its last session."""

    def end_twice(*args: Any, **options: Any) -> Decision:
        decision = endings.end_run(*args, **options)
        return structs.replace(decision, events=(*decision.events, decision.events[-1]))

    with patch.object(taking, "end_run", end_twice):
        yield


@contextmanager
def orphan_tool_use() -> Iterator[None]:
    """An interruption leaves open calls without results."""

    def interruption(thread: Any, reason: str) -> list[Event]:
        found = endings.interruption(thread, reason)
        return [event for event in found if not isinstance(event, e.AgentToolComplete)]

    with patch.object(taking, "interruption", interruption):
        yield


@contextmanager
def refired_cron() -> Iterator[None]:
    """That a tick is handled is noted after it was fired, not with it."""
    commit = _Served._commit

    async def commit_then_note(loop: Any, events: Any, deliveries: Any = ()) -> None:
        if not deliveries:
            await commit(loop, events)
            return
        unnoted = SimpleNamespace(add_to=lambda *_: None, check=loop._record.check)
        with patch.object(loop, "_record", unnoted):  # Of this one: a world may end meanwhile.
            await commit(loop, events, deliveries)
        loop._write_note()

    with patch.object(_Served, "_commit", commit_then_note):
        yield


@contextmanager
def lent_twice() -> Iterator[None]:
    """A frame takes what was said to its conversation, and leaves it waiting there."""
    append = OwnLane.append

    def append_alone(lane: OwnLane, events: Any, **options: Any) -> Commit:
        return append(lane, events, **{**options, "lent": ()})

    with patch.object(OwnLane, "append", append_alone):
        yield


# ── what others see ──────────────────────────────────────────────────────────────────────────


@contextmanager
def registry_stuck_on_running() -> Iterator[None]:
    """A child that has finished its session is not noted as idle."""
    set_status = Families.set_status

    def set_running(families: Families, lane: OwnLane, thread: Any) -> None:
        if thread.status != "idle":
            set_status(families, lane, thread)

    with patch.object(Families, "set_status", set_running):
        yield


@contextmanager
def scoped_value_leaked() -> Iterator[None]:
    """The values that a run is opened with are put away, and stay in the event as well."""
    put_away = Addressing._put_away

    def put_away_a_copy(
        book: Addressing, run_id: str, event: e.SessionOpen, *, drop: bool = False
    ) -> e.SessionOpen:
        put_away(book, run_id, event, drop=drop)
        return event

    with patch.object(Addressing, "_put_away", put_away_a_copy):
        yield


@contextmanager
def subscriber_gap_untold() -> Iterator[None]:
    """A stream that fell behind goes on as if nothing were missing."""
    reach_gap = EventStream._reach_gap

    def go_on(stream: EventStream) -> Any:
        gap = reach_gap(stream)
        if gap is not None:
            stream._room = stream._limit
        return None

    with patch.object(EventStream, "_reach_gap", go_on):
        yield


@contextmanager
def heard_before_written() -> Iterator[None]:
    """Listeners are told of an event when it is handed to the store."""
    submit = Pipeline.submit

    def tell_early(pipeline: Pipeline, commit: Commit) -> None:
        early = [event for event in commit.events if isinstance(event, e.AgentText)]
        pipeline.dispatcher.dispatch(early)
        submit(pipeline, commit)

    with patch.object(Pipeline, "submit", tell_early):
        yield


# ── who ends ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def cascade_missed() -> Iterator[None]:
    """Who is terminated does not terminate its children."""

    def without_ends(mail: Any, lane: OwnLane, services: Services) -> Any:
        left = [(to, event) for to, event in mail if not isinstance(event, e.SessionTerminate)]
        return deliveries_of(left, lane, services)

    with (
        patch("hubbub.runtime.runs.model_run.deliveries_of", without_ends),
        patch("hubbub.runtime.runs.code_run.deliveries_of", without_ends),
    ):
        yield


@contextmanager
def end_passes_a_termination() -> Iterator[None]:
    """A run ends by itself though it has been terminated: that it has not seen yet."""
    with patch("hubbub.hub.store.ledger.is_overtaken", lambda row, commit: False):
        yield


@contextmanager
def end_unreported() -> Iterator[None]:
    """A run that ends while it is idle tells its parent nothing."""
    reported = endings.reported

    def only_sessions(before: Any, decision: Decision) -> Decision:
        is_over = any(isinstance(x, e.SessionEnd) for x in decision.events)
        return reported(before, decision) if is_over else decision

    with patch.object(interpret, "reported", only_sessions):
        yield


@contextmanager
def end_told_besides() -> Iterator[None]:
    """That a child is over is a dead letter, too, where its last session was reported."""

    def can_be_left_over(item: InLane) -> bool:
        return isinstance(item, e.SessionResult) or inbox_rules.can_be_left_over(item)

    with (
        patch("hubbub.hub.store.ledger.can_be_left_over", can_be_left_over),
        patch("hubbub.hub.delivery.dead_letters.can_be_left_over", can_be_left_over),
    ):
        yield


@contextmanager
def spawned_result_lost() -> Iterator[None]:
    """A child that a tool's code has left to itself is nobody's when the call ends."""

    def by_handle(family: Family, decided: Any, call: str) -> Family:
        return with_results(family, {**decided, "call": "handle"}, call)

    with patch("hubbub.agents.state.open_calls.with_results", by_handle):
        yield


@contextmanager
def only_errors_contained() -> Iterator[None]:
    """What a tool raises is taken for its own if it is an ``Exception``."""

    def is_error(error: BaseException, **_: Any) -> bool:
        return isinstance(error, Exception)

    with (
        patch("hubbub.runtime.activities.call_tool.is_contained", is_error),
        patch("hubbub.runtime.activities.perform.is_contained", is_error),
    ):
        yield


# ── hooks and variables ──────────────────────────────────────────────────────────────────────


@contextmanager
def hooks_skipped_for_failures() -> Iterator[None]:
    """What a call that failed came to is recorded as it is."""

    async def unless_failed(side: Any, state: Any, result: Any, run_id: str) -> Any:
        return result if result.is_error else await filtered_result(side, state, result, run_id)

    with patch("hubbub.runtime.activities.perform.filtered_result", unless_failed):
        yield


@contextmanager
def hooks_told_of_restored_runs() -> Iterator[None]:
    """A run that a new process goes on with is taken for one that has just been created."""

    def and_restored(before: Any, after: Any, events: Any, hooks: Any) -> Any:
        found = hook_events_of(before, after, events, hooks)
        is_restored = any(isinstance(x, e.AgentRestore) for x in events)
        point = "after_thread_created"
        if is_restored and point in hooks:
            return (*found, (point, HookEvent(None, hooks[point])))
        return found

    with patch("hubbub.runtime.runs.model_run.hook_events_of", and_restored):
        yield


@contextmanager
def scoped_value_inherited() -> Iterator[None]:
    """A scoped variable is looked for like any other, in every run above."""

    def unscoped(name: str, **ways: Any) -> str | None:
        return resolve(name, **{**ways, "is_scoped": False})

    with patch("hubbub.runtime.activities.environment.resolve", unscoped):
        yield


@contextmanager
def value_kept_in_memory() -> Iterator[None]:
    """What a run is given after it was opened is kept in its process alone."""
    kept: dict[tuple[Addressing, str, str], str] = {}
    value = Addressing.value

    def keep(
        book: Addressing, run_id: str, name: str, value: str, *, is_scoped: bool = False
    ) -> None:
        kept[book, run_id, name] = value
        book._mark(run_id, name, is_scoped=is_scoped)

    def find(book: Addressing, run_id: str, name: str) -> str | None:
        return kept.get((book, run_id, name)) or value(book, run_id, name)

    with patch.object(Addressing, "put_value", keep), patch.object(Addressing, "value", find):
        yield


# ── approvals ────────────────────────────────────────────────────────────────────────────────


@contextmanager
def asked_one_after_the_other() -> Iterator[None]:
    """Of the calls of a step that runs in order, the second is asked about when its turn comes."""

    def begin_calls(thread: Any, side: Any, held: Any = ()) -> list[Event]:
        found = calls.begin_calls(thread, side, held)
        if thread.open is None or thread.open.parallel:
            return found
        asked = [at for at, event in enumerate(found) if isinstance(event, e.SessionPrompt)]
        return found[: asked[0] + 1] if asked else found

    with patch("hubbub.agents.turn.steps.begin_calls", begin_calls):
        yield


@contextmanager
def approved_means_repeatable() -> Iterator[None]:
    """A call that was cut off is made again if it was approved: there was leave for it."""

    def lost_calls(thread: Any, side: Any) -> list[Event]:
        approved = {x.index for x in thread.open.calls if x.is_approved} if thread.open else set()
        found: list[Any] = [*calls.lost_calls(thread, side)]
        return [event for event in found if event.index not in approved]

    with patch("hubbub.agents.turn.recovery.lost_calls", lost_calls):
        yield


@contextmanager
def calls_found_by_number() -> Iterator[None]:
    """Code that is executed again finds its n-th child and answer, whatever it asks for."""
    begin = CallOrder.__init__

    def forgetful(order: CallOrder, recorded: Any = (), withdrawn: Any = ()) -> None:
        begin(order, [structs.replace(call, identity="") for call in recorded], withdrawn)

    with patch.object(CallOrder, "__init__", forgetful):
        yield


@contextmanager
def ends_wait_for_room() -> Iterator[None]:
    """What ends a run waits for its turn like everything else."""
    with patch.object(ReadyRuns, "end", lambda *_: None):
        yield


@contextmanager
def children_use_nothing() -> Iterator[None]:
    """What a child uses is not counted for its tree."""
    follow = TreeAccounts.follow

    def only_roots(accounts: TreeAccounts, lane: OwnLane, before: Any, thread: Any) -> None:
        if lane.parent_run_id is None:
            follow(accounts, lane, before, thread)

    with patch.object(TreeAccounts, "follow", only_roots):
        yield


# ── what goes, and what is forked ────────────────────────────────────────────────────────────


@contextmanager
def taken_from_the_living() -> Iterator[None]:
    """A pass has those runs of a tree go that have ended, whoever lives below them."""

    class Ended:
        def __init__(self, store: StoreReader) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def tree(self, root: str, **how: Any) -> list[Any]:
            return [row for row in self._store.tree(root, **how) if row.status == "ended"]

    def of_the_ended(store: StoreReader, *args: Any, **options: Any) -> Any:
        return ended_page(Ended(store), *args, **options)  # type: ignore[arg-type]

    with patch("hubbub.runtime.removal.passes.ended_page", of_the_ended):
        yield


@contextmanager
def last_counted_with_the_living() -> Iterator[None]:
    """What lives counts among the trees that ended last."""

    class Unliving:
        def __init__(self, store: StoreReader) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def tree(self, root: str, *, live: bool = False) -> Any:
            return () if live else self._store.tree(root)

    def without_looking(store: StoreReader, *args: Any, **options: Any) -> Any:
        return last_trees(Unliving(store), *args, **options)  # type: ignore[arg-type]

    with patch("hubbub.runtime.removal.passes.last_trees", without_looking):
        yield


@contextmanager
def silence_of_the_root() -> Iterator[None]:
    """A tree is silent as soon as its root is: nobody looks below it."""

    def of_root(store: StoreReader, root: RunRow, since: int) -> bool:
        if root.kind in ("cron", "heartbeat") or root.status != "parked" or root.waiting:
            return False
        return all(event.at <= since for event in store.lanes(root.run_id, 1, backwards=True))

    with patch("hubbub.runtime.stores.retention.trees.is_silent", of_root):
        yield


@contextmanager
def hole_untold() -> Iterator[None]:
    """A reader that is behind learns nothing of what goes before it has read it."""
    with patch.object(EventStream, "removed", lambda *_: None):
        yield


@contextmanager
def content_left_with_the_old() -> Iterator[None]:
    """A fork looks for its contents where the old run keeps them, until that goes."""

    async def leave(*_: Any) -> None:
        """Nothing is kept twice."""

    with patch("hubbub.runtime.timelines.forking._keep_contents", leave):
        yield


@contextmanager
def keys_not_forked() -> Iterator[None]:
    """A fork does not know under which keys its messages were accepted."""
    with patch("hubbub.runtime.timelines.fork._accepted", lambda events: {}):
        yield


@contextmanager
def children_report_to_the_old() -> Iterator[None]:
    """The children of a fork are those of the old run, as far as their store knows."""

    def as_before(cut: CutTree, given: ForkedAs, names: Any) -> FoundTree:
        tree = forked(cut, given, names)
        old = {after: before for before, after in names.items()}
        runs = [
            structs.replace(run, new=structs.replace(run.new, parent_run_id=old[above]))
            if (above := run.new.parent_run_id) is not None
            else run
            for run in tree.runs
        ]
        return structs.replace(tree, runs=runs)

    with patch("hubbub.runtime.timelines.forking.forked", as_before):
        yield


@contextmanager
def child_left_behind() -> Iterator[None]:
    """A fork has a child on record that was not begun yet, and is not begun with it."""
    with patch.object(_Cut, "_take_sent", lambda *_: None):
        yield


# ── frames ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def frame_beside_left() -> Iterator[None]:
    """Of frames that lie beside each other the one that has the conversation ends, alone."""

    def first(thread: Thread) -> tuple[str, ...]:
        frame = thread.frame
        return () if frame is None else (frame.child,)

    with patch.object(Thread, "frames", property(first)):
        yield


# ── what is remembered ───────────────────────────────────────────────────────────────────────


@contextmanager
def ends_folded_last() -> Iterator[None]:
    """What ends with a call is folded behind it, and recorded ahead of it."""

    def behind(thread: Thread, decision: Decision, signal: Signal) -> Decision:
        ended = with_prompt_ends(thread, decision, signal)
        if decision.after is None or ended is decision:
            return ended
        ends = [each for each in ended.events if all(each is not x for x in decision.events)]
        return structs.replace(ended, after=fold_all(decision.after, ends))

    with patch.object(interpret, "with_prompt_ends", behind):
        yield


@contextmanager
def summary_without_time() -> Iterator[None]:
    """A summary is folded before it is known when it is recorded."""
    with patch.object(interpret, "STAMPED", frozenset((e.SessionPrompt,))):
        yield


@contextmanager
def words_answer_what_came_later() -> Iterator[None]:
    """Of the clock alone it is known what was said before a question."""
    with patch.object(Families, "seen_by", lambda *_: 0):
        yield


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        ack_before_commit,
        calls_found_by_number,
        missing_dedupe,
        second_agent,
        pop_then_inject,
        lost_wake_up,
        terminal_twice,
        orphan_tool_use,
        registry_stuck_on_running,
        refired_cron,
        message_out_of_order,
        scoped_value_leaked,
        cascade_missed,
        ends_wait_for_room,
        end_passes_a_termination,
        subscriber_gap_untold,
        lost_while_read,
        lent_twice,
        heard_before_written,
        end_unreported,
        end_told_besides,
        spawned_result_lost,
        only_errors_contained,
        hooks_skipped_for_failures,
        hooks_told_of_restored_runs,
        scoped_value_inherited,
        value_kept_in_memory,
        asked_one_after_the_other,
        approved_means_repeatable,
        children_use_nothing,
        taken_from_the_living,
        last_counted_with_the_living,
        silence_of_the_root,
        hole_untold,
        content_left_with_the_old,
        keys_not_forked,
        children_report_to_the_old,
        child_left_behind,
        frame_beside_left,
        ends_folded_last,
        summary_without_time,
        words_answer_what_came_later,
        answered_twice,
    )
} | TURNS

WORLDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(PLANTED, 30),
    "cascade_missed": 60,
    "frame_beside_left": 60,
    "answered_twice": 90,
    "taken_from_the_living": 60,
    "hole_untold": 60,
    "last_counted_with_the_living": 120,
    "ends_wait_for_room": 120,
    "value_kept_in_memory": 90,
    "scoped_value_inherited": 120,
    "refired_cron": 80,
    "orphan_tool_use": 80,
    "words_answer_what_came_later": 120,
    "pop_then_inject": 200,
    "lost_while_read": 1_300,
    **WORLDS_OF_TURNS,
}
"""How many worlds it may take to find each, from seed 0 on."""
