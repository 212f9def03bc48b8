"""The catalogue, and events of types it does not know (H-13, R-10).

The golden file pins tags, lanes and fields permanently: recorded journals hold them.  Adding to it
is an ordinary change, ``uv run python tests/hub/events/test_events.py`` writes it anew; what it
takes away or changes breaks every store in use.
"""

import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

sys.path.append(str(Path(__file__).parents[2]))  # Where it is run as a program.

from support.profiles import examples

from hubbub import START, CustomEvent, Event, Hub, Message, Runtime, Secret, agent
from hubbub.hub import events
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.events import (
    CATALOGUE,
    AgentText,
    ContentPart,
    InLane,
    SessionMessage,
    ToolCall,
    Usage,
    Variable,
)
from hubbub.hub.virtual import virtual_ports

GOLDEN = Path(__file__).with_name("event_catalogue.json")

REQUIRED = [
    "agent:start", "agent:complete", "agent:failed", "agent:thinking", "agent:text",
    "agent:text:delta", "agent:thinking:delta", "agent:step", "agent:tool:start",
    "agent:tool:complete", "agent:status", "agent:message", "agent:park", "agent:restore",
    "agent:handoff", "agent:child", "session:open", "session:start", "session:end",
    "session:close", "session:message", "session:prompt", "session:reply", "session:abort",
    "session:reset", "session:push", "session:pop", "session:variables", "schedule:fire",
    "schedule:skip", "hub:error", "hub:dead_letter",
]  # fmt: skip


class OrderPlaced(Event, tag="test:order"):
    """A user's own event."""

    order_id: str
    lines: tuple[str, ...] = ()


def catalogue():
    """What the golden file pins: of each tag, and of the parts that events are made of."""
    parts = {
        part.__name__: {"home": "part", "fields": _fields(part)}
        for part in (Usage, ToolCall, Variable, ContentPart)
    }
    return parts | {
        event.__struct_config__.tag: {
            "home": event.home,
            "fields": _fields(event, besides=() if event is Event else Event.__struct_fields__),
        }
        for event in (Event, CustomEvent, *CATALOGUE)
    }


def _fields(struct, besides=()):
    return {
        field.encode_name: _type_name(field.type)
        for field in structs.fields(struct)
        if field.name not in besides
    }


def _type_name(type_):
    name = type_.__name__ if isinstance(type_, type) and not get_args(type_) else str(type_)
    return re.sub(r"hubbub\.hub\.events\.(\w+\.)?", "", name).replace("typing.", "")


# ── the catalogue ─────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-10")
def test_catalogue_is_the_golden_one():
    assert catalogue() == json.loads(GOLDEN.read_text()), (
        "tags, homes and fields are permanent; if you only added some, "
        "run: uv run python tests/hub/events/test_events.py"
    )


@pytest.mark.spec("R-10")
def test_catalogue_has_at_least_what_the_contract_names():
    assert set(REQUIRED) <= {event.type for event in CATALOGUE}
    assert [e.type for e in CATALOGUE if e.type.startswith("channel:")]


@pytest.mark.spec("R-10")
def test_every_type_has_one_struct_in_the_one_module():
    types = [event.type for event in CATALOGUE]
    assert len(types) == len(set(types))
    rooms = ("agents", "catalogue", "sessions")
    assert {event.__module__ for event in CATALOGUE} == {f"hubbub.hub.events.{x}" for x in rooms}
    tagged = {
        cls
        for cls in vars(events).values()
        if isinstance(cls, type) and issubclass(cls, Event) and ":" in str(cls.__dict__.get("type"))
    }
    assert tagged == set(CATALOGUE), "none is missing in the list"


@pytest.mark.spec("R-10")
def test_every_field_has_a_default_so_that_old_records_read():
    for event in (Event, CustomEvent, *CATALOGUE):
        assert event() == event()
        for field in structs.fields(event):
            assert not field.required, f"{event.__name__}.{field.name}"


@pytest.mark.spec("R-10", "H-06")
def test_homes_are_what_the_design_says():
    homes = {event.type: event.home for event in CATALOGUE}
    for type_, home in homes.items():
        if type_.endswith(":delta") or type_.startswith(("hub:", "channel:")):
            assert home == "none", type_
        elif type_.startswith("agent:"):
            assert home == "own", type_
        elif type_.startswith("schedule:"):
            assert home == "hub", type_
    in_lane = {event.type for event in InLane.__args__}
    assert {type_ for type_, home in homes.items() if home == "in"} == in_lane


@pytest.mark.spec("R-10")
def test_variables_are_named_and_never_carried():
    (variables,) = [event for event in CATALOGUE if event.type == "session:variables"]
    texts = {"request_id", "child_run_id", "child_agent", "name", "message", "owner"}
    own = set(variables.__struct_fields__) - set(Event.__struct_fields__)
    assert own - texts == {"names", "required", "files", "expires_at", "provided_at"}
    assert variables.secret_fields == ()


# ── types that nobody knows (H-13) ───────────────────────────────────────────────────────────

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.anyio
@pytest.mark.spec("H-13")
async def test_unknown_type_is_accepted_carried_journaled_and_read_back_unchanged(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got, stream = [], hub.subscribe("shop:*")
        hub.subscribe("shop:order:placed", got.append)
        data = {"order": 7, "lines": [{"sku": "a", "price": 1.5}, None], "note": "é ✓ \n"}
        await hub.publish(CustomEvent.of("shop:order:placed", **data))
        await hub.publish(CustomEvent.of("shop:order:placed", **data))
        read = await hub.read(types="shop:*")
        assert read == got == [await anext(stream), await anext(stream)]
        for event in read:
            assert event.type == "shop:order:placed"
            assert event.data == data
            assert event.lane == "hub"
        async with hub.subscribe("shop:*", after=START) as replayed:
            assert [await anext(replayed), await anext(replayed)] == got
        stream.close()


@pytest.mark.anyio
@pytest.mark.spec("H-13")
@settings(max_examples=examples(50), deadline=None)
@given(
    data=st.dictionaries(
        st.text().filter(lambda k: k not in ("cls", "type_", "durable")), json_values
    )
)
async def test_any_json_travels_unchanged(data):
    async with Hub(ports=virtual_ports()) as hub:
        await hub.publish(CustomEvent.of("shop:order", **data))
        (event,) = await hub.read()
        assert event.data == data


@pytest.mark.anyio
@pytest.mark.spec("H-13")
async def test_user_s_own_class_travels_as_it_is(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        hub.subscribe("test:order", got.append)
        await hub.publish(OrderPlaced(order_id="7", lines=("a", "b")))
        assert await hub.read(types="test:*") == got
        assert isinstance(got[0], OrderPlaced)
        assert (got[0].order_id, got[0].lines) == ("7", ("a", "b"))


@pytest.mark.anyio
@pytest.mark.spec("H-13")
async def test_run_s_custom_events_stand_in_its_own_lane(journal, ports):
    @agent("shop")
    async def shop(input: str, ctx):
        ctx.hub.emit(CustomEvent.of("shop:order", order=input))
        await ctx.hub.publish(OrderPlaced(order_id=input))

    async with Runtime(agents=[shop], store=journal, ports=ports) as rt:
        run = await rt.start("shop", "7")
        await run.finished()
        events = await rt.hub.read(run.run_id, types=["shop:*", "test:*"])
        assert [event.lane for event in events] == ["own", "own"]
        assert events[0].data == {"order": "7"}
        assert events[1].order_id == "7"


@pytest.mark.spec("H-13")
def test_what_json_cannot_hold_is_refused_where_the_event_is_made():
    with pytest.raises(BadValue, match="shop:order"):
        CustomEvent.of("shop:order", thing=object())


# ── immutable (H-13) ─────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-13")
def test_no_field_of_an_event_can_be_set():
    open_to_change = []
    for event in (CustomEvent, *CATALOGUE):
        made = event()
        for name in made.__struct_fields__:
            with suppress(AttributeError):
                setattr(made, name, getattr(made, name))
                open_to_change.append(f"{event.__name__}.{name}")
    assert open_to_change == []


@pytest.mark.spec("H-13")
def test_no_field_of_an_event_holds_what_can_be_changed():
    for event in CATALOGUE:
        for field in structs.fields(event):
            text, name = _type_name(field.type), f"{event.__name__}.{field.name}"
            assert not any(word in text.lower() for word in ("list", "dict", "set[", "any")), name


@pytest.mark.anyio
@pytest.mark.spec("H-13", "H-20")
async def test_listener_cannot_change_what_the_next_one_sees(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        seen = []

        def spoil(event):
            value = event.data if event.type == "test:tick" else event.metadata
            seen.append(str(value))
            value["list"].append("spoilt")
            value["list"] = "gone"
            value.clear()

        metadata = {"list": [1, {"a": 2}]}
        for _ in range(2):
            hub.subscribe(["test:tick", "session:message"], spoil)
        run_id = (await hub.open("agent")).run_id
        await hub.publish(CustomEvent.of("test:tick", **metadata))
        await hub.send_to_run(run_id, Message("hello", metadata=metadata))
        metadata["list"].append("changed later")
        tick, message = await hub.read(types=["test:tick", "session:message"])
        assert set(seen) == {"{'list': [1, {'a': 2}]}"}
        assert tick.data == message.metadata == {"list": [1, {"a": 2}]}


@pytest.mark.anyio
async def test_user_s_event_with_a_mutable_field_cannot_be_changed_either(ports):
    with pytest.raises(DefinitionError, match="lines"):

        class Spoilable(Event, tag="test:spoilable"):
            lines: list[str] = msgspec.field(default_factory=list)


@pytest.mark.anyio
async def test_custom_event_cannot_pose_as_one_of_the_catalogue():
    with pytest.raises(BadValue):
        CustomEvent.of("agent:complete")


@pytest.mark.anyio
async def test_inherited_secret_is_gone_before_anybody_sees_it(ports):
    class Token(Event, tag="test:token:first"):
        token: Secret = Secret()

    class Renewed(Token, tag="test:token:renewed"):
        times: int = 0

    async with Hub(ports=ports) as hub:
        got = []
        hub.subscribe("test:*", got.append)
        await hub.publish(Renewed(token=Secret("planted")))
        assert got[0].token.reveal() is None


# ── what they look like ──────────────────────────────────────────────────────────────────────


def test_repr_shows_what_was_said_and_no_more():
    assert repr(AgentText(text="hello")) == "AgentText(text='hello')"
    assert repr(CustomEvent.of("shop:order", n=1)) == (
        "CustomEvent(name='shop:order', data={'n': 1})"
    )
    assert SessionMessage().metadata == {}


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(catalogue(), indent=2, ensure_ascii=False) + "\n")
