"""What inspection reads of a store: the whole record, as it is.

Part of ``hub/conformance/journal.py``: asked of the reader that the store itself gives.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

from msgspec import structs

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    C_RUN,
    Check,
    MakeJournal,
    commit_of,
    identity,
    open_journal,
    open_run,
    read_all,
    send,
    write,
)
from hubbub.hub.events import AgentComplete, AgentStatus, CustomEvent, Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import CronDescriptor, SubagentDescriptor, UserDescriptor
from hubbub.hub.store.journal import Commit, RunInfo
from hubbub.hub.store.reader import (
    AcceptedRow,
    StoreReader,
    WaitingRow,
    events_in,
    info_of,
    own_lane,
)
from hubbub.hub.store.store import Store

__all__ = ["READER_CHECKS"]


@asynccontextmanager
async def _filled(make_journal: MakeJournal) -> AsyncIterator[tuple[Store, StoreReader]]:
    """A store with a user's tree of two, ``A`` and ``B``, and an ended run of nobody's, ``C``."""
    async with open_journal(make_journal) as store:
        user = UserDescriptor(connector="web", channel_id="1", user_id="2")
        child = SubagentDescriptor(id=B_RUN, parent_agent_id=A_RUN, name="child")
        await open_run(store, A_RUN, descriptor=user, session_key="web_1_2")
        await open_run(store, C_RUN)
        await open_run(store, B_RUN, root_run_id=A_RUN, parent_run_id=A_RUN, descriptor=child)
        await send(store, A_RUN, "first", source="web", key="one")
        await write(store, A_RUN, 0, AgentStatus(status="one"), taken=(1, 2), status="parked")
        await send(store, A_RUN, "second", source="web", key="two")
        tick = structs.replace(CustomEvent.of("test:tick"), run_id=A_RUN, root_run_id=A_RUN)
        await commit_of(store, Commit(events=(tick,), notes={"a/b": "c", "d": "e"}))
        await write(store, A_RUN, 1, AgentStatus(status="two"))
        await write(store, C_RUN, 0, AgentComplete(outcome="completed"), taken=(1,), status="ended")
        reader = store.reader()
        try:
            yield store, reader
        finally:
            reader.close()


async def check_reader_sees_each_event_as_it_is_kept(make_journal: MakeJournal) -> None:
    """Rows of the whole store, and of runs, in its order, each with the event that it is."""
    async with _filled(make_journal) as (store, reader):
        whole = await read_all(store)
        assert (reader.name, reader.tip) == (store.name, store.tip)
        with reader.one_moment():
            rows = [*reader.event_rows()]
        assert [decode_event(row.body) for row in rows] == whole
        said = [(row.run_id, row.root_run_id, row.lane, row.seq, row.type) for row in rows]
        assert said == [(x.run_id, x.root_run_id, x.lane, x.seq, x.type) for x in whole]
        assert all(one.position < other.position for one, other in pairwise(rows))
        assert rows[-1].position == reader.tip
        for runs in ((A_RUN,), (A_RUN, B_RUN), (B_RUN, C_RUN, "nobody"), ()):
            found = [row for row in rows if row.run_id in runs]
            for after in (0, rows[3].position, reader.tip):
                later = [row for row in found if row.position > after]
                assert [*reader.event_rows(runs, after=after)] == later
                assert [*reader.event_rows(runs, after=after, backwards=True)] == later[::-1]
            for until in (0, rows[3].position, reader.tip):
                sooner = [row for row in found if row.position <= until]
                assert [*reader.event_rows(runs, until=until)] == sooner
                assert [*reader.event_rows(runs, until=until, backwards=True)] == sooner[::-1]
        own = [event for event in whole if identity(event)[:2] == (A_RUN, "own")]
        assert [*own_lane(reader, A_RUN)] == own
        last = next(events_in(reader, A_RUN, backwards=True))
        assert (last.event, last.position) == (own[-1], rows[whole.index(own[-1])].position)


async def check_reader_sees_what_is_committed_later(make_journal: MakeJournal) -> None:
    """A reader is no copy: it reads on from where it was."""
    async with _filled(make_journal) as (store, reader):
        before = reader.tip
        written = await write(store, B_RUN, 0, AgentStatus(status="later"))
        found = [stored.event for stored in events_in(reader, after=before)]
        assert found == written.written
        row = reader.row(B_RUN)
        assert row is not None and row.seq == 1


async def check_rows_say_what_the_journal_says(make_journal: MakeJournal) -> None:
    """Rows of runs agree with ``info`` and with the events they have come from."""
    async with _filled(make_journal) as (store, reader):
        rows = {row.run_id: row for row in reader.rows()}
        infos: dict[str, RunInfo] = {x.run_id: x for x in await store.runs(live=False)}
        assert {run_id: info_of(row) for run_id, row in rows.items()} == infos
        assert reader.row("nobody") is None
        for run_id, row in rows.items():
            assert reader.row(run_id) == row
            events = [x for x in events_in(reader, run_id) if x.event.lane != "hub"]
            assert row.born == events[0].position
            assert row.in_seq == sum(x.event.lane == "in" for x in events)
            assert row.seq == sum(x.event.lane == "own" for x in events)
            loaded, known = reader.load(run_id), await store.load(run_id)
            assert loaded is not None and known is not None and loaded.info == known.info
            assert list(loaded.events) == list(known.events)
            assert list(loaded.waiting) == list(known.waiting)
        a, b, c = rows[A_RUN], rows[B_RUN], rows[C_RUN]
        assert (a.kind, b.kind, c.kind, c.descriptor) == ("user", "subagent", "", None)
        assert (bool(a.ready), bool(b.ready), bool(c.ready)) == (True, True, False)
        assert (a.waiting, a.messages, b.waiting, b.messages) == (1, 1, 1, 0)
        assert (c.status, c.inbox, a.status) == ("ended", "ended", "parked")
        assert reader.load("nobody") is None


async def check_reader_finds_runs(make_journal: MakeJournal) -> None:
    """By tree, by age, by a part of the id, by address, and those with a descriptor."""
    async with _filled(make_journal) as (store, reader):
        assert reader.roots() == {A_RUN: A_RUN, B_RUN: A_RUN, C_RUN: C_RUN}
        assert [row.run_id for row in reader.tree(A_RUN)] == [A_RUN, B_RUN]
        assert [row.run_id for row in reader.tree(C_RUN)] == [C_RUN]
        assert [*reader.tree("nobody")] == []
        every, count = reader.newest_trees(live=False, limit=10)
        assert ([*every], count) == ([C_RUN, A_RUN], 2)
        newest, count = reader.newest_trees(live=False, limit=1)
        assert ([*newest], count) == ([C_RUN], 2)
        live, count = reader.newest_trees(live=True, limit=10)
        assert ([*live], count) == ([A_RUN], 1)
        assert reader.newest_trees(live=True, limit=0) == ([], 1)
        assert [row.run_id for row in reader.resting_roots(10)] == [A_RUN], "its child is at work"
        assert [*reader.trees_of_resting_children(10)] == []
        assert [*reader.described()] == [A_RUN, B_RUN]
        opened = next(events_in(reader, B_RUN)).position
        assert [*reader.described(opened)] == [A_RUN]
        assert [*reader.described(reader.tip)] == []
        assert [*reader.matching(A_RUN[:8], 10)] == sorted((A_RUN, B_RUN, C_RUN))
        assert [*reader.matching(A_RUN[:8], 2)] == sorted((A_RUN, B_RUN))
        assert [*reader.matching(B_RUN[-4:], 10)] == [B_RUN]
        assert [*reader.matching("nobody", 10)] == []
        assert [*reader.find("web_1_2", "key")] == [*await store.find("web_1_2", "key")] == [A_RUN]
        row = reader.row(A_RUN)
        assert row is not None
        await write(store, A_RUN, row.seq, AgentComplete(outcome="completed"), status="ended")
        live, count = reader.newest_trees(live=True, limit=10)
        assert ([*live], count) == ([A_RUN], 1), "a run below it is live"
        await write(store, B_RUN, 0, AgentStatus(), status="parked")
        assert [*reader.resting_roots(10)] == []
        assert [*reader.trees_of_resting_children(10)] == [A_RUN]


async def check_reader_lists_roots_by_when_they_were_spoken_to(make_journal: MakeJournal) -> None:
    """Roots of people and programs, ended ones too, the one spoken to last first, page by page."""
    async with _filled(make_journal) as (store, reader):
        await open_run(store, "cron", descriptor=CronDescriptor(id="daily"))
        await write(store, B_RUN, 0, AgentComplete(outcome="completed"), taken=(1,), status="ended")
        whole = reader.spoken_to(10)
        places = [(row.recent, row.born) for row in whole]
        assert sorted(row.run_id for row in whole) == sorted((A_RUN, C_RUN))
        assert places == sorted(places, reverse=True)
        assert [*reader.spoken_to(1)] == [*whole[:1]]
        assert [*reader.spoken_to(10, before=places[0])] == [*whole[1:]]
        assert [*reader.spoken_to(10, after=places[1])] == [*whole[:1]]
        assert [*reader.spoken_to(1, after=(-1, -1))] == [*whole[1:]]
        assert [*reader.spoken_to(10, before=places[1])] == []
        live = reader.tree(A_RUN, live=True)
        assert [row.run_id for row in live] == [A_RUN] and len(reader.tree(A_RUN)) == 2


async def check_reader_reads_lanes_from_either_end(make_journal: MakeJournal) -> None:
    """The first and the last events of a run, and nothing of the hub's lane."""
    async with _filled(make_journal) as (_, reader):
        both = [x.event for x in events_in(reader, A_RUN) if x.event.lane != "hub"]
        assert [*reader.lanes(A_RUN, 100)] == both
        assert [*reader.lanes(A_RUN, 2)] == both[:2]
        assert [*reader.lanes(A_RUN, 100, backwards=True)] == both[::-1]
        assert [*reader.lanes(A_RUN, 2, backwards=True)] == both[:-3:-1]
        assert [*reader.lanes("nobody", 2)] == []


async def check_store_is_inspected_and_publishes(make_journal: MakeJournal) -> None:
    """What is published is there for every reader; what is inspected is what a reader sees."""
    async with _filled(make_journal) as (store, reader):
        store.publish({"a/b": "published", "f": "g"})
        await store.flush()
        assert reader.notes() == {"a/b": "published", "d": "e", "f": "g"}
        assert await store.inspect(lambda each: each.notes("f")) == {"f": "g"}
        assert await store.inspect(lambda each: each.row(A_RUN)) == reader.row(A_RUN)


async def check_reader_finds_events(make_journal: MakeJournal) -> None:
    """The last of some types in an own lane, and any item of an in lane."""
    async with _filled(make_journal) as (store, reader):
        for types in ([AgentStatus.type], [AgentComplete.type, AgentStatus.type], ["test:tick"]):
            for run_id in (A_RUN, C_RUN, "nobody"):
                assert reader.latest(run_id, types) == await store.latest(run_id, types)
        items: list[Event] = [x.event for x in events_in(reader, A_RUN) if x.event.lane == "in"]
        assert [reader.item(A_RUN, seq) for seq in (1, 2, 3)] == items
        assert reader.item(A_RUN, 4) is None and reader.item("nobody", 1) is None


async def check_reader_sees_inboxes_keys_and_notes(make_journal: MakeJournal) -> None:
    """What waits where, what was accepted under which key, and what was noted."""
    async with _filled(make_journal) as (_, reader):
        rows = {(row.run_id, row.lane, row.seq): row for row in reader.event_rows()}
        items = [rows[A_RUN, "in", seq] for seq in (1, 2, 3)]
        third = items[2]
        assert [*reader.waiting(A_RUN)] == [WaitingRow(A_RUN, 3, third.position, third.body)]
        assert {(row.run_id, row.seq) for row in reader.waiting()} == {(A_RUN, 3), (B_RUN, 1)}
        assert [*reader.waiting(C_RUN)] == [*reader.waiting("nobody")] == []
        keys = zip(("one", "two"), items[1:], strict=True)
        accepted = [AcceptedRow(A_RUN, "web", key, x.position, x.seq, x.body) for key, x in keys]
        assert [*reader.accepted(A_RUN)] == [*reader.accepted()] == accepted
        assert [*reader.accepted(A_RUN, after=items[1].position)] == accepted[1:]
        assert reader.notes() == {"a/b": "c", "d": "e"}
        assert reader.notes("a/") == {"a/b": "c"}


async def check_reader_reads_contents(make_journal: MakeJournal) -> None:
    """A content is read as it was put; one that never was is ``FileNotFoundError``."""
    async with _filled(make_journal) as (store, reader):
        digest = "ab" * 32
        try:
            reader.content(digest)
        except FileNotFoundError:
            pass
        else:
            raise AssertionError("it reads what was never put")
        if store.blobs is not None:
            await store.blobs.put(A_RUN, digest, b"content")
            assert reader.content(digest) == b"content"
        assert digest in reader.place_of(digest)


async def check_store_at_work_is_sound(make_journal: MakeJournal) -> None:
    """A store that is open says so, and finds nothing wrong with itself."""
    async with _filled(make_journal) as (_, reader):
        assert reader.is_at_work()
        assert [process.is_worker for process in reader.processes()] == [True]
        assert reader.free_trees() == {}
        assert [*reader.faults()] == [*reader.faults(thorough=True)] == []


READER_CHECKS: Final[tuple[Check, ...]] = (
    check_reader_sees_each_event_as_it_is_kept,
    check_reader_sees_what_is_committed_later,
    check_rows_say_what_the_journal_says,
    check_reader_finds_runs,
    check_reader_lists_roots_by_when_they_were_spoken_to,
    check_reader_reads_lanes_from_either_end,
    check_store_is_inspected_and_publishes,
    check_reader_finds_events,
    check_reader_sees_inboxes_keys_and_notes,
    check_reader_reads_contents,
    check_store_at_work_is_sound,
)
"""What every store's reader must pass: each an async function of what makes the store."""
