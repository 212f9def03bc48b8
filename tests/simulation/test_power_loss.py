"""Power that fails in the middle of a write: all of a batch is there or nothing, and bugs show."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import anyio
import msgspec
import pytest
from hypothesis import find, settings
from msgspec import structs
from simulation.drawing import drawn, lived
from support.profiles import portion
from support.simulations import desk, one_tool, two_users

from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Delivery, NewRun
from hubbub.hub.store.ledger import Ledger
from hubbub.runtime.simulation import (
    ChannelFault,
    Crash,
    History,
    Open,
    Restart,
    Say,
    Setup,
    SimulationFailed,
    World,
    simulate,
)
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.injection.power_loss import HEADER, Tear, TornStore, torn_log
from hubbub.runtime.simulation.story import faults as fault_classes
from hubbub.runtime.simulation.story.faults import AnyFault
from hubbub.runtime.simulation.strategies.worlds import MAX_SECTORS, faults
from hubbub.runtime.stores.sql.writer import Applied
from hubbub.runtime.stores.sqlite.writer import SqliteWriter

SOME = range(MAX_SECTORS + 1)


def torn(commit: int, sectors: int = 0, life: int = 0) -> Crash:
    return Crash(commit=commit, when="torn", sectors=sectors, life=life)


# ── the fault ────────────────────────────────────────────────────────────────────────────────


def test_a_torn_crash_is_a_value_whose_repr_is_its_code() -> None:
    assert repr(torn(3)) == "Crash(commit=3, when='torn')"
    assert repr(torn(3, 7)) == "Crash(commit=3, when='torn', sectors=7)"
    assert eval(repr(torn(3, 7, 1)), vars(fault_classes).copy()) == torn(3, 7, 1)
    text = msgspec.json.encode([torn(3, 7)])
    assert msgspec.json.decode(text, type=list[AnyFault]) == [torn(3, 7)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_sectors_of_a_commit_that_is_not_torn_are_refused(when: Any) -> None:
    with pytest.raises(BadValue, match=r"Crash\.sectors"):
        Crash(commit=1, when=when, sectors=1)
    with pytest.raises(BadValue, match=r"Crash\.sectors"):
        torn(1, -1)


def test_torn_crashes_are_drawn_and_shrink_to_the_first_lost_write() -> None:
    crashes = faults(one_tool(), Crash)
    found = find(
        crashes,
        lambda drawn: any(x.when == "torn" for x in drawn),  # type: ignore[union-attr]
        settings=settings(database=None, derandomize=True, max_examples=500),
    )
    assert found == [torn(1)]


# ── a log ────────────────────────────────────────────────────────────────────────────────────

PAGE = 512 + 24
HEAD = bytes(8) + (512).to_bytes(4, "big") + bytes(20)


def log(*pages: str, salt: int = 1) -> bytes:
    """A log of SQLite's, as far as its form matters here."""
    header = bytes([salt]) + HEAD[1:]
    return header + b"".join(bytes([salt]) * 24 + page.encode() * 512 for page in pages)


def test_no_sector_survives_or_all_or_some() -> None:
    before, after = log("a", "b"), log("a", "b", "c", "d", "e")
    none, every = torn_log(before, after, 0), torn_log(before, after, 1)
    assert (none.log, none.kept, none.is_whole) == (before, 0, False)
    assert (every.log, every.kept, every.is_whole) == (after, every.written, True)
    some = [torn_log(before, after, number) for number in range(2, 200)]
    assert some == [torn_log(before, after, number) for number in range(2, 200)]
    assert {tear.kept for tear in some} == set(range(every.written + 1))
    assert {len(tear.log) for tear in some} > {len(before), len(after)}
    assert {tear.is_whole for tear in some} == {True, False}
    assert all(tear.log.startswith(before) for tear in some)


def test_what_was_flushed_stays_even_within_a_torn_sector() -> None:
    """An older log that is written over: its header is flushed first, its end is not touched."""
    before, after = log(*"abcdef"), log(*"AB", salt=2) + log(*"abcdef")[32 + 2 * PAGE :]
    for number in range(2, 300):
        tear = torn_log(before, after, number)
        assert tear.log[:32] == after[:32]
        assert tear.log[32 + 2 * PAGE :] == before[32 + 2 * PAGE :]
    assert torn_log(before, after, 0).log == before


def test_a_batch_that_wrote_nothing_is_whole() -> None:
    tear = torn_log(log("a"), log("a"), 0)
    assert (tear.written, tear.kept, tear.is_whole) == (0, 0, True)
    assert torn_log(b"", b"", 5).is_whole


# ── a store ──────────────────────────────────────────────────────────────────────────────────


def opening(name: str) -> Commit:
    new = NewRun(run_id=name, root_run_id=name, parent_run_id=None, agent="a")
    return Commit(deliveries=(Delivery(e.SessionOpen(name="x" * 3000), name, new=new),))


@pytest.mark.anyio
@pytest.mark.parametrize("sectors", SOME)
async def test_a_batch_that_was_torn_is_there_as_a_whole_or_not_at_all(
    sectors: int, ports: Ports, tmp_path: Path
) -> None:
    """Values of variables, too.  The second time, the log is written over from its beginning."""
    there = {"first"}
    for name in ("second", "third"):
        losses: list[int] = []
        store = TornStore(tmp_path, ports=ports)
        await store.open()
        if name == "second":
            store.submit(opening("first"))
            store.secrets.put("first", "1")
            await store.flush()
        heard: list[Commit] = []
        for each in ("with", "and"):
            commit = opening(f"{name} {each}")
            commit.done = heard.append
            store.submit(commit)
        store.secrets.put(name, "2")
        store.lose_power(commit, sectors, losses.append)
        await store.aclose()
        assert store.tear is not None
        assert losses == [2 if store.tear.is_whole else 0]
        if store.tear.is_whole:
            there |= {f"{name} with", f"{name} and", name}
        store = TornStore(tmp_path, ports=ports)
        await store.open()
        runs = {run.run_id for run in await store.runs()}
        assert runs | set(store.secrets.keys("")) == there
        await store.aclose()


@pytest.mark.anyio
async def test_without_a_doomed_commit_nothing_is_torn(ports: Ports, tmp_path: Path) -> None:
    store = TornStore(tmp_path, ports=ports)
    await store.open()
    store.lose_power(opening("never"), 0, lambda kept: pytest.fail("the power is there"))
    store.submit(opening("first"))
    await store.aclose()
    assert store.tear is None
    await store.open()
    assert [run.run_id for run in await store.runs()] == ["first"]
    await store.aclose()


# ── worlds ───────────────────────────────────────────────────────────────────────────────────


def heard_in(history: History, life: int) -> list[e.Event]:
    return [x.event for x in history.heard if x.life == life and x.event.lane]


def test_after_a_torn_commit_the_store_holds_what_was_heard_and_a_whole_batch_or_none() -> None:
    commits = simulate(two_users, desk(), store="sqlite").lives[0].commits
    assert commits > 30
    kept = lost = 0
    tried = portion(range(1, commits + 1))
    for commit in tried:
        for sectors in (0, 1, 2 + commit % MAX_SECTORS):
            faults = [torn(commit, sectors)]
            history = simulate(two_users, desk(), faults=faults, store="sqlite")
            first, heard = history.lives[0], heard_in(history, 0)
            assert first.end == "crashed", commit
            assert heard == list(history.events[: len(heard)])
            ((sort, what),) = history.injected
            assert (sort, what.startswith("0 of ")) == ("power", sectors == 0)
            is_kept = first.commits >= commit
            assert is_kept == (first.tip > len(heard))
            unheard = len(history.events) - len(heard) - len(heard_in(history, 1))
            assert unheard == first.tip - len(heard)
            kept, lost = kept + is_kept, lost + (not is_kept)
    assert min(kept, lost) >= len(tried)
    assert min(kept, lost) > commits or len(tried) < commits, (
        "some batches that were torn are whole"
    )


def test_commits_of_one_batch_share_its_fate() -> None:
    async def scenario(world: World) -> None:
        receipts = [world.hub.open("desk", f"number {n}") for n in range(5)]
        await world.wait(1)
        assert [x.status for x in receipts] == ["pending"] * 5

    for sectors, kept in ((0, 0), (1, 5)):
        history = simulate(scenario, one_tool(), faults=[torn(3, sectors)], store="sqlite")
        first = history.lives[0]
        assert heard_in(history, 0) == []
        assert len(history.runs) == kept
        # Runs begin at once, so that their first words may be in that batch, too.
        assert first.tip >= first.commits >= kept
        assert bool(first.tip) == bool(kept)


def test_the_power_may_fail_again_while_a_process_recovers() -> None:
    lives = []
    for commit in portion(range(2, 40, 4)):
        for sectors in SOME[::3]:
            again = [torn(1, sectors + life, life) for life in (1, 2, 3)]
            crashes = [torn(commit, sectors), *again]
            history = simulate(two_users, desk(), seed=commit, faults=crashes, store="sqlite")
            for x in history.sent:
                if x.verb == "say" and x.status == "accepted":
                    assert history.heard_by(x.run_id).count(x.text) == 1
            ends = [x.end for x in history.lives]
            assert ends == ["crashed"] * (len(ends) - 1) + ["left"]
            lives.append(len(ends))
    assert lives.count(5) > len(lives) / 2


@pytest.mark.parametrize("store", ["memory", "late"])
def test_without_a_disk_what_is_torn_is_lost(store: Any) -> None:
    for commit in (1, 7, 20):
        lost = simulate(two_users, desk(), faults=[torn(commit, 1)], store=store)
        before = [Crash(commit=commit, when="before")]
        assert lost.trace() == simulate(two_users, desk(), faults=before, store=store).trace()


def test_the_power_that_fails_while_a_process_is_left_or_was_spared() -> None:
    steps = [Open(agent="desk", input="the red one"), Restart(), Say(text="the blue one")]
    commits = simulate(steps, one_tool(), store="sqlite").lives[0].commits
    left = simulate(steps, one_tool(), faults=[torn(commits)], store="sqlite")
    assert left.lives[0].end == "crashed"

    async def scenario(world: World) -> None:
        world.end_faults()
        await world.open("desk", "the red one")

    spared = simulate(scenario, one_tool(), faults=[torn(1)], store="sqlite")
    assert [life.end for life in spared.lives] == ["left"]


@pytest.mark.anyio
async def test_who_waits_for_a_flush_of_what_was_torn_waits_for_ever(
    ports: Ports, tmp_path: Path
) -> None:
    store = TornStore(tmp_path, ports=ports)
    heard: list[Commit] = []
    deaths: list[int] = []
    journal = DyingJournal(store, lambda: deaths.append(journal.commits), die_at=2, when="torn")
    await journal.open()
    for name in ("first", "second", "third"):
        commit = opening(name)
        commit.done = heard.append
        journal.submit(commit)
    with anyio.move_on_after(60) as scope:
        await journal.flush()
    assert (scope.cancelled_caught, heard, deaths, journal.tip) == (True, [], [0], 0)
    await journal.aclose()


_TOLD = """
import sys
sys.path.insert(0, {tests!r})
from support.simulations import desk, two_users
from hubbub.runtime.simulation import Crash, simulate
for sectors in range(6):
    faults = [
        Crash(commit=9, when="torn", sectors=sectors),
        Crash(commit=2, when="torn", sectors=sectors + 1, life=1),
    ]
    history = simulate(two_users, desk(), seed=5, faults=faults, store="sqlite")
    print(*history.trace(), *history.injected, sep="\\n")
"""


def test_the_same_arguments_come_to_the_same_trace_in_every_process() -> None:
    tests = str(Path(__file__).parents[1])
    told = [
        subprocess.run(
            [sys.executable, "-c", _TOLD.format(tests=tests)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]  # fmt: skip
    assert told[0] == told[1]
    assert told[0].count("sectors") == 12


def test_nothing_is_wrong_in_our_own_worlds_when_the_power_fails() -> None:
    for seed in portion(range(20)):
        world, random = drawn(seed), Random(seed)
        others = [x for x in world.faults if not isinstance(x, Crash | ChannelFault)]
        crashes = [
            torn(random.choice((random.randint(1, 3), random.randint(1, 40))),
                 random.randint(0, 40), life)
            for life in range(random.randint(1, 8))
        ]  # fmt: skip
        lived(structs.replace(world, store="sqlite", faults=(*others, *crashes)))


# ── bugs ─────────────────────────────────────────────────────────────────────────────────────


class Connection:
    """A connection of sqlite3's, and what is done ahead of a statement."""

    def __init__(self, db: Any, ahead_of_commit: Any) -> None:
        self._db = db
        self._ahead_of_commit = ahead_of_commit

    def execute(self, sql: str, *values: Any) -> Any:
        if sql == "COMMIT":
            self._ahead_of_commit()
        return self._db.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@contextmanager
def told_before_it_is_committed() -> Iterator[None]:
    """Whoever waits for a commit is told when it is in the transaction."""
    apply = SqliteWriter.apply

    def apply_and_tell(writer: SqliteWriter, batch: Sequence[Any]) -> Applied:
        def tell() -> None:
            for commit in batch:
                if isinstance(commit, Commit) and commit.done is not None:
                    done, commit.done = commit.done, None
                    done(commit)

        db: Any = writer._db
        with patch.object(writer, "_db", Connection(db, tell)):
            return apply(writer, batch)

    with patch.object(SqliteWriter, "apply", apply_and_tell):
        yield


@contextmanager
def two_transactions() -> Iterator[None]:
    """What a run writes is committed, and then what it sends with it."""
    deliver = Ledger._deliver

    def commit_and_deliver(ledger: Ledger[Any], commit: Commit, delivery: Delivery) -> None:
        if commit.run_id and delivery is commit.deliveries[0]:
            rows: Any = ledger._rows
            rows._keep()
            rows._db.execute("COMMIT")
            rows._db.execute("BEGIN IMMEDIATE")
        deliver(ledger, commit, delivery)

    with patch.object(Ledger, "_deliver", commit_and_deliver):
        yield


COMMITS = range(1, 30)


def found_by(
    setup: Setup, sectors: Sequence[int], when: Any = "torn", commits: Sequence[int] = COMMITS
) -> dict[str, Crash]:
    """The invariants that a crash of some conversation breaks, each with the first crash."""
    steps = [
        Open(agent="desk", input="the red one", user="ann"),
        Open(agent="desk", input="the blue one", user="ben"),
        Say(to=0, text="the green one", user="ann"),
    ]
    found: dict[str, Crash] = {}
    for number in sectors:
        for commit in commits:
            crash = Crash(commit=commit, when=when, sectors=number)
            try:
                simulate(steps, setup, faults=[crash], store="sqlite")
            except SimulationFailed as failed:
                found.setdefault(failed.broken, crash)
    return found


def test_a_store_that_tells_before_it_has_committed_is_found() -> None:
    some = portion(COMMITS)
    with told_before_it_is_committed():
        found = found_by(desk(), [0])
        assert found["replay_equals_live"] == torn(1)
        assert "no_message_lost" in found
        # A process that is killed takes nothing from the disk with it: this needs the power.
        assert not found_by(desk(), [0], "before", some) | found_by(desk(), [0], "after", some)
    assert not found_by(desk(), [0], commits=some)


def test_a_store_that_writes_one_commit_in_two_transactions_is_found() -> None:
    some = portion(COMMITS)
    with two_transactions():
        assert set(found_by(desk(), [3, 8])) == {"one_completion_per_invocation"}
        assert not found_by(desk(), [0], "before", some) | found_by(desk(), [0], "after", some)
    assert not found_by(desk(), [3, 8], commits=some)


def test_a_log_whose_header_is_not_flushed_first_is_found() -> None:
    """The tester tested: the order in which SQLite flushes is needed, and is what is simulated."""

    def without_header(before: bytes, after: bytes, sectors: int) -> Tear:
        tear = torn_log(before, after, sectors)
        return structs.replace(tear, log=before[:HEADER] + tear.log[HEADER:]) if before else tear

    steps = [Open(agent="desk", input="the red one"), Say(text="the blue one")]
    found: list[str] = []
    with patch("hubbub.runtime.simulation.injection.power_loss.torn_log", without_header):
        for commit in (7, 10, 13):
            for sectors in SOME:
                crashes = [torn(commit, 1), torn(1, sectors, life=1)]
                try:
                    simulate(steps, desk(), faults=crashes, store="sqlite")
                except SimulationFailed as failed:
                    found += failed.problems
    assert found
    assert all("SQLITE_CORRUPT" in problem for problem in found)
