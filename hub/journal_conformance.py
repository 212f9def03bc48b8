"""What every ``Journal`` must do, as checks that any store can run (the port's docstring).

A store's own tests run all of them on a fresh, empty store each:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check):
        await check(MyJournal)

``make_journal`` returns a new store that is not open yet.  A check raises ``AssertionError``.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
from msgspec import structs

from hubbub.hub.cursor import START, cursor_at, cursor_of, place
from hubbub.hub.events import (
    AgentComplete,
    AgentStatus,
    CustomEvent,
    Event,
    InLane,
    SessionAbort,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionResult,
    SessionTaken,
    SessionTerminate,
)
from hubbub.hub.journal import Commit, Delivery, Journal, NewRun, RunInfo, Selection
from hubbub.hub.message import session_message
from hubbub.hub.values import encode_value

__all__ = ["CHECKS", "Check", "MakeJournal"]

MakeJournal: TypeAlias = Callable[[], Journal]
Check: TypeAlias = Callable[[MakeJournal], Awaitable[None]]

EVERYTHING: Final = Selection()
A_RUN: Final = "00000000-0000-7000-8000-00000000000a"
B_RUN: Final = "00000000-0000-7000-8000-00000000000b"
C_RUN: Final = "00000000-0000-7000-8000-00000000000c"


# ── the vocabulary of the checks ─────────────────────────────────────────────────────────────


@asynccontextmanager
async def _opened(make_journal: MakeJournal) -> AsyncIterator[Journal]:
    journal = make_journal()
    await journal.open()
    try:
        yield journal
    finally:
        await journal.aclose()


async def _commit(journal: Journal, commit: Commit) -> Commit:
    """Submit, and wait until it is done."""
    done = anyio.Event()
    commit.done = lambda _commit: done.set()
    journal.submit(commit)
    await done.wait()
    return commit


async def _deliver(journal: Journal, delivery: Delivery) -> Delivery:
    commit = await _commit(journal, Commit(deliveries=(delivery,)))
    assert not commit.error, "a delivery never makes a commit fail"
    return delivery


async def _send(journal: Journal, to: str, content: str, **options: Any) -> Delivery:
    message = session_message(content, source=options.get("source", ""))
    return await _deliver(journal, Delivery(message, to, **options))


async def _open_run(journal: Journal, run_id: str, agent: str = "echo", **options: Any) -> Delivery:
    at = options.pop("at", 1)
    found = options.pop("found", None)
    new = NewRun(
        run_id=run_id,
        root_run_id=options.pop("root_run_id", run_id),
        parent_run_id=options.pop("parent_run_id", None),
        agent=agent,
        found=found,
        **options,
    )
    event = SessionOpen(open_agent=agent, session_key=new.session_key, at=at)
    return await _deliver(journal, Delivery(event, run_id, new=new))


def _stamped(run_id: str, seq: int, event: Event) -> Event:
    return structs.replace(event, run_id=run_id, root_run_id=run_id, lane="own", seq=seq)


async def _write(
    journal: Journal, run_id: str, expect: int, *events: Event, **options: Any
) -> Commit:
    """One commit of the run's owner."""
    stamped = [_stamped(run_id, expect + 1 + i, event) for i, event in enumerate(events)]
    return await _commit(journal, Commit(run_id, stamped, expect=expect, **options))


async def _all(journal: Journal, selection: Selection = EVERYTHING) -> list[Event]:
    found: list[Event] = []
    position = 0
    while position < journal.tip:
        events, position = await journal.read(selection, after=position)
        found.extend(events)
    return found


def _identity(event: Event) -> tuple[str, str, int]:
    return (event.run_id, event.lane, event.seq)


async def _info(journal: Journal, run_id: str) -> RunInfo:
    info = await journal.info(run_id)
    assert info is not None
    return info


# ── the own lane ─────────────────────────────────────────────────────────────────────────────


async def check_own_lane_is_dense_and_in_order(make_journal: MakeJournal) -> None:
    """What the owner writes stands in the own lane as it was stamped, from 1 on, no gap."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        await _write(journal, A_RUN, 0, AgentStatus(status="one"), AgentStatus(status="two"))
        await _send(journal, A_RUN, "in between")
        await _write(journal, A_RUN, 2, AgentStatus(status="three"))
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert [event.seq for event in loaded.events] == [1, 2, 3]
        assert [event.status for event in loaded.events] == ["one", "two", "three"]  # type: ignore[attr-defined]
        assert all(event.lane == "own" for event in loaded.events)


async def check_conflicting_commit_changes_nothing(make_journal: MakeJournal) -> None:
    """A commit that expects another end of the lane is refused whole, deliveries included."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        await _open_run(journal, B_RUN)
        await _write(journal, A_RUN, 0, AgentStatus(status="mine"))
        before = journal.tip
        for expect in (0, 2):
            delivery = Delivery(session_message("lost"), B_RUN)
            commit = await _write(
                journal, A_RUN, expect, AgentStatus(status="other"), deliveries=(delivery,)
            )
            assert commit.error == "conflict"
            assert not commit.written
            assert delivery.outcome == ""
        unknown = await _write(journal, C_RUN, 0, AgentStatus(status="nobody's"))
        assert unknown.error == "conflict"
        assert journal.tip == before
        assert (await _info(journal, B_RUN)).waiting == 1


async def check_commit_is_whole(make_journal: MakeJournal) -> None:
    """Events, taken items, deliveries and children of one commit appear together."""
    async with _opened(make_journal) as journal:
        opening = await _open_run(journal, A_RUN)
        child = Delivery(
            SessionOpen(open_agent="child", at=2),
            B_RUN,
            new=NewRun(run_id=B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN, agent="child"),
        )
        commit = await _write(
            journal, A_RUN, 0,
            SessionTaken(items=(opening.event,)),
            taken=(opening.event.seq,),
            deliveries=(child, Delivery(session_message("hello"), B_RUN)),
        )  # fmt: skip
        assert not commit.error
        assert [delivery.outcome for delivery in commit.deliveries] == ["accepted", "accepted"]
        assert [_identity(event) for event in commit.written] == [
            (A_RUN, "own", 1), (B_RUN, "in", 1), (B_RUN, "in", 2),
        ]  # fmt: skip
        assert commit.written == (await _all(journal))[1:]
        assert (await _info(journal, A_RUN)).waiting == 0
        born = await _info(journal, B_RUN)
        assert (born.root_run_id, born.parent_run_id, born.waiting) == (A_RUN, A_RUN, 2)


async def check_commit_never_fails_for_a_recipient(make_journal: MakeJournal) -> None:
    """An unknown recipient is the delivery's outcome, not the commit's."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        lost = Delivery(session_message("hello"), C_RUN)
        kept = Delivery(session_message("hello"), A_RUN)
        commit = await _write(
            journal, A_RUN, 0, AgentStatus(status="sent"), deliveries=(lost, kept)
        )
        assert not commit.error
        assert (lost.outcome, lost.reason) == ("rejected", "unknown")
        assert kept.outcome == "accepted"


async def check_commits_are_done_in_order_of_submission(make_journal: MakeJournal) -> None:
    """``done`` is called once per commit, in order; positions number events in that order."""
    async with _opened(make_journal) as journal:
        done: list[int] = []
        commits = []
        for number in range(20):
            commit = Commit(events=(CustomEvent.of("test:number", number=number),))
            commit.done = lambda _commit, number=number: done.append(number)  # type: ignore[misc]
            commits.append(commit)
            journal.submit(commit)
        await journal.flush()
        assert done == list(range(20))
        events = await _all(journal)
        assert [event.data["number"] for event in events] == list(range(20))  # type: ignore[attr-defined]
        assert journal.tip == 20


# ── the hub's lane ───────────────────────────────────────────────────────────────────────────


async def check_hub_lane_keeps_events_unchanged(make_journal: MakeJournal) -> None:
    """Any event of no run's scope is numbered, and read back as it was (H-13)."""
    async with _opened(make_journal) as journal:
        event = CustomEvent.of("shop:order", order_id=7, lines=["a", {"b": None}], note="é ✓")
        event = structs.replace(event, at=5, run_id="elsewhere", agent="shop", side="x", turn=3)
        first = await _commit(journal, Commit(events=(event,)))
        second = await _commit(journal, Commit(events=(AgentStatus(status="outside"),)))
        (one,), (two,) = first.written, second.written
        assert one.lane == two.lane == "hub"
        assert two.seq == one.seq + 1
        assert structs.replace(one, lane="", seq=0) == event
        assert await _all(journal) == [one, two]
        assert (await _all(journal))[0].type == "shop:order"


# ── the in lane ──────────────────────────────────────────────────────────────────────────────


async def check_inbox_is_numbered_and_stamped(make_journal: MakeJournal) -> None:
    """Items are numbered by the store and carry the ids of the run they are for."""
    async with _opened(make_journal) as journal:
        opened = await _open_run(journal, A_RUN, root_run_id=B_RUN, parent_run_id=B_RUN)
        first = await _send(journal, A_RUN, "one")
        second = await _send(journal, A_RUN, "two")
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
    """Items are taken by name, in any order; the others go on waiting, in order."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        for content in "abc":
            await _send(journal, A_RUN, content)
        await _write(journal, A_RUN, 0, AgentStatus(), taken=(3, 1))
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert [item.seq for item in loaded.waiting] == [2, 4]
        assert (await _info(journal, A_RUN)).waiting == 2


async def check_deduplication(make_journal: MakeJournal) -> None:
    """(run, source, key) is accepted once, taken or not; other content under it is refused."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        await _open_run(journal, B_RUN)
        first = await _send(journal, A_RUN, "hello", source="chat", key="1")
        assert first.outcome == "accepted"
        again = await _send(journal, A_RUN, "hello", source="chat", key="1")
        assert again.outcome == "duplicate"
        other = await _send(journal, A_RUN, "other", source="chat", key="1")
        assert (other.outcome, other.reason) == ("rejected", "key reused")
        for to, source, key in ((B_RUN, "chat", "1"), (A_RUN, "web", "1"), (A_RUN, "chat", "2")):
            free = await _send(journal, to, "hello", source=source, key=key)
            assert free.outcome == "accepted"
        await _write(journal, A_RUN, 0, AgentStatus(), taken=(first.event.seq,))
        late = await _send(journal, A_RUN, "hello", source="chat", key="1")
        assert late.outcome == "duplicate", "for as long as the run exists"


async def check_duplicate_of_something_accepted_is_no_rejection(make_journal: MakeJournal) -> None:
    """Who repeats what was accepted is told so, also when the inbox is full or closing."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        first = await _send(journal, A_RUN, "hello", source="chat", key="1", limit=1)
        assert first.outcome == "accepted"
        again = await _send(journal, A_RUN, "hello", source="chat", key="1", limit=1)
        assert again.outcome == "duplicate", again.reason
        await _deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        again = await _send(journal, A_RUN, "hello", source="chat", key="1", limit=1)
        assert again.outcome == "duplicate", again.reason


async def check_results_and_replies_are_accepted_once(make_journal: MakeJournal) -> None:
    """A repeated result or reply is a duplicate, whatever it says: the first one counts."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        items: tuple[tuple[InLane, InLane], ...] = (
            (SessionResult(child_run_id=B_RUN), SessionResult(child_run_id=B_RUN, content="x")),
            (SessionReply(prompt_id="p", content="a"), SessionReply(prompt_id="p", content="b")),
        )
        for first, second in items:
            one = await _deliver(journal, Delivery(first, A_RUN, source=first.type, key="k"))
            two = await _deliver(journal, Delivery(second, A_RUN, source=second.type, key="k"))
            assert (one.outcome, two.outcome) == ("accepted", "duplicate")


async def check_full_inbox_refuses_messages_only(make_journal: MakeJournal) -> None:
    """``limit`` counts waiting messages; without one an item is exempt."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        for content in "ab":
            sent = await _send(journal, A_RUN, content, limit=2)
            assert sent.outcome == "accepted"
        full = await _send(journal, A_RUN, "c", limit=2)
        assert (full.outcome, full.reason) == ("rejected", "inbox full")
        exempt = await _deliver(journal, Delivery(SessionResult(child_run_id=B_RUN), A_RUN))
        assert exempt.outcome == "accepted"
        await _write(journal, A_RUN, 0, AgentStatus(), taken=(2,))
        room = await _send(journal, A_RUN, "d", limit=2)
        assert room.outcome == "accepted", "what is taken makes room"


# ── closing and ending ───────────────────────────────────────────────────────────────────────


async def check_closing_inbox_refuses_messages(make_journal: MakeJournal) -> None:
    """A closing run takes no more messages, but still results and control."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        await _deliver(journal, Delivery(SessionAbort(), A_RUN, closes="closing"))
        assert (await _info(journal, A_RUN)).inbox == "closing"
        late = await _send(journal, A_RUN, "late")
        assert (late.outcome, late.reason) == ("rejected", "ended")
        for item in (SessionResult(child_run_id=B_RUN), SessionAbort()):
            kept = await _deliver(journal, Delivery(item, A_RUN))
            assert kept.outcome == "accepted"


async def check_terminated_inbox_refuses_everything(make_journal: MakeJournal) -> None:
    """From its acceptance on, a termination lets nothing reach the run but another one."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        stop = await _deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert stop.outcome == "accepted"
        items: tuple[InLane, ...] = (
            session_message("late"), SessionResult(child_run_id=B_RUN), SessionAbort(),
        )  # fmt: skip
        for item in items:
            late = await _deliver(journal, Delivery(item, A_RUN))
            assert (late.outcome, late.reason) == ("rejected", "terminated")
        again = await _deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert again.outcome == "accepted"


async def check_terminal_commit_gives_back_leftovers(make_journal: MakeJournal) -> None:
    """The commit that ends a run closes its inbox and hands over what nobody will handle."""
    async with _opened(make_journal) as journal:
        await _open_run(journal, A_RUN)
        await _send(journal, A_RUN, "left one")
        await _deliver(journal, Delivery(SessionAbort(), A_RUN))
        await _send(journal, A_RUN, "left two")
        commit = await _write(journal, A_RUN, 0, AgentComplete(), taken=(1,), status="ended")
        assert [getattr(item, "content", "") for item in commit.leftovers] == [
            "left one", "left two",
        ]  # fmt: skip
        info = await _info(journal, A_RUN)
        assert (info.status, info.inbox, info.waiting) == ("ended", "ended", 0)
        late = await _send(journal, A_RUN, "late")
        assert (late.outcome, late.reason) == ("rejected", "ended")
        after = await _write(journal, A_RUN, 1, AgentStatus(status="after the end"))
        assert after.error == "conflict"
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert (len(loaded.events), len(loaded.waiting)) == (1, 0)


# ── addresses ────────────────────────────────────────────────────────────────────────────────


async def check_addressing(make_journal: MakeJournal) -> None:
    """By name and by key: one live run gets it; none or several is a rejection that lists."""
    async with _opened(make_journal) as journal:
        nobody = await _send(journal, "echo", "hello", by="name")
        assert (nobody.outcome, nobody.reason, nobody.run_ids) == ("rejected", "unknown", ())
        await _open_run(journal, A_RUN, session_key="chat-1")
        one = await _send(journal, "echo", "hello", by="name")
        assert (one.outcome, one.event.run_id) == ("accepted", A_RUN)
        keyed = await _send(journal, "chat-1", "hello", by="key")
        assert (keyed.outcome, keyed.event.run_id) == ("accepted", A_RUN)
        only = await _send(journal, "", "hello", by="only")
        assert (only.outcome, only.event.run_id) == ("accepted", A_RUN)
        await _open_run(journal, B_RUN, session_key="chat-2")
        for to, by in (("echo", "name"), ("", "only")):
            several = await _send(journal, to, "hello", by=by)
            assert (several.outcome, several.reason) == ("rejected", "ambiguous")
            assert sorted(several.run_ids) == [A_RUN, B_RUN]
        lost = await _send(journal, "chat-3", "hello", by="key")
        assert (lost.outcome, lost.reason) == ("rejected", "unknown")
        await _write(journal, A_RUN, 0, AgentComplete(), status="ended")
        left = await _send(journal, "echo", "hello", by="name")
        assert (left.outcome, left.event.run_id) == ("accepted", B_RUN)
        gone = await _send(journal, "chat-1", "hello", by="key")
        assert gone.outcome == "rejected"


async def check_everybody_is_reached(make_journal: MakeJournal) -> None:
    """``by="every"`` delivers to every live run and lists them; to none is no failure."""
    async with _opened(make_journal) as journal:
        none = await _deliver(journal, Delivery(SessionAbort(), "", by="every"))
        assert (none.outcome, none.run_ids) == ("accepted", ())
        for run_id in (A_RUN, B_RUN, C_RUN):
            await _open_run(journal, run_id)
        await _write(journal, B_RUN, 0, AgentComplete(), status="ended")
        some = await _deliver(journal, Delivery(SessionAbort(), "", by="every"))
        assert sorted(some.run_ids) == [A_RUN, C_RUN]


async def check_opening_finds_or_creates(make_journal: MakeJournal) -> None:
    """Opening is idempotent by run id, and finds the live run of a session key."""
    async with _opened(make_journal) as journal:
        first = await _open_run(journal, A_RUN, session_key="chat", name="n", wake_at=9, at=7)
        assert (first.outcome, first.run_ids) == ("accepted", (A_RUN,))
        info = await _info(journal, A_RUN)
        assert (info.agent, info.name, info.session_key) == ("echo", "n", "chat")
        assert (info.status, info.wake_at, info.created_at) == ("active", 9, 7)
        again = await _open_run(journal, A_RUN, session_key="chat")
        assert (again.outcome, again.run_ids) == ("duplicate", (A_RUN,))
        found = SessionMessage(content="hello again")
        other = await _open_run(journal, B_RUN, session_key="chat", found=found)
        assert (other.outcome, other.run_ids) == ("accepted", (A_RUN,))
        assert isinstance(other.event, SessionMessage)
        assert other.event.run_id == A_RUN
        assert await journal.info(B_RUN) is None
        await _write(journal, A_RUN, 0, AgentComplete(), status="ended")
        fresh = await _open_run(journal, C_RUN, session_key="chat", found=found)
        assert (fresh.outcome, fresh.run_ids) == ("accepted", (C_RUN,))


async def check_lists_of_runs(make_journal: MakeJournal) -> None:
    """``runs`` lists live ones by creation, ``ready`` what has work, ``depths`` counts."""
    async with _opened(make_journal) as journal:
        for run_id in (B_RUN, A_RUN, C_RUN):
            await _open_run(journal, run_id)
        assert journal.depths() == (3, 0, 3)
        await _write(journal, A_RUN, 0, AgentStatus(), taken=(1,), status="parked")
        await _write(journal, C_RUN, 0, AgentComplete(), taken=(1,), status="ended")
        assert [info.run_id for info in await journal.runs()] == [B_RUN, A_RUN]
        assert [info.run_id for info in await journal.runs(live=False)] == [B_RUN, A_RUN, C_RUN]
        assert list(await journal.ready()) == [B_RUN]
        assert journal.depths() == (2, 1, 1)
        await _send(journal, A_RUN, "wake up")
        assert sorted(await journal.ready()) == [A_RUN, B_RUN]
        assert await journal.load("nobody") is None
        assert await journal.info("nobody") is None


# ── reading ──────────────────────────────────────────────────────────────────────────────────


async def check_reading_in_pages(make_journal: MakeJournal) -> None:
    """Pages of any size give the same events as one: no gap, no duplicate, in order."""
    async with _opened(make_journal) as journal:
        await _mixed(journal)
        whole = await _all(journal)
        assert len({_identity(event) for event in whole}) == len(whole) == journal.tip
        for selection in _SELECTIONS:
            wanted = [event for event in whole if selection.wants(event)]
            assert wanted, "the check selects something"
            for limit in (1, 2, 3, 100):
                found: list[Event] = []
                position = 0
                while position < journal.tip:
                    events, reached = await journal.read(selection, after=position, limit=limit)
                    assert len(events) <= limit
                    assert reached > position
                    found.extend(events)
                    position = reached
                assert found == wanted


async def check_reading_a_part(make_journal: MakeJournal) -> None:
    """``after`` and ``until`` are positions; nothing beyond ``until`` is seen."""
    async with _opened(make_journal) as journal:
        await _mixed(journal)
        whole = await _all(journal)
        for after in range(len(whole) + 1):
            for until in range(after, len(whole) + 1):
                for selection in (EVERYTHING, Selection(run_id=A_RUN)):
                    events, reached = await journal.read(selection, after=after, until=until)
                    assert list(events) == [e for e in whole[after:until] if selection.wants(e)]
                    assert reached == until


async def check_positions_and_cursors(make_journal: MakeJournal) -> None:
    """Every durable event has its place; a cursor leads to what follows it."""
    async with _opened(make_journal) as journal:
        await _mixed(journal)
        whole = await _all(journal)
        for index, event in enumerate(whole):
            assert await journal.position(*_identity(event)) == index + 1
            assert await place(journal, cursor_of(journal.name, event)) == index + 1
            assert await place(journal, cursor_at(journal.name, index + 1)) == index + 1
        assert await place(journal, START) == 0
        assert await journal.position(A_RUN, "own", 999) is None
        assert await journal.position("nobody", "own", 1) is None
        for bad in _BAD_CURSORS:
            assert await place(journal, bad.format(name=journal.name)) is None, bad


_SELECTIONS: Final = (
    EVERYTHING,
    Selection(run_id=A_RUN),
    Selection(root_run_id=A_RUN),
    Selection(match=lambda type_: type_ == "session:message"),
    Selection(run_id=B_RUN, root_run_id=A_RUN, match=lambda type_: type_.startswith("session:")),
)

_BAD_CURSORS: Final = (
    "", "x", "{name}", "{name}@", "{name}@-1", "{name}@1x", "{name}@99999999999999999999",
    "{name}@9999", "{name}|", "{name}|a/b", "{name}|" + A_RUN + "/own/x", "other@1",
    "{name}|" + A_RUN + "/own/9999", "other|" + A_RUN + "/own/1", "{name}|//", "{name}@²",
)  # fmt: skip


async def _mixed(journal: Journal) -> None:
    """A little of everything, in one order."""
    await _open_run(journal, A_RUN)
    await _open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
    await _open_run(journal, C_RUN)
    for seq in range(4):
        await _write(journal, A_RUN, seq, AgentStatus(status=str(seq)))
        await _send(journal, B_RUN, f"message {seq}")
        await _commit(journal, Commit(events=(CustomEvent.of("test:tick", tick=seq),)))
    commit = Commit(
        C_RUN,
        [_stamped(C_RUN, 1, AgentStatus()), _stamped(C_RUN, 2, AgentComplete())],
        taken=(1,),
        deliveries=(Delivery(SessionResult(child_run_id=C_RUN), A_RUN),),
        status="ended",
    )
    await _commit(journal, commit)


async def check_values_survive(make_journal: MakeJournal) -> None:
    """Whatever an event holds is read back as an equal event."""
    async with _opened(make_journal) as journal:
        value = {"text": 'é\n"✓" \u2028', "numbers": [0, -1, 1.5, 2**53], "none": None, "b": True}
        await _open_run(journal, A_RUN)
        written = await _write(
            journal, A_RUN, 0, AgentComplete(output_json=encode_value("output", value))
        )
        sent = await _deliver(
            journal,
            Delivery(
                SessionMessage(
                    content="hello", source="s", metadata_json=encode_value("metadata", value)
                ),
                A_RUN,
            ),
        )
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert list(loaded.events) == list(written.written)
        (complete,) = loaded.events
        assert isinstance(complete, AgentComplete)
        assert complete.output == value
        assert loaded.waiting[-1] == sent.event
        assert sent.event.metadata == value  # type: ignore[union-attr]


async def check_closing_the_store_is_idempotent(make_journal: MakeJournal) -> None:
    """``flush`` and ``aclose`` finish what was submitted; closing twice is a no-op."""
    journal = make_journal()
    await journal.open()
    commit = Commit(events=(CustomEvent.of("test:last"),))
    journal.submit(commit)
    await journal.flush()
    assert len(commit.written) == 1
    await journal.aclose()
    await journal.aclose()


CHECKS: Final[tuple[Check, ...]] = (
    check_own_lane_is_dense_and_in_order,
    check_conflicting_commit_changes_nothing,
    check_commit_is_whole,
    check_commit_never_fails_for_a_recipient,
    check_commits_are_done_in_order_of_submission,
    check_hub_lane_keeps_events_unchanged,
    check_inbox_is_numbered_and_stamped,
    check_taken_items_leave_the_inbox,
    check_deduplication,
    check_duplicate_of_something_accepted_is_no_rejection,
    check_results_and_replies_are_accepted_once,
    check_full_inbox_refuses_messages_only,
    check_closing_inbox_refuses_messages,
    check_terminated_inbox_refuses_everything,
    check_terminal_commit_gives_back_leftovers,
    check_addressing,
    check_everybody_is_reached,
    check_opening_finds_or_creates,
    check_lists_of_runs,
    check_reading_in_pages,
    check_reading_a_part,
    check_positions_and_cursors,
    check_values_survive,
    check_closing_the_store_is_idempotent,
)
"""Every check, for a store's own tests to run."""
