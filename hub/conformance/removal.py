"""What every store must do from which trees go beside runs at work (``Commit.gone``).

``REMOVAL_CHECKS`` are run beside ``CHECKS`` on a store that has what ``RemovesTrees`` says, and
``SHARED_REMOVAL_CHECKS`` beside ``SHARING_CHECKS``.
"""

from typing import Any, Final

import anyio
from msgspec import structs

from hubbub.hub.conformance.cuts import SHARED_CUT_CHECKS
from hubbub.hub.conformance.members import MakeSharedStore, Member, SharingCheck, members_of
from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
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
    stamp,
    write,
)
from hubbub.hub.events import AgentComplete, CustomEvent
from hubbub.hub.message import session_message
from hubbub.hub.store.cursor import cursor_of, place
from hubbub.hub.store.journal import Commit, Delivery, Journal, RequestKey
from hubbub.hub.store.store import Store, removals_of

__all__ = ["REMOVAL_CHECKS", "SHARED_REMOVAL_CHECKS"]

REQUEST: Final = RequestKey("request-1", "digest")


async def _ended(journal: Journal, run_id: str = A_RUN, **options: Any) -> None:
    """A run that was spoken to, and has ended."""
    await open_run(journal, run_id, **options)
    said = session_message("hello", source="chat")
    await deliver(journal, Delivery(said, run_id, source="chat", key="1", request=REQUEST))
    await _end(journal, run_id)


async def _end(journal: Journal, run_id: str, root: str = "") -> None:
    info = await info_of(journal, run_id)
    taken = tuple(range(1, info.waiting + 1))
    over = structs.replace(stamp(run_id, 1, AgentComplete()), root_run_id=root or run_id)
    commit = Commit(run_id, (over,), taken=taken, status="ended")
    assert not (await commit_of(journal, commit)).error


async def _let_go(journal: Store, *run_ids: str, **options: Any) -> Commit:
    assert removals_of(journal) is not None, "the store is one from which trees go"
    return await commit_of(journal, Commit(gone=run_ids, **options))


async def _say(journal: Journal, text: str = "test:said", run_id: str = "") -> None:
    """The last event of the store is another one's."""
    event = structs.replace(CustomEvent.of(text), run_id=run_id, root_run_id=run_id)
    assert not (await commit_of(journal, Commit(events=(event,)))).error


# ── one process ──────────────────────────────────────────────────────────────────────────────


async def check_a_tree_goes_with_all_that_it_has(make_journal: MakeJournal) -> None:
    """Nothing is found of it, and what was given for it is free again."""
    async with open_journal(make_journal) as journal:
        await _ended(journal, session_key="chat")
        await open_run(journal, B_RUN)
        cursors = {x.run_id: cursor_of(journal.name, x) for x in await read_all(journal)}
        tip = journal.tip
        gone = await _let_go(journal, A_RUN)
        assert (gone.error, gone.written, journal.tip) == ("", [], tip)
        assert await journal.info(A_RUN) is None and await journal.load(A_RUN) is None
        assert {event.run_id for event in await read_all(journal)} == {B_RUN}
        assert [info.run_id for info in await journal.runs(live=False)] == [B_RUN]
        assert await place(journal, cursors[A_RUN]) is None
        assert await place(journal, cursors[B_RUN]) == tip
        late = await send(journal, A_RUN, "are you there?")
        assert (late.outcome, late.reason) == ("rejected", "unknown")
        again = await open_run(journal, C_RUN, session_key="chat")
        assert (again.outcome, again.run_ids) == ("accepted", (C_RUN,))
        said = session_message("hello", source="chat")
        repeated = Delivery(said, C_RUN, source="chat", key="1", request=REQUEST)
        assert (await deliver(journal, repeated)).outcome == "accepted"
        assert journal.tip == tip + 2


async def check_nothing_goes_that_lives(make_journal: MakeJournal) -> None:
    """A tree goes when every run in it has ended; else it is a conflict, and all of it stays."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        await _end(journal, B_RUN, A_RUN)
        await _say(journal)
        before = await read_all(journal)
        for run_ids in ((A_RUN, B_RUN), (A_RUN,)):
            assert (await _let_go(journal, *run_ids)).error == "conflict"
        assert await read_all(journal) == before
        assert (await send(journal, A_RUN, "hello")).outcome == "accepted"


async def check_what_has_gone_goes_no_second_time(make_journal: MakeJournal) -> None:
    """Of what is not there nothing is said, and nothing else goes."""
    async with open_journal(make_journal) as journal:
        await _ended(journal)
        await _say(journal)
        for _ in range(2):
            gone = await _let_go(journal, A_RUN)
            assert (gone.error, gone.written) == ("", [])
        assert len(await read_all(journal)) == 1


async def check_a_note_that_is_not_as_expected_keeps_what_was_to_go(
    make_journal: MakeJournal,
) -> None:
    """As with every commit: by that one of several processes has trees go."""
    async with open_journal(make_journal) as journal:
        await _ended(journal)
        await _say(journal)
        await commit_of(journal, Commit(notes={"turn": "2"}))
        before = await read_all(journal)
        gone = await _let_go(journal, A_RUN, notes={"a": "1"}, notes_expect={"turn": "1"})
        assert gone.error == "conflict" and await read_all(journal) == before
        assert "a" not in await journal.notes()
        assert not (await _let_go(journal, A_RUN, notes_expect={"turn": "2"})).error
        assert await journal.info(A_RUN) is None


async def check_notes_that_are_emptied_with_a_tree_are_kept_no_longer(
    make_journal: MakeJournal,
) -> None:
    """Those of others are kept as they are."""
    async with open_journal(make_journal) as journal:
        await _ended(journal)
        await commit_of(journal, Commit(notes={"mine": "1", "other": "2", "empty": ""}))
        await _say(journal)
        await _let_go(journal, A_RUN, notes={"mine": ""})
        notes = await journal.notes()
        assert "mine" not in notes and (notes["other"], notes["empty"]) == ("2", "")


async def check_what_comes_with_it_finds_it_whole_or_finds_none(make_journal: MakeJournal) -> None:
    """The order is that of the commits, also of those that are written together."""
    async with open_journal(make_journal) as journal:
        await _ended(journal)
        await open_run(journal, B_RUN)
        tip = journal.tip
        told = []
        for to in (A_RUN, B_RUN):
            told.append(Delivery(session_message("before"), to))
            journal.submit(Commit(deliveries=(told[-1],)))
        journal.submit(Commit(gone=(A_RUN,)))
        for to in (A_RUN, B_RUN):
            told.append(Delivery(session_message("after"), to))
            journal.submit(Commit(deliveries=(told[-1],)))
        await journal.flush()
        reasons = [each.reason or each.outcome for each in told]
        assert reasons == ["ended", "accepted", "unknown", "accepted"]
        assert journal.tip == tip + 2


async def check_a_run_of_the_same_id_is_another_one(make_journal: MakeJournal) -> None:
    """As when it is taken in again; what the hub's own lane says of either is there."""
    async with open_journal(make_journal) as journal:
        await _ended(journal)
        await _say(journal, run_id=A_RUN)
        await _let_go(journal, A_RUN)
        await _say(journal, run_id=A_RUN)
        await open_run(journal, A_RUN)
        assert (await send(journal, A_RUN, "hello")).outcome == "accepted"
        loaded = await journal.load(A_RUN)
        assert loaded is not None and [item.seq for item in loaded.waiting] == [1, 2]
        found = [(x.run_id, x.lane) for x in await read_all(journal)]
        assert found == [(A_RUN, "hub"), (A_RUN, "hub"), (A_RUN, "in"), (A_RUN, "in")]
        rows = await journal.inspect(lambda reader: [x.run_id for x in reader.event_rows()])
        assert rows == [A_RUN] * 4


REMOVAL_CHECKS: Final[tuple[Check, ...]] = (
    check_a_tree_goes_with_all_that_it_has,
    check_nothing_goes_that_lives,
    check_what_has_gone_goes_no_second_time,
    check_a_note_that_is_not_as_expected_keeps_what_was_to_go,
    check_notes_that_are_emptied_with_a_tree_are_kept_no_longer,
    check_what_comes_with_it_finds_it_whole_or_finds_none,
    check_a_run_of_the_same_id_is_another_one,
)
"""Of a store that one process has to itself, or of one process of several."""


# ── several processes ────────────────────────────────────────────────────────────────────────


async def check_nothing_goes_of_which_another_process_drives_a_run(
    make_store: MakeSharedStore,
) -> None:
    """Nor what it drives next, or nobody; and what has ended goes whoever asks for it."""
    async with members_of(make_store()) as (one, other):
        await open_run(one.journal, A_RUN)
        await open_run(one.journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        await _end(one.journal, B_RUN, A_RUN)
        await _say(one.journal)
        assert (await _let_go(other.journal, B_RUN)).error == "conflict"
        assert (await _let_go(other.journal, A_RUN, B_RUN)).error == "conflict"
        await _end(one.journal, A_RUN)
        await _say(one.journal)
        assert not (await _let_go(other.journal, A_RUN, B_RUN)).error
        assert await one.journal.info(A_RUN) is None and await one.journal.info(B_RUN) is None


async def check_everybody_is_told_once_what_has_gone(make_store: MakeSharedStore) -> None:
    """Also who has had it go; with its runs, and where its last event was."""
    async with members_of(make_store(), 2, channels=1) as members:
        one, other, _ = members
        await _ended(one.journal)
        last = one.journal.tip
        await _say(one.journal)
        assert not (await _let_go(other.journal, A_RUN)).error
        await _say(one.journal)
        for member in members:
            await member.until(lambda member=member: member.removals != [])  # type: ignore[misc]
            await member.journal.read(EVERYTHING)
            (tree,) = member.removals
            assert (tree.root_run_id, tree.last, tuple(tree.run_ids or ())) == (
                A_RUN, last, (A_RUN,),
            )  # fmt: skip


async def check_what_is_read_is_told_to_lack_what_has_gone(make_store: MakeSharedStore) -> None:
    """Whoever reads less than there was has been told by then, however early that is."""
    async with members_of(make_store()) as (one, other):
        for run_id in (A_RUN, B_RUN, C_RUN):
            await _ended(one.journal, run_id)
        await _say(one.journal)
        await other.journal.flush()
        for count, run_id in enumerate((A_RUN, B_RUN, C_RUN), 1):
            await _let_go(one.journal, run_id)
            await other.journal.read(EVERYTHING)
            assert [tree.root_run_id for tree in other.removals][count - 1 :] == [run_id]


async def check_a_process_that_is_behind_keeps_its_place(make_store: MakeSharedStore) -> None:
    """It is told of what is kept, and in its place that something has gone."""
    store = make_store()
    async with members_of(store) as (one, _):
        behind = Member(store.journal(is_worker=False))
        await behind.journal.open()
        try:
            behind.place = behind.journal.tip
            await _say(one.journal)
            await _ended(one.journal)
            await _say(one.journal)
            await _ended(one.journal, B_RUN)
            await _say(one.journal)
            for run_id in (A_RUN, B_RUN):
                assert not (await _let_go(one.journal, run_id)).error
            behind.share.attach(behind)
            await behind.journal.flush()
            assert [lane for _, lane, _ in behind.told] == ["hub"] * 3
            assert behind.place == behind.journal.tip == one.journal.tip
            assert {tree.root_run_id for tree in behind.removals} == {A_RUN, B_RUN}
        finally:
            await behind.journal.aclose()


async def check_it_is_known_what_everybody_has_heard(make_store: MakeSharedStore) -> None:
    """A process that is behind holds up what it has yet to hear, until it hears it or is over."""
    store = make_store()
    async with members_of(store) as (one, _):
        behind = Member(store.journal(is_worker=False))
        await behind.journal.open()
        try:
            await _ended(one.journal)
            await anyio.sleep(store.ttl)
            assert await one.share.heard_by_all() < one.journal.tip
            behind.share.attach(behind)
            await behind.journal.flush()
            await anyio.sleep(store.ttl)
            assert await one.share.heard_by_all() == one.journal.tip
        finally:
            await behind.journal.aclose()


async def check_a_row_that_another_process_had_go_is_forgotten(make_store: MakeSharedStore) -> None:
    """What a process remembers of a run holds no longer, nor what it called it by."""
    async with members_of(make_store()) as (one, other):
        await _ended(one.journal)
        late = await send(other.journal, A_RUN, "are you there?")
        assert late.reason == "ended"
        await _say(other.journal)
        assert not (await _let_go(one.journal, A_RUN)).error
        late = await send(other.journal, A_RUN, "are you there?")
        assert late.reason == "unknown"
        await _say(other.journal, run_id=A_RUN)
        await open_run(other.journal, A_RUN)
        await write(other.journal, A_RUN, 0, AgentComplete(), status="parked")
        loaded = await one.journal.load(A_RUN)
        assert loaded is not None and loaded.seq == 1
        rows = await one.journal.inspect(lambda reader: [x.run_id for x in reader.event_rows()])
        assert rows == ["", A_RUN, A_RUN, A_RUN]


SHARED_REMOVAL_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_nothing_goes_of_which_another_process_drives_a_run,
    check_everybody_is_told_once_what_has_gone,
    check_what_is_read_is_told_to_lack_what_has_gone,
    check_a_process_that_is_behind_keeps_its_place,
    check_it_is_known_what_everybody_has_heard,
    check_a_row_that_another_process_had_go_is_forgotten,
    *SHARED_CUT_CHECKS,
)
"""Of a store that several processes are at work on."""
