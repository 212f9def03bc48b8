"""Generated events: of every class, and such that every store reads them back."""

import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from support.profiles import examples

from hubbub import CustomEvent, Event, Secret
from hubbub.hub.events import (
    CATALOGUE,
    AgentText,
    FileRef,
    HubDeadLetter,
    SessionMessage,
    SessionOpen,
    SessionTaken,
    ToolCall,
    Usage,
    Variable,
)
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.runtime.simulation.strategies.event_strategies import events, json_values

CLASSES = sorted((*CATALOGUE, CustomEvent), key=lambda cls: cls.__name__)

few = settings(max_examples=max(examples(25), 5), deadline=None, database=None)


class Enough(Exception):
    """Everything has been seen: there is no need to draw the other examples."""


class Line(Struct, frozen=True):
    """Part of a user's own event."""

    article: str
    count: int = 1


class OrderShipped(Event, tag="strategies:order"):
    """A user's own event."""

    order_id: int
    lines: tuple[Line, ...] = ()
    place: tuple[float, float] | None = None


@pytest.mark.spec("H-13")
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_from_type_knows_every_event_and_stores_read_it_back_equal(cls):
    @few
    @given(event=st.from_type(cls))
    def check(event):
        assert type(event) is cls
        read = decode_event(encode_event(event))
        assert read == event
        assert type(read) is cls

    check()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_is_drawn(cls):
    defaults = {field.name: field.default for field in structs.fields(cls)}
    varied = set()
    wanted = set(defaults)

    @settings(max_examples=400, deadline=None, database=None, phases=[Phase.generate])
    @given(event=st.from_type(cls))
    def draw(event):
        varied.update(name for name, default in defaults.items() if getattr(event, name) != default)
        if varied == wanted:
            raise Enough

    with pytest.raises(Enough):
        draw()


def test_events_are_of_the_whole_catalogue_or_of_the_classes_named():
    seen = set()

    @settings(max_examples=1000, deadline=None, database=None, phases=[Phase.generate])
    @given(event=events())
    def draw(event):
        seen.add(type(event))
        if len(seen) > 45:
            raise Enough

    with pytest.raises(Enough):
        draw()
    assert seen <= set(CLASSES)

    @few
    @given(event=events(AgentText, SessionMessage))
    def only(event):
        assert isinstance(event, AgentText | SessionMessage)

    only()


def test_events_of_a_users_own_class_have_their_fields_drawn_too():
    @few
    @given(event=events(OrderShipped))
    def check(event):
        again = msgspec.json.decode(msgspec.json.encode(event), type=OrderShipped)
        assert again == event

    check()
    many = settings(few, max_examples=2000)
    found = find(events(OrderShipped), lambda x: len(x.lines) == 1, settings=many)
    assert found == OrderShipped(order_id=0, lines=(Line(""),))


@pytest.mark.parametrize("part", [Usage, ToolCall, Variable, FileRef, Event])
def test_from_type_knows_what_events_are_made_of(part):
    @few
    @given(value=st.from_type(part))
    def check(value):
        assert isinstance(value, part)

    check()


def test_secret_of_a_generated_event_is_empty_as_of_any_that_was_emitted():
    @few
    @given(secret=st.from_type(Secret), event=st.from_type(SessionOpen))
    def check(secret, event):
        assert secret.reveal() is None
        assert all(variable.value.reveal() is None for variable in event.variables)

    check()


def test_items_of_inboxes_stand_in_generated_records_of_them():
    drawn = settings(few, max_examples=400, phases=[Phase.generate])
    taken = find(
        events(SessionTaken), lambda x: len({type(i) for i in x.items}) > 1, settings=drawn
    )
    assert len(taken.items) > 1
    letter = find(events(HubDeadLetter), lambda x: x.message is not None, settings=drawn)
    assert isinstance(letter.message, Event)


def test_examples_shrink_to_the_bare_event():
    assert find(events(AgentText), lambda _: True, settings=few) == AgentText()


@few
@given(value=json_values())
def test_json_values_come_back_equal(value):
    assert msgspec.json.decode(msgspec.json.encode(value)) == value


# ── that Hypothesis knows them ───────────────────────────────────────────────────────────────


def process(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "first",
    ["hypothesis", "hubbub", "hubbub.runtime.simulation.strategies.event_strategies"],
)
def test_hypothesis_knows_every_event_whatever_is_imported_first(first):
    done = process(
        f"""
import {first}
from hypothesis import given, settings, strategies as st
from hubbub.hub.events import AgentRetry, Event, SessionTaken

@settings(max_examples=20, database=None)
@given(st.from_type(SessionTaken), st.from_type(Event), st.from_type(AgentRetry))
def draw(taken, event, retry):
    # What no strategy was given for is drawn from its annotations, beyond 64 bits.
    assert -2**63 <= retry.attempt < 2**63
    assert all(isinstance(item, Event) for item in taken.items)
    assert type(event) is not Event

draw()
"""
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_hypothesis_loads_the_events_and_no_more():
    done = process("import hypothesis, sys; print(*(x for x in sys.modules if 'hubbub' in x))")
    assert not done.stderr
    assert {x for x in done.stdout.split() if not x.startswith("__editable__")} == {
        "hubbub", "hubbub.hub", "hubbub.hub.errors", "hubbub.hub.errors.copied",
        "hubbub.hub.errors.statuses",
        "hubbub.hub.events",
        "hubbub.hub.events.agents", "hubbub.hub.events.event", "hubbub.hub.events.catalogue",
        "hubbub.hub.events.left_out", "hubbub.hub.events.limits",
        "hubbub.hub.events.sessions", "hubbub.hub.exports", "hubbub.hub.near_misses",
        "hubbub.hub.texts", "hubbub.hub.values", "hubbub.runtime", "hubbub.runtime.simulation",
        "hubbub.runtime.simulation.strategies",
        "hubbub.runtime.simulation.strategies.event_types",
    }  # fmt: skip


def test_who_asks_for_anything_at_all_is_given_no_events():
    done = process(
        "from hypothesis import strategies as st; from collections.abc import Hashable; "
        "print(st.from_type(object), st.from_type(Hashable))"
    )
    assert "integers()" in done.stdout
    assert "AgentText" not in done.stdout


def test_without_plugins_of_hypothesis_one_registers_events_oneself():
    done = process(
        """
from hypothesis import strategies as st
from hubbub.hub.events import AgentText
from hubbub.runtime.simulation.strategies.worlds import register_events
print(st.from_type(AgentText), end="=====")
register_events()
print(st.from_type(AgentText))
""",
        HYPOTHESIS_NO_PLUGINS="1",
    )
    before, after = done.stdout.split("=====")
    assert "builds" in before
    assert "fixed_dictionaries" in after
