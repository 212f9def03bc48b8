"""What a store does from which old turns of runs go (``Commit.cut``); one that keeps all passes.

Part of ``hub/conformance/journal.py``.
"""

from typing import Final

from hubbub.hub.conformance.members import MakeSharedStore, SharingCheck, members_of
from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    EVERYTHING,
    Check,
    MakeJournal,
    commit_of,
    deliver,
    info_of,
    open_journal,
    open_run,
    read_all,
    send,
    write,
)
from hubbub.hub.events import AgentBase, AgentPark, AgentStart, AgentStatus
from hubbub.hub.message import Message, session_message
from hubbub.hub.store.journal import Commit, Cut, Delivery, Selection
from hubbub.hub.store.store import RemovesTrees, Store, cuts_lanes, removals_of

__all__ = ["CUT_CHECKS", "SHARED_CUT_CHECKS"]


async def _grown(journal: Store) -> RemovesTrees | None:
    """Run A has a base after its own record 4, and two items before it; ``None`` for a store that
    cuts nothing."""
    store = removals_of(journal)
    if store is None or not cuts_lanes(journal):
        return None
    await store.prepare_removals()
    await open_run(journal, A_RUN)
    await open_run(journal, B_RUN)
    await write(journal, A_RUN, 0, AgentStart(), AgentStatus(status="1"), taken=(1,))
    await _say(journal, "hello", "1")
    await write(journal, B_RUN, 0, AgentStart(), AgentStatus(status="b"), taken=(1,))
    await write(journal, A_RUN, 2, AgentStatus(status="2"), AgentStatus(status="3"), taken=(2,))
    await write(journal, A_RUN, 4, AgentBase(turn=2, inbox=7), AgentPark())
    await _say(journal, "later", "2")
    await write(journal, A_RUN, 6, AgentStatus(status="4"), taken=(3,))
    return store


async def _say(journal: Store, content: str, key: str) -> Delivery:
    """Deliver a message with a key, which it says itself: so it is known when it goes."""
    said = session_message(Message(content, key=key), source="chat")
    return await deliver(journal, Delivery(said, A_RUN, source="chat", key=key))


async def _cut(
    journal: Store, seq: int = 5, inbox: int = 2, run_id: str = A_RUN, after: int = 0
) -> str:
    cut = Cut(run_id=run_id, seq=seq, inbox=inbox, after=after)
    return (await commit_of(journal, Commit(cut=cut))).error


async def check_what_stands_before_a_base_goes(make_journal: MakeJournal) -> None:
    """How a run began stays, and all from the base on, with the numbers and places that it had."""
    async with open_journal(make_journal) as journal:
        if await _grown(journal) is None:
            return
        places = {
            (run_id, lane, seq): await journal.position(run_id, lane, seq)
            for run_id, lane, seq in [(A_RUN, "own", 5), (A_RUN, "in", 3), (B_RUN, "own", 2)]
        }
        others = await read_all(journal, Selection(run_id=B_RUN))
        info = await info_of(journal, A_RUN)
        for _ in range(2):  # What has gone before is no conflict.
            assert await _cut(journal) == ""
            left = await read_all(journal, Selection(run_id=A_RUN))
            assert [(x.lane, x.seq) for x in left] == [
                ("in", 1), ("own", 1), ("own", 5), ("own", 6), ("in", 3), ("own", 7)
            ]  # fmt: skip
            for place, position in places.items():
                assert await journal.position(*place) == position
            for seq in (2, 3, 4):
                assert await journal.position(A_RUN, "own", seq) is None
            assert await journal.position(A_RUN, "in", 2) is None
        assert await read_all(journal, Selection(run_id=B_RUN)) == others
        assert await info_of(journal, A_RUN) == info


async def check_a_run_is_read_from_its_base_on(make_journal: MakeJournal) -> None:
    """Whoever asks for more gets that, and is told from where it is; the run goes on as before."""
    async with open_journal(make_journal) as journal:
        if await _grown(journal) is None:
            return
        await _cut(journal)
        for after, first in ((0, 5), (1, 5), (3, 5), (4, 5), (5, 6), (6, 7), (7, 8)):
            loaded = await journal.load(A_RUN, after=after)
            assert loaded is not None
            assert (loaded.after, loaded.seq) == (first - 1, 7), after
            assert [x.seq for x in loaded.events] == [*range(first, 8)]
        assert (await write(journal, A_RUN, 6, AgentPark())).error == "conflict"
        assert (await write(journal, A_RUN, 7, AgentPark())).error == ""
        loaded = await journal.load(A_RUN)
        assert loaded is not None and (loaded.after, loaded.seq) == (4, 8)
        with_reader = await journal.inspect(lambda store: store.load(A_RUN))
        assert with_reader is not None
        assert (with_reader.after, list(with_reader.events)) == (4, list(loaded.events))


async def check_a_base_says_how_many_items_came_before_it(make_journal: MakeJournal) -> None:
    """The store counts them, whatever its writer says; bases are found by run and by place."""
    async with open_journal(make_journal) as journal:
        if await _grown(journal) is None:
            return
        (base,) = await read_all(journal, Selection(match=lambda type_: type_ == AgentBase.type))
        assert isinstance(base, AgentBase) and base.inbox == 2
        rows = await journal.inspect(lambda store: store.bases())
        place = await journal.position(A_RUN, "own", 5)
        assert [(row.position, row.run_id, row.seq) for row in rows] == [(place, A_RUN, 5)]
        assert await journal.inspect(lambda store: store.bases(A_RUN)) == rows
        assert await journal.inspect(lambda store: list(store.bases(B_RUN))) == []
        assert await journal.inspect(lambda store: list(store.bases(after=place or 0))) == []


async def check_a_key_is_known_when_its_item_has_gone(make_journal: MakeJournal) -> None:
    """The same again is a duplicate, something else is refused; also when the run has ended."""
    async with open_journal(make_journal) as journal:
        if await _grown(journal) is None:
            return
        await _cut(journal)
        for key, said in (("1", "hello"), ("2", "later")):
            again = await _say(journal, said, key)
            assert again.outcome == "duplicate"
            other = await _say(journal, "other", key)
            assert (other.outcome, other.reason) == ("rejected", "key reused")
        known = await journal.inspect(lambda store: [*store.accepted(A_RUN)])
        assert [(x.key, x.seq, x.number > 0) for x in known] == [("1", 0, True), ("2", 3, False)]
        free = await _say(journal, "hello", "3")
        assert free.event.seq == 4
        await write(journal, A_RUN, 7, AgentStatus(), taken=(4,), status="ended")
        again = await _say(journal, "hello", "1")
        assert again.outcome == "duplicate"


async def check_a_long_one_goes_step_by_step(make_journal: MakeJournal) -> None:
    """From its base backwards: what is left is a beginning and the base, each time; also where one
    that has begun is not done and the next one begins."""
    async with open_journal(make_journal) as journal:
        if await _grown(journal) is None:
            return
        await write(journal, A_RUN, 7, AgentBase(turn=3), AgentStatus(status="5"))
        whole = await read_all(journal, Selection(run_id=A_RUN))
        of_first = [(x.lane, x.seq) for x in whole]
        places = [await journal.position(A_RUN, lane, seq) or 0 for lane, seq in of_first]
        for seq, inbox in ((5, 2), (8, 3)):
            base, start = of_first.index(("own", seq)), of_first.index(("own", 1))
            for place in range(base - 1, start, -1):
                if seq == 5 and place == start + 1:
                    break  # That one is not done.
                after, until = places[place] - 1, places[place]
                cut = Cut(
                    run_id=A_RUN, seq=seq, inbox=inbox, after=after, until=until, place=places[base]
                )
                assert (await commit_of(journal, Commit(cut=cut))).error == ""
                left = await read_all(journal, Selection(run_id=A_RUN))
                gone = [x for x in whole[place:base] if x in left]
                assert gone == [] and left[-1] == whole[-1]
                assert left[: start + 1] == whole[: start + 1]
                loaded = await journal.load(A_RUN)
                assert loaded is not None and (loaded.after, loaded.seq) == (seq - 1, 9)
                again = await _say(journal, "hello", "1")
                assert again.outcome == "duplicate"
        assert [(x.lane, x.seq) for x in left] == [("in", 1), ("own", 1), ("own", 8), ("own", 9)]
        known = await journal.inspect(lambda store: [*store.accepted(A_RUN)])
        assert [(x.key, x.number > 0) for x in known] == [("1", True), ("2", True)]


async def check_nothing_goes_that_is_still_needed(make_journal: MakeJournal) -> None:
    """What waits keeps all before it; where there is no base, or no run, nothing goes."""
    async with open_journal(make_journal) as journal:
        if await _grown(journal) is None:
            return
        await send(journal, A_RUN, "waits")
        whole = await read_all(journal)
        assert await _cut(journal, inbox=4) == "conflict"
        assert await _cut(journal, run_id="nobody") == "conflict"
        for seq in (4, 6, 99):
            await _cut(journal, seq=seq)
        assert await read_all(journal) == whole
        assert await _cut(journal) == ""
        assert [x.seq for x in (await read_all(journal, Selection(run_id=A_RUN)))] != []
        assert (await info_of(journal, A_RUN)).waiting == 1


async def check_all_stays_that_came_before_a_run_began(make_journal: MakeJournal) -> None:
    """Its lanes are whole up to its start, whatever had come to its inbox by then."""
    async with open_journal(make_journal) as journal:
        store = removals_of(journal)
        if store is None or not cuts_lanes(journal):
            return
        await store.prepare_removals()
        await open_run(journal, A_RUN)
        await _say(journal, "early", "1")
        await write(journal, A_RUN, 0, AgentStart(), taken=(1, 2))
        await _say(journal, "late", "2")
        await write(journal, A_RUN, 1, AgentStatus(status="1"), taken=(3,))
        await write(journal, A_RUN, 2, AgentBase(turn=1))
        assert await _cut(journal, seq=3, inbox=3) == ""
        left = await read_all(journal, Selection(run_id=A_RUN))
        places = [(x.lane, x.seq) for x in left]
        assert places == [("in", 1), ("in", 2), ("own", 1), ("own", 3)]
        for key, said in (("1", "early"), ("2", "late")):
            again = await _say(journal, said, key)
            assert again.outcome == "duplicate"
        known = await journal.inspect(lambda store: [*store.accepted(A_RUN)])
        assert [(x.key, x.seq, x.number > 0) for x in known] == [("1", 2, False), ("2", 0, True)]
        loaded = await journal.load(A_RUN)
        assert loaded is not None and (loaded.after, loaded.seq) == (2, 3)


async def check_whoever_cuts_a_run_everybody_hears_of_it_and_its_owner_goes_on(
    make_store: MakeSharedStore,
) -> None:
    """Each commit that cuts is told once, with where the last event was that went."""
    async with members_of(make_store()) as (one, other):
        if await _grown(one.journal) is None:
            return
        await other.journal.flush()
        places = [await one.journal.position(A_RUN, "own", seq) or 0 for seq in (2, 3, 4)]
        assert await _cut(other.journal, after=places[1]) == ""
        assert await _cut(other.journal) == ""
        assert await _cut(other.journal) == ""  # It has gone before: there is nothing to tell.
        for member in (one, other):
            await member.journal.read(EVERYTHING)
            assert [
                (x.root_run_id, x.last, tuple(x.run_ids or ()), x.is_cut) for x in member.removals
            ] == [(A_RUN, places[2], (A_RUN,), True), (A_RUN, places[1], (A_RUN,), True)]
        assert (await write(one.journal, A_RUN, 7, AgentStatus(status="5"))).error == ""
        for member in (one, other):
            assert (await _say(member.journal, "hello", "1")).outcome == "duplicate"
            assert (await _say(member.journal, "else", "1")).reason == "key reused"
            loaded = await member.journal.load(A_RUN)
            assert loaded is not None and (loaded.after, loaded.seq) == (4, 8)
        assert (await write(one.journal, A_RUN, 8, AgentBase(turn=3))).error == ""
        assert await _cut(other.journal, seq=9, inbox=3) == ""
        await other.journal.flush()
        left = await read_all(other.journal, Selection(run_id=A_RUN))
        assert [(x.lane, x.seq) for x in left] == [("in", 1), ("own", 1), ("own", 9)]


SHARED_CUT_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_whoever_cuts_a_run_everybody_hears_of_it_and_its_owner_goes_on,
)
"""Of a store that several processes are at work on."""

CUT_CHECKS: Final[tuple[Check, ...]] = (
    check_what_stands_before_a_base_goes,
    check_a_run_is_read_from_its_base_on,
    check_a_base_says_how_many_items_came_before_it,
    check_a_key_is_known_when_its_item_has_gone,
    check_a_long_one_goes_step_by_step,
    check_nothing_goes_that_is_still_needed,
    check_all_stays_that_came_before_a_run_began,
)
