"""What goes of the notes that processes leave in a store that several share
(``hub/store/left_notes.py``).

Run beside ``SHARING_CHECKS``, with the same ``make_store``.
"""

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskStatus

from hubbub.hub.conformance.members import MakeSharedStore, SharedStore, SharingCheck
from hubbub.hub.conformance.steps import A_RUN, B_RUN, commit_of, open_run, stamp
from hubbub.hub.events import AgentComplete
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.left_notes import AGENTS
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.store.store import Store

__all__ = ["LEFT_NOTE_CHECKS"]

DEPLOYS: Final = 50
MANY: Final = 4
"""How many processes begin at one moment."""


def _note(agents: Collection[str], title: str = "") -> dict[str, str]:
    shown = [{"name": name, "title": title, "later": [1]} for name in agents]
    return {f"{AGENTS}:{'-'.join(sorted(agents))}": json.dumps(shown)}


def _offers(journal: Store, agents: Collection[str] | None, title: str = "") -> Store:
    """Have a process offer agents, and publish them."""
    share = sharing_of(journal)
    assert share is not None, "a shared store has the attribute 'sharing'"
    share.offer(agents, None)
    if agents:
        journal.publish(_note(agents, title))
    return journal


@asynccontextmanager
async def _worker(
    store: SharedStore,
    *agents: str,
    title: str = "",
    is_worker: bool = True,
    takes_all: bool = False,
) -> AsyncIterator[Store]:
    """A process that offers agents and has published them, at work until this is left."""
    journal = _offers(store.journal(is_worker=is_worker), None if takes_all else agents, title)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.aclose()


async def _published(journal: Store) -> list[tuple[str, str]]:
    """Every agent of every note, with its title."""
    notes = (await journal.notes(AGENTS)).values()
    return sorted((agent["name"], agent["title"]) for note in notes for agent in json.loads(note))


async def check_many_deploys_leave_few_notes(make_store: MakeSharedStore) -> None:
    """However many there were, only the agents of the last one are there once it has left."""
    store = make_store()
    for number in range(DEPLOYS):
        async with _worker(store, "desk", f"of-{number}", title=str(number)) as journal:
            notes = await journal.notes(AGENTS)
            assert len(notes) == 1, f"{len(notes)} after {number + 1} deploys"
    async with _worker(store, is_worker=False) as channel:
        last = str(DEPLOYS - 1)
        assert await _published(channel) == [("desk", last), (f"of-{last}", last)]


async def check_what_somebody_needs_stays(make_store: MakeSharedStore) -> None:
    """Agents that a worker at work offers, and those that unfinished trees want; as they were
    published, but by the worker that began last."""
    store = make_store()
    async with _worker(store, "closed", "open", "gone", title="1") as journal:
        await open_run(journal, A_RUN, "open")
        await open_run(journal, B_RUN, "closed")
        ending = Commit(B_RUN, [stamp(B_RUN, 1, AgentComplete())], status="ended", taken=(1,))
        assert not (await commit_of(journal, ending)).error
    async with (
        _worker(store, "one", "both", title="2") as one,
        _worker(store, "both", "two", title="3") as two,
    ):
        expected = [("both", "3"), ("one", "2"), ("open", "1"), ("two", "3")]
        assert await _published(one) == await _published(two) == expected
        (of_first,) = [x for x in (await one.notes(AGENTS)).values() if '"1"' in x]
        assert json.loads(of_first) == [{"name": "open", "title": "1", "later": [1]}]
    async with _worker(store, "three") as three:
        assert [name for name, _ in await _published(three)] == ["open", "three"]


async def check_who_offers_anything_needs_everything(make_store: MakeSharedStore) -> None:
    """Nothing is known of what it drives."""
    store = make_store()
    async with _worker(store, "old"):
        pass
    async with _worker(store, takes_all=True), _worker(store, "new") as new:
        assert [name for name, _ in await _published(new)] == ["new", "old"]


async def check_channel_takes_nothing_away(make_store: MakeSharedStore) -> None:
    """What it knows is shown until a worker begins; what workers have left stays for it."""
    store = make_store()
    async with _worker(store, "left"), _worker(store, "also left"):
        pass
    async with _worker(store, "known", is_worker=False) as channel:
        assert len(await _published(channel)) == 3
        async with _worker(store, "new"):
            assert [name for name, _ in await _published(channel)] == ["new"]


async def check_agents_that_come_later_take_the_place_of_others(
    make_store: MakeSharedStore,
) -> None:
    """Where a process is at work before it has agents."""
    store = make_store()
    async with _worker(store, "old", "desk", title="old"):
        pass
    async with _worker(store) as journal:
        assert [name for name, _ in await _published(journal)] == ["desk", "old"]
        _offers(journal, ["desk", "new"], "new")
        with anyio.fail_after(20):
            while await _published(journal) != [("desk", "new"), ("new", "new")]:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        async with _worker(store, "other"):
            assert [name for name, _ in await _published(journal)] == ["desk", "new", "other"]


async def check_of_several_at_one_moment_all_are_there(make_store: MakeSharedStore) -> None:
    """None takes away what another one is about to offer."""
    store = make_store()
    begun: list[list[str]] = []
    all_begun = anyio.Event()
    async with anyio.create_task_group() as group:
        for number in range(MANY):
            await group.start(_begin, store, f"of-{number}", begun, all_begun)
    assert max(begun, key=len) == [f"of-{number}" for number in range(MANY)]


async def _begin(
    store: SharedStore,
    agent: str,
    begun: list[list[str]],
    all_begun: anyio.Event,
    *,
    task_status: TaskStatus[None],
) -> None:
    task_status.started()
    async with _worker(store, agent) as journal:
        begun.append([name for name, _ in await _published(journal)])
        if len(begun) == MANY:
            all_begun.set()
        await all_begun.wait()


async def check_notes_of_ended_prompts_go(make_store: MakeSharedStore) -> None:
    """Those of open ones stay, and a key can be used again."""
    store = make_store()
    async with _worker(store, "one") as one:
        await commit_of(one, Commit(notes={"asked:1:7": "", "asked:2:7": "id", "asking": ""}))
        async with _worker(store, "two"):
            assert await one.notes("ask") == {"asked:2:7": "id", "asking": ""}
            again = Commit(notes={"asked:1:7": "other"}, notes_expect={"asked:1:7": ""})
            assert not (await commit_of(one, again)).error
            assert await one.notes("asked:1") == {"asked:1:7": "other"}


LEFT_NOTE_CHECKS: Final[tuple[SharingCheck, ...]] = (
    check_many_deploys_leave_few_notes,
    check_what_somebody_needs_stays,
    check_who_offers_anything_needs_everything,
    check_channel_takes_nothing_away,
    check_agents_that_come_later_take_the_place_of_others,
    check_of_several_at_one_moment_all_are_there,
    check_notes_of_ended_prompts_go,
)
"""All of them."""
