"""What every journal's address book, recency and notes must do: a part of the conformance suite.

Run together with the rest by ``CHECKS`` of ``hub/journal_conformance.py``.
"""

from typing import Final

from hubbub.hub.descriptors import CronDescriptor, HeartbeatDescriptor, UserDescriptor
from hubbub.hub.events import (
    AgentComplete,
    AgentStatus,
    CustomEvent,
    SessionMessage,
    SessionResult,
    SessionTerminate,
)
from hubbub.hub.journal import Commit, Delivery
from hubbub.hub.journal_steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    Check,
    MakeJournal,
    commit_of,
    deliver,
    info_of,
    open_journal,
    open_run,
    send,
    write,
)

__all__ = ["ADDRESS_CHECKS"]

D_RUN: Final = "00000000-0000-7000-8000-00000000000d"


def _user(channel: str) -> UserDescriptor:
    return UserDescriptor(connector="chat", user_id="7", channel_id=channel)


async def check_descriptors_are_kept(make_journal: MakeJournal) -> None:
    """What a run stands for is part of what is known of it."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN, descriptor=_user("1"))
        await open_run(journal, B_RUN, descriptor=CronDescriptor(id="nightly"))
        await open_run(journal, C_RUN)
        assert (await info_of(journal, A_RUN)).descriptor == _user("1")
        assert (await info_of(journal, B_RUN)).descriptor == CronDescriptor(id="nightly")
        assert (await info_of(journal, C_RUN)).descriptor is None


async def check_newest(make_journal: MakeJournal) -> None:
    """The open run of a kind that was touched last, else created last; nothing else counts."""
    async with open_journal(make_journal) as journal:
        assert not await journal.find("user", "newest")
        await open_run(journal, A_RUN, descriptor=_user("1"))
        await open_run(journal, B_RUN, descriptor=_user("2"))
        await open_run(journal, C_RUN, descriptor=HeartbeatDescriptor())
        await open_run(journal, D_RUN)
        assert list(await journal.find("user", "newest")) == [B_RUN]
        assert list(await journal.find("heartbeat", "newest")) == [C_RUN]
        await send(journal, A_RUN, "silent")
        await write(journal, A_RUN, 0, AgentStatus())
        assert list(await journal.find("user", "newest")) == [B_RUN], "that did not touch it"
        await send(journal, A_RUN, "from the user", touches=True)
        await write(journal, A_RUN, 1, AgentStatus(), status="parked")
        assert list(await journal.find("user", "newest")) == [A_RUN]
        refused = await send(journal, B_RUN, "one too many", touches=True, limit=1)
        assert refused.outcome == "accepted"
        refused = await send(journal, A_RUN, "one too many", touches=True, limit=1)
        assert refused.outcome == "rejected"
        assert list(await journal.find("user", "newest")) == [B_RUN]
        await deliver(journal, Delivery(SessionTerminate(), B_RUN, closes="terminated"))
        assert list(await journal.find("user", "newest")) == [A_RUN]
        sent = await send(journal, "user", "hello", by="newest")
        assert (sent.outcome, sent.event.run_id) == ("accepted", A_RUN)
        await write(journal, A_RUN, 2, AgentComplete(), status="ended")
        assert not await journal.find("user", "newest")
        lost = await send(journal, "user", "hello", by="newest")
        assert (lost.outcome, lost.reason) == ("rejected", "unknown")


async def check_closed_run_frees_its_key(make_journal: MakeJournal) -> None:
    """From its closing on, a session key is free for the next run."""
    async with open_journal(make_journal) as journal:
        found = SessionMessage(content="again")
        for run_id, closes in ((A_RUN, "closing"), (B_RUN, "terminated")):
            opened = await open_run(journal, run_id, session_key="chat", found=found)
            assert opened.run_ids == (run_id,)
            assert list(await journal.find("chat", "key")) == [run_id]
            await deliver(journal, Delivery(SessionTerminate(), run_id, closes=closes))  # type: ignore[arg-type]
            assert not await journal.find("chat", "key")
        last = await open_run(journal, C_RUN, session_key="chat", found=found)
        assert last.run_ids == (C_RUN,)


async def check_only_conversation(make_journal: MakeJournal) -> None:
    """Keyed runs of schedules are no conversations."""
    async with open_journal(make_journal) as journal:
        cron = CronDescriptor(id="c")
        await open_run(journal, A_RUN, session_key="schedule:c", descriptor=cron)
        await open_run(journal, B_RUN, session_key="chat", descriptor=_user("1"))
        only = await send(journal, "", "hello", by="only")
        assert (only.outcome, only.event.run_id) == ("accepted", B_RUN)


async def check_everybody_below(make_journal: MakeJournal) -> None:
    """``by="below"`` reaches the live descendants, through ended ones too, once each."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        await open_run(journal, C_RUN, root_run_id=A_RUN, parent_run_id=B_RUN)
        await open_run(journal, D_RUN)
        await write(journal, B_RUN, 0, AgentComplete(), status="ended")
        assert list(await journal.find(A_RUN, "below")) == [C_RUN]
        stop = Delivery(SessionTerminate(), A_RUN, by="below", closes="terminated")
        assert (await deliver(journal, stop)).run_ids == (C_RUN,)
        assert (await info_of(journal, C_RUN)).inbox == "terminated"
        assert (await info_of(journal, A_RUN)).inbox == "open"
        again = Delivery(SessionTerminate(), A_RUN, by="below", closes="terminated")
        assert (await deliver(journal, again)).run_ids == ()
        assert not await journal.find(D_RUN, "below")
        assert not await journal.find("nobody", "below")


async def check_agents_that_are_gone(make_journal: MakeJournal) -> None:
    """A message names the agents that there are; a run of another one refuses it."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN, "here")
        await open_run(journal, B_RUN, "gone", session_key="chat")
        agents = frozenset(("here",))
        kept = await send(journal, A_RUN, "hello", agents=agents)
        assert kept.outcome == "accepted"
        refused = await send(journal, B_RUN, "hello", agents=agents)
        assert (refused.outcome, refused.reason) == ("rejected", "agent gone")
        result = Delivery(SessionResult(child_run_id=C_RUN), B_RUN, agents=agents)
        assert (await deliver(journal, result)).outcome == "accepted"
        await write(journal, A_RUN, 0, AgentStatus(), agent="gone")
        refused = await send(journal, A_RUN, "hello", agents=agents)
        assert (refused.outcome, refused.reason) == ("rejected", "agent gone")


async def check_timed_runs(make_journal: MakeJournal) -> None:
    """Live runs with a time at which they must be looked at."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN, wake_at=5)
        await open_run(journal, B_RUN)
        await open_run(journal, C_RUN, wake_at=9)
        assert sorted(await journal.timed()) == [(A_RUN, 5), (C_RUN, 9)]
        await write(journal, C_RUN, 0, AgentComplete(), status="ended")
        assert list(await journal.timed()) == [(A_RUN, 5)]


async def check_notes(make_journal: MakeJournal) -> None:
    """Texts by key, written with a commit or not at all; a later one takes the place."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await commit_of(journal, Commit(notes={"s/a": "1", "s/b": "2", "t/a": "3"}))
        event = CustomEvent.of("test:tick")
        await commit_of(journal, Commit(events=(event,), notes={"s/a": "4 é"}))
        assert dict(await journal.notes("s/")) == {"s/a": "4 é", "s/b": "2"}
        assert dict(await journal.notes()) == {"s/a": "4 é", "s/b": "2", "t/a": "3"}
        lost = Commit(A_RUN, (), expect=7, notes={"s/b": "lost"})
        assert (await commit_of(journal, lost)).error == "conflict"
        assert (await journal.notes("s/b"))["s/b"] == "2"


async def check_store_says_that_it_works(make_journal: MakeJournal) -> None:
    """A store that accepts has nothing to complain about."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        assert journal.failure == ""
        assert not journal.problems


ADDRESS_CHECKS: Final[tuple[Check, ...]] = (
    check_descriptors_are_kept,
    check_newest,
    check_closed_run_frees_its_key,
    check_only_conversation,
    check_everybody_below,
    check_agents_that_are_gone,
    check_timed_runs,
    check_notes,
    check_store_says_that_it_works,
)
