"""The project's own world: nothing is wrong in it, and what is planted in it is found.

More of it: ``uv run python -m tests.simulation.run --seconds 600`` and ``--planted``.
"""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from simulation.drawing import drawn, lived
from simulation.planted import PLANTED, WORLDS
from simulation.planted_shared import SHARED, WORKERS
from simulation.run import find, live
from simulation.shared import shared
from support.profiles import examples

from hubbub.hub.events import SessionPromptEnd, SessionPush

SUITE = max(examples(60), 20)
"""Worlds that the suite lives; the first ones, so that a failure has the same seed everywhere."""
SEEDS = (0, 11, 24, 41)
"""Of worlds from which trees go, and old turns, beside runs at work and at rest, and in which runs
are forked."""
SOON = {"heard_before_written", "message_out_of_order", "terminal_twice"}
"""Bugs that show themselves in the first worlds.  The others are long searches."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What goes wrong on purpose is logged, too."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_nothing_is_wrong_in_the_first_worlds() -> None:
    found = live(0, SUITE, 0).found
    assert not found, "\n".join(f"seed {x.seed}: {x.problem}\n    {x.command}" for x in found)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=() if bug in SOON else pytest.mark.long) for bug in PLANTED],
)
def test_a_planted_bug_is_found_in_as_many_worlds_as_are_stated(bug: str) -> None:
    found = find(bug, PLANTED[bug], WORLDS[bug]).found
    assert found is not None, f"{bug} was not found in {WORLDS[bug]} worlds"
    lived(drawn(found.seed))  # Without the bug nothing is wrong there.


@pytest.mark.long
def test_nothing_is_wrong_in_worlds_of_several_workers() -> None:
    found = live(0, max(examples(60), 6), 0, workers=WORKERS).found
    assert not found, "\n".join(f"seed {x.seed}: {x.problem}\n    {x.command}" for x in found)


@pytest.mark.long
@pytest.mark.parametrize("bug", SHARED)
def test_a_bug_of_several_workers_is_found_in_as_many_worlds_as_are_stated(bug: str) -> None:
    plant, most = SHARED[bug]
    found = find(bug, plant, most, workers=WORKERS).found
    assert found is not None, f"{bug} was not found in {most} worlds"


def test_trees_go_beside_several_workers() -> None:
    history = lived(shared(drawn(9), WORKERS))
    assert history.gone and {life.worker for life in history.lives} == {None, *range(WORKERS)}


def test_a_message_may_begin_the_process_after_a_pruning() -> None:
    lived(drawn(320))


def test_a_seed_draws_and_lives_the_same_world_each_time() -> None:
    for seed in (*SEEDS, 1, 2, 3):
        assert drawn(seed) == drawn(seed)
        assert lived(drawn(seed)).trace() == lived(drawn(seed)).trace()


def test_the_worlds_hold_what_they_are_for() -> None:
    """Crashes, frames, children of every mode, schedules: a world without them finds nothing."""
    histories = [lived(drawn(seed)) for seed in range(40)]
    types = {event.type for history in histories for event in history.events}
    assert types >= {
        "agent:child", "agent:handoff", "agent:immediate", "agent:interrupted", "agent:message",
        "agent:park", "agent:record", "agent:restore", "agent:retry", "schedule:fire",
        "session:pop", "session:prompt", "session:push", "session:reset", "session:result",
        "session:terminate", "session:turn",
    }  # fmt: skip
    agents = {info.agent for history in histories for info in history.runs.values()}
    assert agents >= {"ask", "send", "keep", "crew", "ann", "bob", "skill:writer", "shop", "main"}
    assert agents >= {"hooked", "vault", "reader"} and "session:variables" in types
    ends = {
        (event.reason.partition(":")[0], history.runs[event.run_id].parent_run_id is None)
        for history in histories
        for event in history.events
        if isinstance(event, SessionPromptEnd)
    }
    assert ends >= {("approved", True), ("approved", False), ("denied", True), ("denied", False)}
    pushes = Counter(
        (history.seed, x.run_id, x.call_id.partition(".")[0])
        for history in histories
        for x in history.events
        if isinstance(x, SessionPush) and drawn(history.seed).has_beside
    )
    assert sum(count > 1 for count in pushes.values()) > 5, "beside each other"
    assert sum(life.end == "crashed" for history in histories for life in history.lives) > 20
    answers = Counter(  # Which count: a reply, or words while something is asked.
        (history.seed, x.run_id, x.at)
        for history in histories
        for x in history.sent
        if x.status == "accepted" and (x.verb == "reply" or x.text.startswith("o"))
    )
    assert sum(count > 1 for count in answers.values()) > 4, "given in one moment"
    gone = [tree for history in histories for tree in history.gone]
    assert len(gone) > 40 and any(len(tree.runs) > 1 for tree in gone)
    cuts = [each for each in gone if each.cut is not None]
    run_ids = {each.cut.run_id for each in cuts if each.cut is not None}
    infos = {run_id: info for history in histories for run_id, info in history.runs.items()}
    assert {infos[run_id].agent for run_id in run_ids} >= {"main", "mate", "timed", "keeper"}
    assert any(infos[run_id].parent_run_id for run_id in run_ids)
    ends = {
        history.lives[each.life].end
        for history in histories
        for each in history.gone
        if each.cut is not None
    }
    assert ends >= {"left", "killed", "crashed"}
    assert any(history.bases for history in histories), "forks of runs whose old turns had gone"
    forks = [fork for history in histories for fork in history.forks if fork.status == "accepted"]
    of_forks = {fork.run_id for fork in forks} & {fork.of_run_id for fork in forks}
    assert len(forks) > 20 and of_forks and any(fork.seq for fork in forks)
    changes = {name for fork in forks for name in fork.changes}
    assert changes == {"message", "agent", "model", "prompt"}
    assert any(drawn(seed).prunings for seed in range(40))
