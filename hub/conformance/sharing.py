"""What every store must do that several processes are at work on (``hub/store/sharing.py``).

    @pytest.mark.parametrize("check", SHARING_CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check):
        await check(MyStore)

``make_store`` makes a new, empty store; each of its ``journal``s is one process's.  Run beside
``CHECKS``, which one such journal passes, too.
"""

from typing import Final

import anyio

from hubbub.hub.conformance.members import (
    MakeSharedStore,
    SharedStore,
    SharingCheck,
    members_of,
)
from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    EVERYTHING,
    commit_of,
    identity,
    info_of,
    open_run,
    read_all,
    send,
    stamp,
)
from hubbub.hub.events import AgentComplete, AgentStatus, CustomEvent, SessionOpen
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun

__all__ = ["SHARING_CHECKS", "MakeSharedStore", "SharedStore", "SharingCheck"]


async def _write(journal: Journal, run_id: str, expect: int, **options: object) -> Commit:
    events = [stamp(run_id, expect + 1, AgentStatus())]
    return await commit_of(journal, Commit(run_id, events, expect=expect, **options))  # type: ignore[arg-type]


# ── one order ────────────────────────────────────────────────────────────────────────────────


async def check_everybody_is_told_everything_in_one_order(make_store: MakeSharedStore) -> None:
    """Own commits and those of others, in the order of positions, without a gap."""
    async with members_of(make_store(), 3) as members:
        for number in range(30):
            members[number % 3].emit(number)
            if number % 4 == 0:
                await anyio.sleep(0.01)
        for member in members:
            await member.journal.flush()
        for member in members:
            await member.journal.flush()
            stored = [identity(event) for event in await read_all(member.journal)]
            assert len(stored) == 30
            assert member.told == stored
            assert member.journal.tip == 30


async def check_flush_hears_what_is_there(make_store: MakeSharedStore) -> None:
    """What was committed by anybody before the call has been told when it returns."""
    async with members_of(make_store()) as (one, other):
        await commit_of(one.journal, Commit(events=(CustomEvent.of("test:said"),)))
        await other.journal.flush()
        assert len(other.told) == 1


async def check_what_was_read_is_told(make_store: MakeSharedStore) -> None:
    """When ``load`` returns, everything that it has seen has been told."""
    async with members_of(make_store()) as (one, other):
        await open_run(one.journal, A_RUN)
        await send(one.journal, A_RUN, "hello")
        loaded = await other.journal.load(A_RUN)
        assert loaded is not None
        assert {identity(item) for item in loaded.waiting} <= set(other.told)


async def check_cursor_of_one_is_read_by_the_other(make_store: MakeSharedStore) -> None:
    """Positions and the name are the store's, whoever asks."""
    async with members_of(make_store()) as (one, other):
        for number in range(5):
            (one if number % 2 else other).emit(number)
        await one.journal.flush()
        await other.journal.flush()
        await one.journal.flush()
        assert one.journal.name == other.journal.name
        for after in range(6):
            found = await one.journal.read(EVERYTHING, after=after)
            assert found == await other.journal.read(EVERYTHING, after=after)
            assert len(found[0]) == 5 - after


# ── what is unique ───────────────────────────────────────────────────────────────────────────


async def check_keyed_delivery_counts_once(make_store: MakeSharedStore) -> None:
    """Of one key sent by two processes one is accepted, the other one is a duplicate."""
    async with members_of(make_store()) as (one, other):
        await open_run(one.journal, A_RUN)
        sent = []
        for member in (one, other):
            said = session_message("hello", source="chat")
            sent.append(Delivery(said, A_RUN, source="chat", key="1"))
            member.submit(Commit(deliveries=(sent[-1],)))
        await one.journal.flush()
        await other.journal.flush()
        assert sorted(each.outcome for each in sent) == ["accepted", "duplicate"]


async def check_session_key_opens_one_run(make_store: MakeSharedStore) -> None:
    """Two processes that open one key have one run, which one of them owns."""
    async with members_of(make_store()) as members:
        outcomes = []
        for member, run_id in zip(members, (A_RUN, B_RUN), strict=True):
            new = NewRun(
                run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="echo",
                session_key="chat",
            )  # fmt: skip
            opening = SessionOpen(open_agent="echo", session_key="chat", at=1)
            outcomes.append(Delivery(opening, run_id, new=new))
            member.submit(Commit(deliveries=outcomes[-1:]))
        for member in members:
            await member.journal.flush()
        assert len({each.run_ids for each in outcomes}) == 1
        (root,) = outcomes[0].run_ids
        assert sum(member.share.owns(root) for member in members) == 1
        assert len(await members[0].journal.runs()) == 1


async def check_notes_are_everybodys(make_store: MakeSharedStore) -> None:
    """What one notes the other one reads; so is what an address finds."""
    async with members_of(make_store()) as (one, other):
        await commit_of(one.journal, Commit(notes={"a": "1"}))
        await open_run(one.journal, A_RUN, "echo")
        assert (await other.journal.notes())["a"] == "1"
        assert list(await other.journal.find("echo", "name")) == [A_RUN]
        assert (await info_of(other.journal, A_RUN)).agent == "echo"


# ── who owns what ────────────────────────────────────────────────────────────────────────────


async def check_tree_is_its_openers(make_store: MakeSharedStore) -> None:
    """Another process changes nothing in it, and anybody may send to it."""
    async with members_of(make_store()) as (one, other):
        await open_run(one.journal, A_RUN)
        await open_run(one.journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        await open_run(other.journal, C_RUN)
        await one.journal.flush()
        assert (one.share.owns(A_RUN), one.share.owns(C_RUN)) == (True, False)
        assert (other.share.owns(A_RUN), other.share.owns(C_RUN)) == (False, True)
        before = await read_all(one.journal)
        for run_id in (A_RUN, B_RUN):
            said = Delivery(session_message("from a stranger"), C_RUN)
            commit = await _write(
                other.journal, run_id, 0, taken=(1,), status="parked", deliveries=(said,),
                notes={"stranger": "was here"},
            )  # fmt: skip
            assert (commit.error, commit.written, said.outcome) == ("conflict", [], "")
        assert await read_all(one.journal) == before
        assert await other.journal.notes("stranger") == {}
        assert sorted(await one.journal.ready()) == [A_RUN, B_RUN]
        assert list(await other.journal.ready()) == [C_RUN]
        assert (await send(other.journal, B_RUN, "hello")).outcome == "accepted"
        assert not (await _write(one.journal, B_RUN, 0, taken=(1, 2))).error


async def check_tree_that_is_over_is_nobodys(make_store: MakeSharedStore) -> None:
    """With the end of its last run it is owned no more, and is not claimed."""
    store = make_store()
    async with members_of(store) as (one, other):
        await open_run(one.journal, A_RUN)
        ending = Commit(A_RUN, [stamp(A_RUN, 1, AgentComplete())], status="ended", taken=(1,))
        await commit_of(one.journal, ending)
        assert not one.share.owns(A_RUN)
        await anyio.sleep(store.ttl)
        assert not (one.trees or other.trees)


async def check_what_a_channel_opens_is_claimed(make_store: MakeSharedStore) -> None:
    """A process that only carries channels owns nothing; a worker claims what it has opened."""
    store = make_store()
    async with members_of(store, 1, channels=1) as (worker, channel):
        await open_run(channel.journal, A_RUN)
        assert not channel.share.owns(A_RUN)
        assert (await _write(channel.journal, A_RUN, 0)).error == "conflict"
        await worker.until(lambda: worker.trees == {A_RUN})
        assert not (await _write(worker.journal, A_RUN, 0, taken=(1,))).error


async def check_claims_are_exclusive(make_store: MakeSharedStore) -> None:
    """Each free tree is claimed by one worker, and all are, in equal shares."""
    store = make_store()
    roots = [f"{A_RUN[:-2]}{number:02x}" for number in range(9)]
    async with members_of(store, 3, channels=1) as (*workers, channel):
        for root in roots:
            await open_run(channel.journal, root)
        await anyio.sleep(store.ttl)
        assert sorted(root for worker in workers for root in worker.trees) == roots
        assert [len(worker.trees) for worker in workers] == [3, 3, 3]


async def check_trees_of_the_dead_are_taken_over(make_store: MakeSharedStore) -> None:
    """Not while the lease lasts, and within a second after it."""
    store = make_store()
    async with members_of(store) as (one, other):
        await open_run(one.journal, A_RUN)
        await _write(one.journal, A_RUN, 0, taken=(1,))
        await one.die()
        await anyio.sleep(store.ttl * 0.6)
        assert not other.trees
        assert (await _write(other.journal, A_RUN, 1)).error == "conflict"
        with anyio.fail_after(store.ttl * 0.4 + 1):
            await other.until(lambda: other.trees == {A_RUN})
        assert not (await _write(other.journal, A_RUN, 1)).error


async def check_leases_of_the_idle_last(make_store: MakeSharedStore) -> None:
    """A process that writes nothing keeps its trees all the same."""
    store = make_store()
    async with members_of(store) as (one, other):
        await open_run(one.journal, A_RUN)
        await anyio.sleep(5 * store.ttl)
        assert one.share.owns(A_RUN)
        assert (one.losses, other.losses, other.trees) == (0, 0, set())
        assert not (await _write(one.journal, A_RUN, 0)).error


async def check_who_leaves_frees_its_trees(make_store: MakeSharedStore) -> None:
    """A journal that is closed in order ends its lease: nobody waits for that."""
    store = make_store()
    async with members_of(store) as (one, other):
        await open_run(one.journal, A_RUN)
        await one.leave()
        with anyio.fail_after(min(1.0, store.ttl * 0.6)):
            await other.until(lambda: other.trees == {A_RUN})


async def check_handed_over_trees_are_others(make_store: MakeSharedStore) -> None:
    """What was submitted before is written; who had a tree changes nothing in it any more."""
    store = make_store()
    async with members_of(store) as (one, other):
        for run_id in (A_RUN, B_RUN):
            await open_run(one.journal, run_id)
        await one.share.drain()
        before = Commit(A_RUN, [stamp(A_RUN, 1, AgentStatus())], taken=(1,))
        one.submit(before)
        await one.share.hand_over([A_RUN])
        assert (before.error, one.share.owns(A_RUN), one.share.owns(B_RUN)) == ("", False, True)
        assert (await _write(one.journal, A_RUN, 1)).error == "conflict"
        with anyio.fail_after(min(1.0, store.ttl * 0.6)):
            await other.until(lambda: other.trees == {A_RUN})
        assert (await _write(one.journal, A_RUN, 1)).error == "conflict"
        assert not (await _write(other.journal, A_RUN, 1)).error
        assert not (await _write(one.journal, B_RUN, 0)).error


async def check_who_drains_claims_nothing(make_store: MakeSharedStore) -> None:
    """What it opens from then on is others' to claim."""
    store = make_store()
    async with members_of(store) as (one, other):
        await one.share.drain()
        await open_run(one.journal, A_RUN)
        assert not one.share.owns(A_RUN)
        with anyio.fail_after(min(1.0, store.ttl * 0.6)):
            await other.until(lambda: other.trees == {A_RUN})


async def check_hand_over_is_from_the_call_on(make_store: MakeSharedStore) -> None:
    """Nothing more is begun in a tree, though what was submitted before is written."""
    async with members_of(make_store()) as (one, _):
        await open_run(one.journal, A_RUN)
        await one.share.drain()
        told = len(one.told)
        one.submit(Commit(A_RUN, [stamp(A_RUN, 1, AgentStatus())], taken=(1,)))
        await one.share.hand_over([A_RUN])
        assert (one.told_before_loss, len(one.told)) == (told, told + 1)


async def check_who_is_at_work_is_known(make_store: MakeSharedStore) -> None:
    """Channels, too; who has died is not, once its lease is over."""
    store = make_store()
    async with members_of(store, channels=1) as (one, other, channel):
        numbers = [member.share.number for member in (one, other, channel)]
        assert set(await one.share.at_work()) == set(numbers) and len(set(numbers)) == 3
        await channel.die()
        await other.leave()
        with anyio.fail_after(10 * store.ttl):
            while set(await one.share.at_work()) != {numbers[0]}:  # noqa: ASYNC110
                await anyio.sleep(store.ttl / 5)


SHARING_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_everybody_is_told_everything_in_one_order,
    check_flush_hears_what_is_there,
    check_what_was_read_is_told,
    check_cursor_of_one_is_read_by_the_other,
    check_keyed_delivery_counts_once,
    check_session_key_opens_one_run,
    check_notes_are_everybodys,
    check_tree_is_its_openers,
    check_tree_that_is_over_is_nobodys,
    check_what_a_channel_opens_is_claimed,
    check_claims_are_exclusive,
    check_trees_of_the_dead_are_taken_over,
    check_leases_of_the_idle_last,
    check_who_leaves_frees_its_trees,
    check_handed_over_trees_are_others,
    check_who_drains_claims_nothing,
    check_hand_over_is_from_the_call_on,
    check_who_is_at_work_is_known,
)
"""All of them."""
