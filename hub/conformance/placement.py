"""Which processes get which trees, on a store that several are at work on (``Sharing.offer``).

Run beside ``SHARING_CHECKS``, with the same ``make_store``.
"""

from typing import Final

import anyio

from hubbub.hub.conformance.sharing import MakeSharedStore, SharingCheck, members_of
from hubbub.hub.conformance.steps import A_RUN, B_RUN, C_RUN, commit_of, open_run, stamp
from hubbub.hub.events import AgentComplete
from hubbub.hub.store.journal import Commit

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


PLACEMENT_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_trees_go_to_those_who_know_their_agent,
    check_nobody_owns_more_than_its_capacity,
    check_who_comes_late_gets_its_share,
)
"""All of them."""
