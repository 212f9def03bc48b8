"""What every journal's inboxes must do: the part of the conformance suite about the in lane.

Run together with the rest by ``CHECKS`` of ``hub/conformance/journal.py``.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    Check,
    MakeJournal,
    commit_of,
    deliver,
    info_of,
    open_journal,
    open_run,
    send,
    stamp,
    write,
)
from hubbub.hub.events import (
    AgentComplete,
    AgentStatus,
    Event,
    InLane,
    SessionAbort,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionResult,
    SessionTerminate,
)
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import OVERTAKEN, Commit, Delivery, NewRun, RequestKey

__all__ = ["INBOX_CHECKS"]


# ── the in lane ──────────────────────────────────────────────────────────────────────────────


async def check_inbox_is_numbered_and_stamped(make_journal: MakeJournal) -> None:
    """Items are numbered by the store and carry the ids of the run they are for."""
    async with open_journal(make_journal) as journal:
        opened = await open_run(journal, A_RUN, root_run_id=B_RUN, parent_run_id=B_RUN)
        first = await send(journal, A_RUN, "one")
        second = await send(journal, A_RUN, "two")
        events: list[InLane] = [d.event for d in (opened, first, second)]
        assert [event.seq for event in events] == [1, 2, 3]
        for event in events:
            assert (event.run_id, event.root_run_id, event.parent_run_id, event.agent) == (
                A_RUN, B_RUN, B_RUN, "echo",
            )  # fmt: skip
            assert event.lane == "in"
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert list(loaded.waiting) == events


async def check_taken_items_leave_the_inbox(make_journal: MakeJournal) -> None:
    """Items are taken by name, in any order; the others continue waiting, in order."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        for content in "abc":
            await send(journal, A_RUN, content)
        await write(journal, A_RUN, 0, AgentStatus(), taken=(3, 1))
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert [item.seq for item in loaded.waiting] == [2, 4]
        assert (await info_of(journal, A_RUN)).waiting == 2


async def check_refusal_of_files_sees_the_run(make_journal: MakeJournal) -> None:
    """Who is asked about the files of a message gets the own lane and what waits, as of then; also
    of one that names none."""
    asked: list[tuple[str, int, int]] = []

    def refuse(agent: str, names: Sequence[str], lane: Iterable[Event], waiting: object) -> str:
        assert isinstance(waiting, Iterable)
        asked.append((agent, len([*lane]), len([*waiting])))
        return "no file" if "none.txt" in names else ""

    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await write(journal, A_RUN, 0, AgentStatus(), taken=(1,))
        for names in (("none.txt",), ("a.txt",), ("b.txt",), ()):
            delivery = Delivery(SessionMessage(content="x", attachments=names), A_RUN)
            delivery.refusal_of_files = refuse
            await deliver(journal, delivery)
            assert delivery.outcome == ("rejected" if "none.txt" in names else "accepted")
        assert asked == [("echo", 1, waiting) for waiting in (0, 0, 1, 2)]


async def check_deduplication(make_journal: MakeJournal) -> None:
    """(run, source, key) is accepted once, taken or not; other content under it is refused."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN)
        first = await send(journal, A_RUN, "hello", source="chat", key="1")
        assert first.outcome == "accepted"
        again = await send(journal, A_RUN, "hello", source="chat", key="1")
        assert again.outcome == "duplicate"
        assert again.first == (A_RUN, "in", first.event.seq), "where it was accepted"
        other = await send(journal, A_RUN, "other", source="chat", key="1")
        assert (other.outcome, other.reason) == ("rejected", "key reused")
        for to, source, key in ((B_RUN, "chat", "1"), (A_RUN, "web", "1"), (A_RUN, "chat", "2")):
            free = await send(journal, to, "hello", source=source, key=key)
            assert free.outcome == "accepted"
        await write(journal, A_RUN, 0, AgentStatus(), taken=(first.event.seq,))
        late = await send(journal, A_RUN, "hello", source="chat", key="1")
        assert late.outcome == "duplicate", "for as long as the run exists"
        assert late.first == (A_RUN, "in", first.event.seq)


async def check_duplicate_of_something_accepted_is_no_rejection(make_journal: MakeJournal) -> None:
    """A repeated item is reported as a duplicate, also when the inbox is full or closing."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        first = await send(journal, A_RUN, "hello", source="chat", key="1", limit=1)
        assert first.outcome == "accepted"
        again = await send(journal, A_RUN, "hello", source="chat", key="1", limit=1)
        assert again.outcome == "duplicate", again.reason
        await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        again = await send(journal, A_RUN, "hello", source="chat", key="1", limit=1)
        assert again.outcome == "duplicate", again.reason


async def check_duplicate_of_something_accepted_outlives_the_run(make_journal: MakeJournal) -> None:
    """A repeated item is a duplicate for as long as the run is kept, also when it has ended."""
    async with open_journal(make_journal) as journal:
        for to in (A_RUN, B_RUN):
            await open_run(journal, to)
            sent = await send(journal, to, "hello", source="chat", key="1")
            assert sent.outcome == "accepted"
        await write(journal, A_RUN, 0, AgentComplete(), taken=(1, 2), status="ended")
        # In one commit, too, with the end, and left over.
        hello = session_message("hello", source="chat")
        end = Commit(
            B_RUN, [stamp(B_RUN, 1, AgentComplete())], status="ended",
            deliveries=[Delivery(hello, B_RUN, source="chat", key="1")],
        )  # fmt: skip
        assert [x.outcome for x in (await commit_of(journal, end)).deliveries] == ["duplicate"]
        for to in (A_RUN, B_RUN):
            again = await send(journal, to, "hello", source="chat", key="1")
            assert (again.outcome, again.reason) == ("duplicate", "")
            other = await send(journal, to, "other", source="chat", key="1")
            assert (other.outcome, other.reason) == ("rejected", "key reused")
            late = await send(journal, to, "hello", source="chat", key="2")
            assert (late.outcome, late.reason) == ("rejected", "ended")


async def check_request_counts_once_wherever_it_leads(make_journal: MakeJournal) -> None:
    """A request is accepted once, whoever its address leads to by now, and that is told; what was
    rejected has not counted."""

    def asked(name: str, to: str, digest: str = "d", content: str = "hello") -> Delivery:
        made = Delivery(session_message(content), to, by="key")
        made.request = RequestKey(name, digest)
        return made

    def opening(run_id: str, digest: str = "d") -> Delivery:
        new = NewRun(
            run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="echo", session_key="chat",
            found=session_message("hi"),
        )  # fmt: skip
        event = SessionOpen(open_agent="echo", session_key="chat", at=1)
        return Delivery(event, run_id, new=new, request=RequestKey("open", digest))

    async with open_journal(make_journal) as journal:
        nobody = await deliver(journal, asked("one", "chat"))
        assert (nobody.outcome, nobody.reason) == ("rejected", "unknown")
        twice = (opening(A_RUN), opening(B_RUN))
        await commit_of(journal, Commit(deliveries=twice))
        assert [(x.outcome, x.run_ids) for x in twice] == [
            ("accepted", (A_RUN,)), ("duplicate", (A_RUN,)),
        ]  # fmt: skip
        # What was rejected has not counted.
        assert (await deliver(journal, asked("one", "chat"))).outcome == "accepted"
        await write(journal, A_RUN, 0, AgentComplete(), status="ended")
        await open_run(journal, C_RUN, session_key="chat")
        for again, seq in ((asked("one", "chat"), 2), (asked("one", "x"), 2), (opening(B_RUN), 1)):
            await deliver(journal, again)
            assert (again.outcome, again.run_ids) == ("duplicate", (A_RUN,))
            assert again.first == (A_RUN, "in", seq)
        for other in (asked("one", "chat", "other"), opening(B_RUN, "other")):
            await deliver(journal, other)
            assert (other.outcome, other.reason) == ("rejected", "key reused")
        assert (await info_of(journal, C_RUN)).waiting == 1
        assert await journal.info(B_RUN) is None
        assert (await deliver(journal, asked("two", "chat"))).run_ids == (C_RUN,)


async def check_results_and_replies_are_accepted_once(make_journal: MakeJournal) -> None:
    """A repeated result or reply is a duplicate, whatever it says: the first one counts."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        items: tuple[tuple[InLane, InLane], ...] = (
            (SessionResult(child_run_id=B_RUN), SessionResult(child_run_id=B_RUN, content="x")),
            (SessionReply(prompt_id="p", content="a"), SessionReply(prompt_id="p", content="b")),
        )
        for first, second in items:
            one = await deliver(journal, Delivery(first, A_RUN, source=first.type, key="k"))
            two = await deliver(journal, Delivery(second, A_RUN, source=second.type, key="k"))
            assert (one.outcome, two.outcome) == ("accepted", "duplicate")


async def check_full_inbox_refuses_messages_only(make_journal: MakeJournal) -> None:
    """``limit`` counts waiting messages; without one an item is exempt."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        for content in "ab":
            sent = await send(journal, A_RUN, content, limit=2)
            assert sent.outcome == "accepted"
        full = await send(journal, A_RUN, "c", limit=2)
        assert (full.outcome, full.reason) == ("rejected", "inbox full")
        exempt = await deliver(journal, Delivery(SessionResult(child_run_id=B_RUN), A_RUN))
        assert exempt.outcome == "accepted"
        await write(journal, A_RUN, 0, AgentStatus(), taken=(2,))
        room = await send(journal, A_RUN, "d", limit=2)
        assert room.outcome == "accepted", "what is taken makes room"


# ── closing and ending ───────────────────────────────────────────────────────────────────────


async def check_closing_inbox_refuses_messages(make_journal: MakeJournal) -> None:
    """A closing run takes no more messages, but still results and control."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await deliver(journal, Delivery(SessionAbort(), A_RUN, closes="closing"))
        assert (await info_of(journal, A_RUN)).inbox == "closing"
        late = await send(journal, A_RUN, "late")
        assert (late.outcome, late.reason) == ("rejected", "ended")
        for item in (SessionResult(child_run_id=B_RUN), SessionAbort()):
            kept = await deliver(journal, Delivery(item, A_RUN))
            assert kept.outcome == "accepted"


async def check_terminated_inbox_refuses_everything(make_journal: MakeJournal) -> None:
    """From its acceptance on, a termination lets nothing reach the run but another one."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        stop = await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert stop.outcome == "accepted"
        items: tuple[InLane, ...] = (
            session_message("late"), SessionResult(child_run_id=B_RUN), SessionAbort(),
        )  # fmt: skip
        for item in items:
            late = await deliver(journal, Delivery(item, A_RUN))
            assert (late.outcome, late.reason) == ("rejected", "terminated")
        again = await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert again.outcome == "accepted"
        await write(journal, A_RUN, 0, AgentComplete(), taken=(2,), status="ended")
        gone = await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert (gone.outcome, gone.reason) == ("rejected", "terminated")


async def check_no_end_passes_a_termination(make_journal: MakeJournal) -> None:
    """What ends a run must take the termination that was accepted before; else it is refused, and
    with it all it says."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await send(journal, A_RUN, "waits")
        await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        for taken in ((), (1,), (1, 2)):
            own = await write(journal, A_RUN, 0, AgentComplete(), taken=taken, status="ended")
            assert (own.error, own.written, own.leftovers) == (OVERTAKEN, [], ())
        info = await info_of(journal, A_RUN)
        assert (info.status, info.inbox, info.waiting) == ("active", "terminated", 4)
        status = await write(journal, A_RUN, 0, AgentStatus(status="about to end"))
        assert not status.error, "what ends nothing is written"
        end = await write(journal, A_RUN, 1, AgentComplete(), taken=(1, 4), status="ended")
        assert not end.error
        assert [getattr(item, "content", "") for item in end.leftovers] == ["waits"]
        assert (await info_of(journal, A_RUN)).status == "ended"


async def check_terminal_commit_gives_back_leftovers(make_journal: MakeJournal) -> None:
    """The commit that ends a run closes its inbox and hands over what nobody will handle."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await send(journal, A_RUN, "left one")
        await deliver(journal, Delivery(SessionAbort(), A_RUN))
        await send(journal, A_RUN, "left two")
        commit = await write(journal, A_RUN, 0, AgentComplete(), taken=(1,), status="ended")
        assert [getattr(item, "content", "") for item in commit.leftovers] == [
            "left one", "left two",
        ]  # fmt: skip
        info = await info_of(journal, A_RUN)
        assert (info.status, info.inbox, info.waiting) == ("ended", "ended", 0)
        late = await send(journal, A_RUN, "late")
        assert (late.outcome, late.reason) == ("rejected", "ended")
        kill = await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert (kill.outcome, kill.reason) == ("rejected", "ended")
        after = await write(journal, A_RUN, 1, AgentStatus(status="after the end"))
        assert after.error == "conflict"
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert (len(loaded.events), len(loaded.waiting)) == (1, 0)


# ── addresses ────────────────────────────────────────────────────────────────────────────────


async def check_addressing(make_journal: MakeJournal) -> None:
    """By name and by key: one live run gets it; none or several is a rejection that lists."""
    async with open_journal(make_journal) as journal:
        nobody = await send(journal, "echo", "hello", by="name")
        assert (nobody.outcome, nobody.reason, nobody.run_ids) == ("rejected", "unknown", ())
        await open_run(journal, A_RUN, session_key="chat-1")
        one = await send(journal, "echo", "hello", by="name")
        assert (one.outcome, one.event.run_id) == ("accepted", A_RUN)
        keyed = await send(journal, "chat-1", "hello", by="key")
        assert (keyed.outcome, keyed.event.run_id) == ("accepted", A_RUN)
        only = await send(journal, "", "hello", by="only")
        assert (only.outcome, only.event.run_id) == ("accepted", A_RUN)
        await open_run(journal, B_RUN, session_key="chat-2")
        for to, by in (("echo", "name"), ("", "only")):
            several = await send(journal, to, "hello", by=by)
            assert (several.outcome, several.reason) == ("rejected", "ambiguous")
            assert sorted(several.run_ids) == [A_RUN, B_RUN]
        lost = await send(journal, "chat-3", "hello", by="key")
        assert (lost.outcome, lost.reason) == ("rejected", "unknown")
        await write(journal, A_RUN, 0, AgentComplete(), status="ended")
        left = await send(journal, "echo", "hello", by="name")
        assert (left.outcome, left.event.run_id) == ("accepted", B_RUN)
        gone = await send(journal, "chat-1", "hello", by="key")
        assert gone.outcome == "rejected"


async def check_everybody_is_reached(make_journal: MakeJournal) -> None:
    """``by="every"`` delivers to every live run and lists them; to none is no failure."""
    async with open_journal(make_journal) as journal:
        none = await deliver(journal, Delivery(SessionAbort(), "", by="every"))
        assert (none.outcome, none.run_ids) == ("accepted", ())
        for run_id in (A_RUN, B_RUN, C_RUN):
            await open_run(journal, run_id)
        await write(journal, B_RUN, 0, AgentComplete(), status="ended")
        some = await deliver(journal, Delivery(SessionAbort(), "", by="every"))
        assert sorted(some.run_ids) == [A_RUN, C_RUN]


async def check_opening_finds_or_creates(make_journal: MakeJournal) -> None:
    """Opening is idempotent by run id, and finds the live run of a session key."""
    async with open_journal(make_journal) as journal:
        first = await open_run(journal, A_RUN, session_key="chat", name="n", wake_at=9, at=7)
        assert (first.outcome, first.run_ids) == ("accepted", (A_RUN,))
        info = await info_of(journal, A_RUN)
        assert (info.agent, info.name, info.session_key) == ("echo", "n", "chat")
        assert (info.status, info.wake_at, info.created_at) == ("active", 9, 7)
        again = await open_run(journal, A_RUN, session_key="chat")
        assert (again.outcome, again.run_ids) == ("duplicate", (A_RUN,))
        assert again.first == (A_RUN, "in", 1), "its opening"
        found = SessionMessage(content="hello again")
        other = await open_run(journal, B_RUN, session_key="chat", found=found)
        assert (other.outcome, other.run_ids) == ("accepted", (A_RUN,))
        assert isinstance(other.event, SessionMessage)
        assert other.event.run_id == A_RUN
        assert await journal.info(B_RUN) is None
        await write(journal, A_RUN, 0, AgentComplete(), status="ended")
        fresh = await open_run(journal, C_RUN, session_key="chat", found=found)
        assert (fresh.outcome, fresh.run_ids) == ("accepted", (C_RUN,))


async def check_found_run_may_refuse_an_opening(make_journal: MakeJournal) -> None:
    """``NewRun.refusal_of_found`` is asked of a run that is found, and of no new one."""
    async with open_journal(make_journal) as journal:
        asked: list[str] = []

        def refuse(run_id: str) -> str:
            asked.append(run_id)
            return "" if len(asked) == 1 else "it has another value"

        def opening(run_id: str) -> Delivery:
            new = NewRun(
                run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="echo",
                session_key="chat", found=SessionMessage(content="hi"), refusal_of_found=refuse,
            )  # fmt: skip
            return Delivery(SessionOpen(open_agent="echo", at=1), run_id, new=new)

        assert (await deliver(journal, opening(A_RUN))).outcome == "accepted"
        assert not asked
        assert (await deliver(journal, opening(B_RUN))).outcome == "accepted"
        refused = await deliver(journal, opening(B_RUN))
        assert (refused.outcome, refused.reason) == ("rejected", "it has another value")
        assert (refused.run_ids, asked) == ((A_RUN,), [A_RUN, A_RUN])
        assert (await info_of(journal, A_RUN)).waiting == 2


async def check_opening_again_counts_its_key(make_journal: MakeJournal) -> None:
    """What opens a run again by its id is judged by the key of what it says, if that has one."""

    def saying(content: str, key: str) -> Delivery:
        message = SessionMessage(content=content, source="chat", key=key)
        event = SessionOpen(open_agent="echo", message=message, at=1)
        new = NewRun(run_id=A_RUN, root_run_id=A_RUN, parent_run_id=None, agent="echo")
        return Delivery(event, A_RUN, source="chat", key=key, new=new)

    async with open_journal(make_journal) as journal:
        assert (await deliver(journal, saying("hi", "1"))).outcome == "accepted"
        assert (await deliver(journal, saying("hi", "1"))).outcome == "duplicate"
        other = await deliver(journal, saying("bye", "1"))
        assert (other.outcome, other.reason) == ("rejected", "key reused")
        more = await deliver(journal, saying("and?", "2"))
        assert (more.outcome, type(more.event)) == ("accepted", SessionMessage)
        again = await deliver(journal, saying("and?", "2"))
        assert (again.outcome, again.first) == ("duplicate", (A_RUN, "in", 2))
        assert (await open_run(journal, A_RUN)).outcome == "duplicate"
        assert (await info_of(journal, A_RUN)).waiting == 2
        await write(journal, A_RUN, 0, AgentComplete(), status="ended")
        for said, seq in ((saying("hi", "1"), 1), (saying("and?", "2"), 2)):
            again = await deliver(journal, said)
            assert (again.outcome, again.first) == ("duplicate", (A_RUN, "in", seq))
        assert (await open_run(journal, A_RUN)).outcome == "duplicate"
        other = await deliver(journal, saying("bye", "1"))
        assert (other.outcome, other.reason) == ("rejected", "key reused")
        new = await deliver(journal, saying("late", "3"))
        assert (new.outcome, new.reason) == ("rejected", "ended")
        elsewhere = saying("hi", "1")
        elsewhere.source = "elsewhere"
        elsewhere = await deliver(journal, elsewhere)
        assert (elsewhere.outcome, elsewhere.reason) == ("rejected", "ended")


INBOX_CHECKS: Final[tuple[Check, ...]] = (
    check_inbox_is_numbered_and_stamped,
    check_taken_items_leave_the_inbox,
    check_refusal_of_files_sees_the_run,
    check_deduplication,
    check_duplicate_of_something_accepted_is_no_rejection,
    check_duplicate_of_something_accepted_outlives_the_run,
    check_request_counts_once_wherever_it_leads,
    check_results_and_replies_are_accepted_once,
    check_full_inbox_refuses_messages_only,
    check_closing_inbox_refuses_messages,
    check_terminated_inbox_refuses_everything,
    check_no_end_passes_a_termination,
    check_terminal_commit_gives_back_leftovers,
    check_addressing,
    check_everybody_is_reached,
    check_found_run_may_refuse_an_opening,
    check_opening_again_counts_its_key,
    check_opening_finds_or_creates,
)
"""What becomes of deliveries."""
