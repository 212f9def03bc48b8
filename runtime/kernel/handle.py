"""``Run``: a handle on a run, for the code that started it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, Self, TypeVar, overload

from hubbub.agents.definitions.output import Output_co
from hubbub.hub.delivery.patterns import Pattern
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.events import AgentComplete, Event
from hubbub.hub.message import Sayable
from hubbub.hub.near_misses import ToldAttributes
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import RunInfo
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.kernel.outcomes import Outcomes

__all__ = ["Run"]


_ELSEWHERE: Final = dict.fromkeys(
    ("output", "text", "answer", "response"), "(await run.result()).output"
) | {
    "id": "run.run_id",
    "outcome": "await run.result()",
    "success": "(await run.result()).success",
    "usage": "(await run.result()).usage",
    "wait": "await run.result()",
    "status": "(await rt.state_at(run.run_id)).status",
    "cancel": "run.interrupt(), or run.terminate()",
    "stop": "run.interrupt(), run.close() or run.terminate()",
    "stream": "run.events(…)",
    "subscribe": "run.events(…)",
}

E = TypeVar("E", bound=Event)
E2 = TypeVar("E2", bound=Event)


class Run(ToldAttributes, Generic[Output_co]):
    """A run, by its id; of ``Run[T]`` the outcomes' output is a ``T``.  Any number of handles on
    one run may exist; none keeps it alive.

    ``send``, ``interrupt``, ``close`` and ``terminate`` act at the call, awaited or not; awaiting
    the receipt waits until what became of it is on record.
    """

    __slots__ = (
        "_hub",
        "_is_read",
        "_outcomes",
        "_readers",
        "agent",
        "created",
        "cursor",
        "duplicate",
        "is_root",
        "on_left",
        "on_read",
        "run_id",
    )

    _elsewhere = _ELSEWHERE

    def __init__(
        self, outcomes: Outcomes, run_id: str, agent: str, cursor: str = "", *, is_root: bool = True
    ) -> None:
        self._outcomes = outcomes
        self._hub = outcomes.hub
        self.on_read: Callable[[], object] | None = None
        """Called before the run's outcome is first asked for, and again after ``on_left``."""
        self.on_left: Callable[[bool], object] | None = None
        """Called when nobody asks any longer, with whether anybody has the outcome."""
        self._readers = 0
        self._is_read = False
        self.run_id = run_id
        self.agent = agent
        self.is_root = is_root
        self.cursor = cursor
        """The cursor after the run's ``session:open``."""
        self.created = False
        """Whether ``start`` has begun it; a run that it has found keeps its history and tools."""
        self.duplicate = False
        """Whether ``start`` has added nothing: it was the same start, or message, as before."""

    @classmethod
    def of(cls, outcomes: Outcomes, info: RunInfo) -> Self:
        """A handle on a run that the store knows."""
        return cls(outcomes, info.run_id, info.agent, is_root=info.parent_run_id is None)

    async def result(self) -> RunOutcome[Output_co]:
        """The latest session's outcome, once everything accepted so far is handled.

        Returns when a model run is idle with an empty inbox, or the run has ended (a code run:
        only then); never waits for a terminal event that need not come.  While a takeover frame has
        the conversation and waits for the user, the outcome is that frame's, and ``run_id`` says
        so.  Raises ``Closed`` when the runtime is left, ``UnknownRun`` when the run is no longer
        kept.
        """
        self.will_read()
        return await self._read(self._outcomes.result(self.run_id))

    async def finished(self) -> RunOutcome[Output_co]:
        """Wait for the terminal event."""
        self.will_read()
        return await self._read(self._outcomes.finished(self.run_id))

    async def ask(self, message: Sayable, *, source: str = "") -> RunOutcome[Output_co]:
        """Send a message and wait for the turn that takes it: returns how that ended.

        The outcome is that of the session which took this message, whoever else speaks meanwhile;
        of messages that one session takes together, each gets the same.  In a conversation with a
        takeover frame the frame on top answers, and ``run_id`` says so; a turn that gives the
        conversation to a frame, or takes it back, is over when the conversation waits for the user.

        A message that was accepted before under its ``key`` (and ``source``), also before a
        restart, is not sent again while the run lives: its turn's outcome is returned.  Where the
        turn asks the user something itself, this waits for the answer to that.

        Raises what a rejected receipt does (``UnknownRun``, ``RunEnded``, ``CallerError`` with its
        reason, ``Closed``); ``RunEnded`` if the run ends before a turn has taken the message;
        ``CallerError`` for a code agent's run, which has no turns (``hub.ask`` asks one), and for a
        message that was taken by a turn that has gone with the run's old ones (``Retention``);
        ``Closed`` when the runtime is left.  A caller that is cancelled leaves the message sent.
        """
        self.will_read()
        return await self._read(self._outcomes.ask(self.run_id, message, source))

    @overload
    def events(self, kind: type[E], /, *, lossless: bool = True) -> EventStream[E]: ...
    @overload
    def events(
        self, kind: tuple[type[E], type[E2]], /, *, lossless: bool = True
    ) -> EventStream[E | E2]: ...
    @overload
    def events(
        self, kind: tuple[type[E], ...] | list[type[E]], /, *, lossless: bool = True
    ) -> EventStream[E]: ...
    @overload
    def events(
        self, kind: Sequence[type[Event]], /, *, lossless: bool = True
    ) -> EventStream[Event]: ...
    @overload
    def events(self, kind: Pattern = "*", /, *, lossless: bool = True) -> EventStream[Event]: ...

    def events(self, kind: Any = "*", /, *, lossless: bool = True) -> EventStream[Any]:
        """The run's events from its beginning on, as a stream; of a root with its whole tree's.

        All, or those of a class, of several, or of a pattern, as ``hub.subscribe`` takes them.
        Ends after the run's terminal event.  Past durable events come from the journal; of an
        answer under way the text so far comes in one piece, then the rest.
        """
        run_id = self.run_id
        self.will_read()
        return self._hub.subscribe_until(
            kind,
            lambda event: (
                isinstance(event, AgentComplete) and event.run_id == run_id and event.lane == "own"
            ),
            (AgentComplete,),
            run_id=None if self.is_root else run_id,
            root_run_id=run_id if self.is_root else None,
            after=self.cursor or "start",
            lossless=lossless,
            partial=True,
        )

    def will_read(self) -> None:
        """Say that what the run comes to is asked for here, before that is done."""
        self._outcomes.check_home()
        on_read, self.on_read = self.on_read, None
        if on_read is not None:
            on_read()
        self._readers += 1

    def has_read(self, is_read: bool) -> None:
        """Say that one who has asked for what the run comes to has it, or asks no longer."""
        self._readers -= 1
        self._is_read |= is_read
        if not self._readers and self.on_left is not None:
            self.on_left(self._is_read)

    async def _read(self, outcome: Awaitable[RunOutcome[Output_co]]) -> RunOutcome[Output_co]:
        """The outcome, now that its reader has said so."""
        try:
            read = await outcome
        except BaseException:
            self.has_read(False)
            raise
        self.has_read(True)
        return read

    def send(self, message: Sayable) -> Receipt:
        """Send a message to this run."""
        return self._hub.send_to_run(self.run_id, message)

    def interrupt(self, reason: str = "") -> Receipt:
        """Interrupt the turn at work."""
        return self._hub.interrupt(self.run_id, reason)

    def close(self, reason: str = "") -> Receipt:
        """Accept no more messages, handle what waits, then end the run."""
        return self._hub.close_run(self.run_id, reason)

    def terminate(self, reason: str = "") -> Receipt:
        """End the run and its live descendants now and permanently; the receipt lists them."""
        return self._hub.terminate(self.run_id, reason)

    async def read(self) -> list[Event]:
        """The run's durable events so far."""
        return await self._hub.read(self.run_id)

    def __repr__(self) -> str:
        return f"<Run {self.agent} {self.run_id}>"
