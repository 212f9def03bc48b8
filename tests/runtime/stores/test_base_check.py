"""A base from which no run could go on is told from one that a run has written."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hubbub.agents.model import UserMessage
from hubbub.agents.state.area import Area
from hubbub.agents.state.bases import VERSION, base_of
from hubbub.agents.state.family import Child, Family
from hubbub.agents.state.prompts import OpenPrompt
from hubbub.agents.state.thread import OpenStep, Thread, origin_of
from hubbub.hub.events import AgentBase, ContentPart, FileRef, Limits, SessionOpen
from hubbub.runtime.stores.exchange.base_check import base_problem, contradiction

RUN = "01900000-0000-7000-8000-00000000000a"
OTHER = "01900000-0000-7000-8000-00000000000b"
OPENED = SessionOpen(run_id=RUN, root_run_id=RUN, agent="a", lane="in", seq=1)
FILE = FileRef(path="a.txt", digest="a" * 64, size=1)
IMAGE = ContentPart(kind="image", media_type="image/png", digest="b" * 64, size=1)
RESTING = Thread(
    agent="a", phase="live", session=5, turn=5, step=7, origin=origin_of(OPENED),
    transcript=(UserMessage(content="look", parts=(IMAGE,)),), has_parts=True,
    family=Family(children=(Child(run_id=OTHER, agent="b"),)),
    area=Area({"a.txt": FILE}, {"n": msgspec.Raw(b"1")}), limits=Limits(model_calls=9),
)  # fmt: skip


def base(thread: Thread = RESTING, **changes: Any) -> AgentBase:
    made = base_of(thread)
    assert made is not None
    return replace(made, run_id=RUN, root_run_id=RUN, agent="a", lane="own", seq=9, **changes)


def test_a_base_that_a_run_has_written_is_sound() -> None:
    assert base_problem(base(), OPENED) == base_problem(base(), None) == ""
    assert contradiction(base(), RESTING) == ""


@pytest.mark.parametrize(
    "text", [b'{"turn":"x"}', b"null", b"[" * 5_000 + b"]" * 5_000], ids=["type", "null", "nesting"]
)
def test_one_that_cannot_be_read_is_none(text: bytes) -> None:
    why = base_problem(base(thread_json=msgspec.Raw(text)), OPENED)
    assert why.startswith("its base cannot be read") and "see fsck" not in why


def test_one_of_a_later_version_is_none_for_this_one() -> None:
    assert "upgrade it" in base_problem(base(version=VERSION + 1), OPENED)


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": OTHER}, {"root_run_id": OTHER}, {"parent_run_id": OTHER}, {"depth": 1},
        {"receives": "side_b"}, {"reports": True}, {"name": "x"}, {"frame": 2},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_one_says_of_its_origin_what_the_opening_does(changes: dict[str, Any]) -> None:
    other = base(replace(RESTING, origin=replace(RESTING.origin, **changes)))
    assert "of its origin" in base_problem(other, OPENED)
    in_its_fields = changes.keys() <= {"run_id", "root_run_id", "parent_run_id"}
    assert bool(base_problem(other, None)) == in_its_fields


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "ended"}, {"phase": "new"}, {"in_session": True}, {"closing": True},
        {"terminated": 5}, {"open": OpenStep(1, "", (), (), False)},
        {"prompts": (OpenPrompt("p"),)},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_one_holds_a_state_at_rest(changes: dict[str, Any]) -> None:
    assert "does not rest" in base_problem(base(replace(RESTING, **changes)), OPENED)


@pytest.mark.parametrize(
    "changes",
    [{"turn": 4}, {"files": ()}, {"parts": ()}, {"children": ()}],
    ids=lambda changes: next(iter(changes)),
)
def test_one_names_what_is_looked_for_in_the_records_before_it(changes: dict[str, Any]) -> None:
    assert base_problem(base(**changes), OPENED).startswith("its base ")
    assert base_problem(base(files=(FILE, replace(FILE, path="b"))), OPENED) == ""


def test_one_keeps_files_and_values_under_their_own_names() -> None:
    files, keys = RESTING.area.files, RESTING.area.keys
    for area in (Area({"../up": FILE}, keys), Area(files, {"": msgspec.Raw(b"1")})):
        assert base_problem(base(replace(RESTING, area=area)), OPENED).startswith("its base has a ")


@pytest.mark.parametrize(
    "changes",
    [{"session": 6}, {"turn": 4}, {"step": 8}, {"agent": "b"}, {"limits": None}],
    ids=lambda changes: next(iter(changes)),
)
def test_one_that_counts_otherwise_than_the_records_before_it_contradicts_them(
    changes: dict[str, Any],
) -> None:
    (name,) = changes
    said = contradiction(base(replace(RESTING, **changes)), RESTING)
    assert said.startswith(f"its base says {name} ")


def test_what_events_come_to_in_another_version_is_no_contradiction() -> None:
    assert contradiction(base(), replace(RESTING, transcript=(), total_usage=RESTING.seen)) == ""
