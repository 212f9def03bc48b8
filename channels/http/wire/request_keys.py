"""Under which a client's request counts once: its ``Idempotency-Key``, and a digest of the rest.

The key counts where it was sent to (the path), and everything that the body says counts with it,
but for the values of variables: of those nothing is to be known, not even a digest.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from hubbub.channels.http.wire.host import SOURCE
from hubbub.hub.store.journal import RequestKey
from hubbub.hub.values import Secret

__all__ = ["request_key"]


def request_key(key: str, path: Sequence[str], body: object) -> RequestKey | None:
    """The key of a request to a path; ``None`` where its client has given none."""
    if not key:
        return None
    return RequestKey(_digest((SOURCE, *path, key)), _digest(body))


def _digest(content: object) -> str:
    text = msgspec.json.encode(_said(content), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:40]


def _said(value: Any) -> Any:
    """What a body says: a field that a later version adds is not said by an earlier one's."""
    if isinstance(value, Secret):
        return ""
    if isinstance(value, Struct):
        fields = [(x, getattr(value, x.name)) for x in _fields(type(value))]
        return {
            x.encode_name: _said(each) for x, each in fields
            if each != _default_of(x) and not _is_null(each)
        }  # fmt: skip
    if isinstance(value, msgspec.Raw):  # How it is spelled is not what it says.
        return msgspec.json.decode(value)
    if isinstance(value, Mapping):
        return {name: _said(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_said(each) for each in value]
    return value


def _is_null(value: Any) -> bool:
    """Whether an object is left out by saying so."""
    return isinstance(value, msgspec.Raw) and bytes(value) == b"null"


@cache
def _fields(type_: type[Struct]) -> tuple[FieldInfo, ...]:
    """Found once for each type: there may be very many messages in a body."""
    return msgspec.structs.fields(type_)


def _default_of(field: FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()
