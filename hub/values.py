"""Values that cross the hub: JSON inside an event, a fresh copy for every reader.

An event is immutable, so a value of any shape travels as ``msgspec.Raw``, the JSON text
itself, and is decoded anew whenever somebody looks.
"""

from typing import Any, Final, TypeAlias

import msgspec

from hubbub.hub.errors import BadValue

__all__ = [
    "NULL",
    "Json",
    "Secret",
    "decode_hook",
    "decode_value",
    "encode_hook",
    "encode_value",
]

Json: TypeAlias = msgspec.Raw

NULL: Final[Json] = msgspec.Raw(b"null")


class Secret:
    """A value that only the runtime it is addressed to can read.

    ``repr``, ``str`` and every encoding show ``***``.  When an event that holds a secret is
    emitted, the value moves to the hub's ``Secrets`` port before anybody sees the event; what
    the event then carries is an empty ``Secret``.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    def reveal(self) -> str | None:
        """The value, or ``None`` once the secret has been emitted."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type["Secret"], tuple[()]]:
        # Pickling and copying would be further ways out for the value.
        return (Secret, ())


def encode_hook(value: object) -> object:
    """What msgspec cannot encode by itself: secrets, as ``***``."""
    if isinstance(value, Secret):
        return "***"
    raise NotImplementedError(f"cannot encode objects of type {type(value).__name__}")


def decode_hook(type_: type, value: object) -> object:
    """The reverse of ``encode_hook``: a secret that was written down is empty."""
    if type_ is Secret:
        return Secret()
    raise NotImplementedError(f"cannot decode objects of type {type_.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=encode_hook)
_decoder = msgspec.json.Decoder()


def encode_value(what: str, value: object) -> Json:
    """``value`` as JSON text; ``BadValue`` names ``what`` when msgspec cannot encode it."""
    if value is None:
        return NULL
    try:
        return msgspec.Raw(_encoder.encode(value))
    except (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError) as error:
        raise BadValue(what, f"{error}; use values that msgspec can encode as JSON") from error


def decode_value(value: Json, type_: Any = Any) -> Any:
    """A fresh copy of an encoded value, converted to ``type_`` where one is given."""
    if type_ is Any:
        return None if value is NULL else _decoder.decode(value)
    return msgspec.json.decode(value, type=type_, strict=False)
