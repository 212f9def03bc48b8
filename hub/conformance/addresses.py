"""What every journal's address book, recency and notes must do: a part of the conformance suite.

Run together with the rest by ``CHECKS`` of ``hub/conformance/journal.py``.
"""

from typing import Final, Literal

from msgspec import structs

from hubbub.hub.conformance.steps import (
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
    read_all,
    send,
    write,
)
from hubbub.hub.events import (
    AgentComplete,
    AgentStatus,
    CustomEvent,
    SessionMessage,
    SessionOpen,
    SessionResult,
    SessionTerminate,
)
from hubbub.hub.events.descriptors import (
    LOCAL,
    CronDescriptor,
    Descriptor,
    HeartbeatDescriptor,
    SubagentDescriptor,
    UserDescriptor,
    descriptor_of_key,
    encode_descriptor,
    key_of_descriptor,
)
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun, RequestKey, Selection

__all__ = ["ADDRESS_CHECKS"]

D_RUN: Final = "00000000-0000-7000-8000-00000000000d"

_CLOSINGS: Final[tuple[Literal["closing", "terminated"], ...]] = ("closing", "terminated")

IDENTITIES: Final[tuple[Descriptor, ...]] = (
    UserDescriptor(connector="chat_%", user_id="7_%5F", channel_id="_"),
    UserDescriptor(connector=LOCAL, user_id=LOCAL, channel_id="daily"),
    CronDescriptor(id="nightly_é"),
    HeartbeatDescriptor(),
)


def _user(channel: str) -> UserDescriptor:
    return UserDescriptor(connector="chat", user_id="7", channel_id=channel)


def _text(descriptor: Descriptor) -> str:
    return bytes(encode_descriptor(descriptor)).decode()


def _opening(run_id: str, descriptor: Descriptor) -> NewRun:
    """What an opening by a descriptor asks for."""
    root, parent = run_id, None
    if isinstance(descriptor, SubagentDescriptor):
        root, parent = "", descriptor.parent_agent_id
    return NewRun(
        run_id=run_id, root_run_id=root, parent_run_id=parent, agent="echo",
        session_key=key_of_descriptor(descriptor), descriptor=descriptor, by_descriptor=True,
        found=SessionMessage(content=run_id),
    )  # fmt: skip


async def _name(journal: Journal, run_id: str, descriptor: Descriptor) -> Delivery:
    """Deliver an opening by a descriptor."""
    new = _opening(run_id, descriptor)
    event = SessionOpen(open_agent="echo", session_key=new.session_key, at=1)
    return await deliver(journal, Delivery(event, run_id, new=new))


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
        programs_own = UserDescriptor(connector=LOCAL, user_id=LOCAL, channel_id="program")
        await open_run(journal, "program", descriptor=programs_own)
        await send(journal, "program", "from the user", touches=True)
        assert list(await journal.find("user", "newest")) == [A_RUN], "a program's own is nobody's"
        await write(journal, A_RUN, 2, AgentComplete(), status="ended")
        assert not await journal.find("user", "newest")
        lost = await send(journal, "user", "hello", by="newest")
        assert (lost.outcome, lost.reason) == ("rejected", "unknown")


async def check_closed_run_frees_its_key(make_journal: MakeJournal) -> None:
    """From its closing on, a session key is free for the next run."""
    async with open_journal(make_journal) as journal:
        found = SessionMessage(content="again")
        for run_id, closes in zip((A_RUN, B_RUN), _CLOSINGS, strict=True):
            opened = await open_run(journal, run_id, session_key="chat", found=found)
            assert opened.run_ids == (run_id,)
            assert list(await journal.find("chat", "key")) == [run_id]
            await deliver(journal, Delivery(SessionTerminate(), run_id, closes=closes))
            assert not await journal.find("chat", "key")
        last = await open_run(journal, C_RUN, session_key="chat", found=found)
        assert last.run_ids == (C_RUN,)


async def check_descriptor_is_an_identity(make_journal: MakeJournal) -> None:
    """An opening by a descriptor is for the open run of it, until that is closed."""
    async with open_journal(make_journal) as journal:
        for number, descriptor in enumerate(IDENTITIES):
            for closes in _CLOSINGS:
                run_id = f"{number}-{closes}"
                opened = await _name(journal, run_id, descriptor)
                again = await _name(journal, "nobody", descriptor)
                assert (opened.outcome, again.outcome) == ("accepted", "accepted")
                assert again.run_ids == opened.run_ids == (run_id,)
                assert list(await journal.find(_text(descriptor), "descriptor")) == [run_id]
                await deliver(journal, Delivery(SessionTerminate(), run_id, closes=closes))
                assert not await journal.find(_text(descriptor), "descriptor")
        assert await journal.info("nobody") is None
        sent = await send(journal, _text(IDENTITIES[-1]), "hello", by="descriptor")
        assert (sent.outcome, sent.reason) == ("rejected", "unknown")


async def check_key_spells_a_user(make_journal: MakeJournal) -> None:
    """A key and the descriptor that it spells lead to one run, whichever came first."""
    async with open_journal(make_journal) as journal:
        for number, key in enumerate(("chat_1_2_3", "a%5Fb_%25_c", "daily", "x_y")):
            user = descriptor_of_key(key)
            by_key, by_descriptor = f"{number}-key", f"{number}-descriptor"
            await open_run(journal, by_key, session_key=key, descriptor=user)
            assert (await _name(journal, by_descriptor, user)).run_ids == (by_key,)
            await deliver(journal, Delivery(SessionTerminate(), by_key, closes="terminated"))
            await _name(journal, by_descriptor, user)
            found = await open_run(journal, "nobody", session_key=key, descriptor=user)
            assert found.run_ids == (by_descriptor,)
            assert list(await journal.find(key, "key")) == [by_descriptor]
            assert (await send(journal, key, "hello", by="key")).outcome == "accepted"
        spelt_out = await journal.find("local_daily_local", "key")
        assert list(spelt_out) == list(await journal.find("daily", "key")) == ["2-descriptor"]


async def check_everybody_at_once_opens_one(make_journal: MakeJournal) -> None:
    """Find-or-create is one write, however many openings are on their way."""
    async with open_journal(make_journal) as journal:
        for number, descriptor in enumerate(IDENTITIES):
            commits = []
            for opener in range(12):
                new = _opening(f"{number}-{opener}", descriptor)
                if isinstance(descriptor, UserDescriptor) and opener % 2:
                    new = structs.replace(new, by_descriptor=False)
                delivery = Delivery(SessionOpen(open_agent="echo"), new.run_id, new=new)
                commits.append(Commit(deliveries=(delivery,)))
                journal.submit(commits[-1])
            await journal.flush()
            assert {commit.deliveries[0].run_ids for commit in commits} == {(f"{number}-0",)}
            loaded = await journal.load(f"{number}-0")
            assert loaded is not None
            said = [item.content for item in loaded.waiting if isinstance(item, SessionMessage)]
            assert said == [f"{number}-{opener}" for opener in range(1, 12)], "as they came"


async def check_stored_key_keeps_its_meaning(make_journal: MakeJournal) -> None:
    """A key finds the run that has it before the one that it spells, and is never had twice."""
    async with open_journal(make_journal) as journal:
        # An older program read no escapes.
        key, stored = "a%5Fb_c_d", UserDescriptor(connector="a%5Fb", user_id="d", channel_id="c")
        await open_run(journal, A_RUN, session_key=key, descriptor=stored)
        user = descriptor_of_key(key)
        found = await open_run(journal, B_RUN, session_key=key, descriptor=user)
        assert found.run_ids == (A_RUN,)
        assert (await _name(journal, B_RUN, stored)).run_ids == (A_RUN,)
        assert (await _name(journal, B_RUN, user)).run_ids == (B_RUN,)
        assert (await info_of(journal, B_RUN)).session_key == ""
        (opening,) = await read_all(journal, Selection(run_id=B_RUN))
        assert isinstance(opening, SessionOpen) and opening.session_key == ""
        assert list(await journal.find(key, "key")) == [A_RUN]
        await deliver(journal, Delivery(SessionTerminate(), A_RUN, closes="terminated"))
        assert list(await journal.find(key, "key")) == [B_RUN]


async def check_label_of_a_schedule_is_no_key(make_journal: MakeJournal) -> None:
    """The key that a schedule's agent is shown with leads to a user's conversation, if to any."""
    schedules: list[Descriptor] = [
        CronDescriptor(id="a"), CronDescriptor(id="b"), HeartbeatDescriptor(),
    ]  # fmt: skip
    async with open_journal(make_journal) as journal:
        for number, descriptor in enumerate(schedules):
            label = key_of_descriptor(descriptor)
            user = descriptor_of_key(label)
            scheduled, spoken = f"{number}-scheduled", f"{number}-spoken"
            if number != 1:  # Else the user comes first.
                await _name(journal, scheduled, descriptor)
                assert not await journal.find(label, "key")
                lost = await send(journal, label, "hello", by="key")
                assert (lost.outcome, lost.reason) == ("rejected", "unknown")
            opened = await open_run(journal, spoken, session_key=label, descriptor=user)
            assert opened.run_ids == (spoken,)
            assert (await _name(journal, scheduled, descriptor)).run_ids == (scheduled,)
            assert list(await journal.find(label, "key")) == [spoken]
            assert list(await journal.find(_text(descriptor), "descriptor")) == [scheduled]
            await deliver(journal, Delivery(SessionTerminate(), spoken, closes="terminated"))
            assert not await journal.find(label, "key")


async def check_parent_of_a_named_child(make_journal: MakeJournal) -> None:
    """A child that names its parent alone stands below it, or is refused where that is not open."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        child = SubagentDescriptor(id=C_RUN, parent_agent_id=B_RUN, name="c")
        opened = await _name(journal, C_RUN, child)
        assert opened.outcome == "accepted"
        info = await info_of(journal, C_RUN)
        assert (info.root_run_id, info.parent_run_id, info.descriptor) == (A_RUN, B_RUN, child)
        assert (opened.event.root_run_id, opened.event.parent_run_id) == (A_RUN, B_RUN)
        await deliver(journal, Delivery(SessionTerminate(), B_RUN, closes="terminated"))
        assert (await _name(journal, C_RUN, child)).outcome == "duplicate"
        for parent in (B_RUN, "nobody"):
            other = SubagentDescriptor(id=D_RUN, parent_agent_id=parent, name="d")
            refused = await _name(journal, D_RUN, other)
            assert (refused.outcome, parent in refused.reason) == ("rejected", True)
            assert await journal.info(D_RUN) is None


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


async def check_repeated_around_a_search(make_journal: MakeJournal) -> None:
    """What is said again at once counts once, also where runs were searched for in between."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        keyed = [Delivery(session_message("one"), A_RUN, key="1") for _ in range(2)]
        asked = [
            Delivery(session_message("two"), A_RUN, request=RequestKey("two", "d"))
            for _ in range(2)
        ]
        search = Delivery(SessionTerminate(), A_RUN, by="below", closes="terminated")
        first, again = zip(keyed, asked, strict=True)
        done = await commit_of(journal, Commit(deliveries=(*first, search, *again)))
        assert not done.error
        assert search.run_ids == (B_RUN,)
        assert [x.outcome for x in first] == ["accepted", "accepted"]
        assert [x.outcome for x in again] == ["duplicate", "duplicate"]
        assert (await info_of(journal, A_RUN)).waiting == 1 + len(first), "and what has opened it"


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
    check_descriptor_is_an_identity,
    check_key_spells_a_user,
    check_everybody_at_once_opens_one,
    check_stored_key_keeps_its_meaning,
    check_label_of_a_schedule_is_no_key,
    check_parent_of_a_named_child,
    check_only_conversation,
    check_everybody_below,
    check_repeated_around_a_search,
    check_agents_that_are_gone,
    check_timed_runs,
    check_notes,
    check_store_says_that_it_works,
)
"""What is found by an address."""
