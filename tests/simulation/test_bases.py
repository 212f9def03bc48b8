"""Whatever a world is made of, it lives the same life where runs write bases, and where what is
before them has gone."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from simulation.drawing import drawn, lived
from simulation.test_snapshots import model_lanes
from support.lane_states import state_after
from support.profiles import portion

from hubbub.agents.state.bases import base_of, is_due
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.crash_limit import waited
from hubbub.agents.turn.recovery import causes_of
from hubbub.hub.events import AgentBase, AgentPark, Event
from hubbub.hub.store.journal import Commit, Cut, Selection
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime import runtime
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.spending.recorded import limits_in, work_in


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What goes wrong on purpose is logged, too."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_from_any_base_on_a_lane_says_what_all_of_it_says() -> None:
    found = 0
    for seed in portion(range(1000, 1200)):
        for lane in model_lanes(lived(drawn(seed))):
            for end in {len(lane), len(lane) // 2}:
                found += _say_the_same(lane[:end])
    assert found


def _say_the_same(whole: list[Event]) -> int:
    """Of all that is asked of a lane when its run comes back; how many bases it could have."""
    thread, before, found = fold_all(EMPTY, whole), EMPTY, 0
    for place, event in enumerate(whole):
        if isinstance(event, AgentPark) and not event.waits and is_due(before, 1):
            base = base_of(before, work_in(whole[:place]).run)
            assert base is not None
            alone = [replace(base, seq=place + 1, lane="own"), *whole[place:]]
            assert replace(fold_all(EMPTY, alone), based=(0, 0)) == replace(thread, based=(0, 0))
            assert state_after(alone) == fold_all(EMPTY, alone)
            assert waited(thread, alone) == waited(thread, whole)
            assert causes_of(alone) == causes_of(whole)
            if thread.origin.parent_run_id is None:
                assert limits_in(alone, None) == limits_in(whole, None)
            assert work_in(alone).run == work_in(whole).run
            found += 1
        before = fold(before, event)
    return found


def life(history: History) -> list[tuple[str, str, int]]:
    return [(x.type, x.run_id, x.at) for x in history.events if not isinstance(x, AgentBase)]


def test_a_world_whose_runs_write_bases_at_every_turn_lives_the_same_life() -> None:
    written = 0
    for seed in portion(range(300)):
        without = lived(drawn(seed))  # Which checks everything that holds of any world.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "kept_turns", lambda retention: 1)
            history = lived(drawn(seed))
        # What goes by its size goes at other times, and a file that is torn is torn elsewhere.
        if drawn(seed).store == "memory" and not (without.gone or without.forks):
            assert life(history) == life(without), seed
        written += sum(isinstance(x, AgentBase) for x in history.events)
    assert written


class ForgettingJournal:
    """A memory store from which old turns go as soon as there is a base; but who reads all that
    ever happened, as the invariants of a world do, still finds them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.gone: dict[tuple[str, int], Event] = {}
        self._submit, self._read = MemoryJournal.submit, MemoryJournal.read
        patch.setattr(MemoryJournal, "submit", lambda of, commit: self.submit(of, commit))
        patch.setattr(MemoryJournal, "read", lambda of, *each, **some: self.read(of, *each, **some))

    def submit(self, of: MemoryJournal, commit: Commit) -> None:
        self._submit(of, commit)
        base = commit.written[0] if commit.run_id and commit.written else None
        row = of._rows.find(base.run_id) if isinstance(base, AgentBase) else None
        if isinstance(base, AgentBase) and row is not None and not commit.error:
            stood = dict(zip(row.positions, row.events, strict=True))
            if not any(seq <= base.inbox for seq in row.waiting):
                cut = Cut(run_id=base.run_id, seq=base.seq, inbox=base.inbox)
                for place in of._rows.cut(row, cut):
                    self.gone[of.name, place] = stood[place]
                    of._forget(place)

    async def read(
        self, of: MemoryJournal, selection: Selection, *, after: int = 0, **some: Any
    ) -> tuple[Sequence[Event], int]:
        if selection != Selection():
            return await self._read(of, selection, after=after, **some)
        places = range(after + 1, of.tip + 1)
        found = (of._at(place) or self.gone.get((of.name, place)) for place in places)
        return [event for event in found if event is not None], of.tip


def test_a_world_in_which_old_turns_go_at_once_lives_the_same_life() -> None:
    gone = 0
    for seed in portion(range(300)):
        if drawn(seed).store != "memory":
            continue
        without = lived(drawn(seed))
        if without.gone or without.forks:  # Which are read from what is left.
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "kept_turns", lambda retention: 1)
            journal = ForgettingJournal(patch)
            history = lived(drawn(seed))
        assert life(history) == life(without), seed
        gone += len(journal.gone)
    assert gone
