"""``AgentTurn``: what became of one item in a run's inbox, and when that is over.

    in the inbox ──► taken ──► the session ends                     completed, failed, …
        │              │  ▲    the run ends                         failed, cancelled
        │     a frame has the  every call at work waits for people  completed: it is their turn
        │     conversation     a code agent asks for its next message
        └────────────────────► the same, asked since it came        completed: so it is

It sees the events of a whole tree in their order, live ones and those on record alike.  In which
commit an event was cannot be seen, but the events of one commit have one time; so whether
everything waits for people is asked where the next event is of another, and by ``settle`` where
nothing more is there.  Nothing continues from there but by what enters an inbox.
"""

from typing import Literal, TypeAlias

from hubbub.channels.http.openai.answers.pending_calls import PendingCalls
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.hub.events import (
    AgentComplete,
    AgentText,
    Ending,
    Event,
    SessionDropped,
    SessionEnd,
    SessionMessage,
    SessionPop,
    SessionPrompt,
    SessionPush,
    SessionReply,
    SessionStart,
    SessionTaken,
)

__all__ = ["AgentTurn", "TurnStatus"]

TurnStatus: TypeAlias = Literal["queued", "in_progress", "completed", "failed", "cancelled"]


class AgentTurn:
    """What became of the item that a ``ClientQuestion`` names.

    ``see`` every event behind the item, then ``settle`` where nothing more is there for now.
    """

    __slots__ = (
        "_at",
        "_ends",
        "_given_back",
        "_is_handled",
        "_is_popped",
        "_last_at",
        "_pending",
        "_question",
        "_spoke",
        "ended_at",
        "ending",
        "speakers",
        "status",
        "why",
    )  # fmt: skip

    def __init__(self, question: ClientQuestion, pending: PendingCalls | None = None) -> None:
        """``pending``: what the tree is at, where it sees events from a later place on than the
        item."""
        self._question = question
        self.status: TurnStatus = "queued"
        self.why = ""
        """Why it failed or was cancelled."""
        self.ending: Ending | None = None
        """The end of the session that it was over with, if it was."""
        self.ended_at = 0
        self.speakers: set[str] = set()
        """The runs whose words are the answer: the conversation's, and frames that had it."""
        self._at = ""
        """The run that has the conversation."""
        self._pending = (pending or question.pending).copy()
        self._ends: dict[str, Ending] = {}
        self._given_back: Ending | None = None
        """How the frame ended that has given the conversation back, to its caller that has it."""
        self._is_popped = False
        """Whether the caller has taken it back just now."""
        self._last_at = 0
        self._is_handled = False
        """Whether a code agent is done with it: it has asked for its next message, or is over."""
        self._spoke = False
        if question.is_code and not question.is_opening:
            self._begin(question.run_id)  # Taken means handled there.

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of the item."""
        return self.status not in ("queued", "in_progress")

    @property
    def left_open(self) -> tuple[SessionPrompt, ...]:
        """What people were asked before the item was taken, and is still open at the end of the
        turn, as that waits for them."""
        if self.ending is not None or self.status != "completed":
            return ()
        before = self._question.pending.prompts
        open_ = self._pending.prompts.values()
        return tuple([x for x in open_ if x.prompt_id in before or not self.speakers])

    @property
    def is_resting(self) -> bool:
        """Whether a code agent has answered its opening, or gone on with the answer to what it
        asked, and may wait for a message: who is quiet then is taken to wait."""
        question = self._question
        return (
            question.is_code and not question.is_message and self._spoke
            and not self.is_over and not self._pending.has_calls(question.run_id)
        )  # fmt: skip

    def see(self, event: Event) -> None:
        """Take note of the next event."""
        if self.is_over:
            return
        if event.lane == "in" or event.at != self._last_at:
            self.settle()  # The commit before it was complete.
            if self.is_over:
                return
        self._last_at = event.at
        self._pending.see(event)
        if self.status == "queued":
            self._look_for(event)
        else:
            self._follow(event)

    def settle(self) -> None:
        """Nothing more is there: look whether it is people's turn."""
        if self._is_popped:
            self._go_beside()
        if self.status == "in_progress":
            is_theirs = self._is_handled or self._pending.wait_for_people(self._at)
        else:  # It waits, and so does what it waits for: a person has been asked since it came.
            is_theirs = self.status == "queued" and self._is_passed_over()
        if is_theirs:
            self._end("completed", self._last_at)

    def _is_passed_over(self) -> bool:
        before, asked = self._question.pending.prompts, self._pending.prompts
        return (
            bool(asked) and asked.keys().isdisjoint(before)
            and self._pending.wait_for_people(self._question.run_id)
        )  # fmt: skip

    def rested(self) -> None:
        """A code agent that ``is_resting`` has been quiet for a while."""
        if self.is_resting:
            self._end("completed", self._last_at)

    # ── before it is taken ───────────────────────────────────────────────────────────────────

    def _look_for(self, event: Event) -> None:
        if isinstance(event, SessionStart) and event.run_id == self._question.run_id:
            self._question.began(event)
            if self._question.is_code and not self._question.is_opening:
                self._begin(event.run_id)
        elif isinstance(event, SessionTaken):
            if any(map(self._question.is_item, event.items)):
                self._begin(event.run_id)
        elif isinstance(event, SessionDropped):
            if any(map(self._question.is_item, event.items)):
                self._end("failed", event.at, event.reason or "it was not taken")
        elif isinstance(event, AgentComplete) and event.run_id == self._question.run_id:
            self._end("cancelled", event.at, f"the run has ended: {event.reason or event.outcome}")

    def _begin(self, run_id: str) -> None:
        self.status = "in_progress"
        item = self._question.item
        if isinstance(item, SessionMessage):
            self._pending.prompts.clear()  # It answers them, those of children too.
        elif isinstance(item, SessionReply) and self._question.is_code:
            self._pending.prompts.pop(item.prompt_id, None)
        self._at = run_id
        self.speakers.add(run_id)

    # ── from then on ─────────────────────────────────────────────────────────────────────────

    def _follow(self, event: Event) -> None:
        question = self._question
        match event:
            case SessionEnd() | AgentComplete():
                self._ended(event)
            case _ if event.run_id == self._at and (held := self._ends.get(self._at)) is not None:
                self._end_with(held)  # The frame was not popped: it waits for the user.
            case SessionTaken() if question.is_code and event.run_id == question.run_id:
                # Code takes a reply at once, and a message when it has handled it.
                is_item = any(map(question.is_item, event.items))
                self._is_handled = is_item if question.is_message else not is_item
            case SessionPush() if event.run_id in self.speakers:
                self._go_to(self._pending.holder_below(event.run_id))
            case SessionPop() if event.frame_run_id == self._at:
                self._go_to(event.run_id)
            case SessionPop() if event.run_id == self._at and self._given_back is not None:
                self._is_popped = True
            case SessionStart():
                self._ends.pop(event.run_id, None)
            case AgentText() if event.run_id == self._at:
                self._spoke = True
            case _:
                pass

    def _go_to(self, run_id: str) -> None:
        self._at = run_id
        self.speakers.add(run_id)

    def _go_beside(self) -> None:
        """A frame was popped: one that lies beside it may have the conversation, and be waiting."""
        self._is_popped = False
        holder, given_back = self._pending.holder_below(self._at), self._given_back
        if holder == self._at:
            return
        self._go_to(holder)
        self._given_back = None
        if self._pending.is_resting(holder) and given_back is not None:
            self._end_with(given_back)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _ended(self, event: SessionEnd | AgentComplete) -> None:
        if event.run_id == self._question.run_id:  # With its session that of any frame above ends.
            self._end_with(event)
            return
        if event.run_id != self._at and event.run_id not in self._ends:
            if event.run_id in self.speakers:
                self._ends[event.run_id] = event
            return
        self._ends[event.run_id] = event
        if event.run_id != self._at or isinstance(event, SessionEnd):
            return  # What the run at work does next says whether it is popped.
        end: Ending | None = event
        while isinstance(end, AgentComplete):
            self._go_to(end.parent_run_id or self._question.run_id)
            end = self._ends.pop(self._at, None)
        if end is not None:
            self._end_with(end)
        else:
            self._given_back = event

    def _end_with(self, end: Ending) -> None:
        self.ending = end
        status: TurnStatus = "completed"
        if end.outcome in ("interrupted", "terminated"):
            status = "cancelled"
        elif end.outcome in ("failed", "timed_out"):
            status = "failed"
        why = "" if status == "completed" else end.reason or end.outcome
        if end.outcome == "failed":
            # The reason is the operator's: it may name a provider's address, or a variable.
            why = f"the agent failed; the record of run {self._question.run_id} says why"
        self._end(status, end.at, why)

    def _end(self, status: TurnStatus, at: int, why: str = "") -> None:
        self.status, self.ended_at, self.why = status, at, why
