"""Who is refused for what it has declared of its agents (``Sharing.declare``).

Run beside ``SHARING_CHECKS``, with the same ``make_store``.
"""

from collections.abc import Awaitable
from typing import Final

import anyio
from anyio.abc import TaskStatus

from hubbub.hub.conformance.members import (
    MakeSharedStore,
    SharedStore,
    SharingCheck,
    members_of,
)
from hubbub.hub.conformance.steps import A_RUN, open_run, read_all
from hubbub.hub.store.declared import OtherDefinition
from hubbub.hub.store.sharing import Sharing, sharing_of
from hubbub.hub.store.store import Store

__all__ = ["DECLARATION_CHECKS"]

OURS: Final = {"desk": "one", "clerk": "same"}
THEIRS: Final = {"desk": "other", "clerk": "same"}

MANY: Final = 4
"""How many processes join at one moment."""


def _share_of(journal: Store) -> Sharing:
    share = sharing_of(journal)
    assert share is not None, "a shared store has the attribute 'sharing'"
    return share


async def _refusal(doing: Awaitable[object]) -> OtherDefinition | None:
    """Why something was refused; ``None`` where it was not."""
    try:
        await doing
    except OtherDefinition as refused:
        return refused
    return None


async def _joins(
    store: SharedStore, definitions: dict[str, str], *, replaces: bool = False
) -> OtherDefinition | None:
    """Have one more process join and leave again; why it was refused, if it was."""
    journal = store.journal()
    await _share_of(journal).declare(definitions, replaces=replaces)
    try:
        return await _refusal(journal.open())
    finally:
        await journal.aclose()


async def check_who_joins_with_another_definition_is_refused(make_store: MakeSharedStore) -> None:
    """In one line that names the agent and the worker, and nothing has changed."""
    store = make_store()
    async with members_of(store, 1) as (one,):
        await one.share.declare(OURS)
        await open_run(one.journal, A_RUN, "desk")
        before = await read_all(one.journal)
        refused = await _joins(store, THEIRS)
        assert refused is not None
        assert (refused.agent, bool(refused.worker)) == ("desk", True)
        assert repr(refused.worker) in str(refused) and "\n" not in str(refused)
        assert await read_all(one.journal) == before
        assert one.share.owns(A_RUN)
        assert await _joins(store, OURS) is None, "who was refused has declared nothing"


async def check_the_same_and_other_agents_join(make_store: MakeSharedStore) -> None:
    """Only agents that both have are compared; who only carries channels declares nothing."""
    store = make_store()
    async with members_of(store, 1, channels=1) as (one, channel):
        await channel.share.declare(THEIRS)
        await one.share.declare(OURS)
        for definitions in (OURS, {"clerk": "same"}, {"else": "other"}, {}):
            assert await _joins(store, definitions) is None, definitions


async def check_who_replaces_joins(make_store: MakeSharedStore) -> None:
    """Both go on with their own, and whoever comes then is compared with both."""
    store = make_store()
    async with members_of(store, 2) as (one, new):
        await one.share.declare(OURS)
        await new.share.declare(THEIRS, replaces=True)
        for definitions in (OURS, THEIRS, {"desk": "third"}):
            assert await _joins(store, definitions) is not None, definitions
            assert await _joins(store, definitions, replaces=True) is None, definitions
        await one.leave()
        assert await _joins(store, THEIRS) is None
        assert await _joins(store, OURS) is not None


async def check_declared_later_is_refused_as_well(make_store: MakeSharedStore) -> None:
    """What was declared before it stays; what is declared takes its place."""
    store = make_store()
    async with members_of(store, 2) as (one, other):
        await one.share.declare(OURS)
        await other.share.declare({"else": "1"})
        assert await _refusal(other.share.declare(THEIRS)) is not None
        assert await _joins(store, {"else": "2"}) is not None
        await one.share.declare({})
        await other.share.declare(THEIRS)
        assert await _joins(store, {"else": "2"}) is None
        assert await _refusal(one.share.declare(OURS)) is not None
        await one.share.declare(OURS, replaces=True)


async def check_the_gone_have_declared_nothing(make_store: MakeSharedStore) -> None:
    """Neither who has left, nor, once its lease is over, who has died."""
    store = make_store()
    async with members_of(store, 2) as (one, other):
        await one.share.declare(OURS)
        await one.leave()
        assert await _joins(store, THEIRS) is None
        await other.share.declare(OURS)
        await other.die()
        await anyio.sleep(store.ttl * 1.1)
        assert await _joins(store, THEIRS) is None


async def check_of_two_at_one_moment_one_joins(make_store: MakeSharedStore) -> None:
    """Whichever it is: never several, and never none."""
    store = make_store()
    for _ in range(3):
        refused: list[OtherDefinition | None] = []
        all_tried = anyio.Event()
        async with anyio.create_task_group() as group:
            for number in range(MANY):
                await group.start(_try_to_join, store, str(number), refused, all_tried)
        assert refused.count(None) == 1


async def _try_to_join(
    store: SharedStore,
    digest: str,
    refused: list[OtherDefinition | None],
    all_tried: anyio.Event,
    *,
    task_status: TaskStatus[None],
) -> None:
    journal = store.journal()
    await _share_of(journal).declare({"desk": digest})
    task_status.started()
    refused.append(await _refusal(journal.open()))
    if len(refused) == MANY:
        all_tried.set()
    await all_tried.wait()
    await journal.aclose()


DECLARATION_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_who_joins_with_another_definition_is_refused,
    check_the_same_and_other_agents_join,
    check_who_replaces_joins,
    check_declared_later_is_refused_as_well,
    check_the_gone_have_declared_nothing,
    check_of_two_at_one_moment_one_joins,
)
"""All of them."""
