"""Whatever a world is made of, it lives the same life where runs come back from snapshots."""

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from simulation.drawing import drawn, lived
from support.profiles import portion
from support.snapshots import every

from hubbub.agents.code.lifecycle import CodeThread, fold_code, fold_code_all
from hubbub.agents.snapshots.thread_text import decode_thread, encode_thread
from hubbub.agents.state.bases import thread_of
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.crash_limit import questions, waited
from hubbub.agents.turn.recovery import causes_of
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.spending.recorded import limits_in


def model_lanes(history: History) -> Iterator[list[Event]]:
    """The own lanes of the runs of models: a step is theirs alone."""
    for lane in history.own.values():
        if any(isinstance(event, e.AgentStep) for event in lane):
            yield list(lane)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What goes wrong on purpose is logged, too."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_world_with_a_snapshot_of_every_record_lives_the_same_life() -> None:
    for seed in portion(range(300)):
        without = lived(drawn(seed))  # Which checks everything that holds of any world.
        with pytest.MonkeyPatch.context() as patch:
            every(patch, 1)
            history = lived(drawn(seed))
        if drawn(seed).store == "memory":  # Others take a turn to keep one, which moves the rest.
            assert [*map(_said, history.events)] == [*map(_said, without.events)], seed


def _said(event: e.Event) -> Any:
    """An event, and what a base says instead of its text: that may name a default, or leave it
    out."""
    if isinstance(event, e.AgentBase):
        return replace(event, thread_json=msgspec.Raw(b"")), thread_of(event)
    return event


def test_from_any_snapshot_on_a_lane_says_what_all_of_it_says() -> None:
    """All that is asked of a lane when its run comes back, at each event that may be the last one
    in a snapshot, and for each that may be the last one before that."""
    for seed in portion(range(1000, 1200)):
        for lane in model_lanes(lived(drawn(seed))):
            for end in {len(lane), len(lane) // 2, len(lane) // 3}:
                _say_the_same(lane[:end])


def test_from_any_snapshot_on_the_lane_of_a_code_agent_says_what_all_of_it_says() -> None:
    found = 0
    for seed in portion(range(1000, 1200)):
        history = lived(drawn(seed))
        for lane in history.own.values():
            begun = any(isinstance(event, e.SessionStart) and not event.side for event in lane)
            if begun:  # A model's session begins with one of its sides; a function has none.
                found += 1
                for end in {len(lane), len(lane) // 2, len(lane) // 3}:
                    _code_says_the_same(list(lane[:end]))
    assert found


def _code_says_the_same(whole: list[Event]) -> None:
    thread, before = fold_code_all(CodeThread(), whole), CodeThread()
    for place, event in enumerate(whole):
        before = fold_code(before, event)
        rest = whole[place + 1 :]
        begun = decode_thread(encode_thread(before))
        assert isinstance(begun, CodeThread)
        assert begun == before and fold_code_all(begun, rest) == thread
        if before.restarts or before.prompts:  # No snapshot is taken.
            continue
        assert questions(rest) == questions(whole)
        if thread.opened is not None and thread.opened.parent_run_id is None:
            assert limits_in(rest, begun.limits) == limits_in(whole, None)


def _say_the_same(whole: list[Event]) -> None:
    thread, before = fold_all(EMPTY, whole), EMPTY
    for place, event in enumerate(whole):
        before = fold_all(before, (event,))
        rest = whole[place + 1 :]
        if before.restarts:  # No snapshot is taken.
            continue
        begun = decode_thread(encode_thread(before))
        assert isinstance(begun, Thread)
        assert begun == before and fold_all(begun, rest) == thread
        assert causes_of(rest, begun) == causes_of(whole)
        if not before.prompts:
            assert waited(thread, rest) == waited(thread, whole)
        if thread.origin.parent_run_id is None:
            assert limits_in(rest, begun.limits) == limits_in(whole, None)
        assert _staying(rest, begun) == _staying(whole, EMPTY)


def _staying(events: list[Event], before: Thread) -> set[str]:
    """The children whose statuses a run needs to know."""
    started = {x.child_run_id for x in events if isinstance(x, e.AgentChild) and x.resumable}
    threads = [before, *(thread_of(x) for x in events if isinstance(x, e.AgentBase))]
    return {child.run_id for each in threads for child in each.family.registry} | started
