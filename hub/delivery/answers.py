"""Answers under way: the text that models have written of them, for listeners that come late.

    a model's pieces ──► PartialAnswer ──► an event of each piece, while anybody listens
                            └─────► the text so far as one event, for a stream that begins

    an event of another process ──► PartialAnswer, as far as it is known here

* An ``PartialAnswer`` is one attempt at one step.  Its *blocks* are its text, and each part of its
  reasoning.
* It is under way from its first piece until the first record after its last one is dispatched.
* It is shown only behind what was recorded before it.
* Of a block that grows too long the end is kept; the offset shows that.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, field, structs

from hubbub.hub.events import AgentRestore, AgentTextDelta, AgentThinkingDelta, Event
from hubbub.hub.store.journal import Commit
from hubbub.hub.texts import text_problem

__all__ = [
    "KINDS",
    "MAX_KEPT",
    "Block",
    "DeltaEvent",
    "PartialAnswer",
    "PartialAnswers",
    "Place",
    "ReceivedText",
]

DeltaEvent: TypeAlias = AgentTextDelta | AgentThinkingDelta

Place: TypeAlias = tuple[type[AgentTextDelta] | type[AgentThinkingDelta], int]
"""The kind and the number of a block."""

KINDS: Final = (AgentTextDelta, AgentThinkingDelta)

MAX_KEPT: Final = 1_000_000
"""Code points kept of each block."""


class Numbered(Protocol):
    """The own lane of the run that is answered in."""

    @property
    def seq(self) -> int: ...


class _Recorded(Struct, frozen=True):
    """A lane as far as it is known."""

    seq: int


class Block(Struct, eq=False):
    """The text of one block so far, counted in code points."""

    about: DeltaEvent
    """A delta of it without text: what is the same in all of them."""
    pieces: list[str] = field(default_factory=list)
    start: int = 0
    """Where what is kept of it begins."""
    length: int = 0

    def limit(self) -> None:
        """Keep no more of it than may be kept."""
        if self.length - self.start > MAX_KEPT:
            self.pieces.clear()
            self.start = self.length

    def rest(self, offset: int) -> tuple[int, str]:
        """What is kept from ``offset`` on, and where that begins."""
        text = "".join(self.pieces)
        self.pieces[:] = (text,)
        begin = max(offset, self.start)
        return begin, text[begin - self.start :]


class PartialAnswer(Struct, eq=False):
    """One attempt of a model at one step of a run."""

    about: AgentTextDelta
    """A delta without text, which says whose answer it is and where in its run."""
    lane: Numbered
    blocks: dict[Place, Block] = field(default_factory=dict)
    ended_at: int | None = None
    """The run's last number when the model was done."""
    is_shown: bool = False
    """Whether what was recorded before it has been dispatched."""
    late: "list[Callable[[PartialAnswer], None]]" = field(default_factory=list)
    """Who waits for that."""

    def show(self) -> None:
        """What was recorded before it has been dispatched."""
        self.is_shown = True
        late, self.late = self.late, []
        for join in late:
            join(self)

    def block(self, place: Place) -> Block:
        """A block, which begins if it has not yet."""
        block = self.blocks.get(place)
        if block is not None:
            return block
        kind, number = place
        about: DeltaEvent = self.about
        if kind is not AgentTextDelta or number:
            about = kind(
                run_id=about.run_id, root_run_id=about.root_run_id,
                parent_run_id=about.parent_run_id, agent=about.agent, step=about.step,
                attempt=about.attempt, block=number, turn=about.turn, side=about.side,
                label=about.label,
            )  # fmt: skip
        block = self.blocks[place] = Block(about)
        return block

    def rest(self, place: Place, offset: int) -> DeltaEvent | None:
        """What there is of a block from ``offset`` on; ``None``: nothing, or nothing to show."""
        block = self.blocks[place]
        begin, text = block.rest(offset)
        if not text or (not text.isascii() and text_problem(text)):
            return None  # A reply that holds such a text will be refused.
        after = self.lane.seq if self.ended_at is None else self.ended_at
        return structs.replace(block.about, text=text, offset=begin, after_seq=after)


class PartialAnswers:
    """Those under way, by run: a code agent may hold several conversations at once.

    ``after_mail`` is that of the dispatcher.
    """

    __slots__ = ("_after_mail", "by_run", "uncommitted")

    def __init__(self, after_mail: Callable[[Callable[[], None]], None]) -> None:
        self._after_mail = after_mail
        self.by_run: dict[str, list[PartialAnswer]] = {}
        self.uncommitted: dict[str, Commit] = {}
        """The last commit about each run that the store has; the pipeline keeps it up to date."""

    def begin(self, about: AgentTextDelta, lane: Numbered) -> PartialAnswer:
        """One is under way; it may be shown when what is submitted of its run is dispatched."""
        commit = self.uncommitted.get(about.run_id)
        answer = PartialAnswer(about, lane, is_shown=commit is None)
        self.by_run.setdefault(about.run_id, []).append(answer)
        if commit is None:
            return answer
        before = commit.after

        def after(done: Commit) -> None:
            if before is not None:
                before(done)
            self._after_mail(answer.show)

        commit.after = after
        return answer

    def hear(self, event: DeltaEvent) -> None:
        """A piece of an answer that is written in another process; the next in order, or after some
        that are missing here: of that block the text from it on is known then."""
        answer = self.find(event)
        if answer is None:
            about = AgentTextDelta(
                run_id=event.run_id, root_run_id=event.root_run_id,
                parent_run_id=event.parent_run_id, agent=event.agent, step=event.step,
                attempt=event.attempt, turn=event.turn, side=event.side, label=event.label,
            )  # fmt: skip
            # Whatever is recorded next overtakes it.
            answer = PartialAnswer(about, _Recorded(event.after_seq), ended_at=event.after_seq)
            answer.is_shown = True
            self.by_run.setdefault(event.run_id, []).append(answer)
        block = answer.block((event.__class__, event.block))
        if event.offset != block.length:
            block.pieces.clear()
            block.start = event.offset
        block.pieces.append(event.text)
        block.length = event.offset + len(event.text)
        block.limit()

    def find(self, event: DeltaEvent) -> PartialAnswer | None:
        """The answer under way that a delta is a piece of."""
        for answer in reversed(self.by_run.get(event.run_id, ())):
            if answer.about.step == event.step and answer.about.attempt == event.attempt:
                return answer
        return None

    def within(self, run_id: str | None, root_run_id: str | None) -> Sequence[PartialAnswer]:
        """Those of a run, of a tree, or all."""
        lists = self.by_run.values() if run_id is None else (self.by_run.get(run_id, ()),)
        return [
            answer
            for each in lists
            for answer in each
            if root_run_id in (None, answer.about.root_run_id)
        ]

    def overtake(self, event: Event) -> None:
        """A record of a run that has answers under way is being dispatched."""
        is_anew = event.__class__ is AgentRestore
        left = []
        for answer in self.by_run[event.run_id]:
            if answer.ended_at is None or not (is_anew or event.seq > answer.ended_at):
                left += [answer]
        if left:
            self.by_run[event.run_id] = left
        else:
            del self.by_run[event.run_id]


Known: TypeAlias = tuple[PartialAnswer | None, int]
"""An answer, as far as it is under way, and how much of a block was given."""


class ReceivedText:
    """How much of each answer one stream has been given, so that it is given each part once.

    ``limit`` entries are kept, or twice as many as there are answers under way.
    """

    __slots__ = ("_answers", "_limit", "_reached")

    def __init__(self, answers: PartialAnswers) -> None:
        self._answers = answers
        self._limit = 64
        self._reached: dict[tuple[str, int, int, Place], Known] = {}

    def new_of(self, event: DeltaEvent) -> DeltaEvent | None:
        """What of a delta the stream has not had; with what it has missed, if that is known."""
        answer = self._answers.find(event)
        place = (event.__class__, event.block)
        known = self._reached.get((event.run_id, event.step, event.attempt, place))
        if answer is None and known is None:
            return event  # An agent's own, or a piece of what has been recorded since.
        reached = self._offset(known, answer)
        if event.offset + len(event.text) <= reached:
            return None
        if event.offset > reached and answer is not None:
            return answer.rest(place, reached)
        if event.offset < reached:
            return structs.replace(event, text=event.text[reached - event.offset :], offset=reached)
        return event

    def rest_of(self, answer: PartialAnswer, place: Place) -> DeltaEvent | None:
        """What of a block the stream has not had."""
        about = answer.about
        known = self._reached.get((about.run_id, about.step, about.attempt, place))
        return answer.rest(place, self._offset(known, answer))

    @staticmethod
    def _offset(
        known: tuple[PartialAnswer | None, int] | None, answer: PartialAnswer | None
    ) -> int:
        # A run that begins again from its journal makes the same attempt once more.
        if known is None or (answer is not None and known[0] is not answer):
            return 0
        return known[1]

    def give(self, event: DeltaEvent) -> None:
        """The stream has this delta now."""
        place = (event.__class__, event.block)
        end = event.offset + len(event.text)
        key = (event.run_id, event.step, event.attempt, place)
        answer = self._answers.find(event)
        if answer is None:
            answer = self._reached.get(key, (None, 0))[0]
        if answer is None:
            return
        self._reached[key] = answer, end
        if len(self._reached) > self._limit:
            by_run = self._answers.by_run
            self._reached = {
                key: known
                for key, known in self._reached.items()
                if known[0] in by_run.get(key[0], ())
            }
            self._limit = max(64, 2 * len(self._reached))
