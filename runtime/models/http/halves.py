"""Halves of surrogate pairs in a provider's answer: joined where both came, else ``�``.

JSON may hold half of a pair as an escape, ``"\\ud83d"``, and a server that cuts an answer by UTF-16
units sends one character of two halves in two deltas.  msgspec refuses such a text, so

    an event's bytes ─► ``AnswerDecoder``: where msgspec refuses it, ``json`` keeps the halves
    the deltas       ─► ``WholeDeltas``: the first half is kept until the other one comes
    the reply        ─► ``whole_reply``: whatever is still half is replaced

and the deltas together say what the reply says.  An answer without halves takes msgspec's way.

What is decoded has bounds beside its size: a server could make much more of few bytes.
"""

import json
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec
from msgspec import Raw, Struct, inspect
from msgspec.structs import replace

from hubbub.agents.model import CallDelta, Delta, ModelReply, OnDelta, TextDelta, ThinkingDelta
from hubbub.hub.texts import readable

__all__ = ["UNREADABLE", "AnswerDecoder", "WholeDeltas", "encoded", "whole_reply"]

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON of the form expected; nested too deeply, too."""

MAX_OBJECTS: Final = 500_000
"""The most objects that are made of one event or body."""

MAX_HALVED_BYTES: Final = 1024 * 1024
"""The most that is decoded with halves, for which each value becomes an object at first."""

_T = TypeVar("_T")
_PartT = TypeVar("_PartT", bound=Struct)


class AnswerDecoder(Generic[_T]):
    """Decodes JSON of one type; raises what ``UNREADABLE`` lists.

    Lists in the type are to be of objects: only these are counted before they are made.
    """

    __slots__ = ("_decode", "_type")

    def __init__(self, type_: type[_T]) -> None:
        self._type = type_
        self._decode = msgspec.json.Decoder(type_).decode

    def __call__(self, data: bytes | Raw) -> _T:
        size = len(memoryview(data))
        # No type makes more objects than there are braces, nor less than three bytes hold one.
        if size > MAX_OBJECTS * 3 and bytes(data).count(b"{") > MAX_OBJECTS:
            raise msgspec.DecodeError(f"it holds more than {MAX_OBJECTS:,} objects")
        try:
            return self._decode(data)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refused = error
        if size > MAX_HALVED_BYTES:
            raise refused
        try:
            text = bytes(data).decode("utf-8", "surrogatepass")
            found = json.loads(text, parse_constant=_refuse)
            shaped = _shaped(found, inspect.type_info(self._type))
        except (ValueError, RecursionError):
            raise refused from None
        return msgspec.convert(shaped, self._type)


class WholeDeltas:
    """Hands deltas on to ``on_delta``, each with a text that is whole."""

    __slots__ = ("_halves", "_on_delta")

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._halves: dict[tuple[type[Delta], int], Delta] = {}
        """The first halves that wait for the other one, by what they are part of."""

    def __call__(self, delta: Delta) -> None:
        text = delta.text
        if text.isascii() and not self._halves:
            self._on_delta(delta)
            return
        begun = self._halves.pop(part := _part_of(delta), None)
        joined = text if begun is None else begun.text + text
        if "\ud800" <= joined[-1:] <= "\udbff":
            self._halves[part] = replace(delta, text=joined[-1])
            joined = joined[:-1]
        if joined or not text:
            self._on_delta(replace(delta, text=readable(joined)))

    def end(self) -> None:
        """Nothing more comes: what still waits is said as ``�``."""
        for delta in self._halves.values():
            self._on_delta(replace(delta, text=readable(delta.text)))
        self._halves.clear()


def whole_reply(reply: ModelReply) -> ModelReply:
    """``reply`` without halves; the same object where it has none."""
    parts = (*reply.thinking, *reply.calls)
    if not any(map(_has_half, (reply, *parts))):
        return reply
    return replace(
        _with_whole_texts(reply),
        thinking=tuple(map(_with_whole_texts, reply.thinking)),
        calls=tuple(map(_with_whole_texts, reply.calls)),
    )


def encoded(value: Any) -> bytes:
    """``value``, part of an answer, as JSON again."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return readable(json.dumps(value, ensure_ascii=False)).encode()


def _has_half(part: Struct) -> bool:
    return any(readable(text) != text for text in _texts_of(part).values())


def _with_whole_texts(part: _PartT) -> _PartT:
    return replace(part, **{name: readable(text) for name, text in _texts_of(part).items()})


def _texts_of(part: Struct) -> dict[str, str]:
    fields = ((name, getattr(part, name)) for name in part.__struct_fields__)
    return {name: value for name, value in fields if isinstance(value, str)}


def _part_of(delta: Delta) -> tuple[type[Delta], int]:
    match delta:
        case TextDelta():
            return TextDelta, 0
        case ThinkingDelta(block=number) | CallDelta(index=number):
            return type(delta), number


def _shaped(found: Any, form: inspect.Type) -> Any:
    """``found`` as ``convert`` takes it: the members that ``form`` has, what is ``Raw`` written."""
    match form:
        case inspect.RawType():
            # A text may be half of what comes in two deltas; nothing else is put together.
            return Raw(json.dumps(found).encode() if isinstance(found, str) else encoded(found))
        case inspect.UnionType(types=types):
            shaped = (_shaped(found, each) for each in types)
            return next((each for each in shaped if each is not found), found)
        case inspect.ListType(item_type=item) if isinstance(found, list):
            return [_shaped(each, item) for each in found]
        case inspect.StructType(fields=fields, array_like=True) if isinstance(found, list):
            return [_shaped(each, f.type) for each, f in zip(found, fields, strict=False)]
        case inspect.StructType(fields=fields) if isinstance(found, dict):
            known = {f.encode_name: f.type for f in fields}
            return {n: _shaped(each, known[n]) for n, each in found.items() if n in known}
        case _:
            return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
