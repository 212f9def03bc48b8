"""A store that several processes share passes the checks of sharing, and each process's share of it
those of every store."""

import anyio
import pytest
from support.shared_stores import SharedPlace

from hubbub.hub.conformance.declarations import DECLARATION_CHECKS
from hubbub.hub.conformance.journal import CHECKS
from hubbub.hub.conformance.left_notes import LEFT_NOTE_CHECKS
from hubbub.hub.conformance.members import members_of
from hubbub.hub.conformance.placement import PLACEMENT_CHECKS
from hubbub.hub.conformance.removal import REMOVAL_CHECKS, SHARED_REMOVAL_CHECKS
from hubbub.hub.conformance.sharing import SHARING_CHECKS
from hubbub.hub.conformance.steps import A_RUN, commit_of, open_run, stamp
from hubbub.hub.events import AgentStatus, CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.shared.memory import SharedMemory

pytestmark = pytest.mark.anyio

SUITE = (
    SHARING_CHECKS + PLACEMENT_CHECKS + DECLARATION_CHECKS + LEFT_NOTE_CHECKS
    + SHARED_REMOVAL_CHECKS
)  # fmt: skip

AWAY = pytest.mark.parametrize("seconds", [0.0, 0.01], ids=["a turn away", "ten milliseconds away"])


@AWAY
@pytest.mark.parametrize("check", CHECKS + REMOVAL_CHECKS, ids=lambda check: check.__name__)
async def test_one_of_its_processes_conforms(check, seconds):
    await check(SharedPlace(seconds=seconds).journal)


@AWAY
@pytest.mark.parametrize("check", SUITE, ids=lambda check: check.__name__)
async def test_the_shared_store_conforms(check, seconds):
    await check(lambda: SharedPlace(seconds=seconds))


async def _fails(check, make_store):
    try:
        with anyio.fail_after(1_000):
            await check(make_store)
    except (AssertionError, TimeoutError):
        return True
    return False


async def _broken(make_store, suite=SHARING_CHECKS):
    return {check.__name__ for check in suite if await _fails(check, make_store)}


def _place(kind):
    class Place(SharedPlace):
        def __init__(self):
            super().__init__()
            self.memory = kind(self.clock, ttl=self.ttl)

    return Place


async def test_suite_notices_a_store_that_keeps_what_everybody_has_published():
    class Keeping(SharedMemory):
        def publish(self, number, own, offer):
            self.kept.publish(own)

    assert await _broken(lambda: _place(Keeping)(), LEFT_NOTE_CHECKS) >= {
        "check_many_deploys_leave_few_notes", "check_what_somebody_needs_stays",
        "check_notes_of_ended_prompts_go",
    }  # fmt: skip


async def test_suite_notices_a_store_that_forgets_what_others_offer():
    class Forgetting(SharedMemory):
        def publish(self, number, own, offer):
            self.kept.publish(dict.fromkeys(self.kept.reader().notes("agents"), "[]"))
            self.kept.publish(own)

    assert await _broken(lambda: _place(Forgetting)(), LEFT_NOTE_CHECKS) >= {
        "check_what_somebody_needs_stays", "check_who_offers_anything_needs_everything",
        "check_channel_takes_nothing_away", "check_of_several_at_one_moment_all_are_there",
    }  # fmt: skip


async def test_suite_notices_a_store_that_does_not_ask_who_owns_a_tree():
    class Unfenced(SharedMemory):
        def _write(self, lease, commit, epoch, own=()):
            root = self._root_of.get(commit.run_id, "")
            if (tree := self._trees.get(root)) is not None:
                lease = self._leases.get(tree.owner, lease)
                epoch = tree.epoch
            return super()._write(lease, commit, epoch, own)

    assert await _broken(_place(Unfenced)) >= {
        "check_tree_is_its_openers", "check_handed_over_trees_are_others",
    }  # fmt: skip


async def test_suite_notices_leases_that_nothing_renews():
    class Forgetful(SharedMemory):
        def beat(self, number, *offered, **drains):
            owned = super().beat(number, *offered, **drains)
            self._leases[number].expires -= 2 * self.ttl
            return owned

    assert "check_leases_of_the_idle_last" in await _broken(_place(Forgetful))


async def test_suite_notices_leases_that_never_end():
    class Endless(SharedMemory):
        def beat(self, number, *offered, **drains):
            for other in self._leases.values():
                other.expires += self.ttl
            return super().beat(number, *offered, **drains)

    assert await _broken(_place(Endless)) == {
        "check_trees_of_the_dead_are_taken_over", "check_who_is_at_work_is_known",
    }  # fmt: skip


async def test_a_group_whose_answer_is_lost_is_written_once():
    place = SharedPlace(seconds=0.01)
    journal = place.journal()
    await journal.open()
    (link,) = place.links
    commit = Commit(events=(CustomEvent.of("test:once"),))
    journal.submit(commit)
    await anyio.sleep(0.015)  # It is written; the answer is on its way.
    assert place.memory.tip == 1
    link.cut()
    await anyio.sleep(1)
    link.mend()
    await journal.flush()
    assert (commit.error, place.memory.tip, journal.tip) == ("", 1, 1)
    await journal.aclose()


async def test_a_process_that_cannot_reach_its_store_loses_its_trees_before_others_have_them():
    place = SharedPlace()
    async with members_of(place) as (one, other):
        await open_run(one.journal, A_RUN)
        began = anyio.current_time()
        place.links[0].cut()
        stale = Commit(A_RUN, [stamp(A_RUN, 1, AgentStatus())])
        one.submit(stale)
        while one.share.owns(A_RUN):
            assert not other.trees
            await anyio.sleep(0.01)
        assert anyio.current_time() - began <= place.ttl + 0.02
        await other.until(lambda: other.trees == {A_RUN})
        assert anyio.current_time() - began <= place.ttl + 1
        place.links[0].mend()
        await one.journal.flush()
        assert stale.error == "conflict"
        written = Commit(A_RUN, [stamp(A_RUN, 1, AgentStatus())])
        assert not (await commit_of(other.journal, written)).error


async def test_what_was_sent_while_the_store_was_away_is_accepted_under_the_next_lease():
    place = SharedPlace()
    async with members_of(place) as (one, other):
        place.links[0].cut()
        one.emit(1)
        await anyio.sleep(3 * place.ttl)
        assert place.memory.tip == 0
        place.links[0].mend()
        await one.journal.flush()
        await other.journal.flush()
        assert one.told == other.told
        assert place.memory.tip == 1
