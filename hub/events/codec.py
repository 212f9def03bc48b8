"""Events as bytes: one JSON object each, for stores, logs and the wire.

    {"type": "agent:text", "at": …, "run_id": …, "lane": "own", "seq": 7, "text": "Hello"}

* Fields that have their default value are left out.
* A ``CustomEvent`` has its own type, and what it carries under ``data``.
* A type this program does not know becomes a ``CustomEvent`` if it looks like one, else an
  ``UnknownEvent``; either encodes back into the same object.
* A ``Secret`` is written as ``***`` and read back empty.
"""

from functools import cache
from typing import Any, Final, TypeVar, Union

import msgspec
from msgspec import Struct, structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events.catalogue import CATALOGUE
from hubbub.hub.events.event import CustomEvent, Event
from hubbub.hub.texts import check_id_size, check_label, check_text, readable
from hubbub.hub.values import NULL, Json, decode_hook, decode_value, encode_hook

__all__ = [
    "UnknownEvent", "check_event", "check_texts", "decode_event", "encode_event", "event_as",
]  # fmt: skip


E = TypeVar("E", bound=Event)


class UnknownEvent(Event, tag="unknown"):
    """An event of a class that this program does not have, with its fields as they came."""

    name: str = ""
    fields_json: Json = msgspec.field(name="fields", default=NULL)

    @property
    def fields(self) -> dict[str, Any]:
        """What the event says beyond the common fields; a fresh dict each time."""
        return decode_value(self.fields_json) or {}


def _name_as_type(self: UnknownEvent) -> str:
    return self.name


# As in ``CustomEvent``: in the class body it would become part of the struct's definition.
UnknownEvent.type = property(_name_as_type)  # type: ignore[assignment]

_NAMED: Final = (CustomEvent, UnknownEvent)
_RESERVED: Final = frozenset(("", "custom", "unknown", *(event.type for event in CATALOGUE)))
"""Names under which a custom event would be read back as something else."""
_COMMON: Final = frozenset(Event.__struct_fields__)
_LABELS: Final = ("run_id", "root_run_id", "parent_run_id", "agent", "side", "label", "call_id")
"""The common fields that name something."""
_IDS: Final = frozenset(_LABELS[:3])
_encoder: Final = msgspec.json.Encoder(enc_hook=encode_hook)


def encode_event(event: Event) -> bytes:
    """``event`` as one JSON object.

    ``decode_event`` returns an equal event, except for secrets, which are empty then, and for
    halves of surrogate pairs in texts, which JSON cannot hold and which become ``�``.  Raises
    ``BadValue`` for a user's own event with a field that JSON cannot hold.
    """
    try:
        return _encode(event)
    except UnicodeEncodeError:
        return _encode(_without_surrogates(event))
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise BadValue(event.type, f"{error}; use values that msgspec can encode") from error


def check_event(event: Event) -> None:
    """Raise ``BadValue``, now, for an event of somebody's that no store could keep, or that
    nobody could read back."""
    check_texts(event)
    try:
        decode_event(_encode(event))
        for name in _raw_fields(event.__class__):
            decode_value(getattr(event, name))
    except (
        TypeError,
        ValueError,
        OverflowError,
        NotImplementedError,
        RecursionError,
        BadValue,
    ) as error:
        raise BadValue(event.type, f"{error}; use values that msgspec can encode") from error


def check_texts(event: Event) -> None:
    """Raise ``BadValue`` for an event with a text that is none, or a name that is none."""
    own = _own_fields(event.__class__)
    if own is not None and not (  # Nearly all name nothing, and this stands at every emit.
        event.run_id or event.root_run_id or event.parent_run_id or event.agent or event.side
        or event.label or event.call_id or event.lane or event.turn
    ):  # fmt: skip
        for name in own:
            value = getattr(event, name)
            if value.__class__ is str and not value.isascii():
                break
        else:
            return
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value.__class__ is str and not value.isascii():
            check_text(f"{event.__class__.__name__}.{name}", value)
    check_label("type", event.type)
    for name in _LABELS:
        if value := getattr(event, name):
            check_label(name, value)
            if name in _IDS:
                check_id_size(name, value)


def _encode(event: Event) -> bytes:
    name = event.type if isinstance(event, _NAMED) else None
    if name is None or name in _RESERVED:
        return _encoder.encode(event)
    return _encode_named(event, name)


def _encode_named(event: Event, name: str) -> bytes:
    """Put the event's own name in the place of its class's, its fields beside the common ones."""
    unknown = isinstance(event, UnknownEvent)
    fields = b""
    if isinstance(event, UnknownEvent) and event.fields_json is not NULL:
        fields = bytes(event.fields_json).strip()[1:-1]
    blank = {"name": "", "fields_json": NULL} if unknown else {"name": ""}
    text = _encoder.encode(structs.replace(event, **blank))
    head = b'{"type":' + _encoder.encode(name)
    tail = text[len(b'{"type":"unknown"' if unknown else b'{"type":"custom"') :]
    if fields.strip():
        tail = tail[:-1] + b"," + fields + b"}"
    return head + tail


def decode_event(data: bytes | bytearray | memoryview | str) -> Event:
    """The event that ``data`` encodes; raises ``BadValue`` for what is no event."""
    try:
        return _known_events().decode(data)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        # Most events are of known types: whether this one is, is asked only now.
        problem = str(error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue("event", f"{error}; expected JSON") from None
    try:
        fields = _objects().decode(data)
        name = msgspec.json.decode(fields.get("type", NULL), type=str)
    except msgspec.ValidationError:
        raise BadValue("event", "expected a JSON object with a text 'type'") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue("event", f"{error}; expected JSON") from None
    if name in _RESERVED:
        raise BadValue(f"event {name!r}", problem)
    return _decode_named(name, fields, data)


def event_as(event: Event, kinds: tuple[type[E], ...]) -> E:
    """An event of a class that is the caller's own, read as that class.

    Raises ``BadValue`` for one that has the class's type, and not its fields.
    """
    kind = next((each for each in kinds if each.type == event.type), None)
    if kind is None:
        raise BadValue(event.type, f"expected {' or '.join(each.__name__ for each in kinds)}")
    try:
        return msgspec.json.decode(encode_event(event), type=kind, dec_hook=decode_hook)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadValue(event.type, f"no {kind.__name__}: {error}") from None


def _decode_named(
    name: str, fields: dict[str, Json], data: bytes | bytearray | memoryview | str
) -> Event:
    own = {key: value for key, value in fields.items() if key != "type" and key not in _COMMON}
    try:
        common = structs.asdict(_common_fields().decode(data))
    except msgspec.ValidationError as error:
        raise BadValue(f"event {name!r}", str(error)) from None
    durable = bytes(own.get("durable", NULL))
    if own.keys() <= {"data", "durable"} and (
        "durable" not in own or durable in (b"true", b"false")
    ):
        return CustomEvent(
            **common,
            name=name,
            data_json=_kept(own["data"]) if "data" in own else NULL,
            durable={b"true": True, b"false": False}.get(durable),
        )
    parts = (_encoder.encode(key) + b":" + bytes(value) for key, value in own.items())
    return UnknownEvent(
        **common, name=name, fields_json=msgspec.Raw(b"{" + b",".join(parts) + b"}")
    )


def _kept(value: Json) -> Json:
    """A value that does not keep the whole text alive it was read from."""
    return value.copy()


# Built at the first use: a program that reads no bytes does not pay for them.


@cache
def _known_events() -> msgspec.json.Decoder[Any]:
    known: Any = Union[(*CATALOGUE, CustomEvent, UnknownEvent)]
    return msgspec.json.Decoder(known, dec_hook=decode_hook)


@cache
def _own_fields(kind: type[Event]) -> tuple[str, ...] | None:
    """The fields of a class that are not common ones; ``None`` where each event has its own type.
    Raises ``BadValue`` for a class whose type is none."""
    if issubclass(kind, _NAMED):
        return None
    check_label("type", kind.type)
    return tuple(name for name in kind.__struct_fields__ if name not in _COMMON)


@cache
def _raw_fields(kind: type[Event]) -> tuple[str, ...]:
    return tuple(field.name for field in structs.fields(kind) if field.type is Json)


@cache
def _objects() -> msgspec.json.Decoder[dict[str, Json]]:
    return msgspec.json.Decoder(dict[str, Json])


@cache
def _common_fields() -> msgspec.json.Decoder[Any]:
    fields = [(field.name, field.type, field.default) for field in structs.fields(Event)]
    return msgspec.json.Decoder(msgspec.defstruct("CommonFields", fields))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, tuple):
        return tuple(_without_surrogates(item) for item in value)
    if isinstance(value, Struct):
        return structs.replace(
            value,
            **{
                field: _without_surrogates(getattr(value, field))
                for field in value.__struct_fields__
            },
        )
    return value
