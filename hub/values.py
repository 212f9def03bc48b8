"""Values that cross the hub: JSON inside an event, a fresh copy for every reader.

An event is immutable, so a value of any shape travels as ``msgspec.Raw``, the JSON text
itself, and is decoded again whenever somebody looks.

A struct does not look at what it is made of.  One that users build is checked where it enters, by
its ``Form``: a value of another type than its field's could be written, and never read back.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate
from typing import Any, Final, Generic, TypeAlias, TypeGuard, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct, structs

from hubbub.hub.errors import BadValue
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.texts import text_problem

__all__ = [
    "COUNTED",
    "LIMIT_OF_TIME",
    "NULL",
    "Form",
    "Json",
    "JsonValue",
    "Secret",
    "check_counts",
    "check_flag",
    "check_grace",
    "check_options",
    "check_seconds",
    "check_seq",
    "decode_hook",
    "decode_value",
    "encode_given",
    "encode_hook",
    "encode_mapping",
    "encode_value",
    "encoded_value",
    "is_count",
    "is_seconds",
    "is_time_limit",
]

T = TypeVar("T", bound=Struct)

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""What comes of JSON when it is read without a type."""
Json: TypeAlias = msgspec.Raw

NULL: Final[Json] = msgspec.Raw(b"null")

MAX_SECONDS: Final = 10.0 * 365 * 86_400
MAX_COUNT: Final = 2**63 - 1

COUNTED: Final = "at least 1 and below 2**63"
"""What ``is_count`` is true of, in a message."""

LIMIT_OF_TIME: Final = f"seconds above 0 and below {MAX_SECONDS:,.0f}"
"""What ``is_time_limit`` is true of, in a message."""


class Secret:
    """A value that only the runtime it is addressed to can read.

    ``repr``, ``str`` and every encoding show ``***``.  When an event that holds a secret is
    emitted, the value moves to the hub's ``Secrets`` port before anybody sees the event; what
    the event then carries is an empty ``Secret``.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | None = None) -> None:
        if value is not None and not isinstance(value, str):
            raise BadValue("Secret", f"expected a text, not {kind_of(value)}")
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


MAX_NESTING: Final = 500
"""Lists and objects inside of each other.  Python's own limit depends on who calls."""

_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_BRACKET: Final = bytes(each for each in range(256) if each not in b"[]{}")
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_TOGETHER: Final = 128
"""Brackets that are looked at together, where they cannot be too deep."""

_PLAIN: Final = frozenset((str, int, float, bool))

_encoder = msgspec.json.Encoder(enc_hook=encode_hook)
_decoder = msgspec.json.Decoder()


def _refuse_secret(value: object) -> object:
    if isinstance(value, Secret):
        raise NotImplementedError("a Secret would be ***: it is given as a variable, by env={...}")
    return encode_hook(value)


_encoder_of_given = msgspec.json.Encoder(enc_hook=_refuse_secret)


def encode_value(
    what: str, value: object, *, encode: Callable[[object], bytes] = _encoder.encode
) -> Json:
    """``value`` as JSON text; ``BadValue`` names ``what`` when msgspec cannot encode it."""
    if value is None:
        return NULL
    try:
        encoded = encode(value)
        if value.__class__ is not str:
            _check(value, encoded)
    except (
        TypeError,
        ValueError,
        OverflowError,
        NotImplementedError,
        RecursionError,
        msgspec.DecodeError,
    ) as error:
        half = text_problem(error.object) if isinstance(error, UnicodeEncodeError) else ""
        problem = half or f"{error}; use values that msgspec can encode as JSON"
        raise BadValue(what, problem) from error
    return msgspec.Raw(encoded)


encode_given: Final = partial(encode_value, encode=_encoder_of_given.encode)
"""``encode_value`` of what somebody is given to work with: a ``Secret`` in it is refused, for who
got it would work with ``***``."""


def encode_mapping(what: str, value: Mapping[str, Any]) -> Json:
    """A mapping that somebody is given, as ``encode_given`` does it; ``BadValue`` for one that
    raises when it is read."""
    try:
        copied = dict(value)
    except Exception as error:
        raise BadValue(what, f"it cannot be read: {type(error).__name__}") from error
    return encode_given(what, copied)


def encoded_value(value: object) -> bytes:
    """``value`` as JSON; raises ``ValueError`` for NaN and infinity, and what msgspec raises."""
    encoded = _encoder.encode(value)
    _check(value, encoded)
    return encoded


def _check(value: object, encoded: bytes) -> None:
    """Raise ``ValueError``, or what msgspec raises, for what cannot be read back as it is."""
    if b"null" in encoded:
        _check_range(value)
    if encoded.count(b"[") + encoded.count(b"{") > MAX_NESTING:
        _check_nesting(encoded)
    if value.__class__ not in _PLAIN:
        _decoder.decode(encoded)  # A ``Raw`` in it is written as it is, whatever that is.


def _check_nesting(encoded: bytes) -> None:
    """Raise ``ValueError`` for JSON that only a caller with more stack could read again."""
    brackets = _TEXT.sub(b"", encoded).translate(None, _NO_BRACKET)
    depth = deepest = 0
    for start in range(0, len(brackets), _TOGETHER):
        some = brackets[start : start + _TOGETHER]
        opened = some.count(b"[") + some.count(b"{")
        if depth + opened > MAX_NESTING:
            deepest = max(deepest, *accumulate(map(_STEP.__getitem__, some), initial=depth))
        depth += 2 * opened - len(some)
    if deepest > MAX_NESTING:
        raise ValueError(f"lists and objects nested {deepest:,} deep; {MAX_NESTING} at most")


def _check_range(value: object) -> None:
    """Raise ``ValueError`` for what msgspec writes as null, which is another value."""
    if _is_out_of_range(msgspec.to_builtins(value, enc_hook=_plain)):
        raise ValueError("a number out of range (NaN or infinity)")


def _plain(value: object) -> object:
    return _decoder.decode(value) if isinstance(value, msgspec.Raw) else encode_hook(value)


def _is_out_of_range(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_is_out_of_range(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(map(_is_out_of_range, value))


def decode_value(value: Json, type_: Any = Any) -> Any:
    """A fresh copy of an encoded value, converted to ``type_`` where one is given."""
    if type_ is Any:
        return None if value is NULL else _decoder.decode(value)
    return msgspec.json.decode(value, type=type_, strict=False)


# ── values that users build ──────────────────────────────────────────────────────────────────


class Form(Generic[T]):
    """The fields of a struct and their types, for values of it that users build."""

    __slots__ = ("kind", "read", "write")

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.write = _encoder.encode
        """A value as JSON, and back (``read``): where that gives an equal one it fits.  On a hot
        path this is compared there, and ``problem`` asked only where it does not."""
        self.read = msgspec.json.Decoder(kind, dec_hook=decode_hook).decode

    def problem(self, value: object) -> str:
        """Why ``value`` does not fit, with the field's name and what it is to be; else empty."""
        try:
            if self.read(self.write(value)) == value:
                return ""
        except Exception:  # Which field it is, is looked for now.
            pass
        try:
            return _misfit(value, self.kind, "")
        except Exception as error:
            return f"it cannot be written as JSON: {type(error).__name__}"


def _misfit(value: Any, kind: Any, path: str) -> str:
    """The first part of ``value`` that does not fit; subclasses of structs do."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        if not isinstance(value, kind):
            return _said_of(path, kind, value)
        parts = [(f"{path}.{f.name}", getattr(value, f.name), f.type) for f in structs.fields(kind)]
        return _first(_misfit(part, each, name) for name, part, each in parts)
    if get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return _said_of(path, tuple, value)
        of = get_args(kind)[0]
        return _first(_misfit(part, of, f"{path}[{i}]") for i, part in enumerate(value))
    try:
        if msgspec.json.decode(_encoder.encode(value), type=kind, dec_hook=decode_hook) == value:
            return ""
    except UnicodeEncodeError as error:
        if kind is not str:
            return _said_of(path, kind, value)
        half = ascii(error.object[error.start])
        return f"its {path.lstrip('.')} is no text: {half} is half of a surrogate pair"
    except Exception:  # A value of whatever kind.
        pass
    return _said_of(path, kind, value)


def _first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def _said_of(path: str, kind: Any, value: Any) -> str:
    wanted = kind.__name__ if isinstance(kind, type) else str(kind)
    article = "an" if wanted[:1] in "aeiou" else "a"
    # Of the right class, and yet no such value: NaN.
    found = repr(value) if value.__class__ is kind else type(value).__name__
    name = path.lstrip(".")
    return f"{f'its {name}' if name else 'it'} must be {article} {wanted}, not {found}"


def check_seq(seq: object) -> None:
    """Raise ``BadValue`` for what is no number of a record, and not ``None``."""
    if seq is not None and (not isinstance(seq, int) or seq is True):
        raise BadValue("seq", f"expected the number of a record, not {kind_of(seq)}")


def check_counts(least: int, /, **counts: object) -> None:
    """Raise ``BadValue`` for what is no whole number of at least ``least``."""
    for what, count in counts.items():
        if not is_count(count, least):
            wanted = f"a whole number of at least {least}"
            if isinstance(count, int) and count > MAX_COUNT:
                wanted = "a number that fits into 64 bits"
            raise BadValue(what, f"expected {wanted}, not {shown(count)}")


def is_count(value: object, least: int = 1) -> bool:
    """Whether it is a whole number of at least ``least`` that fits into 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value <= MAX_COUNT


def check_flag(what: str, value: object) -> None:
    """Raise ``BadValue`` for what is neither True nor False."""
    if value.__class__ is not bool:
        raise BadValue(what, f"expected True or False, not {kind_of(value)}")


def check_seconds(what: str, value: object) -> None:
    """Raise ``BadValue`` for what is no time that a store could keep and a clock wait for."""
    if value is None:
        return
    if value.__class__ is not int and value.__class__ is not float:
        raise BadValue(what, f"expected a number of seconds, not {kind_of(value)}")
    if not 0 <= value < MAX_SECONDS:
        raise BadValue(what, f"expected seconds from 0 to {MAX_SECONDS:,.0f}")


def check_grace(what: str, value: object) -> None:
    """Raise ``BadValue`` for what is no time to wait at most; infinity is one."""
    if not (is_seconds(value) or (value.__class__ is float and value == math.inf)):
        wanted = f"seconds of at least 0, below {MAX_SECONDS:,.0f} or infinite"
        raise BadValue(what, f"expected {wanted}, not {shown(value)}")


def is_seconds(value: object) -> TypeGuard[float]:
    """Whether it is a time from 0 on that a store could keep and a clock wait for."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value < MAX_SECONDS


def is_time_limit(value: object) -> TypeGuard[float]:
    """Whether it is such a time above 0."""
    return is_seconds(value) and value > 0


def check_options(what: str, value: object) -> tuple[Any, ...]:
    """Several values as a tuple; raises ``BadValue`` for one text, or what is no collection."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise BadValue(what, f"expected several values, not {kind_of(value)}")
    return tuple(value)
