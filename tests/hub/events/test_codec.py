"""Events as bytes (H-13, H-19)."""

import json
from typing import Annotated, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.profiles import examples

from hubbub import CustomEvent, Event, Secret
from hubbub.hub.errors import BadValue
from hubbub.hub.events import (
    CATALOGUE,
    AgentComplete,
    AgentText,
    HubDeadLetter,
    SessionMessage,
    SessionOpen,
    Variable,
)
from hubbub.hub.events.codec import UnknownEvent, decode_event, encode_event
from hubbub.hub.values import NULL, encode_value

PLANTED = "hunter2-7f3a"


class OrderPlaced(Event, tag="codec:order"):
    """A user's own event, which a reader elsewhere does not know."""

    order_id: int = 0
    lines: tuple[str, ...] = ()
    note: str | None = None


# ── any event ────────────────────────────────────────────────────────────────────────────────

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
raw_values = st.just(NULL) | json_values.map(lambda value: encode_value("value", value))


def values_of(type_):
    """A strategy for the values of a field's type."""
    if get_origin(type_) is Annotated:  # Amounts, which are above 0.
        number = get_args(type_)[0]
        return st.integers(1, 10**17) if number is int else st.floats(1e-9, 1e17)
    if type_ is msgspec.Raw:
        return raw_values
    if type_ is Secret:
        return st.builds(Secret)
    if type_ is int:
        return st.integers(-(2**63), 2**63 - 1)
    if type_ is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if get_origin(type_) is tuple:
        return st.lists(values_of(get_args(type_)[0]), max_size=3).map(tuple)
    if get_origin(type_) is Literal:
        return st.sampled_from(get_args(type_))
    if get_origin(type_) is Union or type(type_).__name__ == "UnionType":
        return st.one_of(*map(values_of, get_args(type_)))
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return structs_of(type_)
    return st.from_type(type_)


def structs_of(cls):
    fields = {field.name: values_of(field.type) for field in structs.fields(cls)}
    if cls is CustomEvent:
        known = {event.type for event in CATALOGUE}
        fields["name"] = fields["name"].filter(lambda name: name not in known)
    return st.builds(cls, **fields)


events = {event.type: structs_of(event) for event in CATALOGUE}


@pytest.mark.spec("H-13")
@pytest.mark.parametrize("type_", sorted(events))
def test_every_event_of_the_catalogue_is_read_back_equal(type_):
    @settings(max_examples=examples(25), deadline=None)
    @given(event=events[type_])
    def check(event):
        data = encode_event(event)
        assert json.loads(data)["type"] == type_
        read = decode_event(data)
        assert read == event
        assert type(read) is type(event)
        assert encode_event(read) == data

    check()


@pytest.mark.spec("H-13")
@settings(deadline=None)
@given(event=structs_of(CustomEvent))
def test_every_custom_event_is_read_back_equal(event):
    data = encode_event(event)
    assert decode_event(data) == event
    assert decode_event(data).type == event.type
    assert encode_event(decode_event(data)) == data


@pytest.mark.spec("H-13")
def test_custom_event_has_its_own_type_and_its_data_nested():
    event = structs.replace(CustomEvent.of("shop:order", n=1), run_id="r", lane="own", seq=3)
    assert json.loads(encode_event(event)) == {
        "type": "shop:order", "run_id": "r", "lane": "own", "seq": 3, "data": {"n": 1},
    }  # fmt: skip


@pytest.mark.spec("H-13")
def test_known_event_is_one_flat_object_without_its_defaults():
    event = AgentText(run_id="r", lane="own", seq=3, text="hello")
    assert json.loads(encode_event(event)) == {
        "type": "agent:text", "run_id": "r", "lane": "own", "seq": 3, "text": "hello",
    }  # fmt: skip
    assert encode_event(AgentComplete()) == b'{"type":"agent:complete"}'


@pytest.mark.spec("H-13")
@settings(deadline=None)
@given(event=structs_of(OrderPlaced))
def test_event_of_a_class_that_the_reader_lacks_is_kept_unchanged(event):
    data = encode_event(event)
    read = decode_event(data)
    assert encode_event(read) == data
    assert read.type == "codec:order"
    for field in Event.__struct_fields__:
        assert getattr(read, field) == getattr(event, field)
    if isinstance(read, UnknownEvent):
        wanted = json.loads(data)
        assert read.fields == {
            k: v for k, v in wanted.items() if k in ("order_id", "lines", "note")
        }


common = st.fixed_dictionaries(
    {},
    optional={
        "at": st.integers(0, 2**60), "run_id": st.text(), "lane": st.sampled_from(["own", "hub"]),
        "seq": st.integers(0, 2**60), "parent_run_id": st.none() | st.text(),
    },
)  # fmt: skip


@pytest.mark.spec("H-13")
@settings(deadline=None)
@given(
    type_=st.text(min_size=1).filter(lambda t: t not in events and t not in ("custom", "unknown")),
    common=common,
    own=st.dictionaries(
        st.text().filter(lambda name: name not in Event.__struct_fields__)
        | st.sampled_from(["data", "durable", "name"]),
        json_values,
    ),
)
def test_any_object_with_a_type_is_an_event_and_comes_back_unchanged(type_, common, own):
    data = json.dumps({**own, **common, "type": type_}).encode()
    event = decode_event(data)
    assert event.type == type_
    again = json.loads(encode_event(event))
    defaults = {f.name: f.default for f in structs.fields(Event)}
    assert {**defaults, **again} == {**defaults, **json.loads(data)}


@pytest.mark.spec("H-13")
def test_unknown_event_may_be_stamped_and_keeps_what_it_says():
    event = decode_event(b'{"type":"later:version", "n" : 1.50, "deep":{"b":[1]}}')
    stamped = structs.replace(event, run_id="r", lane="hub", seq=4)
    assert encode_event(stamped) == (
        b'{"type":"later:version","run_id":"r","lane":"hub","seq":4,"n":1.50,"deep":{"b":[1]}}'
    )


@pytest.mark.spec("H-13")
def test_field_of_a_later_version_does_not_keep_an_old_reader_from_reading():
    assert decode_event(b'{"type":"agent:text","text":"a","later":[1]}') == AgentText(text="a")


@pytest.mark.parametrize("name", ["custom", "unknown", "event", ""])
def test_custom_event_with_a_taken_name_is_read_back_as_custom(name):
    event = CustomEvent(name=name, data_json=encode_value("data", {"n": 1}))
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"1", b"null", b"{}", b'{"type":7}', b'{"type":""}', b"\xff\xfe",
        b'{"type":"agent:text","text":7}', b'{"type":"agent:text"', b'{"type":"x:y"',
        b'{"type":"x:y","seq":"one"}', b'{"type":"hub:dead_letter","message":{"type":"x"}}',
        b'{"type":"custom","name":3}', '"text"', b'{"type":"agent:text"} {}',
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused_with_a_clear_error(data):
    with pytest.raises(BadValue, match="event"):
        decode_event(data)


def test_half_a_surrogate_pair_becomes_a_replacement_character():
    """File names can hold them; JSON, and so every store, cannot."""
    event = HubDeadLetter(message=SessionMessage(content="a\ud800b", attachments=("\udcff",)))
    read = decode_event(encode_event(event))
    assert read.message.content == "a\ufffdb"
    assert read.message.attachments == ("\ufffd",)


@pytest.mark.spec("H-19")
def test_secret_is_written_as_stars_and_read_back_empty():
    event = SessionOpen(open_agent="a", variables=(Variable(name="KEY", value=Secret(PLANTED)),))
    data = encode_event(event)
    assert PLANTED.encode() not in data
    assert json.loads(data)["variables"] == [{"name": "KEY", "value": "***"}]
    (variable,) = decode_event(data).variables
    assert variable.value.reveal() is None
