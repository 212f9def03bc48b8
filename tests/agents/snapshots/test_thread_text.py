"""A snapshot holds the very thread that it was made of, and says which fold that is of."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from journals.record import FOLDER
from msgspec import Struct

from hubbub.agents.code.lifecycle import CodeThread, fold_code, fold_code_all
from hubbub.agents.snapshots.thread_text import (
    FOLD,
    decode_thread,
    encode_thread,
    fold_version,
    shape_of,
)
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event

JOURNALS = sorted(FOLDER.glob("*.jsonl"))
FOLDS = FOLDER / "folds.json"


def lanes_in(journal: Path, *, of_code: bool = False) -> Iterator[list[Event]]:
    """The own lanes of the model runs in a journal, or of the code agents."""
    first, *lines = journal.read_bytes().splitlines()
    code = set(json.loads(first)["code_agents"])
    lanes: dict[str, list[Event]] = {}
    for line in lines:
        event = decode_event(line)
        lanes.setdefault(event.run_id, []).append(event)
    for lane in lanes.values():
        if bool({x.agent for x in lane} & code) == of_code:
            yield lane


def threads_in(journal: Path) -> Iterator[tuple[Thread, list[Event]]]:
    """Everything that the runs of a journal came to on their way, and what came after."""
    for lane in lanes_in(journal):
        thread = EMPTY
        for place, event in enumerate(lane):
            thread = fold(thread, event)
            yield thread, lane[place + 1 :]


def singletons(value: Any, path: str = "thread") -> Iterator[str]:
    """The places at which there is the default itself, which some are told by."""
    for field in msgspec.structs.fields(value):
        found = getattr(value, field.name)
        if found is field.default:
            yield f"{path}.{field.name}"
        elif isinstance(found, Struct) and path == "thread":
            yield from singletons(found, f"{path}.{field.name}")


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda journal: journal.stem)
def test_a_thread_comes_back_as_it_was_and_goes_on_alike(journal: Path) -> None:
    for thread, rest in threads_in(journal):
        back = decode_thread(encode_thread(thread))
        assert back == thread
        for name in Thread.__struct_fields__:
            was, now = getattr(thread, name), getattr(back, name)
            assert type(was) is type(now), name
            default = getattr(EMPTY, name)
            assert was is not default or now is default, name
        later, now = thread, back
        for event in rest[:50]:
            later, now = fold(later, event), fold(now, event)
        assert now == later


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda journal: journal.stem)
def test_what_a_code_agent_has_come_to_comes_back_as_it_was(journal: Path) -> None:
    for lane in lanes_in(journal, of_code=True):
        thread = CodeThread()
        for place, event in enumerate(lane):
            thread = fold_code(thread, event)
            back = decode_thread(encode_thread(thread))
            assert isinstance(back, CodeThread) and back == thread
            for name in CodeThread.__struct_fields__:
                was, now = getattr(thread, name), getattr(back, name)
                default = getattr(CodeThread(), name)
                assert type(was) is type(now), name
                assert was is not default or now is default, name
            rest = lane[place + 1 : place + 51]
            assert fold_code_all(back, rest) == fold_code_all(thread, rest)


def test_what_is_told_by_being_the_default_is_that_again() -> None:
    back = decode_thread(encode_thread(EMPTY))
    assert isinstance(back, Thread)
    assert [*singletons(back)] == [*singletons(EMPTY)]
    assert back.family is EMPTY.family and back.compactions is EMPTY.compactions


class Inner(Struct, frozen=True):
    number: int = 0


def test_any_change_of_shape_is_another_version() -> None:
    def shape(*fields: Any, **config: Any) -> str:
        return shape_of(msgspec.defstruct("Whole", fields, **config))

    shapes = [
        shape(("a", int, 0)),
        shape(("b", int, 0)),
        shape(("a", str, "")),
        shape(("a", int, 1)),
        shape(("a", int, 0), ("b", int, 0)),
        shape(("a", tuple[int, ...], ())),
        shape(("a", tuple[str, ...], ())),
        shape(("a", Inner, Inner())),
        shape(("a", Inner | None, None)),
        shape(("a", msgspec.defstruct("Inner", [("number", str, "")], frozen=True), None)),
        shape(("a", msgspec.defstruct("Inner", [("other", int, 0)], frozen=True), None)),
        shape(("a", int, 0), tag="x"),
        shape(("a", int, 0), rename={"a": "c"}),
    ]
    assert len(set(shapes)) == len(shapes)
    assert shape(("a", int, 0)) == shapes[0]


def test_the_version_is_of_the_number_and_the_shape() -> None:
    number, _, digest = fold_version().partition("-")
    assert (number, len(digest)) == (str(FOLD), 16)
    assert "0x" not in shape_of(Thread) + shape_of(CodeThread)  # It is the same in every process.


def folds() -> dict[str, Any]:
    """What the recorded journals come to now."""
    digests = {
        journal.stem: [
            hashlib.sha256(encode_thread(thread)).hexdigest()[:16]
            for thread in (
                *map(fold_of, lanes_in(journal)),
                *(fold_code_all(CodeThread(), x) for x in lanes_in(journal, of_code=True)),
            )
        ]
        for journal in JOURNALS
    }
    return {"fold": FOLD, "shape": fold_version().partition("-")[2], "threads": digests}


def fold_of(lane: list[Event]) -> Thread:
    thread = EMPTY
    for event in lane:
        thread = fold(thread, event)
    return thread


def test_events_that_come_to_something_else_have_another_number() -> None:
    """Where this fails for a changed fold: raise ``FOLD``; then run this file as a program."""
    recorded, now = json.loads(FOLDS.read_text()), folds()
    if recorded["shape"] != now["shape"]:  # Which makes another version by itself.
        pytest.fail("the shape of a thread has changed: run this file as a program")
    before = recorded["threads"]
    changed = [name for name, found in now["threads"].items() if before.get(name, found) != found]
    assert not changed or recorded["fold"] != FOLD, f"raise FOLD: other threads come of {changed}"
    assert recorded == now, "run this file as a program"


if __name__ == "__main__":
    FOLDS.write_text(json.dumps(folds(), indent=1) + "\n")
