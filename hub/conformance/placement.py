"""Which processes get which trees, on a store that several are at work on (``Sharing.offer``).

Run beside ``SHARING_CHECKS``, with the same ``make_store``.
"""

from typing import Final

import anyio

from hubbub.hub.conformance.members import MakeSharedStore, SharingCheck, members_of
from hubbub.hub.conformance.steps import A_RUN, B_RUN, C_RUN, commit_of, deliver, open_run, stamp
from hubbub.hub.events import AgentComplete, SessionTerminate
from hubbub.hub.store.journal import Commit, Delivery

__all__ = ["PLACEMENT_CHECKS"]


async def check_trees_go_to_those_who_know_their_agent(make_store: MakeSharedStore) -> None:
    """Only trees whose root is of an agent that a process offers are claimed by it, or its own."""
    store = make_store()
    async with members_of(store, 2, channels=1) as (one, other, channel):
        one.share.offer(["one"], None)
        other.share.offer(["other"], None)
        await open_run(channel.journal, A_RUN, "one")
        await open_run(channel.journal, B_RUN, "other")
        await open_run(one.journal, C_RUN, "other")
        assert not one.share.owns(C_RUN)
        with anyio.fail_after(min(2.0, store.ttl)):
            await one.until(lambda: one.trees == {A_RUN})
            await other.until(lambda: other.trees == {B_RUN, C_RUN})
        assert (one.share.trees(), other.share.trees()) == (
            {A_RUN: "one"}, {B_RUN: "other", C_RUN: "other"},
        )  # fmt: skip
        await other.leave()
        await anyio.sleep(store.ttl)
        assert set(one.share.trees()) == {A_RUN}, "nobody is left who knows the other one's agent"


async def check_nobody_owns_more_than_its_capacity(make_store: MakeSharedStore) -> None:
    """Neither by claims nor by what it opens itself; what others end makes room."""
    store = make_store()
    roots = [f"{A_RUN[:-2]}{number:02x}" for number in range(6)]
    async with members_of(store, 2, channels=1) as (one, other, channel):
        one.share.offer(None, 1)
        other.share.offer(None, 2)
        for root in roots[:2]:
            await open_run(one.journal, root)
        for root in roots[2:]:
            await open_run(channel.journal, root)
        await anyio.sleep(store.ttl)
        assert (len(one.share.trees()), len(other.share.trees())) == (1, 2)
        (owned,) = one.share.trees()
        ending = Commit(owned, [stamp(owned, 1, AgentComplete())], status="ended", taken=(1,))
        assert not (await commit_of(one.journal, ending)).error
        await one.until(lambda: len(one.share.trees()) == 1)
        other.share.offer(None, None)
        await other.until(lambda: len(other.share.trees()) == 4)


async def check_who_comes_late_gets_its_share(make_store: MakeSharedStore) -> None:
    """Who has many more than others is asked to hand some over, until that is not so; also
    while there is a tree that nobody can take."""
    store = make_store()
    roots = [f"{A_RUN[:-2]}{number:02x}" for number in range(12)]
    async with members_of(store) as (one, late):
        one.share.offer(["echo"], None)
        late.share.offer([], None)
        for root in roots:
            await open_run(one.journal, root, "echo")
        await open_run(late.journal, C_RUN, "of nobody's")
        await anyio.sleep(store.ttl)
        assert not one.room, "nobody else knows the agent"
        late.share.offer(["echo"], 4)
        with anyio.fail_after(20 * store.ttl):
            while len(late.share.trees()) < 4:
                one.room = {}
                await one.until(lambda: bool(one.room))
                assert one.room.keys() == {"echo"}
                await one.share.hand_over(list(one.share.trees())[: one.room["echo"]])
                await anyio.sleep(store.ttl / 2)
        one.room = {}
        await anyio.sleep(store.ttl)
        assert (one.room, len(one.share.trees())) == ({}, 8)


async def check_what_is_only_to_end_is_anybodys(make_store: MakeSharedStore) -> None:
    """A tree with a run that is terminated, or whose time is over, needs nobody who knows its
    agent; any other one waits for that."""
    store = make_store()
    async with members_of(store, 2, channels=1) as (one, other, channel):
        one.share.offer(["one"], None)
        other.share.offer([], 0)
        await open_run(channel.journal, A_RUN, "gone")
        await open_run(channel.journal, B_RUN, "gone", wake_at=1)
        await open_run(channel.journal, C_RUN, "gone", wake_at=1 << 60)
        await deliver(channel.journal, Delivery(SessionTerminate(at=1), A_RUN, closes="terminated"))
        with anyio.fail_after(min(2.0, store.ttl)):
            await one.until(lambda: one.trees >= {A_RUN, B_RUN})
        await anyio.sleep(store.ttl)
        assert one.share.trees() == {A_RUN: "gone", B_RUN: "gone"}
        assert other.trees == set(), "it has room for none"
        ending = Commit(A_RUN, [stamp(A_RUN, 1, AgentComplete())], status="ended", taken=(1, 2))
        assert not (await commit_of(one.journal, ending)).error
        assert one.share.trees() == {B_RUN: "gone"}


async def check_who_had_to_end_a_part_of_a_tree_gives_it_up(make_store: MakeSharedStore) -> None:
    """To those who know the agent of its root, as soon as there are any, however few it has."""
    store = make_store()
    async with members_of(store, 2, channels=1) as (one, late, channel):
        one.share.offer(["one"], None)
        late.share.offer([], 0)
        await open_run(channel.journal, A_RUN, "gone")
        await open_run(channel.journal, B_RUN, "gone", root_run_id=A_RUN, parent_run_id=A_RUN)
        await deliver(channel.journal, Delivery(SessionTerminate(at=1), B_RUN, closes="terminated"))
        with anyio.fail_after(min(2.0, store.ttl)):
            await one.until(lambda: one.trees == {A_RUN})
        await anyio.sleep(store.ttl)
        assert (one.room, one.losses) == ({}, 0), "nobody else can have it"
        late.share.offer(["gone"], None)
        with anyio.fail_after(10 * store.ttl):
            await one.until(lambda: bool(one.room))
        assert one.room == {"gone": 1}
        one.share.offer(["one"], 0)
        await one.share.hand_over([A_RUN])
        await late.until(lambda: late.trees == {A_RUN})


PLACEMENT_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_trees_go_to_those_who_know_their_agent,
    check_nobody_owns_more_than_its_capacity,
    check_who_comes_late_gets_its_share,
    check_what_is_only_to_end_is_anybodys,
    check_who_had_to_end_a_part_of_a_tree_gives_it_up,
)
"""All of them."""
