"""What the checks of a store are made of: short ways to do one thing to a journal."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
from msgspec import structs

from hubbub.hub.events import Event, SessionOpen
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun, RunInfo, Selection
from hubbub.hub.store.store import Store

__all__ = [
    "A_RUN",
    "B_RUN",
    "C_RUN",
    "EVERYTHING",
    "Check",
    "MakeJournal",
    "commit_of",
    "deliver",
    "identity",
    "info_of",
    "open_journal",
    "open_run",
    "read_all",
    "send",
    "stamp",
    "write",
]

MakeJournal: TypeAlias = Callable[[], Store]
"""Makes a new, empty store that is not open yet."""
Check: TypeAlias = Callable[[MakeJournal], Awaitable[None]]
"""A check: it raises ``AssertionError`` where the store is wrong."""

EVERYTHING: Final = Selection()
"""The selection of all events."""
A_RUN: Final = "00000000-0000-7000-8000-00000000000a"
"""The id of a run; it sorts before the others."""
B_RUN: Final = "00000000-0000-7000-8000-00000000000b"
"""The id of another one."""
C_RUN: Final = "00000000-0000-7000-8000-00000000000c"
"""The id of a third one."""


@asynccontextmanager
async def open_journal(make_journal: MakeJournal) -> AsyncIterator[Store]:
    """A new journal, open; closed at the end."""
    journal = make_journal()
    await journal.open()
    try:
        yield journal
    finally:
        await journal.aclose()


async def commit_of(journal: Journal, commit: Commit) -> Commit:
    """Submit, and wait until it is done."""
    done = anyio.Event()
    commit.done = lambda _commit: done.set()
    journal.submit(commit)
    await done.wait()
    return commit


async def deliver(journal: Journal, delivery: Delivery) -> Delivery:
    """Commit one delivery by itself; it holds its outcome."""
    commit = await commit_of(journal, Commit(deliveries=(delivery,)))
    assert not commit.error, "a delivery never makes a commit fail"
    return delivery


async def send(journal: Journal, to: str, content: str, **options: Any) -> Delivery:
    """Deliver a message; ``options`` are those of ``Delivery``."""
    message = session_message(content, source=options.get("source", ""))
    return await deliver(journal, Delivery(message, to, **options))


async def open_run(journal: Journal, run_id: str, agent: str = "echo", **options: Any) -> Delivery:
    """Deliver an opening; ``options`` are those of ``NewRun``, and ``at``."""
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
    return await deliver(journal, Delivery(event, run_id, new=new))


def stamp(run_id: str, seq: int, event: Event) -> Event:
    """``event`` as its owner writes it."""
    return structs.replace(event, run_id=run_id, root_run_id=run_id, lane="own", seq=seq)


async def write(
    journal: Journal, run_id: str, expect: int, *events: Event, **options: Any
) -> Commit:
    """One commit of the run's owner."""
    stamped = [stamp(run_id, expect + 1 + i, event) for i, event in enumerate(events)]
    return await commit_of(journal, Commit(run_id, stamped, expect=expect, **options))


async def read_all(journal: Journal, selection: Selection = EVERYTHING) -> list[Event]:
    """Every event of the journal that ``selection`` wants."""
    found: list[Event] = []
    position = 0
    while position < journal.tip:
        events, position = await journal.read(selection, after=position)
        found.extend(events)
    return found


def identity(event: Event) -> tuple[str, str, int]:
    """What tells a durable event from every other."""
    return (event.run_id, event.lane, event.seq)


async def info_of(journal: Journal, run_id: str) -> RunInfo:
    """What the journal knows of a run that it has."""
    info = await journal.info(run_id)
    assert info is not None
    return info
