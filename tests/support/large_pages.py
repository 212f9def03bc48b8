"""What a store on disk reads at once where events are large."""

from hubbub.hub.conformance.steps import A_RUN, EVERYTHING, commit_of, open_run, read_all, write
from hubbub.hub.events import AgentText, CustomEvent
from hubbub.hub.store.journal import Commit, Selection
from hubbub.hub.store.store import Store

__all__ = ["check_pages"]

LARGE = 200_000


async def check_pages(store: Store) -> None:
    """No page holds more than one event beyond 256 KiB, whoever is asked for, and none is missing.

    What a selection leaves out does not count where rows come one by one.
    """
    await store.open()
    await open_run(store, A_RUN)
    for number in range(6):
        await write(store, A_RUN, number, AgentText(text="x" * LARGE))
        await commit_of(store, Commit(events=(CustomEvent.of("test:small", n=number),)))
    for selection, wanted in (
        (EVERYTHING, 13),
        (Selection(run_id=A_RUN), 7),
        (Selection(root_run_id=A_RUN, match=AgentText.type.__eq__), 6),
        (Selection(match="test:small".__eq__), 6),
    ):
        sizes: list[int] = []
        position = 0
        while position < store.tip:
            events, reached = await store.read(selection, after=position, limit=500)
            assert reached > position
            position = reached
            sizes.append(sum(isinstance(event, AgentText) for event in events))
        assert max(sizes) <= 2
        assert len(await read_all(store, selection)) == wanted
    await store.aclose()
