"""Scoped event fields: a context variable, so that parallel tasks never mix theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, Final

from msgspec import structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.texts import check_id_size, check_labels
from hubbub.hub.values import check_counts

__all__ = ["FIELDS", "clear", "current", "restore", "scoped", "stamped"]

FIELDS: Final = frozenset(
    ("run_id", "root_run_id", "parent_run_id", "agent", "side", "label", "turn", "call_id")
)

_fields: ContextVar[dict[str, Any] | None] = ContextVar("hubbub_scope", default=None)

current = _fields.get


def clear() -> Token[dict[str, Any] | None]:
    """Leave every scope until ``restore``."""
    return _fields.set(None)


restore = _fields.reset


def stamped(event: Event, at: int, seq: int = 0) -> Event:
    """An event that is emitted now, with the fields of its scope that it does not give."""
    fields = current()
    if not fields:
        return structs.replace(event, at=at, lane="", seq=seq)
    missing = {name: value for name, value in fields.items() if not getattr(event, name)}
    return structs.replace(event, at=at, lane="", seq=seq, **missing)


@contextmanager
def scoped(fields: dict[str, Any]) -> Iterator[None]:
    """Add ``fields`` to every event this task emits; undone on leaving, however that happens."""
    unknown = fields.keys() - FIELDS
    if unknown:
        raise BadValue(
            "scoped",
            f"unknown fields {', '.join(sorted(unknown))}; use {', '.join(sorted(FIELDS))}",
        )
    check_labels(**{name: value for name, value in fields.items() if name != "turn"})
    for name, value in fields.items():
        if name == "turn" and value.__class__ is not int:
            raise BadValue("turn", f"expected an int, not {type(value).__name__}")
        if name == "turn":
            check_counts(0, turn=value)
        elif name.endswith("run_id"):
            check_id_size(name, value)
        if value is None and name != "parent_run_id":
            raise BadValue(name, "expected a str, not None; leave it out")
    token = _fields.set({**(current() or {}), **fields})
    try:
        yield
    finally:
        _fields.reset(token)
