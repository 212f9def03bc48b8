"""Any event at all: strategies for the catalogue, and for events of one's own.

    events()                    any event of the catalogue, or a ``CustomEvent``
    events(AgentText, MyEvent)  one of these classes
    st.from_type(AgentText)     the same; Hypothesis knows the catalogue (``event_types``)

Guarantees
----------
* ``hub.codec`` reads every event back equal.  So secrets are empty, which is what an event that
  was emitted carries, texts hold no halves of surrogate pairs, and numbers fit 64 bits.
* Each field is left at its default or drawn from its type, nested structs and the unions of
  inbox items included; examples shrink to ``AgentText()``.
* Events are well formed one by one.  A lane that makes sense is what a simulated world writes.
"""

from collections.abc import Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import NODEFAULT, Struct, structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events import CATALOGUE, CustomEvent, Event
from hubbub.hub.values import NULL, Json, Secret, encode_value

__all__ = ["events", "json_values", "values_like"]

T = TypeVar("T")

MAX_ITEMS: Final = 3
"""Items of a tuple, and of each list or object of a JSON value."""

_BIT: Final = 2**63


def events(*classes: type[Event]) -> SearchStrategy[Event]:
    """Events of these classes; without any, of the whole catalogue and ``CustomEvent``.

    Raises ``BadValue`` for what is not an event class, and ``TypeError`` for a class with a field
    of a type that no strategy is known for: name one by ``st.register_type_strategy``.
    """
    for cls in classes:
        if not isinstance(cls, type) or not issubclass(cls, Event):
            remedy = "give classes such as AgentText, or nothing for all of them"
            raise BadValue("events", f"{cls!r} is not an event class; {remedy}")
    wanted: tuple[type[Event], ...] = classes or (*CATALOGUE, CustomEvent)
    return st.sampled_from(wanted).flatmap(_event_of)


def json_values() -> SearchStrategy[Any]:
    """Values that JSON can hold, and that come back equal."""
    leaves = (
        st.none() | st.booleans() | st.integers(-_BIT, _BIT - 1) | st.text() | st.floats(-1e9, 1e9)
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=MAX_ITEMS)
            | st.dictionaries(st.text(), inner, max_size=MAX_ITEMS)
        ),
        max_leaves=5,
    )


def values_like(cls: type[Any]) -> SearchStrategy[Any]:
    """What ``st.from_type`` gives for an event, ``Event``, or what events are made of."""
    return events() if cls is Event else _values_of(cls)


# ── by the types of fields ───────────────────────────────────────────────────────────────────


def _event_of(cls: type[Event]) -> SearchStrategy[Event]:
    return _structs_of(cls)


@cache
def _structs_of(cls: type[T]) -> SearchStrategy[T]:
    """Structs of one class: what has a default may be left at it."""
    wanted: dict[str, SearchStrategy[Any]] = {}
    optional: dict[str, SearchStrategy[Any]] = {}
    for field in structs.fields(cast("type[Struct]", cls)):
        has_default = field.default is not NODEFAULT or field.default_factory is not NODEFAULT
        (optional if has_default else wanted)[field.name] = _values_of(field.type)
    if cls is CustomEvent:
        known = frozenset(event.type for event in CATALOGUE)
        optional["name"] = st.text().filter(lambda name: name not in known)

    def build(fields: dict[str, Any]) -> T:
        return cls(**fields)

    return st.fixed_dictionaries(wanted, optional=optional).map(build)


def _values_of(kind: Any) -> SearchStrategy[Any]:
    simple = _SIMPLE.get(kind) if isinstance(kind, type) else None
    if simple is not None:
        return simple
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and inner[1:] == (...,):
        return st.lists(_values_of(inner[0]), max_size=MAX_ITEMS).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_values_of, inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of(*map(_values_of, sorted(inner, key=lambda each: each is not NoneType)))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _structs_of(kind)
    if origin is Annotated:
        return _values_within(inner[0], inner[1:])
    return st.from_type(kind)


def _values_within(kind: Any, bounds: Iterable[object]) -> SearchStrategy[Any]:
    """Values of a type that is a number above 0, below a most."""
    most = [each.lt for each in bounds if isinstance(each, msgspec.Meta) and each.lt is not None]
    most += [_BIT]
    if kind is int:
        return st.integers(1, int(most[0]) - 1)
    return st.floats(0, float(most[0]), exclude_min=True, exclude_max=True)


def _json() -> SearchStrategy[Json]:
    return st.just(NULL) | json_values().map(lambda value: encode_value("value", value))


_SIMPLE: Final[dict[type, SearchStrategy[Any]]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.integers(-_BIT, _BIT - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    msgspec.Raw: _json(),
    Secret: st.builds(Secret),
}
