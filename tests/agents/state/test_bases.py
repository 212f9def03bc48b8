"""A base says what all records before it come to, and every later version can read it.

``bases.json`` beside this file pins what a base is written as, and holds some that were written.
Where a test here fails for a state that has got a field: give it a default, and run this file as a
program.  Where a field was to go, or is to mean something else: raise ``VERSION``, have
``thread_of`` read the older ones, too, and leave what is recorded there.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from journals.record import FOLDER
from msgspec import inspect
from msgspec.structs import replace

from hubbub.agents.state.bases import (
    SHARE,
    VERSION,
    base_behind_gap,
    base_of,
    begun_at,
    family_of,
    is_due,
    thread_of,
)
from hubbub.agents.state.family import Child, Family
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import PARKED, Parked
from hubbub.hub.errors import BadValue
from hubbub.hub.events import (
    AgentBase,
    AgentImmediate,
    AgentPark,
    AgentStart,
    Event,
    FileRef,
    SessionVariables,
)
from hubbub.hub.events.codec import decode_event, encode_event

JOURNALS = sorted(FOLDER.glob("*.jsonl"))
GOLDEN = Path(__file__).with_name("bases.json")
TEXTS = 40
"""How many bases are recorded of each version."""


def lanes_in(journal: Path) -> Iterator[list[Event]]:
    """The own lanes of the model runs in a journal."""
    first, *lines = journal.read_bytes().splitlines()
    code = set(json.loads(first)["code_agents"])
    lanes: dict[str, list[Event]] = {}
    for line in lines:
        event = decode_event(line)
        if event.lane == "own":
            lanes.setdefault(event.run_id, []).append(event)
    for lane in lanes.values():
        if not {x.agent for x in lane} & code:
            yield lane


def recorded(thread: Thread, seq: int, worked: int = 0) -> AgentBase:
    """The base of a thread as a store has it."""
    base = base_of(thread, worked)
    assert base is not None
    event = decode_event(encode_event(replace(base, lane="own", seq=seq, run_id="r", inbox=3)))
    assert isinstance(event, AgentBase)
    return event


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda journal: journal.stem)
def test_a_base_comes_to_what_all_records_before_it_do(journal: Path) -> None:
    for lane in lanes_in(journal):
        thread = EMPTY
        for place, event in enumerate(lane):
            thread = fold(thread, event)
            if not thread.session:
                continue
            base = recorded(thread, event.seq + 1)
            whole, alone = fold(thread, base), fold(EMPTY, base)
            assert alone == whole == thread_of(base)
            assert replace(whole, based=thread.based) == thread
            assert fold(fold_all(EMPTY, lane[:1]), base) == whole, "what is kept is how it began"
            rest = lane[place + 1 : place + 40]
            assert fold_all(alone, rest) == fold_all(whole, rest)


def test_a_lane_is_known_to_begin_with_a_base() -> None:
    start = AgentStart(lane="own", seq=1)
    base = recorded(parked(), 7)
    park = AgentPark(lane="own", seq=8)
    assert begun_at([base, park]) == base
    assert begun_at([start, base]) is None and begun_at([]) is None
    assert base_behind_gap([start, base, park]) == 7
    others = [AgentPark(lane="own", seq=seq) for seq in range(2, 7)]
    assert base_behind_gap([start, *others, base]) == 0


def test_a_base_that_cannot_be_read_is_said_to_be() -> None:
    base = recorded(parked(), 7)
    with pytest.raises(BadValue, match="its base is of version 2, this hubbub reads 1; upgrade it"):
        fold(EMPTY, replace(base, version=VERSION + 1))
    with pytest.raises(BadValue, match="its base cannot be read"):
        fold(EMPTY, replace(base, thread_json=msgspec.Raw(b'{"turn":"x"}')))


# ── when one is written ──────────────────────────────────────────────────────────────────────


def parked(**changes: Any) -> Thread:
    """A run of five turns with nothing to do."""
    thread = Thread(agent="a", phase="live", session=5, turn=5, step=5)
    return replace(thread, **changes)


def test_a_run_at_rest_writes_one_after_as_many_turns_as_are_to_be_kept() -> None:
    assert is_due(parked(), 5) and not is_due(parked(), 6)
    after = fold(parked(), recorded(parked(), 7))
    assert not is_due(after, 1)
    assert not is_due(replace(after, turn=9, step=9), 5)
    assert is_due(replace(after, turn=10, step=10), 5)


def test_a_context_that_only_grows_is_not_written_again_and_again() -> None:
    thread, bases = parked(turn=0, step=0), 0
    for turn in range(1, 1_001):
        said = thread.transcript + (None,) * 2  # type: ignore[operator]
        thread = replace(thread, turn=turn, step=turn, transcript=said)
        if is_due(thread, 1):
            bases += 1
            thread = replace(thread, based=(turn, 2 * turn + len(said) // SHARE))
    assert bases <= 35


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "ended"},
        {"in_session": True},
        {"closing": True},
        {"terminated": 5},
        {"origin": replace(EMPTY.origin, frame=2)},
        {"family": Family(children=(Child(run_id="r", agent="a", takeover=True),))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_in_the_middle_of_something_writes_none(changes: dict[str, Any]) -> None:
    assert not is_due(parked(**changes), 1)


def test_what_is_to_begin_later_is_carried() -> None:
    """Children that wait for variables, or for the next session where a limit ended this one."""
    asked = SessionVariables(request_id="q", child_agent="a", expires_at=5)
    begun = AgentImmediate(names=("one", "two"), message="go", side="side_a")
    thread = fold_all(parked(), [asked, begun])
    assert thread.family.deferred and thread.family.holds and is_due(thread, 5)
    base = recorded(thread, 7)
    assert thread_of(base).family == family_of(base) == thread.family


def test_files_of_children_that_wait_are_named_beside_those_of_the_run() -> None:
    old, new = (FileRef(path="a", digest=each * 64, size=1) for each in "ab")
    thread = fold(parked(), SessionVariables(request_id="q", files=(old,)))
    area = replace(thread.area, files={"a": new})
    assert recorded(replace(thread, area=area), 7).files == (new, old)


def test_it_is_written_with_the_record_that_the_run_parks() -> None:
    definitions: Any = None
    base, park = interpret(parked(), Parked(5, 17), definitions).events
    assert isinstance(base, AgentBase) and (base.turn, base.worked) == (5, 17)
    assert isinstance(park, AgentPark)
    for signal in (PARKED, Parked(6)):
        assert interpret(parked(), signal, definitions).events == (AgentPark(),)


def test_texts_that_no_record_can_hold_are_left_to_a_later_one() -> None:
    assert base_of(parked(last_text="\ud800")) is None
    assert interpret(parked(last_text="\ud800"), Parked(5), None).events == (AgentPark(),)  # type: ignore[arg-type]


# ── read for ever ────────────────────────────────────────────────────────────────────────────


def shape() -> dict[str, Any]:
    """The structs that a state is made of: by name their tag, and by field its type and default."""
    shapes: dict[str, Any] = {}

    def words_of(part: Any) -> str:
        if isinstance(part, tuple):
            return f"({', '.join(map(words_of, part))})"
        if isinstance(part, inspect.StructType):
            note(part)
            return part.cls.__qualname__
        if isinstance(part, inspect.Type):
            parts = (words_of(getattr(part, name)) for name in part.__struct_fields__)
            return f"{type(part).__name__}({', '.join(parts)})"
        return repr(part)

    def note(part: inspect.StructType) -> None:
        name = part.cls.__qualname__
        if name in shapes:
            return
        shapes[name] = {"tag": part.tag, "fields": (fields := {})}
        for each in part.fields:
            value = each.default
            default = type(value).__qualname__ if isinstance(value, msgspec.Struct) else repr(value)
            if isinstance(value, msgspec.Raw):
                default = repr(bytes(value))
            if each.required:
                default = "required"
            elif value is msgspec.NODEFAULT:
                default = "made"
            fields[each.encode_name] = [words_of(each.type), default]

    found = inspect.type_info(Thread)
    assert isinstance(found, inspect.StructType)
    note(found)
    return shapes


def texts() -> list[str]:
    """What bases are made of as they are written now."""
    found = []
    for journal in JOURNALS:
        lanes = sorted(lanes_in(journal), key=len)
        if lanes and (base := base_of(fold_all(EMPTY, lanes[-1]))):
            found.append(bytes(base.thread_json).decode())
    return sorted(found, key=len)[-TEXTS:]


def test_no_field_of_a_state_goes_or_means_something_else() -> None:
    before, now = json.loads(GOLDEN.read_text())["shape"], shape()
    for name, struct in before.items():
        assert now[name]["tag"] == struct["tag"], name
        for field, known in struct["fields"].items():
            assert now[name]["fields"].get(field) == known, f"{name}.{field}"
        new = now[name]["fields"].keys() - struct["fields"].keys()
        needs = [field for field in new if now[name]["fields"][field][1] == "required"]
        assert not needs, f"{name}: older bases have no {needs}; give them defaults"
    assert now == before, "what is new is to be recorded: run this file as a program"


def test_what_was_written_can_be_read() -> None:
    for version, recorded_texts in json.loads(GOLDEN.read_text())["texts"].items():
        assert recorded_texts
        for text in recorded_texts:
            base = AgentBase(version=int(version), thread_json=msgspec.Raw(text.encode()))
            thread = thread_of(base)
            again = json.loads(bytes(base_of(thread).thread_json))  # type: ignore[union-attr]
            again.pop("based")
            assert _includes(again, json.loads(text)), "something was lost"


def _includes(now: Any, then: Any) -> bool:
    """Whether a value says all that an older one did; it may have further fields."""
    if isinstance(then, dict):
        return all(key in now and _includes(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(_includes, now, then))
    return bool(now == then)


if __name__ == "__main__":
    kept = json.loads(GOLDEN.read_text())["texts"] if GOLDEN.exists() else {}
    kept.setdefault(str(VERSION), texts())
    GOLDEN.write_text(json.dumps({"shape": shape(), "texts": kept}, indent=1) + "\n")
