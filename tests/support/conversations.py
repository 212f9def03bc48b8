"""Conversations with takeovers, written by hand in the order in which runs write them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane, ToolCall
from hubbub.hub.events.descriptors import (
    Descriptor,
    SubagentDescriptor,
    UserDescriptor,
    encode_descriptor,
)
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun, RunInfo
from hubbub.hub.values import encode_value

__all__ = ["MAIN", "RESEARCH", "START", "WRITER", "Book", "nested", "said", "skill"]

MAIN = "01900000-0000-7000-8000-00000000000a"
WRITER = "01900000-0000-7000-8000-00000000000b"
RESEARCH = "01900000-0000-7000-8000-00000000000c"
START = 1_767_225_600_000_000


class Written(Struct, frozen=True, kw_only=True):
    """A commit as it was asked for, and what it wrote."""

    run_id: str
    own: tuple[Event, ...]
    expect: int
    taken: tuple[int, ...] = ()
    lent: tuple[tuple[str, int], ...] = ()
    mail: tuple[tuple[str, InLane], ...] = ()
    ends: bool = False
    events: tuple[Event, ...] = ()


class Book:
    """A store of one conversation, in its one order, and who its runs are."""

    def __init__(self, descriptor: Descriptor | None = None) -> None:
        self.descriptor = descriptor or UserDescriptor(
            connector="telegram", user_id="456", channel_id="123"
        )
        self.events: list[Event] = []
        self.commits: list[Written] = []
        self.runs: dict[str, RunInfo] = {}
        self.waiting: dict[str, dict[int, InLane]] = {}
        self._seqs: dict[tuple[str, str], int] = {}
        self._at = START

    def begin(self, message: str) -> None:
        """The main agent is opened, and takes what it was opened with."""
        opening = e.SessionOpen(
            open_agent="main", input_json=encode_value("input", message),
            descriptor_json=encode_descriptor(self.descriptor),
        )  # fmt: skip
        self.commit("", mail=((MAIN, opening),))
        self.commit(
            MAIN, e.AgentStart(input_json=opening.input_json), e.SessionStart(side="side_a"), take=1
        )

    def tell(self, run_id: str, item: InLane) -> None:
        """Somebody outside sends something."""
        self.commit("", mail=((run_id, item),))

    def commit(
        self,
        run_id: str,
        *own: Event,
        take: int = 0,
        borrow: int = 0,
        mail: Sequence[tuple[str, InLane]] = (),
    ) -> None:
        """One commit; it begins, or behind its ``session:start`` goes on, with ``take`` items of
        the run's own inbox and ``borrow`` of the main agent's."""
        self._at += 1_000_001
        items, lent = self._out(run_id, take), self._out(MAIN, borrow)
        events = list(own)
        if items or lent:
            at = next((n for n, x in enumerate(events, 1) if isinstance(x, e.SessionStart)), 0)
            events.insert(at, e.SessionTaken(items=(*items, *lent)))
        expect = self._seqs.get((run_id, "own"), 0)
        written = tuple(self._stamp(run_id, "own", event) for event in events)
        delivered = tuple((to, self._deliver(to, item, run_id)) for to, item in mail)
        self.events += [*written, *(item for _, item in delivered)]
        self.commits.append(
            Written(
                run_id=run_id, own=written, expect=expect, mail=delivered,
                taken=tuple(x.seq for x in items), lent=tuple((MAIN, x.seq) for x in lent),
                ends=any(isinstance(x, e.AgentComplete) for x in written),
                events=(*written, *(item for _, item in delivered)),
            )
        )  # fmt: skip

    def _out(self, run_id: str, count: int) -> list[InLane]:
        waiting = self.waiting.get(run_id, {})
        return [waiting.pop(seq) for seq in list(waiting)[:count]]

    def _deliver(self, to: str, item: InLane, sender: str) -> InLane:
        if isinstance(item, e.SessionOpen):
            parent = sender or None
            self.runs[to] = RunInfo(
                run_id=to, root_run_id=MAIN, parent_run_id=parent, agent=item.open_agent,
                name=item.name, session_key="", status="active", inbox="open", waiting=0,
                created_at=self._at, descriptor=self.descriptor if parent is None
                else SubagentDescriptor(id=to, parent_agent_id=parent, name=item.name),
            )  # fmt: skip
        item = self._stamp(to, "in", item)
        self.waiting.setdefault(to, {})[item.seq] = item
        return item

    def _stamp(self, run_id: str, lane: str, event: Any) -> Any:
        info = self.runs[run_id]
        self._seqs[run_id, lane] = seq = self._seqs.get((run_id, lane), 0) + 1
        return structs.replace(
            event, at=self._at, run_id=run_id, root_run_id=MAIN, agent=info.agent, lane=lane,
            parent_run_id=info.parent_run_id, seq=seq,
        )  # fmt: skip

    # ── as stores ────────────────────────────────────────────────────────────────────────────

    def of(self, run_id: str) -> list[Event]:
        return [event for event in self.events if event.run_id == run_id]

    def info(self, run_id: str) -> RunInfo | None:
        return self.runs.get(run_id)

    def read(self, run_ids: Any, after: int) -> tuple[list[Event], int]:
        """See ``Conversations``: a position is a place in ``events``."""
        known, found = set(run_ids), []
        for event in self.events[after:]:
            if event.lane == "own" and event.run_id in known:
                found.append(event)
                if isinstance(event, e.SessionPush):
                    known.add(event.frame_run_id)
        return found, len(self.events)

    async def put(self, journal: Journal, commits: Sequence[Written] | None = None) -> None:
        """Write it into a real store."""
        for one in self.commits if commits is None else commits:
            commit = Commit(
                one.run_id, one.own, expect=one.expect, taken=one.taken, lent=one.lent,
                status="ended" if one.ends else "active" if one.run_id else None,
                deliveries=[Delivery(item, to, new=self._new(to, item)) for to, item in one.mail],
            )  # fmt: skip
            journal.submit(commit)
            await journal.flush()
            assert not commit.error, commit.error
            assert commit.written == list(one.events)

    def _new(self, run_id: str, item: InLane) -> NewRun | None:
        if not isinstance(item, e.SessionOpen):
            return None
        info = self.runs[run_id]
        return NewRun(
            run_id=run_id, root_run_id=MAIN, parent_run_id=info.parent_run_id, agent=info.agent,
            name=info.name, descriptor=info.descriptor,
        )  # fmt: skip


# ── what runs write ──────────────────────────────────────────────────────────────────────────


def said(text: str) -> e.SessionMessage:
    return e.SessionMessage(content=text, source="telegram")


def wants(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def step(number: int, text: str = "", *calls: ToolCall) -> tuple[Event, ...]:
    words = (e.AgentText(step=number, text=text),) if text else ()
    return (*words, e.AgentStep(step=number, calls=calls, model="small"))


def push(
    book: Book, caller: str, frame: str, agent: str, at: str, message: str, *, depth: int
) -> None:
    """The call ``at`` of ``caller`` gives the conversation to ``frame``."""
    number, _, index = at.partition(".")
    place: dict[str, Any] = {"call_id": at}
    child = e.AgentChild(
        child_run_id=frame, child_agent=agent, name=agent, takeover=True, waits=True,
        blocking=True, reports=True, step=int(number), index=int(index), **place,
    )  # fmt: skip
    pushed = e.SessionPush(
        frame_run_id=frame, frame_agent=agent, depth=depth, model="large", max_iterations=25,
        tools=("complete", "search"), variables=("TOKEN",), message=message, **place,
    )  # fmt: skip
    opening = e.SessionOpen(
        open_agent=agent, input_json=encode_value("input", message), name=agent, reports=True,
        frame=depth, depth=depth - 1, parent_run_id=caller,
    )  # fmt: skip
    book.commit(caller, child, pushed, mail=((frame, opening),))
    start = e.AgentStart(input_json=opening.input_json, name=agent)
    book.commit(frame, start, e.SessionStart(side="side_a"), take=1)


def end(book: Book, frame: str, caller: str, agent: str, result: str, **ending: Any) -> None:
    """The frame ends with ``result``, which is delivered to its caller."""
    output = encode_value("output", result)
    item = e.SessionResult(
        child_run_id=frame, child_agent=agent, name=agent, content=result, final=True,
        answers=("open",), **ending,
    )  # fmt: skip
    over = e.SessionEnd(output_json=output, **ending), e.AgentComplete(output_json=output, **ending)
    book.commit(frame, *over, mail=((caller, item),))


def pop(
    book: Book, caller: str, frame: str, agent: str, at: str, output: str, *, depth: int,
    is_error: bool = False, take: int = 1,
) -> None:  # fmt: skip
    """The caller's call is answered; with ``take`` the result of the frame is taken first."""
    number, _, index = at.partition(".")
    book.commit(
        caller,
        e.SessionPop(
            frame_run_id=frame, frame_agent=agent, depth=depth, is_error=is_error, call_id=at
        ),
        e.AgentToolComplete(
            step=int(number), index=int(index), name="use_skill", output=output,
            is_error=is_error, call_id=at,
        ),
        take=take,
    )  # fmt: skip


def skill(book: Book, *, complete: bool = True) -> None:
    """IA's phases 1 to 3: main gives the conversation to a skill, the user talks with it."""
    book.begin("research Python async APIs")
    arguments = '{\n "name": "research", "message": "Python async APIs"}'
    begun = e.AgentToolStart(step=1, index=0, name="use_skill", call_id="1.0")
    book.commit(MAIN, *step(1, "Let me ask.", wants("use_skill", arguments)), begun)
    push(book, MAIN, RESEARCH, "skill:research", "1.0", "Python async APIs", depth=2)
    book.commit(RESEARCH, *step(1, "I'll search for Python async APIs."), e.SessionEnd())
    book.commit(RESEARCH, e.AgentPark())
    book.tell(MAIN, said("focus on 3.13"))
    book.commit(RESEARCH, e.SessionStart(session=2, side="side_a"), borrow=1)
    book.commit(RESEARCH, *step(2, "", wants("search", '{"query":"3.13"}')))
    found = e.AgentToolComplete(step=2, index=0, name="search", output="three", call_id="2.0")
    book.commit(RESEARCH, found)
    if complete:
        book.commit(RESEARCH, *step(3, "", wants("complete", '{"result":"found 3 APIs"}')))
        done = e.AgentToolComplete(
            step=3, index=0, name="complete", output="Completed.", call_id="3.0"
        )
        book.commit(RESEARCH, done)
        end(book, RESEARCH, MAIN, "skill:research", "found 3 APIs")
        pop(book, MAIN, RESEARCH, "skill:research", "1.0", "found 3 APIs", depth=1)
        book.commit(MAIN, *step(2, "There are three."), e.SessionEnd(), e.AgentPark())


def nested(book: Book) -> None:
    """Main, a writer above it, and a skill above that; nothing is popped yet."""
    book.begin("write about APIs")
    call = wants("use_agent", '{"name":"writer","message":"write"}')
    book.commit(MAIN, *step(1, "", wants("look", "{}"), call))
    book.commit(MAIN, e.AgentToolComplete(step=1, index=0, name="look", call_id="1.0"))
    push(book, MAIN, WRITER, "writer", "1.1", "write", depth=2)
    call = wants("use_skill", '{"name":"research","message":"find"}')
    book.commit(WRITER, *step(1, "First I look around.", call))
    push(book, WRITER, RESEARCH, "skill:research", "1.0", "find", depth=3)
    book.commit(RESEARCH, *step(1, "Which ones?"), e.SessionEnd(), e.AgentPark())
