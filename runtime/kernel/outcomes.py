"""``Outcomes``: waiting for what a run comes to.

result    ended, or idle with an empty inbox     ─┐  the journal is asked anew each time the
finished  ended                                  ─┴► run has left memory (``changed``)
ask       the turn that took a message is over   ───► the events of the run's tree say so
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, TypeAlias

import anyio

from hubbub.agents.asked_turn import TURN_TYPES, AskedTurn
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub import events as e
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    Closed,
    OperatorError,
    RunEnded,
    StoreFailed,
    UnknownRun,
    WaitCycle,
)
from hubbub.hub.events import Ending, Event, InLane
from hubbub.hub.events.identities import identity_of
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message, Sayable, session_message
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.cursor import is_cut, place, seq_of
from hubbub.hub.store.journal import RunInfo, Selection
from hubbub.hub.texts import check_label
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.kernel.outcome import RunOutcome, outcome_of
from hubbub.runtime.kernel.phase import Phase
from hubbub.runtime.spending.accounts import TreeAccounts

__all__ = ["Outcomes", "Supervision"]

Met: TypeAlias = Callable[[RunInfo], Awaitable[RunInfo | None]]
"""Whose outcome is returned, once a run is as it is waited for."""

Look: TypeAlias = Callable[[], Awaitable[RunOutcome | None]]
"""The outcome that is waited for, once it is there."""


class Supervision(Protocol):
    """What only the supervisor of runs knows."""

    def is_busy(self, run_id: str) -> bool:
        """Whether the run is in memory or on its way there."""
        ...

    def refusal_to_go_on(self, run_id: str) -> OperatorError | None:
        """Why a run does not continue while this runtime is open."""
        ...

    def found_damage(self, run_id: str, error: Exception) -> None:
        """The record of a run that is not in memory cannot be read."""
        ...

    def is_reported(self, run_id: str) -> bool:
        """Whether the run cannot be read, and its parent is told that it has failed."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Inside, the current code only waits for what other runs do."""
        ...


class Outcomes:
    """The outcomes of one runtime's runs, and the tasks that wait for them."""

    __slots__ = (
        "_accounts", "_definitions", "_families", "_live", "_phase", "_supervision", "_waits",
        "_watchers", "hub",
    )  # fmt: skip

    def __init__(
        self,
        hub: Hub,
        definitions: Definitions,
        phase: Phase,
        live: LiveRuns,
        families: Families,
        accounts: TreeAccounts,
    ) -> None:
        self.hub = hub
        self._definitions = definitions
        self._phase = phase
        self._live = live
        self._families = families
        self._accounts = accounts
        self._supervision: Supervision
        self._watchers: dict[str, list[anyio.Event]] = {}
        self._waits: dict[str, list[Callable[[], bool]]] = {}
        """By run: for each task of its code that waits for another run, whether that reported."""

    def supervised_by(self, supervision: Supervision) -> None:
        """Name the supervisor; before anything is waited for."""
        self._supervision = supervision

    def check_home(self) -> None:
        """Raise ``WrongThread`` or ``WrongLoop`` outside of the loop that opened the runtime."""
        self._phase.check_home()

    def changed(self, run_id: str) -> None:
        """A run has left memory: each task that waits for it looks again."""
        for event in self._watchers.get(run_id, ()):
            event.set()
        if self._phase.is_leaving:
            self._phase.progressed()

    def waits(self, run_id: str) -> int:
        """How many tasks of a run's code wait for another run that has not reported yet."""
        return sum(not is_heard() for is_heard in self._waits.get(run_id, ()))

    @contextmanager
    def waiting(self, is_heard: Callable[[], bool]) -> Iterator[None]:
        """Inside, the caller, if it is a run's, waits for another until ``is_heard``."""
        waiter = CURRENT_RUN.get()
        if not waiter:
            yield
            return
        waits = self._waits.setdefault(waiter, [])
        waits.append(is_heard)
        if self._phase.is_leaving:
            self._phase.progressed()
        try:
            yield
        finally:
            waits.remove(is_heard)
            if not waits:
                self._waits.pop(waiter, None)

    def close(self) -> None:
        """Everything that is waited for looks again: nothing will change any more."""
        for events in self._watchers.values():
            for event in events:
                event.set()

    async def result(self, run_id: str) -> RunOutcome:
        """See ``Run.result``."""
        self.check_home()
        check_label("run_id", run_id)
        return await self._wait_for(run_id, self._settled)

    async def finished(self, run_id: str) -> RunOutcome:
        """See ``Run.finished``."""
        self.check_home()
        check_label("run_id", run_id)
        return await self._wait_for(run_id, self._over)

    async def ask(self, run_id: str, message: Sayable, source: str = "") -> RunOutcome:
        """See ``Run.ask``."""
        self.check_home()
        check_label("run_id", run_id)
        session_message(message, source=source)  # What is no message is refused before all else.
        await self.hub.journal.flush()  # It may have been started just now.
        info = await self._known(run_id)
        definition = self._definitions.find_agent(info.agent)
        if definition is not None and definition.is_code:
            raise CallerError(
                f"run {run_id} is a code agent's, which has no turns: use hub.ask(run_id, …), "
                "which it answers by ctx.hub.reply, or send and wait for result()"
            )
        turn = AskedTurn(run_id)

        def see(event: Event) -> None:
            if not turn.is_over:
                turn.see(event)
                if turn.is_over:
                    self.changed(run_id)

        await self.read_waits(run_id)
        with (
            self.expecting(run_id),
            self.hub.subscribe(TURN_TYPES, see, root_run_id=info.root_run_id),
        ):
            receipt = await self.hub.send_to_run(run_id, message, source=source)
            receipt.raise_if_rejected()
            if receipt.duplicate:  # It may have been taken long ago.
                if receipt.cursor and await self._has_gone(run_id, receipt.cursor):
                    what = "the turn that took this message has gone with the run's old turns"
                    raise CallerError(f"run {run_id}: {what}; ask again with another key")
                past = await self.hub.read(root_run_id=info.root_run_id, types=TURN_TYPES)
                turn.expect(_by_key(message, source), past)
            else:
                turn.expect(_by_number(receipt))
            return await self._watch(run_id, lambda: self._answer(turn))

    async def _has_gone(self, run_id: str, cursor: str) -> bool:
        """Whether an item, or what came behind it, has gone with old turns of its run."""
        journal = self.hub.journal
        found = await place(journal, cursor)
        return found is None or await is_cut(journal, Selection(run_id=run_id), found)

    async def _known(self, run_id: str) -> RunInfo:
        info = await self.hub.journal.info(run_id)
        if info is None:
            raise UnknownRun(run_id)
        return info

    async def _wait_for(self, run_id: str, is_met: Met) -> RunOutcome:
        async def look() -> RunOutcome | None:
            met = await is_met(await self._known(run_id))
            return None if met is None else await self._outcome(met)

        await self.read_waits(run_id)
        with self.expecting(run_id):
            return await self._watch(run_id, look)

    @contextmanager
    def expecting(self, run_id: str) -> Iterator[None]:
        """Inside, the code at hand only waits for what the run does.  Raises ``WaitCycle``."""
        waiter = CURRENT_RUN.get()
        waits = self._families.waits
        if waiter and (waiter == run_id or waits.closes(waiter, run_id)):
            raise WaitCycle(waiter, run_id)
        with (
            self._supervision.waiting(),
            waits.waiting(waiter, run_id) if waiter else nullcontext(),
        ):
            yield

    def waiter_of(self, asker: str) -> str:
        """Whose code is to wait for an answer: the run's that asks, or the one at hand."""
        return asker or CURRENT_RUN.get()

    @contextmanager
    def asking(self, asker: str, asked: str, is_open: Callable[[], bool]) -> Iterator[None]:
        """Inside, a run, or the code at hand, waits for an answer while ``is_open``.  Raises
        ``WaitCycle``."""
        waiter, waits = self.waiter_of(asker), self._families.waits
        if (asker and asker == asked) or waits.closes(waiter, asked, asks=True):
            raise WaitCycle(waiter, asked)
        with waits.waiting(waiter, asked, asks=True, is_open=is_open):
            yield

    async def read_waits(self, run_id: str) -> None:
        """Read what is on record of what a run waits for, if a run's code is about to wait."""
        if CURRENT_RUN.get():
            await self._families.read_waits(run_id)

    async def _watch(self, run_id: str, look: Look) -> RunOutcome:
        await self.hub.journal.flush()
        while True:
            # Watched before it is looked at: what happens in between is not missed.
            changed = anyio.Event()
            self._watchers.setdefault(run_id, []).append(changed)
            try:
                if (outcome := await look()) is not None:
                    return outcome
                if (error := self._supervision.refusal_to_go_on(run_id)) is not None:
                    raise error
                if self._phase.is_gone or self.hub.is_closed:
                    remedy = "the run goes on when a runtime is opened on its store"
                    raise Closed("the runtime", remedy)
                self.hub.check_store()  # Nothing will change any more.
                with self.waiting(changed.is_set):
                    await changed.wait()
            finally:
                watchers = self._watchers.get(run_id)
                if watchers is not None and changed in watchers:
                    watchers.remove(changed)
                    if not watchers:
                        del self._watchers[run_id]

    async def _over(self, info: RunInfo) -> RunInfo | None:
        return info if info.status == "ended" else None

    async def _settled(self, info: RunInfo) -> RunInfo | None:
        """The run whose outcome it is, once nothing more is to be expected.

        A conversation rests when the frame that has it waits for the user.
        """
        if info.status == "ended":
            return info
        has_mail = False
        seen = {info.run_id}
        while info.status == "waiting":
            frame = await self._frame_of(info)
            if frame in seen:
                raise OperatorError(
                    f"run {info.run_id}: its takeover frames form a circle; run `hubbub fsck`, "
                    "and restore the store from a backup"
                )
            seen.add(frame)
            above = await self.hub.journal.info(frame) if frame else None
            if above is None or self._supervision.is_reported(above.run_id):
                return None
            if (error := self._supervision.refusal_to_go_on(above.run_id)) is not None:
                raise error
            has_mail = has_mail or (info.waiting > 0 and not self._has_only_its_own(info.run_id))
            info = above
        is_idle = info.status == "parked" and not (info.waiting or has_mail)
        return info if is_idle and not self._supervision.is_busy(info.run_id) else None

    async def _frame_of(self, info: RunInfo) -> str:
        """The frame that a run waits for; none where its record turns out to be damaged."""
        try:
            return await self._families.frame_on_record(info.run_id)
        except (BadValue, StoreFailed) as error:
            if self.hub.journal.failure or not self.hub.share.owns(info.root_run_id):
                raise
            self._supervision.found_damage(info.run_id, error)
            return ""

    def _has_only_its_own(self, run_id: str) -> bool:
        """Whether a run that waits for a frame has mail, but none that is taken meanwhile."""
        run = self._live.find_model_run(run_id)
        return run is not None and run.is_idle and not run.mail.said

    async def _answer(self, turn: AskedTurn) -> RunOutcome | None:
        """How a turn ended, if it is over.  Raises ``RunEnded`` where none took the message."""
        if turn.lost:
            raise RunEnded(turn.run_id, turn.lost)
        if turn.is_given_back and await self._settled(await self._known(turn.run_id)):
            turn.rest()
        last = turn.ending
        if last is None:
            return None
        tree = await self._accounts.spent_by(await self._known(last.run_id), self.hub.journal)
        session = last.session if isinstance(last, e.SessionEnd) else 0
        form = self._definitions.outputs.get(last.agent)
        return outcome_of(last.run_id, last, session, form, tree)

    async def _outcome(self, info: RunInfo) -> RunOutcome:
        wanted = (e.SessionEnd.type, e.AgentComplete.type)
        last = await self.hub.journal.latest(info.run_id, wanted)
        if last is None and info.status == "ended":  # It has gone since.
            raise UnknownRun(info.run_id)
        if not isinstance(last, Ending):
            last = e.SessionEnd(session=0)
        session = last.session if isinstance(last, e.SessionEnd) else 0
        tree = await self._accounts.spent_by(info, self.hub.journal)
        form = self._definitions.outputs.get(info.agent)
        return outcome_of(info.run_id, last, session, form, tree)


def _by_key(message: Sayable, source: str) -> Callable[[InLane], bool]:
    """Whether an item is the message that was accepted before under that key."""
    key = message.key if isinstance(message, Message) else None

    def is_it(item: InLane) -> bool:
        said = isinstance(item, e.SessionMessage | e.SessionOpen)
        return said and key is not None and identity_of(item) == (source, key)

    return is_it


def _by_number(receipt: Receipt) -> Callable[[InLane], bool]:
    """Whether an item is the one that was accepted."""
    seq = seq_of(receipt.cursor)
    return lambda item: item.seq == seq
