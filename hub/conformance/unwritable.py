"""What a store does with what it cannot keep: the commit fails by itself, and nothing else does.

Part of ``hub/conformance/journal.py``.  Callers are refused such things before; this is for what
slips through all the same.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    Check,
    MakeJournal,
    commit_of,
    open_journal,
    open_run,
    send,
    stamp,
    write,
)
from hubbub.hub.events import AgentStatus, CustomEvent, SessionMessage, SessionOpen
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun

__all__ = ["UNWRITABLE_CHECKS"]

HALF: Final = "half \ud800 of a pair"


def _unwritable() -> dict[str, Commit]:
    """Commits that many a store cannot keep, by what is wrong with them; A_RUN stands at 1."""

    def opening(run_id: str, **parts: Any) -> Commit:
        new = NewRun(
            **{"run_id": run_id, "root_run_id": run_id, "parent_run_id": None, "agent": "a"} | parts
        )
        return Commit(deliveries=(Delivery(SessionOpen(), run_id, new=new),))

    def message(to: Any, **parts: Any) -> Commit:
        return Commit(deliveries=(Delivery(session_message("hi"), to, **parts),))

    def own(event: Any, **parts: Any) -> Commit:
        return Commit(A_RUN, [stamp(A_RUN, 2, event)], expect=1, **parts)

    noted = Commit(events=(CustomEvent.of("test:noted"),))
    noted.notes = {HALF: HALF}
    return {
        "an event about a run of no name": Commit(events=(CustomEvent(name="x", run_id=HALF),)),
        "an event of no type": Commit(events=(CustomEvent(name=HALF),)),
        "an event with a field of a wrong type": own(AgentStatus(status=object())),  # type: ignore[arg-type]
        "a note": noted,
        "an address": message(HALF),
        "an address that is no text": message(["a list"]),
        "a name": message(HALF, by="name"),
        "a key": message(B_RUN, source="s", key=HALF),
        "a source": message(B_RUN, source=HALF, key="k"),
        "a run's id": opening(HALF),
        "a session key": opening(C_RUN, session_key=HALF),
        "an agent": opening(C_RUN, agent=HALF),
        "a run's name": opening(C_RUN, name=HALF),
        "a time beyond all times": opening(C_RUN, wake_at=1 << 80),
        "an agent that takes over": own(AgentStatus(), agent=HALF),
        "what does not wait": own(AgentStatus(), taken=(77,)),
        "a status that is none": own(AgentStatus(), status=object()),
    }


async def _fails_alone(what: str, make_journal: MakeJournal) -> None:
    """Between two good commits, submitted together: these are kept, and all are answered."""
    async with open_journal(make_journal) as journal:
        await _begin(journal)
        bad = _unwritable()[what]
        done: list[Commit] = []
        before = Commit(
            events=(CustomEvent.of("test:before"),),
            deliveries=(Delivery(session_message("before"), B_RUN, source="s", key="1"),),
        )
        after = Commit(deliveries=(Delivery(session_message("after"), B_RUN),))
        for commit in (before, bad, after):
            commit.done = done.append
            journal.submit(commit)
        await journal.flush()
        assert done == [before, bad, after]
        assert not journal.failure, journal.failure
        for commit in (before, after):
            assert not commit.error, commit.error
            assert [each.outcome for each in commit.deliveries] == ["accepted"]
        assert not (bad.error and bad.written)
        loaded = await journal.load(B_RUN)
        assert loaded is not None
        said = [item.content for item in loaded.waiting if isinstance(item, SessionMessage)]
        assert [said[0], said[-1]] == ["before", "after"]
        assert [item.seq for item in loaded.waiting] == [*range(1, len(said) + 2)]


async def _run_goes_on(what: str, make_journal: MakeJournal) -> None:
    """Its lane and its inbox are as though it had never been tried."""
    async with open_journal(make_journal) as journal:
        await _begin(journal)
        bad = await commit_of(journal, _unwritable()[what])
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert loaded.seq == 1 or not bad.error
        went_on = await write(journal, A_RUN, loaded.seq, AgentStatus(status="two"))
        assert not went_on.error, went_on.error
        assert (await send(journal, A_RUN, "go on")).outcome == "accepted"


async def _begin(journal: Journal) -> None:
    await open_run(journal, A_RUN)
    await open_run(journal, B_RUN)
    await write(journal, A_RUN, 0, AgentStatus(status="one"))


def _check(name: str, run: Callable[[str, MakeJournal], Awaitable[None]], what: str) -> Check:
    async def check(make_journal: MakeJournal) -> None:
        await run(what, make_journal)

    check.__name__ = f"check_{name}: {what}"
    check.__doc__ = run.__doc__
    return check


UNWRITABLE_CHECKS: Final[tuple[Check, ...]] = (
    *(_check("what_cannot_be_kept_fails_alone", _fails_alone, what) for what in _unwritable()),
    *(_check("a_run_goes_on_after_it", _run_goes_on, what) for what in _unwritable()),
)
