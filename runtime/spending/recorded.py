"""What runs have used, as their records say it.

A run that cannot be read stops no other of its tree: what it had used is not counted.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

from msgspec import Struct

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.state.bases import thread_of
from hubbub.agents.state.fold import fold
from hubbub.agents.state.spending import NOTHING_SPENT, Spent, with_event
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.crash_limit import CRASH_LOOP
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events import Event, Limits
from hubbub.hub.logs import log
from hubbub.hub.store.journal import Journal, Selection

__all__ = [
    "Work",
    "is_working",
    "limits_in",
    "pages_of",
    "spent_on_record",
    "work_in",
    "work_on_record",
]

PAGE: Final = 1000
_CALLS: Final = frozenset((e.AgentStep.type, e.SessionCompaction.type, e.AgentBase.type))


class Work(Struct):
    """Microseconds that a run was at work, and how many of them before its turn."""

    run: int = 0
    before_turn: int = 0
    last: int = 0
    """When it wrote something last, as far as that was read from the journal."""


def is_working(thread: Thread | CodeThread) -> bool:
    """Whether a run's time passes: a turn is at work, and waits neither for children nor people."""
    if not isinstance(thread, Thread):
        return False
    return thread.in_session and not thread.waits and not thread.prompts


def limits_in(events: Iterable[Event], found: Limits | None) -> Limits | None:
    """What a root's own lane says that its tree may use; until then ``found``."""
    for event in events:
        if isinstance(event, e.AgentBase):
            found = thread_of(event).limits
        elif isinstance(event, e.SessionTaken):
            for item in event.items:
                if isinstance(item, e.SessionOpen | e.SessionLimits):
                    found = item.limits
    return found


def work_in(events: Iterable[Event]) -> Work:
    """How long a run was at work, as its own lane says it, without what a crash has cut off.

    Of code that is what its conversations with models have said of it.
    """
    work, thread, last, works, passed = Work(), EMPTY, 0, False, 0
    for event in events:
        if isinstance(event, e.AgentStep):
            work.run += event.worked
        elif isinstance(event, e.AgentBase) and thread is EMPTY:
            work.run = event.worked
        if event.at != last:
            passed = (
                max(0, event.at - last) if works and not isinstance(event, e.AgentRestore) else 0
            )
            work.run += passed
        if isinstance(event, e.AgentFailed) and event.error_type == CRASH_LOOP:
            work.run -= passed  # It was not restored any more: nobody was at work until its end.
        turn = thread.turn
        thread = fold(thread, event)
        if thread.turn != turn:
            work.before_turn = work.run
        work.last = last = event.at
        works = is_working(thread)
    return work


async def work_on_record(journal: Journal, run_id: str) -> Work | None:
    """How long a run was at work; ``None`` where there is none that can be read."""
    try:
        run = await journal.load(run_id)
    except (BadValue, StoreFailed) as error:
        _passed_over(journal, run_id, error)
        return None
    return None if run is None else work_in(run.events)


async def spent_on_record(journal: Journal, run_id: str) -> Spent:
    """What a run has used, up to what of it cannot be read."""
    base, spent = None, NOTHING_SPENT
    try:
        async for events in pages_of(journal, run_id, _CALLS):
            for event in events:
                if isinstance(event, e.AgentBase):  # Calls before it may have gone.
                    base, spent = event, NOTHING_SPENT
                else:
                    spent = with_event(spent, event)
        return spent if base is None else thread_of(base).spent + spent
    except (BadValue, StoreFailed) as error:
        _passed_over(journal, run_id, error)
        return spent


def _passed_over(journal: Journal, run_id: str, error: BadValue | StoreFailed) -> None:
    """Go on without a run that cannot be read; not where nothing can be."""
    if journal.failure:
        raise error
    log.info("spending.unread", run_id=run_id, error=str(error))


async def pages_of(
    journal: Journal, run_id: str, types: frozenset[str]
) -> AsyncGenerator[Sequence[Event], None]:
    """The events of some types in a run's lanes, in order."""
    selection = Selection(run_id=run_id, match=types.__contains__)
    position, end = 0, journal.tip
    while position < end:
        events, position = await journal.read(selection, after=position, until=end, limit=PAGE)
        yield events
