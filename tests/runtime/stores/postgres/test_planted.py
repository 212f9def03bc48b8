"""Bugs that a store of several processes could have, planted one at a time: something finds each,
the suite of shared stores or a scene here.

no fence                 a lease that is over is written under         here
no owner check           a tree that another one owns is written       the suite of shared stores
epoch not checked        ... or that was lost and claimed again        here
notifications trusted    ... and nobody looks by himself               here
head not locked          two groups at a time                          here
no reaping               of the dead nothing is taken over             the suite
own events first         ... and those of others, which came before    here
outcome not asked        a group is written again                      here, and at every moment
outcome asked too early  the group before is taken for it              the suite
leases over at once      after a restart of the server                 here
"""

from collections.abc import Callable
from threading import Event, Lock
from typing import Any, Final

import anyio
import pytest
from support.postgres import Server
from support.postgres_faults import Moment, faulty_connection

from hubbub.hub.conformance import A_RUN, B_RUN, EVERYTHING, commit_of, identity, open_run, write
from hubbub.hub.conformance.members import members_of
from hubbub.hub.conformance.sharing import SHARING_CHECKS, SharingCheck
from hubbub.hub.events import AgentStatus, CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.postgres import hearing, lease, tail, trees, writer
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

TTL: Final = 1.5

Plant = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[["Schema"], Any]


class Schema:
    """A new store, with the journals of its processes."""

    ttl = TTL

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = server.new_schema()

    def journal(self, *, is_worker: bool = True) -> PostgresStore:
        return PostgresStore(self.server.dsn(self.schema), is_worker=is_worker, ttl=self.ttl)

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        """Ask the database, or change it under those at work on it."""
        return self.server.query(sql.format(self.schema))


# ── bugs ─────────────────────────────────────────────────────────────────────────────────────────


def no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease, "_RENEW", without(lease._RENEW, " AND live"))


def no_owner_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trees.GroupTrees, "is_refused", lambda *_: False)


def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    def is_refused(self: trees.GroupTrees, row: Any, worker: int, epoch: int) -> bool:
        tree = self._trees.get(row.root)
        return tree is not None and tree.owner != worker

    patch.setattr(trees.GroupTrees, "is_refused", is_refused)


def lost_hints(patch: pytest.MonkeyPatch) -> None:
    """Not a bug: notifications may be lost."""
    patch.setattr(tail.Tail, "hint", lambda *_, **__: None)


def no_poll(patch: pytest.MonkeyPatch) -> None:
    lost_hints(patch)
    hear = hearing.Hearing.hear

    async def hear_if_asked(self: hearing.Hearing, until: int | None = None) -> None:
        if until is not None:
            await hear(self, until)

    patch.setattr(hearing.Hearing, "hear", hear_if_asked)


def own_events_first(patch: pytest.MonkeyPatch) -> None:
    """Others' are told only to those who ask for them."""
    hear = hearing.Hearing.hear

    async def hear_until(self: hearing.Hearing, position: int, told: Any) -> None:
        while self._host.tip < position:
            async with self.telling:
                await hear(self, position)
            if self._host.tip < position and not await told():
                return

    async def hear_nothing(self: hearing.Hearing, until: int | None = None) -> None:
        pass

    patch.setattr(hearing.Hearing, "hear", hear_nothing)
    patch.setattr(hearing.Hearing, "hear_until", hear_until)


def head_not_locked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "_LOCK_HEAD", without(writer._LOCK_HEAD, " FOR UPDATE"))


def no_reaping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tail.Tail, "reap", lambda _: False)


def outcome_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease.WorkerLease, "committed", lambda *_: -1)


def outcome_asked_too_early(patch: pytest.MonkeyPatch) -> None:
    write = writer.PostgresWriter.write

    def ask_and_write(self: writer.PostgresWriter, batch: Any) -> writer.Group:
        lease = self._lease
        if lease.group and lease.committed(lease.worker) == lease.group:
            return writer.Group(self.tip, self.depths, {})
        return write(self, batch)

    patch.setattr(writer.PostgresWriter, "write", ask_and_write)


def leases_over_at_once(patch: pytest.MonkeyPatch) -> None:
    grace = tail._OVER[tail._OVER.index("AND clock_timestamp() >") :]
    for name in ("_LOOK", "_REAP", "_END_BACKENDS"):
        patch.setattr(tail, name, without(getattr(tail, name), grace))


def without(sql: str, part: str) -> str:
    assert part in sql
    # The numbers of the parameters stay.
    return sql.replace(part, " AND ?2::float8 IS NOT NULL" if "?2" in part else "")


# ── what finds them ──────────────────────────────────────────────────────────────────────────────


async def a_lease_that_is_over_writes_no_lane(store: Schema) -> None:
    async with members_of(store, 1) as (member,):
        await open_run(member.journal, A_RUN)
        store.ask("UPDATE {}.worker SET live = false")
        late = await write(member.journal, A_RUN, 0, AgentStatus(status="late"))
        assert late.error == "conflict"


async def a_tree_that_was_lost_and_claimed_again_is_not_written_as_before(store: Schema) -> None:
    async with members_of(store, 1) as (member,):
        await open_run(member.journal, A_RUN)
        store.ask("UPDATE {}.tree SET epoch = epoch + 1")
        late = await write(member.journal, A_RUN, 0, AgentStatus(status="late"))
        assert late.error == "conflict"


async def what_is_notified_to_nobody_is_heard(store: Schema) -> None:
    async with members_of(store, 2) as (first, second):
        first.emit(1)
        await first.journal.flush()
        with anyio.fail_after(3):
            await second.until(lambda: len(second.told) == 1)


async def own_events_are_told_after_those_before(store: Schema) -> None:
    async with members_of(store, 2) as (first, second):
        second.emit(1)
        await second.journal.flush()
        first.emit(2)
        await first.journal.flush()
        with anyio.fail_after(3):
            await first.until(lambda: len(first.told) == 2)
        events, _ = await first.journal.read(EVERYTHING)
        assert first.told == [identity(event) for event in events]


async def a_group_that_was_committed_and_unheard_is_written_once(store: Schema) -> None:
    """The connection is lost when the group is in the database."""
    async with members_of(store, 1) as (member,):
        await open_run(member.journal, A_RUN)
        journal = member.journal
        assert isinstance(journal, PostgresStore)
        settled = journal._writer._settled
        lost = []

        def lose(group: writer.Group) -> writer.Group:
            if not lost:
                lost.append(group)
                journal._lease.db.close()
                raise tail.psycopg.OperationalError("injected: nobody has heard the answer")
            return settled(group)

        journal._writer._settled = lose  # type: ignore[method-assign]
        told = Commit(events=(CustomEvent.of("test:once"),))
        assert not (await commit_of(journal, told)).error and lost
        select = "SELECT count(*) FROM {}.event WHERE type = 'test:once'"
        assert store.ask(select) == [(1,)]


async def no_lease_is_over_right_after_a_restart(store: Schema) -> None:
    """Whoever is back first takes nothing from those who are on their way."""
    async with members_of(store, 2) as (first, second):
        await open_run(first.journal, A_RUN)
        await open_run(second.journal, B_RUN)
        store.server.restart()
        journal = first.journal
        assert isinstance(journal, PostgresStore)
        for _ in range(10):  # The second one renews its lease by itself, maybe in between.
            store.ask("UPDATE {}.worker SET expires = clock_timestamp() - interval '1 hour'")
            await journal._hearing._ask(journal._tail.reap)
            assert store.ask("SELECT count(*) FROM {}.worker WHERE live") == [(2,)]


async def groups_of_all_come_one_by_one(store: Schema) -> None:
    """Each that has begun waits for a moment for another one to begin, too."""
    inside: set[int] = set()
    changing, are_two = Lock(), Event()

    def happen(moment: Moment, db: Any) -> None:
        if moment == "between":
            with changing:
                inside.add(db.pid)
                if len(inside) > 1:
                    are_two.set()
            are_two.wait(0.3)
        elif moment == "commit":
            inside.discard(db.pid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "PostgresConnection", faulty_connection(happen))
        async with members_of(store, 2) as members:
            for member in members:
                member.emit(1)
            for member in members:
                await member.journal.flush()
    assert not are_two.is_set()


def of_the_suite(name: str) -> Scene:
    (check,) = [each for each in SHARING_CHECKS if each.__name__ == name]
    found: SharingCheck = check

    async def scene(store: Schema) -> None:
        await found(lambda: store)

    return scene


PLANTED: Final[dict[Plant, Scene]] = {
    no_fence: a_lease_that_is_over_writes_no_lane,
    no_owner_check: of_the_suite("check_handed_over_trees_are_others"),
    no_epoch_check: a_tree_that_was_lost_and_claimed_again_is_not_written_as_before,
    no_poll: what_is_notified_to_nobody_is_heard,
    own_events_first: own_events_are_told_after_those_before,
    head_not_locked: groups_of_all_come_one_by_one,
    no_reaping: of_the_suite("check_trees_of_the_dead_are_taken_over"),
    outcome_not_asked: a_group_that_was_committed_and_unheard_is_written_once,
    outcome_asked_too_early: of_the_suite("check_notes_are_everybodys"),
    leases_over_at_once: no_lease_is_over_right_after_a_restart,
}


def run(scene: Scene, server: Server) -> None:
    async def main() -> None:
        with anyio.fail_after(8):
            await scene(Schema(server))

    anyio.run(main)


@pytest.mark.spec("X-02")
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    server: Server, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        run(PLANTED[plant], server)


@pytest.mark.parametrize(
    "scene", [scene for scene in PLANTED.values() if scene.__name__ != "scene"],
    ids=lambda scene: scene.__name__,
)  # fmt: skip
def test_what_finds_it_finds_nothing_where_nothing_is_planted(
    server: Server, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_hints(monkeypatch)
    run(scene, server)
