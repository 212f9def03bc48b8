"""What every journal must do for takeovers: the part of the conformance suite about items that go
from one inbox of a tree to another, lent or moved.

Run together with the rest by ``CHECKS`` of ``hub/conformance/journal.py``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    Check,
    MakeJournal,
    deliver,
    identity,
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
    SessionAbort,
    SessionMessage,
    SessionReply,
    SessionResult,
    SessionTerminate,
)
from hubbub.hub.store.journal import Delivery, Journal

__all__ = ["TAKEOVER_CHECKS"]


@asynccontextmanager
async def _stack(make_journal: MakeJournal) -> AsyncIterator[Journal]:
    """A conversation A that waits for its frame B; C is nobody's."""
    async with open_journal(make_journal) as journal:
        await open_run(journal, A_RUN, session_key="chat")
        await open_run(journal, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN)
        await open_run(journal, C_RUN)
        await write(journal, A_RUN, 0, AgentStatus(), taken=(1,), status="waiting")
        await write(journal, B_RUN, 0, AgentStatus(), taken=(1,), status="parked")
        yield journal


async def _texts(journal: Journal, run_id: str) -> list[tuple[int, str]]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    assert loaded.info.waiting == len(loaded.waiting)
    return [(item.seq, getattr(item, "content", item.type)) for item in loaded.waiting]


async def check_waiting_run_with_mail_is_ready(make_journal: MakeJournal) -> None:
    """Who waits for a child is ready as soon as something waits for it, and no longer."""
    async with _stack(make_journal) as journal:
        assert list(await journal.ready()) == [C_RUN]
        await send(journal, A_RUN, "hello")
        assert sorted(await journal.ready()) == [A_RUN, C_RUN]
        await write(journal, B_RUN, 1, AgentStatus(), lent=((A_RUN, 2),))
        assert list(await journal.ready()) == [C_RUN]


async def check_lent_items_leave_their_inbox(make_journal: MakeJournal) -> None:
    """A frame takes the conversation's items with its own, in one commit."""
    async with _stack(make_journal) as journal:
        for content in "abc":
            await send(journal, A_RUN, content, source="chat", key=content, limit=3)
        own = await send(journal, B_RUN, "own")
        before = journal.depths()
        lent = ((A_RUN, 2), (A_RUN, 4))
        commit = await write(journal, B_RUN, 1, AgentStatus(), taken=(own.event.seq,), lent=lent)
        assert not commit.error
        assert [identity(event) for event in commit.written] == [(B_RUN, "own", 2)]
        assert await _texts(journal, A_RUN) == [(3, "b")]
        assert await _texts(journal, B_RUN) == []
        live, parked, waiting = before
        assert journal.depths() == (live, parked, waiting - 3)
        assert (await info_of(journal, A_RUN)).status == "waiting"
        again = await send(journal, A_RUN, "a", source="chat", key="a", limit=3)
        assert again.outcome == "duplicate", "accepted once, whichever run has taken it"
        for content in "de":
            room = await send(journal, A_RUN, content, limit=3)
            assert room.outcome == "accepted", "what is lent makes room"
        full = await send(journal, A_RUN, "f", limit=3)
        assert full.reason == "inbox full"
        await write(journal, A_RUN, 1, AgentStatus(), taken=(3, 5, 6), status="active")
        assert await _texts(journal, A_RUN) == []


async def check_what_does_not_wait_is_not_lent(make_journal: MakeJournal) -> None:
    """One item that does not wait where it is said to, and the commit is a conflict, whole."""
    async with _stack(make_journal) as journal:
        for content in "ab":
            await send(journal, A_RUN, content)
        await send(journal, B_RUN, "own")
        await send(journal, C_RUN, "another tree's")
        await write(journal, A_RUN, 1, AgentStatus(), taken=(3,))
        tip, depths = journal.tip, journal.depths()
        for wrong in (
            (A_RUN, 3), (A_RUN, 9), (A_RUN, 2), (B_RUN, 2), (C_RUN, 2), ("nobody", 1),
        ):  # fmt: skip
            result = Delivery(SessionResult(child_run_id=B_RUN), A_RUN)
            commit = await write(
                journal, B_RUN, 1, AgentStatus(),
                taken=(2,), lent=((A_RUN, 2), wrong), deliveries=(result,), status="ended",
            )  # fmt: skip
            assert (commit.error, commit.written, result.outcome) == ("conflict", [], ""), wrong
        assert (journal.tip, journal.depths()) == (tip, depths)
        assert await _texts(journal, A_RUN) == [(2, "a")]
        assert await _texts(journal, B_RUN) == [(2, "own")]
        assert (await info_of(journal, B_RUN)).status == "parked"
        await write(journal, A_RUN, 2, AgentComplete(), status="ended")
        late = await write(journal, B_RUN, 1, AgentStatus(), lent=((A_RUN, 2),))
        assert late.error == "conflict", "what was left over is nobody's"


async def check_messages_are_left_to_another_run(make_journal: MakeJournal) -> None:
    """The commit that ends a frame moves its messages behind what waits below it."""
    async with _stack(make_journal) as journal:
        await send(journal, A_RUN, "before", limit=1)
        said = SessionMessage(content="one", source="chat", key="1")
        await deliver(journal, Delivery(said, B_RUN, source="chat", key="1"))
        await deliver(journal, Delivery(SessionAbort(), B_RUN))
        await deliver(journal, Delivery(SessionResult(child_run_id=C_RUN, content="x"), B_RUN))
        await send(journal, B_RUN, "two", source="chat", key="2")
        await send(journal, B_RUN, "taken")
        before = journal.depths()
        result = Delivery(SessionResult(child_run_id=B_RUN), A_RUN)
        commit = await write(
            journal, B_RUN, 1, AgentComplete(),
            taken=(6,), status="ended", leave_to=A_RUN, deliveries=(result,),
        )  # fmt: skip
        assert [getattr(item, "content", "") for item in commit.leftovers] == ["x"]
        assert [identity(event) for event in commit.written] == [
            (B_RUN, "own", 2), (A_RUN, "in", 3), (A_RUN, "in", 4), (A_RUN, "in", 5),
        ]  # fmt: skip
        loaded = await journal.load(A_RUN)
        assert loaded is not None
        assert list(loaded.waiting)[1:] == commit.written[1:] == (await read_all(journal))[-3:]
        for item, content in zip(loaded.waiting[1:], ("one", "two"), strict=False):
            assert isinstance(item, SessionMessage)
            assert (item.content, item.source, item.key) == (content, "chat", "")
            assert (item.root_run_id, item.parent_run_id, item.agent) == (A_RUN, None, "echo")
        assert journal.depths() == (before[0] - 1, before[1] - 1, before[2] - 3 + 1)
        full = await send(journal, A_RUN, "full", limit=3)
        assert full.reason == "inbox full", "what was moved counts, and none of it was refused"
        anew = await deliver(journal, Delivery(said, A_RUN, source="chat", key="1"))
        assert anew.outcome == "accepted", "keys were judged where the messages were sent to"
        await write(journal, A_RUN, 1, AgentStatus(), taken=(2, 3, 4, 5), status="parked")
        assert await _texts(journal, A_RUN) == [(6, "one")]


async def check_nothing_is_left_to_who_takes_no_messages(make_journal: MakeJournal) -> None:
    """Then they are left over, as ever; so they are of a run that does not end."""
    async with _stack(make_journal) as journal:
        await send(journal, B_RUN, "message")
        kept = await write(journal, B_RUN, 1, AgentStatus(), status="parked", leave_to=A_RUN)
        assert (len(kept.written), kept.leftovers) == (1, ())
        assert await _texts(journal, B_RUN) == [(2, "message")]
        await write(journal, C_RUN, 0, AgentComplete(), status="ended")
        ends: dict[str, Delivery | None] = {
            "nobody": None, C_RUN: None, "itself": None,
            "closing": Delivery(SessionAbort(), A_RUN, closes="closing"),
            "terminated": Delivery(SessionTerminate(), A_RUN, closes="terminated"),
        }  # fmt: skip
        for number, (heir, closing) in enumerate(ends.items()):
            frame = f"frame-{number}"
            await open_run(journal, frame, root_run_id=A_RUN, parent_run_id=A_RUN)
            await send(journal, frame, "message")
            if closing is not None:
                await deliver(journal, closing)
            to = {"itself": frame, "nobody": heir, C_RUN: heir}.get(heir, A_RUN)
            commit = await write(journal, frame, 0, AgentComplete(), status="ended", leave_to=to)
            assert [item.run_id for item in commit.leftovers] == [frame], heir
            assert len(commit.written) == 1, heir
        assert [text for _, text in await _texts(journal, A_RUN)] == [
            SessionAbort.type, SessionTerminate.type,
        ]  # fmt: skip


async def check_a_message_that_answered_nothing_waits_again(make_journal: MakeJournal) -> None:
    """What is taken for an answer comes back where each of its replies was too late."""
    async with _stack(make_journal) as journal:
        said = SessionMessage(content="yes", source="chat", key="1", at=7)
        message = (await deliver(journal, Delivery(said, A_RUN, source="chat", key="1"))).event
        assert isinstance(message, SessionMessage)
        await send(journal, A_RUN, "next")

        def reply(prompt_id: str, to: str) -> Delivery:
            event = SessionReply(prompt_id=prompt_id, content="yes")
            return Delivery(event, to, source="prompt", key=prompt_id)

        await deliver(journal, reply("p1", A_RUN))
        too_late = await write(
            journal, A_RUN, 1, AgentStatus(), taken=(2,), deliveries=(reply("p1", A_RUN),),
            again=message,
        )  # fmt: skip
        assert [x.outcome for x in too_late.deliveries] == ["duplicate"]
        assert [identity(event) for event in too_late.written] == [
            (A_RUN, "own", 2), (A_RUN, "in", 5),
        ]  # fmt: skip
        assert await _texts(journal, A_RUN) == [(3, "next"), (4, "yes"), (5, "yes")]
        again = (await read_all(journal))[-1]
        assert isinstance(again, SessionMessage)
        assert (again.source, again.key, again.at) == ("chat", "", 7)
        known = await deliver(journal, Delivery(said, A_RUN, source="chat", key="1"))
        assert known.outcome == "duplicate", "its key is judged as before"
        in_time = await write(
            journal, A_RUN, 2, AgentStatus(), taken=(3,), again=message,
            deliveries=(reply("p1", A_RUN), reply("p2", B_RUN)),
        )  # fmt: skip
        assert [x.outcome for x in in_time.deliveries] == ["duplicate", "accepted"]
        assert await _texts(journal, A_RUN) == [(4, "yes"), (5, "yes")], "one reply was in time"
        await write(journal, A_RUN, 3, AgentStatus(), taken=(4, 5), status="parked")
        assert await _texts(journal, A_RUN) == []


TAKEOVER_CHECKS: Final[tuple[Check, ...]] = (
    check_waiting_run_with_mail_is_ready,
    check_lent_items_leave_their_inbox,
    check_what_does_not_wait_is_not_lent,
    check_messages_are_left_to_another_run,
    check_nothing_is_left_to_who_takes_no_messages,
    check_a_message_that_answered_nothing_waits_again,
)
"""What a run may lend of its inbox."""
