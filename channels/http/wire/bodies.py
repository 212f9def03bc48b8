"""Bodies and queries: bytes of strangers, as objects of our types or as a ``Refusal``.

Nothing is decompressed: a compressed body is refused, so that a small one cannot become large.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.problems import ClientGone, Refusal
from hubbub.channels.http.wire.route import JSON, header_of
from hubbub.hub.near_misses import shown
from hubbub.hub.values import Secret

__all__ = [
    "FORM", "MAX_KEY", "check_framing", "check_key", "json_problem", "read_body",
    "read_json", "read_query",
]  # fmt: skip


FORM: Final = "application/x-www-form-urlencoded"


MAX_KEY: Final = 255
"""Characters of an ``Idempotency-Key``."""

MAX_WORDS: Final = 400
"""Characters of a decoder's words that are repeated."""

_OF_A_TOOL: Final = "a tool has name, description, schema (of its parameters) and timeout"
"""Said where a tool has another field, such as the ``parameters`` of OpenAI's."""


async def read_body(
    scope: Scope, receive: Receive, host: Host, *, most: int | None = None
) -> bytes:
    """The whole body.

    Raises ``Refusal`` for one that is too large (also where it is sent in chunks, and beside what
    others send), compressed, or not there in time, or not when the app closes, and ``ClientGone``.
    """
    limits = host.limits
    most = limits.body_bytes if most is None else most
    if header_of(scope, b"content-encoding") not in ("", "identity"):
        raise Refusal("unsupported-media-type", "send the body as it is, without compression")
    length = header_of(scope, b"content-length")
    if length.isdecimal() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)
    with host.reading():
        return await _whole(receive, most, host)
    if host.ending.is_set():
        raise Refusal(
            "closed", "the app closes before the body is here",
            headers={"connection": "close", "retry-after": "1"},
        )  # fmt: skip
    raise Refusal(
        "slow-body", f"it must be there within {limits.body_seconds:g} s",
        headers={"connection": "close"},
    )  # fmt: skip


async def _whole(receive: Receive, most: int, host: Host) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientGone
            part: bytes = message.get("body", b"")
            if size + len(part) > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return part if not parts else b"".join((*parts, part))
            parts.append(part)
            size += len(part)
            host.arriving += len(part)
            if size < host.arriving > host.limits.arriving_bytes:  # What comes alone may be more.
                raise Refusal(
                    "too-many-requests", "others send much at the moment; send it again later",
                    headers={"connection": "close", "retry-after": "5"},
                )  # fmt: skip
    finally:
        host.arriving -= size


def _too_large(most: int) -> Refusal:
    return Refusal("too-large", f"at most {most:,} bytes are read", headers={"connection": "close"})


async def read_json(
    scope: Scope,
    receive: Receive,
    type_: Any,
    host: Host,
    *,
    form: Callable[[Mapping[str, str]], Any] | None = None,
    most: int | None = None,
) -> Any:
    """The body as an object of ``type_``; no body at all is one with nothing but defaults.

    ``form`` makes it of the fields of an HTML form.  Raises ``Refusal`` for what is no JSON, does
    not fit, or says that it is something else.
    """
    body = await read_body(scope, receive, host, most=most)
    media_type = header_of(scope, b"content-type").partition(";")[0].strip().lower()
    if not body and not media_type:
        body, media_type = b"{}", JSON
    try:
        if media_type == FORM and form is not None:
            return form({name: found[-1] for name, found in _values(body).items()})
        if media_type != JSON and not media_type.endswith("+json"):
            raise Refusal("unsupported-media-type", f"send {JSON}")
        return _decoder(type_).decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refusal("invalid-request", f"the body: {json_problem(error, body)}") from None


def json_problem(error: Exception, text: bytes | str) -> str:
    """What is wrong with a text as JSON; the decoder's words do not tell some things apart."""
    if not text.strip():
        return "it is empty; JSON is expected"
    if isinstance(error, msgspec.DecodeError) and str(error) == "Input data was truncated":
        return "the JSON ends too early, or a text in it has half of a surrogate pair"
    words = _in_short(str(error))
    is_of_tool = "unknown field" in words and " at `$.tools[" in words
    return f"{words}; {_OF_A_TOOL}" if is_of_tool else words


def _in_short(words: str) -> str:
    """The decoder's words, which quote what was sent whatever its length, and end in the place."""
    if len(words) <= MAX_WORDS:
        return words
    return f"{words[: MAX_WORDS // 2]}…{words[-MAX_WORDS // 4 :]}"


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_, dec_hook=_secret)


def _secret(type_: type, value: object) -> object:
    """A value that only the runtime may read."""
    if type_ is not Secret or not isinstance(value, str):
        raise ValueError("expected a text")
    return Secret(value)


def check_framing(scope: Scope) -> None:
    """Raise ``Refusal`` for a body whose end is said in two ways, on which a proxy and a server may
    not agree; the connection ends, as what follows on it may be meant as a part of the body."""
    if header_of(scope, b"transfer-encoding") and header_of(scope, b"content-length"):
        raise Refusal(
            "invalid-request", "give a Content-Length or a Transfer-Encoding, not both",
            headers={"connection": "close"},
        )  # fmt: skip


def check_key(scope: Scope) -> None:
    """Raise ``Refusal`` for an ``Idempotency-Key`` that is too long."""
    if len(header_of(scope, b"idempotency-key")) > MAX_KEY:
        raise Refusal("invalid-request", f"Idempotency-Key: at most {MAX_KEY} characters")


def read_query(scope: Scope, type_: Any) -> Any:
    """The query as an object of ``type_``; a name that comes again makes a list of its values.

    Raises ``Refusal`` for an unknown name and for a value that does not fit.
    """
    given = scope.get("query_string", b"")
    if not given and type_ is None:
        return None
    try:
        values = _values(given)
        if type_ is None:
            if values:
                raise Refusal("invalid-request", "the query: nothing can be asked for here")
            return None
        return msgspec.convert(_as_fields(values, type_), type_, strict=False)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise Refusal("invalid-request", f"the query: {_in_short(str(error))}") from None


def _values(query: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in query.split(b"&"):
        if part:
            name, _, value = part.replace(b"+", b" ").partition(b"=")
            found.setdefault(_text(name), []).append(_text(value))
    return found


def _text(value: bytes) -> str:
    return unquote_to_bytes(value).decode()


def _as_fields(values: dict[str, list[str]], type_: Any) -> dict[str, Any]:
    """Each value as its field has it: several as a list, a flag without value as true."""
    fields = _fields(type_)
    made: dict[str, Any] = {}
    for name, found in values.items():
        many, flag = fields.get(name, (False, False))
        if many:
            made[name] = found
        elif len(found) > 1:
            raise Refusal("invalid-request", f"the query: {shown(name)} is given more than once")
        else:
            made[name] = "true" if flag and found[0] == "" else found[0]
    return made


@cache
def _fields(type_: Any) -> dict[str, tuple[bool, bool]]:
    """Whether each field of a query is a list, and whether it is a flag."""
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(type_)}
    return {name: (str(kind).startswith("tuple"), kind is bool) for name, kind in kinds.items()}
