"""What must hold of every conversation with frames, told from its store alone (issue 5)."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hubbub.agents.model import AssistantMessage, ModelMessage, UserMessage
from hubbub.agents.state.commands import command_of
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.store.journal import Journal, RunInfo, Selection
from hubbub.runtime.models.http.messages import UserTurn, conversation

__all__ = ["StoredRuns", "read_stored_runs"]


class StoredRuns:
    """All runs of a store: their lanes, what they came to, and what waits for them."""

    def __init__(
        self,
        events: list[Event],
        infos: dict[str, RunInfo],
        waiting: dict[str, list[Any]],
        letters: Sequence[InLane],
    ) -> None:
        self.events = events
        self.letters = letters
        self.infos = infos
        self.waiting = waiting
        self.own: dict[str, list[Event]] = {run_id: [] for run_id in infos}
        self.inbox: dict[str, list[Any]] = {run_id: [] for run_id in infos}
        for event in events:
            if event.lane == "own":
                self.own[event.run_id].append(event)
            elif event.lane == "in":
                self.inbox[event.run_id].append(event)
        self.threads = {run_id: fold_all(EMPTY, lane) for run_id, lane in self.own.items()}

    # ── what must hold ───────────────────────────────────────────────────────────────────────

    def check(self, *, is_quiet: bool = True) -> None:
        """Everything that holds at any time; ``is_quiet``: and what holds at rest."""
        for run_id in self.own:
            self._check_calls(run_id)
            self._check_transcript(self.threads[run_id])
            if self.threads[run_id].origin.frame:
                self._check_frame(run_id)
        self._check_messages()
        self._check_tops()
        if is_quiet:
            self._check_rest()

    def _check_calls(self, run_id: str) -> None:
        """Each call is answered once; pushes minus pops are the open takeover calls."""
        lane, thread = self.own[run_id], self.threads[run_id]
        answered = Counter(x.call_id for x in lane if isinstance(x, e.AgentToolComplete))
        assert set(answered.values()) <= {1}, answered
        calls = {
            f"{x.step}.{index}" for x in lane if isinstance(x, e.AgentStep)
            for index in range(len(x.calls))
        }  # fmt: skip
        step = thread.open
        open_calls = {
            f"{step.number}.{c.index}"
            for c in (step.calls if step is not None else ())
            if step is not None and c.status != "done"
        }
        reset = any(isinstance(i, e.SessionReset) for x in lane for i in getattr(x, "items", ()))
        assert set(answered) | open_calls == calls or reset
        assert not set(answered) & open_calls
        pushed = [(x.call_id, x.frame_run_id) for x in lane if isinstance(x, e.SessionPush)]
        popped = [(x.call_id, x.frame_run_id) for x in lane if isinstance(x, e.SessionPop)]
        assert len(set(pushed)) == len(pushed), "no frame is pushed twice"
        assert len(set(popped)) == len(popped), "no frame is popped twice"
        assert set(popped) <= set(pushed)
        top = thread.frame
        left = set(pushed) - set(popped)
        assert [frame for _, frame in left] == ([top.child] if top is not None else [])
        for at, event in enumerate(lane):  # A pop stands beside the one answer of its call.
            if isinstance(event, e.SessionPop):
                beside = lane[at + 1]
                assert isinstance(beside, e.AgentToolComplete)
                assert (beside.call_id, beside.is_error) == (event.call_id, event.is_error)

    def _check_transcript(self, thread: Thread) -> None:
        """Whatever happened, every provider takes it; folding step by step comes to the same."""
        messages: tuple[ModelMessage, ...] = thread.transcript
        turns = conversation(messages)
        ids: list[str] = []
        for one, two in pairwise(turns):
            is_between = isinstance(one, AssistantMessage) and bool(one.calls)
            assert isinstance(one, UserTurn) != isinstance(two, UserTurn) or is_between
        for turn in turns:
            if isinstance(turn, AssistantMessage):
                ids += [each.id for each in turn.calls]
        assert len(set(ids)) == len(ids)

    def _check_frame(self, run_id: str) -> None:
        """A frame that is over has one end, and its caller was told once; no other has any."""
        lane, info = self.own[run_id], self.infos[run_id]
        ends = [x for x in lane if isinstance(x, e.AgentComplete)]
        parent = info.parent_run_id
        assert parent is not None
        refused = [x for x in self.letters if not x.seq]
        told = [
            x for x in (*self.inbox[parent], *refused)
            if isinstance(x, e.SessionResult) and x.child_run_id == run_id
        ]  # fmt: skip
        assert len(ends) == len(told) == (info.status == "ended"), (run_id, ends, told)
        assert all(x.final for x in told)
        starts = [x for x in lane if isinstance(x, e.AgentStart)]
        assert len(starts) <= 1
        pushed = [
            x for x in self.own[parent]
            if isinstance(x, e.SessionPush) and x.frame_run_id == run_id
        ]  # fmt: skip
        assert len(pushed) == 1

    def _check_messages(self) -> None:
        """Whatever was accepted was taken once, waits, or has a letter that says why not."""
        taken = Counter(
            (item.run_id, item.seq)
            for lane in self.own.values()
            for x in lane
            if isinstance(x, e.SessionTaken)
            for item in x.items
        )
        assert set(taken.values()) <= {1}, "nothing is taken twice"
        found: Counter[str] = Counter()
        accepted = {}
        for run_id, items in self.inbox.items():
            waits = {item.seq for item in self.waiting[run_id]}
            for item in items:
                if isinstance(item, e.SessionMessage):
                    accepted[item.content] = item
                    found[item.content] += (run_id, item.seq) in taken
                    found[item.content] += item.seq in waits
                    assert not ((run_id, item.seq) in taken and item.seq in waits)
        for letter in self.letters:
            if isinstance(letter, e.SessionMessage) and letter.seq:
                found[letter.content] += 1
        for content, item in accepted.items():
            times = found[content]
            if not command_of(item):  # Words are said more than once; programs have their labels.
                assert times == 1, f"{content!r} has {times} outcomes"
        heard = Counter(
            m.content
            for thread in self.threads.values()
            for m in thread.transcript
            if isinstance(m, UserMessage)
        )
        assert all(heard[c] <= 1 for c, item in accepted.items() if not command_of(item))

    def _check_tops(self) -> None:
        """What people said to the conversation was taken by the frame that was on top just then."""
        threads = dict.fromkeys(self.own, EMPTY)
        for event in self.events:
            if event.lane != "own":
                continue
            if isinstance(event, e.SessionTaken):
                lent = [x for x in event.items if x.run_id != event.run_id]
                for item in lent:
                    assert isinstance(item, e.SessionMessage)
                    assert item.run_id == event.root_run_id
                    top = self._top(threads, event.root_run_id)
                    assert top == event.run_id, (item.content, top)
                if event.run_id == event.root_run_id and threads[event.run_id].frame is not None:
                    said = [x for x in event.items if isinstance(x, e.SessionMessage)]
                    assert all(command_of(x) == "stop" for x in said), said
            threads[event.run_id] = fold(threads[event.run_id], event)

    @staticmethod
    def _top(threads: dict[str, Thread], run_id: str) -> str:
        while (call := threads[run_id].frame) is not None and call.child in threads:
            run_id = call.child
        return run_id

    def _check_rest(self) -> None:
        """At rest the whole stack waits, the frame on top for the user."""
        for run_id, info in self.infos.items():
            thread = self.threads[run_id]
            waiting = [x for x in self.waiting[run_id] if not isinstance(x, e.SessionMessage)]
            assert not waiting, (run_id, waiting)
            if info.status == "ended":
                continue
            if thread.frame is None:
                assert info.status == "parked" and not thread.in_session, (run_id, info.status)
                assert not self.waiting[run_id], self.waiting[run_id]
            else:
                assert thread.frame.child in self.infos
                assert self.infos[thread.frame.child].status != "ended"

    def strays(self) -> list[str]:
        """What was dropped with a frame though its conversation goes on (I-13)."""
        return [
            x.content for x in self.letters
            if isinstance(x, e.SessionMessage) and x.seq
            and self.infos[x.root_run_id].inbox == "open"
        ]  # fmt: skip

    # ── who talks to the user ────────────────────────────────────────────────────────────────

    def stack(self, root: str) -> list[str]:
        """The run ids of a conversation's stack, its root first."""
        stack = [root]
        while (call := self.threads[stack[-1]].frame) is not None:
            stack.append(call.child)
        return stack


async def read_stored_runs(journal: Journal, letters: Sequence[InLane] = ()) -> StoredRuns:
    """Read a whole store; ``letters`` are what its lives have been told of by dead letters."""
    await journal.flush()
    events: list[Event] = []
    position = 0
    while True:
        found, position = await journal.read(Selection(), after=position)
        if not found:
            break
        events += found
    infos = {info.run_id: info for info in await journal.runs(live=False)}
    waiting = {}
    for run_id in infos:
        loaded = await journal.load(run_id)
        waiting[run_id] = list(loaded.waiting) if loaded is not None else []
    return StoredRuns(events, infos, waiting, letters)
