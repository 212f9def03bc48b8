"""Both stores that ship are run through the checks that ship; and what memory alone does."""

from functools import partial

import pytest

from hubbub import CustomEvent, Hub
from hubbub.hub.conformance.journal import CHECKS
from hubbub.hub.conformance.removal import REMOVAL_CHECKS
from hubbub.hub.events import AgentComplete, SessionOpen
from hubbub.hub.store.cursor import cursor_of, place
from hubbub.hub.store.journal import Commit, Delivery, NewRun, Selection
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.memory_reader import MemoryReader
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "make_journal",
    [
        MemoryJournal,
        lambda: LateJournal(MemoryJournal()),
        lambda: LateJournal(MemoryJournal(), turns=3),
    ],
    ids=["memory", "late", "later"],
)
async def test_store_conforms(check, make_journal):
    await check(make_journal)


@pytest.mark.spec("H-06", "H-07", "H-09", "P-06", "P-17")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sqlite_conforms(check, tmp_path, ports):
    await check(lambda: sqlite_store(tmp_path / "store", ports=ports))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_sqlite_conforms_with_real_threads(check, tmp_path):
    await check(lambda: sqlite_store(tmp_path / "store.db"))


@pytest.mark.parametrize("check", REMOVAL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_store_from_which_trees_go_conforms(check, kind, tmp_path, ports):
    is_memory = kind == "memory"
    await check(MemoryJournal if is_memory else lambda: sqlite_store(tmp_path / "s", ports=ports))


async def test_suite_notices_a_store_that_has_trees_go_in_part():
    class Forgetful(MemoryJournal):
        def submit(self, commit):
            commit.notes_expect = None
            commit.gone = commit.gone[:1]
            super().submit(commit)

    broken = {check.__name__ for check in REMOVAL_CHECKS if await _fails(check, Forgetful)}
    assert broken == {"check_a_note_that_is_not_as_expected_keeps_what_was_to_go"}


async def test_suite_notices_a_store_that_forgets_to_deduplicate():
    class Forgetful(MemoryJournal):
        def submit(self, commit):
            for delivery in commit.deliveries:
                delivery.key = ""
            super().submit(commit)

    broken = {check.__name__ for check in CHECKS if await _fails(check, Forgetful)}
    assert "check_deduplication" in broken
    assert "check_own_lane_is_dense_and_in_order" not in broken


async def test_suite_notices_a_store_for_which_a_descriptor_is_no_identity():
    class Forgetful(MemoryJournal):
        def submit(self, commit):
            self._rows._by_descriptor.clear()
            super().submit(commit)

    broken = {check.__name__ for check in CHECKS if await _fails(check, Forgetful)}
    assert broken == {
        "check_descriptor_is_an_identity", "check_key_spells_a_user",
        "check_everybody_at_once_opens_one", "check_stored_key_keeps_its_meaning",
        "check_label_of_a_schedule_is_no_key",
    }  # fmt: skip


async def test_suite_notices_a_store_without_fences():
    class Unfenced(MemoryJournal):
        def submit(self, commit):
            if (row := self._rows.find(commit.run_id)) is not None:
                commit.expect = row.seq
            super().submit(commit)

    assert await _fails(
        next(c for c in CHECKS if c.__name__ == "check_conflicting_commit_changes_nothing"),
        Unfenced,
    )


async def test_suite_notices_a_reader_that_does_not_see_what_waits():
    class Blind(MemoryReader):
        def waiting(self, run_id=None):
            return iter(())

        def event_rows(self, run_ids=None, *, after=0, until=None, backwards=False):
            return super().event_rows(
                run_ids, until=until, backwards=backwards
            )  # Always from the beginning.

    class OfTheBlind(MemoryJournal):
        def reader(self):
            reader = super().reader()
            reader.__class__ = Blind
            return reader

    broken = {check.__name__ for check in CHECKS if await _fails(check, OfTheBlind)}
    assert broken == {
        "check_reader_sees_inboxes_keys_and_notes", "check_reader_sees_what_is_committed_later",
        "check_reader_sees_each_event_as_it_is_kept",
    }  # fmt: skip


async def _fails(check, make_journal):
    try:
        await check(make_journal)
    except AssertionError:
        return True
    return False


def open_a_run(journal, run_id, root="", parent=None):
    new = NewRun(run_id=run_id, root_run_id=root or run_id, parent_run_id=parent, agent="a")
    journal.submit(Commit(deliveries=(Delivery(SessionOpen(), run_id, new=new),)))


def end_a_run(journal, run_id):
    if run_id not in journal._rows.by_id:
        open_a_run(journal, run_id)
    event = AgentComplete(run_id=run_id, root_run_id=run_id, lane="own", seq=1)
    journal.submit(Commit(run_id, (event,), status="ended"))
    return event


async def test_memory_drops_the_oldest_ended_runs_whole():
    journal = MemoryJournal(keep=2)
    events = [end_a_run(journal, f"run-{n}") for n in range(5)]
    assert await journal.info("run-2") is None
    assert await journal.info("run-3") is not None
    kept, _ = await journal.read(Selection())
    assert {event.run_id for event in kept} == {"run-3", "run-4"}
    assert [event.seq for event in kept] == [1, 1, 1, 1]
    assert await place(journal, cursor_of(journal.name, events[2])) is None
    assert await place(journal, cursor_of(journal.name, events[3])) == 8


async def test_memory_frees_what_it_has_dropped():
    journal = MemoryJournal(keep=1)
    for number in range(5000):
        end_a_run(journal, f"run-{number}")
    assert sum(chunk is not None for chunk in journal._chunks) <= 2


async def test_memory_keeps_what_has_ended_in_a_tree_until_all_of_it_has():
    journal = MemoryJournal(keep=1)
    open_a_run(journal, "root")
    for run_id in ("a", "b", "c"):
        open_a_run(journal, run_id, "root", "root")
    open_a_run(journal, "below", "root", "a")
    for number, run_id in enumerate(("b", "a", "root", "below")):
        end_a_run(journal, run_id)
        end_a_run(journal, f"other-{number}")
        infos = [await journal.info(x) for x in ("root", *"abc", "below")]
        assert [x.status for x in infos].count("ended") == number + 1
    assert await journal.info("other-2") is None
    end_a_run(journal, "c")
    assert [x for x in ("root", *"abc", "below") if await journal.info(x)] == ["c"]
    for number in range(2000):
        open_a_run(journal, f"root-{number}")
        open_a_run(journal, f"child-{number}", f"root-{number}", f"root-{number}")
        end_a_run(journal, f"{('root', 'child')[number % 2]}-{number}")
        end_a_run(journal, f"{('child', 'root')[number % 2]}-{number}")
    assert len(journal._rows.by_id) == 1
    assert sum(chunk is not None for chunk in journal._chunks) <= 2
    assert not (journal._rows.living or journal._rows._held)


async def test_memory_keeps_the_last_events_of_the_hub_lane():
    journal = MemoryJournal(keep_hub_events=3)
    commits = [Commit(events=(CustomEvent.of("test:tick", n=n),)) for n in range(10)]
    for commit in commits:
        journal.submit(commit)
    kept, reached = await journal.read(Selection())
    assert [event.data["n"] for event in kept] == [7, 8, 9]
    assert reached == journal.tip == 10
    assert await place(journal, cursor_of(journal.name, commits[0].written[0])) is None
    assert await place(journal, cursor_of(journal.name, commits[8].written[0])) == 9


async def test_cursor_of_one_memory_store_is_foreign_to_another():
    cursors = []
    for make in (partial(Hub, journal=MemoryJournal()), Hub):
        async with make() as hub:
            await hub.publish(CustomEvent.of("test:tick"))
            (event,) = await hub.read()
            stream = hub.subscribe("*")
            cursors.append((hub.journal, hub.cursor(event), stream.cursor))
            stream.close()
    (one, *of_one), (two, *of_two) = cursors
    for cursor in of_one:
        assert await place(one, cursor) == 1
        assert await place(two, cursor) is None
    for cursor in of_two:
        assert await place(one, cursor) is None
