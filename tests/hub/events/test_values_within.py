"""Values within events, which nobody decodes before somebody looks, can be read or are told."""

import pytest

from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.values_within import value_problem

BAD = (b"1e999", b'"\x80"', b'{"\x80":1}', b'{"a":[0,-1e999]}')


def event(type_: str, rest: bytes) -> Event:
    return decode_event(
        b'{"type":"%s","run_id":"r","lane":"own","seq":1%s}' % (type_.encode(), rest)
    )


PLACES = {
    "agent:start": b',"input":%s', "agent:key": b',"value":%s', "agent:record": b',"value":%s',
    "agent:complete": b',"output":%s', "session:end": b',"output":%s',
    "session:message": b',"metadata":%s', "session:reply": b',"arguments":%s',
    "session:prompt": b',"schema":%s', "session:open": b',"tools":[{"name":"t","schema":%s}]',
    "session:taken": b',"items":[{"type":"session:open","message":{"type":"session:message",'
    b'"metadata":%s}}]',
    "hub:dead_letter": b',"message":{"type":"session:message","metadata":%s}',
    "agent:base": b',"thread":{"area":{"keys":{"n":%s}}}', "somebodys:own": b',"data":%s',
    "of:another version": b',"field":%s',
}  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=ascii)
@pytest.mark.parametrize("type_", PLACES)
def test_a_value_that_cannot_be_read_is_told_wherever_it_stands(type_: str, value: bytes) -> None:
    with_it = event(type_, PLACES[type_] % value)
    assert "cannot be read" in value_problem(with_it)
    assert value_problem(event(type_, PLACES[type_] % b'{"a":[1,"x",null]}')) == ""
    assert value_problem(event(type_, b"")) == ""


@pytest.mark.parametrize("value", [b"[1]", b'"x"', b"1", b"true"])
def test_what_is_sent_with_a_message_is_an_object(value: bytes) -> None:
    assert "not an object" in value_problem(event("session:message", b',"metadata":' + value))


def test_every_field_that_is_kept_as_json_is_looked_at() -> None:
    found = {
        kind.type
        for kind in e.CATALOGUE
        for name in kind.__struct_fields__
        if name.endswith("_json")
    }
    assert found <= {*PLACES, "agent:base"}
