"""What every ``Store`` must do, as checks that any store can run (the port's docstring).

A store's own tests run all of them on a fresh, empty store each:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check):
        await check(MyJournal)

``make_journal`` returns a new store that is not open yet.  A check raises ``AssertionError``.
"""

from typing import Final

from msgspec import structs

from hubbub.hub.conformance.addresses import ADDRESS_CHECKS
from hubbub.hub.conformance.cuts import CUT_CHECKS
from hubbub.hub.conformance.inbox import INBOX_CHECKS
from hubbub.hub.conformance.reader import READER_CHECKS
from hubbub.hub.conformance.repeats import REPEAT_CHECKS
from hubbub.hub.conformance.snapshots import SNAPSHOT_CHECKS
from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    EVERYTHING,
    Check,
    MakeJournal,
    commit_of,
    deliver,
    identity,
    info_of,
    open_journal,
    open_run,
    read_all,
    send,
    stamp,
    write,
)
from hubbub.hub.conformance.store import STORE_CHECKS
from hubbub.hub.conformance.takeover import TAKEOVER_CHECKS
from hubbub.hub.conformance.unwritable import UNWRITABLE_CHECKS
from hubbub.hub.events import (
    AgentComplete,
    AgentStatus,
    AgentText,
    CustomEvent,
    Event,
    SessionMessage,
    SessionOpen,
    SessionResult,
    SessionTaken,
)
from hubbub.hub.message import session_message
from hubbub.hub.store.cursor import START, cursor_at, cursor_of, place
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun, Selection
from hubbub.hub.values import encode_value

__all__ = ["CHECKS", "Check", "MakeJournal"]

MANY: Final = 100
"""Commits that follow each other without a pause."""


# ── the own lane ─────────────────────────────────────────────────────────────────────────────


async def check_own_lane_is_dense_and_in_order(make_journal: MakeJournal) -> None:
    """What the owner writes is in the own lane as it was stamped, from 1 on, without gaps."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await write(journal, A_RUN, 0, AgentStatus(status="one"), AgentStatus(status="two"))
        await send(journal, A_RUN, "in between")
        await write(journal, A_RUN, 2, AgentStatus(status="three"))
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert [event.seq for event in loaded.events] == [1, 2, 3]
        assert [event.status for event in loaded.events] == ["one", "two", "three"]  # type: ignore[attr-defined]
        assert all(event.lane == "own" for event in loaded.events)


async def check_the_end_of_a_lane_is_read_alone(make_journal: MakeJournal) -> None:
    """``load`` after a number, and ``latest`` of some types, see the own lane and nothing else."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN)
        await write(journal, A_RUN, 0, AgentStatus(status="one"), AgentStatus(status="two"))
        await send(journal, A_RUN, "in between")
        await write(journal, B_RUN, 0, AgentStatus(status="another's"))
        await write(journal, A_RUN, 2, AgentStatus(status="three"), AgentComplete())
        whole = await journal.load(A_RUN)
        assert whole is not None and (whole.after, whole.seq) == (0, 4)
        for after in range(5):
            loaded = await journal.load(A_RUN, after=after)
            assert loaded is not None and (loaded.after, loaded.seq) == (after, 4)
            assert list(loaded.events) == list(whole.events[after:])
            assert (loaded.info, list(loaded.waiting)) == (whole.info, list(whole.waiting))
        latest = journal.latest
        assert await latest(A_RUN, [AgentStatus.type]) == whole.events[2]
        assert await latest(A_RUN, [AgentStatus.type, AgentComplete.type]) == whole.events[3]
        assert await latest(B_RUN, [AgentComplete.type, "session:open"]) is None
        assert await latest("nobody", [AgentStatus.type]) is None


async def check_conflicting_commit_changes_nothing(make_journal: MakeJournal) -> None:
    """A commit that expects another end of the lane is refused whole, deliveries included."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN)
        await write(journal, A_RUN, 0, AgentStatus(status="mine"))
        before = journal.tip
        for expect in (0, 2):
            delivery = Delivery(session_message("lost"), B_RUN)
            commit = await write(
                journal, A_RUN, expect, AgentStatus(status="other"), deliveries=(delivery,)
            )
            assert commit.error == "conflict"
            assert not commit.written
            assert delivery.outcome == ""
        unknown = await write(journal, C_RUN, 0, AgentStatus(status="nobody's"))
        assert unknown.error == "conflict"
        assert journal.tip == before
        assert (await info_of(journal, B_RUN)).waiting == 1


async def check_commit_is_whole(make_journal: MakeJournal) -> None:
    """Events, taken items, deliveries and children of one commit appear together."""
    async with open_journal(make_journal) as journal:
        opening = await open_run(journal, A_RUN)
        child = Delivery(
            SessionOpen(open_agent="child", at=2),
            B_RUN,
            new=NewRun(run_id=B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN, agent="child"),
        )
        commit = await write(
            journal, A_RUN, 0,
            SessionTaken(items=(opening.event,)),
            taken=(opening.event.seq,),
            deliveries=(child, Delivery(session_message("hello"), B_RUN)),
        )  # fmt: skip
        assert not commit.error
        assert [delivery.outcome for delivery in commit.deliveries] == ["accepted", "accepted"]
        assert [identity(event) for event in commit.written] == [
            (A_RUN, "own", 1), (B_RUN, "in", 1), (B_RUN, "in", 2),
        ]  # fmt: skip
        assert commit.written == (await read_all(journal))[1:]
        assert (await info_of(journal, A_RUN)).waiting == 0
        born = await info_of(journal, B_RUN)
        assert (born.root_run_id, born.parent_run_id, born.waiting) == (A_RUN, A_RUN, 2)


async def check_commit_never_fails_for_a_recipient(make_journal: MakeJournal) -> None:
    """An unknown recipient is the delivery's outcome, not the commit's."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        lost = Delivery(session_message("hello"), C_RUN)
        kept = Delivery(session_message("hello"), A_RUN)
        commit = await write(journal, A_RUN, 0, AgentStatus(status="sent"), deliveries=(lost, kept))
        assert not commit.error
        assert (lost.outcome, lost.reason) == ("rejected", "unknown")
        assert kept.outcome == "accepted"


async def check_commits_are_done_in_order_of_submission(make_journal: MakeJournal) -> None:
    """``done`` is called once per commit, in order; positions number events in that order."""
    async with open_journal(make_journal) as journal:
        done: list[int] = []
        commits = []
        for number in range(20):
            commit = Commit(events=(CustomEvent.of("test:number", number=number),))
            commit.done = lambda _commit, number=number: done.append(number)
            commits.append(commit)
            journal.submit(commit)
        await journal.flush()
        assert done == list(range(20))
        events = await read_all(journal)
        assert [event.data["number"] for event in events] == list(range(20))  # type: ignore[attr-defined]
        assert journal.tip == 20


async def check_flush_waits_for_no_later_commit(make_journal: MakeJournal) -> None:
    """``flush`` returns when what was submitted before is done, though somebody writes on."""
    async with open_journal(make_journal) as journal:
        submitted = done = 0

        def write_on(_commit: Commit | None = None) -> None:
            nonlocal submitted, done
            done += _commit is not None
            if submitted < MANY:
                submitted += 1
                commit = Commit(events=(CustomEvent.of("test:again"),))
                commit.done = write_on
                journal.submit(commit)

        write_on()
        before = submitted
        await journal.flush()
        assert done >= before
        assert done < MANY or before == MANY, "it has waited for what came after the call"


# ── the hub's lane ───────────────────────────────────────────────────────────────────────────


async def check_hub_lane_keeps_events_unchanged(make_journal: MakeJournal) -> None:
    """Any event of no run's scope is numbered, and read back as it was."""
    async with open_journal(make_journal) as journal:
        event = CustomEvent.of("shop:order", order_id=7, lines=["a", {"b": None}], note="é ✓")
        event = structs.replace(event, at=5, run_id="elsewhere", agent="shop", side="x", turn=3)
        first = await commit_of(journal, Commit(events=(event,)))
        second = await commit_of(journal, Commit(events=(AgentStatus(status="outside"),)))
        (one,), (two,) = first.written, second.written
        assert one.lane == two.lane == "hub"
        assert two.seq == one.seq + 1
        assert structs.replace(one, lane="", seq=0) == event
        assert await read_all(journal) == [one, two]
        assert (await read_all(journal))[0].type == "shop:order"


# ── lists of runs ────────────────────────────────────────────────────────────────────────────


async def check_lists_of_runs(make_journal: MakeJournal) -> None:
    """``runs`` lists live ones by creation, ``ready`` what has work, ``depths`` counts."""
    async with open_journal(make_journal) as journal:
        for run_id in (B_RUN, A_RUN, C_RUN):
            await open_run(journal, run_id)
        assert journal.depths() == (3, 0, 3)
        await write(journal, A_RUN, 0, AgentStatus(), taken=(1,), status="parked")
        await write(journal, C_RUN, 0, AgentComplete(), taken=(1,), status="ended")
        assert [info.run_id for info in await journal.runs()] == [B_RUN, A_RUN]
        assert [info.run_id for info in await journal.runs(live=False)] == [B_RUN, A_RUN, C_RUN]
        assert list(await journal.ready()) == [B_RUN]
        assert journal.depths() == (2, 1, 1)
        await send(journal, A_RUN, "wake up")
        assert sorted(await journal.ready()) == [A_RUN, B_RUN]
        assert await journal.load("nobody") is None
        assert await journal.info("nobody") is None


# ── reading ──────────────────────────────────────────────────────────────────────────────────


async def check_reading_in_pages(make_journal: MakeJournal) -> None:
    """Pages of any size give the same events as one: no gap, no duplicate, in order."""
    async with open_journal(make_journal) as journal:
        await _mixed(journal)
        whole = await read_all(journal)
        assert len({identity(event) for event in whole}) == len(whole) == journal.tip
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


async def check_reading_what_is_large(make_journal: MakeJournal) -> None:
    """A page may end early where events are large; who goes on by the position reached has all."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        for seq in range(8):
            await write(journal, A_RUN, seq, AgentText(text="é" * 100_000), AgentStatus(status="x"))
        whole = await read_all(journal)
        assert len(whole) == journal.tip
        for selection in (EVERYTHING, Selection(run_id=A_RUN, match=AgentText.type.__eq__)):
            wanted = [event for event in whole if selection.wants(event)]
            assert await read_all(journal, selection) == wanted, "nothing is left out"


async def check_reading_a_part(make_journal: MakeJournal) -> None:
    """``after`` and ``until`` are positions; nothing beyond ``until`` is seen."""
    async with open_journal(make_journal) as journal:
        await _mixed(journal)
        whole = await read_all(journal)
        for after in range(len(whole) + 1):
            for until in range(after, len(whole) + 1):
                for selection in (EVERYTHING, Selection(run_id=A_RUN)):
                    events, reached = await journal.read(selection, after=after, until=until)
                    assert list(events) == [e for e in whole[after:until] if selection.wants(e)]
                    assert reached == until


async def check_positions_and_cursors(make_journal: MakeJournal) -> None:
    """Every durable event has its place; a cursor leads to what follows it."""
    async with open_journal(make_journal) as journal:
        await _mixed(journal)
        whole = await read_all(journal)
        for index, event in enumerate(whole):
            assert await journal.position(*identity(event)) == index + 1
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
    await open_run(journal, A_RUN)
    await open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
    await open_run(journal, C_RUN)
    for seq in range(4):
        await write(journal, A_RUN, seq, AgentStatus(status=str(seq)))
        await send(journal, B_RUN, f"message {seq}")
        tick = CustomEvent.of("test:tick", tick=seq)
        if seq % 2:  # The hub's lane, too, speaks of runs.
            tick = structs.replace(tick, run_id=B_RUN, root_run_id=A_RUN)
        await commit_of(journal, Commit(events=(tick,)))
    commit = Commit(
        C_RUN,
        [stamp(C_RUN, 1, AgentStatus()), stamp(C_RUN, 2, AgentComplete())],
        taken=(1,),
        deliveries=(Delivery(SessionResult(child_run_id=C_RUN), A_RUN),),
        status="ended",
    )
    await commit_of(journal, commit)


async def check_values_survive(make_journal: MakeJournal) -> None:
    """Whatever an event holds is read back as an equal event."""
    async with open_journal(make_journal) as journal:
        value = {"text": 'é\n"✓" \u2028', "numbers": [0, -1, 1.5, 2**53], "none": None, "b": True}
        await open_run(journal, A_RUN)
        written = await write(
            journal, A_RUN, 0, AgentComplete(output_json=encode_value("output", value))
        )
        sent = await deliver(
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
    last = Commit(events=(CustomEvent.of("test:last"),))
    journal.submit(last)
    await journal.aclose()
    assert len(last.written) == 1
    await journal.aclose()


CHECKS: Final[tuple[Check, ...]] = (
    check_own_lane_is_dense_and_in_order,
    check_the_end_of_a_lane_is_read_alone,
    check_conflicting_commit_changes_nothing,
    check_commit_is_whole,
    check_commit_never_fails_for_a_recipient,
    check_commits_are_done_in_order_of_submission,
    check_flush_waits_for_no_later_commit,
    check_hub_lane_keeps_events_unchanged,
    check_lists_of_runs,
    check_reading_in_pages,
    check_reading_what_is_large,
    check_reading_a_part,
    check_positions_and_cursors,
    check_values_survive,
    check_closing_the_store_is_idempotent,
    *INBOX_CHECKS,
    *REPEAT_CHECKS,
    *TAKEOVER_CHECKS,
    *ADDRESS_CHECKS,
    *STORE_CHECKS,
    *READER_CHECKS,
    *SNAPSHOT_CHECKS,
    *CUT_CHECKS,
    *UNWRITABLE_CHECKS,
)
"""Every check, for a store's own tests to run."""
