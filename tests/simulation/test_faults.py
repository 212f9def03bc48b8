"""Faults are plain data: compared by value, written as the code that makes them."""

from typing import get_args

import msgspec
import pytest

from hubbub.hub.errors import BadPattern, BadValue
from hubbub.runtime.simulation.story import faults as f
from hubbub.runtime.simulation.story.faults import AnyFault, WorldFault

EVERY = (
    f.Crash(commit=3),
    f.Crash(commit=1, when="before", life=2),
    f.ModelFault(kind="hang"),
    f.ModelFault(agent="writer", call=2, kind="rate_limit", seconds=30),
    f.ToolFault(kind="raise"),
    f.ToolFault(tool="search", call=4, kind="late", seconds=0.5),
    f.ToolFault(kind="crash"),
    f.Crash(commit=3, when="torn", sectors=2),
    f.ListenerFault(kind="stuck"),
    f.ListenerFault(kind="slow", pattern="agent:*", seconds=2),
    f.ChannelFault(kind="duplicate"),
    f.ChannelFault(message=7, kind="late", seconds=60),
    f.ClockJump(at=10, seconds=-3600),
    f.PauseWorker(at=1),
    f.KillWorker(worker=1, at=0.5, seconds=2),
    f.CutWorker(worker=2, seconds=60),
)


@pytest.mark.parametrize("fault", EVERY, ids=repr)
def test_a_fault_is_a_value_whose_repr_is_its_code(fault: WorldFault) -> None:
    again = eval(repr(fault), vars(f).copy())
    assert again == fault
    assert hash(again) == hash(fault)
    with pytest.raises(AttributeError):
        fault.seconds = 5  # type: ignore[misc,union-attr]


def test_a_repr_leaves_out_what_goes_without_saying() -> None:
    assert repr(f.Crash(commit=3)) == "Crash(commit=3)"
    assert repr(f.ModelFault(kind="cut", call=2)) == "ModelFault(call=2, kind='cut')"


def test_faults_can_be_kept_in_a_file() -> None:
    text = msgspec.json.encode(EVERY)
    assert msgspec.json.decode(text, type=tuple[AnyFault, ...]) == EVERY


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: f.Crash(commit=0), "Crash.commit: counts from 1"),
        (lambda: f.Crash(commit=1, life=-1), "Crash.life"),
        (lambda: f.Crash(commit=1, when="during"), "one of before, after"),  # type: ignore[arg-type]
        (lambda: f.ModelFault(kind="hangs"), "'hangs': one of hang, error"),  # type: ignore[arg-type]
        (lambda: f.ModelFault(kind="hang", call=0), "ModelFault.call"),
        (lambda: f.ModelFault(kind="slow", seconds=-1), "ModelFault.seconds"),
        (lambda: f.ModelFault(kind="slow", seconds=float("nan")), "ModelFault.seconds"),
        (lambda: f.ToolFault(kind="late", seconds=float("inf")), "ToolFault.seconds"),
        (lambda: f.ToolFault(kind="lost"), "one of hang, raise, late, crash"),  # type: ignore[arg-type]
        (lambda: f.ListenerFault(kind="slow", seconds=-1), "ListenerFault.seconds"),
        (lambda: f.ChannelFault(kind="late", message=0), "ChannelFault.message"),
        (lambda: f.ClockJump(at=-1, seconds=1), "ClockJump.at"),
        (lambda: f.ClockJump(at=1, seconds=float("inf")), "ClockJump.seconds"),
        (lambda: f.Crash(commit="x"), "Crash.commit: expected a whole number, not 'x'"),  # type: ignore[arg-type]
        (lambda: f.Crash(commit=True), "Crash.commit: expected a whole number, not True"),
        (lambda: f.Crash(commit=1, life=0.5), "Crash.life: expected a whole number"),  # type: ignore[arg-type]
        (lambda: f.ListenerFault(kind="slow", seconds="1"), "seconds: expected a number"),  # type: ignore[arg-type]
        (lambda: f.ModelFault(agent=3, kind="error"), "ModelFault.agent: expected a text"),  # type: ignore[arg-type]
        (lambda: f.WorldFault(), "make a Crash"),
    ],
)
def test_a_fault_that_could_never_happen_is_refused(make, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadValue, match=words):
        make()


def test_every_fault_is_a_fault() -> None:
    assert (
        {type(fault) for fault in EVERY}
        == set(get_args(AnyFault))
        == set(WorldFault.__subclasses__())
    )


def test_a_listener_needs_a_pattern_that_the_hub_knows() -> None:
    with pytest.raises(BadPattern):
        f.ListenerFault(kind="slow", pattern="agent*")
